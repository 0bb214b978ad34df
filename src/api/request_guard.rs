//! Checks of every HTTP request. The checks of a tool call are stages of the pipeline; the deadline is there too, so
//! that every refusal is typed and no stream is cut off.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use tower::Service;

use super::body::BodyMemory;
use super::client_request::{self, REQUEST_ID};
use super::reply;
use crate::core::caller::{Caller, Owner};
use crate::core::error::{CallError, ErrorCode};

/// The routes, behind the checks of every request.
#[derive(Debug, Clone)]
pub(super) struct RequestGuard {
    router: Router,
    on_loopback: bool,
    connection: Connection,
    only_probes: bool,
}

/// What the requests of one connection share, in the extensions of each.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// The owner of what a request holds before its caller is known, and of what callers without credentials hold.
    pub peer: Owner,
    /// Once it is known.
    pub caller: Option<Arc<Caller>>,
    /// Over the Unix socket: requests are of this user, and name their caller.
    pub is_local: bool,
    pub memory: Arc<BodyMemory>,
    /// The address of the peer; `None` if it did not come over a network.
    pub address: Option<IpAddr>,
}

impl Connection {
    /// # Errors
    /// Internal: no [`RequestGuard`] is in front of the routes.
    pub(super) fn of(parts: &Parts) -> Result<&Self, CallError> {
        parts.extensions.get().ok_or_else(|| CallError::internal("the request has no connection"))
    }

    pub(super) fn owner(&self) -> &Owner {
        self.caller.as_ref().map_or(&self.peer, |caller| &caller.owner)
    }
}

impl RequestGuard {
    /// `on_loopback`: the listener is bound to a loopback address.
    pub(super) fn new(router: Router, on_loopback: bool, memory: Arc<BodyMemory>) -> Self {
        let connection =
            Connection { peer: Owner::gateway().clone(), caller: None, is_local: false, memory, address: None };
        Self { router, on_loopback, connection, only_probes: false }
    }

    /// The checks of requests over the Unix socket.
    pub(super) fn of_socket(router: Router, memory: Arc<BodyMemory>) -> Self {
        let guard = Self::new(router, false, memory);
        Self { connection: Connection { is_local: true, ..guard.connection }, ..guard }
    }

    /// The checks of the requests of one connection.
    pub(super) fn of_connection(&self, peer: &Owner) -> Self {
        let connection = Connection { peer: peer.clone(), ..self.connection.clone() };
        Self { connection, ..self.clone() }
    }

    /// The same, for connections of this address.
    pub(super) fn of_address(&self, address: IpAddr) -> Self {
        let connection = Connection { address: Some(address), ..self.connection.clone() };
        Self { connection, ..self.clone() }
    }

    /// Answers probes and metrics, and refuses everything else.
    pub(super) fn for_probes(&self) -> Self {
        Self { only_probes: true, ..self.clone() }
    }

    /// Answers a request, even if its handler panics.
    pub(super) async fn answer(self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        let (client_request, request_id) = client_request::read(&self.connection, request.headers());
        let mut response = match self.check(&request) {
            Err(refusal) => refusal.into_response(),
            Ok(()) => {
                request.extensions_mut().insert(self.connection);
                request.extensions_mut().insert(client_request);
                let mut router = self.router;
                match AssertUnwindSafe(router.call(request.map(Body::new))).catch_unwind().await {
                    Ok(answer) => answer?,
                    Err(panic) => reply::panicked(&*panic),
                }
            }
        };
        // No browser may take what a tool returned for a page or a script.
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
        response.headers_mut().insert(REQUEST_ID, request_id);
        Ok(response)
    }

    fn check(&self, request: &Request<Incoming>) -> Result<(), CallError> {
        // RFC 9112 §3.2: a proxy in front may have used the other one.
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            return Err(invalid("duplicate `Host` header"));
        }
        if self.on_loopback && !names_loopback(request.uri(), request.headers()) {
            return Err(invalid(HOST_NOT_LOOPBACK));
        }
        if self.only_probes && !PROBES.contains(&request.uri().path()) {
            return Err(too_many_connections());
        }
        Ok(())
    }
}

const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");

/// What is answered whatever the number of connections.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

const HOST_NOT_LOOPBACK: &str = "this server listens on loopback and accepts only localhost as host; to use another host name, set `server.listen` to a non-loopback address";

/// A web page that reaches a loopback listener under its own host name (DNS rebinding) must not become an anonymous
/// caller there: on loopback, only loopback's host names are accepted.
fn names_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let authority = uri.authority().map(Authority::as_str);
    let Some(host) = authority.or_else(|| headers.get(HOST).and_then(|value| value.to_str().ok())) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn too_many_connections() -> CallError {
    let message = "there are too many connections (`server.max_connections`); close some, or try again later";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

fn invalid(message: &str) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}
