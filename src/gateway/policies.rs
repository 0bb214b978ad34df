//! The decisions of the policies, and the verdict of every stage about a call.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::{History, Reach};
use sekisho_calls::pipeline::StageVerdict;
use sekisho_config::ConsoleRole;
use sekisho_core::call::{Arguments, CallContext, Stage, Via};
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{IndexFilter, IndexedCall};

/// The latest calls whose decisions are counted.
const MAX_DECIDED: usize = 2_000;

/// How many calls were decided alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionCount {
    /// `None`: permitted.
    pub code: Option<ErrorCode>,
    /// Why.
    pub reason: Option<String>,
    pub calls: usize,
}

/// A call to explain.
#[derive(Debug)]
pub struct Explained {
    pub tool: String,
    pub arguments: Arguments,
    /// The caller: id, tenant and roles; `None` for one without credentials.
    pub caller: Option<(String, String, Vec<String>)>,
    /// An example of the tool's answer.
    pub result: Option<Value>,
}

impl History {
    /// The decisions of the policy stage about the latest calls that the caller may see, the most frequent first.
    /// Errors: the database fails.
    pub async fn decisions(&self, caller: &Caller) -> Result<Vec<DecisionCount>, CallError> {
        let mut counted: HashMap<(Option<ErrorCode>, Option<String>), usize> = HashMap::new();
        for IndexedCall { call, calls } in self.latest_calls(caller, IndexFilter::default(), MAX_DECIDED).await? {
            let is_decided = call.stages.iter().any(|(stage, _)| *stage == Stage::Policy);
            let is_refused = call.stage == Some(Stage::Policy);
            if is_decided {
                let reason = call.reason.as_deref().filter(|_| is_refused).map(str::to_owned);
                *counted.entry((call.code.filter(|_| is_refused), reason)).or_default() +=
                    usize::try_from(calls).unwrap_or(1);
            }
        }
        let mut counts: Vec<_> =
            counted.into_iter().map(|((code, reason), calls)| DecisionCount { code, reason, calls }).collect();
        counts.sort_by(|one, other| {
            Reverse(one.calls).cmp(&Reverse(other.calls)).then_with(|| one.reason.cmp(&other.reason))
        });
        Ok(counts)
    }

    /// The verdict of each stage about a call, which is not made.
    /// Errors: `denied` without the role `operator` or `admin` of the console, and for a caller of another tenant that
    /// the operator does not see.
    pub async fn explain(&self, operator: &Caller, explained: Explained) -> Result<Vec<StageVerdict>, CallError> {
        let roles = self.configuration.console_roles(operator);
        if !roles.iter().any(|role| matches!(role, ConsoleRole::Operator | ConsoleRole::Admin)) {
            let message = "to explain a call requires the console role operator or admin (`console.roles`)";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        let caller = match explained.caller {
            None => Caller::anonymous(),
            Some((id, tenant, roles)) => Caller::new(&id, &tenant, roles),
        };
        if self.configuration.reach(operator) != Reach::AllTenants
            && !caller.anonymous
            && caller.tenant != operator.tenant
        {
            let message = "a caller of another tenant is explained to administrators of the tenant `default` alone";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        let call = CallContext::new(explained.tool, Arc::new(caller), Via::Rest);
        Ok(self.pipeline.explain(&call, explained.arguments, explained.result).await)
    }
}
