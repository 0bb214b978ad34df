//! `/results`: reads results that were too large for a model, and so were stored.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::documentation::ReplyBody;
use super::parameters::{Name, Parameters};
use super::request::{Incoming, RequestMeta, SessionContext};
use crate::core::call::{Arguments, READ_RESULT};
use crate::core::error::CallError;
use crate::gateway::Gateway;

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

/// Reads a part of a stored result: elements of a list, lines of a text, or what a query selects. It is a call of `read_result`,
/// with the same limits and audit. A result is there for the caller and session alone whose call it was.
#[utoipa::path(get, path = "/results/{handle}", operation_id = "readResult", tag = "tools",
    params(("handle" = String, Path, description = "`result_handle` of a preview."), ReadParameters),
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn read(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(handle): Name,
    Parameters(parameters): Parameters<ReadParameters>,
) -> Result<Response, CallError> {
    let Incoming { call, arguments } = parameters.into_call(handle, &origin, &gateway)?;
    Ok(gateway.pipeline.call(call, arguments).await.into_response())
}

impl ReadParameters {
    fn into_call(self, handle: String, origin: &RequestMeta, gateway: &Gateway) -> Result<Incoming, CallError> {
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
        origin.call(READ_RESULT.to_owned(), arguments, context, false, gateway)
    }
}
