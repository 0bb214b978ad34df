//! What a person sees on the terminal, and what a script does.
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::Exit;
use crate::agent::prompts::beginning;

/// Pretty on a terminal, one line for scripts.
pub(super) fn json(value: &(impl Serialize + ?Sized)) -> Exit {
    let text =
        if io::stdout().is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    match text {
        Ok(text) => line(&text),
        Err(error) => problem(&format!("the answer cannot be written as JSON: {error}")),
    }
    Exit::Done
}

/// One of many answers, on a line of its own wherever it goes.
pub(super) fn json_line(value: &(impl Serialize + ?Sized)) {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => problem(&format!("the answer cannot be written as JSON: {error}")),
    }
}

/// What is told beside the answer, on standard error.
pub(super) fn info(text: &str) {
    let _gone = writeln!(io::stderr(), "{text}");
}

/// At most a line's worth of a text, on one line.
pub(super) fn folded(text: &str) -> String {
    const LINE: usize = 100;
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = beginning(&flat, LINE);
    if short.len() < flat.len() { format!("{short}…") } else { flat }
}

/// A text from outside without what steers a terminal: escape sequences move, hide and overwrite.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.contains(steers) { text.replace(steers, "").into() } else { text.into() }
}

/// A line of the answer. A reader that has gone (`| head`) is no reason to panic.
pub(super) fn line(text: &str) {
    if let Err(error) = writeln!(io::stdout(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        problem(&format!("the answer cannot be written: {error}"));
    }
}

pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table.add_rows(rows);
    line(&table.to_string());
}

/// What went wrong, on standard error.
pub(super) fn problem(text: &str) {
    let _gone = writeln!(io::stderr(), "sekisho: {text}");
}
