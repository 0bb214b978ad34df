//! The gateway as an OAuth 2.0 protected resource: where a client gets a token for `/mcp` (RFC 9728), and which (RFC 6750).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::client_context::McpClientContext;
use crate::reply;
use crate::request_guard::Connection;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// RFC 9728 §3: the well-known path precedes the resource's own.
const PATH: &str = "/.well-known/oauth-protected-resource";

/// The path of the resource.
const MCP: &str = "/mcp";

/// Longest name of an endpoint.
const MAX_NAME: usize = 64;

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route(PATH, get(metadata))
        .route(&format!("{PATH}{MCP}"), get(metadata))
        .route(&format!("{PATH}{MCP}/{{endpoint}}"), get(metadata))
}

/// This document needs no authentication. It is the same for existing and for unknown endpoints.
async fn metadata(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Response {
    let config = gateway.configuration().current();
    if !config.auth.has_tokens() {
        let message = "tokens are not configured (`auth.jwt`, `auth.broker`); sign in with an API key";
        let error = CallError::new(ErrorCode::InvalidRequest, message);
        let mut response = reply::ErrorReply::from(error).into_response();
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let path = parts.uri.path();
    let resource = format!("{}{}", base(&parts, &gateway), resource_path(path.strip_prefix(PATH).unwrap_or(path)));
    // Clients take the first one.
    let own = config.auth.broker.as_ref().map(|_| config.server.public_address());
    let issuers: Vec<_> = own.into_iter().chain(config.auth.jwt.iter().map(|jwt| jwt.issuer.clone())).collect();
    let mut document = json!({
        "resource": resource,
        "resource_name": "sekisho",
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
    });
    if !config.auth.scopes.is_empty() {
        document["scopes_supported"] = config.auth.scopes.keys().cloned().collect();
    }
    reply::json(StatusCode::OK, &document)
}

/// `WWW-Authenticate` (RFC 6750 §3, RFC 9728 §5.1) of a 401.
pub(super) fn challenge(parts: &Parts, gateway: &Gateway) -> HeaderValue {
    let plain = HeaderValue::from_static("Bearer");
    if !gateway.configuration().current().auth.has_tokens() {
        return plain;
    }
    let sent_one = parts.headers.contains_key(AUTHORIZATION);
    let error = if sent_one { "error=\"invalid_token\", " } else { "" };
    HeaderValue::try_from(format!("Bearer {error}{}", metadata_parameter(parts, gateway))).unwrap_or(plain)
}

/// Asks in the answer to a request for a token with the scopes that it needs, if nothing else is missing (RFC 6750
/// §3.1): 403 with a challenge. A stream has begun with 200, and says it only in the result.
pub(super) fn ask_for_scopes(
    mut response: Response,
    client: &McpClientContext,
    parts: &Parts,
    gateway: &Gateway,
) -> Response {
    let is_complete = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let scopes = client.needed_scopes.get().filter(|_| is_complete);
    if let Some(challenge) = scopes.and_then(|scopes| reply::scope_challenge(scopes)) {
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        name_metadata(&mut response, parts, gateway);
    }
    response
}

/// Adds to the challenge of a 403 where a client gets a token: at the address that the client asked.
pub(super) fn name_metadata(response: &mut Response, parts: &Parts, gateway: &Gateway) {
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|challenge| challenge.to_str().ok());
    let Some(challenge) = challenge.filter(|_| response.status() == StatusCode::FORBIDDEN) else { return };
    // Another replica has named its own address.
    let challenge = challenge.split(", resource_metadata=").next().unwrap_or_default();
    let named = format!("{challenge}, {}", metadata_parameter(parts, gateway));
    if let Ok(named) = HeaderValue::try_from(named) {
        response.headers_mut().insert(WWW_AUTHENTICATE, named);
    }
}

fn metadata_parameter(parts: &Parts, gateway: &Gateway) -> String {
    format!("resource_metadata=\"{}{PATH}{}\"", base(parts, gateway), resource_path(parts.uri.path()))
}

/// The path of the resource that a request is for: of an endpoint, otherwise of all tools.
fn resource_path(path: &str) -> &str {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let name = path.strip_prefix(MCP).and_then(|rest| rest.strip_prefix('/'));
    match name {
        Some(name) if !name.is_empty() && name.len() <= MAX_NAME && is_name(name) => path,
        _ => MCP,
    }
}

/// The address of this server for clients and browsers: as configured, or by a name of the server in the request.
pub(crate) fn base(parts: &Parts, gateway: &Gateway) -> String {
    let server = &gateway.configuration().current().server;
    match (&server.mcp.public_url, Connection::of(parts)) {
        (Some(url), _) => url.as_str().trim_end_matches('/').to_owned(),
        (None, Ok(connection)) => connection.server_url(parts),
        (None, Err(_)) => format!("http://{}", server.listen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_an_endpoint_or_all_tools_and_nothing_else_is_repeated() {
        for (path, expected) in [
            ("/mcp", "/mcp"),
            ("/mcp/finance", "/mcp/finance"),
            ("/mcp/a_b-1", "/mcp/a_b-1"),
            ("", "/mcp"),
            ("/mcp/", "/mcp"),
            ("/mcp/a/b", "/mcp"),
            ("/mcp/a\"b", "/mcp"),
            ("/mcp/%22", "/mcp"),
            ("/mcpfinance", "/mcp"),
            ("/tools/list", "/mcp"),
        ] {
            assert_eq!(resource_path(path), expected, "{path}");
        }
        assert_eq!(resource_path(&format!("/mcp/{}", "a".repeat(65))), "/mcp");
    }
}
