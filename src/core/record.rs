//! The record of a call, or of an agent's run, after it has ended. Metrics, log, trace, audit and store each write it.

mod content;
mod event;
mod failure;
mod forms;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::breaker_state::BreakerState;
use crate::call::{CallContext, CallId, InterpreterSession, RateState, Stage, StageTimes, Via};
use crate::caller::Owner;
use crate::error::{CallError, ErrorCode};

pub use self::content::{CallContent, KeptValue};
pub use self::event::EventRecord;
pub use self::failure::{AttemptNote, CountedCalls, FailureNotes, LimitNote, MAX_ATTEMPTS, MAX_RULES};

/// Maximum length of a text from a caller in a record that is kept or sent on, in bytes.
pub const MAX_TEXT: usize = 256;

/// `text`, truncated to [`MAX_TEXT`].
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// How a call ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray,
)]
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

crate::as_str!(Status);

impl Status {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// How a call ended with this error, or without one.
    pub fn from_error(error: Option<&CallError>) -> Self {
        match error {
            None => Self::Success,
            Some(error) if error.code() == ErrorCode::Cancelled => Self::Cancelled,
            Some(error) if matches!(error.stage(), Some(Stage::Execute | Stage::Accept)) => Self::Error,
            Some(error) if error.code() == ErrorCode::Internal => Self::Error,
            Some(_) => Self::Refused,
        }
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

/// Maximum bytes of the text that says why a call was refused.
pub const MAX_REASON: usize = 1_024;

/// Violated rules that the record of a call has.
pub const MAX_VIOLATIONS: usize = 4;

/// A rule that a call violated, and the place: names of the configuration, of a schema or of a policy, and no values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Violation {
    /// As in [`Detail`](crate::error::Detail).
    #[schema(value_type = String)]
    pub path: Box<str>,
    /// As in [`Detail`](crate::error::Detail).
    #[schema(value_type = String)]
    pub rule: Box<str>,
}

/// The record of a call that has ended, without its arguments and its output. Built once; metrics, log and trace read
/// it, and the audit trail and the index of calls share it. Its texts are bounded, or shared with others. The index stores it
/// as JSON: a field that an earlier version lacks has a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallSummary {
    /// When it ended.
    pub time: SystemTime,
    pub id: CallId,
    /// The id that an agent's run has for it; `None` where a model's provider chose a very long one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_call: Option<Box<str>>,
    /// The caller's id.
    pub caller: Arc<str>,
    pub tenant: Arc<str>,
    pub owner: Owner,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
    /// The managed key that the caller sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_user: Option<Box<str>>,
    /// The id of the request that it came with; empty where there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    pub via: Via,
    pub depth: u32,
    /// The call whose tool made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<CallId>,
    /// How many calls its own tool made.
    #[serde(default)]
    pub nested: usize,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The run of an agent that made it, or the run of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    /// SHA-256 of the program that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Box<str>>,
    /// The approval by which it was made, or that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Arc<str>>,
    /// The session of an interpreter in which its program ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Box<InterpreterSession>>,
    /// The registered name, or the name as the caller wrote it.
    pub tool: Arc<str>,
    pub status: Status,
    /// `None` for a success; `cancelled` for a cancelled call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The stage that refused the call or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Why it was refused; `None` where the text could contain arguments or the tool's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    /// Why it failed, where the text could contain arguments or the tool's words. Stored sealed, beside the record.
    #[serde(skip)]
    pub words: Option<Box<str>>,
    /// The rules that it violated.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub violations: Box<[Violation]>,
    /// The status of the upstream's answer, of a call that failed by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// What else is known about why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<FailureNotes>>,
    /// The stages passed, the last one possibly failed, and the duration of each.
    #[serde(default, with = "forms::stage_times")]
    pub stages: StageTimes,
    /// From arrival to settlement.
    #[serde(with = "forms::nanoseconds")]
    pub duration: Duration,
    pub cost_usd: Decimal,
    #[serde(default)]
    pub tokens: u64,
    #[serde(default)]
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateState>,
    /// SHA-256 of the arguments' canonical JSON.
    #[serde(with = "forms::hexadecimal")]
    pub arguments_digest: [u8; 32],
    /// The trace that the call belongs to: the trace of its span, or without traces the caller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<[u8; 16]>,
    /// The rules of suspected prompt injections in the tool's texts.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub flags: Box<[Box<str>]>,
    /// The rules of `tools.guards` that found something.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub guards: Box<[Arc<str>]>,
    /// The version of the registrations that replicas share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_version: Option<i64>,
    /// The hash of the tool's pin in `tools.lock`, if the lock holds it to its approved form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_hash: Option<Arc<str>>,
    /// Hash of the policy set that decided, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<Arc<str>>,
    /// The upstream and the state of its circuit breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<(Arc<str>, BreakerState)>,
    /// The output did not match its schema, and this tool only reports that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_schema_violation: bool,
}

impl CallSummary {
    /// A call that ends now, without the notes of its stages. `tool`: the registered name, if it called a tool.
    /// `request_id`: memory for this text.
    pub fn new(call: &CallContext, tool: Option<&Arc<str>>, error: Option<&CallError>, mut request_id: String) -> Self {
        let request = call.origin.request.as_deref();
        request_id.clear();
        request_id.push_str(request.map_or("", |request| shortened(&request.id)));
        let (reason, words) = texts(error);
        Self {
            time: SystemTime::now(),
            id: call.id,
            agent_call: call.body.agent_call.as_ref().filter(|id| id.len() <= MAX_TEXT).cloned(),
            caller: Arc::clone(&call.caller.id),
            tenant: Arc::clone(&call.caller.tenant),
            owner: call.caller.owner.clone(),
            anonymous: call.caller.anonymous,
            key: call.caller.key_id.clone(),
            claimed_user: call.origin.claimed_user.as_deref().map(|user| shortened(user).into()),
            request_id,
            client: request.and_then(|request| request.address),
            via: call.via,
            depth: call.nesting.depth,
            parent: call.nesting.parent.as_ref().map(|parent| parent.id),
            nested: call.progress.nested.count(),
            dry_run: call.dry_run,
            session: call.origin.session.as_ref().map(|session| Arc::clone(&session.id)),
            run: run_of(call, error),
            program: call.nesting.parent.as_ref().map(|parent| hex::encode(parent.program).into()),
            approval: approval_of(call, error),
            interpreter: call.progress.interpreter.get().map(Box::new),
            tool: tool.map_or_else(|| shortened(&call.tool).into(), Arc::clone),
            status: Status::from_error(error),
            code: error.map(CallError::code),
            stage: error.and_then(CallError::stage),
            reason,
            words,
            violations: error.map(violations).unwrap_or_default(),
            http_status: error.and_then(CallError::http_status),
            failure: error.and_then(FailureNotes::of),
            stages: StageTimes::new(),
            duration: Duration::ZERO,
            cost_usd: Decimal::ZERO,
            tokens: 0,
            attempts: 0,
            rate: None,
            arguments_digest: [0; 32],
            trace_id: None,
            flags: Box::default(),
            registry_version: None,
            lock_hash: None,
            policy_version: None,
            breaker: None,
            guards: Box::default(),
            output_schema_violation: false,
        }
    }

    /// Whether the fault is at the upstream, or in the gateway's access to it, and not in the call: another call of the tool by another
    /// caller would fail too.
    pub fn blames_upstream(&self) -> bool {
        let is_executed = self.stage == Some(Stage::Execute);
        match (self.code, self.http_status) {
            (Some(ErrorCode::CircuitOpen), _) => true,
            (_, Some(status)) => is_executed && (status >= 500 || matches!(status, 401 | 429)),
            (Some(ErrorCode::UpstreamError | ErrorCode::Timeout), None) => is_executed,
            _ => false,
        }
    }

    /// Refused calls and dry runs take microseconds and cost nothing: they would distort the figures of executed calls. A
    /// call whose client disconnected, or whose tool panicked, has no duration for its execution, but has passed the last
    /// stage before.
    pub fn was_executed(&self) -> bool {
        let was_let_through = self.stages.iter().any(|(stage, _)| *stage == Stage::Breaker);
        was_let_through && self.status != Status::Refused && !self.dry_run
    }
}

fn run_of(call: &CallContext, error: Option<&CallError>) -> Option<Box<str>> {
    let scopes = &call.charging.scopes;
    let of_conversation = call.origin.run.as_deref();
    let of_agent = of_conversation.or_else(|| scopes.request.as_deref().filter(|_| scopes.is_run));
    let of_program = || call.resumption.run.as_ref().or_else(|| error?.run()).map(|run| &**run);
    of_agent.or_else(of_program).map(|run| shortened(run).into())
}

fn approval_of(call: &CallContext, error: Option<&CallError>) -> Option<Arc<str>> {
    let needed = || error.and_then(CallError::approval).map(|needed| Arc::clone(&needed.id));
    let sent = call.resumption.approval.as_ref().filter(|id| id.len() <= MAX_TEXT);
    sent.cloned().or_else(needed)
}

/// The text of an error: as a reason, or as words that could quote arguments or the tool. The text of a violated schema
/// quotes arguments, and the text of a failure the tool's words.
fn texts(error: Option<&CallError>) -> (Option<Box<str>>, Option<Box<str>>) {
    let Some(error) = error else { return (None, None) };
    let quotes = matches!(error.stage(), None | Some(Stage::Validate | Stage::Execute | Stage::Accept));
    let text = error.message();
    let text = Some(text[..text.floor_char_boundary(MAX_REASON)].into());
    if quotes { (None, text) } else { (text, None) }
}

fn violations(error: &CallError) -> Box<[Violation]> {
    let named = error.details().iter().take(MAX_VIOLATIONS);
    named
        .map(|detail| Violation { path: shortened(&detail.path).into(), rule: shortened(&detail.rule).into() })
        .collect()
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

crate::as_str!(FinishReason);

impl FinishReason {
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
    /// Includes the tokens that the provider read from its cache or wrote to it.
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
