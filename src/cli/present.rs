//! Output for people and for scripts.
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::presets::{NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

use super::Exit;
use sekisho_api::column::Listed;

/// Formatted on a terminal, one line for scripts.
pub(super) fn json(value: &(impl Serialize + ?Sized)) -> Exit {
    let text =
        if io::stdout().is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    match text {
        Ok(text) => line(&text),
        Err(error) => problem(&format!("the result cannot be serialized as JSON: {error}")),
    }
    Exit::Done
}

/// One of several results, always on a line of its own.
pub(super) fn json_line(value: &(impl Serialize + ?Sized)) {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => problem(&format!("the result cannot be serialized as JSON: {error}")),
    }
}

const NO_ENTRIES: &str = "no entries";

/// A line around the table and below its header. Between rows it would double the height of most tables.
const ROWS: TableStyle = UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());

/// Additional information, on standard error.
pub(super) fn info(text: &str) {
    let _gone = writeln!(io::stderr(), "{text}");
}

/// Removes control characters from foreign text: escape sequences (ECMA-48) move, hide and overwrite output, and go as a whole.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(position) = rest.find(steers) {
        let (before, sequence) = rest.split_at(position);
        kept.push_str(before);
        rest = after_sequence(sequence);
    }
    (kept + rest).into()
}

/// The text after the sequence that a control character begins, or after only the character.
fn after_sequence(text: &str) -> &str {
    let mut characters = text.chars();
    let first = characters.next();
    let rest = characters.as_str();
    let escaped = rest.strip_prefix(['[', ']']).filter(|_| first == Some('\u{1b}'));
    match escaped {
        // A title or a link. Without an end, its text stays: otherwise it would hide the text after it.
        Some(command) if rest.starts_with(']') => match command.split_once(['\u{7}', '\u{1b}']) {
            Some((_, after)) => after.strip_prefix('\\').unwrap_or(after),
            None => rest,
        },
        Some(parameters) => {
            let after = parameters.trim_start_matches(|character| matches!(character, ' '..='?'));
            after.strip_prefix(|character| matches!(character, '@'..='~')).unwrap_or(after)
        }
        None => rest,
    }
}

/// A line of the result. A closed pipe (`| head`) must not cause a panic.
pub(super) fn line(text: &str) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        problem(&format!("cannot write to standard output: {error}"));
    }
}

/// The entries of a list in an answer; none where it is no list.
pub(super) fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A member that is a text, for the terminal; empty where it is none.
pub(super) fn text(value: &Value, name: &str) -> String {
    harmless(value[name].as_str().unwrap_or_default()).into_owned()
}

/// Entries of a list of the API, as a table with the columns that have headings.
pub(super) fn list<T: Listed>(entries: &[Value]) {
    if entries.is_empty() {
        return info(T::NONE);
    }
    let header: Vec<_> = T::COLUMNS.iter().filter_map(|column| column.heading).collect();
    table(&header, entries.iter().map(cells::<T>).collect());
}

/// The same, or as JSON.
pub(super) fn listed<T: Listed>(entries: &[Value], as_json: bool) -> Exit {
    if as_json {
        return json(entries);
    }
    list::<T>(entries);
    Exit::Done
}

/// One entry, with a heading a line.
pub(super) fn entry<T: Listed>(entry: &Value) {
    let headings = T::COLUMNS.iter().filter_map(|column| column.heading);
    lines(headings.zip(cells::<T>(entry)).map(|(heading, value)| vec![heading.to_owned(), value]).collect());
}

/// The values of an entry in the columns with headings.
pub(super) fn cells<T: Listed>(entry: &Value) -> Vec<String> {
    let columns = T::COLUMNS.iter().filter(|column| column.heading.is_some());
    columns.map(|column| harmless(&column.words(entry)).into_owned()).collect()
}

/// Whether text may have colours and styles: `NO_COLOR` has no value (<https://no-color.org>). They are for terminals only, which the
/// caller checks.
pub(super) fn may_style() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Cells may have text of servers and callers.
fn harmless_cells(cells: Vec<String>) -> Vec<String> {
    cells.into_iter().map(|cell| harmless(&cell).into_owned()).collect()
}

/// A table of plain cells. Without rows it would read like a failure, so that a sentence stands for it.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    table_of(header, rows.into_iter().map(harmless_cells).map(Row::from).collect());
}

/// The same with cells that have colours, which are shown on a terminal only.
pub(super) fn colored_table(header: &[&str], rows: Vec<Vec<Cell>>) {
    table_of(header, rows.into_iter().map(Row::from).collect());
}

fn table_of(header: &[&str], rows: Vec<Row>) {
    if rows.is_empty() {
        return info(NO_ENTRIES);
    }
    let mut table = Table::new();
    table.load_style(ROWS).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table.add_rows(rows);
    line(&table.to_string());
}

/// Rows of one line each, which fit the terminal: the last cell is cut off. Elsewhere they are whole, unless `COLUMNS`
/// is set.
pub(super) fn lines(rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return info(NO_ENTRIES);
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if let Some(columns) = columns.filter(|_| !io::stdout().is_terminal()) {
        table.set_width(columns);
    }
    let last = rows.first().map_or(0, Vec::len).saturating_sub(1);
    for cells in rows {
        let mut row = Row::from(harmless_cells(cells));
        row.max_height(1);
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index < last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    line(&table.trim_fmt());
}

/// A sign of life during work that may take a while; nothing is shown where there is no terminal.
pub(super) fn progress(text: &'static str) -> ProgressBar {
    let progress = ProgressBar::new_spinner().with_message(text);
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

/// A number of things, such as `2 tools`.
pub(super) fn counted(number: &dyn fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// An error message, on standard error.
pub(super) fn problem(text: &str) {
    let _gone = writeln!(io::stderr(), "sekisho: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_go_as_a_whole() {
        for (text, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("a\u{1b}[2J\u{1b}[1;1Hb", "ab"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link", "xlink"),
            ("\u{1b}]0;no end", "]0;no end"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}[38;5;関", "関"),
            ("bell\u{7} back\u{8} return\r", "bell back return"),
        ] {
            assert_eq!(harmless(text), expected, "{text:?}");
            assert_eq!(harmless_cells(vec!["a".to_owned(), text.to_owned()]), ["a", expected]);
        }
    }
}
