//! Identity assertions for upstreams (ID-JAG): the provider exchanges the ID token of a session for one (RFC 8693,
//! draft-ietf-oauth-identity-assertion-authz-grant-04 §4.3). The gateway is the client there for which the ID token was made.

use sekisho_auth::IdentityProvider;
use sekisho_config::BrokerConfig;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::identity_assertion::AssertedUpstream;
use sekisho_outbound::Outbound;

use super::keys::BrokerKeys;
use super::provider::{ProviderFailure, tokens};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Errors: `sign_in_required`, `token_exchange_failed`; `overloaded` when the store cannot be read.
pub(crate) async fn assertion(
    (keys, outbound): (&BrokerKeys, &Outbound),
    (config, provider): (&BrokerConfig, &IdentityProvider),
    session: &str,
    upstream: AssertedUpstream<'_>,
) -> Result<String, CallError> {
    let id_token = keys.id_token(session, &config.issuer).await?.ok_or_else(|| {
        let message = "the session has no ID token of the sign-in provider: sign in to this gateway again";
        CallError::new(ErrorCode::SignInRequired, message)
    })?;
    let mut fields = vec![
        ("grant_type", EXCHANGE),
        ("requested_token_type", ID_JAG),
        ("audience", upstream.audience),
        ("subject_token", &*id_token),
        ("subject_token_type", ID_TOKEN),
    ];
    fields.extend(upstream.resource.map(|resource| ("resource", resource)));
    fields.extend(Some(("scope", upstream.scopes)).filter(|(_, scopes)| !scopes.is_empty()));
    let failed = |why: &str| {
        let message = format!("the sign-in provider gave no identity assertion for {}: {why}", upstream.audience);
        CallError::new(ErrorCode::TokenExchangeFailed, message).blaming(Blame::Call)
    };
    let endpoints = provider.endpoints().await?;
    let answer = tokens(outbound, config, &endpoints, &fields).await.map_err(|failure| match failure {
        ProviderFailure::Refused => failed("it refuses this user, or the sign-in is too old; sign in again"),
        ProviderFailure::Failed => {
            failed("it does not answer, or does not support this; the log of the gateway says more")
        }
    })?;
    let is_assertion = answer.issued_token_type.as_deref() == Some(ID_JAG);
    answer.access_token.filter(|_| is_assertion).ok_or_else(|| failed("it answers with a token of another type"))
}
