//! Signing in at the OpenID provider of `auth.oidc`. What belongs to a sign-in is found by a cookie of its own, so that it
//! ends in the browser in which it began.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::Response;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::sessions::{SecretHash, SessionSecret};
use super::sign_in::{Destination, begin, local_path, require_encryption};
use super::visit::{Address, Guest};
use super::{Console, error_page, redirect};
use crate::core::bounded::Ring;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::open_id::{self, PendingSignIn, ProviderReply};

/// The cookie of a sign-in that has begun.
pub(super) const COOKIE_NAME: &str = "__Host-sekisho-console-sign-in";

/// How long a sign-in may take at the provider.
const LIFETIME: Duration = Duration::from_secs(600);

/// Maximum sign-ins at once; a further one takes the place of the oldest.
const MAX_PENDING: usize = 1_000;

/// The sign-ins that have begun and not ended.
#[derive(Debug)]
pub(super) struct OpenIdSignIns(Mutex<Ring<Begun>>);

#[derive(Debug)]
struct Begun {
    hash: SecretHash,
    pending: PendingSignIn,
    /// The page to show after it.
    to: String,
    until: Instant,
}

impl Default for OpenIdSignIns {
    fn default() -> Self {
        Self(Mutex::new(Ring::new(MAX_PENDING)))
    }
}

impl OpenIdSignIns {
    fn add(&self, pending: PendingSignIn, to: &str) -> SessionSecret {
        let secret = SessionSecret::random();
        let begun = Begun { hash: secret.hash(), pending, to: to.to_owned(), until: Instant::now() + LIFETIME };
        let mut all = self.0.lock();
        all.retain(|begun| begun.until > Instant::now());
        all.push(begun);
        secret
    }

    /// A sign-in ends once.
    fn take(&self, secret: &SessionSecret) -> Option<Begun> {
        let hash = secret.hash();
        let mut all = self.0.lock();
        all.retain(|begun| begun.until > Instant::now());
        all.take_first(|begun| begun.hash == hash)
    }
}

/// `GET /console/sign-in/provider`: sends the browser there.
pub(super) async fn start(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(destination): Address<Destination>,
) -> Response {
    let to = local_path(&destination.to);
    match begin_at_provider(&console, &guest, to).await {
        Ok((url, secret)) => with_cookie(redirect(&url), secret.as_str(), LIFETIME.as_secs()),
        Err(error) => error_page::of_guest(&guest, &error),
    }
}

/// `GET /console/sign-in/callback`: the browser comes back.
pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(reply): Address<ProviderReply>,
) -> Response {
    match finish_at_provider(&console, &guest, reply).await {
        Ok((cookie, to)) => {
            let mut response = with_cookie(redirect(&to), "", 0);
            response.headers_mut().append(SET_COOKIE, cookie);
            response
        }
        Err(error) => with_cookie(error_page::of_guest(&guest, &error), "", 0),
    }
}

async fn begin_at_provider(console: &Console, guest: &Guest, to: &str) -> Result<(String, SessionSecret), CallError> {
    require_encryption(guest)?;
    let config = console.gateway.config();
    let (Some(oidc), Some(jwt)) = (&config.auth.oidc, config.auth.jwt.first()) else { return Err(not_configured()) };
    let callback = format!("{}/console/sign-in/callback", guest.request.server_url);
    let (url, pending) = open_id::begin(oidc, &jwt.issuer, callback, console.gateway.outbound()).await?;
    Ok((url.into(), console.open_id.add(pending, to)))
}

async fn finish_at_provider(
    console: &Console,
    guest: &Guest,
    reply: ProviderReply,
) -> Result<(HeaderValue, String), CallError> {
    let config = console.gateway.config();
    let Some(oidc) = &config.auth.oidc else { return Err(not_configured()) };
    let begun = guest.cookie(COOKIE_NAME).and_then(|secret| console.open_id.take(&secret)).ok_or_else(|| {
        let message = "no sign-in has begun in this browser within ten minutes; sign in again";
        CallError::new(ErrorCode::Unauthenticated, message)
    })?;
    let (authenticator, outbound) = (console.gateway.authenticator(), console.gateway.outbound());
    let signed_in = begun.pending.finish(reply, oidc, &authenticator, outbound).await.inspect_err(|error| {
        console.gateway.pipeline.settlement.unauthenticated(error, guest.request.request.as_ref(), None);
    })?;
    Ok((begin(console, guest, signed_in)?, begun.to))
}

fn not_configured() -> CallError {
    CallError::new(ErrorCode::NotFound, "no sign-in provider is configured (`auth.oidc`); sign in with a key")
}

fn with_cookie(mut response: Response, secret: &str, seconds: u64) -> Response {
    let cookie = format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}
