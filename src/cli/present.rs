//! Output for people and for scripts.
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::Exit;
use crate::agent::prompts::beginning;

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

/// Additional information, on standard error.
pub(super) fn info(text: &str) {
    let _gone = writeln!(io::stderr(), "{text}");
}

/// The start of a text, on one line.
pub(super) fn folded(text: &str) -> String {
    const LINE: usize = 100;
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = beginning(&flat, LINE);
    if short.len() < flat.len() { format!("{short}…") } else { flat }
}

/// Removes control characters from foreign text: escape sequences move, hide and overwrite output.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.contains(steers) { text.replace(steers, "").into() } else { text.into() }
}

/// A line of the result. A closed pipe (`| head`) must not cause a panic.
pub(super) fn line(text: &str) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        problem(&format!("cannot write to standard output: {error}"));
    }
}

pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table.add_rows(rows);
    line(&table.to_string());
}

/// An error message, on standard error.
pub(super) fn problem(text: &str) {
    let _gone = writeln!(io::stderr(), "sekisho: {text}");
}
