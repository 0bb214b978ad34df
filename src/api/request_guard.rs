//! What is true of every HTTP request, whatever it asks for. What is true of a tool call is a stage of the
//! pipeline; its deadline is there too, so that every refusal is typed and no stream is cut.

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

/// The routes, behind what guards all of them.
#[derive(Debug, Clone)]
pub(super) struct RequestGuard {
    router: Router,
    on_loopback: bool,
}

impl RequestGuard {
    /// `on_loopback` is where the listener stands.
    pub(super) fn new(router: Router, on_loopback: bool) -> Self {
        Self { router, on_loopback }
    }

    /// Answers a request, also when its handler panics.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        // RFC 9112 §3.2: with two of them, who stands in front may have gone by the other.
        if request.headers().get_all(HOST).iter().nth(1).is_some() {
            return Ok(invalid("the header host stands there more than once").into_response());
        }
        if self.on_loopback && !names_loopback(request.uri(), request.headers()) {
            return Ok(invalid(NOT_OUR_NAME).into_response());
        }
        let mut router = self.router;
        match AssertUnwindSafe(router.call(request.map(Body::new))).catch_unwind().await {
            Ok(answer) => answer,
            Err(panic) => Ok(reply::panicked(&*panic)),
        }
    }
}

const NOT_OUR_NAME: &str =
    "this server listens on loopback and answers to localhost only; listen on an address to be reached by name";

/// A web page that reaches a loopback listener under a name of its own (DNS rebinding) must find no
/// anonymous caller there: on loopback, only loopback's names are answered.
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
