//! The types of a call: its caller, its request, its deadline, and the result of a tool.

mod charge;
mod context;
mod groups;
mod interpreter_session;
mod nested;
mod open_time;
mod output;
mod queue_time;
mod result_handles;
mod sending;
mod stage;
mod target;
mod undo;
mod upload;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

pub use self::charge::{ChargeSink, ChargedCall, ModelTurns, Reservation, ReservedTurn, UsedModel};
pub use self::context::CallContext;
pub use self::groups::{CallBody, CallCharging, CallClient, CallNesting, CallOrigin, CallProgress, CallResumption};
pub use self::interpreter_session::{InterpreterNote, InterpreterSession, NotStored, SessionEnd};
pub use self::nested::{NestedCall, NestedCallList, NestedCalls, ParentCall};
pub use self::open_time::OpenTime;
pub use self::output::{McpResult, ToolOutput};
pub use self::queue_time::QueueTime;
pub use self::result_handles::{READ_RESULT, RESULT_TOOL, ResultHandles};
pub use self::sending::{OnBehalf, Sending, SendingState, SentFlag};
pub use self::stage::{Stage, StageTimes};
pub use self::target::{CallKind, Target};
pub use self::undo::Undo;
pub use self::upload::Upload;
pub use crate::caller::Caller;
use crate::caller::Owner;
pub use crate::client_request::ClientRequest;

/// The named arguments of a tool call, as the caller sent them: not validated yet.
pub type Arguments = Map<String, Value>;

/// Identifies one call in replies, logs, traces and the audit trail. Time-ordered (UUID version 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(Uuid);

impl CallId {
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(formatter)
    }
}

impl Serialize for CallId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut buffer = Uuid::encode_buffer();
        serializer.serialize_str(self.0.as_hyphenated().encode_lower(&mut buffer))
    }
}

impl<'de> Deserialize<'de> for CallId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Uuid::parse_str(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// The transport of a call. Part of the policy input contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Via {
    Rest,
    Mcp,
    Agent,
    Sandbox,
}

crate::as_str!(Via);

/// The budget scopes that a caller names. Without an id, a scope is only this call.
#[derive(Debug, Clone, Default)]
pub struct BudgetScopes {
    /// `X-Request-Id` as sent by the caller, or `session_context.request_id`.
    pub request: Option<String>,
    /// `X-Agent-Id` or `session_context.agent_id`.
    pub agent: Option<String>,
    /// `X-Task-Id` or `session_context.task_id`.
    pub task: Option<String>,
    /// Whether the request is the run of an agent, which makes many calls and has a token limit of its own.
    pub is_run: bool,
    /// Spent by a request before its first call that names it: the price of the call whose tool makes the others.
    pub spent_before: Decimal,
}

/// The time at which a call must have ended. Every wait, down to the socket, ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Instant);

impl Deadline {
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// Zero once it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// The earlier of this deadline and `duration` from now.
    pub fn at_most(self, duration: Duration) -> Self {
        Self(self.0.min(Instant::now() + duration))
    }
}

/// W3C trace context of a call's parent span (<https://www.w3.org/TR/trace-context/>), already parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
    pub state: Option<String>,
}

impl TraceParent {
    /// The value of the header `traceparent`.
    pub fn header(&self) -> String {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        format!("00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

/// The destination that a circuit breaker guards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// `scheme://host:port`, or `mcp:<server>`.
    pub name: Arc<str>,
    /// The caller who chose the address; `None` for one of the configuration. A caller's choice never closes the way to
    /// an upstream of the configuration.
    pub chosen_by: Option<Owner>,
}

impl Upstream {
    /// An upstream of the configuration.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), chosen_by: None }
    }
}

/// The state of a rate limit's bucket, for `X-RateLimit-*` headers and receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateState {
    /// Calls per minute.
    pub limit: u32,
    /// Calls left right now.
    pub remaining: u32,
    /// Seconds until the bucket is full again, rounded up.
    pub reset_seconds: u64,
}
