//! Requests about a session, a task or a parked call of another replica: they are forwarded to it as they came, and its
//! answer comes back as it is sent. They are forwarded once: the replica that received a forwarded request answers it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::headers::{self, SESSION};
use super::message::Request as McpRequest;
use super::replica_ids::{OtherReplica, ReplicaIds};
use super::{browser_guard, parked_calls, protected_resource};
use crate::body::BodyLimits;
use crate::forwarded_request::{FORWARDED, ForwardedRequest};
use crate::request_guard::Connection;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::single;
use sekisho_core::share::{Lease, Share};
use sekisho_gateway::Gateway;
use sekisho_store::replica::Replica;

/// How long a connection to another replica may take: it is in the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it may take until its answer begins, unless that is the result of a call.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection that nobody uses is kept for less long than its replica keeps it.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// A replica that is silent for this long is asked whether it is still there, and again after as long.
const PROBED_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

/// The receiver must acknowledge sent data within this.
const RECEIVED_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers about a connection, not about a request or response (RFC 9110 §7.6.1), and headers that the client of the
/// next connection writes.
const OF_CONNECTION: [HeaderName; 12] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HOST,
    EXPECT,
    FORWARDED,
];

/// The way to the sessions, tasks and calls of other replicas.
#[derive(Debug)]
pub(super) struct Forwarding {
    replica: Arc<Replica>,
    ids: ReplicaIds,
    client: Client<HttpConnector, Full<Bytes>>,
    /// The requests under way, until their answers end.
    requests: Arc<Share>,
}

/// How the answer to a forwarded request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It begins within [`ANSWER_TIMEOUT`].
    Soon,
    /// It begins when a call ends, which has a deadline of its own.
    WithResult,
    /// It begins soon, and is a stream that only waits for events.
    Events,
}

impl Forwarding {
    /// `None` where replicas forward nothing.
    pub(super) fn new(gateway: &Gateway, ids: &ReplicaIds) -> Option<Self> {
        let replica = gateway.cluster().replica().filter(|replica| replica.keys().is_some())?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(PROBED_EVERY));
        connector.set_keepalive_interval(Some(PROBED_EVERY));
        connector.set_keepalive_retries(Some(PROBES));
        connector.set_tcp_user_timeout(Some(RECEIVED_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT_IDLE)
            .build(connector);
        // Each request comes on a connection or stream of a client, of which there are no more.
        let requests = Share::new(gateway.configuration().current().server.max_connections as u64);
        Some(Self { replica: Arc::clone(replica), ids: ids.clone(), client, requests })
    }

    /// The replica that has the session of a request, if it is another one and can be asked.
    pub(super) fn replica_of_session(&self, parts: &Parts) -> Option<OtherReplica> {
        if !may_forward(parts) || !headers::has_sessions(&parts.headers).ok()? {
            return None;
        }
        if ![Method::POST, Method::GET, Method::DELETE].contains(&parts.method) {
            return None;
        }
        self.ids.other_replica(single(&parts.headers, &SESSION).ok()??)
    }

    /// Forwards a request of a session to its replica, and gives the answer as soon as that begins.
    /// Errors: `unknown_session`: the replica is no more. `overloaded`: it cannot be reached, or too many requests are
    /// under way. `upstream_error` and `timeout`: nobody knows whether it handled the request.
    pub(super) async fn forward_of_session(
        &self,
        to: &OtherReplica,
        gateway: &Gateway,
        parts: &Parts,
        body: Body,
    ) -> Result<Response, CallError> {
        browser_guard::check(&gateway.configuration().current().server, parts)?;
        let connection = Connection::of(parts)?;
        let limits = BodyLimits::of(&gateway.configuration().current().server);
        let (body, _memory) = match parts.method {
            Method::POST => connection.memory().read_held(body, &connection.caller()?.owner, limits).await?,
            _ => Default::default(),
        };
        // As a session's calls, which become a stream at once where they take long.
        let answer = if parts.method == Method::GET { Answer::Events } else { Answer::Soon };
        self.forward(to, gateway, parts, body, answer).await
    }

    /// Forwards a request of 2026-07-28 to the replica that has the task or the parked call that it names. `None`: it
    /// is answered here, also if that replica is no more: its tasks and calls are unknown.
    /// Errors: as [`forward_of_session`](Self::forward_of_session), but for `unknown_session`.
    pub(super) async fn forward_stateless(
        &self,
        gateway: &Gateway,
        parts: &Parts,
        request: &McpRequest,
        body: Bytes,
    ) -> Result<Option<Response>, CallError> {
        let named = named_by(request).filter(|_| may_forward(parts));
        let Some((id, answer)) = named else { return Ok(None) };
        let Some(to) = self.ids.other_replica(id) else { return Ok(None) };
        match self.forward(&to, gateway, parts, body, answer).await {
            Ok(response) => Ok(Some(response)),
            Err(error) if error.code() == ErrorCode::UnknownSession => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn forward(
        &self,
        to: &OtherReplica,
        gateway: &Gateway,
        parts: &Parts,
        body: Bytes,
        answer: Answer,
    ) -> Result<Response, CallError> {
        let connection = Connection::of(parts)?;
        let place = self.requests.try_acquire(&connection.caller()?.owner, 1).ok_or_else(too_many)?;
        let time = self.replica.database_time().as_microsecond();
        let workload = connection.workload().cloned();
        let forwarded =
            ForwardedRequest { workload, ..ForwardedRequest::new(time, &to.id, connection.client.ip, &body) };
        let answered = self.send(to, &forwarded, parts, body, answer).await?;
        if answered.headers().contains_key(FORWARDED) {
            match answered.status() {
                StatusCode::FORBIDDEN => {
                    let replica = &*to.id;
                    tracing::warn!(
                        replica,
                        "a replica refuses what this one forwards: compare cluster.secret and the clocks"
                    );
                    return Err(not_reached());
                }
                // Another one has its address by now.
                StatusCode::NOT_FOUND => return Err(unknown()),
                _ => {}
            }
        }
        let mut response = returned(answered, place, gateway, answer);
        if response.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, protected_resource::challenge(parts, gateway));
        }
        protected_resource::name_metadata(&mut response, parts, gateway);
        Ok(response)
    }

    async fn send(
        &self,
        to: &OtherReplica,
        forwarded: &ForwardedRequest,
        parts: &Parts,
        body: Bytes,
        answer: Answer,
    ) -> Result<Response<Incoming>, CallError> {
        let address = self.replica.address_of(&to.id).await?.ok_or_else(unknown)?;
        let path = parts.uri.path_and_query().map_or(parts.uri.path(), |path| path.as_str());
        let uri: Uri = format!("http://{address}{path}").parse().map_err(CallError::internal)?;
        let header = forwarded.header(&to.keys.requests, &parts.method, &uri).ok_or_else(unknown)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = of_message(parts.headers.clone());
        request.headers_mut().remove(CONTENT_LENGTH);
        request.headers_mut().insert(FORWARDED, header);
        let sent = self.client.request(request);
        let answered = match answer {
            Answer::WithResult => Ok(sent.await),
            Answer::Soon | Answer::Events => timeout(ANSWER_TIMEOUT, sent).await,
        };
        match answered {
            Ok(Ok(answered)) => Ok(answered),
            // It may have ended since the last heartbeat.
            Ok(Err(error)) if error.is_connect() => match self.replica.look_up(&to.id).await? {
                None => Err(unknown()),
                Some(_) => Err(not_reached().caused_by(error)),
            },
            Ok(Err(error)) => {
                let message = "the replica that this request is for did not answer: it may have handled the request";
                Err(CallError::new(ErrorCode::UpstreamError, message).caused_by(error))
            }
            Err(_) => {
                let message =
                    "the replica that this request is for did not answer in time: it may have handled the request";
                Err(CallError::new(ErrorCode::Timeout, message))
            }
        }
    }
}

/// Whether a request may be forwarded, and was not yet.
fn may_forward(parts: &Parts) -> bool {
    // A user of the Unix socket names its caller, which no other replica accepts.
    Connection::of(parts).is_ok_and(|connection| connection.forwarded.is_none() && !connection.over_socket)
}

/// The id of the task or of the parked call that a request of 2026-07-28 is about. A subscription may follow several tasks:
/// it is served where the first one is.
fn named_by(request: &McpRequest) -> Option<(&str, Answer)> {
    let params = &request.params;
    match request.method.as_str() {
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some((params.get("taskId")?.as_str()?, Answer::Soon)),
        "tools/call" | "prompts/get" | "resources/read" => {
            let id = parked_calls::id_of(params.get("requestState")?.as_str()?)?;
            Some((id, Answer::WithResult))
        }
        "subscriptions/listen" => {
            let first = params.get("notifications")?.get("taskIds")?.get(0)?.as_str()?;
            Some((first, Answer::Events))
        }
        _ => None,
    }
}

/// The answer as this replica's response, whose end gives the place back.
fn returned(answered: Response<Incoming>, place: Lease, gateway: &Gateway, answer: Answer) -> Response {
    let (head, body) = answered.into_parts();
    let held = move |error| {
        let _place = &place;
        error
    };
    let body = Body::new(body.map_err(held));
    let body = match answer {
        // As here, a stream that only waits for events must not delay shutdown.
        Answer::Events => {
            let draining = gateway.draining().clone();
            Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))
        }
        Answer::Soon | Answer::WithResult => body,
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = of_message(head.headers);
    response
}

/// The headers without those about the connection.
fn of_message(mut headers: HeaderMap) -> HeaderMap {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&listed) {
        headers.remove(name);
    }
    headers
}

fn unknown() -> CallError {
    CallError::new(ErrorCode::UnknownSession, "no MCP session has this id")
}

fn not_reached() -> CallError {
    let message = "the replica that this request is for cannot be reached now; try again in 1 s";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

fn too_many() -> CallError {
    let message = "too many requests for other replicas are under way; try again in 1 s";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::message::{self, Message};
    use super::*;

    fn named(method: &str, params: &Value) -> Option<(String, Answer)> {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let Message::Request(request) = message::from_json(message, None).expect("a message") else {
            panic!("a request");
        };
        named_by(&request).map(|(id, answer)| (id.to_owned(), answer))
    }

    #[test]
    fn a_request_names_a_task_or_a_parked_call() {
        let state = json!({"name": "t", "requestState": "a.b.c:rs1.d.e"});
        for (method, params, expected) in [
            ("tasks/get", json!({"taskId": "a.b.c"}), Some(Answer::Soon)),
            ("tasks/update", json!({"taskId": "a.b.c", "inputResponses": {}}), Some(Answer::Soon)),
            ("tasks/cancel", json!({"taskId": "a.b.c"}), Some(Answer::Soon)),
            ("tasks/cancel", json!({"taskId": 7}), None),
            ("tools/call", state.clone(), Some(Answer::WithResult)),
            ("prompts/get", state.clone(), Some(Answer::WithResult)),
            ("resources/read", state.clone(), Some(Answer::WithResult)),
            ("tools/list", state, None),
            ("tools/call", json!({"name": "t"}), None),
            ("tools/call", json!({"name": "t", "requestState": "rs1.d.e"}), None),
            ("subscriptions/listen", json!({"notifications": {"taskIds": ["a.b.c", "d"]}}), Some(Answer::Events)),
            ("subscriptions/listen", json!({"notifications": {"taskIds": []}}), None),
            ("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}), None),
        ] {
            let expected = expected.map(|answer| ("a.b.c".to_owned(), answer));
            assert_eq!(named(method, &params), expected, "{method} {params}");
        }
    }
}
