//! A table as a file: CSV (RFC 4180) or JSON, with the rows that the page shows.

use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::text::Texts;
use sekisho_api::column::Listed;

/// The form of a page: `html` is the page itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Html,
    Csv,
    Json,
}

/// The rows of a table, with names for their values.
#[derive(Debug)]
pub(super) struct Rows<'a, const COLUMNS: usize> {
    /// The name of the file, without its ending.
    pub name: &'a str,
    pub columns: [&'a str; COLUMNS],
    pub rows: Vec<[Value; COLUMNS]>,
}

/// Links to the files with the rows of a page. `address` is the page's.
pub(super) fn links(texts: &Texts, address: &str) -> Markup {
    let separator = if address.contains('?') { '&' } else { '?' };
    html! {
        p.small.export {
            (texts.get("export-label")) " "
            a href={ (address) (separator) "format=csv" } download { "CSV" } " · "
            a href={ (address) (separator) "format=json" } download { "JSON" }
        }
    }
}

impl<const COLUMNS: usize> Rows<'_, COLUMNS> {
    pub(super) fn respond(&self, format: Format) -> Response {
        file(self.name, &self.columns, &self.rows, format)
    }
}

/// Entries of a list of the API with all their columns.
pub(super) fn listed<T: Listed>(entries: &[T], format: Format) -> Response {
    let names: Vec<_> = T::COLUMNS.iter().map(|column| column.name).collect();
    let row = |entry: &T| {
        let members = entry.members();
        T::COLUMNS.iter().map(|column| column.value(&members).into_owned()).collect::<Vec<_>>()
    };
    file(T::NAME, &names, &entries.iter().map(row).collect::<Vec<_>>(), format)
}

fn file(name: &str, columns: &[&str], rows: &[impl AsRef<[Value]>], format: Format) -> Response {
    let (media_type, ending, text) = match format {
        Format::Json => ("application/json", "json", json(columns, rows)),
        Format::Csv | Format::Html => ("text/csv; charset=utf-8", "csv", csv(columns, rows)),
    };
    let disposition = format!("attachment; filename=\"sekisho-{name}.{ending}\"");
    let disposition = HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type)), (CONTENT_DISPOSITION, disposition)];
    (StatusCode::OK, headers, text).into_response()
}

fn csv(columns: &[&str], rows: &[impl AsRef<[Value]>]) -> String {
    let mut text = columns.join(",") + "\r\n";
    for row in rows {
        let fields: Vec<_> = row.as_ref().iter().map(field).collect();
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    text
}

fn json(columns: &[&str], rows: &[impl AsRef<[Value]>]) -> String {
    let named = |row: &[Value]| {
        let members = columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Object(members.collect::<Map<_, _>>())
    };
    Value::Array(rows.iter().map(|row| named(row.as_ref())).collect()).to_string()
}

/// Always in quotes where it is a text or JSON. A text that a spreadsheet would take for a formula begins with an
/// apostrophe.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => quoted(&value.to_string()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    format!("\"{}{}\"", if is_formula { "'" } else { "" }, text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_one_field_and_no_formula() {
        let hostile = "=HYPERLINK(\"http://x\",\"a\"),b\r\nc";
        let rows = Rows {
            name: "t",
            columns: ["name", "n"],
            rows: vec![[json!(hostile), json!(1.5)], [json!("é"), Value::Null], [json!(["a", "b"]), json!(true)]],
        };
        let expected = "name,n\r\n\"'=HYPERLINK(\"\"http://x\"\",\"\"a\"\"),b\r\nc\",1.5\r\n\"é\",\r\n\
                        \"[\"\"a\"\",\"\"b\"\"]\",true\r\n";
        assert_eq!(csv(&rows.columns, &rows.rows), expected);
        let expected = json!([{"name": hostile, "n": 1.5}, {"name": "é", "n": null}, {"name": ["a", "b"], "n": true}]);
        assert_eq!(super::json(&rows.columns, &rows.rows), expected.to_string());
        let response = rows.respond(Format::Csv);
        assert_eq!(response.headers()[CONTENT_DISPOSITION], "attachment; filename=\"sekisho-t.csv\"");
    }
}
