//! The fidelity report: the result for each operation of a document.

use serde::Serialize;

/// What works, what was approximated and what was lost, operation by operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Operations in the document.
    pub operations: usize,
    /// Tools generated from them.
    pub tools: usize,
    /// Tools that match the document exactly.
    pub works: Vec<Works>,
    /// Operations not offered, or offered without a part.
    pub lost: Vec<Note>,
    /// Operations that work, but differ from the document.
    pub approximated: Vec<Note>,
    /// Operations that require a role only because of their method.
    pub dangerous: Vec<Works>,
}

/// An operation and its tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Works {
    pub operation: String,
    pub tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The operationId, or `METHOD /path`, or a place in the document outside of operations.
    pub operation: String,
    pub reason: String,
}

impl Report {
    /// A message with the number of operations that are dangerous because of their method, and the setting that
    /// changes it; `None` where there are none. `opened` are tools that the configuration marks as harmless.
    pub fn dangerous_by_method(&self, opened: impl Fn(&str) -> bool) -> Option<String> {
        let count = self.dangerous.iter().filter(|works| !opened(&works.tool)).count();
        let subject = match count {
            0 => return None,
            1 => "1 operation is",
            _ => &format!("{count} operations are"),
        };
        Some(format!(
            "{subject} dangerous for the method, so callers need a role; `dangerous: {{methods: []}}` at the collection \
             opens that"
        ))
    }

    pub fn lost(&mut self, operation: &str, reason: impl Into<String>) {
        self.lost.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }

    pub fn approximated(&mut self, operation: &str, reason: impl Into<String>) {
        self.approximated.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }
}
