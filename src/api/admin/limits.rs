//! `/admin/limits`: the limits in force, and the rest of them. `/limits`: the same for a caller's own.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::overview::BudgetBody;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::parameters::Parameters;
use crate::reply;
use crate::request::RequestMeta;
use sekisho_config::RuleSubject;
use sekisho_core::call::RateState;
use sekisho_gateway::{Gateway, Level, LevelFilter, RuleLevel};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LevelQuery {
    tool: Option<String>,
    /// The id of a caller.
    caller: Option<String>,
    tenant: Option<String>,
}

/// The limits in force, and what is left of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LimitsBody {
    /// Calls a minute of all tools, of a tenant together.
    tenant_rate_limit: Option<u32>,
    /// Calls a minute of all tools, of a caller.
    caller_rate_limit: Option<u32>,
    max_concurrent: u32,
    max_concurrent_per_tool: u32,
    /// Calls that run now, of all tenants.
    running: usize,
    /// Rate limits of which something is used, those with the smallest part left first; 500 at most.
    rates: Vec<LevelBody>,
    /// Of today (UTC), those with the most money first; 200 at most.
    budgets: Vec<BudgetBody>,
}

/// What is left of a rate limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct LevelBody {
    pub tenant: String,
    /// Absent for all calls of the tenant.
    pub caller: Option<String>,
    /// Absent for calls of all tools.
    pub tool: Option<String>,
    /// Calls a minute.
    pub limit: u32,
    pub remaining: u32,
    /// Seconds until it is full again.
    reset_seconds: u64,
}

/// What is left of the limits for whom.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeftBody {
    /// Of the rules of `limits.rules`; 500 at most.
    rules: Vec<RuleBody>,
    /// Other rate limits of which something is used, those with the smallest part left first; 500 at most.
    rates: Vec<LevelBody>,
}

/// What is left of a rule for one of those for whom it counts.
#[derive(Debug, Serialize, ToSchema)]
pub struct RuleBody {
    rule: String,
    pub per: RuleSubject,
    /// The key, caller, tenant, tool or role.
    pub subject: String,
    /// Of a key or caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateState>,
    /// Calls that run now at this replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent: Option<u32>,
    /// USD of today (UTC) as an exact decimal, what running calls hold excluded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cost_left: Option<Decimal>,
    /// USD, as an exact decimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cost_per_day: Option<Decimal>,
    /// `cost_left` as a number, which is rounded.
    #[serde(with = "rust_decimal::serde::float_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    cost_left_usd: Option<Decimal>,
    /// `cost_per_day` as a number, which is rounded.
    #[serde(with = "rust_decimal::serde::float_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    cost_per_day_usd: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_day: Option<u64>,
}

impl Listed for LevelBody {
    const NAME: &'static str = "rate-limits";
    const ROUTE: &'static str = "/limits";
    const NONE: &'static str =
        "no limit is partly used now: a limit is listed from its first call until it has recovered";
    const COLUMNS: &'static [Column] = &[
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("caller", Form::Name).titled("call-caller").headed("caller").absent("all callers"),
        Column::new("tool", Form::Name).titled("tool-name").headed("tool").absent("all tools"),
        Column::new("left", Form::Count).at("/remaining").out_of("/limit").titled("limits-left").headed("calls left"),
        Column::new("limit", Form::Count),
        Column::new("full_in_seconds", Form::Seconds).at("/reset_seconds").titled("limits-full-in").headed("full in"),
    ];
}

impl Listed for RuleBody {
    const NAME: &'static str = "limit-rules";
    const ROUTE: &'static str = "/limits";
    const NONE: &'static str = "no rules: `limits.rules` has none that counts for you";
    const COLUMNS: &'static [Column] = &[
        Column::new("rule", Form::Name).titled("policies-rule").headed("rule"),
        Column::new("per", Form::Text).titled("limits-per").headed("per"),
        Column::new("subject", Form::Name).headed("who"),
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("calls_left", Form::Count)
            .at("/rate/remaining")
            .out_of("/rate/limit")
            .titled("limits-calls-left")
            .headed("calls left"),
        Column::new("rate", Form::Count).at("/rate/limit"),
        Column::new("full_in_seconds", Form::Seconds).at("/rate/reset_seconds").titled("limits-full-in"),
        Column::new("running", Form::Count).out_of("/max_concurrent").titled("limits-concurrent").headed("running"),
        Column::new("max_concurrent", Form::Count),
        Column::new("cost_left_usd", Form::Money)
            .at("/cost_left")
            .out_of("/cost_per_day")
            .titled("limits-money-left")
            .headed("left today"),
        Column::new("cost_per_day_usd", Form::Money).at("/cost_per_day"),
        Column::new("tokens_left", Form::Count)
            .out_of("/tokens_per_day")
            .titled("limits-tokens-left")
            .headed("tokens left today"),
        Column::new("tokens_per_day", Form::Count),
    ];
}

/// What is left of rates and of the rules of `limits.rules`: of the caller's own; with a role of `console`, of the tenant; for
/// administrators of the tenant `default`, of all tenants.
#[utoipa::path(get, path = "/limits", operation_id = "getOwnLimits", tag = "operation",
    responses((status = 200, body = LeftBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn left(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Response {
    let rules = gateway.status().rule_levels(&meta.caller).into_iter().map(RuleBody::from).collect();
    let levels = gateway.status().levels(&meta.caller, &LevelFilter::default());
    reply::json(StatusCode::OK, &LeftBody { rules, rates: levels.into_iter().map(LevelBody::from).collect() })
}

/// The limits in force and what is left of them: of the caller's own; with a role of `console`, of the tenant; for
/// administrators of the tenant `default`, of all tenants.
#[utoipa::path(get, path = "/admin/limits", operation_id = "getLimits", tag = "operation", params(LevelQuery),
    responses((status = 200, body = LimitsBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<LevelQuery>,
) -> Response {
    let LevelQuery { tool, caller, tenant } = query;
    let levels = gateway.status().levels(&meta.caller, &LevelFilter { tool, caller, tenant });
    let limits = gateway.configuration().current().limits.clone();
    let body = LimitsBody {
        tenant_rate_limit: limits.tenant_rate_limit,
        caller_rate_limit: limits.caller_rate_limit,
        max_concurrent: limits.max_concurrent,
        max_concurrent_per_tool: limits.max_concurrent_per_tool,
        running: gateway.pipeline.limits.in_flight(),
        rates: levels.into_iter().map(LevelBody::from).collect(),
        budgets: gateway.status().budgets(&meta.caller).into_iter().map(BudgetBody::from).collect(),
    };
    reply::json(StatusCode::OK, &body)
}

impl From<RuleLevel> for RuleBody {
    fn from(level: RuleLevel) -> Self {
        let RuleLevel { rule, subject, tenant, rate, running, used } = level;
        let cost_left = rule.cost_per_day.map(|most| most.saturating_sub(used.cost_usd).max(Decimal::ZERO).normalize());
        Self {
            per: rule.per,
            subject,
            tenant,
            rate,
            running: rule.max_concurrent.map(|_| running),
            max_concurrent: rule.max_concurrent,
            cost_left,
            cost_per_day: rule.cost_per_day.map(|most| most.normalize()),
            cost_left_usd: cost_left,
            cost_per_day_usd: rule.cost_per_day,
            tokens_left: rule.tokens_per_day.map(|most| most.saturating_sub(used.tokens)),
            tokens_per_day: rule.tokens_per_day,
            rule: rule.name,
        }
    }
}

impl From<Level> for LevelBody {
    fn from(Level { tenant, caller, tool, state }: Level) -> Self {
        Self {
            tenant,
            caller,
            tool,
            limit: state.limit,
            remaining: state.remaining,
            reset_seconds: state.reset_seconds,
        }
    }
}
