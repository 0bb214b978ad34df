//! The routes `/mcp` and `/mcp/{endpoint}`: streamable HTTP. Authenticates the caller, checks headers, finds the session, and
//! answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{HeaderName, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use rmcp::model::{ErrorCode as McpErrorCode, ErrorData, ProtocolVersion, ServerJsonRpcMessage};

use super::client_context::{McpClientContext, Tokens};
use super::event_log::Event;
use super::event_response::event_response;
use super::event_stream::encoded;
use super::headers::{Era, LAST_EVENT, SESSION};
use super::http_refusal::HttpRefusal;
use super::message::{Message, Refusal, Request as McpRequest};
use super::methods::{self, Presented, StartedRequest};
use super::running_request::{Sent, StatelessRequest};
use super::session::McpSession;
use super::session_request::SessionRequest;
use super::{McpServer, browser_guard, headers, message, protected_resource, result};
use crate::body::{self, BodyLimits};
use crate::parameters::Name;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use crate::request_guard::Connection;
use sekisho_config::{McpEndpoint, McpToolListing};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json::InvalidJsonKind;
use sekisho_core::peer::ClientSession;
use sekisho_gateway::Gateway;

/// Header that selects how tools are listed.
const LISTING: HeaderName = HeaderName::from_static("x-sekisho-tools");

/// `/mcp`, the virtual servers below it, and the metadata on how to sign in to them.
pub(crate) fn routes(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let server = McpServer::new(gateway);
    let endpoints = Arc::clone(&server);
    let at_endpoint =
        async move |State(gateway), Name(name): Name, request| serve(&endpoints, &gateway, Some(name), request).await;
    Router::new()
        .route("/mcp", any(async move |State(gateway), request| serve(&server, &gateway, None, request).await))
        .route("/mcp/{endpoint}", any(at_endpoint))
        .merge(protected_resource::routes())
}

async fn serve(
    server: &Arc<McpServer>,
    gateway: &Arc<Gateway>,
    endpoint: Option<String>,
    request: Request<Body>,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut meta = match RequestMeta::from_request_parts(&mut parts, gateway).await {
        Ok(meta) => meta,
        Err(error) => return refused(error.into(), &parts, gateway),
    };
    let endpoint = match endpoint.map(|name| gateway.configuration().endpoint(&name, &meta.caller)).transpose() {
        Ok(endpoint) => endpoint.map(Arc::new),
        Err(error) => return ErrorReply::from(error).into_response(),
    };
    if let Some(endpoint) = &endpoint {
        meta.caller = endpoint.narrow(&meta.caller);
    }
    if let Some(forwarding) = &server.forwarding
        && let Some(replica) = forwarding.replica_of_session(&parts)
    {
        let forwarded = forwarding.forward_of_session(&replica, gateway, &parts, body).await;
        return forwarded.unwrap_or_else(|error| ErrorReply::from(error).into_response());
    }
    let response = match parts.method {
        Method::POST => post(server, meta, endpoint, &parts, body).await,
        Method::GET => get(server, &meta, &parts),
        Method::DELETE => delete(server, &meta, &parts),
        _ => Err(HttpRefusal::not_allowed("GET, POST, DELETE")),
    };
    response.unwrap_or_else(IntoResponse::into_response)
}

async fn post(
    server: &Arc<McpServer>,
    meta: RequestMeta,
    endpoint: Option<Arc<McpEndpoint>>,
    parts: &Parts,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let gateway = &server.gateway;
    browser_guard::check(&gateway.configuration().current().server, parts)?;
    if !headers::accepts_events(&parts.headers, true) {
        return Err(HttpRefusal::status(
            StatusCode::NOT_ACCEPTABLE,
            "accept both application/json and text/event-stream",
        ));
    }
    if !headers::sends_json(&parts.headers) {
        return Err(HttpRefusal::status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type must be application/json",
        ));
    }
    let (message, text) = read_message(gateway, Connection::of(parts)?, body).await?;
    let schema = |name: &str| {
        let catalogue = server.catalogues.present(gateway);
        catalogue.schema_with_headers(catalogue.own_name(name, endpoint.as_deref(), &meta.caller), &meta.caller)
    };
    let request = match message {
        Message::Request(request) => request,
        other => {
            if let Message::Notification { method, params } = &other {
                headers::check_repeated(&parts.headers, method, params, schema)
                    .map_err(|error| Refusal::new(error, None))?;
            }
            return no_request(server, &meta, &parts.headers, other);
        }
    };
    if request.meta.protocol_version().is_none() {
        headers::has_sessions(&parts.headers)?;
    }
    let id = request.id.clone();
    let era = headers::era_of(&parts.headers, &request).map_err(|error| Refusal::new(error, Some(id.clone())))?;
    headers::check_repeated(&parts.headers, &request.method, &request.params, schema)
        .map_err(|error| Refusal::new(error, Some(id)))?;
    match era {
        Era::Stateless => {
            if let Some(response) = forwarded(server, parts, &request, text).await? {
                return Ok(response);
            }
            stateless(server, client_context(gateway, meta, endpoint, &parts.headers)?, parts, request).await
        }
        Era::Sessions => {
            drop(text);
            in_session(server, meta, endpoint, parts, request).await
        }
    }
}

/// A notification, or the answer to a question.
fn no_request(
    server: &Arc<McpServer>,
    meta: &RequestMeta,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, HttpRefusal> {
    if !headers::has_sessions(headers)? {
        return match message {
            Message::Answer { .. } | Message::AnswerToNothing => Err(Refusal::new(
                ErrorData::invalid_request("no request of this server waits for an answer", None),
                None,
            )
            .into()),
            Message::Notification { .. } | Message::Request(_) => Ok(StatusCode::ACCEPTED.into_response()),
        };
    }
    let (_, session) = own_session(server, meta, headers)?;
    let _active = session.active();
    session.receive(server, &meta.caller, message);
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The answer of another replica to a request of 2026-07-28, if that replica has the task or call that the request
/// names.
async fn forwarded(
    server: &McpServer,
    parts: &Parts,
    request: &McpRequest,
    text: Bytes,
) -> Result<Option<Response>, CallError> {
    match &server.forwarding {
        Some(forwarding) => forwarding.forward_stateless(&server.gateway, parts, request, text).await,
        None => Ok(None),
    }
}

/// A request of 2026-07-28. Its response ends with it, and dropping the response cancels it.
async fn stateless(
    server: &Arc<McpServer>,
    client: McpClientContext,
    parts: &Parts,
    request: McpRequest,
) -> Result<Response, HttpRefusal> {
    let id = request.id.clone();
    if let Some(version) = request.meta.protocol_version()
        && !ProtocolVersion::KNOWN_VERSIONS.contains(&version)
    {
        let error = ErrorData::unsupported_protocol_version(version, ProtocolVersion::KNOWN_VERSIONS);
        return Err(Refusal::new(error, Some(id)).into());
    }
    if !headers::has_metadata(&request) {
        return Err(Refusal::new(headers::missing_metadata(&request), Some(id)).into());
    }
    let client = Arc::new(client);
    let started = methods::start(server, &client, request, Era::Stateless);
    let mut request = StatelessRequest::new(started, &client.caller);
    let first = match request.next(server).await {
        Sent::Outcome(outcome) => {
            let message = result::message(Era::Stateless, id, outcome);
            let response = reply::json(status_of(&message), &message);
            return Ok(protected_resource::ask_for_scopes(response, &client, parts, &server.gateway));
        }
        Sent::Notification(notification) => ServerJsonRpcMessage::notification(notification),
    };
    let server = Arc::clone(server);
    let later = stream::unfold(Some((request, server, id)), async |state| {
        let (mut request, server, id) = state?;
        Some(match request.next(&server).await {
            Sent::Notification(notification) => {
                (ServerJsonRpcMessage::notification(notification), Some((request, server, id)))
            }
            Sent::Outcome(outcome) => (result::message(Era::Stateless, id, outcome), None),
        })
    });
    let messages = stream::once(async { first }).chain(later);
    Ok(event_response(messages.map(|message| Event { id: None, message: encoded(&message) })))
}

/// The status that 2026-07-28 requires for an error; older revisions define none.
fn status_of(message: &ServerJsonRpcMessage) -> StatusCode {
    let ServerJsonRpcMessage::Error(error) = message else { return StatusCode::OK };
    match error.error.code {
        McpErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        McpErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | McpErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | McpErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A request of a revision with sessions.
async fn in_session(
    server: &Arc<McpServer>,
    meta: RequestMeta,
    endpoint: Option<Arc<McpEndpoint>>,
    parts: &Parts,
    request: McpRequest,
) -> Result<Response, HttpRefusal> {
    let headers = &parts.headers;
    if request.method == "initialize" && !headers.contains_key(&SESSION) {
        return initialize(server, &meta, endpoint.as_deref(), request);
    }
    let (session_id, session) = own_session(server, &meta, headers)?;
    let active = session.active();
    let client = McpClientContext {
        session: Some(Arc::clone(&session)),
        session_id: Some(session_id),
        ..client_context(&server.gateway, meta, endpoint, headers)?
    };
    let (id, client) = (request.id.clone(), Arc::new(client));
    let StartedRequest { running, .. } = methods::start(server, &client, request, Era::Sessions);
    let response = SessionRequest::new(id, running, session, active).answer().await;
    Ok(protected_resource::ask_for_scopes(response, &client, parts, &server.gateway))
}

fn initialize(
    server: &Arc<McpServer>,
    meta: &RequestMeta,
    endpoint: Option<&McpEndpoint>,
    request: McpRequest,
) -> Result<Response, HttpRefusal> {
    let presented = Presented { caller: &meta.caller, over_socket: meta.over_socket, endpoint };
    let (result, capabilities) = match methods::initialize(server, presented, request.params) {
        Ok(initialized) => initialized,
        Err(error) => return Ok(reply::json(StatusCode::OK, &result::message(Era::Sessions, request.id, Err(error)))),
    };
    let (session_id, session) = server.sessions.start(&meta.caller)?;
    session.initialize(capabilities);
    let message = result::message(Era::Sessions, request.id, Ok(result));
    let mut response = reply::json(StatusCode::OK, &message);
    if let Ok(session_id) = session_id.parse() {
        response.headers_mut().insert(SESSION, session_id);
    }
    Ok(response)
}

/// The session's messages outside its requests, or with `Last-Event-ID` the rest of an earlier stream.
fn get(server: &Arc<McpServer>, meta: &RequestMeta, parts: &Parts) -> Result<Response, HttpRefusal> {
    let headers = &parts.headers;
    browser_guard::check(&server.gateway.configuration().current().server, parts)?;
    if !headers::accepts_events(headers, false) {
        let message =
            "a GET opens a stream of messages: send `Accept: text/event-stream`; requests of MCP are sent by POST";
        return Err(HttpRefusal::status(StatusCode::NOT_ACCEPTABLE, message));
    }
    if !headers::has_sessions(headers)? {
        return Err(HttpRefusal::not_allowed("POST"));
    }
    let (_, session) = own_session(server, meta, headers)?;
    let _active = session.active();
    let ended = session.ended().clone();
    let (draining, key_ended) = (server.draining.clone(), server.gateway.keys().ended(&meta.caller));
    // A stream that only waits for events must not delay shutdown, nor go on without its caller's key.
    let until = async move {
        tokio::select! { () = ended.cancelled() => {} () = draining.cancelled() => {} () = key_ended => {} }
    };
    if let Some(last) = headers.get(&LAST_EVENT) {
        // An unknown id gets an empty stream: after an error, clients would repeat the request without end.
        let replayed = last.to_str().ok().and_then(|last| session.events.replay_after(last).ok());
        return Ok(match replayed {
            Some(replayed) => event_response(replayed.take_until(until)),
            None => event_response(stream::empty()),
        });
    }
    let stream = &session.outside;
    // Each message goes to one stream only (streamable HTTP, "Multiple Connections"): a second stream stays silent.
    Ok(match stream.connect() {
        Some(received) => {
            stream.begin();
            event_response(received.take_until(until))
        }
        None => event_response(stream::pending().take_until(until)),
    })
}

fn delete(server: &Arc<McpServer>, meta: &RequestMeta, parts: &Parts) -> Result<Response, HttpRefusal> {
    browser_guard::check(&server.gateway.configuration().current().server, parts)?;
    if !headers::has_sessions(&parts.headers)? {
        return Err(HttpRefusal::not_allowed("POST"));
    }
    let (id, _) = own_session(server, meta, &parts.headers)?;
    server.sessions.end(&id);
    // With 202, the Python SDK reports a failure.
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The message in a body, and its text.
async fn read_message(gateway: &Gateway, connection: &Connection, body: Body) -> Result<(Message, Bytes), HttpRefusal> {
    let (limits, owner) = (BodyLimits::of(&gateway.configuration().current().server), &connection.caller()?.owner);
    let text = connection.memory().read(body, owner, limits).await?;
    if let Some(forwarded) = &connection.forwarded {
        forwarded.check_body(&text)?;
    }
    let checked = match limits.check(&text) {
        Ok(checked) => checked,
        Err(problem) if problem.kind == InvalidJsonKind::TooManyValues => {
            return Err(body::unacceptable(problem).into());
        }
        Err(problem) => return Err(message::unacceptable(&text, &problem).into()),
    };
    let memory = connection.memory().hold(checked, owner, limits).await?;
    let message = checked.read().map_err(|problem| message::unacceptable(&text, &problem))?;
    Ok((message::from_json(message, memory)?, text))
}

/// The caller's session that the header names.
fn own_session(
    server: &McpServer,
    meta: &RequestMeta,
    headers: &HeaderMap,
) -> Result<(String, Arc<McpSession>), HttpRefusal> {
    let Some(id) = headers.get(&SESSION) else {
        let message = "the header Mcp-Session-Id is missing; send `initialize` to start a session";
        return Err(HttpRefusal::status(StatusCode::BAD_REQUEST, message));
    };
    let found = id.to_str().ok().and_then(|id| Some((id.to_owned(), server.sessions.get(&meta.caller, id)?)));
    found.ok_or_else(|| CallError::new(ErrorCode::UnknownSession, "no MCP session has this id").into())
}

fn client_context(
    gateway: &Gateway,
    meta: RequestMeta,
    endpoint: Option<Arc<McpEndpoint>>,
    headers: &HeaderMap,
) -> Result<McpClientContext, HttpRefusal> {
    let listing = match headers.get(&LISTING).map(HeaderValue::as_bytes) {
        None => {
            let of_endpoint = endpoint.as_ref().and_then(|endpoint| endpoint.listing());
            of_endpoint.unwrap_or_else(|| gateway.configuration().current().server.mcp.tools)
        }
        Some(b"search") => McpToolListing::Search,
        Some(b"code_mode") => McpToolListing::CodeMode,
        Some(b"all") => McpToolListing::All,
        Some(b"auto") => McpToolListing::Auto,
        Some(_) => {
            let message = format!("the header {LISTING} must be `all`, `search`, `code_mode` or `auto`");
            return Err(CallError::new(ErrorCode::InvalidRequest, message).into());
        }
    };
    let tokens = Tokens::of(headers)?;
    let RequestMeta { caller, over_socket, request, scopes, trace, .. } = meta;
    let client = McpClientContext::new(caller);
    Ok(McpClientContext { over_socket, endpoint, request, scopes, trace, listing, tokens, ..client })
}

/// Adds to a 401 where the client can sign in.
fn refused(error: CallError, parts: &Parts, gateway: &Gateway) -> Response {
    let is_unauthenticated = error.code() == ErrorCode::Unauthenticated;
    let mut response = ErrorReply::from(error).into_response();
    if is_unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, protected_resource::challenge(parts, gateway));
    }
    response
}
