//! A table as a file: CSV (RFC 4180) or JSON, with the rows that the page shows.

use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::text::Texts;
use sekisho_api::column::Listed;
use sekisho_api::csv;

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
        Format::Csv | Format::Html => {
            ("text/csv; charset=utf-8", "csv", csv::table(columns, rows.iter().map(|row| row.as_ref().iter())))
        }
    };
    let disposition = format!("attachment; filename=\"sekisho-{name}.{ending}\"");
    let disposition = HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type)), (CONTENT_DISPOSITION, disposition)];
    (StatusCode::OK, headers, text).into_response()
}

fn json(columns: &[&str], rows: &[impl AsRef<[Value]>]) -> String {
    let named = |row: &[Value]| {
        let members = columns.iter().zip(row).map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Object(members.collect::<Map<_, _>>())
    };
    Value::Array(rows.iter().map(|row| named(row.as_ref())).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_has_the_names_of_the_columns() {
        let rows =
            Rows { name: "t", columns: ["name", "n"], rows: vec![[json!("a"), json!(1.5)], [json!("b"), json!(null)]] };
        let expected = json!([{"name": "a", "n": 1.5}, {"name": "b", "n": null}]);
        assert_eq!(super::json(&rows.columns, &rows.rows), expected.to_string());
        let response = rows.respond(Format::Csv);
        assert_eq!(response.headers()[CONTENT_DISPOSITION], "attachment; filename=\"sekisho-t.csv\"");
    }
}
