//! Access tokens of the client credentials flow (RFC 6749 §4.4). A token is cached until shortly before
//! it expires.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded;

use super::basic;
use sekisho_config::Secret;
use sekisho_core::call::Deadline;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest, check_status};

/// How long before its expiry a token is replaced.
const REFRESH_BEFORE: Duration = Duration::from_secs(300);

/// Lifetime of a token whose response has none.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(3_600);

/// Maximum size of a token response, which usually has a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The source of one scheme's tokens, and the current token.
pub struct TokenSource {
    endpoint: TokenEndpoint,
    /// The token URL that was discovered.
    discovered: OnceCell<Url>,
    /// The `Basic` header with the client's id and secret.
    client: HeaderValue,
    body: Bytes,
    /// Held while a token is fetched, so that concurrent calls fetch it only once.
    current: Mutex<Option<Token>>,
}

/// Where tokens come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TokenEndpoint {
    Url(Url),
    /// The address of the provider's description (OpenID Connect Discovery 1.0), which names the token URL.
    Discovery(Url),
}

impl TokenEndpoint {
    fn host(&self) -> &str {
        let (Self::Url(url) | Self::Discovery(url)) = self;
        url.host_str().unwrap_or_default()
    }
}

impl From<Url> for TokenEndpoint {
    fn from(url: Url) -> Self {
        Self::Url(url)
    }
}

/// An access token, or a credential that a caller stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The header that it is sent in.
    pub name: HeaderName,
    pub header: HeaderValue,
    refresh_at: Instant,
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSource").field("host", &self.endpoint.host()).finish_non_exhaustive()
    }
}

impl TokenSource {
    pub fn new(endpoint: impl Into<TokenEndpoint>, client_id: &str, client_secret: &Secret, scopes: &[String]) -> Self {
        // RFC 6749 §2.3.1: id and secret are form-encoded before they become Basic credentials.
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let client = basic(&encode(client_id), &encode(client_secret.expose()));
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !scopes.is_empty() {
            form.append_pair("scope", &scopes.join(" "));
        }
        let (endpoint, discovered) = (endpoint.into(), OnceCell::new());
        Self { endpoint, discovered, client, body: form.finish().into(), current: Mutex::new(None) }
    }

    /// The current token, or a new one.
    /// Errors: `upstream_error` when the token server returns none. The circuit breaker of the API does not count it.
    pub async fn token(
        &self,
        outbound: &Outbound,
        allowed: &DomainList,
        deadline: Deadline,
    ) -> Result<Token, CallError> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|token| token.is_fresh()) {
            return Ok(token.clone());
        }
        let token = self.fetch(outbound, allowed, deadline).await.map_err(|error| {
            let host = self.endpoint.host();
            CallError::new(ErrorCode::UpstreamError, format!("no access token from {host}: {}", error.message()))
                .caused_by(error.cause().unwrap_or_default())
        })?;
        *current = Some(token.clone());
        Ok(token)
    }

    /// Removes a token that the API refused, unless it has been replaced already.
    pub async fn drop_token(&self, refused: &Token) {
        let mut current = self.current.lock().await;
        if current.as_ref() == Some(refused) {
            *current = None;
        }
    }

    /// The values to redact in texts of other services: the client's secret and the current token.
    pub fn add_secrets(&self, secrets: &mut SentSecrets) {
        secrets.add_header(&self.client);
        if let Ok(current) = self.current.try_lock()
            && let Some(token) = &*current
        {
            secrets.add_header(&token.header);
        }
    }

    async fn fetch(&self, outbound: &Outbound, allowed: &DomainList, deadline: Deadline) -> Result<Token, CallError> {
        let mut request = OutboundRequest {
            method: Method::POST,
            body: Some(self.body.clone()),
            max_response_bytes: MAX_ANSWER_BYTES,
            allowed,
            ..OutboundRequest::get(self.url(outbound, allowed, deadline).await?, deadline)
        };
        request.headers.insert(header::AUTHORIZATION, self.client.clone());
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(header::CONTENT_TYPE, form);
        let response = outbound.send(request).await?;
        check_status(&response)?;
        let unusable = || CallError::tool("its response has no bearer token");
        let answer: Answer = json::parse_as(&response.body).map_err(|_| unusable())?;
        let lifetime = answer.expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Token::new(&answer.access_token, lifetime).ok_or_else(unusable)
    }
}

impl TokenSource {
    async fn url(&self, outbound: &Outbound, allowed: &DomainList, deadline: Deadline) -> Result<Url, CallError> {
        let discovery = match &self.endpoint {
            TokenEndpoint::Url(url) => return Ok(url.clone()),
            TokenEndpoint::Discovery(url) => url,
        };
        let discover = async || {
            let request = OutboundRequest {
                max_response_bytes: MAX_ANSWER_BYTES,
                max_redirects: 1,
                allowed,
                ..OutboundRequest::get(discovery.clone(), deadline)
            };
            let response = outbound.send(request).await?;
            check_status(&response)?;
            let unusable = || CallError::tool("its description names no token endpoint");
            let described: Provider = json::parse_as(&response.body).map_err(|_| unusable())?;
            Ok(described.token_endpoint)
        };
        self.discovered.get_or_try_init(discover).await.cloned()
    }
}

impl Token {
    /// `None` if the token is not valid in a header.
    pub fn new(token: &str, lifetime: Option<Duration>) -> Option<Self> {
        let lifetime = lifetime.unwrap_or(UNKNOWN_LIFETIME).min(UNKNOWN_LIFETIME * 24);
        // A token with a lifetime shorter than twice the margin is used for half its lifetime.
        let used = lifetime.checked_sub(REFRESH_BEFORE).unwrap_or_default().max(lifetime / 2);
        let name = header::AUTHORIZATION;
        Some(Self { name, header: super::bearer(token)?, refresh_at: Instant::now() + used })
    }

    /// A credential that is the whole value of a header; `None` if that is no header.
    pub fn in_header(name: &str, value: &str) -> Option<Self> {
        let (name, header) = super::sensitive(name, value)?;
        Some(Self { name, header, refresh_at: Instant::now() + UNKNOWN_LIFETIME })
    }

    /// Whether the token need not be replaced yet.
    pub fn is_fresh(&self) -> bool {
        Instant::now() < self.refresh_at
    }
}

/// The response of RFC 6749 §5.1. No `Debug`, because it contains the token.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// Seconds.
    #[serde(default)]
    expires_in: Option<f64>,
}

/// OpenID Connect Discovery 1.0 §3.
#[derive(Deserialize)]
pub struct Provider {
    token_endpoint: Url,
}
