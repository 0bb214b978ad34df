//! Signing in at the OpenID provider of `auth.oidc`. The data of a sign-in are in a cookie of its own, sealed, so that
//! it ends in the browser in which it began, and nobody who begins many takes the place of others.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::SET_COOKIE;
use axum::response::Response;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::sign_in::{Destination, begin, local_path, require_encryption};
use super::visit::{Address, Guest};
use super::{Console, error_page, redirect};
use sekisho_auth::open_id::{self, PendingSignIn, ProviderReply};
use sekisho_core::bounded::Ring;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::sealing::{SealedFor, Sealer};

/// The cookie of a sign-in that has begun.
pub(super) const COOKIE_NAME: &str = "__Host-sekisho-console-sign-in";

/// How long a sign-in may take at the provider.
const LIFETIME: Duration = Duration::from_secs(600);

/// Maximum sign-ins that have ended and are remembered, so that none ends twice; for a further one the oldest is
/// forgotten. Only sign-ins that the provider confirmed count. The provider has the code of a forgotten one, and takes
/// the code once.
const MAX_ENDED: usize = 1_000;

/// Longest address of a page that a cookie has space for, beside the rest.
const MAX_PAGE: usize = 1_500;

/// Seals the sign-ins that have begun, and remembers ended ones.
#[derive(Debug)]
pub(super) struct OpenIdSignIns {
    sealer: Sealer,
    /// The ends of sign-ins are counted from here.
    since: Instant,
    ended: Mutex<Ring<Ended>>,
}

/// The content of the cookie.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    pending: PendingSignIn,
    /// The page to show after it.
    to: String,
    /// The last moment at which it may end, in milliseconds since `OpenIdSignIns::since`.
    until: u64,
}

#[derive(Debug)]
struct Ended {
    id: [u8; 32],
    until: Instant,
}

impl Default for OpenIdSignIns {
    fn default() -> Self {
        Self { sealer: Sealer::of_process(), since: Instant::now(), ended: Mutex::new(Ring::new(MAX_ENDED)) }
    }
}

impl OpenIdSignIns {
    /// The content of the cookie for a sign-in at this issuer.
    fn seal(&self, issuer: &str, pending: PendingSignIn, to: &str) -> Result<String, CallError> {
        let to = if to.len() <= MAX_PAGE { to } else { "/console" };
        let begun = Begun { pending, to: to.to_owned(), until: self.elapsed(Instant::now() + LIFETIME) };
        let text = serde_json::to_vec(&begun).map_err(CallError::internal)?;
        self.sealer.seal(sealed_for(issuer), &text).map_err(CallError::internal)
    }

    /// The sign-in of a cookie, if it goes on.
    fn open(&self, issuer: &str, cookie: &str) -> Option<Begun> {
        let text = self.sealer.open(sealed_for(issuer), cookie).ok()?;
        let begun: Begun = serde_json::from_slice(&text).ok()?;
        let (now, id) = (Instant::now(), begun.pending.id());
        let has_ended = || self.ended.lock().iter().any(|ended| ended.id == id);
        (self.elapsed(now) < begun.until && !has_ended()).then_some(begun)
    }

    /// Whether a sign-in that the provider confirmed ends now, and not before.
    fn end(&self, id: [u8; 32]) -> bool {
        let now = Instant::now();
        let mut ended = self.ended.lock();
        ended.retain(|ended| ended.until > now);
        let is_first = ended.iter().all(|ended| ended.id != id);
        if is_first {
            ended.push(Ended { id, until: now + LIFETIME });
        }
        is_first
    }

    fn elapsed(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }
}

/// For one issuer: a sign-in that began at another one does not end at it.
fn sealed_for(issuer: &str) -> SealedFor<'_> {
    SealedFor { tenant: "", owner: issuer, kind: "console sign-in" }
}

/// `GET /console/sign-in/provider`: sends the browser there.
pub(super) async fn start(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(destination): Address<Destination>,
) -> Response {
    match begin_at_provider(&console, &guest, &local_path(&destination.to)).await {
        Ok((url, cookie)) => with_cookie(redirect(&url), &cookie, LIFETIME.as_secs()),
        Err(error) => error_page::of_guest(&guest, &error),
    }
}

/// `GET /console/sign-in/callback`: the browser comes back.
pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    guest: Guest,
    Address(reply): Address<ProviderReply>,
) -> Response {
    let begun = match awaited(&console, &guest, &reply) {
        Ok(begun) => begun,
        // Any page can send a browser here: the sign-in that is under way in it goes on.
        Err(error) => return error_page::of_guest(&guest, &error),
    };
    let to = begun.to;
    match finish_at_provider(&console, &guest, begun.pending, reply).await {
        Ok(cookie) => {
            let mut response = with_cookie(redirect(&to), "", 0);
            response.headers_mut().append(SET_COOKIE, cookie);
            response
        }
        Err(error) => with_cookie(error_page::of_guest(&guest, &error), "", 0),
    }
}

/// The address at the provider, and the text of the cookie.
async fn begin_at_provider(console: &Console, guest: &Guest, to: &str) -> Result<(String, String), CallError> {
    require_encryption(guest)?;
    let config = console.gateway.configuration().current();
    let Some(oidc) = &config.auth.oidc else { return Err(not_configured()) };
    let endpoints = console.gateway.keys().authenticator().sign_in_endpoints().await?;
    let callback = format!("{}/console/sign-in/callback", guest.request.server_url);
    let (url, pending) = open_id::begin(oidc, &endpoints, callback)?;
    Ok((url.into(), console.open_id.seal(&endpoints.issuer, pending, to)?))
}

/// The sign-in of the browser, which ends with this reply.
/// Errors: `unauthenticated`: there is none, or the reply belongs to another one.
fn awaited(console: &Console, guest: &Guest, reply: &ProviderReply) -> Result<Begun, CallError> {
    let config = console.gateway.configuration().current();
    let Some(issuer) = config.auth.oidc.as_ref().and(config.auth.jwt.first()).map(|jwt| &jwt.issuer) else {
        return Err(not_configured());
    };
    let refused = |message: &str| CallError::new(ErrorCode::Unauthenticated, message);
    let cookie = guest.cookie_text(COOKIE_NAME);
    let begun = cookie.and_then(|cookie| console.open_id.open(issuer, cookie));
    let begun = begun.ok_or_else(|| {
        refused("no sign-in has begun in this browser within ten minutes, or it has ended; sign in again")
    })?;
    match begun.pending.ends_with(reply) {
        true => Ok(begun),
        false => Err(refused("this is the end of another sign-in; go on with yours, or sign in again")),
    }
}

async fn finish_at_provider(
    console: &Console,
    guest: &Guest,
    pending: PendingSignIn,
    reply: ProviderReply,
) -> Result<HeaderValue, CallError> {
    let config = console.gateway.configuration().current();
    let Some(oidc) = &config.auth.oidc else { return Err(not_configured()) };
    let (authenticator, outbound) = (console.gateway.keys().authenticator(), console.gateway.outbound());
    let endpoints = authenticator.sign_in_endpoints().await?;
    let id = pending.id();
    let signed_in = pending.finish(reply, oidc, endpoints, &authenticator, outbound).await.inspect_err(|error| {
        console.gateway.pipeline.settlement.unauthenticated(error, guest.request.request.as_ref(), None);
    })?;
    if !console.open_id.end(id) {
        return Err(CallError::new(ErrorCode::Unauthenticated, "this sign-in has ended before; sign in again"));
    }
    begin(console, guest, signed_in)
}

fn not_configured() -> CallError {
    CallError::new(ErrorCode::NotFound, "no sign-in provider is configured (`auth.oidc`); sign in with a key")
}

fn with_cookie(mut response: Response, text: &str, seconds: u64) -> Response {
    let cookie = format!("{COOKIE_NAME}={text}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.example";

    fn pending(state: &str) -> PendingSignIn {
        let fields =
            serde_json::json!({"state": state, "nonce": "n", "verifier": "v", "redirect": "https://here.example/"});
        serde_json::from_value(fields).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_in_goes_on_in_its_browser_however_many_others_begin() {
        let sign_ins = OpenIdSignIns::default();
        let cookie = sign_ins.seal(ISSUER, pending("ann"), "/console/calls").unwrap();
        assert!(!cookie.contains("ann"));
        for knock in 0..2_000 {
            sign_ins.seal(ISSUER, pending(&knock.to_string()), "/console").unwrap();
        }
        let begun = sign_ins.open(ISSUER, &cookie).unwrap();
        assert_eq!((&*begun.to, begun.pending.id()), ("/console/calls", pending("ann").id()));
        assert!(sign_ins.open("https://other.example", &cookie).is_none(), "it is of one issuer");
        assert!(OpenIdSignIns::default().open(ISSUER, &cookie).is_none(), "and of one process");
        for forged in ["", "x", &cookie[1..], &cookie[..cookie.len() - 1], &format!("{cookie}A")] {
            assert!(sign_ins.open(ISSUER, forged).is_none(), "{forged}");
        }
        tokio::time::advance(LIFETIME - Duration::from_secs(1)).await;
        assert!(sign_ins.open(ISSUER, &cookie).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sign_ins.open(ISSUER, &cookie).is_none(), "ten minutes are over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_in_ends_once() {
        let sign_ins = OpenIdSignIns::default();
        let cookie = sign_ins.seal(ISSUER, pending("ann"), "/console").unwrap();
        let id = pending("ann").id();
        assert_eq!([sign_ins.end(id), sign_ins.end(id)], [true, false]);
        assert!(sign_ins.open(ISSUER, &cookie).is_none());
        tokio::time::advance(LIFETIME).await;
        assert!(sign_ins.open(ISSUER, &cookie).is_none(), "once it is forgotten, its cookie is too old");
        for other in 0..MAX_ENDED * 2 {
            assert!(sign_ins.end(pending(&other.to_string()).id()));
        }
        assert_eq!(sign_ins.ended.lock().len(), MAX_ENDED);
    }

    #[test]
    fn a_cookie_has_space_for_the_longest_sign_in() {
        let sign_ins = OpenIdSignIns::default();
        let issuer = format!("https://login.example/{}", "a".repeat(200));
        let redirect = format!("https://{}.example/console/sign-in/callback", "a".repeat(200));
        let fields = serde_json::json!({"state": "s".repeat(22), "nonce": "n".repeat(22), "verifier": "v".repeat(43),
            "redirect": redirect});
        let pending = serde_json::from_value(fields).unwrap();
        let cookie = sign_ins.seal(&issuer, pending, &format!("/console?q={}", "a".repeat(MAX_PAGE - 11))).unwrap();
        let named = format!("{COOKIE_NAME}={cookie}");
        assert!(named.len() < 4_000, "browsers keep 4096 bytes: {}", named.len());
        assert_eq!(sign_ins.open(&issuer, &cookie).unwrap().to.len(), MAX_PAGE);
        assert!(HeaderValue::from_str(&named).is_ok());
    }
}
