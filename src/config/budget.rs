use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;

/// What calls may cost. Money in USD, exact decimals; tokens are those of the tools' `text`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// `MAX_COST_PER_REQUEST` (E60).
    #[schemars(with = "String")]
    pub max_cost_per_request: Decimal,
    /// `MAX_TOKENS_PER_REQUEST` (E61).
    pub max_tokens_per_request: u64,
    /// `TOKEN_BUDGET_PER_AGENT` (E62).
    pub token_budget_per_agent: u64,
    /// `TOKEN_BUDGET_PER_TASK` (E63).
    pub token_budget_per_task: u64,
    /// Unlimited when left out.
    #[schemars(with = "Option<String>")]
    pub max_cost_per_caller_per_day: Option<Decimal>,
    #[schemars(with = "Option<String>")]
    pub max_cost_per_tenant_per_day: Option<Decimal>,
    pub max_tokens_per_caller_per_day: Option<u64>,
    pub max_tokens_per_tenant_per_day: Option<u64>,
    /// Request, agent and task scopes are forgotten after this many idle seconds.
    pub scope_idle_seconds: u64,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            max_cost_per_request: Decimal::new(50, 2),
            max_tokens_per_request: 10_000,
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
