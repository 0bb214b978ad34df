//! Requests to the token endpoint of the identity provider (OpenID Connect Core 1.0 §3.1.3 and §12).

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use sekisho_auth::SignInEndpoints;
use sekisho_config::BrokerConfig;
use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_core::json;
use sekisho_outbound::{Outbound, OutboundRequest, Trust};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of an answer: an ID token may have hundreds of groups.
const MAX_BYTES: usize = 256 << 10;

/// The parts of an answer that are used. No `Debug`: it holds tokens.
#[derive(Deserialize)]
pub(crate) struct ProviderTokens {
    /// Of an exchange (RFC 8693 §2.2.1) the new token, otherwise one for the provider, which is dropped.
    #[serde(default)]
    pub(crate) access_token: Option<String>,
    #[serde(default)]
    pub(crate) issued_token_type: Option<String>,
    #[serde(default)]
    pub(crate) id_token: Option<String>,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
}

/// Why there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderFailure {
    /// The provider does not sign this user in any more, or the code is none of its.
    Refused,
    /// It does not answer, or has a problem with the gateway. The user may be right.
    Failed,
}

/// The fields of RFC 6749 §5.2 that are used.
#[derive(Deserialize)]
struct Problem {
    error: String,
}

/// Errors by which a provider says that a user must sign in again (OpenID Connect Core 1.0 §3.1.2.6).
const REFUSALS: [&str; 5] =
    ["access_denied", "consent_required", "interaction_required", "invalid_grant", "login_required"];

/// Fields of a grant that nobody else may know.
const SECRETS: [&str; 4] = ["code", "code_verifier", "refresh_token", "subject_token"];

/// Asks for tokens by the fields of a grant. Nothing that was sent is logged.
pub(crate) async fn tokens(
    outbound: &Outbound,
    config: &BrokerConfig,
    endpoints: &SignInEndpoints,
    grant: &[(&str, &str)],
) -> Result<ProviderTokens, ProviderFailure> {
    let failed = |cause: &str| {
        tracing::warn!(cause, "the sign-in provider of `auth.broker` gives no tokens");
        ProviderFailure::Failed
    };
    let request = request(config, endpoints, grant).map_err(|error| failed(error.message()))?;
    let answer = outbound.send(request).await.map_err(|error| failed(error.message()))?;
    if answer.status.is_success() {
        return json::parse_as(&answer.body).map_err(|_| failed("its answer has no tokens"));
    }
    match json::parse_as::<Problem>(&answer.body) {
        Ok(Problem { error }) if answer.status.is_client_error() && REFUSALS.contains(&error.as_str()) => {
            tracing::info!(error, "the sign-in provider of `auth.broker` refused a user");
            Err(ProviderFailure::Refused)
        }
        // Of an unknown error a part may be a secret that was sent.
        _ => Err(failed(&format!("it answers with the status {}", answer.status.as_u16()))),
    }
}

fn request(
    config: &BrokerConfig,
    endpoints: &SignInEndpoints,
    grant: &[(&str, &str)],
) -> Result<OutboundRequest<'static>, CallError> {
    // RFC 6749 §2.3.1: id and secret are form-encoded before they become Basic credentials.
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let secret = config.client_secret.expose();
    let credentials = BASE64_STANDARD.encode(format!("{}:{}", encoded(&config.client_id), encoded(secret)));
    let mut authorization = HeaderValue::try_from(format!("Basic {credentials}")).map_err(CallError::internal)?;
    authorization.set_sensitive(true);
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(grant);
    let sent = grant.iter().filter(|(name, _)| SECRETS.contains(name)).map(|(_, value)| *value);
    // The operator chose the issuer, and with it its origin; another one that it names must be public, or permitted.
    let is_own = Url::parse(&config.issuer).is_ok_and(|issuer| issuer.origin() == endpoints.token.origin());
    let mut request = OutboundRequest {
        method: Method::POST,
        body: Some(form.finish().into()),
        max_response_bytes: MAX_BYTES,
        trust: if is_own { Trust::Operator } else { Trust::Caller },
        secrets: Some(sent.chain([secret]).map(str::to_owned).collect()),
        ..OutboundRequest::get(endpoints.token.clone(), Deadline::after(REQUEST_TIMEOUT))
    };
    let headers = [
        (AUTHORIZATION, authorization),
        (ACCEPT, HeaderValue::from_static("application/json")),
        (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
    ];
    request.headers.extend(headers);
    Ok(request)
}
