//! Tool calls that are plainly in order, answered by the task that reads them.
//!
//! By way of rmcp a call is handed from task to task, and each time a sleeping thread may have to be woken. So rmcp
//! gets what needs it: a request that is unusual, or wrong in a way it can name, and a call that has something to tell
//! or to ask before it is done, or takes its time. Such a call goes on as a stream, and is not begun again.

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

/// A call that takes longer goes on as a stream, which a client can take back and pick up again.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Headers of the protocol: the revision, and what the body must say too (SEP-2243).
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAMETER: &str = "mcp-param-";

/// What the keys of the protocol in `_meta` begin with.
const OF_THE_PROTOCOL: &str = "io.modelcontextprotocol/";

/// A request that needs nobody else to understand it.
#[derive(Debug)]
pub(super) struct FastPathCall {
    id: RequestId,
    name: String,
    arguments: Arguments,
    meta: RequestMetaObject,
    /// Of the revisions that have sessions.
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
    /// `None` for everything that is not plainly in order, or is no tool call. `message` is one of JSON-RPC.
    pub(super) fn of(
        headers: &HeaderMap,
        mut message: Map<String, Value>,
        face: &McpServer,
        visitor: &McpClientContext,
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
        let is_ordinary = params.is_empty() && !visitor.search && accepts_both(headers) && sends_json(headers);
        let needs_no_check = !headers.contains_key(ORIGIN) && face.gateway.config().server.mcp.allowed_hosts.is_empty();
        if !is_ordinary || !needs_no_check {
            return None;
        }
        let session = match &visitor.session {
            Some(id) => Some(sessions.state(id).filter(|state| is_older(headers, &meta) && state.allows_fast_path())?),
            None => None,
        };
        let meta = RequestMetaObject(MetaObject(meta));
        let is_fit =
            session.is_some() || (is_newer(headers, &name, &meta) && face.needs_no_param_headers(&name, visitor));
        is_fit.then_some(Self { id, name, arguments, meta, session })
    }

    /// The answer; `None` where rmcp has to serve the request, and goes on with what the visitor has under way.
    pub(super) async fn answer(self, face: &McpServer, visitor: &Arc<McpClientContext>) -> Option<Response> {
        let (client, hearing) = self.client();
        let Self { id, name, arguments, session, .. } = self;
        let is_older = session.is_some();
        let client = Arc::new(client);
        let call = visitor.call(name, Arc::clone(&client));
        let work = work_of_tool(face, visitor, call, arguments, client, is_older);
        let mut begun = Begun { id: &id, running: Some(Running { work, hearing }), session, draining: &face.draining };
        let outcome = tokio::time::timeout(AT_ONCE, begun.run_until_event()).await.ok().flatten();
        match (outcome, begun.running.take()) {
            (None, Some(running)) => {
                visitor.detach(running);
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
        let (client, hearing) = Client::new(capabilities, wants_progress, level, Default::default());
        match &self.session {
            Some(session) => (client.in_session(session), hearing),
            None => (client, hearing),
        }
    }
}

/// What has begun. A client of the revisions with sessions does not take back its call by going away, but by saying so.
struct Begun<'a> {
    id: &'a RequestId,
    running: Option<Running>,
    session: Option<Arc<SessionState>>,
    /// At the end of the service nothing goes on.
    draining: &'a CancellationToken,
}

impl Begun<'_> {
    /// As [`Running::run_until_event`], until the client takes the call back.
    async fn run_until_event(&mut self) -> Option<Result<Outcome, ErrorData>> {
        let running = self.running.as_mut()?;
        let Some(session) = &self.session else { return running.run_until_event().await };
        tokio::select! {
            outcome = running.run_until_event() => outcome,
            // rmcp knows how a request ends that nobody waits for.
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
        // As the revision says (2026-07-28, streamable HTTP); the older ones know no status of a call's errors.
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

/// Whether headers and body say the same, and all that they must.
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

/// The header's value where it stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether the client takes JSON and event streams, and weighs neither.
fn accepts_both(headers: &HeaderMap) -> bool {
    let Some(accepted) = only(headers, &ACCEPT) else { return false };
    let accepts = |kind: &str| accepted.split(',').any(|accepted| accepted.trim().eq_ignore_ascii_case(kind));
    accepts("application/json") && accepts("text/event-stream")
}

fn sends_json(headers: &HeaderMap) -> bool {
    only(headers, &CONTENT_TYPE).is_some_and(|sent| sent.eq_ignore_ascii_case("application/json"))
}
