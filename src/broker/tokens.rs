//! The token endpoint: a code for the tokens of a session, and a refresh token for the next ones (RFC 6749, OAuth 2.1 §4.3); revocation
//! (RFC 7009) and introspection (RFC 7662).

pub(crate) mod assertion;
mod grants;

use std::fmt;

use http::HeaderValue;
use serde::Serialize;
use serde_json::{Value, json};

use self::assertion::JWT_BEARER;
pub(crate) use self::grants::CodeGrant;
use self::grants::{SessionGrant, of_code, of_session, owner_of};
use super::authorization::{Fields, digest, is_equal, is_own_resource, is_proven, random};
use super::error::{OAuthError, OAuthErrorCode};
use super::keys::{AccessClaims, seconds};
use super::provider::{ProviderFailure, tokens};
use super::server::AuthorizationServer;
use super::user::User;
use sekisho_core::error::CallError;
use sekisho_store::{BrokerSession, NewBrokerSession, StoreError};

/// The answer of RFC 6749 §5.1.
#[derive(Serialize)]
pub struct TokenAnswer {
    access_token: String,
    token_type: &'static str,
    expires_in: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    scope: String,
    /// For the audit trail.
    #[serde(skip)]
    pub event: Option<SessionEvent>,
}

/// Why there are no tokens.
#[derive(Debug)]
pub struct TokenRefusal {
    pub error: OAuthError,
    /// The session that ended with it.
    pub event: Option<SessionEvent>,
}

/// The begin or the end of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    pub is_start: bool,
    pub session: String,
    /// Who, with which client, and why.
    pub detail: String,
}

impl AuthorizationServer<'_> {
    /// Stores a code, and returns it.
    pub(crate) async fn keep_code(&self, grant: CodeGrant) -> Result<String, OAuthError> {
        let (code, session) = (random(), hex::encode(rand::random::<[u8; 16]>()));
        let digest = digest(&code);
        let sealed = self.broker.keys.seal(of_code(&self.owner(&digest)), &grant)?;
        self.broker.keys.store.use_client(&grant.request.client).await?;
        match self.broker.keys.store.add_code(&digest, &session, &sealed).await? {
            true => Ok(code),
            false => Err(OAuthError::unavailable("too many sign-ins end at once; try again in a minute")),
        }
    }

    /// The token endpoint. Runs to its end also when the client disconnects: a token that was presented counts no more. `authorization`:
    /// the header, for clients with a secret.
    pub async fn token(
        &self,
        form: Vec<(String, String)>,
        authorization: Option<&HeaderValue>,
    ) -> Result<TokenAnswer, TokenRefusal> {
        let fields = Fields::new(form)?;
        match fields.need("grant_type")? {
            "authorization_code" => self.exchange(&fields).await,
            "refresh_token" => self.refresh(&fields).await,
            JWT_BEARER if self.takes_assertions() => Box::pin(self.grant(&fields, authorization)).await,
            _ => {
                let why = "`grant_type` must be one of `grant_types_supported` in the metadata";
                Err(OAuthError::new(OAuthErrorCode::UnsupportedGrantType, why).into())
            }
        }
    }

    async fn exchange(&self, fields: &Fields) -> Result<TokenAnswer, TokenRefusal> {
        let digest = digest(fields.need("code")?);
        let (client, redirect) = (fields.need("client_id")?, fields.need("redirect_uri")?);
        let verifier = fields.need("code_verifier")?;
        let refused =
            || OAuthError::invalid_grant("the code is unknown, expired or used, or is another client's: sign in again");
        let store = &self.broker.keys.store;
        let presented = store.present_code(&digest).await?.ok_or_else(refused)?;
        if presented.is_replay {
            // RFC 6749 §4.1.2: somebody else has the code, too.
            let ended = store.end_session(&presented.session, None).await?;
            return Err(TokenRefusal::ended(refused(), ended.as_ref(), "its code was presented twice"));
        }
        let grant: Option<CodeGrant> = self.broker.keys.open(of_code(&self.owner(&digest)), &presented.sealed);
        let CodeGrant { request, user, refresh_token, id_token } =
            grant.filter(|_| presented.is_valid).ok_or_else(refused)?;
        if request.client != client || request.redirect != redirect || !is_proven(&request.challenge, verifier) {
            return Err(refused().into());
        }
        self.check_resource(fields, request.resource.as_deref())?;
        let scope = request.scope.clone();
        let client = (&*request.client, &*request.client_name);
        self.start(&presented.session, client, SessionGrant { user, scope, refresh_token, id_token }).await
    }

    /// A client may name the resource again (RFC 8707 §2.2). `authorized`: the one that it named before.
    fn check_resource(&self, fields: &Fields, authorized: Option<&str>) -> Result<(), OAuthError> {
        let Some(resource) = fields.get("resource") else { return Ok(()) };
        let is_same = authorized.is_none_or(|authorized| authorized == resource);
        if is_same && is_own_resource(&self.issuer(), resource) {
            return Ok(());
        }
        let why = "`resource` is not this gateway, or another one than that of the authorization";
        Err(OAuthError::new(OAuthErrorCode::InvalidTarget, why))
    }

    async fn start(
        &self,
        id: &str,
        (client, client_name): (&str, &str),
        grant: SessionGrant,
    ) -> Result<TokenAnswer, TokenRefusal> {
        let (family, token) = (random(), random());
        let lifetimes = &self.config.tokens;
        let lifetime = if grant.refresh_token.is_some() { lifetimes.refresh } else { lifetimes.access };
        let sealed = self.broker.keys.seal(of_session(&grant.user.tenant, &self.owner(id)), &grant)?;
        let new = NewBrokerSession {
            id,
            tenant: &grant.user.tenant,
            subject: &grant.user.subject,
            login: &grant.user.login,
            client,
            client_name,
            family: &digest(&family),
            token: &digest(&token),
            sealed: &sealed,
            lifetime: lifetime.duration(),
        };
        if !self.broker.keys.store.start_session(new).await? {
            return Err(OAuthError::invalid_grant("the session cannot begin now: sign in again").into());
        }
        let event = SessionEvent {
            is_start: true,
            session: id.to_owned(),
            detail: format!("{} with {client}", grant.user.login),
        };
        let refresh_token = grant.refresh_token.is_some().then(|| format!("{family}.{token}"));
        let answer = self.answer(id, client, &grant, refresh_token).await?;
        Ok(TokenAnswer { event: Some(event), ..answer })
    }

    async fn refresh(&self, fields: &Fields) -> Result<TokenAnswer, TokenRefusal> {
        let (presented, client) = (fields.need("refresh_token")?, fields.need("client_id")?);
        // All tokens are for the gateway; editors name it by several of its addresses.
        self.check_resource(fields, None)?;
        let refused = || {
            OAuthError::invalid_grant(
                "the refresh token is unknown, expired or used, or is another client's: sign in again",
            )
        };
        let (family, token) = presented.split_once('.').ok_or_else(refused)?;
        let store = &self.broker.keys.store;
        let session = store.session_of_family(&digest(family)).await?.ok_or_else(refused)?;
        if session.client != client {
            return Err(refused().into());
        }
        let (old, next) = (digest(token), random());
        let next_digest = digest(&next);
        // Who knows the family had a token of it: this one was used before, by the client or by who took it.
        if !is_equal(&session.token, &old) || !store.replace_token(&session.id, &old, &next_digest).await? {
            let ended = store.end_session(&session.id, None).await?;
            return Err(TokenRefusal::ended(refused(), ended.as_ref(), "a refresh token was used twice"));
        }
        let grant = match self.confirm(&session).await {
            Ok(grant) => grant,
            Err(Unconfirmed::Refused) => {
                let ended = store.end_session(&session.id, None).await?;
                return Err(TokenRefusal::ended(refused(), ended.as_ref(), "the sign-in provider refused its user"));
            }
            Err(Unconfirmed::Unknown) => {
                // The client has the earlier token only, and tries again with it.
                store.replace_token(&session.id, &next_digest, &old).await?;
                let why = "the sign-in provider does not answer; try again in a moment";
                return Err(OAuthError::unavailable(why).into());
            }
        };
        let tenant = &grant.user.tenant;
        let sealed = self.broker.keys.seal(of_session(tenant, &self.owner(&session.id)), &grant)?;
        let lifetime = self.config.tokens.refresh.duration();
        if !store.renew_session(&session.id, &next_digest, (tenant, &sealed), lifetime).await? {
            return Err(refused().into());
        }
        Ok(self.answer(&session.id, client, &grant, Some(format!("{family}.{next}"))).await?)
    }

    /// Asks the provider whether the user of a session may still sign in, and takes over the roles of now.
    async fn confirm(&self, session: &BrokerSession) -> Result<SessionGrant, Unconfirmed> {
        let grant: Option<SessionGrant> =
            self.broker.keys.open(of_session(&session.tenant, &self.owner(&session.id)), &session.sealed);
        let Some(SessionGrant { user, scope, refresh_token: Some(earlier), id_token: known }) = grant else {
            return Err(Unconfirmed::Refused);
        };
        let unknown = |error: CallError| {
            tracing::warn!(cause = error.cause(), "a session cannot be confirmed: {}", error.message());
            Unconfirmed::Unknown
        };
        let provider = self.broker.provider(self.config).await.map_err(unknown)?;
        let endpoints = provider.endpoints().await.map_err(unknown)?;
        let asked = [("grant_type", "refresh_token"), ("refresh_token", earlier.as_str())];
        let answer = tokens(&self.broker.outbound, self.config, &endpoints, &asked).await;
        let answer = answer.map_err(|failure| match failure {
            ProviderFailure::Refused => Unconfirmed::Refused,
            ProviderFailure::Failed => Unconfirmed::Unknown,
        })?;
        // Without a new one, the earlier one counts (RFC 6749 §6).
        let refresh_token = answer.refresh_token.or(Some(earlier));
        let Some(id_token) = answer.id_token else {
            return Ok(SessionGrant { user, scope, refresh_token, id_token: known });
        };
        let claims = provider.claims(&id_token, None).await.map_err(unknown)?;
        let now = User::of(&claims, self.config).map_err(|_| Unconfirmed::Refused)?;
        match now.subject == user.subject {
            true => Ok(SessionGrant { user: now, scope, refresh_token, id_token: self.kept(id_token) }),
            false => Err(Unconfirmed::Refused),
        }
    }

    async fn answer(
        &self,
        session: &str,
        client: &str,
        SessionGrant { user, scope, .. }: &SessionGrant,
        refresh_token: Option<String>,
    ) -> Result<TokenAnswer, OAuthError> {
        let (now, lifetime, issuer) = (self.now(), seconds(self.config.tokens.access.duration()), self.issuer());
        let claims = AccessClaims {
            aud: issuer.clone(),
            iss: issuer,
            sub: user.subject.clone(),
            client_id: client.to_owned(),
            iat: now,
            exp: now + lifetime,
            jti: hex::encode(rand::random::<[u8; 16]>()),
            sid: session.to_owned(),
            tenant: user.tenant.clone(),
            roles: user.roles.clone(),
            scope: scope.clone(),
        };
        let access_token = self.broker.keys.sign(&claims).await?;
        let (token_type, scope) = ("Bearer", scope.clone());
        Ok(TokenAnswer { access_token, token_type, expires_in: lifetime, refresh_token, scope, event: None })
    }

    /// Ends the session of a token, if there is one and the client has the token.
    /// Errors: `invalid_request`; `temporarily_unavailable` when the store cannot be written.
    pub async fn revoke(&self, form: Vec<(String, String)>) -> Result<Option<SessionEvent>, OAuthError> {
        let fields = Fields::new(form)?;
        let (token, client) = (fields.need("token")?, fields.need("client_id")?);
        let found = self.session_of(token).await?;
        let own = found.filter(|(session, _)| client == session.client);
        let Some((session, _)) = own else { return Ok(None) };
        let ended = self.broker.keys.store.end_session(&session.id, None).await?;
        Ok(ended.map(|ended| SessionEvent::end(&ended, "its client revoked it")))
    }

    /// The state of a token, for callers of this tenant; without a tenant, for administrators of the gateway.
    /// Errors: `invalid_request`; `temporarily_unavailable` when the store cannot be read.
    pub async fn introspect(&self, form: Vec<(String, String)>, tenant: Option<&str>) -> Result<Value, OAuthError> {
        let fields = Fields::new(form)?;
        let found = self.session_of(fields.need("token")?).await?;
        let seen = found.filter(|(session, _)| tenant.is_none_or(|tenant| tenant == session.tenant));
        Ok(match seen {
            None => json!({"active": false}),
            Some((session, Some(claims))) => {
                let mut answer = serde_json::to_value(claims).map_err(CallError::internal)?;
                answer["active"] = true.into();
                answer["token_type"] = "Bearer".into();
                answer["username"] = session.login.into();
                answer
            }
            Some((session, None)) => json!({
                "active": true,
                "client_id": session.client,
                "sub": session.subject,
                "sid": session.id,
                "username": session.login,
                "exp": session.expires.as_second(),
            }),
        })
    }

    fn owner(&self, id: &str) -> String {
        owner_of(id, &self.config.issuer)
    }

    /// The session of a refresh token in force, or of an access token, with its claims.
    async fn session_of(&self, token: &str) -> Result<Option<(BrokerSession, Option<AccessClaims>)>, OAuthError> {
        let keys = &self.broker.keys;
        if let Some(claims) = keys.verify(token, &self.issuer()).await? {
            let session = keys.session(&claims.sid, &self.config.issuer).await?;
            return Ok(session.map(|session| (session, Some(claims))));
        }
        let Some((family, token)) = token.split_once('.') else { return Ok(None) };
        let found = keys.store.session_of_family(&digest(family)).await?;
        Ok(found.filter(|session| is_equal(&session.token, &digest(token))).map(|session| (session, None)))
    }
}

/// Why a session was not confirmed.
enum Unconfirmed {
    Refused,
    /// The provider does not answer.
    Unknown,
}

impl SessionEvent {
    pub fn end(session: &BrokerSession, why: &str) -> Self {
        let detail = format!("{} with {}: {why}", session.login, session.client);
        Self { is_start: false, session: session.id.clone(), detail }
    }
}

impl TokenRefusal {
    fn ended(error: OAuthError, session: Option<&BrokerSession>, why: &str) -> Self {
        Self { error, event: session.map(|session| SessionEvent::end(session, why)) }
    }
}

impl From<OAuthError> for TokenRefusal {
    fn from(error: OAuthError) -> Self {
        Self { error, event: None }
    }
}

impl From<CallError> for TokenRefusal {
    fn from(error: CallError) -> Self {
        OAuthError::from(error).into()
    }
}

impl From<StoreError> for TokenRefusal {
    fn from(error: StoreError) -> Self {
        OAuthError::from(error).into()
    }
}

impl fmt::Debug for TokenAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenAnswer").field("event", &self.event).finish_non_exhaustive()
    }
}
