//! Formats differences for people. Text from tools is shown so that nothing in it is hidden.

use serde_json::{Value, json};

use sekisho_calls::registry::lock::escape_hidden;
use sekisho_calls::registry::lock::{Change, Difference, Edit, Pin};
use sekisho_core::error::Detail;

/// Characters shown of a part of a line that is the same before and after a change.
const CONTEXT: usize = 40;

/// Whether a difference concerns a tool of this name, including its old one.
pub(super) fn concerns(difference: &Difference, name: &str) -> bool {
    difference.tool == name || matches!(&difference.change, Change::Renamed { from } if from == name)
}

pub(super) fn as_json(difference: &Difference, flags: &[Detail]) -> Value {
    let mut value = json!(difference);
    value["flags"] = json!(flags);
    value
}

pub(super) fn as_text(difference: &Difference, now: Option<&Pin>, flags: &[Detail]) -> String {
    let Difference { tool, change, origin, edits, quarantined } = difference;
    let held = if *quarantined { "; quarantined until approved" } else { "" };
    let origin = escape_hidden(origin);
    let heading = match change {
        Change::Added => format!("+ {tool}: new, from {origin}{held}"),
        Change::Removed => format!("- {tool}: no longer there, was from {origin}"),
        Change::Changed => format!("~ {tool}: changed, from {origin}{held}"),
        Change::Renamed { from } => format!("~ {from} is now {tool}, from {origin}{held}"),
    };
    let mut lines = vec![heading];
    if let (Change::Added, Some(now)) = (change, now) {
        lines.extend(now.description().lines().map(|line| format!("    {}", escape_hidden(line))));
    }
    for edit in edits {
        add_edit(edit, &mut lines);
    }
    if !flags.is_empty() {
        lines.push(self::flags(flags));
    }
    lines.join("\n")
}

/// One line for each flag.
pub(super) fn flags(flags: &[Detail]) -> String {
    let line = |flag: &Detail| {
        format!("    ! {} at {}: {}", flag.rule, escape_hidden(&flag.path), escape_hidden(&flag.message))
    };
    flags.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn add_edit(Edit { path, before, after }: &Edit, lines: &mut Vec<String>) {
    let path = escape_hidden(path);
    match (before, after) {
        (None, Some(after)) => lines.push(format!("    {path} added: {}", shown(after))),
        (Some(before), None) => lines.push(format!("    {path} removed: {}", shown(before))),
        (Some(Value::String(before)), Some(Value::String(after))) => {
            lines.push(format!("    {path}"));
            add_text_edit(before, after, lines);
        }
        (Some(before), Some(after)) => lines.push(format!("    {path}: {} → {}", shown(before), shown(after))),
        (None, None) => {}
    }
}

/// The lines that differ; the same lines before and after them are left out.
fn add_text_edit(before: &str, after: &str, lines: &mut Vec<String>) {
    let (before, after): (Vec<_>, Vec<_>) = (before.split('\n').collect(), after.split('\n').collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(one, other)| one == other).count();
    let first = same(&mut before.iter().zip(&after));
    let last = same(&mut before[first..].iter().rev().zip(after[first..].iter().rev()));
    let (before, after) = (&before[first..before.len() - last], &after[first..after.len() - last]);
    match (before, after) {
        ([before], [after]) => {
            let (before, after) = clipped(before, after);
            lines.push(format!("      - {before}"));
            lines.push(format!("      + {after}"));
        }
        _ => {
            lines.extend(before.iter().map(|line| format!("      - {}", escape_hidden(line))));
            lines.extend(after.iter().map(|line| format!("      + {}", escape_hidden(line))));
        }
    }
}

/// Two long lines without their common start and end.
fn clipped(before: &str, after: &str) -> (String, String) {
    let (before, after): (Vec<_>, Vec<_>) = (before.chars().collect(), after.chars().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&char, &char)>| pairs.take_while(|(one, other)| one == other).count();
    let first = same(&mut before.iter().zip(&after));
    let last = same(&mut before[first..].iter().rev().zip(after[first..].iter().rev()));
    let (skipped, left) = (first.saturating_sub(CONTEXT), last.saturating_sub(CONTEXT));
    let clip = |line: &[char]| {
        let middle: String = line[skipped..line.len() - left].iter().collect();
        let (start, end) = (if skipped > 0 { "…" } else { "" }, if left > 0 { "…" } else { "" });
        format!("{start}{}{end}", escape_hidden(&middle))
    };
    (clip(&before), clip(&after))
}

fn shown(value: &Value) -> String {
    escape_hidden(&value.to_string())
}
