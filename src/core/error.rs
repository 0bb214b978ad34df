//! Errors of a call, for the caller to read and act on.
//!
//! Every refusal and failure of a tool call, at any stage and over any transport, is one [`CallError`] with a code from
//! the closed list of the specification. The text for the caller (`message`, `details`) is separate from the text for
//! the log (`cause`). HTTP status codes are assigned by the server.

mod code;
mod needed;
mod notes;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use self::code::ErrorCode;
pub use self::needed::{NeededApproval, NeededSignIn};
use crate::breaker_state::BreakerState;
use crate::call::{McpResult, RateState, Stage, ToolOutput};
use crate::record::FailureNotes;
use crate::redaction::SentSecrets;

/// One violation, and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Detail {
    /// JSON Pointer (RFC 6901) into the arguments, or the name of the place.
    pub path: String,
    /// The violated rule: a JSON Schema keyword, a limit, a policy package.
    pub rule: String,
    /// A sentence a model can act on.
    pub message: String,
}

/// The rules of several details, each once, in the order of their names.
pub fn rules_of(details: &[Detail]) -> BTreeSet<&str> {
    details.iter().map(|detail| &*detail.rule).collect()
}

/// The cause of a failed execution: decides whether it counts for the circuit breaker and whether an idempotent call
/// is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The call itself, or none: never counted, never retried.
    Call,
    /// The upstream answered with a failure of its own (5xx): counted, not retried.
    Upstream,
    /// The network, or a timeout: counted, and retried where the tool is idempotent.
    Network,
}

/// A refused or failed call. Boxed, to keep `Result`s of successful calls small.
#[derive(Debug)]
pub struct CallError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: ErrorCode,
    message: String,
    stage: Option<Stage>,
    retry_after: Option<Duration>,
    details: Vec<Detail>,
    alternatives: Vec<String>,
    rate: Option<RateState>,
    blame: Blame,
    output: Option<Value>,
    mcp: Option<Box<McpResult>>,
    attempts: u32,
    cost_usd: Decimal,
    policy_version: Option<Arc<str>>,
    approval: Option<NeededApproval>,
    sign_in: Option<Box<NeededSignIn>>,
    run: Option<Arc<str>>,
    /// The scopes that a token must have for the call to pass.
    scopes: Vec<String>,
    /// The status of the upstream's answer.
    http_status: Option<u16>,
    /// The same call fails again, although its code is mostly one that passes by itself.
    permanent: bool,
    cause: Option<String>,
    /// For the record of the call.
    notes: Option<Box<FailureNotes>>,
    /// The upstream and the state of its circuit breaker, which refused the call.
    breaker: Option<(Arc<str>, BreakerState)>,
}

/// Methods `name(field: type)` that set a field of the error.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($field:ident: $type:ty);)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.0.$field = $field.into();
            self
        })*
    };
}

/// Methods `name: type` that read a field of the error.
macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $field:ident$(.$view:ident())?;)*) => {
        $($(#[$doc])*
        pub fn $name(&self) -> $type {
            self.0.$field$(.$view())?
        })*
    };
}

impl CallError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            stage: None,
            retry_after: None,
            details: Vec::new(),
            alternatives: Vec::new(),
            rate: None,
            blame: Blame::Call,
            output: None,
            mcp: None,
            attempts: 0,
            cost_usd: Decimal::ZERO,
            policy_version: None,
            approval: None,
            sign_in: None,
            run: None,
            scopes: Vec::new(),
            http_status: None,
            permanent: false,
            cause: None,
            notes: None,
            breaker: None,
        }))
    }

    /// The request is wrong: `message` says how, and what to send instead.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// The tool ran and failed: `message` is its own explanation, for the model to read.
    pub fn tool(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ToolError, message)
    }

    /// An internal error. The caller gets a generic message, the log the cause.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self::new(ErrorCode::Internal, "internal error; the server's log has the cause").caused_by(cause)
    }

    #[must_use]
    pub fn at_stage(mut self, stage: Stage) -> Self {
        self.0.stage.get_or_insert(stage);
        self
    }

    /// The same call would fail again.
    #[must_use]
    pub fn permanently(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> Self {
        self.0.details.push(detail);
        self
    }

    /// The result of an MCP tool that failed (`isError`), passed on to MCP clients unchanged.
    #[must_use]
    pub fn as_told_by_mcp(mut self, result: McpResult) -> Self {
        self.0.mcp = Some(Box::new(result));
        self
    }

    setters! {
        retry_after(retry_after: Duration);
        with_details(details: Vec<Detail>);
        /// Alternatives for the caller: mostly names of tools.
        with_alternatives(alternatives: Vec<String>);
        with_rate(rate: RateState);
        blaming(blame: Blame);
        /// The output of the tool before it failed, for the reply's `output`.
        with_output(output: Value);
        /// The number of attempts before this error.
        after_attempts(attempts: u32);
        /// The charge that remains for the failed call.
        costing(cost_usd: Decimal);
        /// The policy set that denied the call.
        decided_by(policy_version: Arc<str>);
        /// The approval that the call needs.
        needing(approval: NeededApproval);
        /// The run of the call's program, which can be resumed.
        of_run(run: Arc<str>);
        /// The scopes of a token with which the call would pass.
        needing_scopes(scopes: Vec<String>);
        /// The status of the answer of the upstream that caused the error.
        answered_with(http_status: u16);
    }

    /// Where the caller signs in to the upstream.
    #[must_use]
    pub fn signing_in_at(mut self, sign_in: NeededSignIn) -> Self {
        self.0.sign_in = Some(Box::new(sign_in));
        self
    }

    /// For the log only. Never shown to the caller.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// Removes credentials that the upstream repeated.
    #[must_use]
    pub fn redacted(mut self, secrets: &SentSecrets) -> Self {
        if secrets.is_empty() {
            return self;
        }
        let Inner { message, cause, details, output, mcp, .. } = &mut *self.0;
        let details = details.iter_mut().flat_map(|detail| [&mut detail.message, &mut detail.path]);
        for text in [Some(message), cause.as_mut()].into_iter().flatten().chain(details) {
            *text = secrets.strike(text).into_owned();
        }
        if let Some(output) = output {
            secrets.strike_value(output);
        }
        if let Some(McpResult { content, meta, other, .. }) = mcp.as_deref_mut() {
            content.iter_mut().for_each(|block| secrets.strike_value(block));
            secrets.strike_members(meta);
            secrets.strike_members(other);
        }
        self
    }

    /// Changes the parts of the error that repeat a tool's answer: message, output and result as one answer, and each
    /// further text.
    pub fn change_answer(&mut self, change: impl FnOnce(&mut ToolOutput), change_text: impl FnMut(&mut String)) {
        let Inner { message, cause, details, output, mcp, .. } = &mut *self.0;
        let has_output = output.is_some();
        let mut answer = ToolOutput {
            value: output.take().unwrap_or_default(),
            text: Some(std::mem::take(message)),
            mcp: mcp.take(),
            ..ToolOutput::default()
        };
        change(&mut answer);
        *message = answer.text.unwrap_or_default();
        *output = has_output.then_some(answer.value);
        *mcp = answer.mcp;
        let details = details.iter_mut().flat_map(|detail| [&mut detail.message, &mut detail.path]);
        details.chain(cause).for_each(change_text);
    }

    readers! {
        code: ErrorCode = code;
        message: &str = message.as_str();
        stage: Option<Stage> = stage;
        wait: Option<Duration> = retry_after;
        details: &[Detail] = details.as_slice();
        alternatives: &[String] = alternatives.as_slice();
        rate: Option<RateState> = rate;
        blame: Blame = blame;
        output: Option<&Value> = output.as_ref();
        mcp_result: Option<&McpResult> = mcp.as_deref();
        http_status: Option<u16> = http_status;
        attempts: u32 = attempts;
        cost_usd: Decimal = cost_usd;
        policy_version: Option<&Arc<str>> = policy_version.as_ref();
        approval: Option<&NeededApproval> = approval.as_ref();
        sign_in: Option<&NeededSignIn> = sign_in.as_deref();
        /// The run of the call's program, if it can be resumed.
        run: Option<&Arc<str>> = run.as_ref();
        /// The scopes that a new token must have; empty where another token would not help.
        scopes: &[String] = scopes.as_slice();
        cause: Option<&str> = cause.as_deref();
    }

    /// Whether the same call may succeed later without a change by anyone.
    pub fn retryable(&self) -> bool {
        self.code().retryable() && !self.0.permanent
    }

    /// How long the caller should wait before it calls again, where that helps: a second unless something else is
    /// known.
    pub fn retry_wait(&self) -> Option<Duration> {
        let helps = matches!(
            self.code(),
            ErrorCode::RateLimited | ErrorCode::Overloaded | ErrorCode::CircuitOpen | ErrorCode::WarmingUp
        );
        self.wait().or((helps && self.retryable()).then_some(Duration::from_secs(1)))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for CallError {}
