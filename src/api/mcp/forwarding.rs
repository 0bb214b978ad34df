//! Requests of sessions that another replica has: they are forwarded to it as they came, and its answer comes back as it
//! is sent. They are forwarded once: one that was forwarded is answered by the replica that received it.

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
use super::http_refusal::HttpRefusal;
use super::session_ids::SessionIds;
use super::{browser_guard, protected_resource};
use crate::api::body::BodyLimits;
use crate::api::forwarded_request::{FORWARDED, ForwardedRequest};
use crate::api::request_guard::Connection;
use crate::core::error::{CallError, ErrorCode};
use crate::core::headers::single;
use crate::core::share::{Lease, Share};
use crate::gateway::Gateway;
use crate::infra::replica::Replica;

/// How long a connection to another replica may take: it is in the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it may take until its answer begins. What takes longer is answered by a stream that begins at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection that nobody uses is kept for less long than its replica keeps it.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// A replica that is silent for this long is asked whether it is still there, and again after as long.
const PROBED_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

/// What was sent must arrive within this.
const RECEIVED_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that say something about a connection, not about a request or response (RFC 9110 §7.6.1), and those that
/// the client of the next connection writes.
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

/// The way to the sessions of other replicas.
#[derive(Debug)]
pub(super) struct Forwarding {
    replica: Arc<Replica>,
    client: Client<HttpConnector, Full<Bytes>>,
    /// The requests under way, until their answers end.
    requests: Arc<Share>,
}

impl Forwarding {
    /// `None` where replicas forward nothing.
    pub(super) fn new(gateway: &Gateway) -> Option<Self> {
        let replica = gateway.replica().filter(|replica| replica.keys().is_some())?;
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
        // Each comes on a connection or stream of a client, of which there are no more.
        let requests = Share::new(gateway.config().server.max_connections as u64);
        Some(Self { replica: Arc::clone(replica), client, requests })
    }

    /// Forwards a request to a replica, and gives its answer as soon as that begins.
    ///
    /// # Errors
    /// `unknown_session`: the replica is no more. `overloaded`: it cannot be reached, or too many requests are under
    /// way. `upstream_error` and `timeout`: nobody knows whether it handled the request.
    pub(super) async fn forward(
        &self,
        to: &str,
        gateway: &Gateway,
        parts: &Parts,
        body: Body,
    ) -> Result<Response, HttpRefusal> {
        browser_guard::check(&gateway.config().server, parts)?;
        let connection = Connection::of(parts)?;
        let caller = connection.caller()?;
        let place = self.requests.try_acquire(&caller.owner, 1).ok_or_else(too_many)?;
        let limits = BodyLimits::of(&gateway.config().server);
        let (body, _memory) = match parts.method {
            Method::POST => connection.memory.read_held(body, &caller.owner, limits).await?,
            _ => Default::default(),
        };
        let forwarded = ForwardedRequest::new(self.replica.database_time(), to, connection.client.ip, &body);
        let answer = self.send(&forwarded, parts, body).await?;
        if answer.status() == StatusCode::FORBIDDEN && answer.headers().contains_key(FORWARDED) {
            let replica = to;
            tracing::warn!(replica, "a replica refuses what this one forwards: compare cluster.secret and the clocks");
            return Err(not_reached().into());
        }
        let mut response = returned(answer, place, gateway, &parts.method);
        if response.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, protected_resource::challenge(parts, gateway));
        }
        protected_resource::name_metadata(&mut response, parts, gateway);
        Ok(response)
    }

    async fn send(
        &self,
        forwarded: &ForwardedRequest,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Incoming>, CallError> {
        let to = &*forwarded.to;
        let address = self.replica.address_of(to).await?.ok_or_else(unknown_session)?;
        let path = parts.uri.path_and_query().map_or(parts.uri.path(), |path| path.as_str());
        let uri: Uri = format!("http://{address}{path}").parse().map_err(CallError::internal)?;
        let key = self.replica.keys().map(|keys| &keys.requests).ok_or_else(unknown_session)?;
        let header = forwarded.header(key, &parts.method, &uri).ok_or_else(unknown_session)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = of_message(parts.headers.clone());
        request.headers_mut().remove(CONTENT_LENGTH);
        request.headers_mut().insert(FORWARDED, header);
        match timeout(ANSWER_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            // It may have ended since the last heartbeat.
            Ok(Err(error)) if error.is_connect() => match self.replica.look_up(to).await? {
                None => Err(unknown_session()),
                Some(_) => Err(not_reached().caused_by(error)),
            },
            Ok(Err(error)) => {
                let message = "the replica that has this session did not answer: it may have handled the request";
                Err(CallError::new(ErrorCode::UpstreamError, message).caused_by(error))
            }
            Err(_) => {
                let message =
                    "the replica that has this session did not answer in time: it may have handled the request";
                Err(CallError::new(ErrorCode::Timeout, message))
            }
        }
    }
}

/// The id of the replica that has the session of a request, if it is another one and can be asked.
pub(super) fn replica_of(ids: &SessionIds, parts: &Parts) -> Option<String> {
    let connection = Connection::of(parts).ok()?;
    // Whoever uses the Unix socket names its caller, which no other replica accepts.
    if connection.forwarded.is_some() || connection.over_socket || !headers::has_sessions(&parts.headers).ok()? {
        return None;
    }
    if ![Method::POST, Method::GET, Method::DELETE].contains(&parts.method) {
        return None;
    }
    ids.replica_of(single(&parts.headers, &SESSION).ok()??).map(str::to_owned)
}

/// The answer as this replica's response, whose end gives the place back.
fn returned(answer: Response<Incoming>, place: Lease, gateway: &Gateway, method: &Method) -> Response {
    let (head, body) = answer.into_parts();
    let held = move |error| {
        let _place = &place;
        error
    };
    let body = Body::new(body.map_err(held));
    let body = match *method {
        // As here, a stream that only waits for events must not delay shutdown.
        Method::GET => {
            let draining = gateway.draining().clone();
            Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))
        }
        _ => body,
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = of_message(head.headers);
    response
}

/// The headers but those of the connection.
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

fn unknown_session() -> CallError {
    CallError::new(ErrorCode::UnknownSession, "no MCP session has this id")
}

fn not_reached() -> CallError {
    let message = "the replica that has this session cannot be reached now; try again in 1 s";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

fn too_many() -> CallError {
    let message = "too many requests of sessions at other replicas are under way; try again in 1 s";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}
