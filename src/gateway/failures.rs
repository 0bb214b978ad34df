//! Why calls failed: by tool, server or caller, since when; who used a limit up; and what to do next.

use std::cmp::Reverse;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::History;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, CountedCalls};
use sekisho_store::{CountedUse, Failures, FailuresBy, IndexFilter};

/// Callers that are shown of those who used a limit up.
const MAX_SHOWN: usize = 10;

/// What an operator or a caller does next about a call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum NextStep {
    CheckName,
    CorrectArguments,
    ChangeRule,
    GiveRole,
    ChangeGuard,
    SendCredentials,
    SignIn,
    Decide,
    AskAgain,
    RaiseLimit,
    RaiseBudget,
    AddSlots,
    RepairUpstream,
    GiveCredentials,
    CallLessOften,
    RaiseTimeout,
    ReadWords,
    NarrowOutput,
    CorrectSchema,
    WaitAndRepeat,
    CheckOutcome,
    ReadLog,
}

impl NextStep {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// `None` for a call that succeeded, or that its client ended.
    pub fn of(call: &CallSummary) -> Option<Self> {
        let step = match call.code? {
            ErrorCode::UnknownTool | ErrorCode::NotFound | ErrorCode::UnknownSession | ErrorCode::UnknownResult => {
                Self::CheckName
            }
            ErrorCode::InvalidRequest
            | ErrorCode::InvalidArguments
            | ErrorCode::TooLarge
            | ErrorCode::UnsupportedMediaType
            | ErrorCode::ContextLengthExceeded
            | ErrorCode::IdempotencyConflict
            | ErrorCode::NameTaken => Self::CorrectArguments,
            ErrorCode::Denied => Self::of_denied(call),
            ErrorCode::Unauthenticated => Self::SendCredentials,
            ErrorCode::SignInRequired | ErrorCode::TokenExchangeFailed => Self::SignIn,
            ErrorCode::ApprovalRequired => Self::Decide,
            ErrorCode::ApprovalDenied
            | ErrorCode::ApprovalExpired
            | ErrorCode::ApprovalMismatch
            | ErrorCode::ApprovalLost
            | ErrorCode::ToolChanged
            | ErrorCode::ReplayDiverged => Self::AskAgain,
            ErrorCode::RateLimited => Self::RaiseLimit,
            ErrorCode::BudgetExceeded | ErrorCode::TokenLimitExceeded => Self::RaiseBudget,
            ErrorCode::Overloaded => Self::AddSlots,
            ErrorCode::CircuitOpen => Self::RepairUpstream,
            ErrorCode::UpstreamError => Self::of_upstream(call.http_status),
            ErrorCode::ToolError if call.http_status.is_some() => Self::of_upstream(call.http_status),
            ErrorCode::Timeout | ErrorCode::SandboxTimeout => Self::RaiseTimeout,
            ErrorCode::ToolError | ErrorCode::SandboxTrap | ErrorCode::ModelRefused => Self::ReadWords,
            ErrorCode::OutputTooLarge | ErrorCode::SandboxMemory | ErrorCode::SandboxOutput => Self::NarrowOutput,
            ErrorCode::InvalidOutput => Self::CorrectSchema,
            ErrorCode::WarmingUp | ErrorCode::ConversationLocked | ErrorCode::SessionLost => Self::WaitAndRepeat,
            ErrorCode::UnknownOutcome => Self::CheckOutcome,
            ErrorCode::Internal => Self::ReadLog,
            ErrorCode::Cancelled => return None,
        };
        Some(step)
    }

    fn of_denied(call: &CallSummary) -> Self {
        match call.violations.first().map(|violation| &*violation.rule) {
            _ if !call.guards.is_empty() => Self::ChangeGuard,
            Some("tenant" | "tools" | "roles" | "dangerous" | "scopes") => Self::GiveRole,
            _ => Self::ChangeRule,
        }
    }

    fn of_upstream(status: Option<u16>) -> Self {
        match status {
            Some(401 | 403) => Self::GiveCredentials,
            Some(429) => Self::CallLessOften,
            Some(status) if (400..500).contains(&status) => Self::CorrectArguments,
            _ => Self::RepairUpstream,
        }
    }
}

impl History {
    /// The failures and refusals of the wanted calls that the caller may see, by a field.
    /// Errors: the database fails.
    pub async fn failures(&self, caller: &Caller, filter: IndexFilter, by: FailuresBy) -> Result<Failures, CallError> {
        let Some(filter) = self.within_reach(caller, filter) else { return Ok(Failures::default()) };
        self.index.write().await;
        Ok(self.index.store.failures(&filter, by).await?)
    }

    /// Who made the calls that used up the limit of a refused call, as far as the caller sees them: of a rate, in the minute before
    /// it; of a budget, on its day until then. Empty for a call that no limit refused.
    /// Errors: as [`failures`](Self::failures).
    pub async fn used_up_by(&self, caller: &Caller, call: &CallSummary) -> Result<Vec<CountedUse>, CallError> {
        let Some(counted) = counted_by(call) else { return Ok(Vec::new()) };
        let Some(filter) = self.within_reach(caller, counted) else { return Ok(Vec::new()) };
        let mut uses = self.index.store.counted_uses(&filter).await?;
        let rule = call.failure.as_ref().and_then(|notes| notes.limit.as_ref()?.rule.as_deref());
        let config = self.configuration.current();
        if let Some(rule) = rule.and_then(|name| config.limits.rules.iter().find(|rule| rule.name == name)) {
            uses.retain(|used| rule.is_for_tool(Some(&used.tool)));
        }
        if call.code == Some(ErrorCode::BudgetExceeded) {
            uses.retain(|used| !used.cost_usd.is_zero());
            uses.sort_by_key(|used| Reverse(used.cost_usd));
        }
        uses.truncate(MAX_SHOWN);
        Ok(uses)
    }
}

/// The calls that the limit counted which a call reached.
fn counted_by(call: &CallSummary) -> Option<IndexFilter> {
    let limit = call.failure.as_ref()?.limit.as_ref()?;
    let until = Timestamp::try_from(call.time).ok()?;
    let since = match call.code? {
        ErrorCode::RateLimited => until.checked_sub(SignedDuration::from_mins(1)).ok()?,
        _ => until.to_zoned(TimeZone::UTC).start_of_day().ok()?.timestamp(),
    };
    let until = until.checked_add(1.microsecond()).ok();
    let mut filter = IndexFilter { since: Some(since), until, ..IndexFilter::default() };
    let (tenant, caller) = (Some(call.tenant.to_string()), Some(call.caller.to_string()));
    match (limit.counts, &call.key) {
        (CountedCalls::Tenant, _) => filter.tenant = tenant,
        (CountedCalls::Key, Some(key)) => (filter.tenant, filter.key) = (tenant, Some(key.to_string())),
        (CountedCalls::Caller | CountedCalls::Key, _) => (filter.tenant, filter.caller) = (tenant, caller),
        (CountedCalls::ToolOfCaller, _) => {
            (filter.tenant, filter.caller, filter.tool) = (tenant, caller, Some(call.tool.to_string()));
        }
        (CountedCalls::Tool, _) => filter.tool = Some(call.tool.to_string()),
        // The index does not know the roles of callers.
        (CountedCalls::Role, _) => return None,
    }
    Some(filter)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use sekisho_core::call::{CallContext, Stage, Via};
    use sekisho_core::error::Detail;

    fn ended(error: &CallError) -> CallSummary {
        let call = CallContext::new("crm__list", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
        CallSummary::new(&call, None, Some(error), String::new())
    }

    #[test]
    fn each_code_but_cancelled_has_a_next_step_and_each_step_a_code() {
        let mut steps = HashSet::new();
        for code in ErrorCode::ALL.iter().copied() {
            let step = NextStep::of(&ended(&CallError::new(code, "")));
            assert_eq!(step.is_none(), code == ErrorCode::Cancelled, "{code}");
            steps.extend(step);
        }
        for status in [401, 404, 429, 503] {
            steps.extend(NextStep::of(&ended(&CallError::tool("").answered_with(status))));
        }
        let denied = |rule: &str, guards: &[&str]| {
            let detail = Detail { path: String::new(), rule: rule.to_owned(), message: String::new() };
            let call = ended(&CallError::new(ErrorCode::Denied, "").with_detail(detail));
            let guards = guards.iter().map(|guard| Arc::from(*guard)).collect();
            NextStep::of(&CallSummary { guards, ..call })
        };
        steps.extend([denied("dangerous", &[]), denied("deny", &["secrets"])].into_iter().flatten());
        assert_eq!(steps, NextStep::ALL.iter().copied().collect());
    }

    #[test]
    fn the_calls_that_a_limit_counted_are_before_the_refused_one_and_of_its_subject() {
        let rate = |counts| CallError::new(ErrorCode::RateLimited, "").at_stage(Stage::Limits).of_limit(counts);
        for (counts, tenant, caller, tool) in [
            (CountedCalls::Tenant, true, false, false),
            (CountedCalls::Caller, true, true, false),
            (CountedCalls::Key, true, true, false),
            (CountedCalls::ToolOfCaller, true, true, true),
            (CountedCalls::Tool, false, false, true),
        ] {
            let filter = counted_by(&ended(&rate(counts))).unwrap();
            let has = (filter.tenant.is_some(), filter.caller.is_some(), filter.tool.is_some());
            assert_eq!(has, (tenant, caller, tool), "{counts:?}");
            let length = filter.until.unwrap().duration_since(filter.since.unwrap());
            assert_eq!(length.as_micros(), 60_000_001);
        }
        assert!(counted_by(&ended(&rate(CountedCalls::Role))).is_none());
        assert!(counted_by(&ended(&CallError::new(ErrorCode::Denied, ""))).is_none());
        let budget = CallError::new(ErrorCode::BudgetExceeded, "").of_limit(CountedCalls::Tenant);
        assert!(counted_by(&ended(&budget)).unwrap().since.unwrap().to_string().ends_with("T00:00:00Z"));
    }
}
