//! One page of a stored result: the part that a query selects, of that the part that matches, and of that as much as
//! fits. Or all of it.

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::builtin::json_query;
use crate::builtin::side_thread::Stop;
use sekisho_calls::results::{OpenedResult, ResultKind, preview_of_value};
use sekisho_core::error::CallError;
use sekisho_core::json;

/// Longer lines are read in pieces, each of which counts as one.
const MAX_LINE_BYTES: usize = 1_000;

/// Longer elements are searched in pieces, since the search of one cannot be interrupted.
const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// The size of a page beside its content.
const ENVELOPE_BYTES: usize = 200;

/// Which part is read.
#[derive(Debug)]
pub(super) struct Part {
    pub query: Option<String>,
    pub grep: Option<Regex>,
    pub offset: usize,
    pub limit: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes of a page.
    pub page: usize,
    /// Bytes that a query may walk over and build.
    pub memory: usize,
}

/// Errors: `tool_error`: the query fails, or is for a text; or there is no time left.
pub(super) fn read(result: &OpenedResult, part: &Part, bounds: Bounds, stop: &Stop) -> Result<Value, CallError> {
    let room = bounds.page.saturating_sub(ENVELOPE_BYTES);
    let mut page = Map::new();
    page.insert("content_type".to_owned(), result.kind.content_type().into());
    if result.kind == ResultKind::Text {
        if part.query.is_some() {
            return Err(CallError::tool(
                "the result is a text, which has no `query`; use `grep`, or `offset` and `limit`",
            ));
        }
        add_lines(&mut page, &result.text, part, room, stop)?;
        return Ok(Value::Object(page));
    }
    let whole = json::lenient(&result.text).map_err(CallError::internal)?;
    let selected = match &part.query {
        Some(query) => json_query::select(query, &whole, (bounds.memory, bounds.memory), stop)?,
        None => whole,
    };
    match selected {
        Value::String(text) => add_lines(&mut page, &text, part, room, stop)?,
        Value::Array(elements) => add_elements(&mut page, elements, part, room, stop)?,
        Value::Object(members) if part.grep.is_some() || size(&members) > room => {
            let elements = members.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
            add_elements(&mut page, elements, part, room, stop)?;
        }
        value => _ = page.insert("value".to_owned(), value),
    }
    Ok(Value::Object(page))
}

/// All of a result.
pub(super) fn whole(result: OpenedResult) -> Result<Value, CallError> {
    let content_type = result.kind.content_type();
    let (name, content) = match result.kind {
        ResultKind::Text => ("text", Value::from(result.text)),
        ResultKind::Json => ("value", json::lenient(&result.text).map_err(CallError::internal)?),
    };
    Ok(Map::from_iter([("content_type".to_owned(), content_type.into()), (name.to_owned(), content)]).into())
}

fn add_lines(
    page: &mut Map<String, Value>,
    text: &str,
    part: &Part,
    room: usize,
    stop: &Stop,
) -> Result<(), CallError> {
    let (mut shown, mut bytes, mut total, mut count) = (String::new(), 0, 0, 0);
    let mut is_full = false;
    for (number, line) in (1_usize..).zip(text.lines().flat_map(|line| pieces(line, MAX_LINE_BYTES))) {
        check_time(stop)?;
        if part.grep.as_ref().is_some_and(|grep| !grep.is_match(line)) {
            continue;
        }
        total += 1;
        if total <= part.offset || count == part.limit || is_full {
            continue;
        }
        let line = if part.grep.is_some() { format!("{number}: {line}\n") } else { format!("{line}\n") };
        bytes += escaped_len(&line);
        // A page has one line at least, so that reading goes on.
        if count > 0 && bytes > room {
            is_full = true;
            continue;
        }
        shown.push_str(&line);
        count += 1;
    }
    page.insert("text".to_owned(), shown.into());
    add_place(page, part, total, count);
    Ok(())
}

fn add_elements(
    page: &mut Map<String, Value>,
    elements: Vec<Value>,
    part: &Part,
    room: usize,
    stop: &Stop,
) -> Result<(), CallError> {
    let mut matching = Vec::new();
    for element in elements {
        check_time(stop)?;
        let is_match = match &part.grep {
            Some(grep) => has_match(grep, &text_of(&element), stop)?,
            None => true,
        };
        if is_match {
            matching.push(element);
        }
    }
    let (total, mut shown, mut bytes) = (matching.len(), Vec::new(), 0);
    for element in matching.into_iter().skip(part.offset).take(part.limit) {
        check_time(stop)?;
        let length = size(&element) + 1;
        // An element that is too large for a page is shown as a preview of it.
        let (element, length) = match length > room {
            true => {
                let preview = json!({"preview": preview_of_value(&element, room / 2), "bytes": length});
                let length = size(&preview) + 1;
                (preview, length)
            }
            false => (element, length),
        };
        bytes += length;
        if bytes > room && !shown.is_empty() {
            break;
        }
        shown.push(element);
    }
    let count = shown.len();
    page.insert("items".to_owned(), shown.into());
    add_place(page, part, total, count);
    Ok(())
}

fn add_place(page: &mut Map<String, Value>, part: &Part, total: usize, count: usize) {
    page.insert("total".to_owned(), total.into());
    let next = part.offset.saturating_add(count);
    if count > 0 && next < total {
        page.insert("next_offset".to_owned(), next.into());
    }
}

fn has_match(grep: &Regex, text: &str, stop: &Stop) -> Result<bool, CallError> {
    for piece in pieces(text, MAX_SEARCHED_BYTES) {
        check_time(stop)?;
        if grep.is_match(piece) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A text in pieces of at most so many bytes; an empty text is one empty piece.
fn pieces(text: &str, max_bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (piece, more) = text.split_at(text.floor_char_boundary(max_bytes));
        rest = (!more.is_empty()).then_some(more);
        Some(piece)
    })
}

fn text_of(element: &Value) -> String {
    match element {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

fn escaped_len(text: &str) -> usize {
    size(&text).saturating_sub(2)
}

fn check_time(stop: &Stop) -> Result<(), CallError> {
    match stop.requested() {
        true => Err(CallError::tool("reading the result takes too long; select less first")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::side_thread::tests::never;

    #[test]
    fn a_long_text_is_searched_in_pieces_and_no_longer_than_there_is_time() {
        let (caller, stop) = never();
        let (grep, text) = (Regex::new("needle$").unwrap(), format!("{}needle", "関".repeat(20_000)));
        assert!(has_match(&grep, &text, &stop).unwrap());
        assert!(!has_match(&grep, "", &stop).unwrap());
        assert!(has_match(&Regex::new("^$").unwrap(), "", &stop).unwrap());
        assert!(pieces(&text, MAX_SEARCHED_BYTES).all(|piece| piece.len() <= MAX_SEARCHED_BYTES));
        assert_eq!(pieces(&text, MAX_SEARCHED_BYTES).collect::<String>(), text);
        drop(caller);
        assert!(has_match(&grep, &text, &stop).unwrap_err().message().contains("too long"));
    }
}
