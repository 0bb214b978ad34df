//! `/results`: lists and reads results that were too large for a model, and so were stored.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery, invalid_after};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::{Incoming, RequestMeta, SessionContext};
use crate::reply::{ErrorReply, answered_reply};
use sekisho_core::call::{Arguments, READ_RESULT};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;
use sekisho_store::ListedResult;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadParameters {
    /// Elements or lines to skip.
    offset: Option<u64>,
    /// Most elements or lines; default 100, at most 10000. Fewer are returned where they are long.
    limit: Option<u64>,
    /// JMESPath, for JSON.
    query: Option<String>,
    /// A regular expression: only lines of a text, or elements of a list, that match.
    grep: Option<String>,
    /// The session of the call whose result it is, if it had one.
    session_id: Option<String>,
}

/// A stored result, without its content.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = StoredResult)]
pub struct ResultBody {
    /// `result_handle` of its preview.
    pub handle: String,
    /// The tool whose result it is.
    pub tool: String,
    pub content_type: String,
    pub bytes: u64,
    /// Whether its call was of a session, whose id is then needed to read it.
    pub in_session: bool,
    pub created_at: String,
    pub expires_at: String,
}

impl Listed for ResultBody {
    const NAME: &'static str = "results";
    const ROUTE: &'static str = "/results";
    const NONE: &'static str = "no results: one that is too large for a model is stored, and listed here";
    const COLUMNS: &'static [Column] = &[
        Column::new("handle", Form::Name).titled("result-handle").headed("handle"),
        Column::new("tool", Form::Name).titled("tool-name").headed("tool"),
        Column::new("content_type", Form::Text),
        Column::new("bytes", Form::Count).titled("result-bytes").headed("bytes"),
        Column::new("in_session", Form::Text).headed("of a session"),
        Column::new("created_at", Form::Moment).titled("column-created").headed("created"),
        Column::new("expires_at", Form::Moment).titled("approval-expires").headed("expires"),
    ];
}

/// Lists the stored results that the caller may read, those of all its sessions, the latest first.
#[utoipa::path(get, path = "/results", operation_id = "listResults", tag = "tools", params(PageQuery),
    responses((status = 200, body = Page<ResultBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let limit = query.limit()?;
    let after = query.after::<LatestFirst>()?;
    if after.as_ref().is_some_and(|last| !last.key.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return Err(invalid_after().into());
    }
    let before = after.as_ref().map(|last| (last.created.0, &*last.key));
    // One result more than the page shows says whether there is a next page.
    let found = gateway.pipeline.results.list(&meta.caller, before, limit + 1).await?;
    let page = Page::from_read(found, limit, |last| LatestFirst::new(last.created, &*last.handle).to_string());
    Ok(reply::json(StatusCode::OK, &page.map(ResultBody::from)))
}

/// Reads a part of a stored result: elements of a list, lines of a text, or what a query selects. It is a call of `read_result`,
/// with the same limits and audit. A result is there for the caller and session alone whose call it was, while the caller may use
/// its tool.
#[utoipa::path(get, path = "/results/{handle}", operation_id = "readResult", tag = "tools",
    params(("handle" = String, Path, description = "`result_handle` of a preview."), ReadParameters),
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn read(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(handle): Name,
    Parameters(parameters): Parameters<ReadParameters>,
) -> Result<Response, ErrorReply> {
    let Incoming { call, arguments } = parameters.into_call(handle, &meta, &gateway)?;
    Ok(answered_reply(&gateway.pipeline.call(call, arguments).await))
}

impl From<ListedResult> for ResultBody {
    fn from(result: ListedResult) -> Self {
        let ListedResult { handle, tool, in_session, content_type, bytes, created, expires } = result;
        let (created_at, expires_at) = (created.to_string(), expires.to_string());
        Self { handle, tool, content_type, bytes, in_session, created_at, expires_at }
    }
}

impl ReadParameters {
    fn into_call(self, handle: String, meta: &RequestMeta, gateway: &Gateway) -> Result<Incoming, CallError> {
        let Self { offset, limit, query, grep, session_id } = self;
        let given: [(&str, Option<Value>); 5] = [
            ("handle", Some(handle.into())),
            ("offset", offset.map(Into::into)),
            ("limit", limit.map(Into::into)),
            ("query", query.map(Into::into)),
            ("grep", grep.map(Into::into)),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let arguments = given.collect::<Arguments>();
        let context = session_id.map(SessionContext::of_session).unwrap_or_default();
        meta.call(READ_RESULT.to_owned(), arguments, context, false, gateway)
    }
}
