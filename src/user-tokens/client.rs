//! Requests to the token endpoint of an authorization server (RFC 6749, RFC 7009).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::{Url, form_urlencoded};

use crate::credentials::basic;
use sekisho_config::Secret;
use sekisho_core::call::Deadline;
use sekisho_core::json;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest, OutboundResponse};

/// For each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Responses have a few hundred bytes.
const MAX_BYTES: usize = 64 << 10;

/// Longest lifetime of a token that is believed: the end of one that lasts for millennia is no date that could be stored and read.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Maximum characters of an authorization server's own text in a reason.
const MAX_REASON: usize = 300;

/// The client that this gateway is at one authorization server. Kept with each token, which it renews.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenClient {
    pub token_endpoint: Url,
    pub revocation_endpoint: Option<Url>,
    pub client_id: String,
    /// The secret of a client that registered itself: a client of the configuration is read there.
    pub client_secret: Option<String>,
    /// The server takes the secret only in the body.
    pub secret_in_body: bool,
    /// For whom tokens are (RFC 8707).
    pub resource: Option<String>,
}

impl fmt::Debug for TokenClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenClient").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// How token endpoints are reached.
#[derive(Debug, Clone)]
pub struct TokenRequests {
    pub outbound: Outbound,
    pub allowed: Arc<DomainList>,
    /// The upstream uses TLS, so its sign-in must use TLS too.
    pub is_secure: bool,
}

/// A token response (RFC 6749 §5.1). No `Debug`: it holds tokens.
pub(super) struct TokenAnswer {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) lifetime: Option<Duration>,
    pub(super) scope: Option<String>,
}

/// Why there is no token.
#[derive(Debug, Error)]
pub(super) enum TokenError {
    /// The code or refresh token is not accepted (`invalid_grant`).
    #[error("the authorization server refused it: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

/// The response of RFC 6749 §5.1.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: String,
    /// Seconds.
    #[serde(default)]
    expires_in: Option<f64>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    scope: Option<String>,
}

/// The response of RFC 6749 §5.2.
#[derive(Deserialize)]
struct Problem {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl TokenRequests {
    /// Whether a browser or this gateway may be sent to the address.
    pub fn permits(&self, url: &Url) -> bool {
        let names_nobody = url.username().is_empty() && url.password().is_none();
        names_nobody && (url.scheme() == "https" || (url.scheme() == "http" && !self.is_secure))
    }

    /// Gets a token by the fields of a grant.
    /// Errors: [`TokenError`]; nothing that was sent appears in it.
    pub(super) async fn token(
        &self,
        client: &TokenClient,
        secret: Option<&Secret>,
        grant: &[(&str, &str)],
    ) -> Result<TokenAnswer, TokenError> {
        let resource = client.resource.as_deref().map(|resource| ("resource", resource));
        let fields: Vec<_> = grant.iter().copied().chain(resource).collect();
        let response = self.post(&client.token_endpoint, client, secret, &fields).await?;
        if !response.status.is_success() {
            return Err(refused(client, secret, &response, grant));
        }
        let unusable = || TokenError::Failed("the token server's response contains no bearer token".to_owned());
        let answer: Answer = json::parse_as(&response.body).map_err(|_| unusable())?;
        // RFC 6749 §7.1: a token of an unsupported type must not be used.
        if !answer.token_type.eq_ignore_ascii_case("bearer") {
            return Err(unusable());
        }
        let lifetime = answer.expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let lifetime = lifetime.map(|lifetime| lifetime.min(MAX_LIFETIME));
        let Answer { access_token, refresh_token, scope, .. } = answer;
        Ok(TokenAnswer { access_token, refresh_token, lifetime, scope })
    }

    /// Revokes a token at the authorization server, if that can be done.
    pub(super) async fn revoke(&self, client: &TokenClient, secret: Option<&Secret>, token: &str, kind: &str) {
        let Some(endpoint) = &client.revocation_endpoint else { return };
        let fields = [("token", token), ("token_type_hint", kind)];
        match self.post(endpoint, client, secret, &fields).await {
            Ok(response) if response.status.is_success() => {}
            Ok(response) => tracing::warn!(status = response.status.as_u16(), "a token could not be revoked upstream"),
            Err(error) => tracing::warn!(%error, "a token could not be revoked upstream"),
        }
    }

    async fn post(
        &self,
        url: &Url,
        client: &TokenClient,
        secret: Option<&Secret>,
        fields: &[(&str, &str)],
    ) -> Result<OutboundResponse, TokenError> {
        if !self.permits(url) {
            return Err(TokenError::Failed(format!("{url} is not an address that tokens may be sent to")));
        }
        let secret = secret.map(Secret::expose).or(client.client_secret.as_deref());
        let mut request = OutboundRequest {
            method: Method::POST,
            body: Some(form(client, secret, fields).into()),
            max_response_bytes: MAX_BYTES,
            allowed: &self.allowed,
            ..OutboundRequest::get(url.clone(), Deadline::after(REQUEST_TIMEOUT))
        };
        if let Some(secret) = secret.filter(|_| !client.secret_in_body) {
            // RFC 6749 §2.3.1: id and secret are form-encoded before they become Basic credentials.
            let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            request.headers.insert(header::AUTHORIZATION, basic(&encode(&client.client_id), &encode(secret)));
        }
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(header::CONTENT_TYPE, form_type);
        let sent = self.outbound.send(request).await;
        sent.map_err(|error| TokenError::Failed(format!("the request to the token server failed: {}", error.message())))
    }
}

/// The fields of a request, and the fields by which the client names itself where no header does.
fn form(client: &TokenClient, secret: Option<&str>, fields: &[(&str, &str)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    match secret {
        Some(_) if !client.secret_in_body => {}
        Some(secret) => _ = form.append_pair("client_id", &client.client_id).append_pair("client_secret", secret),
        None => _ = form.append_pair("client_id", &client.client_id),
    }
    form.finish()
}

/// The authorization server's own reason, without the sent values.
fn refused(
    client: &TokenClient,
    secret: Option<&Secret>,
    response: &OutboundResponse,
    grant: &[(&str, &str)],
) -> TokenError {
    let status = response.status.as_u16();
    let Ok(problem) = json::parse_as::<Problem>(&response.body) else {
        return TokenError::Failed(format!("the token server answers with the status {status}"));
    };
    let mut secrets = response.sent.secrets();
    let sent = grant.iter().filter(|(name, _)| *name != "grant_type").map(|(_, value)| *value);
    let secret = secret.map(Secret::expose).or(client.client_secret.as_deref());
    sent.chain(secret).for_each(|secret| secrets.add(secret));
    let reason = reason_of(&problem, &secrets);
    match problem.error.as_str() {
        "invalid_grant" => TokenError::Refused(reason),
        _ => TokenError::Failed(format!("the token server refused the request: {reason}")),
    }
}

fn reason_of(problem: &Problem, secrets: &SentSecrets) -> String {
    let more = problem.error_description.as_deref().map(|more| format!(" ({more})")).unwrap_or_default();
    let text = format!("{}{more}", problem.error);
    secrets.strike(&text).chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
}
