//! The reply to a call, and its receipt: the stages the call passed and their results.

mod json;

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use self::json::{BudgetNote, ErrorInfo};

use super::accept::Accepted;
use super::execute::Executed;
use crate::breaker::BreakerPermit;
use crate::budget::{Hold, Left};
use crate::limits::Slots;
use crate::policy::Permit;
use crate::tool::{JudgedCall, Tool, ValidArguments};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{
    CallContext, CallId, InterpreterSession, McpResult, NestedCallList, RateState, Stage, StageTimes,
};
use sekisho_core::coercion::Coercion;
use sekisho_core::error::{CallError, Detail, ErrorCode, NeededApproval};
use sekisho_core::guard_finding::GuardFinding;
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

    /// The approval that the call needs, or with which it can be made by now.
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
    /// The answer in place of an output that is too large for the caller's model. `text` says the same.
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

    /// The content blocks of an MCP tool, if any of them is not text. Blocks of
    /// only text are in `text` already, and so is the text beside a preview.
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

// The stages that the call passed, the duration of each, and their results. The comments of fields are the API's
// description.
#[derive(Debug, Serialize, ToSchema)]
pub struct Receipt {
    #[schema(value_type = String)]
    pub call_id: CallId,
    pub dry_run: bool,
    /// Stage → microseconds, in execution order.
    #[serde(serialize_with = "json::in_microseconds")]
    #[schema(value_type = HashMap<String, f64>)]
    pub stages: StageTimes,
    #[serde(rename = "schema_hash", serialize_with = "json::schema_hash")]
    #[schema(value_type = Option<String>)]
    pub schema: Option<Arc<Tool>>,
    /// Of a replica: the version of the registrations by which the tool was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub registry_version: Option<i64>,
    #[schema(value_type = Vec<Object>)]
    pub coercions: Vec<Coercion>,
    /// What rules of `tools.transform` changed: part, rule, path and count of each; absent where that is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub transforms: Vec<TransformFinding>,
    /// What rules of `tools.guards` found: direction, rule, detector or category, and action of each; absent where that is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub guards: Vec<GuardFinding>,
    pub rate: Option<RateState>,
    /// The rule of `limits.rules` that refused the call, or whose rate is `rate`; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>)]
    pub rule: Option<Arc<str>>,
    #[schema(value_type = Option<Object>)]
    pub policy: Option<PolicyNote>,
    /// Where its values come from, if that is in question: `mode`, `questions` with argument, state and origin of each, and the
    /// arguments with `secrets` that may not leave.
    #[serde(rename = "flow", serialize_with = "json::flow", skip_serializing_if = "json::is_undisputed")]
    #[schema(required = false, value_type = Object)]
    pub judged: Option<Arc<JudgedCall>>,
    #[schema(value_type = Option<Object>)]
    pub budget: Option<BudgetNote>,
    #[schema(value_type = Option<Object>)]
    pub breaker: Option<BreakerNote>,
    pub attempts: u32,
    /// The calls that the tool made: `count`, `cost_usd`, and the first of them as `calls` with call id, tool, code, cost, duration,
    /// and what their tools called; absent where it made none.
    #[serde(skip_serializing_if = "NestedCallList::is_empty")]
    #[schema(required = false, value_type = Object)]
    pub nested: NestedCallList,
    /// The session of the interpreter in which the program ran; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub interpreter: Option<InterpreterSession>,
    /// Of a call that was sent again and not made again: `record`, the reply that its client may not have got; `read`, another tool
    /// has found its effect; `person`, somebody said that it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>)]
    pub answered_by: Option<AnsweredBy>,
    pub output_schema_violations: Vec<Detail>,
    /// Deprecated name of `output_schema_violations`, to be dropped in 0.3.
    pub output_misfits: Vec<Detail>,
}

/// Where the reply to a call comes from that was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    Record,
    Read,
    Person,
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

    /// The rest of the narrowest budget after the charge.
    pub(super) fn charged(&mut self, left: Left) {
        if let Some(budget) = &mut self.budget {
            budget.after = Some(left.into());
        }
    }

    pub(super) fn of(call_id: CallId) -> Self {
        Self {
            call_id,
            dry_run: false,
            stages: StageTimes::new(),
            schema: None,
            registry_version: None,
            coercions: Vec::new(),
            transforms: Vec::new(),
            guards: Vec::new(),
            rate: None,
            rule: None,
            policy: None,
            judged: None,
            budget: None,
            breaker: None,
            attempts: 0,
            nested: NestedCallList::default(),
            interpreter: None,
            answered_by: None,
            output_schema_violations: Vec::new(),
            output_misfits: Vec::new(),
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
        receipt.budget = Some(BudgetNote { before: self.before().into(), after: None });
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
        receipt.output_misfits.clone_from(&self.violations);
        receipt.charged(self.charge.after);
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
        if let Some((upstream, state)) = self.breaker() {
            receipt.breaker = Some(BreakerNote { upstream: Arc::clone(upstream), state: *state });
        }
        if self.stage() == Some(Stage::Policy) {
            let reasons = self.details().iter().map(|detail| detail.message.clone()).collect();
            let version = self.policy_version().cloned().unwrap_or_default();
            receipt.policy = Some(PolicyNote { version, reasons, cached: false });
        }
    }
}
