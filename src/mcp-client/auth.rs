//! A user's sign-in to a server (OAuth 2.1, authorization code with PKCE), where the configuration has no credentials
//! for it.
//!
//! The protocol's library implements the flow: discovery (RFC 9728, RFC 8414, OpenID Connect), registration (client id
//! metadata documents, RFC 7591), PKCE, `resource` (RFC 8707) and `iss` (RFC 9207). This module detects when a sign-in
//! is required (`challenge`), restricts the library's requests (`client`), starts and completes sign-ins (`flow`), and
//! keeps the tokens in memory only.

mod challenge;
mod client;
mod flow;
mod provider;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use tokio::sync::Notify;
use url::Url;

use self::challenge::Challenge;
use self::client::Guarded;
use self::flow::Pending;
use self::tokens::SignedIn;
use super::text::bounded;
use sekisho_config::McpSignIn;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_outbound::{DomainList, Outbound};
use sekisho_user_tokens::credentials::Token;

pub(super) use self::provider::McpProvider;

pub use self::flow::{Callback, SignInError, Started};
pub use sekisho_user_tokens::OwnAddresses;

/// Timeout for renewing a token, and for exchanging a code for one.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a server may require more scopes than a sign-in granted. Beyond that, users would sign in again and
/// again: set its `sign_in.scopes` instead.
const MAX_STEPS: u32 = 3;

/// The sign-in to one server, shared by all its connections.
pub(super) struct SignIn {
    server: Arc<str>,
    url: Url,
    settings: McpSignIn,
    client: Arc<Guarded>,
    state: Mutex<State>,
    /// Held while a token is renewed: a refresh token that is used twice is treated as stolen.
    renewing: tokio::sync::Mutex<()>,
    /// Notified when the server has a new requirement.
    required: Notify,
    /// Notified when a user has signed in.
    done: Notify,
}

#[derive(Default)]
struct State {
    requirement: Option<Requirement>,
    /// It was required before the server was connected and listed, not by a call.
    required_to_connect: bool,
    connecting: bool,
    required_since_connecting: bool,
    pending: Option<Pending>,
    signed_in: Option<SignedIn>,
    /// The scopes granted last, kept after expiry: the next sign-in requests them again.
    granted: Vec<String>,
}

/// The requirement of a server before it serves requests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    SignIn(Challenge),
    /// A token with further scopes.
    Scopes(String),
    /// The same, but it was granted already, or required too often.
    Unsatisfiable(String),
}

sekisho_core::debug_fields!(SignIn { server });

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
            required: Notify::new(),
            done: Notify::new(),
        })
    }

    /// Whether it can be kept for these settings, so that a reload needs no new sign-in.
    pub(super) fn serves(&self, url: &Url, settings: &McpSignIn, outbound: &Outbound, allowed: &DomainList) -> bool {
        self.url == *url && self.settings == *settings && self.client.reaches_as(outbound, allowed)
    }

    /// Records a response that requires a sign-in (401), or more scopes (403).
    /// Errors: `tool_error` for such a response, with the remedy for an administrator.
    pub(super) fn handle(
        &self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
        sent: Option<&Token>,
    ) -> Result<(), CallError> {
        let challenge = Challenge::of(headers, &self.url);
        let requirement = match status {
            StatusCode::UNAUTHORIZED => {
                if let Some(refused) = sent {
                    self.forget(refused);
                }
                Requirement::SignIn(challenge)
            }
            // A server may forbid the optional GET stream to every client.
            StatusCode::FORBIDDEN if challenge.insufficient_scope && *method == Method::POST => self.further(challenge),
            _ => return Ok(()),
        };
        let problem = self.problem(&requirement);
        self.require(requirement);
        Err(CallError::new(ErrorCode::ToolError, problem).blaming(Blame::Call))
    }

    /// Why the server cannot be used completely, and the remedy.
    pub(super) fn unmet_requirement(&self) -> Option<String> {
        let requirement = self.state.lock().requirement.clone();
        requirement.map(|requirement| self.problem(&requirement))
    }

    /// A new connection to the server begins.
    pub(super) fn connects(&self) {
        let mut state = self.state.lock();
        state.connecting = true;
        state.required_since_connecting = false;
    }

    /// A sign-in required since then, without which the server cannot be used.
    pub(super) fn requirement_since_connecting(&self) -> Option<String> {
        let is_required = self.state.lock().required_since_connecting;
        if is_required { self.unmet_requirement() } else { None }
    }

    /// The server is connected and listed, so a requirement from before is met or withdrawn.
    pub(super) fn is_authorized(&self) {
        let mut state = self.state.lock();
        state.connecting = false;
        if state.required_to_connect && matches!(state.requirement, Some(Requirement::SignIn(_))) {
            state.requirement = None;
        }
    }

    /// The requirement of a 403 with missing scopes.
    fn further(&self, challenge: Challenge) -> Requirement {
        let state = self.state.lock();
        let Some(signed_in) = &state.signed_in else { return Requirement::SignIn(challenge) };
        let scope = challenge.scope.unwrap_or_default();
        let is_granted = scope.split(' ').all(|scope| state.granted.iter().any(|granted| granted == scope));
        if is_granted || scope.is_empty() || signed_in.steps >= MAX_STEPS {
            return Requirement::Unsatisfiable(scope);
        }
        Requirement::Scopes(scope)
    }

    fn require(&self, requirement: Requirement) {
        let mut state = self.state.lock();
        state.required_since_connecting |= matches!(requirement, Requirement::SignIn(_));
        if state.requirement.as_ref() != Some(&requirement) {
            state.requirement = Some(requirement);
            state.required_to_connect = state.connecting;
            self.required.notify_one();
        }
    }

    fn problem(&self, requirement: &Requirement) -> String {
        let server = &self.server;
        let way = format!("`sekisho mcp login {server} --server URL`, or POST /tools/mcp/{server}/sign_in");
        match requirement {
            Requirement::SignIn(_) => format!("{server} requires a user's sign-in (401): start it with {way}"),
            Requirement::Scopes(scope) => {
                format!(
                    "{server} requires the scope {scope:?}, which its sign-in did not grant: sign in again with {way}"
                )
            }
            Requirement::Unsatisfiable(scope) => format!(
                "{server} still requires the scope {scope:?}, though it was granted or requested {MAX_STEPS} times: \
                 contact its operator, or set the scopes it needs in `mcp.servers.{server}.sign_in.scopes`"
            ),
        }
    }

    /// Waits until the server has a new requirement, or a user signs in.
    pub(super) async fn changed(&self) {
        tokio::select! {
            () = self.required.notified() => {}
            () = self.done.notified() => {}
        }
    }

    /// Waits until a user signs in.
    pub(super) async fn done(&self) {
        self.done.notified().await;
    }

    fn described(&self, error: &AuthError) -> String {
        described(error, &self.client)
    }

    fn manager(&self) -> Option<Arc<AuthorizationManager>> {
        self.state.lock().signed_in.as_ref().map(|signed_in| Arc::clone(&signed_in.manager))
    }
}

/// The error as text for an operator. A token server's text is included only if it is an error response: other
/// text might contain a token.
fn described(error: &AuthError, client: &Guarded) -> String {
    const SERVERS_OWN: &str = "Server returned error response";
    match error {
        AuthError::TokenExchangeFailed(received) | AuthError::TokenRefreshFailed(received)
            if !received.starts_with(SERVERS_OWN) =>
        {
            let failure = client.failure().map(|failure| format!("the request to the token server failed: {failure}"));
            failure.unwrap_or_else(|| "the token server's response contains no usable token".to_owned())
        }
        AuthError::DiscoveryRequestFailed { url, source } => bounded(&format!("{url} cannot be read: {source}")),
        other => bounded(&other.to_string()),
    }
}

#[cfg(test)]
mod tests;
