//! A user's sign-in to a server (OAuth 2.1, authorization code with PKCE), where the configuration has no credentials
//! for it.
//!
//! The protocol's library knows the flow: discovery (RFC 9728, RFC 8414, OpenID Connect), registration (client id
//! metadata documents, RFC 7591), PKCE, `resource` (RFC 8707) and `iss` (RFC 9207). What is here: when a sign-in is
//! asked for (`challenge`), what the library may reach (`client`), how one is begun and ended (`flow`), and what of it
//! is kept: the tokens, in memory only.

mod challenge;
mod client;
mod flow;
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use tokio::sync::Notify;
use url::Url;

use self::challenge::Challenge;
use self::client::Guarded;
use self::flow::Pending;
use self::tokens::SignedIn;
use super::server::connect::bounded;
use crate::config::McpSignIn;
use crate::core::error::{Blame, CallError, ErrorCode};
use crate::infra::outbound::{DomainList, Outbound};
use crate::sources::credentials::Token;

pub use self::flow::{Callback, OwnAddresses, SignInError, Started};

/// How long renewing a token may take, and how long exchanging a code for one.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a server may ask for more scopes than a sign-in granted. One that goes on would have people sign in for
/// ever: then its `sign_in.scopes` must say what it needs.
const MAX_STEPS: u32 = 3;

/// The sign-in to one server, shared by all that send it requests.
pub(super) struct SignIn {
    server: Arc<str>,
    url: Url,
    settings: McpSignIn,
    client: Arc<Guarded>,
    state: Mutex<State>,
    /// Held while a token is renewed: a refresh token that is used twice is taken for a stolen one.
    renewing: tokio::sync::Mutex<()>,
    /// The server asks for something that it did not ask for before.
    asked: Notify,
    /// Somebody has signed in.
    done: Notify,
}

#[derive(Default)]
struct State {
    wanted: Option<Wanted>,
    /// It was wanted before the server was connected and listed, not by a call.
    wanted_to_connect: bool,
    connecting: bool,
    asked_meanwhile: bool,
    pending: Option<Pending>,
    signed_in: Option<SignedIn>,
    /// What was granted last, also when it is over: the next sign-in asks for it again.
    granted: Vec<String>,
}

/// What a server asks for before it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    SignIn(Challenge),
    /// A token with further scopes.
    Scopes(String),
    /// The same, but it was granted already, or asked for too often.
    Endless(String),
}

impl fmt::Debug for SignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SignIn").field("server", &self.server).finish_non_exhaustive()
    }
}

impl SignIn {
    pub(super) fn new(
        server: Arc<str>,
        url: Url,
        settings: McpSignIn,
        outbound: Outbound,
        allowed: Arc<DomainList>,
    ) -> Arc<Self> {
        let client = Arc::new(Guarded::new(outbound, allowed, &url));
        Arc::new(Self {
            server,
            url,
            settings,
            client,
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            asked: Notify::new(),
            done: Notify::new(),
        })
    }

    /// Whether a server with these settings may go on with it: a reload asks nobody to sign in again.
    pub(super) fn serves(&self, url: &Url, settings: &McpSignIn, outbound: &Outbound, allowed: &DomainList) -> bool {
        self.url == *url && self.settings == *settings && self.client.reaches_as(outbound, allowed)
    }

    /// Takes note of an answer that asks for a sign-in (401), or for more scopes (403).
    ///
    /// # Errors
    /// `tool_error`, with what an administrator is to do, for such an answer.
    pub(super) fn handle(
        &self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
        sent: Option<&Token>,
    ) -> Result<(), CallError> {
        let challenge = Challenge::of(headers, &self.url);
        let wanted = match status {
            StatusCode::UNAUTHORIZED => {
                if let Some(refused) = sent {
                    self.forget(refused);
                }
                Wanted::SignIn(challenge)
            }
            // Streams that are only listened to may be forbidden to anybody.
            StatusCode::FORBIDDEN if challenge.insufficient_scope && *method == Method::POST => self.further(challenge),
            _ => return Ok(()),
        };
        let problem = self.sentence(&wanted);
        self.want(wanted);
        Err(CallError::new(ErrorCode::ToolError, problem).blaming(Blame::Call))
    }

    /// Why the server cannot be used whole, and what to do about it.
    pub(super) fn trouble(&self) -> Option<String> {
        let wanted = self.state().wanted.clone();
        wanted.map(|wanted| self.sentence(&wanted))
    }

    /// The server is connected to anew.
    pub(super) fn connects(&self) {
        let mut state = self.state();
        state.connecting = true;
        state.asked_meanwhile = false;
    }

    /// What it has asked for since then, where nothing can be had without.
    pub(super) fn asked_meanwhile(&self) -> Option<String> {
        let asked = self.state().asked_meanwhile;
        if asked { self.trouble() } else { None }
    }

    /// It is connected and listed: what it asked for on the way there, it has, or no longer wants.
    pub(super) fn is_authorized(&self) {
        let mut state = self.state();
        state.connecting = false;
        if state.wanted_to_connect && matches!(state.wanted, Some(Wanted::SignIn(_))) {
            state.wanted = None;
        }
    }

    /// A 403 that asks for scopes.
    fn further(&self, challenge: Challenge) -> Wanted {
        let state = self.state();
        let Some(signed_in) = &state.signed_in else { return Wanted::SignIn(challenge) };
        let scope = challenge.scope.unwrap_or_default();
        let is_granted = scope.split(' ').all(|scope| state.granted.iter().any(|granted| granted == scope));
        if is_granted || scope.is_empty() || signed_in.steps >= MAX_STEPS {
            return Wanted::Endless(scope);
        }
        Wanted::Scopes(scope)
    }

    fn want(&self, wanted: Wanted) {
        let mut state = self.state();
        state.asked_meanwhile |= matches!(wanted, Wanted::SignIn(_));
        if state.wanted.as_ref() != Some(&wanted) {
            state.wanted = Some(wanted);
            state.wanted_to_connect = state.connecting;
            self.asked.notify_one();
        }
    }

    fn sentence(&self, wanted: &Wanted) -> String {
        let server = &self.server;
        let way = format!("`sekisho mcp login {server} --server URL`, or POST /tools/mcp/{server}/sign_in");
        match wanted {
            Wanted::SignIn(_) => format!("{server} asks for a user's sign-in (401): start it with {way}"),
            Wanted::Scopes(scope) => {
                format!(
                    "{server} asks for the scope {scope:?}, which its sign-in did not grant: sign in again with {way}"
                )
            }
            Wanted::Endless(scope) => format!(
                "{server} refuses for want of the scope {scope:?}, though it was granted or asked for {MAX_STEPS} times: \
                 ask whoever runs it, or name what it needs in `mcp.servers.{server}.sign_in.scopes`"
            ),
        }
    }

    /// Waits until the server asks for something that it did not ask for before, or somebody signs in.
    pub(super) async fn changed(&self) {
        tokio::select! {
            () = self.asked.notified() => {}
            () = self.done.notified() => {}
        }
    }

    /// Waits until somebody signs in.
    pub(super) async fn done(&self) {
        self.done.notified().await;
    }

    /// What went wrong, in words for an operator. Token servers' own words are passed on only where they name an error:
    /// elsewhere a token might stand in them.
    fn described(&self, error: &AuthError) -> String {
        const SERVERS_OWN: &str = "Server returned error response";
        match error {
            AuthError::TokenExchangeFailed(said) | AuthError::TokenRefreshFailed(said)
                if !said.starts_with(SERVERS_OWN) =>
            {
                let failure =
                    self.client.failure().map(|failure| format!("the token server cannot be asked: {failure}"));
                failure.unwrap_or_else(|| "the token server's answer holds no token that can be used".to_owned())
            }
            AuthError::DiscoveryRequestFailed { url, source } => bounded(&format!("{url} cannot be read: {source}")),
            other => bounded(&other.to_string()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manager(&self) -> Option<Arc<AuthorizationManager>> {
        self.state().signed_in.as_ref().map(|signed_in| Arc::clone(&signed_in.manager))
    }
}

#[cfg(test)]
mod tests;
