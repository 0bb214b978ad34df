//! External tools that differ from the lock. They are listed as quarantined, but not offered and not run.

use super::LockViolation;
use crate::tool::Metadata;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, Detail, ErrorCode};

/// A quarantined tool. Its current description is not kept, except for the parts in the findings.
#[derive(Debug)]
pub struct Quarantined {
    /// Has the approved description; empty when none was approved.
    pub metadata: Metadata,
    pub violation: LockViolation,
    /// Suspected prompt injections in the tool's texts.
    pub flags: Vec<Detail>,
}

impl Quarantined {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether the tool is hidden from the caller.
    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        self.metadata.is_hidden_from(caller)
    }

    /// The error `tool_changed` for calls of the tool.
    pub fn refusal(&self) -> CallError {
        let (name, violation) = (self.name(), &self.violation);
        let message = format!("{name} is quarantined: {violation}; an operator can review it with `sekisho lock diff`");
        CallError::new(ErrorCode::ToolChanged, message)
    }
}
