//! One connection to one server, and its requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, CustomRequest, ProgressToken, RequestId, RequestMetaObject, ServerPeerInfo};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::OwnerKey;
use crate::core::call::{Arguments, CallContext, Sending};
use crate::core::error::{CallError, ErrorCode};
use crate::core::peer::{ClientPeer, Question, Questions};
use crate::sources::mcp::transport::fast_path::FastPath;
use crate::sources::mcp::transport::stdio::Ending;

/// Maximum rounds of input that one call may require (the protocol has no limit).
const MAX_ROUNDS: usize = 10;

/// The reason sent to a server when a call is cancelled.
pub(crate) const TAKEN_BACK: &str = "the caller no longer waits for it";

/// Where a request says which log messages it wants (2026-07-28).
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// An established connection. Closed when dropped.
pub(crate) struct Session {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) info: Arc<ServerPeerInfo>,
    pub(crate) in_flight: Arc<InFlight>,
    /// The short way of tool calls, where the server is reached over streamable HTTP.
    pub(crate) direct: Option<Arc<FastPath>>,
    /// Cancelled when the connection is closed and its process has exited.
    pub(crate) ended: CancellationToken,
    pub(crate) ending: Ending,
    /// Headers of the caller it belongs to, credentials among them.
    pub(crate) sent: HeaderMap,
    /// Whose it is; `None` for the gateway's own.
    pub(crate) owner: Option<OwnerKey>,
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

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Which calls wait for answers over one connection, and the clients behind them.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    calls: Mutex<HashMap<RequestId, Waiting>>,
    given_up: AtomicBool,
    /// Held from sending to noting down: no progress is told of a call that is not noted yet.
    pub(crate) sending: tokio::sync::RwLock<()>,
}

#[derive(Debug)]
struct Waiting {
    token: ProgressToken,
    peer: Option<Arc<dyn ClientPeer>>,
}

impl InFlight {
    /// The client behind the call that reports progress under `token`.
    pub(crate) fn by_token(&self, token: &ProgressToken) -> Option<Arc<dyn ClientPeer>> {
        self.lock().values().find(|waiting| waiting.token == *token)?.peer.clone()
    }

    /// The client behind the call `id`.
    pub(crate) fn by_id(&self, id: &RequestId) -> Option<Arc<dyn ClientPeer>> {
        self.lock().get(id)?.peer.clone()
    }

    /// The client behind the one call there is. `None` where there are none or several.
    pub(crate) fn single(&self) -> Option<Arc<dyn ClientPeer>> {
        let calls = self.lock();
        let mut waiting = calls.values();
        let first = waiting.next()?;
        if waiting.next().is_some() { None } else { first.peer.clone() }
    }

    /// Whether a call was given up before it was answered: the server may go on with it.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Removes a call whose caller no longer waits.
    pub(crate) fn give_up(&self, id: &RequestId) {
        self.given_up.store(true, Ordering::Relaxed);
        self.forget(id);
    }

    pub(crate) fn record(&self, id: RequestId, token: ProgressToken, peer: Option<Arc<dyn ClientPeer>>) {
        self.lock().insert(id, Waiting { token, peer });
    }

    pub(crate) fn forget(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Waiting>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running request. Dropping it before the answer sends the server a cancellation.
struct Sent<'a> {
    handle: Option<RequestHandle<RoleClient>>,
    id: RequestId,
    in_flight: &'a InFlight,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return self.in_flight.forget(&self.id) };
        self.in_flight.give_up(&self.id);
        // Without a runtime, no notification can be sent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(handle.cancel(Some(TAKEN_BACK.to_owned())));
        }
    }
}

impl Session {
    /// A guard for the wait for an answer; dropped without one, the server is suspect.
    pub(crate) fn watch_liveness(&self) -> LivenessGuard<'_> {
        LivenessGuard(Some(&self.suspect))
    }

    /// Whether the server speaks a revision without sessions (2026-07-28).
    pub(crate) fn is_modern(&self) -> bool {
        !self.info.protocol_version.has_initialize()
    }

    /// Sends the server a request of the gateway itself.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub(crate) async fn ask(&self, method: &str, params: Map<String, Value>) -> Result<Value, ServiceError> {
        self.send(method, params, RequestMetaObject::new(), None, &Sending::default()).await
    }

    /// Sends the server a request on behalf of a call. If the server requires input first, requests it from the call's
    /// client.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn ask_for(
        &self,
        call: &CallContext,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Failure> {
        self.ask_in_rounds(call, method, params, None).await
    }

    /// Calls a tool, as [`Session::ask_for`]. `is_plain`: headers can say its name and arguments as they are.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn call_tool(
        &self,
        call: &CallContext,
        (name, is_plain): (&str, bool),
        arguments: &Arguments,
    ) -> Result<Value, Failure> {
        let mut params = Map::new();
        params.insert("name".to_owned(), Value::String(name.to_owned()));
        params.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        let direct = self.direct.as_ref().filter(|_| is_plain || !self.is_modern());
        self.ask_in_rounds(call, "tools/call", params, direct).await
    }

    async fn ask_in_rounds(
        &self,
        call: &CallContext,
        method: &str,
        mut params: Map<String, Value>,
        direct: Option<&Arc<FastPath>>,
    ) -> Result<Value, Failure> {
        let peer = call.peer.as_ref();
        for _ in 0..MAX_ROUNDS {
            let answered = match direct {
                Some(direct) => direct.call(&params, self.meta(call), peer, call.sending.flag()).await?,
                None => None,
            };
            let result = match answered {
                Some(result) => result,
                None => {
                    // Boxed, to keep this rare branch out of the size of every call's future.
                    let sent = self.send(method, params.clone(), self.meta(call), peer, &call.sending);
                    Box::pin(sent).await?
                }
            };
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            let (answers, state) = answer(result, peer).await.map_err(Failure::Call)?;
            params.insert("inputResponses".to_owned(), answers);
            params.extend(state.map(|state| ("requestState".to_owned(), state)));
        }
        let problem = format!("the MCP server requested more than {MAX_ROUNDS} rounds of input");
        Err(Failure::Call(CallError::new(ErrorCode::UpstreamError, problem)))
    }

    async fn send(
        &self,
        method: &str,
        params: Map<String, Value>,
        meta: RequestMetaObject,
        peer: Option<&Arc<dyn ClientPeer>>,
        sending: &Sending,
    ) -> Result<Value, ServiceError> {
        let mut request = CustomRequest::new(method, Some(Value::Object(params)));
        // The transport sets it.
        request.extensions.insert(sending.flag());
        let request = ClientRequest::CustomRequest(request);
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let mut sent = {
            let _sending = self.in_flight.sending.read().await;
            let handle = self.peer.send_request_with_option(request, options).await?;
            // From here on nobody can withdraw it.
            sending.begin();
            let id = handle.id.clone();
            self.in_flight.record(id.clone(), handle.progress_token.clone(), peer.cloned());
            Sent { handle: Some(handle), id, in_flight: &self.in_flight }
        };
        let Some(handle) = &mut sent.handle else { return Err(ServiceError::TransportClosed) };
        let answer = (&mut handle.rx).await;
        sent.handle = None;
        let result = answer.map_err(|_| ServiceError::TransportClosed)??;
        serde_json::to_value(result).map_err(|_| ServiceError::UnexpectedResponse)
    }

    /// What the server is told of the client behind the call, where the revision has a place for it.
    fn meta(&self, call: &CallContext) -> RequestMetaObject {
        let mut meta = RequestMetaObject::new();
        if self.is_modern()
            && let Some(peer) = &call.peer
        {
            if let Ok(capabilities) = serde_json::from_value(peer.capabilities().clone()) {
                meta.set_client_capabilities(capabilities);
            }
            if let Some(level) = peer.log_level() {
                let level = serde_json::to_value(level).unwrap_or_default();
                meta.insert(LOG_LEVEL.to_owned(), level);
            }
        }
        meta
    }
}

/// Why a question to a server has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    Service(ServiceError),
    Call(CallError),
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

/// Requests the server's required input from the call's client.
async fn answer(mut result: Value, peer: Option<&Arc<dyn ClientPeer>>) -> Result<(Value, Option<Value>), CallError> {
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
