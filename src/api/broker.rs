//! The gateway as authorization server (`auth.broker`): the addresses for clients and for the browsers of their users.

pub(super) mod browser;
mod page;
pub(super) mod sessions;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use super::body::declares_json;
use super::documentation::ReplyBody;
use super::page_request::{read_body, read_form};
use super::reply;
use super::request::RequestMeta;
use super::request_guard::Connection;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_broker::{MAX_METADATA_BYTES, OAuthError, OAuthErrorCode, SessionEvent, TokenRefusal};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_gateway::Gateway;

pub(super) use self::browser::callback;

/// RFC 8414 §3: the well-known path precedes the resource's path, which some clients append.
const METADATA: &str = "/.well-known/oauth-authorization-server";

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route(METADATA, get(metadata))
        .route(&format!("{METADATA}/mcp"), get(metadata))
        .route(&format!("{METADATA}/mcp/{{endpoint}}"), get(metadata))
}

/// This document needs no authentication, as those below `/oauth` that clients and browsers ask for.
async fn metadata(State(gateway): State<Arc<Gateway>>) -> Response {
    let config = gateway.configuration().current();
    match gateway.broker().server(&config) {
        Some(server) => reply::json(StatusCode::OK, &server.metadata()),
        None => off(),
    }
}

/// The keys of the gateway's own tokens (RFC 7517).
#[utoipa::path(get, path = "/oauth/jwks", operation_id = "getSigningKeys", tag = "authorization",
    responses((status = 200, body = Value), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn keys(State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    if gateway.configuration().current().auth.broker.is_none() {
        return Ok(off());
    }
    Ok(reply::json(StatusCode::OK, &gateway.broker().published_keys().await?))
}

/// Registers a client of the authorization server (RFC 7591).
#[utoipa::path(post, path = "/oauth/register", operation_id = "registerClient", tag = "authorization", request_body = Value,
    responses((status = 201, body = Value), (status = "4XX", body = Value), (status = "5XX", body = Value)))]
pub(super) async fn register(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return off() };
    let invalid = |why: String| OAuthError::new(OAuthErrorCode::InvalidClientMetadata, why);
    let registered = async {
        // A page of another site can send no JSON, so that its readers register nothing for it.
        if !declares_json(&parts.headers) {
            return Err(invalid("the body must be JSON; send `content-type: application/json`".to_owned()));
        }
        let bytes = read_body(&parts, body, &Connection::of(&parts)?.client_owner, &gateway).await?;
        if bytes.len() > MAX_METADATA_BYTES {
            return Err(invalid(format!("the body is longer than {MAX_METADATA_BYTES} bytes")));
        }
        let metadata = json::parse(&bytes).map_err(|error| invalid(format!("the body is no JSON: {error}")))?;
        server.register(metadata, &network(&parts)?).await
    };
    match registered.await {
        Ok(client) => {
            let subject = client["client_id"].as_str().map(str::to_owned);
            record(&gateway, &parts, AuditEvent { subject, ..AuditEvent::new(EventKind::OauthClientRegistered) });
            not_stored(reply::json(StatusCode::CREATED, &client))
        }
        Err(error) => refused(&error),
    }
}

/// Exchanges a code, a refresh token, or an identity assertion of the provider (ID-JAG, RFC 7523) for tokens (RFC 6749 §3.2).
#[utoipa::path(post, path = "/oauth/token", operation_id = "getToken", tag = "authorization",
    request_body(content = Value, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Value), (status = "4XX", body = Value), (status = "5XX", body = Value)))]
pub(super) async fn token(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if gateway.configuration().current().auth.broker.is_none() {
        return off();
    }
    let form = match form(&gateway, &parts, body).await {
        Ok(form) => form,
        Err(error) => return refused(&error),
    };
    let (service, authorization) = (Arc::clone(&gateway), parts.headers.get(AUTHORIZATION).cloned());
    let work = async move {
        let config = service.configuration().current();
        match service.broker().server(&config) {
            Some(server) => Box::pin(server.token(form, authorization.as_ref())).await.map_err(Some),
            None => Err(None),
        }
    };
    match gateway.background().run_to_end(work).await {
        Ok(answer) => {
            record_session(&gateway, &parts, answer.event.clone());
            not_stored(reply::json(StatusCode::OK, &answer))
        }
        Err(Some(TokenRefusal { error, event })) => {
            record_session(&gateway, &parts, event);
            refused(&error)
        }
        Err(None) => off(),
    }
}

/// Ends the session of a token (RFC 7009).
#[utoipa::path(post, path = "/oauth/revoke", operation_id = "revokeToken", tag = "authorization",
    request_body(content = Value, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "The token is of no use any more."), (status = "4XX", body = Value), (status = "5XX", body = Value)))]
pub(super) async fn revoke(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return off() };
    let revoked = async { server.revoke(form(&gateway, &parts, body).await?).await };
    match revoked.await {
        Ok(event) => {
            record_session(&gateway, &parts, event);
            not_stored(StatusCode::OK.into_response())
        }
        Err(error) => refused(&error),
    }
}

/// The state of a token of the authorization server (RFC 7662), for callers of its tenant.
#[utoipa::path(post, path = "/oauth/introspect", operation_id = "introspectToken", tag = "authorization",
    request_body(content = Value, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Value), (status = "4XX", body = Value), (status = "5XX", body = Value)))]
pub(super) async fn introspect(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, ErrorReply> {
    let (parts, body) = request.into_parts();
    if meta.caller.anonymous {
        let message = "tokens are shown to callers with credentials: send a key or a token";
        return Err(CallError::new(ErrorCode::Unauthenticated, message).into());
    }
    let config = gateway.configuration().current();
    let Some(server) = gateway.broker().server(&config) else { return Ok(off()) };
    let tenant = (!meta.caller.administers_shared()).then_some(&*meta.caller.tenant);
    let found = async { server.introspect(form(&gateway, &parts, body).await?, tenant).await };
    Ok(match found.await {
        Ok(state) => not_stored(reply::json(StatusCode::OK, &state)),
        Err(error) => refused(&error),
    })
}

async fn form(gateway: &Gateway, parts: &Parts, body: Body) -> Result<Vec<(String, String)>, OAuthError> {
    let owner = &Connection::of(parts)?.client_owner;
    Ok(read_form(parts, body, owner, gateway).await?)
}

/// The network of a request, as it is stored.
fn network(parts: &Parts) -> Result<String, CallError> {
    let owner = &Connection::of(parts)?.client_owner.caller;
    Ok(hex::encode(&Sha256::digest(owner.as_bytes())[..16]))
}

fn record(gateway: &Gateway, parts: &Parts, event: AuditEvent) {
    let request = Connection::of(parts).ok().map(|connection| &connection.request);
    gateway.pipeline.settlement.audit.event(event.of_request(request, None));
}

fn record_session(gateway: &Gateway, parts: &Parts, event: Option<SessionEvent>) {
    let Some(SessionEvent { is_start, session, detail }) = event else { return };
    let kind = if is_start { EventKind::OauthSessionStarted } else { EventKind::OauthSessionEnded };
    record(gateway, parts, AuditEvent { subject: Some(session), detail: Some(detail), ..AuditEvent::new(kind) });
}

fn off() -> Response {
    let message = "this gateway is no authorization server (`auth.broker`)";
    ErrorReply::from(CallError::new(ErrorCode::NotFound, message)).into_response()
}

/// RFC 6749 §5.2.
fn status(error: &OAuthError) -> StatusCode {
    match (error.code, error.retry_after) {
        (_, Some(_)) => StatusCode::TOO_MANY_REQUESTS,
        (OAuthErrorCode::ServerError, None) => StatusCode::INTERNAL_SERVER_ERROR,
        (OAuthErrorCode::TemporarilyUnavailable, None) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn refused(error: &OAuthError) -> Response {
    let mut response = with_retry(reply::json(status(error), error), error);
    // Clients with a secret authenticate themselves; others are refused at a page.
    if error.code == OAuthErrorCode::InvalidClient {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"sekisho\""));
    }
    response
}

fn with_retry(response: Response, error: &OAuthError) -> Response {
    let mut response = not_stored(response);
    let is_later = error.code == OAuthErrorCode::TemporarilyUnavailable;
    if let Some(seconds) = error.retry_after.or(is_later.then_some(10)) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn not_stored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
