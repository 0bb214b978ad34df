//! Users' sign-in to MCP servers: begun by an administrator, ended by the browser that the authorization server
//! sends back.

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

use crate::api::documentation::ReplyBody;
use crate::api::mcp::base;
use crate::api::reply;
use crate::api::request::{Name, Parameters, RequestMeta};
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;
use crate::sources::mcp::{Callback, OwnAddresses, SignInError, Started};

const CALLBACK: &str = "/oauth/callback";
const CLIENT_METADATA: &str = "/oauth/client-metadata.json";

/// A sign-in that waits for its user.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignInStarted {
    success: bool,
    /// To be opened in the user's browser.
    authorization_url: String,
    /// Seconds until it is no longer awaited.
    expires_in: u64,
}

/// What the authorization server sends the browser back with.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackParameters {
    state: Option<String>,
    code: Option<String>,
    /// The authorization server that answers (RFC 9207).
    iss: Option<String>,
    /// In the place of a code.
    error: Option<String>,
    error_description: Option<String>,
}

/// Begins a user's sign-in to an MCP server that asks for one. The tokens stay in memory: after a restart the server
/// asks again. For the role `admin`.
#[utoipa::path(post, path = "/tools/mcp/{name}/sign_in", tag = "mcp", params(("name" = String, Path)),
    responses((status = 200, body = SignInStarted), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn start(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
    parts: Parts,
) -> Result<Response, CallError> {
    origin.require_role("admin")?;
    let own = own_addresses(&base(&parts, &gateway))?;
    let started = gateway.mcp_servers().start_sign_in(&name, &own).await.map_err(|fault| refused(&fault))?;
    tracing::info!(server = name, caller = &*origin.caller.id, "a sign-in to an MCP server was begun");
    let Started { authorization_url, expires_in } = started;
    let body =
        SignInStarted { success: true, authorization_url: authorization_url.into(), expires_in: expires_in.as_secs() };
    Ok(unkept(reply::json(StatusCode::OK, &body)))
}

/// Ends the sign-in whose `state` this is. A browser comes here, and has no key.
#[utoipa::path(get, path = CALLBACK, tag = "mcp", params(CallbackParameters),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn finish(
    State(gateway): State<Arc<Gateway>>,
    Parameters(parameters): Parameters<CallbackParameters>,
) -> Response {
    let callback = match parameters.read() {
        Ok(callback) => callback,
        Err(problem) => return unkept(problem.into_response()),
    };
    unkept(match gateway.mcp_servers().finish_sign_in(callback).await {
        Ok(server) => {
            tracing::info!(server, "a user has signed in to an MCP server");
            format!("You are signed in to the MCP server {server}. This window can be closed.\n").into_response()
        }
        Err(fault) => {
            // Anybody can come here with anything, which is not worth a line.
            if matches!(fault, SignInError::Failed { .. }) {
                tracing::warn!(%fault, "a sign-in to an MCP server came to nothing");
            }
            refused(&fault).into_response()
        }
    })
}

/// What we are to authorization servers that read it (OAuth client id metadata document): the address is our id.
#[utoipa::path(get, path = CLIENT_METADATA, tag = "mcp",
    responses((status = 200, body = Value), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn client_metadata(State(gateway): State<Arc<Gateway>>, parts: Parts) -> Result<Response, CallError> {
    let own = own_addresses(&base(&parts, &gateway))?;
    let address = own.client_metadata.ok_or_else(|| {
        invalid("authorization servers cannot read it here; set `server.mcp.public_url` to an https address")
    })?;
    let document = json!({
        "client_id": address,
        "client_name": "sekisho",
        "redirect_uris": [own.callback],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    });
    Ok(reply::json(StatusCode::OK, &document))
}

impl CallbackParameters {
    fn read(self) -> Result<Callback, CallError> {
        let state = self.state.ok_or_else(|| invalid("`state` is missing: this is where a sign-in ends"))?;
        let outcome = match (self.code, self.error) {
            (Some(code), None) => Ok(code),
            (None, Some(error)) => {
                let more = self.error_description.map(|more| format!(" ({more})")).unwrap_or_default();
                Err(format!("{error}{more}"))
            }
            _ => return Err(invalid("one of `code` and `error` is needed")),
        };
        Ok(Callback { state, issuer: self.iss, outcome })
    }
}

/// `base` is where browsers reach us.
fn own_addresses(base: &str) -> Result<OwnAddresses, CallError> {
    let at = |path: &str| Url::parse(&format!("{base}{path}"));
    let callback = at(CALLBACK).map_err(|_| invalid("the Host header names no host; set `server.mcp.public_url`"))?;
    // RFC 8252 §7.3, and what other machines can read.
    let client_metadata = (callback.scheme() == "https").then(|| at(CLIENT_METADATA).ok()).flatten();
    Ok(OwnAddresses { callback, client_metadata })
}

/// Addresses with a state or code in them are nobody else's business.
fn unkept(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn refused(fault: &SignInError) -> CallError {
    let code = match fault {
        SignInError::Failed { .. } => ErrorCode::UpstreamError,
        _ => ErrorCode::InvalidRequest,
    };
    CallError::new(code, fault.to_string())
}

fn invalid(message: &str) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}
