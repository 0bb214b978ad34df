//! Explains which stage would refuse a call, and why. Checks each stage; spends nothing and runs nothing. With an
//! example of a result, it also says how the last stage would treat it.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Pipeline;
use super::accept::{Checked, change, check};
use super::execute::upstream_of;
use crate::policy::{Authorized, Permit};
use crate::tool::{Metadata, Tool, ValidArguments};
use sekisho_config::OutputCheck;
use sekisho_core::call::{Arguments, CallContext, CallKind, Caller, Stage};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::transform_finding::TransformFinding;

/// The verdict of one stage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VerdictBody)]
pub struct StageVerdict {
    pub stage: Stage,
    /// Absent for a stage that needs what an earlier one refused.
    pub passes: Option<bool>,
    pub because: String,
}

impl StageVerdict {
    fn passes(stage: Stage, because: impl Into<String>) -> Self {
        Self { stage, passes: Some(true), because: because.into() }
    }

    fn stops(stage: Stage, error: &CallError) -> Self {
        let mut messages: Vec<_> = error.details().iter().map(|detail| detail.message.clone()).collect();
        let is_summary = error.code() == ErrorCode::InvalidArguments && !messages.is_empty();
        let because = if is_summary {
            format!("{}: {}", error.code().as_str(), messages.join("; "))
        } else {
            messages.retain(|detail| !error.message().contains(detail));
            messages.insert(0, error.to_string());
            messages.join("; ")
        };
        Self { stage, passes: Some(false), because }
    }

    fn of<T>(stage: Stage, result: &Result<T, CallError>, passes: impl FnOnce(&T) -> String) -> Self {
        match result {
            Ok(proof) => Self::passes(stage, passes(proof)),
            Err(error) => Self::stops(stage, error),
        }
    }
}

impl Pipeline {
    /// Checks every stage before execution. Unlike a dry run, continues after the first refusal, and takes no token,
    /// slot, probe or hold. The external policy is asked. `result`: an example of the tool's answer.
    pub async fn explain(&self, call: &CallContext, arguments: Arguments, result: Option<Value>) -> Vec<StageVerdict> {
        // Also explains a tool that is hidden from the caller: the result is for an operator. A tool of another tenant
        // stays unknown to operators.
        let snapshot = self.registry.snapshot();
        let is_known = |tool: &Metadata| !tool.is_of_another_tenant(&call.caller);
        let found = match call.target {
            None => snapshot
                .get(&call.tool)
                .filter(|tool| is_known(&tool.metadata))
                .cloned()
                .ok_or_else(|| snapshot.missing(&call.tool, is_known)),
            Some(_) => self.registry.find_for(call),
        };
        let tool = match found {
            Ok(tool) => tool,
            Err(error) => return vec![StageVerdict::stops(Stage::Find, &error)],
        };
        let tool = &*tool;
        let mut verdicts = vec![find_verdict(tool, &call.caller)];
        verdicts.push(StageVerdict::passes(Stage::Limits, rate(tool)));
        let valid = tool.valid_arguments(arguments, &call.origin.prompt_params);
        verdicts.push(StageVerdict::of(Stage::Validate, &valid, valid_verdict));
        let (permit, verdict) = self.policy_verdict(call, tool, valid.ok()).await;
        verdicts.push(verdict);
        verdicts.push(StageVerdict::of(Stage::Budget, &self.budget.check(call, tool), |left| {
            format!(
                "the call costs {} USD; {} USD and {} tokens are left",
                tool.metadata.cost_per_use, left.cost_usd, left.tokens
            )
        }));
        verdicts.push(self.breaker_verdict(call, permit.and_then(|permit| upstream_of(call, tool, &permit))));
        verdicts.extend(result.map(|result| result_verdict(call, tool, result)));
        verdicts
    }

    /// The tool's own checks and the policies. When a check refuses the call, includes the decision of the rules,
    /// which a call would not reach.
    async fn policy_verdict(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: Option<ValidArguments>,
    ) -> (Option<Permit>, StageVerdict) {
        let Some(arguments) = arguments else {
            let because = "not evaluated: policies need valid arguments".to_owned();
            return (None, StageVerdict { stage: Stage::Policy, passes: None, because });
        };
        // Without a call, nothing is counted.
        let unmade = CallContext { dry_run: true, ..call.repeated() };
        let arguments = self.flow.judged(&unmade, tool, arguments, self.policy.reads_flow()).await;
        let decision = self.policy.decide(call, tool, &arguments);
        match self.authorize(call, tool, arguments).await.and_then(Authorized::without_approval) {
            Ok(permit) => {
                let external = if self.policy.asks_external() { ", and the external policy," } else { "" };
                let because = format!("the tool's own checks and policy set {}{external} permit it", permit.version());
                (Some(permit), StageVerdict::passes(Stage::Policy, because))
            }
            Err(error) => {
                let mut verdict = StageVerdict::stops(Stage::Policy, &error);
                let rules = error.details().iter().map(|detail| &*detail.rule);
                let checks: Vec<_> = rules.filter(|rule| !["deny", "require_approval"].contains(rule)).collect();
                if !checks.is_empty() {
                    let rules = if decision.allowed { "permits it".to_owned() } else { decision.reasons().join("; ") };
                    let (checks, version) = (checks.join("`, `"), decision.version);
                    verdict.because.push_str(&format!(" (the tool's own `{checks}`; policy set {version}: {rules})"));
                }
                (None, verdict)
            }
        }
    }

    fn breaker_verdict(&self, call: &CallContext, upstream: Option<sekisho_core::call::Upstream>) -> StageVerdict {
        let Some(upstream) = upstream else { return StageVerdict::passes(Stage::Breaker, "the tool has no upstream") };
        let state = self.breakers.state(&upstream, &call.caller.tenant);
        let because = format!("the circuit breaker of {} is {}", upstream.name, state.as_str());
        StageVerdict {
            stage: Stage::Breaker,
            passes: Some(state != sekisho_core::breaker_state::BreakerState::Open),
            because,
        }
    }
}

fn valid_verdict(valid: &ValidArguments) -> String {
    let mut because = match valid.coercions().len() {
        0 => "the arguments match the schema".to_owned(),
        coercions => format!("the arguments match the schema after {coercions} coercions"),
    };
    add_findings(&mut because, valid.findings());
    because
}

/// The size of a result, the rules for it, and the output schema. Its text is not bounded: that depends on the budget.
fn result_verdict(call: &CallContext, tool: &Tool, result: Value) -> StageVerdict {
    let mut findings = Vec::new();
    let changed = change(call, tool, result.into(), &mut findings);
    let checked = changed.and_then(|output| check(call, tool, output, u64::MAX, &findings));
    let mut verdict = StageVerdict::of(Stage::Accept, &checked, |checked| accepted_because(tool, checked));
    add_findings(&mut verdict.because, &findings);
    verdict
}

fn accepted_because(tool: &Tool, checked: &Checked) -> String {
    match (tool.source_output(), tool.metadata.output_check, checked.violations().len()) {
        (None, ..) => "the tool has no output schema".to_owned(),
        (Some(_), OutputCheck::Off, _) => "the output schema is not checked".to_owned(),
        (Some(_), _, 0) => "the result matches the output schema".to_owned(),
        (Some(_), _, violations) => format!("{violations} violations of the output schema, which are only reported"),
    }
}

fn add_findings(because: &mut String, findings: &[TransformFinding]) {
    for TransformFinding { rule, path, count, .. } in findings {
        let noun = if *count == 1 { "value" } else { "values" };
        because.push_str(&format!("; the rule `{rule}` of tools.transform changes {count} {noun} at {path}"));
    }
}

fn find_verdict(tool: &Tool, caller: &Caller) -> StageVerdict {
    let (name, metadata) = (tool.name(), &tool.metadata);
    if !caller.tools.admits(name) {
        let because = format!("unknown_tool: the caller's key leaves {name} out");
        return StageVerdict { stage: Stage::Find, passes: Some(false), because };
    }
    if metadata.is_off_for(caller) {
        let because =
            format!("unknown_tool: {}, the source of {name}, is not switched on for the caller", metadata.source);
        return StageVerdict { stage: Stage::Find, passes: Some(false), because };
    }
    if metadata.lacks_role(caller) {
        let roles = metadata.roles.join(", ");
        let because = format!("unknown_tool: the tool's own `roles` hide {name} from callers without one of: {roles}");
        return StageVerdict { stage: Stage::Find, passes: Some(false), because };
    }
    let what = if metadata.kind == CallKind::Tool { "is a tool of" } else { "queries" };
    StageVerdict::passes(Stage::Find, format!("{name} {what} {}", metadata.source))
}

/// Reports only the configured limit: the rate limiter cannot be checked without spending a token.
fn rate(tool: &Tool) -> String {
    format!("{} calls a minute for each caller; current use is not checked", tool.metadata.rate_limit)
}

#[cfg(test)]
mod tests;
