//! Requests to one server with its credentials, over the gateway's outbound client, so that its address guard, allowlist
//! and limits apply to MCP servers too.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use url::Url;

use crate::auth::SignIn;
use crate::text::bounded;
use sekisho_config::is_credential_header;
use sekisho_core::call::{Deadline, OnBehalf};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{
    DomainList, Outbound, OutboundRequest, OutboundResponse, OutboundStream, SentCredentials, Trust,
};
use sekisho_user_tokens::UserToken;
use sekisho_user_tokens::credentials::{Token, TokenSource};

/// Timeout of a request. The waiting call usually has an earlier deadline, which cancels the request.
const MAX_REQUEST: Duration = Duration::from_secs(3_600);

/// Timeout of requests to a token server.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the request that ends a session.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum redirects of one request.
const MAX_REDIRECTS: usize = 3;

/// The common state of requests to one server.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizedHttp {
    pub(crate) outbound: Outbound,
    /// `outbound.mcp_allowed_domains`.
    pub(crate) allowed: Arc<DomainList>,
    pub(crate) url: Url,
    /// Credentials among them.
    pub(crate) headers: HeaderMap,
    pub(crate) tokens: Tokens,
    /// The token that was sent last, which the server may repeat.
    pub(crate) last_token: Arc<ArcSwapOption<HeaderValue>>,
    /// Who chose the address.
    pub(crate) trust: Trust,
    pub(crate) max_message_bytes: usize,
}

/// Where the tokens for one server come from.
#[derive(Debug, Clone)]
pub(crate) enum Tokens {
    /// No tokens: the configured headers are sufficient.
    None,
    /// The gateway's own tokens, from client credentials.
    Client(Arc<TokenSource>),
    /// A user's tokens, after the server has required a sign-in and a user has signed in.
    User(Arc<SignIn>),
    /// The credentials of one caller, who has signed in on its own.
    Caller(UserToken),
}

impl AuthorizedHttp {
    /// Sends a request with the credentials, and again with a new token if the server refuses the current one.
    /// Errors: as [`Outbound::open`], and `tool_error` where the server asks for a user's sign-in.
    pub(crate) async fn open(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<OutboundStream, CallError> {
        self.open_for(method, url, headers, body, None).await
    }

    /// As [`AuthorizedHttp::open`], for a call.
    /// Errors: as [`AuthorizedHttp::open`].
    pub(crate) async fn open_for(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Option<Bytes>,
        on_behalf: Option<OnBehalf>,
    ) -> Result<OutboundStream, CallError> {
        let mut token = self.token().await?;
        let again = token.is_some().then(|| (headers.clone(), body.clone()));
        let mut answer = self.send(method.clone(), url, headers, body, token.as_ref(), on_behalf.clone()).await?;
        // Boxed, because it is rare.
        if answer.status == StatusCode::UNAUTHORIZED
            && let (Some(refused), Some((headers, body))) = (&token, again)
            && let Some(other) = Box::pin(self.another(refused, &answer.headers)).await?
        {
            answer = Box::pin(self.send(method.clone(), url, headers, body, Some(&other), on_behalf)).await?;
            token = Some(other);
        }
        match (&self.tokens, &token) {
            (Tokens::User(sign_in), token) => {
                sign_in.handle(&method, answer.status, &answer.headers, token.as_ref())?;
            }
            (Tokens::Caller(caller), Some(token)) if answer.status.is_client_error() && is_answered(&method) => {
                Box::pin(caller.check(answer.status, &answer.headers, token)).await?;
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn token(&self) -> Result<Option<Token>, CallError> {
        match &self.tokens {
            Tokens::None => Ok(None),
            Tokens::Client(tokens) => Ok(Box::pin(self.fetch(tokens)).await),
            Tokens::User(sign_in) => sign_in.token().await,
            Tokens::Caller(caller) => Ok(Some(Box::pin(caller.token()).await?)),
        }
    }

    async fn another(&self, refused: &Token, challenge: &HeaderMap) -> Result<Option<Token>, CallError> {
        match &self.tokens {
            Tokens::None => Ok(None),
            Tokens::Client(tokens) => {
                tokens.drop_token(refused).await;
                Ok(self.fetch(tokens).await)
            }
            Tokens::User(sign_in) => sign_in.another(refused.clone()).await,
            Tokens::Caller(caller) => caller.another(refused, challenge).await.map(Some),
        }
    }

    /// The answer with its body, to be read as an error.
    /// Errors: as [`OutboundStream::whole`].
    pub(crate) async fn whole(&self, answer: OutboundStream, url: &Url) -> Result<OutboundResponse, CallError> {
        let (status, headers) = (answer.status, answer.headers.clone());
        let body = answer.whole().await?;
        let mut sent = SentCredentials::new(self.headers.clone());
        if let Some(token) = self.last_token.load_full() {
            sent.headers.append(header::AUTHORIZATION, HeaderValue::clone(&token));
        }
        Ok(OutboundResponse { status, headers, url: url.clone(), body, cut: false, remote_addr: None, sent })
    }

    /// The values to redact in the server's texts.
    pub(crate) fn add_secrets(&self, secrets: &mut SentSecrets) {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let (named, others): (HeaderMap, HeaderMap) =
            headers.partition(|(name, _)| is_credential_header(name.as_str()));
        let mut guesses = SentSecrets::default();
        guesses.add_headers(&others);
        secrets.add_headers(&named);
        secrets.add_guesses(guesses);
        if let Some(token) = self.last_token.load_full() {
            secrets.add_header(&token);
        }
        if let Tokens::Client(tokens) = &self.tokens {
            tokens.add_secrets(secrets);
        }
    }

    /// If no token can be fetched, the request is sent without one.
    async fn fetch(&self, tokens: &TokenSource) -> Option<Token> {
        let fetched = tokens.token(&self.outbound, &self.allowed, Deadline::after(TOKEN_TIMEOUT)).await;
        fetched
            .inspect_err(
                |error| tracing::warn!(%error, "no access token; sending requests to an MCP server without one"),
            )
            .ok()
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Option<Bytes>,
        token: Option<&Token>,
        on_behalf: Option<OnBehalf>,
    ) -> Result<OutboundStream, CallError> {
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        if let Some(token) = token {
            headers.insert(token.name.clone(), token.header.clone());
            if self.last_token.load().as_deref() != Some(&token.header) {
                self.last_token.store(Some(Arc::new(token.header.clone())));
            }
        }
        let deadline = Deadline::after(if method == Method::DELETE { GOODBYE_TIMEOUT } else { MAX_REQUEST });
        let mut target = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let request = OutboundRequest {
                method: method.clone(),
                headers: headers.clone(),
                body: body.clone(),
                max_response_bytes: self.max_message_bytes,
                allowed: &self.allowed,
                on_behalf: on_behalf.clone(),
                trust: self.trust,
                ..OutboundRequest::get(target.clone(), deadline)
            };
            let answer = self.outbound.open(request).await?;
            match redirect(&answer, &target)? {
                Some(next) => target = next,
                None => return Ok(answer),
            }
        }
        let problem = format!("the MCP server redirects more than {MAX_REDIRECTS} times");
        Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream))
    }
}

/// A server may forbid the optional GET stream, and the end of a session, to every client.
fn is_answered(method: &Method) -> bool {
    *method == Method::POST
}

/// The address at which the same request must be repeated, if the answer says so (307, 308).
/// Errors: `upstream_error` for any other redirect: another server must not receive the credentials, and another method
/// is another request.
fn redirect(answer: &OutboundStream, from: &Url) -> Result<Option<Url>, CallError> {
    let location = answer.headers.get(header::LOCATION).filter(|_| answer.status.is_redirection());
    let Some(to) = location.and_then(|location| from.join(location.to_str().ok()?).ok()) else { return Ok(None) };
    let keeps_method = matches!(answer.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let why = match (to.origin() == from.origin(), keeps_method) {
        (true, true) => return Ok(Some(to)),
        (false, _) => "it is on another server",
        (true, false) => "its status does not keep the method",
    };
    // Without the query, which may contain credentials.
    let shown = bounded(&format!("{}{}", to.origin().ascii_serialization(), to.path()));
    let status = answer.status.as_u16();
    let problem = format!(
        "the MCP server redirects to {shown} ({status}), which is not followed: {why}; configure that URL if it is right"
    );
    Err(CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Upstream))
}
