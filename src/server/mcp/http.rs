//! The route: who asks and for what is settled here, the rest is the protocol's.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::StreamExt;
use http_body_util::Full;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tower::Service;

use super::face::{Face, Visitor};
use super::sessions::OwnSessions;
use super::{McpFace, protected_resource};
use crate::config::{McpToolListing, ServerConfig};
use crate::error::{CallError, ErrorCode};
use crate::gateway::Gateway;
use crate::json;
use crate::server::reply;
use crate::server::request::{Origin, read};

/// Header of the protocol that names a session.
const SESSION: &str = "mcp-session-id";

/// Header with which a client chooses how tools are listed: `all` or `search`.
const LISTING: &str = "x-sekisho-tools";

/// `/mcp`, and where clients read how to sign in to it.
pub(in crate::server) fn routes(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let face = McpFace::new(gateway, gateway.draining().clone());
    Router::new()
        .route("/mcp", any(async move |State(gateway), request| serve(&face, &gateway, request).await))
        .merge(protected_resource::routes())
}

async fn serve(face: &Arc<McpFace>, gateway: &Arc<Gateway>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let origin = match Origin::from_request_parts(&mut parts, gateway).await {
        Ok(origin) => origin,
        Err(error) => return refused(error, &parts, gateway),
    };
    match admit(face, gateway, origin, parts, body).await {
        Ok(response) => response,
        Err(response) => response,
    }
}

async fn admit(
    face: &Arc<McpFace>,
    gateway: &Arc<Gateway>,
    origin: Origin,
    mut parts: Parts,
    body: Body,
) -> Result<Response, Response> {
    let server = &gateway.config().server;
    let body = json_body(server, &parts, body).await?;
    let sessions = face.sessions.of(Arc::clone(&origin.caller.key));
    let visitor =
        visitor(gateway, origin, &parts.headers, &sessions).map_err(|error| refused(error, &parts, gateway))?;
    if parts.method == Method::DELETE && visitor.session.is_none() {
        let error = CallError::new(ErrorCode::UnknownSession, "there is no such MCP session");
        return Err(error.into_response());
    }
    let visitor = Arc::new(visitor);
    parts.extensions.insert(Arc::clone(&visitor));
    let is_stream = parts.method == Method::GET;
    let sessions = Arc::new(sessions);
    let mut service = StreamableHttpService::new(
        {
            let face = Arc::clone(face);
            move || Ok(Face::new(Arc::clone(&face), Arc::clone(&visitor)))
        },
        Arc::clone(&sessions),
        transport(server),
    );
    let answer: Result<_, Infallible> = service.call(Request::from_parts(parts, Full::new(body))).await;
    let Ok(answer) = answer;
    if sessions.were_full() {
        let error =
            CallError::new(ErrorCode::Overloaded, "there are too many MCP sessions; end one, or come back later");
        return Err(error.into_response());
    }
    let answer = answer.map(Body::new);
    Ok(if is_stream { until_draining(answer, face) } else { answer })
}

fn transport(server: &ServerConfig) -> StreamableHttpServerConfig {
    let config = StreamableHttpServerConfig::default().with_json_response(true).with_max_request_body_bytes(usize::MAX);
    // On loopback the edge has refused every other name already.
    let config = match server.mcp.allowed_hosts.is_empty() {
        true => config.disable_allowed_hosts(),
        false => config.with_allowed_hosts(&server.mcp.allowed_hosts),
    };
    let own_pages = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
    let own_pages = own_pages.into_iter().filter(|_| server.is_loopback()).map(String::from);
    config.with_allowed_origins(own_pages.chain(server.mcp.allowed_origins.iter().cloned())).enforce_origin_validation()
}

/// A body that is acceptable JSON, or none.
async fn json_body(server: &ServerConfig, parts: &Parts, body: Body) -> Result<Bytes, Response> {
    let within = Duration::from_secs(server.read_timeout_seconds);
    let bytes = read(body, server.max_body_bytes, within).await.map_err(IntoResponse::into_response)?;
    if parts.method == Method::POST {
        // Whoever reads the first of two keys must not see another request than who reads the last.
        json::parse(&bytes).map_err(|problem| parse_error(&format!("the body is not acceptable JSON: {problem}")))?;
    }
    Ok(bytes)
}

fn visitor(
    gateway: &Gateway,
    origin: Origin,
    headers: &HeaderMap,
    sessions: &OwnSessions,
) -> Result<Visitor, CallError> {
    let search = match headers.get(LISTING).map(HeaderValue::as_bytes) {
        None => gateway.config().server.mcp.tools == McpToolListing::Search,
        Some(b"search") => true,
        Some(b"all") => false,
        Some(_) => {
            let message = format!("the header {LISTING} says `all` or `search`");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
    };
    let named = headers.get(SESSION).and_then(|id| id.to_str().ok()).filter(|id| sessions.own(id));
    let session = named.map(str::to_owned);
    let Origin { caller, scopes, trace, .. } = origin;
    Ok(Visitor { caller, scopes, session, trace, search })
}

/// Who is not let in learns where to sign in.
fn refused(error: CallError, parts: &Parts, gateway: &Gateway) -> Response {
    let is_unauthenticated = error.code() == ErrorCode::Unauthenticated;
    let mut response = error.into_response();
    if is_unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, protected_resource::challenge(parts, gateway));
    }
    response
}

/// What cannot be parsed has no id to answer to; the protocol's schema leaves it out there.
fn parse_error(problem: &str) -> Response {
    let body: Value = json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": problem}});
    let mut response = reply::json(StatusCode::BAD_REQUEST, &body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A stream that waits for news must not hold up the end of the service.
fn until_draining(response: Response, face: &McpFace) -> Response {
    let draining = face.draining.clone();
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned())))
}
