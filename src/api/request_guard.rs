//! Checks of every HTTP request. The checks of a tool call are stages of the pipeline; the deadline is there too, so
//! that every refusal is typed and no stream is cut off.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use tower::Service;

use super::reply;
use crate::core::error::{CallError, ErrorCode};

/// The routes, behind the checks of every request.
#[derive(Debug, Clone)]
pub(super) struct RequestGuard {
    router: Router,
    on_loopback: bool,
}

impl RequestGuard {
    /// `on_loopback`: the listener is bound to a loopback address.
    pub(super) fn new(router: Router, on_loopback: bool) -> Self {
        Self { router, on_loopback }
    }

    /// Answers a request, even if its handler panics.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        // RFC 9112 §3.2: a proxy in front may have used the other one.
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            return Ok(invalid("duplicate `Host` header").into_response());
        }
        if self.on_loopback && !names_loopback(request.uri(), request.headers()) {
            return Ok(invalid(HOST_NOT_LOOPBACK).into_response());
        }
        let mut router = self.router;
        match AssertUnwindSafe(router.call(request.map(Body::new))).catch_unwind().await {
            Ok(answer) => answer,
            Err(panic) => Ok(reply::panicked(&*panic)),
        }
    }
}

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

fn invalid(message: &str) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}
