//! The scopes of a call, their limits, and the errors when one is reached.

use rust_decimal::Decimal;

use super::TenantLimits;
use super::account::{Amount, Balance};
use sekisho_config::BudgetConfig;
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::lease::budget::AccountLimit;
use sekisho_core::record::CountedCalls;
use sekisho_store::DailyScope;

/// In the order in which accounts are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Scope {
    Request,
    Agent,
    Task,
    Caller,
    Tenant,
}

/// One value for each scope, indexed by `Scope as usize`.
pub(super) type PerScope<T> = [T; 5];

sekisho_core::as_str!(Scope);

impl Scope {
    pub(super) const ALL: PerScope<Self> = [Self::Request, Self::Agent, Self::Task, Self::Caller, Self::Tenant];

    /// The scopes that an id of the caller identifies.
    pub(super) const NAMED: [Self; 3] = [Self::Request, Self::Agent, Self::Task];

    /// The scopes of a day.
    pub(super) const DAYS: [(Self, DailyScope); 2] =
        [(Self::Caller, DailyScope::Caller), (Self::Tenant, DailyScope::Tenant)];

    /// The subject of the error messages.
    fn subject(self) -> &'static str {
        match self {
            Self::Request => "this request",
            Self::Agent => "this agent",
            Self::Task => "this task",
            Self::Caller => "this caller's day",
            Self::Tenant => "this tenant's day",
        }
    }
}

/// The maximum usage of a tool, or of a model's turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct MaxUsage<'a> {
    /// Or the model.
    pub(super) tool: &'a str,
    pub(super) most: Amount,
    /// Tokens of a model's turn. Only the scopes of a day count them: the others limit the text of tools.
    pub(super) day_tokens: u64,
}

impl MaxUsage<'_> {
    /// The purpose of the tokens, in error messages.
    pub(super) fn purpose(&self) -> &'static str {
        if self.day_tokens == 0 { "for its answer" } else { "for its request and its answer" }
    }
}

/// An amount of each scope, and the tokens of a model's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScopedAmount {
    pub(super) every: Amount,
    /// Only of the scopes of a day.
    pub(super) day_tokens: u64,
}

impl ScopedAmount {
    pub(super) const ZERO: Self = Self { every: Amount::ZERO, day_tokens: 0 };

    /// Of a scope of a day.
    pub(super) fn of_day(self) -> Amount {
        Amount { tokens: self.every.tokens.saturating_add(self.day_tokens), ..self.every }
    }

    /// Of a scope by its index.
    pub(super) fn at(self, scope: usize) -> Amount {
        if scope < Scope::NAMED.len() { self.every } else { self.of_day() }
    }
}

/// The limit of one scope, and its name in the configuration.
#[derive(Debug, Clone, Copy)]
struct Limit<T> {
    most: T,
    setting: &'static str,
}

/// Tokens that a call must have left for its answer: with fewer it would run, and its caller would not learn of it.
const MIN_ANSWER_TOKENS: u64 = 256;

/// A limit below this is meant for short answers, and has no such minimum.
const SMALL_LIMIT: u64 = 4 * MIN_ANSWER_TOKENS;

/// Tokens that a call reserves if they are left. Of more tokens it reserves at most half of the rest of a scope that it
/// shares, so that another call at the same time still gets an answer.
const FULL_RESERVATION: u64 = 2_000;

/// Settings of a tenant.
const OWN_COST: &str = "max_cost_per_day";
const OWN_TOKENS: &str = "max_tokens_per_day";

/// All limits; `None` where a scope has none.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// A request, agent or task without a call for so many seconds begins anew.
    scope_idle_seconds: u64,
    cost_usd: PerScope<Option<Limit<Decimal>>>,
    tokens: PerScope<Option<Limit<u64>>>,
}

impl From<&BudgetConfig> for Limits {
    fn from(config: &BudgetConfig) -> Self {
        fn limit<T>(setting: &'static str, most: impl Into<Option<T>>) -> Option<Limit<T>> {
            most.into().map(|most| Limit { most, setting })
        }
        Self {
            scope_idle_seconds: config.scope_idle_seconds,
            cost_usd: [
                limit("max_cost_per_request", config.max_cost_per_request),
                None,
                None,
                limit("max_cost_per_caller_per_day", config.max_cost_per_caller_per_day),
                limit("max_cost_per_tenant_per_day", config.max_cost_per_tenant_per_day),
            ],
            tokens: [
                limit("max_tokens_per_request", config.max_tokens_per_request),
                limit("token_budget_per_agent", config.token_budget_per_agent),
                limit("token_budget_per_task", config.token_budget_per_task),
                limit("max_tokens_per_caller_per_day", config.max_tokens_per_caller_per_day),
                limit("max_tokens_per_tenant_per_day", config.max_tokens_per_tenant_per_day),
            ],
        }
    }
}

impl Limits {
    /// The limits of calls that a run of an agent makes.
    pub(super) fn of_runs(config: &BudgetConfig) -> Self {
        let mut limits = Self::from(config);
        let (setting, most) = config.tokens_of_a_run();
        limits.tokens[Scope::Request as usize] = Some(Limit { most, setting });
        limits
    }

    /// With a tenant's own limits.
    pub(super) fn of_tenant(&self, own: TenantLimits) -> Self {
        let mut limits = self.clone();
        if let Some(most) = own.cost_usd {
            limits.cost_usd[Scope::Tenant as usize] = Some(Limit { most, setting: OWN_COST });
        }
        if let Some(most) = own.tokens {
            limits.tokens[Scope::Tenant as usize] = Some(Limit { most, setting: OWN_TOKENS });
        }
        limits
    }

    /// The amount to reserve for the request, and the rest before it. `is_shared`: the scopes that other calls may use
    /// too.
    /// Errors: as [`Limits::check`].
    pub(super) fn fit(
        &self,
        balances: &PerScope<Balance>,
        is_shared: PerScope<bool>,
        max_usage: &MaxUsage<'_>,
    ) -> Result<(ScopedAmount, Amount), CallError> {
        let left = self.check(balances, max_usage)?;
        let shared = Scope::ALL.map(|scope| scope as usize).into_iter().filter(|at| is_shared[*at]);
        let halves = shared.filter_map(|at| Some(balances[at].left_of_tokens(self.tokens[at]?.most) / 2));
        let fair = halves.min().unwrap_or(u64::MAX).max(FULL_RESERVATION);
        let every = Amount { tokens: max_usage.most.tokens.min(left.tokens).min(fair), ..max_usage.most };
        Ok((ScopedAmount { every, day_tokens: max_usage.day_tokens }, left))
    }

    /// The rest before the request.
    /// Errors: `budget_exceeded` when the price does not fit, `token_limit_exceeded` when too few tokens are left.
    pub(super) fn check(&self, balances: &PerScope<Balance>, max_usage: &MaxUsage<'_>) -> Result<Amount, CallError> {
        let narrowest = self.narrowest(balances);
        let left = narrowest.left;
        if max_usage.most.cost_usd > left.cost_usd {
            return Err(self.price_does_not_fit(&narrowest, balances, max_usage));
        }
        let needed = self.needed_tokens(narrowest.by_tokens, max_usage);
        if left.tokens < needed {
            return Err(self.too_few_tokens(narrowest.by_tokens, needed, balances, max_usage));
        }
        self.check_turn(balances, max_usage)?;
        Ok(left)
    }

    /// A model's turn is sent only if all its tokens are left of the days.
    fn check_turn(&self, balances: &PerScope<Balance>, max_usage: &MaxUsage<'_>) -> Result<(), CallError> {
        let needed = max_usage.day_tokens;
        let has_too_few = |(scope, _): &(Scope, DailyScope)| {
            self.most_tokens(*scope).is_some_and(|most| balances[*scope as usize].left_of_tokens(most) < needed)
        };
        match Scope::DAYS.into_iter().find(has_too_few) {
            Some((scope, _)) => Err(self.too_few_tokens(scope, needed, balances, max_usage)),
            None => Ok(()),
        }
    }

    /// The limit of money of a scope, if it has one.
    pub(super) fn most_cost(&self, scope: Scope) -> Option<Decimal> {
        self.cost_usd[scope as usize].map(|limit| limit.most)
    }

    /// The limit of tokens of a scope, if it has one.
    pub(super) fn most_tokens(&self, scope: Scope) -> Option<u64> {
        self.tokens[scope as usize].map(|limit| limit.most)
    }

    /// The limits of a day's account.
    pub(super) fn account_limit(&self, of_day: DailyScope) -> AccountLimit {
        let scope = match of_day {
            DailyScope::Caller => Scope::Caller,
            DailyScope::Tenant => Scope::Tenant,
        };
        AccountLimit { cost_usd: self.most_cost(scope), tokens: self.most_tokens(scope) }
    }

    /// The rest over all scopes.
    pub(super) fn left(&self, balances: &PerScope<Balance>) -> Amount {
        self.narrowest(balances).left
    }

    fn narrowest(&self, balances: &PerScope<Balance>) -> Narrowest {
        let mut narrowest = Narrowest {
            left: Amount { cost_usd: Decimal::MAX, tokens: u64::MAX },
            by_cost: Scope::Request,
            by_tokens: Scope::Request,
        };
        for scope in Scope::ALL {
            let at = scope as usize;
            if let Some(limit) = &self.cost_usd[at] {
                let left = balances[at].left_of_cost(limit.most);
                if left < narrowest.left.cost_usd {
                    narrowest.left.cost_usd = left;
                    narrowest.by_cost = scope;
                }
            }
            if let Some(limit) = &self.tokens[at] {
                let left = balances[at].left_of_tokens(limit.most);
                if left < narrowest.left.tokens {
                    narrowest.left.tokens = left;
                    narrowest.by_tokens = scope;
                }
            }
        }
        narrowest
    }

    fn price_does_not_fit(
        &self,
        narrowest: &Narrowest,
        balances: &PerScope<Balance>,
        max_usage: &MaxUsage<'_>,
    ) -> CallError {
        let (scope, left) = (narrowest.by_cost, narrowest.left.cost_usd);
        let held = balances[scope as usize].held.cost_usd;
        let by = balances[scope as usize].holders();
        let held = if held.is_zero() { String::new() } else { format!(" ({held} held by {by})") };
        let (most, setting) = self.cost_usd[scope as usize].map_or((left, ""), |limit| (limit.most, limit.setting));
        let subject = scope.subject();
        let message = format!(
            "{subject} has {left} of {most} USD left{held}, and {} costs {}",
            max_usage.tool, max_usage.most.cost_usd
        );
        self.refused(ErrorCode::BudgetExceeded, scope, setting, &message)
    }

    fn needed_tokens(&self, scope: Scope, max_usage: &MaxUsage<'_>) -> u64 {
        match self.tokens[scope as usize] {
            Some(limit) if limit.most >= SMALL_LIMIT => MIN_ANSWER_TOKENS.min(max_usage.most.tokens),
            _ => max_usage.most.tokens.min(1),
        }
    }

    fn too_few_tokens(
        &self,
        scope: Scope,
        needed: u64,
        balances: &PerScope<Balance>,
        max_usage: &MaxUsage<'_>,
    ) -> CallError {
        let Balance { spent, held, .. } = balances[scope as usize];
        let by = balances[scope as usize].holders();
        let held = match held.tokens {
            0 => String::new(),
            held => format!(", {held} held by {by}"),
        };
        let (most, setting) = self.tokens[scope as usize].map_or((0, ""), |limit| (limit.most, limit.setting));
        let message = format!(
            "{} has {} of {most} tokens left ({} spent{held}), and {} needs {needed} {}",
            scope.subject(),
            balances[scope as usize].left_of_tokens(most),
            spent.tokens,
            max_usage.tool,
            max_usage.purpose(),
        );
        self.refused(ErrorCode::TokenLimitExceeded, scope, setting, &message)
    }

    fn refused(&self, code: ErrorCode, scope: Scope, setting: &str, what: &str) -> CallError {
        let next = match scope {
            Scope::Request => format!("an operator may raise `budget.{setting}`"),
            Scope::Agent | Scope::Task => {
                let idle = self.scope_idle_seconds;
                format!("it begins anew after {idle} s without a call, or an operator raises `budget.{setting}`")
            }
            Scope::Tenant if [OWN_COST, OWN_TOKENS].contains(&setting) => {
                format!("a new day begins at 00:00 UTC, or an administrator raises `{setting}` of the tenant")
            }
            Scope::Caller | Scope::Tenant => {
                format!("a new day begins at 00:00 UTC, or an operator raises `budget.{setting}`")
            }
        };
        let detail =
            Detail { path: format!("budget.{}", scope.as_str()), rule: setting.to_owned(), message: what.to_owned() };
        let error = CallError::new(code, format!("{what}; {next}")).with_detail(detail);
        match scope {
            Scope::Caller => error.of_limit(CountedCalls::Caller),
            Scope::Tenant => error.of_limit(CountedCalls::Tenant),
            // Their calls are not told apart in the index.
            Scope::Request | Scope::Agent | Scope::Task => error,
        }
    }
}

/// The rest, and the scopes that limit it.
#[derive(Debug)]
struct Narrowest {
    left: Amount,
    by_cost: Scope,
    by_tokens: Scope,
}
