//! Users' sign-in to MCP servers: started by an administrator, completed by the browser that the authorization server
//! redirects back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;
use utoipa::{IntoParams, ToSchema};

use super::recorded;
use crate::broker;
use crate::documentation::ReplyBody;
use crate::mcp::base;
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use crate::request_guard::Connection;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_broker::{ProviderReply, id_of_state};
use sekisho_config::Secret;
use sekisho_core::administration::{Administrator, AdministratorProof};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Gateway, SourceKind};
use sekisho_mcp_client::{Callback, OwnAddresses, SignInError, Started};

const CALLBACK: &str = "/oauth/callback";
const CLIENT_METADATA: &str = "/oauth/client-metadata.json";

/// Where the browser of a caller who signs in on its own comes back to: a page of the console, which has its cookie.
const CALLBACK_OF_CALLERS: &str = "/console/upstream-sign-in/callback";

/// A sign-in that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignInStarted {
    success: bool,
    /// The address to open in the user's browser.
    authorization_url: String,
    /// Seconds until the sign-in expires.
    expires_in: u64,
}

/// The query that the authorization server adds to the redirect.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackParameters {
    state: Option<String>,
    code: Option<String>,
    /// The issuer of the authorization server (RFC 9207).
    iss: Option<String>,
    /// Sent instead of a code.
    error: Option<String>,
    error_description: Option<String>,
}

/// Starts a user's sign-in to an MCP server that requires one. The tokens are kept in memory only: after a restart
/// the user must sign in again. All callers of the server use it, so that it is for administrators of the tenant `default`, and for a
/// server of a tenant also for those of the tenant.
#[utoipa::path(post, path = "/tools/mcp/{name}/sign_in", operation_id = "startSignIn", tag = "mcp", params(("name" = String, Path)),
    responses((status = 200, body = SignInStarted), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn start(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
    parts: Parts,
) -> Result<Response, ErrorReply> {
    Administrator::of(&meta.caller)?;
    let status = gateway.sources().find(&meta.caller, SourceKind::Mcp, &name).await?;
    let by = Administrator::for_owner(&meta.caller, &status.owner)?;
    let start = begin(&by, &gateway, &name, &parts)?;
    let started = recorded(&gateway, &meta, EventKind::SignInStarted, &name, start).await?;
    tracing::info!(server = name, caller = &*meta.caller.id, "a sign-in to an MCP server was started");
    let Started { authorization_url, expires_in } = started;
    let body =
        SignInStarted { success: true, authorization_url: authorization_url.into(), expires_in: expires_in.as_secs() };
    Ok(not_stored(reply::json(StatusCode::OK, &body)))
}

/// The start of a sign-in to a server, of a browser that reaches this service as `parts` says.
///
/// # Errors
/// `invalid_request`: the request names no valid host. From the start: `not_found` when the owner has no such server
/// any more.
pub fn begin(
    by: &Administrator,
    gateway: &Arc<Gateway>,
    server: &str,
    parts: &Parts,
) -> Result<impl Future<Output = Result<Started, CallError>> + Send + 'static, CallError> {
    let own = own_addresses(&base(parts, gateway))?;
    let (gateway, server, owner) = (Arc::clone(gateway), server.to_owned(), by.owner().clone());
    Ok(async move {
        let started = gateway.mcp_servers().start_sign_in(&server, &owner, &own).await;
        started.map_err(|error| refused(&error))
    })
}

/// Completes the sign-in with this `state`: to an MCP server, or of a user of the authorization server. The browser that is redirected here has no key.
#[utoipa::path(get, path = CALLBACK, operation_id = "finishSignIn", tag = "mcp", params(CallbackParameters),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn finish(
    State(gateway): State<Arc<Gateway>>,
    parts: Parts,
    Parameters(parameters): Parameters<CallbackParameters>,
) -> Response {
    if parameters.state.as_deref().is_some_and(|state| id_of_state(state).is_some()) {
        return broker::callback(&gateway, &parts, parameters.into_reply()).await;
    }
    let callback = match parameters.read() {
        Ok(callback) => callback,
        Err(problem) => return not_stored(ErrorReply::from(problem).into_response()),
    };
    not_stored(match gateway.mcp_servers().finish_sign_in(callback).await {
        Ok(server) => {
            tracing::info!(server, "a user has signed in to an MCP server");
            let event = AuditEvent { subject: Some(server.clone()), ..AuditEvent::new(EventKind::SignInFinished) };
            let request = Connection::of(&parts).ok().map(|connection| &connection.request);
            gateway.pipeline.settlement.audit.event(event.of_request(request, None));
            format!("You are signed in to the MCP server {server}. This window can be closed.\n").into_response()
        }
        Err(error) => {
            // Anyone can send requests here, so invalid ones are not logged.
            if matches!(error, SignInError::Failed { .. }) {
                tracing::warn!(fault = %error, "a sign-in to an MCP server failed");
            }
            ErrorReply::from(refused(&error)).into_response()
        }
    })
}

/// This service's OAuth client id metadata document: its address is the client id.
#[utoipa::path(get, path = CLIENT_METADATA, operation_id = "getClientMetadata", tag = "mcp",
    responses((status = 200, body = Value), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn client_metadata(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Result<Response, ErrorReply> {
    let own = own_addresses(&base(&parts, &gateway))?;
    let address = own.client_metadata.ok_or_else(|| {
        CallError::invalid(
            "authorization servers cannot reach this address; set `server.mcp.public_url` to an https address",
        )
    })?;
    let document = json!({
        "client_id": address,
        "client_name": "sekisho",
        "redirect_uris": [own.callback, user_addresses(&parts, &gateway)?.callback],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    });
    Ok(reply::json(StatusCode::OK, &document))
}

impl CallbackParameters {
    fn into_reply(self) -> ProviderReply {
        let Self { state, code, iss, error, error_description: _ } = self;
        ProviderReply { state: state.unwrap_or_default(), code: code.map(Secret::new), iss, error }
    }

    fn read(self) -> Result<Callback, CallError> {
        let state = self.state.ok_or_else(|| {
            CallError::invalid("`state` is missing; an authorization server sends it at the end of a sign-in")
        })?;
        let outcome = match (self.code, self.error) {
            (Some(code), None) => Ok(code),
            (None, Some(error)) => {
                let more = self.error_description.map(|more| format!(" ({more})")).unwrap_or_default();
                Err(format!("{error}{more}"))
            }
            _ => return Err(CallError::invalid("`code` or `error` is required, but not both")),
        };
        Ok(Callback { state, issuer: self.iss, outcome })
    }
}

/// The addresses for callers who sign in on their own.
///
/// # Errors
/// `invalid_request`: the request names no valid host.
pub fn user_addresses(parts: &Parts, gateway: &Gateway) -> Result<OwnAddresses, CallError> {
    let own = own_addresses(&base(parts, gateway))?;
    let callback = own.callback.join(CALLBACK_OF_CALLERS).map_err(CallError::internal)?;
    Ok(OwnAddresses { callback, ..own })
}

/// `base` is the address at which browsers reach this service.
fn own_addresses(base: &str) -> Result<OwnAddresses, CallError> {
    let at = |path: &str| Url::parse(&format!("{base}{path}"));
    let callback = at(CALLBACK)
        .map_err(|_| CallError::invalid("the `Host` header has no valid host; set `server.mcp.public_url`"))?;
    // Redirects to loopback may use http (RFC 8252 §7.3); authorization servers fetch the metadata over https.
    let client_metadata = (callback.scheme() == "https").then(|| at(CLIENT_METADATA).ok()).flatten();
    Ok(OwnAddresses { callback, client_metadata })
}

/// Keeps addresses with a state or code out of referrers and caches.
fn not_stored(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn refused(error: &SignInError) -> CallError {
    let code = match error {
        SignInError::Failed { .. } => ErrorCode::UpstreamError,
        _ => ErrorCode::InvalidRequest,
    };
    CallError::new(code, error.to_string())
}
