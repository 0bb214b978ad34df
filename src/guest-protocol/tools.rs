//! The requests of a program to tools while it runs, and their answers.

use serde::{Deserialize, Serialize};

use super::{HttpRequest, whole_bytes};
use sekisho_core::reading::Reading;

/// A request of a program, which the worker passes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRequest {
    /// Unique within the run.
    pub number: u32,
    pub question: ToolQuestion,
    pub read: ReadSoFar,
}

/// The clocks, random bytes and waits that a program has read since its last request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSoFar {
    pub readings: Vec<Reading>,
    pub standing: ReadStanding,
}

/// Whether the values that it has read are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadStanding {
    #[default]
    Recorded,
    /// It has yet to read something that it read before.
    Behind,
    /// It has read something else than before.
    Diverged,
    TooManyReadings,
    TooManyBytes,
    /// The run has no journal.
    NotRecorded,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolQuestion {
    Call {
        /// Its position among the calls of the run, from 0.
        ordinal: u32,
        tool: String,
        /// JSON.
        arguments: String,
    },
    /// The tool of that name.
    Describe(String),
    /// The one tool whose name becomes this identifier.
    DescribeIdentifier(String),
    /// The tools that fit a task.
    Search { query: String, limit: u32 },
    /// For a component: a request over HTTP.
    Fetch(Box<HttpRequest>),
}

/// The reply to a [`ToolRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolReply {
    pub number: u32,
    /// Whether `json` is a value; otherwise it is an error of `host.call`, with `kind` and `message`. The reply to a
    /// [`ToolQuestion::Fetch`] has a result of it instead, as it is in a frame.
    pub is_ok: bool,
    #[serde(with = "whole_bytes")]
    pub json: Vec<u8>,
}

/// Requests that a program may have open at once.
pub const MAX_OPEN_REQUESTS: usize = 33;

/// Maximum length of a value for a program.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// Replies that a program has not taken, together: the worker holds them outside of the program's memory.
pub const MAX_HELD_REPLY_BYTES: u64 = 32 << 20;

/// Maximum depth of nested values, to and from a program.
pub const MAX_NESTING: usize = 64;
