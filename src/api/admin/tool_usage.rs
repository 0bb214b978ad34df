//! `/admin/usage/tools`: which caller used which tool on which day, and at which cost.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::usage::{UsageQuery, first_day};
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::Parameters;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::caller::Caller;
use sekisho_core::record::Status;
use sekisho_gateway::Gateway;
use sekisho_store::ToolUse;

/// What one caller used of one tool on one day.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ToolUseOfDay {
    /// UTC.
    #[schema(value_type = String, format = Date)]
    pub day: String,
    pub tenant: String,
    /// The id of the caller or its key.
    pub caller: String,
    pub tool: String,
    pub calls: u64,
    pub errors: u64,
    pub refused: u64,
    /// USD, exact.
    #[schema(value_type = String)]
    pub cost_usd: Decimal,
    /// Of the text of the tool.
    pub tokens: u64,
}

impl Listed for ToolUseOfDay {
    const NAME: &'static str = "tool-usage";
    const ROUTE: &'static str = "/admin/usage/tools";
    const COLUMNS: &'static [Column] = &[
        Column::new("day", Form::Text).headed("DAY"),
        Column::new("tenant", Form::Name).headed("TENANT"),
        Column::new("caller", Form::Name).headed("CALLER"),
        Column::new("tool", Form::Name).headed("TOOL"),
        Column::new("calls", Form::Count).headed("CALLS"),
        Column::new("errors", Form::Count).headed("ERRORS"),
        Column::new("refused", Form::Count).headed("REFUSED"),
        Column::new("cost_usd", Form::Money).headed("COST"),
        Column::new("tokens", Form::Count).headed("TOKENS"),
    ];
    const NONE: &'static str = "no calls of tools on these days";
}

/// What each caller used of each tool on each day, the latest day first: of the caller's own calls; with a role of `console`, of the
/// tenant's; for administrators of the tenant `default`, of all tenants'.
#[utoipa::path(get, path = "/admin/usage/tools", operation_id = "listToolUsage", tag = "operation", params(UsageQuery, PageQuery),
    responses((status = 200, body = Page<ToolUseOfDay>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(days): Parameters<UsageQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (since, limit, after) = (first_day(&days)?.midnight, query.limit()?, query.after()?);
    let found = gateway.history().tool_uses(&meta.caller, since, after.as_ref(), limit + 1).await?;
    let page = Page::from_read(found, limit, |used| used.place().to_string());
    Ok(reply::json(StatusCode::OK, &page.map(ToolUseOfDay::from)))
}

impl From<ToolUse> for ToolUseOfDay {
    fn from(ToolUse { day, owner, tool, sums }: ToolUse) -> Self {
        let (tenant, caller) = Caller::parts_of_key(&owner);
        Self {
            day: day.to_string(),
            tenant: tenant.to_owned(),
            caller: caller.to_owned(),
            tool,
            calls: sums.calls(),
            errors: sums.of(Status::Error),
            refused: sums.of(Status::Refused),
            cost_usd: sums.cost_usd.normalize(),
            tokens: sums.tokens,
        }
    }
}
