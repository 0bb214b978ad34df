//! The fidelity report: what became of each operation of a document.

use serde::Serialize;

/// What works, what was approximated and what was lost, operation by operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Operations in the document.
    pub operations: usize,
    /// Tools made of them.
    pub tools: usize,
    /// Those that do just what the document says.
    pub works: Vec<Works>,
    /// Not offered, or offered without a part.
    pub lost: Vec<Note>,
    /// Works, but not exactly as the document says.
    pub approximated: Vec<Note>,
    /// Those that a caller needs a role for, for no other reason than their method.
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
    /// How many operations are dangerous for their method, and what to write to have them otherwise; `None`
    /// where there are none. `opened` are tools that the configuration calls harmless.
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
