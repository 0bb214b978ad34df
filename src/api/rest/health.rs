//! How the service is: alive, ready, and measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::documentation::ReplyBody;
use crate::api::reply;
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;

const EXPOSITION_FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// `ready`, or `degraded`: the service runs, a part of it does not.
    status: &'static str,
    /// Component → reason; told only to callers with a key, and on loopback.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    degraded: BTreeMap<String, String>,
    /// Setting → what somebody should know of it; told to the same callers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<String, String>,
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "operation", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Response {
    reply::json(StatusCode::OK, &Health { status: "ok" })
}

/// Calls can be taken; names what is degraded to those who may know.
#[utoipa::path(get, path = "/readyz", tag = "operation", responses((status = 200, body = Ready)))]
pub(crate) async fn readyz(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    let degraded = gateway.readiness.degraded();
    let status = if degraded.is_empty() { "ready" } else { "degraded" };
    let ready = match may_look_inside(&gateway, &headers).await {
        Ok(()) => Ready { status, degraded, notes: gateway.config().notes() },
        Err(_) => Ready { status, degraded: BTreeMap::new(), notes: BTreeMap::new() },
    };
    reply::json(StatusCode::OK, &ready)
}

/// Prometheus metrics.
#[utoipa::path(get, path = "/metrics", tag = "operation",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Result<Response, CallError> {
    may_look_inside(&gateway, &headers).await?;
    Ok(exposition(&gateway))
}

/// The metrics as Prometheus reads them.
pub(crate) fn exposition(gateway: &Gateway) -> Response {
    ([(CONTENT_TYPE, EXPOSITION_FORMAT)], gateway.pipeline.settlement.metrics.render()).into_response()
}

/// Everybody on a loopback listener; callers with a key or token elsewhere.
async fn may_look_inside(gateway: &Gateway, headers: &HeaderMap) -> Result<(), CallError> {
    if gateway.config().server.is_loopback() {
        return Ok(());
    }
    let caller = gateway.authenticator().authenticate(headers).await?;
    if caller.anonymous {
        return Err(CallError::new(
            ErrorCode::Unauthenticated,
            "off loopback the metrics need a key (`Authorization: Bearer KEY`), or `server.metrics_listen`",
        ));
    }
    Ok(())
}
