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
    pub fn lost(&mut self, operation: &str, reason: impl Into<String>) {
        self.lost.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }

    pub fn approximated(&mut self, operation: &str, reason: impl Into<String>) {
        self.approximated.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }
}
