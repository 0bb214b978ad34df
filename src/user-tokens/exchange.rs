//! Tokens for an upstream that are made of the callers' own: exchanged (RFC 8693), granted for an assertion (RFC 7523), which may be one of
//! the provider where the caller signed in (ID-JAG), or forwarded as they are. Nothing of it is stored.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::client::TokenError;
use super::{TokenClient, TokenRequests};
use crate::credentials::{Token, TokenSource};
use sekisho_config::{ExchangeGrant, ExchangeSettings, Identity, Secret};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{Caller, Deadline};
use sekisho_core::caller::SubjectToken;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::identity_assertion::AssertedUpstream;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Longest use of a token that an upstream may have revoked meanwhile.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Tokens kept at once; then those that have ended make room, otherwise all.
const MAX_KEPT: usize = 10_000;

/// For a token of the gateway's own client.
const ACTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the tokens of callers for one upstream.
pub struct TokenExchange {
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    name: String,
    settings: ExchangeSettings,
    requests: TokenRequests,
    how: How,
    kept: Mutex<BoundedMap<[u8; 32], (Token, Instant)>>,
}

enum How {
    /// The caller's own token is sent.
    Forward,
    Exchange(Box<ExchangeClient>),
}

/// The gateway as the client that exchanges tokens.
struct ExchangeClient {
    client: TokenClient,
    /// The gateway's own token, as the actor.
    actor: Option<TokenSource>,
}

impl TokenExchange {
    /// `None` for another identity, or without a value that it needs: the check of the configuration has reported that.
    pub fn new(
        name: String,
        identity: Identity,
        settings: &ExchangeSettings,
        requests: TokenRequests,
    ) -> Option<Arc<Self>> {
        let how = match identity {
            Identity::Shared | Identity::PerUser | Identity::Stored => return None,
            Identity::Forward => How::Forward,
            Identity::Exchange => How::exchange(settings)?,
        };
        let kept = Mutex::new(BoundedMap::new(MAX_KEPT));
        Some(Arc::new(Self { name, settings: settings.clone(), requests, how, kept }))
    }

    /// The token to send for a caller.
    /// Errors: `sign_in_required`: the caller has no token, as a run that goes on without its caller; `denied`: its
    /// token is not to be forwarded; `token_exchange_failed`.
    pub async fn token(&self, caller: &Caller) -> Result<Token, CallError> {
        let subject = caller.token.get().filter(|subject| left_of(subject) > Duration::ZERO);
        let subject = subject.ok_or_else(|| self.without_token())?;
        let How::Exchange(exchanging) = &self.how else { return self.forwarded(subject) };
        let key = self.key(subject);
        if let Some((token, until)) = self.kept.lock().get(&key)
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let (token, lifetime) = self.exchange(subject, exchanging).await?;
        self.keep(key, &token, lifetime.min(left_of(subject)));
        Ok(token)
    }

    fn forwarded(&self, subject: &SubjectToken) -> Result<Token, CallError> {
        let is_for_it = subject.audiences.iter().any(|audience| Some(audience) == self.settings.audience.as_ref());
        if !is_for_it {
            let message = format!("the token of this caller is not for {}, and is not forwarded there", self.name);
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        Token::new(&subject.text, None).ok_or_else(|| self.failed("the caller's token cannot be sent in a header"))
    }

    async fn exchange(
        &self,
        subject: &SubjectToken,
        ExchangeClient { client, actor }: &ExchangeClient,
    ) -> Result<(Token, Duration), CallError> {
        let actor = match actor {
            Some(actor) => Some(self.actor_token(actor).await?),
            None => None,
        };
        let scopes = self.settings.scopes.join(" ");
        let assertion = match self.settings.grant {
            ExchangeGrant::IdJag => Some(self.assertion(subject, &scopes).await?),
            ExchangeGrant::JwtBearer | ExchangeGrant::TokenExchange => None,
        };
        let mut fields = match self.settings.grant {
            ExchangeGrant::JwtBearer | ExchangeGrant::IdJag => {
                vec![("grant_type", JWT_BEARER), ("assertion", assertion.as_deref().unwrap_or(&subject.text))]
            }
            ExchangeGrant::TokenExchange => vec![
                ("grant_type", EXCHANGE),
                ("subject_token", &*subject.text),
                ("subject_token_type", ACCESS_TOKEN),
                ("requested_token_type", ACCESS_TOKEN),
            ],
        };
        let audience = self.settings.audience.as_deref().filter(|_| assertion.is_none());
        fields.extend(audience.map(|audience| ("audience", audience)));
        fields.extend((!scopes.is_empty()).then_some(("scope", &*scopes)));
        if let Some(actor) = &actor {
            fields.extend([("actor_token", actor.as_str()), ("actor_token_type", ACCESS_TOKEN)]);
        }
        let answer = self.requests.token(client, self.settings.client_secret.as_ref(), &fields).await;
        let answer = answer.map_err(|error| match error {
            TokenError::Refused(reason) | TokenError::Failed(reason) => self.failed(&reason),
        })?;
        let token = Token::new(&answer.access_token, answer.lifetime);
        let token = token.ok_or_else(|| self.failed("the new token cannot be sent in a header"))?;
        Ok((token, answer.lifetime.unwrap_or(MAX_AGE)))
    }

    /// Of the provider where the caller signed in, for this upstream.
    async fn assertion(&self, subject: &SubjectToken, scopes: &str) -> Result<String, CallError> {
        let session = subject.session.as_ref().ok_or_else(|| {
            let message = format!(
                "{} is called by the caller's sign-in at this gateway, and this caller's token is of another issuer: sign in at \
                 the gateway (`auth.broker`)",
                self.name
            );
            CallError::new(ErrorCode::SignInRequired, message)
        })?;
        let (audience, resource) = (self.settings.audience.as_deref(), self.settings.resource.as_deref());
        let upstream = AssertedUpstream { audience: audience.unwrap_or_default(), resource, scopes };
        session.source.assertion(&session.id, upstream).await
    }

    async fn actor_token(&self, actor: &TokenSource) -> Result<String, CallError> {
        let TokenRequests { outbound, allowed, .. } = &self.requests;
        let token = actor.token(outbound, allowed, Deadline::after(ACTOR_TIMEOUT)).await;
        let token = token.map_err(|error| self.failed(error.message()))?;
        let text = token.header.to_str().ok().and_then(|header| header.strip_prefix("Bearer ")).map(str::to_owned);
        text.ok_or_else(|| self.failed("the gateway's own token cannot be sent"))
    }

    fn keep(&self, key: [u8; 32], token: &Token, lifetime: Duration) {
        let now = Instant::now();
        let token = (token.clone(), now + lifetime.min(MAX_AGE));
        self.kept.lock().insert_or_clear(key, token, |(_, until)| *until <= now);
    }

    /// Issuer, subject and token, upstream, audience and scopes. Each part is preceded by its length.
    fn key(&self, subject: &SubjectToken) -> [u8; 32] {
        let scopes = self.settings.scopes.join(" ");
        let audience = self.settings.audience.as_deref().unwrap_or_default();
        let parts = [&*subject.issuer, &*subject.subject, &*subject.text, &*self.name, audience, &*scopes];
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        digest.finalize().into()
    }

    fn without_token(&self) -> CallError {
        let message = format!(
            "{} is called with a token made of its caller's, and this caller has none now: send the call with a token of the \
             sign-in (`auth.jwt`); a run that goes on without its caller has none",
            self.name
        );
        CallError::new(ErrorCode::SignInRequired, message)
    }

    fn failed(&self, reason: &str) -> CallError {
        let message = format!("no token for {} was given for the caller's: {reason}", self.name);
        CallError::new(ErrorCode::TokenExchangeFailed, message).blaming(Blame::Call)
    }
}

impl How {
    fn exchange(settings: &ExchangeSettings) -> Option<Self> {
        let (token_endpoint, client_id) = (settings.token_url.clone()?, settings.client_id.clone()?);
        let secret = settings.client_secret.as_ref().filter(|_| settings.actor);
        let actor = secret.map(|secret: &Secret| TokenSource::new(token_endpoint.clone(), &client_id, secret, &[]));
        let client = TokenClient {
            token_endpoint,
            revocation_endpoint: None,
            client_id,
            client_secret: None,
            secret_in_body: false,
            resource: None,
        };
        Some(Self::Exchange(Box::new(ExchangeClient { client, actor })))
    }
}

impl fmt::Debug for TokenExchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenExchange").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How long a token is still valid.
fn left_of(subject: &SubjectToken) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(subject.expires).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use futures_util::future::BoxFuture;
    use serde_json::json;
    use url::Url;

    use super::*;
    use sekisho_config::OutboundConfig;
    use sekisho_core::identity_assertion::{AssertionSource, SignInSession};
    use sekisho_outbound::{DomainList, Outbound, test_server};

    fn subject(text: &str, valid_for: u64) -> SubjectToken {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        SubjectToken {
            text: text.to_owned(),
            issuer: "https://login.example".to_owned(),
            subject: "ann".to_owned(),
            audiences: vec!["crm".to_owned()],
            expires: now + valid_for,
            session: None,
        }
    }

    fn caller(token: Option<SubjectToken>) -> Caller {
        let caller = Caller::of_issuer("https://login.example", "ann", "acme", Vec::new());
        match token {
            Some(token) => caller.with_token(token),
            None => caller,
        }
    }

    fn exchange(identity: Identity, settings: &ExchangeSettings) -> Arc<TokenExchange> {
        let config = OutboundConfig { allow_networks: vec!["127.0.0.0/8".into()], ..OutboundConfig::default() };
        let requests = TokenRequests {
            outbound: Outbound::new(&config).unwrap(),
            allowed: Arc::new(DomainList::any().clone()),
            is_secure: false,
        };
        TokenExchange::new("mcp:crm".to_owned(), identity, settings, requests).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_exchanged_once_for_each_token_of_a_caller() {
        let forms: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&forms);
        let answer = async move |form: String| {
            let mut forms = seen.lock();
            forms.push(form.clone());
            if form.contains("refused") {
                return (axum::http::StatusCode::BAD_REQUEST, axum::Json(json!({"error": "invalid_request"})));
            }
            let token =
                json!({"access_token": format!("new-{}", forms.len()), "token_type": "Bearer", "expires_in": 60});
            (axum::http::StatusCode::OK, axum::Json(token))
        };
        let address = test_server::serve(Router::new().route("/token", post(answer))).await;
        let settings = ExchangeSettings {
            token_url: Some(Url::parse(&format!("http://{address}/token")).unwrap()),
            client_id: Some("sekisho".to_owned()),
            client_secret: Some(Secret::new("s")),
            audience: Some("crm".to_owned()),
            scopes: vec!["read".to_owned()],
            actor: true,
            ..ExchangeSettings::default()
        };
        let exchange = exchange(Identity::Exchange, &settings);
        let sent = async |token: &str| {
            let token = exchange.token(&caller(Some(subject(token, 600)))).await;
            token.map(|token| token.header.to_str().unwrap().to_owned()).map_err(|error| error.code())
        };
        assert_eq!(sent("first").await, Ok("Bearer new-2".to_owned()), "after the actor's");
        assert_eq!(sent("first").await, Ok("Bearer new-2".to_owned()));
        assert_eq!(sent("second").await, Ok("Bearer new-3".to_owned()));
        assert_eq!(sent("refused").await, Err(ErrorCode::TokenExchangeFailed));
        let form = forms.lock()[1].clone();
        for part in ["token-exchange", "subject_token=first", "actor_token=new-1", "audience=crm", "scope=read"] {
            assert!(form.contains(part), "{form}");
        }
        for without in [None, Some(subject("old", 0))] {
            let error = exchange.token(&caller(without)).await.err().unwrap();
            assert_eq!(error.code(), ErrorCode::SignInRequired);
        }
    }

    struct Assertions;

    impl AssertionSource for Assertions {
        fn assertion<'a>(
            &'a self,
            session: &'a str,
            upstream: AssertedUpstream<'a>,
        ) -> BoxFuture<'a, Result<String, CallError>> {
            let AssertedUpstream { audience, resource, scopes } = upstream;
            let text = format!("{session}-{audience}-{}-{scopes}", resource.unwrap_or_default());
            Box::pin(async move { Ok(text) })
        }
    }

    #[tokio::test]
    async fn an_assertion_of_the_callers_session_is_presented_in_place_of_its_token() {
        let forms: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&forms);
        let answer = async move |form: String| {
            seen.lock().push(form);
            axum::Json(json!({"access_token": "new", "token_type": "Bearer", "expires_in": 60}))
        };
        let address = test_server::serve(Router::new().route("/token", post(answer))).await;
        let settings = ExchangeSettings {
            token_url: Some(Url::parse(&format!("http://{address}/token")).unwrap()),
            grant: ExchangeGrant::IdJag,
            client_id: Some("sekisho".to_owned()),
            audience: Some("crm-login".to_owned()),
            resource: Some("crm".to_owned()),
            scopes: vec!["read".to_owned()],
            ..ExchangeSettings::default()
        };
        let exchange = exchange(Identity::Exchange, &settings);
        let session = SignInSession { id: "s1".to_owned(), source: Arc::new(Assertions) };
        let ann = caller(Some(SubjectToken { session: Some(session), ..subject("own", 600) }));
        for _ in 0..2 {
            assert_eq!(exchange.token(&ann).await.unwrap().header, "Bearer new");
        }
        let forms = forms.lock().clone();
        assert_eq!(forms.len(), 1, "the token is kept: {forms:?}");
        for part in ["grant-type%3Ajwt-bearer", "assertion=s1-crm-login-crm-read", "scope=read", "client_id=sekisho"] {
            assert!(forms[0].contains(part), "{forms:?}");
        }
        assert!(!forms[0].contains("audience=") && !forms[0].contains("own"), "{forms:?}");
        let error = exchange.token(&caller(Some(subject("of another issuer", 600)))).await.err().unwrap();
        assert_eq!(error.code(), ErrorCode::SignInRequired);
    }

    #[tokio::test]
    async fn a_callers_own_token_goes_only_where_it_is_for() {
        let of =
            |audience: &str| ExchangeSettings { audience: Some(audience.to_owned()), ..ExchangeSettings::default() };
        let ann = caller(Some(subject("own", 600)));
        let token = exchange(Identity::Forward, &of("crm")).token(&ann).await.unwrap();
        assert_eq!(token.header, "Bearer own");
        let refused = exchange(Identity::Forward, &of("erp")).token(&ann).await.err().unwrap();
        assert_eq!(refused.code(), ErrorCode::Denied);
        assert!(!format!("{ann:?}").contains("own\""), "{ann:?}");
        assert_eq!(ann, caller(None), "a token is no part of who the caller is");
    }
}
