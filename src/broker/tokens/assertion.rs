//! The grant of an identity assertion (ID-JAG): the provider has decided that a user may use this gateway with a client, and no page asks
//! (draft-ietf-oauth-identity-assertion-authz-grant-04 §4.4, RFC 7523 §2.1; MCP's extension "Enterprise-Managed Authorization").
//!
//! Assertions are of the provider where users sign in, so that their subjects and the rules for roles are the same. Their clients have a
//! secret (§8.1 of the draft): an assertion that was stolen is of no use without it. There is no refresh token: the provider is asked for
//! another assertion, and decides again.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::{SessionGrant, TokenAnswer, TokenRefusal};
use crate::authorization::{Fields, digest, is_equal, is_own_resource};
use crate::error::{OAuthError, OAuthErrorCode};
use crate::server::AuthorizationServer;
use crate::user::User;
use sekisho_config::Secret;

pub(crate) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// In the metadata (§7.2 of the draft).
pub(crate) const PROFILE: &str = "urn:ietf:params:oauth:grant-profile:id-jag";

/// Longest rest of the life of an assertion. Its use is known for ten minutes, as the use of a code.
const MAX_SECONDS_LEFT: i64 = 540;

/// Seconds that the provider's clock may differ, as for its other tokens.
const LEEWAY_SECONDS: i64 = 30;

impl AuthorizationServer<'_> {
    /// Exchanges an assertion for an access token. `authorization`: the header of the request.
    pub(super) async fn grant(
        &self,
        fields: &Fields,
        authorization: Option<&HeaderValue>,
    ) -> Result<TokenAnswer, TokenRefusal> {
        let client = self.authenticated(fields, authorization)?;
        self.check_resource(fields, None)?;
        let provider = self.broker.provider(self.config).await?;
        let claims = provider.assertion(fields.need("assertion")?, &self.issuer()).await;
        let claims = claims.map_err(|error| OAuthError::invalid_grant(error.message()))?;
        let id = id_of(&claims, &self.issuer(), &client, self.now()).map_err(OAuthError::invalid_grant)?;
        let user = User::of(&claims, self.config).map_err(|error| OAuthError::invalid_grant(&error.description))?;
        let scope = self.scope_of(&claims, fields);
        let session = self.use_assertion(id).await?;
        let grant = SessionGrant { user, scope, refresh_token: None, id_token: None };
        self.start(&session, (&client, &client), grant).await
    }

    /// The client, which shows its secret by HTTP Basic or in the form (RFC 6749 §2.3.1).
    fn authenticated(&self, fields: &Fields, authorization: Option<&HeaderValue>) -> Result<String, OAuthError> {
        let named = fields.get("client_id");
        let sent = match authorization {
            Some(header) => basic(header).filter(|(id, _)| named.is_none_or(|named| named == id)),
            None => named.zip(fields.get("client_secret")).map(|(id, secret)| (id.to_owned(), Secret::new(secret))),
        };
        let is_own = |own: &Secret, secret: &Secret| is_equal(&digest(own.expose()), &digest(secret.expose()));
        let known =
            sent.filter(|(id, secret)| self.config.assertion_clients.get(id).is_some_and(|own| is_own(own, secret)));
        known.map(|(id, _)| id).ok_or_else(|| {
            let why = "the client is unknown, or its secret is wrong or missing: send the id and the secret of \
                       `auth.broker.assertion_clients` by HTTP Basic or in the form";
            OAuthError::new(OAuthErrorCode::InvalidClient, why)
        })
    }

    /// The scopes that the provider gave, tools need, and the client asks for, if it names some.
    fn scope_of(&self, claims: &Map<String, Value>, fields: &Fields) -> String {
        let given = claims.get("scope").and_then(Value::as_str).unwrap_or_default();
        let has = |list: &str, scope: &str| list.split_ascii_whitespace().any(|one| one == scope);
        let is_granted = |scope: &&str| has(given, scope) && fields.get("scope").is_none_or(|asked| has(asked, scope));
        self.scopes().map(String::as_str).filter(is_granted).collect::<Vec<_>>().join(" ")
    }

    /// The session of an assertion that is presented for the first time. A replay ends it: somebody else has the assertion, too.
    async fn use_assertion(&self, id: &str) -> Result<String, TokenRefusal> {
        let (store, session) = (&self.broker.keys.store, hex::encode(rand::random::<[u8; 16]>()));
        // No code has a digest of this form.
        let digest = format!("id-jag {}", digest(&format!("{} {id}", self.config.issuer)));
        store.add_code(&digest, &session, "").await?;
        let presented = store.present_code(&digest).await?;
        let presented = presented.ok_or_else(|| {
            OAuthError::unavailable("too many assertions are presented at once; try again in a minute")
        })?;
        if presented.is_valid {
            return Ok(presented.session);
        }
        let refused =
            OAuthError::invalid_grant("the assertion was presented before: get another one from the provider");
        let ended = store.end_session(&presented.session, None).await?;
        Err(TokenRefusal::ended(refused, ended.as_ref(), "its assertion was presented twice"))
    }
}

/// The id and the secret of HTTP Basic. Each is form-encoded; clients that leave that out send no `%`, but may send `+` or `=`.
fn basic(header: &HeaderValue) -> Option<(String, Secret)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    let bytes = BASE64_STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(bytes).ok()?;
    let (id, secret) = text.split_once(':')?;
    let decoded = |part: &str| match part.contains('%') {
        true => form_urlencoded::parse(part.as_bytes()).next().map(|(text, _)| text.into_owned()),
        false => Some(part.to_owned()),
    };
    Some((decoded(id)?, Secret::new(decoded(secret)?)))
}

/// The id of an assertion that this client may present now, of its verified claims (§3.1 and §4.4.1 of the draft).
fn id_of<'a>(claims: &'a Map<String, Value>, issuer: &str, client: &str, now: i64) -> Result<&'a str, &'static str> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let moment = |name: &str| claims.get(name).and_then(Value::as_i64);
    if claims.get("aud").and_then(Value::as_array).is_some_and(|audiences| audiences.len() != 1) {
        return Err("the assertion is for several authorization servers (`aud`)");
    }
    if text("client_id") != Some(client) {
        return Err("the assertion was given to another client (`client_id`)");
    }
    let is_own = |resource: &Value| resource.as_str().is_some_and(|resource| is_own_resource(issuer, resource));
    let is_for_us = match claims.get("resource") {
        None => true,
        Some(Value::Array(resources)) => resources.iter().all(is_own),
        Some(resource) => is_own(resource),
    };
    if !is_for_us {
        return Err("the assertion is for another resource than this gateway (`resource`)");
    }
    if claims.contains_key("cnf") {
        return Err("the assertion is bound to a key (`cnf`), of which this gateway takes no proof");
    }
    let (Some(issued), Some(expires)) = (moment("iat"), moment("exp")) else {
        return Err("the assertion lacks `iat` or `exp` in whole seconds");
    };
    if issued > now + LEEWAY_SECONDS || expires <= now - LEEWAY_SECONDS {
        return Err("the assertion is not valid yet, or has expired");
    }
    if expires > now + MAX_SECONDS_LEFT {
        return Err("the assertion is valid for more than nine minutes: have the provider give shorter ones");
    }
    text("jti").filter(|id| !id.is_empty()).ok_or("the assertion has no id (`jti`), by which it could be counted once")
}
