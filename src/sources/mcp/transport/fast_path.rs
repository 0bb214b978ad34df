//! Calls over streamable HTTP without a detour: the task that wants the answer posts the request and reads the answer.
//!
//! rmcp passes a call between tasks four times, and each time a sleeping thread may have to be woken, which takes longer
//! than all checks together. Everything that belongs to a connection and not to one call still uses rmcp: the handshake,
//! the lists, the stream outside of requests, and expired sessions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientResult, GetMeta, JsonRpcRequest,
    ProgressToken, RequestId, RequestMetaObject, ServerNotification, ServerPeerInfo, ServerRequest,
};
use rmcp::service::{Service, ServiceError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::call_stream::{Answer, CallStream, Message};
use super::http::{EVENT_STREAM, HttpClient, JSON, Refusal, SESSION, is};
use crate::core::call::SentFlag;
use crate::core::peer::ClientPeer;
use crate::infra::outbound::OutboundStream;
use crate::sources::mcp::server::handler::Handler;
use crate::sources::mcp::server::session::Failure;

/// rmcp numbers its own requests of a connection from 0, so these ids must differ.
const FIRST_ID: i64 = 1 << 32;

/// Timeout to send a server the cancellation of a call, or a client's answer.
const TOLD_TIMEOUT: Duration = Duration::from_secs(5);

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The calls of one connection.
pub(crate) struct FastPath {
    client: HttpClient,
    handler: Handler,
    info: Arc<ServerPeerInfo>,
    /// What each request of the newer revision says of us.
    of_us: RequestMetaObject,
    next_id: AtomicI64,
}

impl fmt::Debug for FastPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FastPath").finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Request<'a> {
    jsonrpc: &'static str,
    id: i64,
    method: &'static str,
    params: Params<'a>,
}

#[derive(Serialize)]
struct Params<'a> {
    #[serde(flatten)]
    own: &'a Map<String, Value>,
    #[serde(rename = "_meta", skip_serializing_if = "Map::is_empty")]
    meta: &'a Map<String, Value>,
}

impl FastPath {
    /// `handler` is the one that hears the connection.
    pub(crate) fn new(client: HttpClient, handler: Handler, info: Arc<ServerPeerInfo>) -> Arc<Self> {
        let of_us = match info.protocol_version.has_initialize() {
            true => RequestMetaObject::new(),
            false => {
                let us = handler.get_info();
                let revision = info.protocol_version.clone();
                RequestMetaObject::with_client_context(revision, us.client_info, us.capabilities)
            }
        };
        Arc::new(Self { client, handler, info, of_us, next_id: AtomicI64::new(FIRST_ID) })
    }

    /// Calls the tool that `params` names, and sets `sent` when the request is written. `meta` is said of the client behind
    /// the call, which is `peer`. Dropping the future takes the call back.
    ///
    /// `None` when the server no longer knows the session, and has not looked at the call.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        params: &Map<String, Value>,
        meta: RequestMetaObject,
        peer: Option<&Arc<dyn ClientPeer>>,
        sent: SentFlag,
    ) -> Result<Option<Value>, Failure> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let token = ProgressToken(RequestId::Number(id));
        let mut said = self.of_us.clone();
        said.extend(meta);
        if peer.is_some_and(|peer| peer.wants_progress()) {
            said.set_progress_token(token.clone());
        }
        let params = Params { own: params, meta: &said.0.0 };
        let request = Request { jsonrpc: "2.0", id, method: "tools/call", params };
        let body = serde_json::to_vec(&request).map_err(|_| Failure::Service(ServiceError::UnexpectedResponse))?;
        let name = request.params.own.get("name").and_then(Value::as_str).unwrap_or_default();

        self.handler.in_flight.record(RequestId::Number(id), token, peer.cloned());
        let mut on_its_way = Sent { direct: self, id, answered: false };
        let answer = self.exchange(name, id, body, peer, sent).await;
        on_its_way.answered = true;
        answer
    }

    async fn exchange(
        self: &Arc<Self>,
        name: &str,
        id: i64,
        body: Vec<u8>,
        peer: Option<&Arc<dyn ClientPeer>>,
        sent: SentFlag,
    ) -> Result<Option<Value>, Failure> {
        let mut headers = self.client.heading(&self.info.protocol_version);
        let in_session = headers.contains_key(SESSION);
        if !self.info.protocol_version.has_initialize() {
            headers.insert(METHOD, HeaderValue::from_static("tools/call"));
            headers.extend(HeaderValue::from_str(name).map(|name| (NAME, name)));
        }
        let access = &self.client.access;
        let answer = access.open_noting(Method::POST, &access.url, headers, Some(body.into()), Some(sent)).await;
        let answer = answer.map_err(Failure::Call)?;
        if answer.status == StatusCode::NOT_FOUND && in_session {
            return Ok(None);
        }
        self.read(answer, id, peer).await.map(Some)
    }

    async fn read(
        self: &Arc<Self>,
        answer: OutboundStream,
        id: i64,
        peer: Option<&Arc<dyn ClientPeer>>,
    ) -> Result<Value, Failure> {
        // In boxes, since most answers are plain ones.
        if !answer.status.is_success() {
            return Err(match Box::pin(self.client.refusal(answer)).await {
                Refusal::Said(error) => Failure::Service(ServiceError::McpError(error)),
                Refusal::Status(error) => Failure::Call(error),
            });
        }
        if is(&answer.headers, EVENT_STREAM) {
            return Box::pin(self.listen(answer, id, peer)).await;
        }
        let is_json = is(&answer.headers, JSON);
        let body = answer.whole().await.map_err(Failure::Call)?;
        let answer = is_json.then(|| Answer::of(&body)).flatten().filter(|answer| answer.is_to(id));
        let answer = answer.ok_or(Failure::Service(ServiceError::UnexpectedResponse))?;
        answer.outcome.map_err(|error| Failure::Service(ServiceError::McpError(error)))
    }

    /// Handles the server's notifications and requests until its answer.
    async fn listen(
        self: &Arc<Self>,
        answer: OutboundStream,
        id: i64,
        peer: Option<&Arc<dyn ClientPeer>>,
    ) -> Result<Value, Failure> {
        let mut stream = CallStream::new(self.client.clone(), &self.info.protocol_version, answer);
        let mut asking = FuturesUnordered::new();
        let mut asked = HashMap::new();
        loop {
            let message = tokio::select! {
                message = stream.next() => message?,
                Some(_) = asking.next() => continue,
            };
            match message {
                Message::Answer(answer) if answer.is_to(id) => {
                    stream.drain();
                    return answer.outcome.map_err(|error| Failure::Service(ServiceError::McpError(error)));
                }
                Message::Answer(_) => tracing::debug!("an MCP server answered an unknown request"),
                Message::Notification(ServerNotification::CancelledNotification(taken_back)) => {
                    let question = taken_back.params.request_id.and_then(|id| asked.remove(&id));
                    question.iter().for_each(AbortHandle::abort);
                }
                Message::Notification(notification) => self.handler.pass_on(notification, peer.map(|peer| &**peer)),
                Message::Request(request) => {
                    let (handle, registration) = AbortHandle::new_pair();
                    asked.insert(request.id.clone(), handle);
                    asking.push(Abortable::new(self.answer(request, peer.cloned()), registration));
                }
            }
        }
    }

    /// Answers a request of the server.
    async fn answer(&self, asked: JsonRpcRequest<ServerRequest>, peer: Option<Arc<dyn ClientPeer>>) {
        let JsonRpcRequest { id, request, .. } = asked;
        let answer = match &request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            question => self.handler.answer(question, request.get_meta(), peer).await,
        };
        self.notify(match answer {
            Ok(result) => ClientJsonRpcMessage::response(result, id),
            Err(error) => ClientJsonRpcMessage::error(error, Some(id)),
        })
        .await;
    }

    /// Sends the server a notification.
    async fn notify(&self, message: ClientJsonRpcMessage) {
        let Ok(body) = serde_json::to_vec(&message) else { return };
        let access = &self.client.access;
        let headers = self.client.heading(&self.info.protocol_version);
        let told = access.open(Method::POST, &access.url, headers, Some(body.into()));
        match tokio::time::timeout(TOLD_TIMEOUT, told).await {
            Ok(Ok(answer)) if answer.status.is_success() => {}
            Ok(Ok(answer)) => tracing::debug!(status = %answer.status, "an MCP server refused a notification"),
            Ok(Err(error)) => tracing::debug!(%error, "a notification to an MCP server could not be sent"),
            Err(_) => tracing::debug!("a notification to an MCP server timed out"),
        }
    }
}

/// A running call. Dropping it before the answer cancels it: the server receives a cancellation, or, in the newer
/// revision, sees that the connection closed.
struct Sent<'a> {
    direct: &'a Arc<FastPath>,
    id: i64,
    answered: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let id = RequestId::Number(self.id);
        match self.answered {
            true => self.direct.handler.in_flight.forget(&id),
            false => self.direct.handler.in_flight.give_up(&id),
        }
        if self.answered || !self.direct.info.protocol_version.has_initialize() {
            return;
        }
        // Without a runtime, no notification can be sent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let direct = Arc::clone(self.direct);
            let why = CancelledNotificationParam::new(
                Some(id),
                Some(crate::sources::mcp::server::session::TAKEN_BACK.to_owned()),
            );
            let message = ClientJsonRpcMessage::notification(CancelledNotification::new(why).into());
            runtime.spawn(async move { direct.notify(message).await });
        }
    }
}
