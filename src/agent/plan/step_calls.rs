//! The tool calls that a step made, as its page shows them: their receipts are elsewhere.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum calls of a step that are kept: the latest ones.
const MAX_CALLS: usize = 100;

/// A tool call of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepCall {
    /// As `agent_call_id` of its receipt.
    pub id: String,
    pub tool: String,
    /// Whether it failed; `null` until it is answered, and where nobody knows whether it has happened.
    pub failed: Option<bool>,
}

/// The calls of a step, in the order in which they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct StepCalls(Vec<StepCall>);

impl Deref for StepCalls {
    type Target = [StepCall];

    fn deref(&self) -> &[StepCall] {
        &self.0
    }
}

impl StepCalls {
    /// A call that is about to be sent.
    pub(super) fn begin(&mut self, id: &str, tool: &str) {
        if self.0.len() == MAX_CALLS {
            self.0.remove(0);
        }
        self.0.push(StepCall { id: id.to_owned(), tool: tool.to_owned(), failed: None });
    }

    /// A call that is answered.
    pub(super) fn end(&mut self, id: &str, failed: bool) {
        if let Some(call) = self.0.iter_mut().rev().find(|call| call.id == id) {
            call.failed = Some(failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_calls_are_kept_with_how_they_ended() {
        let mut calls = StepCalls::default();
        for number in 0..=MAX_CALLS {
            calls.begin(&number.to_string(), "add");
        }
        calls.end("0", true);
        calls.end("1", true);
        calls.end("2", false);
        assert_eq!(calls.0.len(), MAX_CALLS);
        let ends: Vec<_> = calls.0[..3].iter().map(|call| (call.id.as_str(), call.failed)).collect();
        assert_eq!(ends, [("1", Some(true)), ("2", Some(false)), ("3", None)]);
    }
}
