//! What guards find in a call: in its arguments before the policy stage, and in what its tool says before anybody gets it. The
//! external policy sees answers here, too, where it is configured to.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::Pipeline;
use super::execute::Executed;
use super::settlement::CallScope;
use crate::guards::{Guard, texts_of, texts_of_arguments};
use crate::policy::Permit;
use crate::tool::{Tool, ValidArguments};
use sekisho_config::{GuardFailure, OnMatch};
use sekisho_core::call::{CallContext, Stage, ToolOutput};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::guard_finding::{GuardAction, GuardFinding};

impl Pipeline {
    /// Looks at the arguments as they are sent.
    /// Errors: `denied`: a guard blocks them.
    pub(super) async fn guard_arguments(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
        scope: &mut CallScope<'_>,
    ) -> Result<(), CallError> {
        let guards = tool.guards.iter().flat_map(|guards| guards.for_arguments(&call.caller.tenant));
        let guards: Vec<_> = guards.collect();
        if guards.is_empty() {
            return Ok(());
        }
        let texts = texts_of_arguments(arguments.sent());
        for guard in guards {
            // Boxed, because few calls have a guard.
            let findings = Box::pin(self.examine(call, tool, guard, &texts)).await;
            if record(scope, findings) {
                return Err(refused(guard, "the arguments are refused").at_stage(Stage::Policy));
            }
        }
        Ok(())
    }

    /// Whether guards, or the external policy, look at the answers of a tool.
    pub(super) fn guards_answers(&self, tool: &Tool) -> bool {
        tool.guards.is_some() || self.policy.sees_answers()
    }

    /// Looks at an output, and masks it.
    /// Errors: the error of `output`; `denied`: a guard or the external policy withholds it.
    pub(super) async fn guard_output(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        output: Result<ToolOutput, CallError>,
        scope: &mut CallScope<'_>,
    ) -> Result<ToolOutput, CallError> {
        let mut output = output?;
        self.guard_answer(call, tool, &mut output, scope).await?;
        self.policy.ask_about_answer(call, tool, permit, &output).await?;
        Ok(output)
    }

    /// Looks at the message of a tool that failed.
    /// Errors: the error, masked, or `denied` in its place.
    pub(super) async fn guard_failure(
        &self,
        call: &CallContext,
        tool: &Tool,
        executed: Result<Executed, CallError>,
        scope: &mut CallScope<'_>,
    ) -> Result<Executed, CallError> {
        match executed {
            Err(error) if tool.guards.is_some() => Err(Box::pin(self.guarded_error(call, tool, error, scope)).await),
            executed => executed,
        }
    }

    async fn guarded_error(
        &self,
        call: &CallContext,
        tool: &Tool,
        mut error: CallError,
        scope: &mut CallScope<'_>,
    ) -> CallError {
        let (mut said, mut further) = (ToolOutput::default(), Vec::new());
        error.change_answer(|answer| said.clone_from(answer), |text| further.push(Value::from(text.as_str())));
        said.metadata.insert("further".to_owned(), further.into());
        if let Err(refusal) = self.guard_answer(call, tool, &mut said, scope).await {
            return refusal.at_stage(error.stage().unwrap_or(Stage::Execute));
        }
        let guards = tool.guards.iter().flat_map(|guards| guards.for_answers(&call.caller.tenant));
        for guard in guards.filter(|guard| guard.on_match == OnMatch::Mask) {
            error.change_answer(|answer| guard.mask(answer), |text| guard.mask_text(text));
        }
        error
    }

    async fn guard_answer(
        &self,
        call: &CallContext,
        tool: &Tool,
        output: &mut ToolOutput,
        scope: &mut CallScope<'_>,
    ) -> Result<(), CallError> {
        let guards = tool.guards.iter().flat_map(|guards| guards.for_answers(&call.caller.tenant));
        for guard in guards {
            let findings = self.examine(call, tool, guard, &texts_of(output)).await;
            let masks = findings.iter().any(|finding| finding.action == GuardAction::Mask);
            if record(scope, findings) {
                return Err(refused(guard, "the answer is withheld"));
            }
            if masks {
                guard.mask(output);
                // A finding in several texts together, or one that cannot be replaced in its place.
                if !guard.findings(&texts_of(output)).is_empty() {
                    return Err(refused(guard, "the answer cannot be masked, and is withheld"));
                }
            }
        }
        Ok(())
    }

    /// The findings of a guard's detectors, and of its service.
    async fn examine(
        &self,
        call: &CallContext,
        tool: &Tool,
        guard: &Arc<Guard>,
        texts: &[Cow<'_, str>],
    ) -> Vec<GuardFinding> {
        let mut findings = guard.findings(texts);
        let Some(service) = guard.service.as_deref().filter(|_| !texts.is_empty()) else { return findings };
        let deadline = call.deadline(tool.timeout());
        let asked = self.guards.judge(service, call, deadline, (guard.direction(), &texts.join("\n"))).await;
        match asked {
            Ok(categories) => findings.extend(
                categories.iter().map(|category| guard.finding(&format!("{service}/{category}"), guard.action())),
            ),
            Err(problem) => {
                tracing::warn!(service, rule = &*guard.name, problem, "a guard's service has no verdict");
                let action = match guard.on_failure {
                    GuardFailure::Block => GuardAction::Block,
                    GuardFailure::Pass => GuardAction::Unanswered,
                };
                findings.push(guard.finding(&format!("{service}/unanswered"), action));
            }
        }
        findings
    }
}

/// Records findings; whether one of them blocks.
fn record(scope: &mut CallScope<'_>, findings: Vec<GuardFinding>) -> bool {
    let blocks = findings.iter().any(|finding| finding.action == GuardAction::Block);
    scope.found(findings);
    blocks
}

/// The message names the rule; what it found is in the receipt.
fn refused(guard: &Guard, what: &str) -> CallError {
    let message = format!("{what} by the rule `{}` of tools.guards", guard.name);
    let detail = Detail { path: "guards".into(), rule: guard.name.to_string(), message: message.clone() };
    CallError::new(ErrorCode::Denied, message).with_details(vec![detail])
}
