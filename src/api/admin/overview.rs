//! `/admin/overview`: the state of the gateway and its problems, as far as the caller may see them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::Decimal;
use serde::Serialize;
use utoipa::ToSchema;

use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::record::Status;
use sekisho_gateway::{Gateway, Overview};
use sekisho_observe::metrics::DayBudget;
use sekisho_sandbox::SandboxLoad;
use sekisho_store::{CallSums, TimeRange, Times};

/// Maximum tools in the reply: the tools with the most calls.
const MAX_TOOLS: usize = 200;

/// The state of the gateway, and the figures of its last hour.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OverviewBody {
    /// Of the last hour.
    totals: TotalsBody,
    /// Error code → calls of the last hour.
    codes: BTreeMap<&'static str, u64>,
    /// Calls in each of the last 60 seconds, the oldest first.
    calls_per_second: Vec<u64>,
    /// Each of the last 60 minutes, the oldest first.
    minutes: Vec<TotalsBody>,
    /// Those with the most calls in the last hour.
    tools: Vec<ToolBody>,
    /// Of today (UTC): the tenants and callers with the most money.
    budgets: Vec<BudgetBody>,
    /// Calls that run now, of all tenants.
    running: usize,
    sandbox: SandboxLoad,
    /// Component → reason.
    degraded: BTreeMap<String, String>,
    /// Setting → advice for the operator.
    notes: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct TotalsBody {
    #[serde(flatten)]
    outcomes: OutcomesBody,
    #[serde(flatten)]
    times: TimesBody,
    /// USD, as an exact decimal.
    #[schema(value_type = String)]
    cost: Decimal,
    /// The same as a number, which is rounded; from 0.3 on as `cost`.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    cost_usd: Decimal,
    tokens: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolBody {
    tool: String,
    #[serde(flatten)]
    outcomes: OutcomesBody,
    #[serde(flatten)]
    times: TimesBody,
}

#[derive(Debug, Serialize, ToSchema)]
struct OutcomesBody {
    calls: u64,
    errors: u64,
    refused: u64,
    cancelled: u64,
}

/// Of calls that were executed, in microseconds; absent without any.
#[derive(Debug, Serialize, ToSchema)]
struct TimesBody {
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    p99_us: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetBody {
    pub tenant: String,
    /// Absent for the tenant's own.
    pub caller: Option<String>,
    /// USD, as an exact decimal.
    #[schema(value_type = String)]
    spent: Decimal,
    /// Reserved by calls that run: USD, as an exact decimal.
    #[schema(value_type = String)]
    held: Decimal,
    /// USD, as an exact decimal.
    #[schema(value_type = Option<String>)]
    limit: Option<Decimal>,
    /// `spent` as a number, which is rounded.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    spent_usd: Decimal,
    /// `held` as a number, which is rounded.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    held_usd: Decimal,
    /// `limit` as a number, which is rounded.
    #[serde(with = "rust_decimal::serde::float_option")]
    #[schema(value_type = Option<f64>)]
    limit_usd: Option<Decimal>,
    /// Spent and reserved.
    tokens: u64,
    token_limit: Option<u64>,
}

impl Listed for BudgetBody {
    const NAME: &'static str = "budgets";
    const ROUTE: &'static str = "/admin/limits";
    const COLUMNS: &'static [Column] = &[
        Column::new("tenant", Form::Name),
        Column::new("caller", Form::Name).titled("call-caller"),
        Column::new("spent_usd", Form::Money).at("/spent").titled("figure-spent"),
        Column::new("held_usd", Form::Money).at("/held").titled("limits-held"),
        Column::new("limit_usd", Form::Money).at("/limit").titled("limits-limit"),
        Column::new("tokens", Form::Count).titled("call-tokens"),
        Column::new("token_limit", Form::Count).titled("limits-limit"),
    ];
}

/// What the gateway does and what is wrong with it: of the caller's own calls of the last hour; with a role of
/// `console`, of the tenant's last hour; for administrators of the tenant `default`, of all tenants'.
#[utoipa::path(get, path = "/admin/overview", operation_id = "getOverview", tag = "operation",
    responses((status = 200, body = OverviewBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    let overview = gateway.status().overview(&meta.caller, TimeRange::MINUTES).await?;
    let calls_per_second = gateway.history().calls_per_second(&meta.caller).await?;
    Ok(reply::json(StatusCode::OK, &OverviewBody::of(overview, calls_per_second)))
}

impl OverviewBody {
    fn of(overview: Overview, calls_per_second: Vec<u64>) -> Self {
        let Overview { figures, tools, budgets, running, sandbox, degraded, notes } = overview;
        let totals = figures.total();
        let codes = totals.codes().into_iter().map(|(code, count)| (code.as_str(), count)).collect();
        let body = |(tool, sums): (String, CallSums)| ToolBody {
            tool,
            outcomes: OutcomesBody::of(&sums),
            times: TimesBody::of(&sums.times),
        };
        let mut tools: Vec<_> = tools.into_iter().map(body).collect();
        tools.sort_by_key(|tool| Reverse(tool.outcomes.calls));
        tools.truncate(MAX_TOOLS);
        Self {
            totals: TotalsBody::of(&totals),
            codes,
            calls_per_second,
            minutes: figures.parts.iter().map(|(_, sums)| TotalsBody::of(sums)).collect(),
            tools,
            budgets: budgets.into_iter().map(BudgetBody::from).collect(),
            running,
            sandbox,
            degraded,
            notes,
        }
    }
}

impl TotalsBody {
    fn of(sums: &CallSums) -> Self {
        Self {
            outcomes: OutcomesBody::of(sums),
            times: TimesBody::of(&sums.times),
            cost: sums.cost_usd.normalize(),
            cost_usd: sums.cost_usd,
            tokens: sums.tokens,
        }
    }
}

impl OutcomesBody {
    fn of(sums: &CallSums) -> Self {
        Self {
            calls: sums.calls(),
            errors: sums.of(Status::Error),
            refused: sums.of(Status::Refused),
            cancelled: sums.of(Status::Cancelled),
        }
    }
}

impl TimesBody {
    fn of(times: &Times) -> Self {
        let micros = |took: Duration| took.as_nanos() as f64 / 1_000.0;
        let quantile = |share| times.quantile(share).map(micros);
        Self { p50_us: quantile(0.5), p95_us: quantile(0.95), p99_us: quantile(0.99) }
    }
}

impl From<DayBudget> for BudgetBody {
    fn from(budget: DayBudget) -> Self {
        let DayBudget { tenant, caller, spent, held, limit, tokens, token_limit } = budget;
        Self {
            tenant,
            caller,
            spent: spent.normalize(),
            held: held.normalize(),
            limit: limit.map(|limit| limit.normalize()),
            spent_usd: spent,
            held_usd: held,
            limit_usd: limit,
            tokens,
            token_limit,
        }
    }
}
