//! The route `/mcp`: authenticates the caller and selects the session; rmcp implements the protocol.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value};
use tower::Service;

use super::client_context::{McpClientContext, Tokens};
use super::fast_path::FastPathCall;
use super::handler::McpHandler;
use super::sessions::CallerSessions;
use super::{McpServer, message, protected_resource};
use crate::api::request::{RequestMeta, read};
use crate::config::{McpToolListing, ServerConfig};
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;

/// The fields of a JSON-RPC message.
type Message = Map<String, Value>;

/// Header of the protocol with the session id.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Header that selects how tools are listed: `all` or `search`.
const LISTING: HeaderName = HeaderName::from_static("x-sekisho-tools");

/// `/mcp`, and the metadata on how to sign in to it.
pub(in crate::api) fn routes(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let server = McpServer::new(gateway, gateway.draining().clone());
    Router::new()
        .route("/mcp", any(async move |State(gateway), request| serve(&server, &gateway, request).await))
        .merge(protected_resource::routes())
}

async fn serve(server: &Arc<McpServer>, gateway: &Arc<Gateway>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let origin = match RequestMeta::from_request_parts(&mut parts, gateway).await {
        Ok(origin) => origin,
        Err(error) => return refused(error, &parts, gateway),
    };
    match admit(server, gateway, origin, parts, body).await {
        Ok(response) => response,
        Err(response) => response,
    }
}

async fn admit(
    server: &Arc<McpServer>,
    gateway: &Arc<Gateway>,
    origin: RequestMeta,
    mut parts: Parts,
    body: Body,
) -> Result<Response, Response> {
    let config = &gateway.config().server;
    let (body, message) = json_body(config, &parts, body).await?;
    let sessions = server.sessions.of(Arc::clone(&origin.caller.key));
    let client_context =
        client_context(gateway, origin, &parts.headers, &sessions).map_err(|error| refused(error, &parts, gateway))?;
    if parts.method == Method::DELETE && client_context.session.is_none() {
        let error = CallError::new(ErrorCode::UnknownSession, "no MCP session has this id");
        return Err(error.into_response());
    }
    let client_context = Arc::new(client_context);
    let plain =
        message.and_then(|message| FastPathCall::of(&parts.headers, message, server, &client_context, &sessions));
    if let Some(call) = plain
        && let Some(answer) = call.answer(server, &client_context).await
    {
        return Ok(answer);
    }
    parts.extensions.insert(Arc::clone(&client_context));
    by_rmcp(server, client_context, sessions, Request::from_parts(parts, Full::new(body))).await
}

/// Lets rmcp serve the request.
async fn by_rmcp(
    server: &Arc<McpServer>,
    client_context: Arc<McpClientContext>,
    sessions: CallerSessions,
    request: Request<Full<Bytes>>,
) -> Result<Response, Response> {
    let method = request.method().clone();
    let sessions = Arc::new(sessions);
    let mut service = StreamableHttpService::new(
        {
            let server = Arc::clone(server);
            let sessions = Arc::clone(&sessions);
            move || Ok(McpHandler::new(Arc::clone(&server), Arc::clone(&client_context), sessions.begun()))
        },
        Arc::clone(&sessions),
        transport(&server.gateway.config().server),
    );
    let answer: Result<_, Infallible> = service.call(request).await;
    let Ok(answer) = answer;
    if sessions.were_full() {
        let error =
            CallError::new(ErrorCode::Overloaded, "there are too many MCP sessions; end one, or try again later");
        return Err(error.into_response());
    }
    let mut answer = typed(answer).await;
    if method == Method::DELETE && answer.status() == StatusCode::ACCEPTED {
        // The session has ended: nothing is left to wait for, and with another status the Python SDK reports a
        // failure.
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    Ok(if method == Method::GET { until_draining(answer, server) } else { answer })
}

fn transport(server: &ServerConfig) -> StreamableHttpServerConfig {
    let config = StreamableHttpServerConfig::default().with_json_response(true).with_max_request_body_bytes(usize::MAX);
    // On loopback the request guard has refused every other host already.
    let config = match server.mcp.allowed_hosts.is_empty() {
        true => config.disable_allowed_hosts(),
        false => config.with_allowed_hosts(&server.mcp.allowed_hosts),
    };
    let own_pages = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
    let own_pages = own_pages.into_iter().filter(|_| server.is_loopback()).map(String::from);
    config.with_allowed_origins(own_pages.chain(server.mcp.allowed_origins.iter().cloned())).enforce_origin_validation()
}

/// The fields, if the body is one message.
async fn json_body(server: &ServerConfig, parts: &Parts, body: Body) -> Result<(Bytes, Option<Message>), Response> {
    let within = Duration::from_secs(server.read_timeout_seconds);
    let bytes = read(body, server.max_body_bytes, within).await.map_err(IntoResponse::into_response)?;
    let is_message = parts.method == Method::POST;
    let message = is_message.then(|| message::read(&bytes)).transpose().map_err(IntoResponse::into_response)?;
    Ok((bytes, message))
}

fn client_context(
    gateway: &Gateway,
    origin: RequestMeta,
    headers: &HeaderMap,
    sessions: &CallerSessions,
) -> Result<McpClientContext, CallError> {
    let search = match headers.get(&LISTING).map(HeaderValue::as_bytes) {
        None => gateway.config().server.mcp.tools == McpToolListing::Search,
        Some(b"search") => true,
        Some(b"all") => false,
        Some(_) => {
            let message = format!("the header {LISTING} must be `all` or `search`");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
    };
    let named = headers.get(&SESSION).and_then(|id| id.to_str().ok()).filter(|id| sessions.own(id));
    let client_session = named.and_then(|id| sessions.state(id));
    let session = named.map(str::to_owned);
    let RequestMeta { caller, scopes, trace, .. } = origin;
    Ok(McpClientContext {
        scopes,
        session,
        client_session,
        trace,
        search,
        tokens: Tokens::of(headers)?,
        ..McpClientContext::new(caller)
    })
}

/// Adds to a 401 where the client can sign in.
fn refused(error: CallError, parts: &Parts, gateway: &Gateway) -> Response {
    let is_unauthenticated = error.code() == ErrorCode::Unauthenticated;
    let mut response = error.into_response();
    if is_unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, protected_resource::challenge(parts, gateway));
    }
    response
}

/// rmcp refuses unreadable requests in plain text; here each refusal becomes a typed error.
async fn typed(answer: Response<BoxBody<Bytes, Infallible>>) -> Response {
    let is_typed =
        answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let status = answer.status();
    if is_typed || !(status.is_client_error() || status.is_server_error()) {
        return answer.map(Body::new);
    }
    let (parts, body) = answer.into_parts();
    let Ok(text) = body.collect().await;
    let text = String::from_utf8_lossy(&text.to_bytes()).into_owned();
    let code = match status {
        StatusCode::NOT_FOUND => ErrorCode::UnknownSession,
        StatusCode::FORBIDDEN => ErrorCode::Denied,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::UnsupportedMediaType,
        status if status.is_server_error() => ErrorCode::Internal,
        _ => ErrorCode::InvalidRequest,
    };
    let mut response = CallError::new(code, text).into_response();
    *response.status_mut() = status;
    if let Some(allowed) = parts.headers.get(ALLOW) {
        response.headers_mut().insert(ALLOW, allowed.clone());
    }
    response
}

/// A stream that waits for events must not delay shutdown.
fn until_draining(response: Response, server: &McpServer) -> Response {
    let draining = server.draining.clone();
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned())))
}
