//! Links that open the console for this machine's user. `sekisho console` gets one over the Unix socket; it is used once,
//! within seconds. Another one, for minutes, is printed on the terminal where the gateway is started.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::sessions::{SecretHash, SessionSecret};
use super::sign_in::{begin, require_encryption};
use super::visit::Guest;
use super::{Console, error_page, redirect};
use sekisho_api::administrator_on_socket;
use sekisho_api::reply::ErrorReply;
use sekisho_auth::SignedIn;
use sekisho_core::bounded::Ring;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

/// How long a link can be used.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long the link can be used that the gateway prints on the terminal where it is started.
const LIFETIME_AT_START: Duration = Duration::from_secs(600);

/// Maximum bytes of the body of a request for a link.
const MAX_BODY: usize = 1_024;

/// Maximum links at once; a further one takes the place of the oldest.
const MAX_LINKS: usize = 16;

/// The links that were made and not used.
#[derive(Debug)]
pub(super) struct Links(Mutex<Ring<Link>>);

#[derive(Debug)]
struct Link {
    hash: SecretHash,
    caller: Arc<Caller>,
    until: Instant,
}

/// The query of a link.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LinkQuery {
    code: String,
}

/// A request for a link. No body is one for `sekisho console`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LinkRequest {
    /// It is printed where the gateway is started.
    at_start: bool,
}

impl Default for Links {
    fn default() -> Self {
        Self(Mutex::new(Ring::new(MAX_LINKS)))
    }
}

impl Links {
    fn create(&self, caller: Arc<Caller>, lifetime: Duration) -> SessionSecret {
        let code = SessionSecret::random();
        let mut links = self.0.lock();
        links.retain(|link| link.until > Instant::now());
        links.push(Link { hash: code.hash(), caller, until: Instant::now() + lifetime });
        code
    }

    fn take(&self, code: &SessionSecret) -> Option<Arc<Caller>> {
        let hash = code.hash();
        let mut links = self.0.lock();
        links.retain(|link| link.until > Instant::now());
        links.take_first(|link| link.hash == hash).map(|link| link.caller)
    }
}

/// `POST /console/link`, only over the Unix socket.
pub(super) async fn create(State(console): State<Arc<Console>>, request: Request) -> Result<Response, ErrorReply> {
    let (parts, body) = request.into_parts();
    let caller = administrator_on_socket(parts, &console.gateway).await?;
    let base = base(&console)?;
    let body = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let LinkRequest { at_start } = serde_json::from_slice(&body).unwrap_or_default();
    let lifetime = if at_start { LIFETIME_AT_START } else { LIFETIME };
    let code = console.links.create(caller, lifetime);
    let url = format!("{base}/console/open?code={}", code.as_str());
    Ok(Json(json!({"success": true, "url": url, "expires_in": lifetime.as_secs()})).into_response())
}

/// `GET /console/open`: the browser that follows the link is signed in.
pub(super) async fn open(
    State(console): State<Arc<Console>>,
    guest: Guest,
    query: Result<Query<LinkQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let code = query.ok().and_then(|Query(query)| SessionSecret::read(&query.code));
    let begun = require_encryption(&guest).and_then(|()| {
        let caller = code.and_then(|code| console.links.take(&code)).ok_or_else(|| {
            let message = "the link was used, or has expired; run `sekisho console` again";
            CallError::new(ErrorCode::Unauthenticated, message)
        })?;
        begin(&console, &guest, SignedIn::of_local_user(caller))
    });
    match begun {
        Ok(cookie) => {
            let mut response = redirect("/console");
            response.headers_mut().insert(SET_COOKIE, cookie);
            response
        }
        Err(error) => error_page::of_guest(&guest, &error),
    }
}

/// The address of the console for a browser on this machine.
fn base(console: &Console) -> Result<String, CallError> {
    let config = console.gateway.configuration().current();
    if let Some(url) = &config.server.mcp.public_url {
        return Ok(url.as_str().trim_end_matches('/').to_owned());
    }
    let address = console.address.ok_or_else(|| {
        let message = "this gateway serves its Unix socket alone; start one with `sekisho serve`";
        CallError::new(ErrorCode::InvalidRequest, message)
    })?;
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    Ok(match address.ip().is_unspecified() {
        true => format!("{scheme}://localhost:{}", address.port()),
        false => format!("{scheme}://{address}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_is_used_once_and_in_time() {
        let links = Links::default();
        let local = || Arc::new(Caller::new("local", "default", Vec::new()));
        let create = || links.create(local(), LIFETIME);
        let code = create();
        assert!(links.take(&SessionSecret::random()).is_none());
        assert!(links.take(&code).is_some() && links.take(&code).is_none());
        let late = create();
        tokio::time::advance(LIFETIME).await;
        assert!(links.take(&late).is_none());
        let first = create();
        for _ in 0..MAX_LINKS {
            create();
        }
        assert!(links.take(&first).is_none() && links.0.lock().len() == MAX_LINKS);
    }
}
