//! A list of objects as a table: a line with the names, and a line for each object, with tabs between.

use serde_json::{Map, Value};

/// Columns of a table.
const MAX_COLUMNS: usize = 20;

/// Rows whose members are columns.
const MAX_READ: usize = 100;

/// Characters of a cell.
const MAX_CELL: usize = 120;

/// The beginning of a table.
pub(super) struct Table {
    pub(super) text: String,
    /// Rows in the text.
    pub(super) shown: usize,
    /// All rows.
    pub(super) rows: usize,
}

/// The table of a list of objects: of the value, or else of its member that is the longest one. `None` if there is none, or no room
/// for a row.
pub(super) fn table(value: &Value, max_bytes: usize) -> Option<Table> {
    let rows = rows_of(value)?;
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().take(MAX_READ).flat_map(|row| row.keys()) {
        if columns.len() < MAX_COLUMNS && !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let line = |cells: Vec<String>| cells.join("\t") + "\n";
    let mut text = line(columns.iter().map(|name| cell_of_text(name)).collect());
    // Tabs and line breaks take two bytes as JSON.
    let escaped = |text: &str| serde_json::to_string(text).map_or(usize::MAX, |escaped| escaped.len());
    let (mut size, mut shown) = (escaped(&text), 0);
    for row in &rows {
        let next = line(columns.iter().map(|name| row.get(*name).map_or_else(String::new, cell)).collect());
        size = size.saturating_add(escaped(&next));
        if size > max_bytes {
            break;
        }
        text.push_str(&next);
        shown += 1;
    }
    (shown > 0).then_some(Table { text, shown, rows: rows.len() })
}

fn rows_of(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    let rows = |list: &Value| -> Option<usize> {
        let list = list.as_array().filter(|list| !list.is_empty() && list.iter().all(Value::is_object))?;
        Some(list.len())
    };
    let list = match value {
        Value::Array(_) => value,
        Value::Object(members) => members.values().max_by_key(|member| rows(member).unwrap_or(0))?,
        _ => return None,
    };
    rows(list)?;
    Some(list.as_array()?.iter().filter_map(Value::as_object).collect())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => cell_of_text(text),
        Value::Array(elements) => format!("[{}]", elements.len()),
        Value::Object(members) => format!("{{{} keys}}", members.len()),
        scalar => scalar.to_string(),
    }
}

/// Its beginning, in one line.
fn cell_of_text(text: &str) -> String {
    let mut kept: String =
        text.chars().take(MAX_CELL).map(|character| if character.is_control() { ' ' } else { character }).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_objects_is_a_table() {
        let rows = json!([{"a": 1, "b": "x\ty"}, {"b": null, "c": {"d": 1}}, {"a": true}]);
        let found = table(&json!({"few": [{}], "rows": rows, "n": 1}), 1_000).unwrap();
        assert_eq!(found.text, "a\tb\tc\n1\tx y\t\n\t\t{1 keys}\ntrue\t\t\n");
        assert_eq!((found.shown, found.rows), (3, 3));
        let part = table(&rows, 24).unwrap();
        assert_eq!((part.shown, part.rows), (1, 3));
        for none in [json!({}), json!([1, {"a": 1}]), json!("a"), json!([]), json!({"a": []})] {
            assert!(table(&none, 1_000).is_none(), "{none}");
        }
        assert!(table(&rows, 5).is_none());
    }
}
