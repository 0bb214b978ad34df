//! The values that went into a session, by origin.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::destination::{Destination, KnownDestinations};
use crate::judgement::Judgement;
use crate::labels::ToolLabels;

/// What the values of one session take at most, in bytes of memory, and so of their stored form.
pub const MAX_SESSION_BYTES: usize = 256 << 10;

/// The call whose result is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOrigin {
    pub call: String,
    pub tool: String,
}

/// The values that went into a session. Stored with a conversation, and copied to its forks, sub-agents and other replicas.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionValues {
    approved: BTreeSet<(String, Destination)>,
}

impl SessionValues {
    /// Adds what the user or the operator wrote.
    pub fn add_user_text(&mut self, text: &str) {
        let _ = text;
    }

    /// Adds the result of a call. A string is text, in which fields are looked for: lines `key: value`, and JSON.
    pub fn add_result(&mut self, origin: &CallOrigin, labels: &ToolLabels, result: &Value) {
        let _ = (origin, labels, result);
    }

    /// Adds what a person approved for the rest of the session: it is not asked about again.
    pub fn add_approved(&mut self, tool: &str, destinations: &[Destination]) {
        self.approved.extend(destinations.iter().map(|destination| (tool.to_owned(), destination.clone())));
    }

    /// Adds all that another session has: of a sub-agent, or of another replica.
    pub fn merge(&mut self, other: &Self) {
        self.approved.extend(other.approved.iter().cloned());
    }

    /// Where the arguments of a call came from, and what a person is asked about them.
    pub fn judge(
        &self,
        tool: &str,
        labels: &ToolLabels,
        arguments: &Value,
        known: &dyn KnownDestinations,
    ) -> Judgement {
        let _ = (tool, labels, arguments, known);
        Judgement::default()
    }

    /// Whether text of strangers went into the session.
    pub fn has_untrusted(&self) -> bool {
        false
    }

    /// Whether untrusted values were dropped for want of room: values of unknown origin may then be theirs.
    pub fn has_forgotten(&self) -> bool {
        false
    }

    /// Its memory in bytes, never above [`MAX_SESSION_BYTES`].
    pub fn size(&self) -> usize {
        0
    }
}
