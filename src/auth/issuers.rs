//! The issuers whose tokens are accepted, and which of them a token is of.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::decode_header;
use serde::Deserialize;

use super::issuer_client::IssuerClient;
use super::jwt::{Lifetime, Tokens};
use super::{AuthConfigError, Refusal, SecretDigest, UNKNOWN_KEY};
use sekisho_config::AuthConfig;
use sekisho_core::call::Caller;
use sekisho_core::caller::Owner;

/// At least one issuer.
#[derive(Debug)]
pub(super) struct Issuers(Vec<Tokens>);

const UNTRUSTED: Refusal = Refusal("the token is not from an issuer that this service trusts");

const OF_SESSION: Refusal = Refusal("a token of this gateway begins no other session; sign in with a key");

impl Issuers {
    /// `None` where none is configured. `client` sends the requests to the issuers; without it their keys are in files.
    /// Errors: all errors of the configuration, each with its place.
    pub(super) async fn new(
        config: &AuthConfig,
        client: Option<Arc<dyn IssuerClient>>,
    ) -> Result<Option<Self>, Vec<AuthConfigError>> {
        let (mut issuers, mut errors) = (Vec::new(), Vec::new());
        for index in 0..config.jwt.len() {
            match Tokens::new(config, index, client.as_ref()).await {
                Ok(tokens) => issuers.push(tokens),
                Err(more) => errors.extend(more),
            }
        }
        match errors.is_empty() {
            true => Ok((!issuers.is_empty()).then_some(Self(issuers))),
            false => Err(errors),
        }
    }

    /// Removes the cached data of expired tokens.
    pub(super) fn forget_expired_tokens(&self) {
        self.0.iter().for_each(Tokens::forget_expired);
    }

    /// Takes over the keys of the same issuers.
    pub(super) fn keep_keys_of(&mut self, before: &Self) {
        for tokens in &mut self.0 {
            if let Some(before) = before.0.iter().find(|before| before.issuer() == tokens.issuer()) {
                tokens.keep_keys_of(before);
            }
        }
    }

    /// The caller of a token. `owner`: who waits while an issuer is asked about it; without one none is asked, and a session begins.
    pub(super) async fn verify(
        &self,
        token: &str,
        digest: &SecretDigest,
        owner: Option<&Owner>,
    ) -> Result<Arc<Caller>, Refusal> {
        match (self.0.iter().find_map(Tokens::introspection), owner) {
            (Some((tokens, introspection)), Some(owner)) if !is_signed(token) => {
                // Boxed, because few callers have such a token.
                Box::pin(tokens.introspect(introspection, token, digest, owner)).await
            }
            // No issuer is asked, and no earlier answer counts.
            (Some(_), None) if !is_signed(token) => Err(UNKNOWN_KEY),
            _ if has_three_parts(token) => {
                let tokens = self.of(token)?;
                // What begins with it would outlive its session.
                if owner.is_none() && tokens.has_sessions() {
                    return Err(OF_SESSION);
                }
                tokens.verify(token, digest).await
            }
            _ => Err(UNKNOWN_KEY),
        }
    }

    /// The issuer of the console's sign-in.
    pub(super) fn first(&self) -> Option<&Tokens> {
        self.0.first()
    }

    /// How long a token that was just verified is valid.
    pub(super) fn lifetime(&self, digest: &SecretDigest) -> Option<Lifetime> {
        self.0.iter().find_map(|tokens| tokens.lifetime(digest))
    }

    pub(super) fn is_within(&self, lifetime: &Lifetime) -> bool {
        self.0.iter().any(|tokens| tokens.is_within(lifetime))
    }

    fn of(&self, token: &str) -> Result<&Tokens, Refusal> {
        if let [only] = &*self.0 {
            return Ok(only);
        }
        let issuer = claimed_issuer(token).ok_or(UNTRUSTED)?;
        self.0.iter().find(|tokens| tokens.issuer() == issuer).ok_or(UNTRUSTED)
    }
}

/// The form of a signed token (RFC 7515, compact serialization).
fn has_three_parts(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Whether it is a JSON Web Token, which is verified here.
fn is_signed(token: &str) -> bool {
    has_three_parts(token) && decode_header(token).is_ok()
}

/// The issuer that a token names. Nothing of it is verified yet: it decides by whose keys that is done.
fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
    }
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok().map(|Claims { iss }| iss)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn token(header: &str, payload: &str) -> String {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(header), part(payload), part("signature"))
    }

    #[test]
    fn only_what_has_the_header_of_a_json_web_token_is_verified_here() {
        let signed = token(r#"{"alg": "RS256"}"#, "{}");
        assert!(is_signed(&signed));
        for other in ["a.b.c", "..", "", "opaque", "ya29.a0Af", &signed[1..], &format!("{signed}.more")] {
            assert!(!is_signed(other), "{other}");
        }
    }

    #[test]
    fn hostile_bytes_as_a_token() {
        let seed = token(r#"{"alg": "RS256", "kid": "k"}"#, r#"{"iss": "https://issuer.example", "sub": "ann"}"#);
        sekisho_core::fuzz::feed(&[seed.as_bytes()], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = (is_signed(&text), claimed_issuer(&text));
        });
    }

    proptest! {
        #[test]
        fn the_issuer_that_a_token_names_is_read_as_it_was_written(issuer in any::<String>(), sub in any::<String>()) {
            let token = token("{}", &json!({"sub": sub, "iss": issuer}).to_string());
            prop_assert_eq!(claimed_issuer(&token), Some(issuer));
        }
    }
}
