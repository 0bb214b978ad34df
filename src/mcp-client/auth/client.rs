//! The library's sign-in requests use our own outbound client, since every address comes from an untrusted server.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use thiserror::Error;
use url::Url;

use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{DomainList, Outbound, OutboundRequest};

/// Metadata, registrations and tokens are a few kilobytes.
const MAX_BYTES: usize = 64 << 10;

/// One request of a sign-in.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests of one step of a sign-in. Discovery tries some ten addresses; a document with a thousand
/// authorization servers would cause thousands of requests.
const MAX_REQUESTS: u32 = 32;

/// Why a sign-in request is refused.
#[derive(Debug, Error)]
enum Refused {
    #[error("{0} is not https, but the server's address is")]
    Downgrade(Url),
    #[error("it needs more than {MAX_REQUESTS} requests")]
    TooMany,
    #[error("{0:?} is not an address")]
    NoAddress(String),
    #[error("{}", .0.message())]
    Failed(CallError),
}

#[derive(Debug)]
pub(super) struct Guarded {
    outbound: Outbound,
    /// `outbound.mcp_allowed_domains`.
    allowed: Arc<DomainList>,
    /// The server uses TLS, so its sign-in must use TLS too.
    secure: bool,
    left: AtomicU32,
    /// Why the last request of this step had no response: not all of the library's errors contain it.
    failure: Mutex<Option<String>>,
}

impl Guarded {
    pub(super) fn new(outbound: Outbound, allowed: Arc<DomainList>, server: &Url) -> Self {
        Self {
            outbound,
            allowed,
            secure: server.scheme() == "https",
            left: AtomicU32::new(0),
            failure: Mutex::default(),
        }
    }

    pub(super) fn reaches_as(&self, outbound: &Outbound, allowed: &DomainList) -> bool {
        *self.allowed == *allowed && self.outbound.reaches_as(outbound)
    }

    /// Begins another step of a sign-in.
    pub(super) fn begin(&self) {
        self.left.store(MAX_REQUESTS, Ordering::Relaxed);
        self.remember(None);
    }

    /// Why the last request had no response.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn remember(&self, failure: Option<String>) {
        *self.failure.lock() = failure;
    }

    /// Whether a browser or this gateway may request the address.
    pub(super) fn permits(&self, url: &Url) -> bool {
        url.scheme() == "https" || (url.scheme() == "http" && !self.secure)
    }

    async fn send(&self, request: OAuthHttpRequest) -> Result<oauth2::HttpResponse, Refused> {
        let (head, body) = request.request.into_parts();
        let written = head.uri.to_string();
        let url = Url::parse(&written).map_err(|_| Refused::NoAddress(written))?;
        if !self.permits(&url) {
            return Err(Refused::Downgrade(url));
        }
        let spend = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).map_err(|_| Refused::TooMany)?;
        let request = OutboundRequest {
            method: head.method,
            headers: head.headers,
            body: (!body.is_empty()).then(|| body.into()),
            max_response_bytes: MAX_BYTES,
            // A redirect is returned: the library follows only redirects of metadata on one origin.
            max_redirects: 0,
            allowed: &self.allowed,
            ..OutboundRequest::get(url, Deadline::after(REQUEST_TIMEOUT))
        };
        let mut secrets = SentSecrets::default();
        secrets_of_form(request.body.as_deref().unwrap_or_default()).for_each(|secret| secrets.add(&secret));
        let answer = self.outbound.send(request).await.map_err(Refused::Failed)?;
        let body = match answer.status.is_success() {
            true => answer.body.into(),
            // The library reports only the error's text.
            false => {
                secrets.add_headers(&answer.sent.headers);
                secrets.strike(&String::from_utf8_lossy(&answer.body)).into_owned().into_bytes()
            }
        };
        let mut response = oauth2::HttpResponse::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

/// The secret fields of a token request (RFC 6749, RFC 7636).
fn secrets_of_form(form: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    const FIELDS: [&str; 5] = ["client_secret", "code", "code_verifier", "refresh_token", "client_assertion"];
    let fields = url::form_urlencoded::parse(form).filter(|(name, _)| FIELDS.contains(&&**name));
    fields.map(|(_, value)| value)
}

impl OAuthHttpClient for Guarded {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let answer = self.send(request).await;
            self.remember(answer.as_ref().err().map(ToString::to_string));
            answer.map_err(Into::into)
        })
    }
}
