//! Notes in the record of a call that did not succeed, beside its error, for the page that says why. A call that succeeds has none.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{CallError, ErrorCode};

/// Attempts of a record; of more, it has the last ones.
pub const MAX_ATTEMPTS: usize = 8;

/// Rules of a record.
pub const MAX_RULES: usize = 4;

/// The record of a call that was refused or failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureNotes {
    /// The attempts to make the call, in their order; of more than eight, the last ones. Absent where nothing was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub attempts: Vec<AttemptNote>,
    /// The rules of policies that refused it, each with file and line, such as `deny tools.rego:12`. Absent where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub rules: Vec<String>,
    /// The limit that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitNote>,
    /// How long the caller was asked to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// One attempt to make a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptNote {
    /// Microseconds from the arrival of the call to the attempt.
    pub began_us: u64,
    pub took_us: u64,
    #[schema(value_type = String)]
    pub code: ErrorCode,
    /// The status of the upstream's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

/// A limit that a call reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitNote {
    pub counts: CountedCalls,
    /// The rule of `limits.rules`, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// The calls that a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CountedCalls {
    Tenant,
    Caller,
    /// Calls of one tool by one caller.
    ToolOfCaller,
    Tool,
    Key,
    Role,
}

impl FailureNotes {
    /// The notes about an error, if there are any.
    pub(super) fn of(error: &CallError) -> Option<Box<Self>> {
        let mut notes = error.notes().cloned().unwrap_or_default();
        notes.retry_after_ms = error.retry_wait().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        if let Some(limit) = &mut notes.limit {
            limit.rule = error.limit_rule().map(|rule| super::shortened(rule).to_owned());
        }
        (notes != Self::default()).then(|| Box::new(notes))
    }
}

impl AttemptNote {
    /// An attempt that failed. `began`: so long after the call's arrival.
    pub fn new(began: Duration, took: Duration, error: &CallError) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self { began_us: micros(began), took_us: micros(took), code: error.code(), http_status: error.http_status() }
    }
}

impl CountedCalls {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
