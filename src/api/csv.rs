//! Tables as CSV (RFC 4180).

use serde_json::Value;

/// The names of the columns, and a line for each row. Texts and JSON are in quotes. A text that a spreadsheet would take
/// for a formula begins with an apostrophe.
pub fn table<'a>(columns: &[&str], rows: impl Iterator<Item = impl IntoIterator<Item = &'a Value>>) -> String {
    columns.join(",") + "\r\n" + &lines(rows)
}

/// A line for each row, as in a [`table`].
pub fn lines<'a>(rows: impl Iterator<Item = impl IntoIterator<Item = &'a Value>>) -> String {
    let mut text = String::new();
    for row in rows {
        let fields: Vec<_> = row.into_iter().map(field).collect();
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    text
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => quoted(&value.to_string()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let is_formula =
        text.starts_with(['=', '+', '@', '\t', '\r']) || text.starts_with('-') && text.parse::<f64>().is_err();
    format!("\"{}{}\"", if is_formula { "'" } else { "" }, text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_one_field_and_no_formula() {
        for (value, expected) in [
            (json!(null), ""),
            (json!(-1.5), "-1.5"),
            (json!(true), "true"),
            (json!("é"), "\"é\""),
            (json!("a,\"b\"\r\nc"), "\"a,\"\"b\"\"\r\nc\""),
            (json!(["a", "b"]), "\"[\"\"a\"\",\"\"b\"\"]\""),
            (json!("=SUM(A1)"), "\"'=SUM(A1)\""),
            (json!("+1"), "\"'+1\""),
            (json!("@x"), "\"'@x\""),
            (json!("\tx"), "\"'\tx\""),
            (json!("-1.5"), "\"-1.5\""),
            (json!("-cmd"), "\"'-cmd\""),
        ] {
            assert_eq!(field(&value), expected);
        }
    }

    #[test]
    fn the_columns_are_in_the_first_line() {
        let rows = [[json!(1), json!("x")], [json!(2), json!(null)]];
        assert_eq!(table(&["a", "b"], rows.iter()), "a,b\r\n1,\"x\"\r\n2,\r\n");
        assert_eq!(table(&["a"], std::iter::empty::<&[Value]>()), "a\r\n");
    }
}
