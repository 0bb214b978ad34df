//! `/admin/limits`: the limits in force, and what is left of them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::overview::BudgetBody;
use crate::api::documentation::ReplyBody;
use crate::api::parameters::Parameters;
use crate::api::reply;
use crate::api::request::RequestMeta;
use crate::gateway::{Gateway, Level, LevelFilter};

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
pub(super) struct LevelBody {
    tenant: String,
    /// Absent for all calls of the tenant.
    caller: Option<String>,
    /// Absent for calls of all tools.
    tool: Option<String>,
    /// Calls a minute.
    limit: u32,
    remaining: u32,
    /// Seconds until it is full again.
    reset_seconds: u64,
}

/// The limits in force and what is left of them: of the caller's own; with a role of `console`, of the tenant; for
/// administrators of the tenant `default`, of all tenants.
#[utoipa::path(get, path = "/admin/limits", operation_id = "getLimits", tag = "operation", params(LevelQuery),
    responses((status = 200, body = LimitsBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<LevelQuery>,
) -> Response {
    let LevelQuery { tool, caller, tenant } = query;
    let levels = gateway.levels(&origin.caller, &LevelFilter { tool, caller, tenant });
    let limits = gateway.config().limits.clone();
    let body = LimitsBody {
        tenant_rate_limit: limits.tenant_rate_limit,
        caller_rate_limit: limits.caller_rate_limit,
        max_concurrent: limits.max_concurrent,
        max_concurrent_per_tool: limits.max_concurrent_per_tool,
        running: gateway.pipeline.limits.in_flight(),
        rates: levels.into_iter().map(LevelBody::from).collect(),
        budgets: gateway.budgets(&origin.caller).into_iter().map(BudgetBody::from).collect(),
    };
    reply::json(StatusCode::OK, &body)
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
