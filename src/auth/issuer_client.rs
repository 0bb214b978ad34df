//! Requests to the issuers of tokens: for their metadata, for their keys, and about a token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use thiserror::Error;
use url::{Url, form_urlencoded};

use sekisho_config::IntrospectionConfig;
use sekisho_core::call::Deadline;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::identity_assertion::AssertionSource;
use sekisho_outbound::{Outbound, OutboundRequest, Trust, check_status};

/// For each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests to issuers. The gateway's HTTP client implements it.
pub trait IssuerClient: Send + Sync {
    /// The body of a successful answer, of at most 1 MiB.
    fn ask(&self, request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>>;

    /// Whether the session of a token (`sid`) of the gateway itself goes on.
    fn has_session<'a>(&'a self, _id: &'a str) -> BoxFuture<'a, Result<bool, IssuerError>> {
        Box::pin(async { Ok(false) })
    }

    /// Where assertions about the users of those sessions come from.
    fn assertions(self: Arc<Self>) -> Option<Arc<dyn AssertionSource>> {
        None
    }
}

/// A request to an issuer.
#[derive(Debug)]
pub struct IssuerRequest {
    pub url: Url,
    /// Whether the operator chose the address.
    pub trust: Trust,
    /// The form to post; without it the request is a GET.
    pub question: Option<TokenQuestion>,
}

/// The question about a token (RFC 7662 §2.1).
pub struct TokenQuestion {
    authorization: HeaderValue,
    form: String,
    /// Secrets that the issuer may repeat in an error.
    secrets: Arc<[String]>,
}

/// It holds secrets.
impl fmt::Debug for TokenQuestion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenQuestion").finish_non_exhaustive()
    }
}

/// Why an issuer has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{cause}")]
pub struct IssuerError {
    pub kind: IssuerFailure,
    /// For the log.
    pub cause: String,
}

/// The error for callers: no address, and no text of the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuerFailure {
    NoConnection,
    NoAnswer,
    WrongAnswer,
}

impl IssuerRequest {
    pub(super) fn get(url: Url, trust: Trust) -> Self {
        Self { url, trust, question: None }
    }
}

impl TokenQuestion {
    /// About a token of a caller.
    pub(super) fn new(client: &IntrospectionConfig, token: &str) -> Self {
        let secret = client.client_secret.expose();
        // RFC 6749 §2.3.1: id and secret are form-encoded before they become Basic credentials.
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let credentials = STANDARD.encode(format!("{}:{}", encoded(&client.client_id), encoded(secret)));
        // Base64 is always valid in a header.
        let authorization = HeaderValue::try_from(format!("Basic {credentials}"));
        let mut authorization = authorization.unwrap_or(HeaderValue::from_static(""));
        authorization.set_sensitive(true);
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token).append_pair("token_type_hint", "access_token");
        Self { authorization, form: form.finish(), secrets: Arc::from([token.to_owned(), secret.to_owned()]) }
    }

    #[cfg(test)]
    pub(super) fn form(&self) -> &str {
        &self.form
    }
}

impl IssuerError {
    pub(super) fn wrong(cause: impl Into<String>) -> Self {
        Self { kind: IssuerFailure::WrongAnswer, cause: cause.into() }
    }

    pub(super) fn late(timeout: Duration) -> Self {
        Self { kind: IssuerFailure::NoAnswer, cause: format!("no answer in {} s", timeout.as_secs()) }
    }
}

impl From<CallError> for IssuerError {
    fn from(error: CallError) -> Self {
        let kind = match (error.code(), error.blame()) {
            (ErrorCode::Timeout, _) => IssuerFailure::NoAnswer,
            (_, Blame::Network) => IssuerFailure::NoConnection,
            _ => IssuerFailure::WrongAnswer,
        };
        Self { kind, cause: error.to_string() }
    }
}

/// Redirects are not followed. Where the operator chose the address, it may be private.
impl IssuerClient for Outbound {
    fn ask(&self, request: IssuerRequest) -> BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
        let IssuerRequest { url, trust, question } = request;
        let mut outgoing = OutboundRequest { trust, ..OutboundRequest::get(url, Deadline::after(REQUEST_TIMEOUT)) };
        if let Some(TokenQuestion { authorization, form, secrets }) = question {
            outgoing.method = Method::POST;
            outgoing.headers.insert(AUTHORIZATION, authorization);
            outgoing.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            outgoing.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            outgoing.body = Some(form.into());
            outgoing.secrets = Some(secrets);
        }
        Box::pin(async move {
            let response = self.send(outgoing).await?;
            check_status(&response)?;
            Ok(response.body.into())
        })
    }
}
