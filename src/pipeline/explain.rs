//! Which stage would stop a call, and why: the stages asked one by one, nothing spent, nothing run.

use serde::Serialize;

use super::Pipeline;
use crate::call::{Arguments, CallContext, Stage};
use crate::error::CallError;
use crate::registry::Tool;

/// The verdict of one stage.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub stage: Stage,
    /// `None` for a stage that cannot be asked, because an earlier one has no answer to hand on.
    pub passes: Option<bool>,
    pub because: String,
}

impl Verdict {
    fn passes(stage: Stage, because: impl Into<String>) -> Self {
        Self { stage, passes: Some(true), because: because.into() }
    }

    fn stops(stage: Stage, error: &CallError) -> Self {
        let mut because = error.to_string();
        for detail in error.details().iter().filter(|detail| !error.message().contains(&detail.message)) {
            because.push_str("; ");
            because.push_str(&detail.message);
        }
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
    /// Asks every stage before execution. Unlike a dry run it goes on past the first that says no,
    /// and takes no token, slot, probe or hold.
    pub fn explain(&self, call: &CallContext, arguments: Arguments) -> Vec<Verdict> {
        let found = self.registry.find(&call.tool);
        let mut verdicts = vec![Verdict::of(Stage::Find, &found, |tool| {
            format!("{} is a tool of {}", tool.name(), tool.metadata.source)
        })];
        let Ok(tool) = found else { return verdicts };
        verdicts.push(Verdict::passes(Stage::Limits, rate(&tool)));
        let valid = tool.input.validate(arguments);
        verdicts.push(Verdict::of(Stage::Validate, &valid, |valid| match valid.coercions().len() {
            0 => "the arguments fit the schema".to_owned(),
            changes => format!("the arguments fit the schema after {changes} changes of form"),
        }));
        let permit = valid.and_then(|arguments| self.policy.authorize(call, &tool, arguments));
        verdicts.push(match &permit {
            Err(error) if error.code() == crate::error::ErrorCode::InvalidArguments => {
                let because = "policies see valid arguments only".to_owned();
                Verdict { stage: Stage::Policy, passes: None, because }
            }
            permit => {
                Verdict::of(Stage::Policy, permit, |permit| format!("policy set {} permits it", permit.version()))
            }
        });
        verdicts.push(Verdict::of(Stage::Budget, &self.budget.check(call, &tool), |left| {
            format!(
                "it costs {} USD; {} USD and {} tokens are left",
                tool.metadata.cost_per_use, left.cost_usd, left.tokens
            )
        }));
        verdicts.push(self.breaker_verdict(permit.ok().and_then(|permit| tool.upstream_of(&permit))));
        verdicts
    }

    fn breaker_verdict(&self, upstream: Option<crate::call::Upstream>) -> Verdict {
        let Some(upstream) = upstream else { return Verdict::passes(Stage::Breaker, "no upstream to guard") };
        let state = self.breakers.state(&upstream);
        let because = format!("the circuit breaker of {} is {}", upstream.0, state.as_str());
        Verdict { stage: Stage::Breaker, passes: Some(state != crate::breaker::BreakerState::Open), because }
    }
}

/// A rate limiter has no way to be asked without spending, so that only the rule can be told.
fn rate(tool: &Tool) -> String {
    format!("{} calls a minute for each caller; not counted here", tool.metadata.rate_limit)
}

#[cfg(test)]
mod tests;
