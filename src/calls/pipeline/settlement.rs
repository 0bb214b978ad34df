//! Where calls are recorded, and the record of one call while it runs: however it ends, it is counted, logged, traced, audited and
//! answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::value::to_raw_value;
use tokio::time::Instant;
use tracing::Span;

use super::accept::{Accepted, Checked, accept, change, check};
use super::contents::Contents;
use super::execute::Executed;
use super::receipt::{Annotate, Receipt, Reply};
use super::recorded::Recorded;
use super::refusals::Refusals;
use super::rejections::Rejections;
use crate::budget::Hold;
use crate::registry::Registry;
use crate::tool::{JudgedCall, Tool, ValidArguments};
use sekisho_audit::{Audit, AuditSlot, Durable};
use sekisho_config::{AuditArguments, ContentConfig};
use sekisho_core::call::{Arguments, CallContext, ClientRequest, SendingState, Stage, ToolOutput, TraceParent};
use sekisho_core::error::{CallError, ErrorCode, rules_of};
use sekisho_core::guard_finding::GuardFinding;
use sekisho_core::json;
use sekisho_core::record::{CallContent, CallSummary, KeptArguments};
use sekisho_observe::call_records::CallRecords;
use sekisho_observe::metrics::{InFlight, Metrics};
use sekisho_observe::telemetry;

/// Where calls are recorded.
#[derive(Debug)]
pub struct Settlement {
    pub metrics: Arc<Metrics>,
    pub audit: Audit,
    /// The records of the calls that ended last.
    pub records: CallRecords,
    /// The arguments and results of the calls whose content is kept; `None` where that is none.
    pub contents: Option<Arc<Contents>>,
    refusals: Refusals,
    rejections: Rejections,
}

impl Settlement {
    pub fn new(metrics: Arc<Metrics>, audit: Audit, content: &ContentConfig) -> Self {
        Self {
            metrics,
            audit,
            records: CallRecords::default(),
            contents: Contents::of(content).map(Arc::new),
            refusals: Refusals::default(),
            rejections: Rejections::default(),
        }
    }

    /// Writes the lines of repeated refusals, every [`WINDOW`].
    ///
    /// [`WINDOW`]: super::REFUSALS_WINDOW
    pub fn write_refusals(&self) {
        self.refusals.write(false);
        self.rejections.write(&self.audit, false);
    }

    /// Records a request that had wrong or no credentials.
    pub fn unauthenticated(
        &self,
        error: &CallError,
        request: Option<&Arc<ClientRequest>>,
        trace: Option<&TraceParent>,
    ) {
        self.metrics.unauthenticated();
        self.rejections.count(&self.audit, error, request, trace);
    }

    /// Writes the pending lines, and closes the audit trail.
    pub async fn close(&self) {
        self.refusals.write(true);
        self.rejections.write(&self.audit, true);
        self.audit.close().await;
    }

    /// Opens the scope of one call, and reserves space for its audit line.
    /// Errors: `overloaded` while the audit trail cannot take another line.
    pub fn open<'a>(&'a self, call: &'a CallContext, arguments: &Arguments) -> Result<CallScope<'a>, CallError> {
        Ok(CallScope {
            slot: Some(self.audit.reserve()?),
            metrics: &self.metrics,
            records: &self.records,
            contents: self.contents.as_deref(),
            refusals: &self.refusals,
            call,
            arguments_digest: json::digest(arguments),
            arguments: None,
            content: None,
            receipt: Receipt::new(call),
            hold: None,
            hidden: None,
            span: telemetry::tool_span(call),
            last: Instant::now(),
            _in_flight: self.metrics.enter(),
        })
    }
}

/// The record of one call while it runs. If it is dropped before [`Self::settle`], it settles the call as cancelled.
#[derive(Debug)]
pub struct CallScope<'a> {
    /// Taken when the call is settled: a call is settled once.
    slot: Option<AuditSlot>,
    metrics: &'a Metrics,
    records: &'a CallRecords,
    contents: Option<&'a Contents>,
    refusals: &'a Refusals,
    call: &'a CallContext,
    arguments_digest: [u8; 32],
    /// The arguments of a call to a tool whose arguments the audit trail has.
    arguments: Option<KeptArguments>,
    /// The arguments and the result of a call whose content is kept.
    content: Option<Box<CallContent>>,
    receipt: Receipt,
    /// The amount reserved while the call is executed. Its outcome decides how much of it is charged.
    hold: Option<Hold>,
    /// The called tool, if it is hidden from the caller.
    hidden: Option<Arc<Tool>>,
    span: Span,
    last: Instant,
    _in_flight: InFlight,
}

impl CallScope<'_> {
    /// The call's span; disabled when tracing is off.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// The first stage. Records a tool that is hidden from the caller under its name; the reply does not reveal it.
    pub(super) fn find(&mut self, registry: &Registry, arguments: &Arguments) -> Result<Arc<Tool>, CallError> {
        self.receipt.registry_version = registry.shared_version();
        let found = registry.find_for(self.call);
        // Arguments that rules may change are kept after the change.
        if found.as_ref().is_ok_and(|tool| keeps_arguments(tool) && !tool.changes_arguments()) {
            self.arguments = kept(arguments);
        }
        if let (Some(contents), Ok(tool)) = (self.contents, &found) {
            self.content = contents.begun(self.call, tool, arguments);
        }
        if found.is_err() && self.call.target.is_none() {
            self.hidden = registry.snapshot().get(&self.call.tool).cloned();
        }
        self.record(Stage::Find, found)
    }

    /// Records the duration of the stage and its result.
    pub(super) fn record<T: Annotate>(&mut self, stage: Stage, result: Result<T, CallError>) -> Result<T, CallError> {
        self.time(stage);
        match result {
            Ok(proof) => {
                proof.annotate(&mut self.receipt);
                Ok(proof)
            }
            Err(error) => Err(error.at_stage(stage)),
        }
    }

    /// The stage that makes the arguments valid. A call with a key or an approval has valid ones already, unless its tool has
    /// changed since. The arguments are recorded in their sent form.
    pub(super) fn validated(
        &mut self,
        tool: &Tool,
        arguments: Arguments,
        recorded: Option<&mut Recorded>,
    ) -> Result<ValidArguments, CallError> {
        let valid = recorded.and_then(|recorded| recorded.take_valid(tool));
        let result = match valid {
            Some(valid) => Ok(valid),
            None => tool.valid_arguments(arguments, &self.call.origin.prompt_params),
        };
        if let Ok(valid) = &result {
            let is_sent_otherwise = valid.is_sent_otherwise();
            if is_sent_otherwise {
                self.arguments_digest = json::digest(valid.sent());
            }
            // Others than were kept when the tool was found.
            let are_others = is_sent_otherwise || tool.changes_arguments();
            if keeps_arguments(tool) && are_others {
                self.arguments = kept(valid.sent());
            }
            if are_others && let (Some(contents), Some(content)) = (self.contents, &mut self.content) {
                content.arguments = contents.arguments(valid.as_map());
            }
        }
        self.record(Stage::Validate, result)
    }

    /// Records where valid arguments come from, also of a call that is refused.
    pub(super) fn judged(&mut self, arguments: ValidArguments) -> ValidArguments {
        self.receipt.judged = arguments.judgement().cloned();
        arguments
    }

    /// The stage that runs the tool. The message of a tool that fails is changed like a result.
    pub(super) fn executed(
        &mut self,
        tool: &Tool,
        mut result: Result<Executed, CallError>,
    ) -> Result<Executed, CallError> {
        if let (Some(rules), Err(error)) = (&tool.transforms, &mut result) {
            self.receipt.transforms.extend(rules.change_error(error));
        }
        self.record(Stage::Execute, result)
    }

    /// The tool and the judgement of the call, once they are there.
    pub(super) fn judged_tool(&self) -> Option<(&Tool, Option<&JudgedCall>)> {
        Some((self.receipt.schema.as_deref()?, self.receipt.judged.as_deref()))
    }

    /// Keeps the reserved amount until the call has ended.
    pub(super) fn keep(&mut self, hold: Hold) {
        self.hold = Some(hold);
    }

    /// Changes the output.
    pub(super) fn changed(&mut self, tool: &Tool, output: ToolOutput) -> Result<ToolOutput, CallError> {
        change(self.call, tool, output, &mut self.receipt.transforms)
    }

    /// Records what guards found.
    pub(super) fn found(&mut self, findings: Vec<GuardFinding>) {
        self.receipt.guards.extend(findings);
    }

    /// What guards found.
    pub(super) fn guard_findings(&self) -> &[GuardFinding] {
        &self.receipt.guards
    }

    /// Checks the output.
    pub(super) fn checked(
        &mut self,
        tool: &Tool,
        output: ToolOutput,
        max_text_tokens: u64,
    ) -> Result<Checked, CallError> {
        check(self.call, tool, output, max_text_tokens, &self.receipt.transforms)
    }

    /// The last stage: bounds the text, and charges for the output.
    pub(super) fn accept(&mut self, tool: &Tool, checked: Result<Checked, CallError>) -> Result<Accepted, CallError> {
        let hold = self.hold.take().ok_or_else(|| CallError::internal("an executed call has no budget hold"));
        let accepted = hold.and_then(|hold| accept(self.call.via, tool, checked, hold));
        self.record(Stage::Accept, accepted)
    }

    /// Charges or refunds the hold of a call that ends without an output, and returns the amount charged.
    fn charge_failed(&mut self, error: &CallError) -> Decimal {
        match self.hold.take() {
            Some(hold) if is_paid(self.call.progress.sending.state(), error) => {
                let charge = hold.charge(0);
                self.receipt.charged(charge.after);
                charge.cost_usd
            }
            // A refused output has been charged by `accept`. In other cases dropping the hold refunds it.
            _ => error.cost_usd(),
        }
    }

    /// An internal error in the current stage.
    pub(super) fn internal_failure(&self, cause: impl fmt::Display) -> CallError {
        let error = CallError::internal(cause);
        match Stage::ALL.get(self.receipt.stages.len()) {
            Some(stage) => error.at_stage(*stage),
            None => error,
        }
    }

    /// Records the call and makes its reply. With strict durability, waits until the record is on disk.
    pub async fn settle(mut self, outcome: Result<Accepted, CallError>) -> Reply {
        if let Err(error) = &outcome {
            error.annotate(&mut self.receipt);
        }
        let duration = self.call.received.elapsed();
        let (cost_usd, tokens) = match &outcome {
            Ok(accepted) => (accepted.charge.cost_usd, accepted.charge.tokens),
            Err(error) => (self.charge_failed(error), 0),
        };
        if let (Some(contents), Some(content)) = (self.contents, &mut self.content) {
            content.result = contents.result(outcome.as_ref().map(|accepted| &accepted.answer));
        }
        let durable = self.write(outcome.as_ref().err(), duration, cost_usd, tokens);
        let mut outcome = outcome.map(|accepted| accepted.answer);
        if let Some(durable) = durable
            && let Err(error) = durable.wait().await
        {
            // The stage shows the caller whether the tool has run.
            let stage = match &outcome {
                Ok(_) => (!self.call.dry_run).then_some(Stage::Accept),
                Err(refusal) => refusal.stage(),
            };
            outcome = Err(match stage {
                Some(stage) => error.at_stage(stage),
                None => error,
            });
        }
        self.receipt.nested = self.call.progress.nested.take();
        self.receipt.interpreter = self.call.progress.interpreter.get();
        let receipt = std::mem::replace(&mut self.receipt, Receipt::new(self.call));
        Reply { outcome, duration, tokens, cost_usd, receipt, stored: None }
    }

    fn time(&mut self, stage: Stage) {
        let now = Instant::now();
        self.receipt.stages.push((stage, now - self.last));
        self.last = now;
    }

    fn write(
        &mut self,
        error: Option<&CallError>,
        duration: Duration,
        cost_usd: Decimal,
        tokens: u64,
    ) -> Option<Durable> {
        let slot = self.slot.take()?;
        let (call, receipt) = (self.call, &self.receipt);
        let tool = receipt.schema.as_deref().or(self.hidden.as_deref());
        let summary = self.records.keep(|memory| CallSummary {
            stages: receipt.stages.clone(),
            duration,
            cost_usd,
            tokens,
            attempts: receipt.attempts,
            rate: receipt.rate,
            arguments_digest: self.arguments_digest,
            trace_id: telemetry::trace_id(&self.span, call),
            flags: tool.map(|tool| rules_of(&tool.flags).into_iter().map(Into::into).collect()).unwrap_or_default(),
            registry_version: receipt.registry_version,
            lock_hash: tool.and_then(|tool| tool.approved.clone()),
            policy_version: receipt.policy.as_ref().map(|policy| Arc::clone(&policy.version)),
            breaker: receipt.breaker.as_ref().map(|breaker| (Arc::clone(&breaker.upstream), breaker.state)),
            guards: names_of_rules(&receipt.guards),
            output_schema_violation: !receipt.output_schema_violations.is_empty(),
            ..CallSummary::new(call, tool.map(Tool::shared_name), error, memory)
        });
        self.metrics.record(tool.map(|tool| &*tool.metrics), &summary, &receipt.transforms);
        if !call.dry_run {
            self.metrics.count_guards(&receipt.guards);
        }
        telemetry::complete(&self.span, &summary, tool.map(|tool| &*tool.metadata.category));
        if let Some(session) = &call.origin.session {
            session.settle(cost_usd);
        }
        let mut slot = self.refusals.count(slot, &call.caller, &summary, &mut self.arguments)?;
        let input = call.progress.policy_input.lock().take();
        let arguments_bytes = match &self.arguments {
            Some(KeptArguments::Whole(text)) => text.get().len(),
            Some(KeptArguments::TooLarge { .. }) | None => 0,
        };
        if let Some(input) = input.filter(|input| input.get().len() + arguments_bytes <= MAX_ARGUMENTS) {
            slot.set_policy_input(input);
        }
        telemetry::log_call(&summary, error.and_then(CallError::cause));
        if let (Some(contents), Some(content)) = (self.contents, self.content.take()) {
            contents.put(&summary, *content);
        }
        Some(slot.write(summary, self.arguments.take()))
    }
}

impl Drop for CallScope<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            let cancelled = CallError::new(ErrorCode::Cancelled, "the caller disconnected");
            let cost_usd = self.charge_failed(&cancelled);
            self.write(Some(&cancelled), self.call.received.elapsed(), cost_usd, 0);
        }
    }
}

/// The names of the rules that found something, each once.
fn names_of_rules(findings: &[GuardFinding]) -> Box<[Arc<str>]> {
    let mut names: Vec<_> = findings.iter().map(|finding| Arc::clone(&finding.rule)).collect();
    names.sort();
    names.dedup();
    names.into()
}

fn keeps_arguments(tool: &Tool) -> bool {
    tool.metadata.audit_arguments == AuditArguments::Full
}

/// Maximum length of arguments in the audit trail, with the input of the policies, in bytes: a line stays bounded.
const MAX_ARGUMENTS: usize = 16 << 10;

fn kept(arguments: &Arguments) -> Option<KeptArguments> {
    let text = to_raw_value(arguments).ok()?;
    let bytes = text.get().len();
    Some(if bytes > MAX_ARGUMENTS { KeptArguments::TooLarge { bytes } } else { KeptArguments::Whole(text) })
}

/// Whether a call that ended without an output is charged. A call that was sent to an upstream is. A call that only
/// began, in a tool that runs in the gateway, is charged for the tool's own errors, a timeout, and a cancellation.
fn is_paid(state: SendingState, error: &CallError) -> bool {
    match state {
        SendingState::Pending => false,
        SendingState::Begun => {
            error.code().is_reported_by_tool() || matches!(error.code(), ErrorCode::Timeout | ErrorCode::Cancelled)
        }
        SendingState::Sent => true,
    }
}

#[cfg(test)]
mod tests;
