//! The shape of a JSON value in a line: `{total: number, items: [1000 × {id: number, name: string}]}`.

use std::collections::HashSet;

use serde_json::Value;

/// Members of an object that are named.
const MAX_KEYS: usize = 40;

/// Nesting that is shown.
const MAX_DEPTH: usize = 5;

/// Elements of a list that are read.
const MAX_ELEMENTS: usize = 100;

/// At most so many bytes. Elements of a list are shown together: members that not all of them have with a `?`.
pub(super) fn shape(value: &Value, max_bytes: usize) -> String {
    let mut shape = Shape { text: String::new(), max_bytes };
    shape.add(&[value], 0);
    shape.text
}

struct Shape {
    text: String,
    max_bytes: usize,
}

impl Shape {
    /// What values at the same place have in common; otherwise each kind of them.
    fn add(&mut self, values: &[&Value], depth: usize) {
        let kinds: [fn(&Value) -> bool; 6] =
            [Value::is_object, Value::is_array, Value::is_string, Value::is_number, Value::is_boolean, Value::is_null];
        let mut is_first = true;
        for is_kind in kinds {
            let same: Vec<_> = values.iter().copied().filter(|value| is_kind(value)).collect();
            let Some(first) = same.first() else { continue };
            self.push(if is_first { "" } else { " | " });
            is_first = false;
            match first {
                Value::Null => self.push("null"),
                Value::Bool(_) => self.push("boolean"),
                Value::Number(_) => self.push("number"),
                Value::String(_) => self.push("string"),
                Value::Array(_) => self.add_lists(&same, depth),
                Value::Object(_) => self.add_objects(&same, depth),
            }
        }
    }

    fn add_lists(&mut self, lists: &[&Value], depth: usize) {
        let lists: Vec<_> = lists.iter().filter_map(|list| list.as_array()).collect();
        let lengths = lists.iter().map(|list| list.len());
        let (least, most) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
        let count = if least == most { most.to_string() } else { format!("{least}–{most}") };
        // As many of each list as of the others, from its beginning to its end.
        let of_each = (MAX_ELEMENTS / lists.len().max(1)).max(1);
        let read = lists.iter().flat_map(|list| list.iter().step_by(list.len().div_ceil(of_each).max(1)));
        let elements: Vec<_> = read.take(MAX_ELEMENTS).collect();
        if elements.is_empty() || depth >= MAX_DEPTH {
            return self.push(&format!("[{count}]"));
        }
        self.push(&format!("[{count} × "));
        self.add(&elements, depth + 1);
        self.push("]");
    }

    fn add_objects(&mut self, objects: &[&Value], depth: usize) {
        let objects: Vec<_> = objects.iter().filter_map(|object| object.as_object()).collect();
        let mut seen = HashSet::new();
        let keys: Vec<_> = objects.iter().flat_map(|object| object.keys()).filter(|key| seen.insert(*key)).collect();
        if depth >= MAX_DEPTH {
            return self.push(&format!("{{{} keys}}", keys.len()));
        }
        self.push("{");
        for (index, key) in keys.iter().take(MAX_KEYS).enumerate() {
            let members: Vec<_> = objects.iter().filter_map(|object| object.get(*key)).collect();
            self.push(if index > 0 { ", " } else { "" });
            self.push(key);
            self.push(if members.len() < objects.len() { "?: " } else { ": " });
            self.add(&members, depth + 1);
            if self.text.len() >= self.max_bytes {
                return;
            }
        }
        if keys.len() > MAX_KEYS {
            self.push(&format!(", and {} more keys", keys.len() - MAX_KEYS));
        }
        self.push("}");
    }

    /// As much of the text as there is room for, and nothing after a text that does not fit.
    fn push(&mut self, text: &str) {
        let room = self.max_bytes.saturating_sub(self.text.len());
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            self.max_bytes = self.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_types_and_counts_are_shown() {
        let deep = json!({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}});
        for (value, expected) in [
            (json!([]), "[0]"),
            (json!([1, 2, 3]), "[3 × number]"),
            (
                json!({"total": 2, "items": [{"id": 1, "on": true}, {}]}),
                "{total: number, items: [2 × {id?: number, on?: boolean}]}",
            ),
            (
                json!([{"v": 0}, {"id": "a", "v": null}, {"v": 1.5, "tags": []}]),
                "[3 × {v: number | null, id?: string, tags?: [0]}]",
            ),
            (json!([[1, 2], [], ["x"], 7]), "[4 × [0–2 × string | number] | number]"),
            (json!({"a": null, "b": "x", "c": {}}), "{a: null, b: string, c: {}}"),
            (deep, "{a: {b: {c: {d: {e: {1 keys}}}}}}"),
        ] {
            assert_eq!(shape(&value, 1_000), expected);
        }
        let wide = Value::Object((0..100).map(|n| (format!("k{n}"), json!(n))).collect());
        assert!(shape(&wide, 1_000).ends_with("k39: number, and 60 more keys}"));
        assert_eq!(shape(&json!({"関所": 1}), 5), "{関");
    }
}
