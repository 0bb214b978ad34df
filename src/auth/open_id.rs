//! Sign-in at an OpenID provider (OpenID Connect Core 1.0): authorization code with PKCE (RFC 7636).

use std::fmt;
use std::time::Duration;

use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, ExtraTokenFields, HttpRequest, HttpResponse,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope, StandardRevocableToken, StandardTokenResponse, TokenUrl,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use url::Url;

use crate::{Authenticator, SignInEndpoints, SignedIn};
use sekisho_config::{OidcConfig, Secret};
use sekisho_core::call::Deadline;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::{Outbound, OutboundRequest, Trust};

/// For a request to the provider.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of the provider's token response.
const MAX_BYTES: usize = 256 << 10;

/// A sign-in whose browser is at the provider: the values that must come back with the browser, and the values for the
/// provider then. It is a secret of the browser and the gateway.
#[derive(Serialize, Deserialize)]
pub struct PendingSignIn {
    state: String,
    nonce: String,
    verifier: String,
    /// The address that the browser comes back to.
    redirect: String,
}

/// The parameters with which the browser comes back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderReply {
    state: String,
    code: Option<Secret>,
    iss: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct IdToken {
    id_token: Option<String>,
}

impl ExtraTokenFields for IdToken {}

type TokenResponse = StandardTokenResponse<IdToken, BasicTokenType>;

type ProviderClient = Client<
    BasicErrorResponse,
    TokenResponse,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
>;

/// Begins a sign-in: the address at the provider for the browser, and the pending sign-in. `redirect` is the address
/// that the browser comes back to.
/// Errors: `internal`: `redirect` is no address.
pub fn begin(
    config: &OidcConfig,
    endpoints: &SignInEndpoints,
    redirect: String,
) -> Result<(Url, PendingSignIn), CallError> {
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let nonce = CsrfToken::new_random();
    let client = client(config)
        .set_auth_uri(AuthUrl::from_url(endpoints.authorization.clone()))
        .set_redirect_uri(RedirectUrl::new(redirect.clone()).map_err(CallError::internal)?);
    let scopes = config.scopes.iter().filter(|scope| *scope != "openid").cloned().map(Scope::new);
    let (url, state) = client
        .authorize_url(CsrfToken::new_random)
        .add_scope(Scope::new("openid".to_owned()))
        .add_scopes(scopes)
        .add_extra_param("nonce", nonce.secret())
        .set_pkce_challenge(challenge)
        .url();
    let verifier = verifier.secret().clone();
    Ok((url, PendingSignIn { state: state.into_secret(), nonce: nonce.into_secret(), verifier, redirect }))
}

impl PendingSignIn {
    /// Whether this is the end of this sign-in. Any page can send a browser to the address at which one ends.
    pub fn ends_with(&self, reply: &ProviderReply) -> bool {
        reply.state.as_bytes().ct_eq(self.state.as_bytes()).into()
    }

    /// A name that no other sign-in has.
    pub fn id(&self) -> [u8; 32] {
        Sha256::digest(&self.state).into()
    }

    /// Ends a sign-in with the parameters of the returned browser. `endpoints`: of the issuer at which it began.
    /// Errors: `unauthenticated`: it is of another sign-in, or the provider or the ID token says no; `upstream_error`:
    /// the provider does not answer.
    pub async fn finish(
        self,
        reply: ProviderReply,
        config: &OidcConfig,
        endpoints: SignInEndpoints,
        authenticator: &Authenticator,
        outbound: &Outbound,
    ) -> Result<SignedIn, CallError> {
        let code = self.code(reply, &endpoints)?;
        let redirect = RedirectUrl::new(self.redirect).map_err(CallError::internal)?;
        let client = client(config).set_token_uri(TokenUrl::from_url(endpoints.token)).set_redirect_uri(redirect);
        let send = |request| {
            let outbound = outbound.clone();
            async move { send(request, &outbound).await }
        };
        let request = client.exchange_code(code).set_pkce_verifier(PkceCodeVerifier::new(self.verifier));
        let response = request.request_async(&send).await.map_err(|error| {
            let message = "the sign-in provider gave no token for this sign-in; sign in again";
            CallError::new(ErrorCode::Unauthenticated, message).caused_by(error)
        })?;
        let token = response.extra_fields().id_token.as_deref();
        let token = token.ok_or_else(|| unauthenticated("the sign-in provider sent no ID token"))?;
        authenticator.sign_in_with_id_token(token, &config.client_id, &self.nonce).await
    }

    fn code(&self, reply: ProviderReply, endpoints: &SignInEndpoints) -> Result<AuthorizationCode, CallError> {
        if !self.ends_with(&reply) {
            return Err(unauthenticated("this is the end of another sign-in; sign in again"));
        }
        // RFC 9207: another provider must not bring its code here.
        let is_issuer = reply.iss.as_ref().map_or(!endpoints.names_issuer, |issuer| *issuer == endpoints.issuer);
        if !is_issuer {
            return Err(unauthenticated("the sign-in came back from another provider; sign in again"));
        }
        match (reply.code, reply.error) {
            (Some(code), None) => Ok(AuthorizationCode::new(code.expose().to_owned())),
            (_, Some(error)) => {
                let error: String = error.chars().filter(char::is_ascii_graphic).take(60).collect();
                Err(unauthenticated(&format!("the sign-in provider refused the sign-in: {error}")))
            }
            (None, None) => Err(unauthenticated("the sign-in provider sent no code; sign in again")),
        }
    }
}

impl fmt::Debug for PendingSignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PendingSignIn").field("redirect", &self.redirect).finish_non_exhaustive()
    }
}

fn client(config: &OidcConfig) -> ProviderClient {
    let client = ProviderClient::new(ClientId::new(config.client_id.clone()));
    match &config.client_secret {
        Some(secret) => client.set_client_secret(ClientSecret::new(secret.expose().to_owned())),
        None => client,
    }
}

/// A request to the token endpoint. Errors do not contain the sent values.
async fn send(request: HttpRequest, outbound: &Outbound) -> Result<HttpResponse, CallError> {
    let (head, body) = request.into_parts();
    let url = Url::parse(&head.uri.to_string()).map_err(CallError::internal)?;
    let request = OutboundRequest {
        method: head.method,
        headers: head.headers,
        body: Some(body.into()),
        max_response_bytes: MAX_BYTES,
        trust: Trust::Operator,
        ..OutboundRequest::get(url, Deadline::after(REQUEST_TIMEOUT))
    };
    let answer = outbound.send(request).await?;
    let mut response = HttpResponse::new(answer.body.into());
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    Ok(response)
}

fn unauthenticated(message: &str) -> CallError {
    CallError::new(ErrorCode::Unauthenticated, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> PendingSignIn {
        let redirect = "https://here.example/back".to_owned();
        PendingSignIn { state: "s".into(), nonce: "n".into(), verifier: "v".into(), redirect }
    }

    fn endpoints(names_issuer: bool) -> SignInEndpoints {
        SignInEndpoints {
            issuer: "https://login.example".into(),
            authorization: "https://login.example/authorize".parse().unwrap(),
            token: "https://login.example/token".parse().unwrap(),
            names_issuer,
        }
    }

    fn reply(state: &str, code: Option<&str>, iss: Option<&str>, error: Option<&str>) -> ProviderReply {
        let text = |text: Option<&str>| text.map(str::to_owned);
        ProviderReply { state: state.to_owned(), code: code.map(Secret::new), iss: text(iss), error: text(error) }
    }

    #[test]
    fn only_the_reply_of_this_sign_in_and_this_provider_has_a_code() {
        let ours = Some("https://login.example");
        for (names_issuer, reply, has_code) in [
            (false, reply("s", Some("c"), None, None), true),
            (true, reply("s", Some("c"), ours, None), true),
            (true, reply("s", Some("c"), None, None), false),
            (false, reply("s", Some("c"), Some("https://evil.example"), None), false),
            (false, reply("t", Some("c"), ours, None), false),
            (false, reply("", Some("c"), None, None), false),
            (false, reply("s", None, None, None), false),
            (false, reply("s", Some("c"), None, Some("access_denied")), false),
        ] {
            let debug = format!("{names_issuer} {reply:?}");
            let is_ours = reply.state == "s";
            assert_eq!(pending().ends_with(&reply), is_ours, "{debug}");
            assert_eq!(pending().code(reply, &endpoints(names_issuer)).is_ok(), has_code, "{debug}");
        }
        let denied = reply("s", None, None, Some("access_denied <b>\u{202e}"));
        let refused = pending().code(denied, &endpoints(false)).unwrap_err();
        assert!(refused.message().ends_with(": access_denied<b>"), "{}", refused.message());
    }
}
