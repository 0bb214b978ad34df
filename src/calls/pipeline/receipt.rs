//! The reply to a call, and its receipt: the stages the call passed and their results.

mod json;

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use self::json::ErrorInfo;

use super::accept::Accepted;
use super::execute::Executed;
use crate::breaker::BreakerPermit;
use crate::budget::{Hold, Left};
use crate::limits::Slots;
use crate::policy::Permit;
use crate::tool::{Tool, ValidArguments};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{
    CallContext, CallId, InterpreterSession, McpResult, NestedCallList, RateState, Stage, StageTimes,
};
use sekisho_core::coercion::Coercion;
use sekisho_core::error::{CallError, Detail, ErrorCode, NeededApproval};
use sekisho_core::transform_finding::TransformFinding;

/// The reply to one tool call, the same in every API.
#[derive(Debug)]
pub struct Reply {
    pub outcome: Result<Answer, CallError>,
    /// From arrival to answer.
    pub duration: Duration,
    pub tokens: u64,
    pub cost_usd: Decimal,
    pub receipt: Receipt,
    /// The JSON text of a reply from the store. Sent again as it is; the other fields hold only a part of it.
    pub(super) stored: Option<Box<RawValue>>,
}

/// A reply to be sent to the caller.
#[derive(Debug)]
pub struct Answered {
    pub reply: Arc<Reply>,
    /// Whether the reply belongs to an earlier call with the same idempotency key.
    pub replayed: bool,
}

impl Answered {
    /// A call that was refused before it reached the pipeline.
    pub fn refused(call: &CallContext, error: CallError) -> Self {
        Self::first(Reply::without_a_run(call, error))
    }

    /// The approval that the call needs, or that it can be made by now.
    pub fn needed_approval(&self) -> Option<&NeededApproval> {
        let error = self.reply.outcome.as_ref().err()?;
        error.approval().filter(|_| error.code() == ErrorCode::ApprovalRequired)
    }

    /// The run of the call's program, which can be resumed.
    pub fn stopped_run(&self) -> Option<&Arc<str>> {
        self.reply.outcome.as_ref().err().and_then(CallError::run)
    }

    pub(super) fn first(reply: Reply) -> Self {
        Self { reply: Arc::new(reply), replayed: false }
    }
}

/// A tool's output, checked and bounded.
#[derive(Debug, Default)]
pub struct Answer {
    pub output: Value,
    /// The output as text for a model, within the limit of tokens.
    pub text: String,
    pub metadata: Map<String, Value>,
    /// The result of an MCP server as it was received, for MCP clients.
    pub mcp: Option<Box<McpResult>>,
    /// What is answered in place of an output that is too large for the caller's model. `text` says the same.
    pub preview: Option<Box<Value>>,
}

impl Reply {
    /// For a call that was refused before the first stage.
    pub fn without_a_run(call: &CallContext, error: CallError) -> Self {
        Self {
            outcome: Err(error),
            duration: call.received.elapsed(),
            tokens: 0,
            cost_usd: Decimal::ZERO,
            receipt: Receipt::new(call),
            stored: None,
        }
    }

    /// The content blocks of an MCP tool, if any of them is not text. Text alone is in `text` already, as it is beside a preview.
    fn media(&self) -> Option<Vec<&Value>> {
        let (result, has_preview) = match &self.outcome {
            Ok(answer) => (answer.mcp.as_deref()?, answer.preview.is_some()),
            Err(error) => (error.mcp_result()?, false),
        };
        let blocks: Vec<_> = match has_preview {
            true => result.media().collect(),
            false => result.content.iter().collect(),
        };
        blocks.iter().any(|block| block["type"] != "text").then_some(blocks)
    }
}

/// The stages that the call passed, the duration of each, and their results.
#[derive(Debug)]
pub struct Receipt {
    pub call_id: CallId,
    pub dry_run: bool,
    pub stages: StageTimes,
    pub schema: Option<Arc<Tool>>,
    /// Of the registrations that replicas share, by which the tool was found.
    pub registry_version: Option<i64>,
    pub policy: Option<PolicyNote>,
    pub rate: Option<RateState>,
    /// The rule of `limits.rules` that refused the call, or whose rate is `rate`.
    pub rule: Option<Arc<str>>,
    pub budget_before: Option<Left>,
    pub budget_after: Option<Left>,
    pub breaker: Option<BreakerNote>,
    pub attempts: u32,
    pub coercions: Vec<Coercion>,
    pub output_schema_violations: Vec<Detail>,
    /// What rules of `tools.transform` changed, without what they found.
    pub transforms: Vec<TransformFinding>,
    /// The calls that the tool made.
    pub nested: NestedCallList,
    /// The session of an interpreter in which the program ran.
    pub interpreter: Option<InterpreterSession>,
}

#[derive(Debug, Serialize)]
pub struct PolicyNote {
    /// Hash of the policy set.
    pub version: Arc<str>,
    /// Why the policy refused the call; empty when it did not.
    pub reasons: Vec<String>,
    pub cached: bool,
}

#[derive(Debug, Serialize)]
pub struct BreakerNote {
    pub upstream: Arc<str>,
    pub state: BreakerState,
}

impl Receipt {
    pub(super) fn new(call: &CallContext) -> Self {
        Self { dry_run: call.dry_run, coercions: call.body.corrections.clone(), ..Self::of(call.id) }
    }

    pub(super) fn of(call_id: CallId) -> Self {
        Self {
            call_id,
            dry_run: false,
            stages: StageTimes::new(),
            schema: None,
            registry_version: None,
            policy: None,
            rate: None,
            rule: None,
            budget_before: None,
            budget_after: None,
            breaker: None,
            attempts: 0,
            coercions: Vec::new(),
            output_schema_violations: Vec::new(),
            transforms: Vec::new(),
            nested: NestedCallList::default(),
            interpreter: None,
        }
    }
}

/// Adds the result of a stage to the receipt.
pub(super) trait Annotate {
    fn annotate(&self, receipt: &mut Receipt);
}

impl Annotate for Arc<Tool> {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.schema = Some(Self::clone(self));
    }
}

impl Annotate for Slots {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.rate = self.rate;
        receipt.rule.clone_from(&self.rule);
    }
}

impl Annotate for ValidArguments {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.coercions.extend_from_slice(self.coercions());
        receipt.transforms.extend_from_slice(self.findings());
    }
}

impl Annotate for Permit {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.policy =
            Some(PolicyNote { version: Arc::clone(self.version()), reasons: Vec::new(), cached: self.cached() });
    }
}

impl Annotate for Hold {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.budget_before = Some(self.before());
    }
}

impl Annotate for BreakerPermit {
    fn annotate(&self, receipt: &mut Receipt) {
        if let (Some(upstream), Some(state)) = (self.upstream(), self.state()) {
            receipt.breaker = Some(BreakerNote { upstream: Arc::clone(&upstream.name), state });
        }
    }
}

impl Annotate for Executed {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.attempts = self.attempts;
    }
}

impl Annotate for Accepted {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.output_schema_violations.clone_from(&self.violations);
        receipt.budget_after = Some(self.charge.after);
    }
}

impl Annotate for CallError {
    fn annotate(&self, receipt: &mut Receipt) {
        receipt.attempts = self.attempts();
        if let Some(rule) = self.limit_rule() {
            receipt.rule = Some(rule.into());
        }
        if self.rate().is_some() {
            receipt.rate = self.rate();
        }
        if self.stage() == Some(Stage::Policy) {
            let reasons = self.details().iter().map(|detail| detail.message.clone()).collect();
            let version = self.policy_version().cloned().unwrap_or_default();
            receipt.policy = Some(PolicyNote { version, reasons, cached: false });
        }
    }
}
