//! The record of a call, or of an agent's run, after it has ended. Metrics, log, trace, audit and store each write it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::breaker_state::BreakerState;
use crate::call::{CallContext, CallId, InterpreterSession, RateState, Stage, StageTimes, Via};
use crate::caller::Owner;
use crate::error::{CallError, ErrorCode};

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

/// Maximum bytes of the text that says why a call was refused.
pub const MAX_REASON: usize = 1_024;

/// The record of a call that has ended, without its arguments and its output. Built once; metrics, log and trace read
/// it, and the audit trail and the list of recent calls share it. Its texts are bounded, or shared with others.
#[derive(Debug, Clone)]
pub struct CallSummary {
    /// The number of the call among the calls that ended in this process. Zero until it is in their list.
    pub sequence: u64,
    /// When it ended.
    pub time: SystemTime,
    pub id: CallId,
    /// The id that an agent's run has for it; `None` where a model's provider chose a very long one.
    pub agent_call: Option<Box<str>>,
    /// The caller's id.
    pub caller: Arc<str>,
    pub tenant: Arc<str>,
    pub owner: Owner,
    pub anonymous: bool,
    /// The managed key that the caller sent.
    pub key: Option<Arc<str>>,
    pub claimed_user: Option<Box<str>>,
    /// The id of the request that it came with; empty where there was none.
    pub request_id: String,
    /// The address of the client.
    pub client: Option<IpAddr>,
    pub via: Via,
    pub depth: u32,
    /// The call whose tool made it.
    pub parent: Option<CallId>,
    /// How many calls its own tool made.
    pub nested: usize,
    pub dry_run: bool,
    pub session: Option<Arc<str>>,
    /// The session of an interpreter in which its program ran.
    pub interpreter: Option<Box<InterpreterSession>>,
    /// The registered name, or the name as the caller wrote it.
    pub tool: Arc<str>,
    pub status: Status,
    /// `None` for a success; `cancelled` for a cancelled call.
    pub code: Option<ErrorCode>,
    /// The stage that refused the call or failed.
    pub stage: Option<Stage>,
    /// Why it was refused; `None` where the text could contain arguments or the tool's words.
    pub reason: Option<Box<str>>,
    /// The stages passed, the last one possibly failed, and the duration of each.
    pub stages: StageTimes,
    /// From arrival to settlement.
    pub duration: Duration,
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub attempts: u32,
    pub rate: Option<RateState>,
    /// SHA-256 of the arguments' canonical JSON.
    pub arguments_digest: [u8; 32],
    /// The trace that the call belongs to: the trace of its span, or without traces the caller's.
    pub trace_id: Option<[u8; 16]>,
    /// The rules of suspected prompt injections in the tool's texts.
    pub flags: Box<[Box<str>]>,
    /// The version of the registrations that replicas share.
    pub registry_version: Option<i64>,
    /// The hash of the tool's pin in `tools.lock`, if the lock holds it to its approved form.
    pub lock_hash: Option<Arc<str>>,
    /// Hash of the policy set that decided, if one did.
    pub policy_version: Option<Arc<str>>,
    /// The upstream and the state of its circuit breaker.
    pub breaker: Option<(Arc<str>, BreakerState)>,
    /// The output did not match its schema, and this tool only reports that.
    pub output_schema_violation: bool,
}

impl CallSummary {
    /// A call that ends now, without the notes of its stages. `tool`: the registered name, if it called a tool.
    /// `request_id`: memory for this text.
    pub fn new(call: &CallContext, tool: Option<&Arc<str>>, error: Option<&CallError>, mut request_id: String) -> Self {
        let request = call.origin.request.as_deref();
        request_id.clear();
        request_id.push_str(request.map_or("", |request| shortened(&request.id)));
        Self {
            sequence: 0,
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
            interpreter: call.progress.interpreter.get().map(Box::new),
            tool: tool.map_or_else(|| shortened(&call.tool).into(), Arc::clone),
            status: Status::from_error(error),
            code: error.map(CallError::code),
            stage: error.and_then(CallError::stage),
            reason: error.and_then(reason),
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
            output_schema_violation: false,
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

/// The text of a refusal. The text of a violated schema quotes arguments, and the text of a failure the tool's words.
fn reason(error: &CallError) -> Option<Box<str>> {
    let quotes = matches!(error.stage(), None | Some(Stage::Validate | Stage::Execute | Stage::Accept));
    let text = error.message();
    (!quotes).then(|| text[..text.floor_char_boundary(MAX_REASON)].into())
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
