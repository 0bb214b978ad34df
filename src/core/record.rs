//! The record of a call, or of an agent's run, after it has ended. Metrics, log, trace, audit and store each write
//! it.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::{CallContext, RateState, Stage};
use crate::error::{CallError, Detail};
use crate::transform_finding::TransformFinding;

/// Maximum length of a text from a caller in a record that is kept or sent on, in bytes.
pub const MAX_TEXT: usize = 256;

/// `text`, truncated to [`MAX_TEXT`].
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    Success,
    /// The tool ran, and it, its upstream or its output failed.
    Error,
    /// A stage before execution refused the call.
    Refused,
    /// The client disconnected.
    Cancelled,
}

impl Status {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The arguments of a call, for the audit trail.
#[derive(Debug, Clone)]
pub enum KeptArguments {
    /// One line of JSON.
    Whole(Box<RawValue>),
    TooLarge {
        bytes: usize,
    },
}

/// Borrowed from the pipeline for as long as the call is being settled.
#[derive(Debug)]
pub struct CallRecord<'a> {
    pub call: &'a CallContext,
    /// The registered name; `None` when there is no such tool.
    pub tool: Option<&'a str>,
    pub category: Option<&'a str>,
    pub status: Status,
    /// `None` for a success; a cancelled call has an error with the code `cancelled`.
    pub error: Option<&'a CallError>,
    /// From arrival to settlement.
    pub duration: Duration,
    /// The stages passed, the last one possibly failed, and the duration of each.
    pub stages: &'a [(Stage, Duration)],
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub attempts: u32,
    pub rate: Option<RateState>,
    /// SHA-256 of the arguments' canonical JSON, in the audit trail instead of the arguments.
    pub arguments_digest: [u8; 32],
    /// The arguments, for a tool whose arguments the audit trail has.
    pub arguments: Option<&'a KeptArguments>,
    /// The trace that the call belongs to: the trace of its span, or without traces the caller's.
    pub trace_id: Option<[u8; 16]>,
    /// Suspected prompt injections in the tool's texts.
    pub flags: &'a [Detail],
    /// The version of the registrations that replicas share.
    pub registry_version: Option<i64>,
    /// Hash of the policy set that decided, if one did.
    pub policy_version: Option<&'a Arc<str>>,
    /// The output did not match its schema, and this tool only reports that.
    pub output_schema_violation: bool,
    /// The changes by rules of `tools.transform`.
    pub transforms: &'a [TransformFinding],
}

impl CallRecord<'_> {
    /// Refused calls and dry runs take microseconds and cost nothing: they would distort the figures of executed calls. A
    /// call whose client disconnected, or whose tool panicked, has no duration for its execution, but has passed the last
    /// stage before.
    pub fn was_executed(&self) -> bool {
        was_executed(self.stages, self.status, self.call.dry_run)
    }
}

/// See [`CallRecord::was_executed`].
pub fn was_executed(stages: &[(Stage, Duration)], status: Status, dry_run: bool) -> bool {
    let was_let_through = stages.iter().any(|(stage, _)| *stage == Stage::Breaker);
    was_let_through && status != Status::Refused && !dry_run
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FinishReason {
    /// Answered (A14).
    Stop,
    /// The model's `max_tokens` cut the answer.
    Length,
    /// The provider withheld the answer.
    Refusal,
    /// The client continues by running its own tools.
    ToolCalls,
    /// Calls wait for an approver; a later request continues.
    ApprovalRequired,
    /// A limit of the profile, reported in an earlier `status`.
    Limit,
    Aborted,
    /// Reported in an earlier `error`.
    Error,
}

impl FinishReason {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a later request continues the run.
    pub fn is_pause(self) -> bool {
        matches!(self, Self::ToolCalls | Self::ApprovalRequired)
    }
}

/// The usage of a run, over all its turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunUsage {
    pub turns: u32,
    pub tool_calls: u32,
    /// With those that the provider read from its cache or wrote to it.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The part of the prompt's tokens that was read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// The part of the prompt's tokens that was written to the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// The model's price by the profile; tools are charged separately.
    #[serde(with = "rust_decimal::serde::float")]
    pub cost_usd: rust_decimal::Decimal,
    pub duration_ms: u64,
}

impl RunUsage {
    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.cost_usd = self.cost_usd.saturating_add(other.cost_usd);
        self.duration_ms = self.duration_ms.saturating_add(other.duration_ms);
    }

    /// The tokens that the provider had to process: all but the tokens of its cache.
    pub fn processed_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_sub(self.cached_tokens).saturating_add(self.completion_tokens)
    }
}

/// For serde, which passes a reference.
fn is_zero(count: &u64) -> bool {
    *count == 0
}
