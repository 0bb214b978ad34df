//! `/admin/failures`: failures and refusals by a field, since when, and the first call of each.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::call_query::CallQuery;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::parameters::Parameters;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::{FailureGroup, Failures, FailuresBy};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ByQuery {
    /// `tool`, `server`, `caller`, `tenant` or `upstream`.
    by: Option<String>,
}

/// Failures and refusals, the most frequent first, at most 200.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureList {
    pub items: Vec<FailureBody>,
    /// Where the search ended, as RFC 3339: the wanted calls before it were not looked at. Null where all were.
    pub searched_since: Option<String>,
}

/// Calls that failed or were refused alike.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailureBody {
    /// `tool`, `server`, `caller`, `tenant` or `upstream`.
    pub by: String,
    /// The tool, server, caller, tenant or upstream.
    pub value: String,
    pub code: Option<String>,
    pub failed: u64,
    /// All calls of the tool, server, caller, tenant or upstream.
    pub calls: u64,
    /// RFC 3339, UTC: the first of them after the last success; where calls succeed since then, the first of all.
    pub since: String,
    /// The id of that call.
    pub first_call_id: String,
    pub last: String,
    pub last_call_id: String,
    pub last_success: Option<String>,
    /// No call has succeeded since `since`.
    pub is_constant: bool,
}

impl Listed for FailureBody {
    const NAME: &'static str = "failures";
    const ROUTE: &'static str = "/admin/failures";
    const COLUMNS: &'static [Column] = &[
        Column::new("value", Form::Name).titled("failure-value"),
        Column::new("code", Form::Name).titled("call-code"),
        Column::new("failed", Form::Count).out_of("/calls").titled("failure-failed"),
        Column::new("calls", Form::Count),
        Column::new("since", Form::Moment).titled("failure-since"),
        Column::new("first_call_id", Form::Name).titled("failure-first-call"),
        Column::new("last", Form::Moment).titled("failure-last"),
        Column::new("last_call_id", Form::Name),
        Column::new("last_success", Form::Moment).titled("failure-last-success"),
        Column::new("is_constant", Form::Text),
    ];
}

/// Counts failures and refusals of the calls that `GET /admin/calls` lists with the same filters, without dry runs: by tool, server,
/// caller, tenant or upstream, and by code; of the latest fifty thousand or so.
#[utoipa::path(get, path = "/admin/failures", operation_id = "listFailures", tag = "operation", params(ByQuery, CallQuery),
    responses((status = 200, body = FailureList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(ByQuery { by }): Parameters<ByQuery>,
    Parameters(query): Parameters<CallQuery>,
) -> Result<Response, ErrorReply> {
    let by = match by.as_deref().filter(|by| !by.is_empty()) {
        None => FailuresBy::default(),
        Some(by) => by.parse::<FailuresBy>().map_err(|_| {
            let known: Vec<_> = FailuresBy::ALL.iter().map(|by| by.as_str()).collect();
            CallError::new(ErrorCode::InvalidRequest, format!("`by` is {by:?}; write one of {}", known.join(", ")))
        })?,
    };
    let found = gateway.history().failures(&meta.caller, query.filter()?, by).await?;
    Ok(reply::json(StatusCode::OK, &FailureList::of(found, by)))
}

impl FailureList {
    fn of(Failures { groups, searched_since }: Failures, by: FailuresBy) -> Self {
        let items = groups.into_iter().map(|group| FailureBody::of(group, by)).collect();
        Self { items, searched_since: searched_since.map(|since| since.to_string()) }
    }
}

impl FailureBody {
    fn of(group: FailureGroup, by: FailuresBy) -> Self {
        let FailureGroup { value, code, failed, calls, since, first_call, last, last_call, last_success, is_constant } =
            group;
        Self {
            by: by.as_str().to_owned(),
            value,
            code,
            failed,
            calls,
            since: since.to_string(),
            first_call_id: first_call,
            last: last.to_string(),
            last_call_id: last_call,
            last_success: last_success.as_ref().map(Timestamp::to_string),
            is_constant,
        }
    }
}
