use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;
use super::schema::Money;

/// Limits for the cost of calls. Money in USD, exact decimals; tokens are those of the tools' `text`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// `MAX_COST_PER_REQUEST` (E60).
    #[schemars(with = "Money")]
    pub max_cost_per_request: Decimal,
    /// `MAX_TOKENS_PER_REQUEST` (E61).
    pub max_tokens_per_request: u64,
    /// In its place for all calls of one run of an agent. Default: 250,000, or `max_tokens_per_request` where that is set to
    /// another value than its default.
    pub max_tokens_per_run: Option<u64>,
    /// `TOKEN_BUDGET_PER_AGENT` (E62).
    pub token_budget_per_agent: u64,
    /// `TOKEN_BUDGET_PER_TASK` (E63).
    pub token_budget_per_task: u64,
    /// Unlimited by default.
    #[schemars(with = "Option<Money>")]
    pub max_cost_per_caller_per_day: Option<Decimal>,
    #[schemars(with = "Option<Money>")]
    pub max_cost_per_tenant_per_day: Option<Decimal>,
    pub max_tokens_per_caller_per_day: Option<u64>,
    pub max_tokens_per_tenant_per_day: Option<u64>,
    /// Request, agent and task scopes are removed after this many idle seconds.
    pub scope_idle_seconds: u64,
}

/// Tokens of a request: meant for single calls.
const TOKENS_PER_REQUEST: u64 = 10_000;

/// Tokens of a run, which makes up to hundreds of calls.
const TOKENS_PER_RUN: u64 = 250_000;

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            max_cost_per_request: Decimal::new(50, 2),
            max_tokens_per_request: TOKENS_PER_REQUEST,
            max_tokens_per_run: None,
            token_budget_per_agent: 5_000,
            token_budget_per_task: 20_000,
            max_cost_per_caller_per_day: None,
            max_cost_per_tenant_per_day: None,
            max_tokens_per_caller_per_day: None,
            max_tokens_per_tenant_per_day: None,
            scope_idle_seconds: 3_600,
        }
    }
}

impl BudgetConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("MAX_COST_PER_REQUEST", "budget.max_cost_per_request", &mut self.max_cost_per_request);
        environment.apply("MAX_TOKENS_PER_REQUEST", "budget.max_tokens_per_request", &mut self.max_tokens_per_request);
        environment.apply("TOKEN_BUDGET_PER_AGENT", "budget.token_budget_per_agent", &mut self.token_budget_per_agent);
        environment.apply("TOKEN_BUDGET_PER_TASK", "budget.token_budget_per_task", &mut self.token_budget_per_task);
    }

    /// The token limit for the tools of one run, and the name of its setting.
    pub fn tokens_of_a_run(&self) -> (&'static str, u64) {
        match self.max_tokens_per_run {
            Some(most) => ("max_tokens_per_run", most),
            None if self.max_tokens_per_request == TOKENS_PER_REQUEST => ("max_tokens_per_run", TOKENS_PER_RUN),
            // A limit that an operator set for requests before runs had their own.
            None => ("max_tokens_per_request", self.max_tokens_per_request),
        }
    }

    /// The name of the configured daily money limit; with one, a model needs a price.
    pub fn daily_cost_limit(&self) -> Option<&'static str> {
        if self.max_cost_per_caller_per_day.is_some() {
            Some("budget.max_cost_per_caller_per_day")
        } else {
            self.max_cost_per_tenant_per_day.map(|_| "budget.max_cost_per_tenant_per_day")
        }
    }

    /// A limit of zero USD is valid: it permits free tools. Zero tokens would permit nothing.
    pub(super) fn check(&self, findings: &mut Findings) {
        for (setting, amount) in [
            ("budget.max_cost_per_request", Some(self.max_cost_per_request)),
            ("budget.max_cost_per_caller_per_day", self.max_cost_per_caller_per_day),
            ("budget.max_cost_per_tenant_per_day", self.max_cost_per_tenant_per_day),
        ] {
            if amount.is_some_and(|amount| amount < Decimal::ZERO) {
                findings.add(setting, "must not be below zero", "set an amount in USD, such as 0.50");
            }
        }
        findings.above_zero("budget.max_tokens_per_request", self.max_tokens_per_request);
        findings.above_zero_or_none("budget.max_tokens_per_run", self.max_tokens_per_run);
        findings.above_zero("budget.token_budget_per_agent", self.token_budget_per_agent);
        findings.above_zero("budget.token_budget_per_task", self.token_budget_per_task);
        findings.above_zero_or_none("budget.max_tokens_per_caller_per_day", self.max_tokens_per_caller_per_day);
        findings.above_zero_or_none("budget.max_tokens_per_tenant_per_day", self.max_tokens_per_tenant_per_day);
        findings.seconds("budget.scope_idle_seconds", self.scope_idle_seconds);
    }
}
