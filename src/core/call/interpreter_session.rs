//! The session of an interpreter in which a call has run its program.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session of an interpreter, after a call in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterpreterSession {
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Grows with each interpreter that the session gets, by 1.
    pub generation: u64,
    /// Whether this call began with a fresh interpreter.
    pub is_new: bool,
    /// Whether it went on from what was stored of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resumed: bool,
    /// Why the interpreter before it ended, if the gateway knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_end: Option<SessionEnd>,
    /// Why it ended with this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<SessionEnd>,
    /// Of a session that is stored after each call: whether this call is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_checkpointed: Option<bool>,
    /// Why this call is not stored, or why the session before was not before it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_stored: Option<NotStored>,
}

/// Why a session cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotStored {
    /// Its image would be larger than `sandbox.sessions.max_image_bytes`.
    TooLarge,
    /// The gateway keeps no images, or the interpreter has state that cannot be written down.
    Unsupported,
    /// The storage, or the worker that has it, did not answer.
    Unavailable,
    /// Its program was stopped: the session goes on from the state before it, or from the call that was stored last.
    Stopped,
}

/// Why a session of an interpreter ended.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    ToSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SessionEnd {
    /// It was not used for too long.
    Idle,
    /// It was as old as a session may be.
    Lifetime,
    /// Others needed its place or its memory.
    Evicted,
    /// A program of it ran too long.
    Timeout,
    /// A program of it needed more memory than it may use.
    Memory,
    /// A program of it exceeded another limit.
    Output,
    /// The interpreter crashed.
    Trap,
    /// A program ended the process.
    Exited,
    /// The client left while a program ran.
    Cancelled,
    /// The worker process ended.
    WorkerDied,
    /// Its caller deleted it.
    Deleted,
    /// What was stored of it cannot be opened.
    Lost,
}

/// A tool's note for the receipt and the audit line of its call.
#[derive(Debug, Default)]
pub struct InterpreterNote(Mutex<Option<InterpreterSession>>);

crate::as_str!(SessionEnd);

impl SessionEnd {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// By the name that it has in JSON.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    /// Whether a session that was stored after an earlier call goes on from that: the state from before the program is whole.
    pub fn leaves_checkpoint(self) -> bool {
        matches!(self, Self::Timeout | Self::Memory | Self::Output | Self::Cancelled | Self::WorkerDied)
    }

    /// For the caller: after "because".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Idle => "it was idle for too long",
            Self::Lifetime => "it was as old as a session may be",
            Self::Evicted => "its place or its memory was needed for a newer one",
            Self::Timeout => "a program in it ran too long",
            Self::Memory => "a program in it exceeded the memory limit",
            Self::Output => "a program in it exceeded a limit",
            Self::Trap => "the interpreter crashed",
            Self::Exited => "a program in it ended the process",
            Self::Cancelled => "its client left while a program ran in it",
            Self::WorkerDied => "the worker process that had it ended",
            Self::Deleted => "it was deleted",
            Self::Lost => "what was stored of it could not be opened",
        }
    }
}

impl NotStored {
    /// For the caller: after "because".
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "its image would be larger than `sandbox.sessions.max_image_bytes` allows",
            Self::Unsupported => "this gateway keeps no images of sessions",
            Self::Unavailable => "the storage of images did not answer",
            Self::Stopped => "its program was stopped",
        }
    }
}

impl InterpreterNote {
    pub fn set(&self, session: InterpreterSession) {
        *self.0.lock() = Some(session);
    }

    pub fn get(&self) -> Option<InterpreterSession> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_the_name_that_it_has_in_json() {
        for end in SessionEnd::ALL.iter().copied() {
            assert_eq!(serde_json::to_value(end).unwrap(), end.as_str());
            assert_eq!(SessionEnd::parse(end.as_str()), Some(end));
        }
    }
}
