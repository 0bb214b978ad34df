//! The part of a large result that a model gets: the shape, counts and first rows of JSON, or the first lines of a
//! text; and how the rest is read.

use serde_json::{Map, Value};

use super::large::{LargeResult, ResultKind};
use super::sample::{EXTENTS, sample};
use super::shape::shape;
use super::table::{Table, table};
use sekisho_config::Summary;

/// A preview as a value, and as a text for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    pub value: Value,
    pub text: String,
}

/// Maximum size of a preview, in bytes.
const MAX_PREVIEW_BYTES: usize = 8_192;

/// The members beside a table, in bytes.
const TABLE_ENVELOPE: usize = 64;

impl LargeResult {
    /// A text of at most `max_bytes`, and a value of the same maximum if that suffices for its members beside the
    /// content. `form`: the configured one; `handle`: if the result is stored; `rest`: a sentence on how the rest is read.
    pub fn preview(&self, form: Option<Summary>, handle: Option<&str>, rest: &str, max_bytes: usize) -> Preview {
        let max_bytes = max_bytes.min(MAX_PREVIEW_BYTES);
        let mut head = Map::new();
        if let Some(handle) = handle {
            head.insert("result_handle".to_owned(), handle.into());
        }
        head.insert("content_type".to_owned(), self.kind.content_type().into());
        head.insert("bytes".to_owned(), self.text.len().into());
        head.insert("note".to_owned(), rest.into());
        match self.kind {
            ResultKind::Json => {
                let value = Value::Object(match form {
                    None | Some(Summary::Head) => with_sample(head, &self.value, max_bytes),
                    Some(Summary::Keys) => with_shape(head, &self.value, max_bytes),
                    Some(Summary::Table) => with_table(head, &self.value, max_bytes),
                });
                Preview { text: cut(value.to_string(), max_bytes), value }
            }
            ResultKind::Text => self.preview_of_text(head, rest, max_bytes),
        }
    }

    fn preview_of_text(&self, mut head: Map<String, Value>, rest: &str, max_bytes: usize) -> Preview {
        let (bytes, lines) = (self.text.len(), self.text.lines().count());
        head.insert("lines".to_owned(), lines.into());
        let closing = format!("\n[The beginning of {bytes} bytes in {lines} lines. {rest}]");
        let first = beginning(&self.text, max_bytes.saturating_sub(closing.len()));
        let text = cut(format!("{first}{closing}"), max_bytes);
        Preview { value: Value::Object(with_beginning(head, first, max_bytes)), text }
    }
}

/// The same of a part of a result that is too large for a page.
pub fn preview_of_value(value: &Value, max_bytes: usize) -> Value {
    Value::Object(with_sample(Map::new(), value, max_bytes.min(MAX_PREVIEW_BYTES)))
}

/// As much of the value as fits.
fn with_sample(head: Map<String, Value>, value: &Value, max_bytes: usize) -> Map<String, Value> {
    let shape = shape(value, max_bytes / 4);
    for extent in EXTENTS {
        let Some(first) = sample(value, extent, max_bytes) else { continue };
        let mut shown = head.clone();
        shown.insert("shape".to_owned(), shape.clone().into());
        shown.insert("first".to_owned(), first);
        if size(&shown) <= max_bytes {
            return shown;
        }
    }
    with_shape(head, value, max_bytes)
}

/// Its shape, if it fits.
fn with_shape(head: Map<String, Value>, value: &Value, max_bytes: usize) -> Map<String, Value> {
    let mut shown = head.clone();
    shown.insert("shape".to_owned(), shape(value, max_bytes / 4).into());
    if size(&shown) <= max_bytes { shown } else { head }
}

/// Its list of objects as a table, if it has one, with as many rows as fit.
fn with_table(head: Map<String, Value>, value: &Value, max_bytes: usize) -> Map<String, Value> {
    let room = max_bytes.saturating_sub(size(&head) + TABLE_ENVELOPE);
    let Some(table) = table(value, room) else { return with_sample(head, value, max_bytes) };
    let mut shown = head.clone();
    let Table { text, shown: shown_rows, rows } = table;
    shown.insert("rows".to_owned(), rows.into());
    shown.insert("shown".to_owned(), shown_rows.into());
    shown.insert("table".to_owned(), text.into());
    if size(&shown) <= max_bytes { shown } else { with_sample(head, value, max_bytes) }
}

/// As much of the text as fits with its escapes.
fn with_beginning(head: Map<String, Value>, text: &str, max_bytes: usize) -> Map<String, Value> {
    let mut room = text.len();
    while room > 0 {
        let mut shown = head.clone();
        shown.insert("first".to_owned(), beginning(text, room).into());
        if size(&shown) <= max_bytes {
            return shown;
        }
        room /= 2;
    }
    head
}

/// Ends with a line, if one ends in its second half.
fn beginning(text: &str, max_bytes: usize) -> &str {
    let cut = &text[..text.floor_char_boundary(max_bytes)];
    match cut.rfind('\n') {
        Some(end) if cut.len() < text.len() && end >= cut.len() / 2 => &cut[..end],
        _ => cut,
    }
}

fn cut(mut text: String, max_bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(max_bytes));
    text
}

fn size(shown: &Map<String, Value>) -> usize {
    serde_json::to_string(shown).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const HANDLE: &str = "0123456789abcdef0123456789abcdef";
    const REST: &str = "Read the rest with `read_result`.";

    fn large(output: &Value) -> LargeResult {
        LargeResult::new(output, "")
    }

    #[test]
    fn json_is_shown_by_its_shape_its_counts_and_its_first_rows() {
        let rows: Vec<_> = (0..10_000).map(|id| json!({"id": id, "name": format!("row {id}")})).collect();
        let large = large(&json!({"total": 10_000, "rows": rows}));
        let Preview { value, text } = large.preview(None, Some(HANDLE), REST, 32_768);
        assert_eq!(text, value.to_string());
        assert!(text.len() <= MAX_PREVIEW_BYTES, "{}", text.len());
        assert_eq!((&value["result_handle"], &value["note"]), (&json!(HANDLE), &json!(REST)));
        assert_eq!(value["shape"], "{total: number, rows: [10000 × {id: number, name: string}]}");
        assert_eq!(value["first"]["rows"][0], json!({"id": 0, "name": "row 0"}));
        assert_eq!(value["first"]["rows"][50], "… 9950 more");
        assert_eq!((&value["content_type"], &value["bytes"]), (&json!("application/json"), &json!(large.text.len())));
        assert!(large.preview(None, None, REST, 32_768).value.get("result_handle").is_none());
    }

    #[test]
    fn a_text_is_shown_by_its_first_lines() {
        let lines: String = (0..1_000).map(|line| format!("line {line}\n")).collect();
        let Preview { value, text } = large(&json!(lines)).preview(None, Some(HANDLE), REST, 1_000);
        assert!(text.starts_with("line 0\nline 1\n") && text.len() <= 1_000, "{text}");
        assert!(text.ends_with(&format!("\n[The beginning of {} bytes in 1000 lines. {REST}]", lines.len())), "{text}");
        assert!(value["first"].as_str().unwrap().starts_with("line 0\nline 1\n"));
        assert_eq!(value["lines"], 1_000);
        assert_eq!(beginning("one\ntwo\nthree", 8), "one\ntwo");
        assert_eq!(beginning("a\nlong line", 8), "a\nlong l", "more than half would be lost");
        assert_eq!(beginning("one\n", 8), "one\n");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,300}".prop_map(Value::from),
            "[\u{0}-\u{1f}\"\\\\関]{0,300}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 200, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map(".{0,40}", inner, 0..20)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn any_form() -> impl Strategy<Value = Option<Summary>> {
        let forms = [None, Some(Summary::Head), Some(Summary::Keys), Some(Summary::Table)];
        prop::sample::select(forms.to_vec())
    }

    #[test]
    fn a_summary_has_its_form() {
        let rows: Vec<_> = (0..1_000).map(|id| json!({"id": id, "name": format!("row {id}"), "tags": ["a"]})).collect();
        let large = large(&json!({"total": 1_000, "rows": rows}));
        let of = |form| large.preview(Some(form), Some(HANDLE), REST, 2_000).value;
        let keys = of(Summary::Keys);
        assert_eq!(keys["shape"], "{total: number, rows: [1000 × {id: number, name: string, tags: [1 × string]}]}");
        assert_eq!((keys.get("first"), &keys["result_handle"]), (None, &json!(HANDLE)));
        assert!(of(Summary::Head).get("first").is_some());
        let table = of(Summary::Table);
        let text = table["table"].as_str().unwrap();
        assert!(text.starts_with("id\tname\ttags\n0\trow 0\t[1]\n1\trow 1\t[1]\n"), "{text}");
        assert_eq!((&table["rows"], &table["shown"]), (&json!(1_000), &json!(text.lines().count() - 1)));
        assert!(large.preview(Some(Summary::Table), None, REST, 2_000).text.len() <= 2_000);
    }

    proptest! {
        #[test]
        fn no_preview_is_larger_than_its_bound(
            value in any_json(), max_bytes in 0_usize..3_000, is_stored in any::<bool>(), form in any_form()
        ) {
            let large = large(&value);
            let head = 300;
            let preview = large.preview(form, is_stored.then_some(HANDLE), REST, max_bytes);
            prop_assert!(preview.text.len() <= max_bytes);
            prop_assert!(preview.value.to_string().len() <= max_bytes.max(head), "{}", preview.value);
            prop_assert!(preview_of_value(&value, max_bytes).to_string().len() <= max_bytes.max(2));
        }
    }
}
