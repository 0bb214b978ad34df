//! Tools from outside that the lock objects to: they are known, and neither offered nor run.

use super::LockViolation;
use crate::core::call::Caller;
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::tool::Metadata;

/// One such tool. What it says of itself now is not kept, but for what the findings tell.
#[derive(Debug)]
pub struct Quarantined {
    /// With the description that was approved, none where there is no such.
    pub metadata: Metadata,
    pub objection: LockViolation,
    /// What looks like hidden instructions in it.
    pub flags: Vec<Detail>,
}

impl Quarantined {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether its `roles` keep it from the caller.
    pub fn is_hidden_from(&self, caller: &Caller) -> bool {
        self.metadata.is_hidden_from(caller)
    }

    /// `tool_changed`, for whoever calls it.
    pub fn refusal(&self) -> CallError {
        let (name, objection) = (self.name(), &self.objection);
        let message = format!("{name} is quarantined: {objection}; an operator can look with `sekisho lock diff`");
        CallError::new(ErrorCode::ToolChanged, message)
    }
}
