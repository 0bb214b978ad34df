//! Answers ordinary tool calls in the task that reads them.
//!
//! rmcp passes a call from task to task, and each step may have to wake a sleeping thread. Everything else goes
//! through rmcp: unusual or invalid requests, and calls that send notifications, ask the client, or take longer. Such
//! a call continues as a stream, and is not started again.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use rmcp::model::{CallToolResult, ErrorCode, ErrorData, MetaObject, ProtocolVersion, RequestId, RequestMetaObject};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::McpServer;
use super::client::{Client, ClientEvents};
use super::client_context::McpClientContext;
use super::handler::work_of_tool;
use super::http::SESSION;
use super::running_request::{Outcome, Running};
use super::sessions::{CallerSessions, SessionState};
use crate::api::reply;
use crate::core::call::Arguments;

/// A call that takes longer continues as a stream, which a client can cancel and resume.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Headers of the protocol: the revision, and those that repeat parts of the body (SEP-2243).
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAMETER: &str = "mcp-param-";

/// Prefix of the protocol's keys in `_meta`.
const OF_THE_PROTOCOL: &str = "io.modelcontextprotocol/";

/// A tool call that needs no support by rmcp.
#[derive(Debug)]
pub(super) struct FastPathCall {
    id: RequestId,
    name: String,
    arguments: Arguments,
    meta: RequestMetaObject,
    /// Set for the revisions that have sessions.
    session: Option<Arc<SessionState>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    #[serde(flatten)]
    outcome: AnswerOutcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum AnswerOutcome {
    Result(CallToolResult),
    Error(ErrorData),
}

impl FastPathCall {
    /// `None` for everything that is not an ordinary tool call. `message` is a JSON-RPC message.
    pub(super) fn of(
        headers: &HeaderMap,
        mut message: Map<String, Value>,
        server: &McpServer,
        client_context: &McpClientContext,
        sessions: &CallerSessions,
    ) -> Option<Self> {
        if message.get("method").is_none_or(|method| method != "tools/call") {
            return None;
        }
        let id = serde_json::from_value(message.remove("id")?).ok()?;
        let Value::Object(mut params) = message.remove("params")? else { return None };
        let Some(Value::String(name)) = params.remove("name") else { return None };
        let arguments = match params.remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return None,
        };
        let meta = match params.remove("_meta") {
            None => Map::new(),
            Some(Value::Object(meta)) => meta,
            Some(_) => return None,
        };
        let is_ordinary = params.is_empty() && !client_context.search && accepts_both(headers) && sends_json(headers);
        let needs_no_check =
            !headers.contains_key(ORIGIN) && server.gateway.config().server.mcp.allowed_hosts.is_empty();
        if !is_ordinary || !needs_no_check {
            return None;
        }
        let session = match &client_context.session {
            Some(id) => Some(sessions.state(id).filter(|state| is_older(headers, &meta) && state.allows_fast_path())?),
            None => None,
        };
        let meta = RequestMetaObject(MetaObject(meta));
        let is_fit = session.is_some()
            || (is_newer(headers, &name, &meta) && server.needs_no_param_headers(&name, client_context));
        is_fit.then_some(Self { id, name, arguments, meta, session })
    }

    /// The response; `None` if rmcp must serve the request, and continues the call that was started.
    pub(super) async fn answer(self, server: &McpServer, client_context: &Arc<McpClientContext>) -> Option<Response> {
        let (client, client_events) = self.client();
        let Self { id, name, arguments, session, .. } = self;
        let is_older = session.is_some();
        let client = Arc::new(client);
        let call = client_context.call(name, Arc::clone(&client));
        let work = work_of_tool(server, client_context, call, arguments, client, is_older);
        let mut begun =
            Begun { id: &id, running: Some(Running { work, client_events }), session, draining: &server.draining };
        let outcome = tokio::time::timeout(AT_ONCE, begun.run_until_event()).await.ok().flatten();
        match (outcome, begun.running.take()) {
            (None, Some(running)) => {
                client_context.detach(running);
                None
            }
            (outcome, _) => Some(respond(&id, outcome?, is_older)),
        }
    }

    fn client(&self) -> (Client, ClientEvents) {
        let wants_progress = self.meta.get_progress_token().is_some();
        let (capabilities, level) = match &self.session {
            Some(session) => (session.capabilities(), Some(session.log_level())),
            None => {
                let level = self.meta.log_level().and_then(|level| serde_json::from_value(json!(level)).ok());
                (json!(self.meta.client_capabilities().unwrap_or_default()), level)
            }
        };
        let (client, client_events) = Client::new(capabilities, wants_progress, level, Default::default());
        match &self.session {
            Some(session) => (client.in_session(session), client_events),
            None => (client, client_events),
        }
    }
}

/// A call that was started. A client of the revisions with sessions cancels with a notification, not by
/// disconnecting.
struct Begun<'a> {
    id: &'a RequestId,
    running: Option<Running>,
    session: Option<Arc<SessionState>>,
    /// The service's shutdown cancels the call.
    draining: &'a CancellationToken,
}

impl Begun<'_> {
    /// Like [`Running::run_until_event`], until the client cancels the call.
    async fn run_until_event(&mut self) -> Option<Result<Outcome, ErrorData>> {
        let running = self.running.as_mut()?;
        let Some(session) = &self.session else { return running.run_until_event().await };
        tokio::select! {
            outcome = running.run_until_event() => outcome,
            // rmcp ends cancelled requests.
            () = session.cancelled.until(self.id) => None,
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.draining.is_cancelled()
            && let (Some(session), Some(running)) = (self.session.take(), self.running.take())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let id = self.id.clone();
            runtime.spawn(async move {
                tokio::select! {
                    _ = running.work => {}
                    () = session.cancelled.until(&id) => {}
                }
            });
        }
    }
}

fn respond(id: &RequestId, outcome: Result<Outcome, ErrorData>, is_older: bool) -> Response {
    let outcome = match outcome.and_then(Outcome::of_tool_alone) {
        Ok(mut result) => {
            if is_older {
                result.result_type = None;
            }
            AnswerOutcome::Result(result)
        }
        Err(error) => AnswerOutcome::Error(error),
    };
    let status = match &outcome {
        // Required by the revision 2026-07-28 (streamable HTTP); the older ones define no status for a call's errors.
        AnswerOutcome::Error(error) if !is_older && error.code == ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    };
    reply::json(status, &Answer { jsonrpc: "2.0", id, outcome })
}

fn is_older(headers: &HeaderMap, meta: &Map<String, Value>) -> bool {
    let revision = only(headers, &REVISION).unwrap_or_default();
    let mut known = ProtocolVersion::KNOWN_VERSIONS.iter().filter(|known| known.has_initialize());
    known.any(|known| known.as_str() == revision) && !meta.keys().any(|key| key.starts_with(OF_THE_PROTOCOL))
}

/// Whether headers and body agree, and all required headers are present.
fn is_newer(headers: &HeaderMap, name: &str, meta: &RequestMetaObject) -> bool {
    let revision = &ProtocolVersion::V_2026_07_28;
    only(headers, &REVISION) == Some(revision.as_str())
        && meta.protocol_version().as_ref() == Some(revision)
        && meta.missing_required_keys(revision).is_empty()
        && only(headers, &METHOD) == Some("tools/call")
        && only(headers, &NAME) == Some(name)
        && !headers.contains_key(&SESSION)
        && !headers.keys().any(|header| header.as_str().starts_with(PARAMETER))
}

/// The header's value, if the header occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether the client accepts JSON and event streams, without a preference.
fn accepts_both(headers: &HeaderMap) -> bool {
    let Some(accepted) = only(headers, &ACCEPT) else { return false };
    let accepts = |kind: &str| accepted.split(',').any(|accepted| accepted.trim().eq_ignore_ascii_case(kind));
    accepts("application/json") && accepts("text/event-stream")
}

fn sends_json(headers: &HeaderMap) -> bool {
    only(headers, &CONTENT_TYPE).is_some_and(|sent| sent.eq_ignore_ascii_case("application/json"))
}
