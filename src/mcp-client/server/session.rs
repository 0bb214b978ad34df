//! One connection to one server, and its requests.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{RequestMetaObject, ServerPeerInfo};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::page_elicitation;
use super::session_owner::OwnerKey;
use super::task::UpstreamTask;
use crate::transport::authorized_http::AuthorizedHttp;
use crate::transport::connection::Connection;
use crate::transport::handshake::{answerable, with_tasks};
use crate::transport::message::Failure;
use crate::transport::request::{LISTEN, Outgoing};
use crate::transport::request_headers::MarkedArguments;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::peer::{ClientPeer, LogLevel, Question, Questions};
use sekisho_observe::telemetry::{self, TRACE_PARENT, TRACE_STATE};

/// Maximum rounds of input that one call may require (the protocol has no limit).
const MAX_ROUNDS: usize = 10;

/// Where a request says which log messages it wants (2026-07-28).
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// An established connection. Closed when dropped.
pub(crate) struct Session {
    pub(crate) connection: Arc<Connection>,
    pub(crate) info: Arc<ServerPeerInfo>,
    /// Cancelled when the connection is closed and its process has exited.
    pub(crate) ended: CancellationToken,
    /// With which credentials its requests are sent; `None` for a program.
    pub(crate) access: Option<Arc<AuthorizedHttp>>,
    /// Its owner; `None` for the gateway's own.
    pub(crate) owner: Option<OwnerKey>,
    /// The log level that the server knows, in revisions in which a session has one.
    pub(crate) level: Mutex<LogLevel>,
    /// The names here of the tools that only it has, as listed after the server said that its tools are others.
    pub(crate) own_tools: Mutex<HashSet<String>>,
    /// A call had no answer in time.
    pub(crate) suspect: Arc<Notify>,
    /// Closes the connection, even if it is in use.
    pub(crate) close: CancellationToken,
    pub(crate) _close: DropGuard,
}

/// See [`Session::watch_liveness`].
pub(crate) struct LivenessGuard<'a>(Option<&'a Notify>);

impl LivenessGuard<'_> {
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for LivenessGuard<'_> {
    fn drop(&mut self) {
        if let Some(suspect) = self.0 {
            suspect.notify_one();
        }
    }
}

sekisho_core::debug_fields!(Session { info });

impl Session {
    /// A guard for the wait for an answer; dropped without one, the server is suspect.
    pub(crate) fn watch_liveness(&self) -> LivenessGuard<'_> {
        LivenessGuard(Some(&self.suspect))
    }

    /// Whether the server speaks a revision without sessions (2026-07-28).
    pub(crate) fn is_modern(&self) -> bool {
        !self.info.protocol_version.has_initialize()
    }

    /// Whether a tool may be offered.
    /// Errors: its schema requires headers that cannot be sent.
    pub(crate) fn can_call(&self, tool: &Value) -> Result<(), String> {
        let sends_headers = self.is_modern() && self.connection.is_streamable_http();
        let schema = tool.get("inputSchema").filter(|_| sends_headers);
        schema.map_or(Ok(()), |schema| MarkedArguments::of(schema).map(drop))
    }

    /// Sends the server a request of the gateway itself.
    pub(crate) async fn ask(&self, method: &str, params: Map<String, Value>) -> Result<Value, Failure> {
        self.connection.request(Outgoing::of(method, &params)).await
    }

    /// Sends the server a request on behalf of a call. If the server requires input first, requests it from the call's
    /// client.
    pub(crate) async fn ask_for(
        &self,
        call: &CallContext,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Failure> {
        self.ask_in_rounds(call, method, params, None).await
    }

    /// Calls a tool, as [`Session::ask_for`]. Headers repeat the `marked` arguments. A server of a revision with sessions
    /// is asked to run the call as a `task`, if that is given. If the server runs it as one, waits for its result.
    pub(crate) async fn call_tool(
        &self,
        call: &CallContext,
        (name, marked): (&str, &MarkedArguments),
        task: Option<Value>,
        arguments: &Arguments,
    ) -> Result<Value, Failure> {
        let mut params = Map::new();
        params.insert("name".to_owned(), Value::String(name.to_owned()));
        params.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        params.extend(task.filter(|_| !self.is_modern()).map(|task| ("task".to_owned(), task)));
        let result = self.ask_in_rounds(call, "tools/call", params, Some(marked)).await?;
        match UpstreamTask::of(&result, self, call) {
            // Boxed, because it is rare.
            Some(task) => {
                call.client.peer.iter().for_each(|peer| peer.task_created());
                Box::pin(task.finish()).await
            }
            None => Ok(result),
        }
    }

    async fn ask_in_rounds(
        &self,
        call: &CallContext,
        method: &str,
        mut params: Map<String, Value>,
        marked: Option<&MarkedArguments>,
    ) -> Result<Value, Failure> {
        if let Some(level) = self.changed_level(call) {
            let params = Map::from_iter([("level".to_owned(), json!(level))]);
            if let Err(error) = self.ask("logging/setLevel", params).await {
                tracing::debug!(?error, "an MCP server does not accept a log level");
            }
        }
        let mut opened = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            let answer = self.ask_once(call, method, &params, marked).await;
            if let Err(Failure::Refused(refusal)) = &answer
                // Boxed, because it is rare.
                && Box::pin(page_elicitation::are_opened(call, refusal, &mut opened)).await
            {
                continue;
            }
            let result = answer?;
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            let (answers, state) = answer_questions(result, call.client.peer.as_ref()).await.map_err(Failure::Call)?;
            params.insert("inputResponses".to_owned(), answers);
            params.extend(state.map(|state| ("requestState".to_owned(), state)));
        }
        let problem = format!("the MCP server requested more than {MAX_ROUNDS} rounds of input");
        Err(Failure::Call(CallError::new(ErrorCode::UpstreamError, problem)))
    }

    /// Sends one request on behalf of a call.
    pub(super) async fn ask_once(
        &self,
        call: &CallContext,
        method: &str,
        params: &Map<String, Value>,
        marked: Option<&MarkedArguments>,
    ) -> Result<Value, Failure> {
        let (meta, on_behalf) = (self.meta(call), Some(call.on_behalf()));
        let request = Outgoing { method, params, meta, marked, peer: call.client.peer.as_ref(), on_behalf };
        self.connection.request(request).await
    }

    /// The level that the call's client has set since the server was last told one. In a session that several clients
    /// share, each client gets the messages of its own level.
    fn changed_level(&self, call: &CallContext) -> Option<LogLevel> {
        let has_levels = !self.is_modern() && self.info.capabilities.logging.is_some();
        let is_own =
            has_levels && call.client.session.is_some() && self.owner.as_ref().is_some_and(OwnerKey::is_of_client);
        let wanted = call.client.peer.as_ref().filter(|_| is_own)?.log_level()?;
        (std::mem::replace(&mut *self.level.lock(), wanted) != wanted).then_some(wanted)
    }

    /// The metadata of the request: the metadata of the call's client, the call's place in its trace (SEP-414), and the
    /// client's capabilities in revisions that have a place for them. The gateway polls tasks, whatever the client
    /// supports.
    pub(super) fn meta(&self, call: &CallContext) -> Map<String, Value> {
        let mut meta = RequestMetaObject::new();
        meta.0.0.clone_from(&call.client.meta);
        if let Some(trace) = telemetry::outgoing(call) {
            meta.insert(TRACE_PARENT.to_string(), trace.header().into());
            meta.0.0.extend(trace.state.map(|state| (TRACE_STATE.to_string(), state.into())));
        }
        let Some(peer) = call.client.peer.as_ref().filter(|_| self.is_modern()) else { return meta.0.0 };
        meta.set_client_capabilities(with_tasks(answerable(peer.capabilities())));
        if let Some(level) = peer.log_level() {
            meta.insert(LOG_LEVEL.to_owned(), json!(level));
        }
        meta.0.0
    }
}

/// Waits while the server sends the notifications that match the `filter` (2026-07-28).
/// Errors: [`Failure`], if the server has not ended them itself.
pub(crate) async fn listen(connection: &Arc<Connection>, filter: Value) -> Result<(), Failure> {
    let params = Map::from_iter([("notifications".to_owned(), filter)]);
    connection.request(Outgoing::of(LISTEN, &params)).await.map(drop)
}

/// Requests the server's required input from the call's client.
pub(super) async fn answer_questions(
    mut result: Value,
    peer: Option<&Arc<dyn ClientPeer>>,
) -> Result<(Value, Option<Value>), CallError> {
    let questions = result.get_mut("inputRequests").map_or(Value::Object(Map::new()), Value::take);
    let state = result.get_mut("requestState").map(Value::take).filter(|state| !state.is_null());
    let questions: Questions = serde_json::from_value::<HashMap<String, Question>>(questions)
        .map_err(|error| {
            unanswerable("the MCP server requests input of a kind that the protocol does not have", &error)
        })?
        .into_iter()
        .collect();
    if questions.is_empty() {
        return Ok((Value::Object(Map::new()), state));
    }
    let Some(peer) = peer else {
        return Err(CallError::tool("the tool asks its user for input, and this caller cannot be asked"));
    };
    let answers = peer.ask(questions).await;
    let answers = answers.map_err(|error| CallError::tool(format!("the tool asks its user for input: {error}")))?;
    Ok((Value::Object(answers.into_iter().collect()), state))
}

fn unanswerable(problem: &str, cause: &dyn fmt::Display) -> CallError {
    CallError::new(ErrorCode::UpstreamError, problem).caused_by(cause)
}
