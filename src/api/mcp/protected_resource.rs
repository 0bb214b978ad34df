//! OAuth 2.0 protected resource metadata (RFC 9728): where a client gets a token for `/mcp`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::api::reply;
use crate::api::request_guard::Connection;
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;

/// RFC 9728 §3: the well-known path precedes the resource's own.
const PATH: &str = "/.well-known/oauth-protected-resource";

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new().route(PATH, get(metadata)).route(&format!("{PATH}/mcp"), get(metadata))
}

/// This document needs no authentication.
async fn metadata(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Response {
    let config = gateway.config();
    let Some(jwt) = &config.auth.jwt else {
        let message = "tokens are not configured (`auth.jwt`); sign in with an API key";
        let mut response = CallError::new(ErrorCode::InvalidRequest, message).into_response();
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let resource = format!("{}/mcp", base(&parts, &gateway));
    let document = json!({
        "resource": resource,
        "resource_name": "sekisho",
        "authorization_servers": [jwt.issuer],
        "bearer_methods_supported": ["header"],
    });
    reply::json(StatusCode::OK, &document)
}

/// `WWW-Authenticate` (RFC 6750 §3, RFC 9728 §5.1) of a 401.
pub(super) fn challenge(parts: &Parts, gateway: &Gateway) -> HeaderValue {
    let plain = HeaderValue::from_static("Bearer");
    if gateway.config().auth.jwt.is_none() {
        return plain;
    }
    HeaderValue::try_from(format!("Bearer resource_metadata=\"{}{PATH}/mcp\"", base(parts, gateway))).unwrap_or(plain)
}

/// The address of this server for clients and browsers: as configured, or by a name of the server in the request.
pub(in crate::api) fn base(parts: &Parts, gateway: &Gateway) -> String {
    let server = &gateway.config().server;
    match (&server.mcp.public_url, Connection::of(parts)) {
        (Some(url), _) => url.as_str().trim_end_matches('/').to_owned(),
        (None, Ok(connection)) => connection.server_url(parts),
        (None, Err(_)) => format!("http://{}", server.listen),
    }
}
