//! The identity provider behind the authorization server of `auth.broker`: where it signs people in, and the claims of its ID tokens.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::issuer_client::IssuerClient;
use super::jwt::Tokens;
use super::{AuthConfigError, SignInEndpoints, token_kind};
use sekisho_config::{AuthConfig, BrokerConfig, JwtConfig, OneOrMany};
use sekisho_core::error::{CallError, ErrorCode};

/// Seconds that the clock of a provider may differ from this machine's.
const LEEWAY_SECONDS: u64 = 30;

/// An OpenID provider of which the gateway is a client.
#[derive(Debug)]
pub struct IdentityProvider {
    tokens: Tokens,
    client_id: String,
}

impl IdentityProvider {
    /// Errors: `internal`: the issuer is no address, which the check of the configuration refuses.
    pub async fn new(config: &BrokerConfig, client: Arc<dyn IssuerClient>) -> Result<Self, CallError> {
        let issuer = JwtConfig {
            issuer: config.issuer.clone(),
            audience: OneOrMany(vec![config.client_id.clone()]),
            jwks_url: None,
            jwks_file: None,
            introspection: None,
            roles_claim: String::new(),
            tenant_claim: String::new(),
            leeway_seconds: LEEWAY_SECONDS,
            subjects_of: None,
        };
        let auth = AuthConfig { jwt: OneOrMany(vec![issuer]), ..AuthConfig::default() };
        let text = |errors: Vec<AuthConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let tokens = Tokens::new(&auth, 0, Some(&client)).await.map_err(|errors| CallError::internal(text(errors)))?;
        Ok(Self { tokens, client_id: config.client_id.clone() })
    }

    /// Where it signs people in. Its metadata is kept for minutes.
    /// Errors: `upstream_error`: it does not answer, or its metadata cannot be used.
    pub async fn endpoints(&self) -> Result<SignInEndpoints, CallError> {
        let unusable = |cause: String| {
            let message = "the metadata of the sign-in provider (`auth.broker.issuer`) cannot be used";
            CallError::new(ErrorCode::UpstreamError, message).caused_by(cause)
        };
        let discovery = self.tokens.discovery().ok_or_else(|| unusable("the issuer is no address".to_owned()))?;
        discovery.sign_in().await.map_err(|error| unusable(error.cause))
    }

    /// The claims of an ID token for the gateway, with this nonce unless it comes from a refresh.
    /// Errors: `unauthenticated`.
    pub async fn claims(&self, id_token: &str, nonce: Option<&str>) -> Result<Map<String, Value>, CallError> {
        Ok(self.tokens.id_token_claims(id_token, &self.client_id, nonce).await?)
    }

    /// The claims of an identity assertion (ID-JAG) for the authorization server that is this audience.
    /// Errors: `unauthenticated`.
    pub async fn assertion(&self, token: &str, audience: &str) -> Result<Map<String, Value>, CallError> {
        Ok(self.tokens.claims_for(token, audience, token_kind::check_assertion_type).await?)
    }
}
