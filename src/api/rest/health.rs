//! Liveness, readiness and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::caller_of;
use crate::request_guard::Connection;
use sekisho_core::caller::{Caller, DEFAULT_TENANT};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

const EXPOSITION_FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// `ready`; `degraded`: the service runs, but a part of it does not; `unavailable`: it refuses every call.
    status: &'static str,
    /// The id of this replica, where several share a database; shown to the same callers as the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<String>,
    /// Component → reason; shown only to callers with a key, and on loopback.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    degraded: BTreeMap<String, String>,
    /// Setting → advice for the operator; shown to the same callers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<String, String>,
}

/// Liveness: the process runs.
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", tag = "operation", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Response {
    reply::json(StatusCode::OK, &Health { status: "ok" })
}

/// Readiness: calls are accepted (200), or every call is refused (503); lists degraded components to authorized callers.
#[utoipa::path(get, path = "/readyz", operation_id = "getReadiness", tag = "operation",
    responses((status = 200, body = Ready), (status = 503, body = Ready)))]
pub(crate) async fn readyz(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Response {
    let degraded = gateway.status().degraded();
    let (code, status) = match (gateway.readiness.refuses_calls(), degraded.is_empty()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        (false, false) => (StatusCode::OK, "degraded"),
        (false, true) => (StatusCode::OK, "ready"),
    };
    let ready = match caller_from_elsewhere(&gateway, &parts).await {
        Ok(_) => Ready {
            status,
            replica: gateway.cluster().replica_id().map(str::to_owned),
            degraded,
            notes: gateway.configuration_notes().of_settings(),
        },
        Err(_) => Ready { status, replica: None, degraded: BTreeMap::new(), notes: BTreeMap::new() },
    };
    reply::json(code, &ready)
}

/// Prometheus metrics: on another machine for callers of the tenant `default`.
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "operation",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Result<Response, ErrorReply> {
    if let Some(caller) = caller_from_elsewhere(&gateway, &parts).await?
        && &*caller.tenant != DEFAULT_TENANT
    {
        let message = "the metrics name the callers and the budgets of all tenants: from another machine they require a key of the \
                       tenant `default`; or set `server.metrics_listen`";
        return Err(CallError::new(ErrorCode::Denied, message).into());
    }
    Ok(exposition(&gateway))
}

/// The metrics in Prometheus's format.
pub(crate) fn exposition(gateway: &Gateway) -> Response {
    ([(CONTENT_TYPE, EXPOSITION_FORMAT)], gateway.status().metrics_text()).into_response()
}

/// The caller of a request from another machine, with its key or token; `None` for all callers on this machine.
async fn caller_from_elsewhere(gateway: &Gateway, parts: &Parts) -> Result<Option<Arc<Caller>>, CallError> {
    if Connection::of(parts)?.client.is_local {
        return Ok(None);
    }
    let caller = caller_of(parts, gateway).await?;
    if caller.anonymous {
        return Err(CallError::new(
            ErrorCode::Unauthenticated,
            "from another machine the metrics require a key (`Authorization: Bearer KEY`); or set `server.metrics_listen`",
        ));
    }
    Ok(Some(caller))
}
