//! Starts a sign-in, and completes it when the user's browser is redirected back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadataResolution, AuthorizationRequest, AuthorizationSession,
    OAuthHttpClient, StateStore, StoredAuthorizationState,
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::time::Instant;
use url::Url;

use super::challenge::Challenge;
use super::{OwnAddresses, Requirement, SignIn, TOKEN_TIMEOUT};
use crate::text::bounded;
use sekisho_config::McpSignIn;

/// Time limit for the user, from the authorization URL to the callback.
const USER_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeout for discovery and registration together.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The client name for registration.
pub(super) const CLIENT_NAME: &str = "sekisho";

/// A sign-in that waits for its callback.
pub(super) struct Pending {
    manager: Arc<AuthorizationManager>,
    /// SHA-256 of `state`: compared instead of it, so that the time of the comparison reveals nothing.
    state: [u8; 32],
    until: Instant,
}

impl Pending {
    pub(super) fn new(manager: Arc<AuthorizationManager>, state: &str, now: Instant) -> Self {
        Self { manager, state: digest(state), until: now + USER_TIMEOUT }
    }
}

/// A sign-in that waits for its user.
#[derive(Debug)]
pub struct Started {
    /// The address to open in the user's browser.
    pub authorization_url: Url,
    /// How long it is valid.
    pub expires_in: Duration,
}

/// The parameters of the authorization server's redirect back (RFC 6749 §4.1.2, RFC 9207 §2).
#[derive(Clone)]
pub struct Callback {
    pub state: String,
    pub issuer: Option<String>,
    /// The code, or the error.
    pub outcome: Result<String, String>,
}

sekisho_core::debug_fields!(Callback { issuer });

/// Why a sign-in cannot be started or completed.
#[derive(Debug, Error)]
pub enum SignInError {
    #[error("there is no MCP server called {0:?}")]
    NoServer(String),
    #[error("the MCP server {0} has no sign-in: it is a local program, or its credentials are in the configuration")]
    NotPossible(String),
    #[error(
        "each caller signs in to the MCP server {0} on its own: POST /sign-ins/mcp:{0}, or `sekisho sign-ins start mcp:{0}`"
    )]
    PerUser(String),
    #[error("the MCP server {0} does not require a sign-in now")]
    NotRequired(String),
    #[error("{0}")]
    Unsatisfiable(String),
    /// The MCP server or its authorization server does not follow the protocol.
    #[error("the sign-in to the MCP server {server} failed: {reason}")]
    Failed { server: String, reason: String },
    #[error(
        "there is no such pending sign-in: it was used, replaced by another, or is older than 10 minutes; start it again"
    )]
    NotPending,
}

impl SignIn {
    /// Discovers where to sign in, and returns the address for a user's browser. Replaces a pending sign-in.
    pub(crate) async fn start(&self, own: &OwnAddresses) -> Result<Started, SignInError> {
        let requirement = self.state.lock().requirement.clone();
        self.client.begin();
        let starting = async {
            match requirement {
                None => Err(SignInError::NotRequired(self.server.to_string())),
                Some(Requirement::Unsatisfiable(_)) => {
                    Err(SignInError::Unsatisfiable(self.unmet_requirement().unwrap_or_default()))
                }
                Some(Requirement::Scopes(scope)) => match self.manager() {
                    Some(manager) => self.request_scopes(manager, &scope).await,
                    None => self.start_anew(&Challenge::default(), own).await,
                },
                Some(Requirement::SignIn(challenge)) => self.start_anew(&challenge, own).await,
            }
        };
        let started = tokio::time::timeout(START_TIMEOUT, Box::pin(starting)).await;
        let (manager, written) = started.map_err(|_| self.failed("the servers did not respond in time"))??;
        let authorization_url = self.checked(&written)?;
        let state = authorization_url.query_pairs().find(|(name, _)| name == "state");
        let (_, state) = state.ok_or_else(|| self.failed("the authorization URL has no `state`"))?;
        self.state.lock().pending = Some(Pending::new(manager, &state, Instant::now()));
        Ok(Started { authorization_url, expires_in: USER_TIMEOUT })
    }

    /// Whether the callback belongs to this server's pending sign-in.
    pub(crate) fn awaits(&self, callback: &Callback) -> bool {
        self.state.lock().pending.as_ref().is_some_and(|pending| pending.state == digest(&callback.state))
    }

    /// Completes the pending sign-in: exchanges the code for a token. It can be used once, even if it fails.
    pub(crate) async fn finish(&self, callback: Callback) -> Result<(), SignInError> {
        let Pending { manager, .. } = self.take(&callback).ok_or(SignInError::NotPending)?;
        let code = callback
            .outcome
            .map_err(|error| self.failed(format!("the authorization server refused it: {}", bounded(&error))))?;
        self.client.begin();
        let exchange = manager.exchange_code_for_token_with_issuer(&code, &callback.state, callback.issuer.as_deref());
        let exchanged = tokio::time::timeout(TOKEN_TIMEOUT, exchange).await;
        let answer = exchanged.map_err(|_| self.failed("the token server did not respond in time"))?;
        let answer = answer.map_err(|error| self.failed(self.described(&error)))?;
        let granted = manager.get_current_scopes().await;
        self.keep(manager, &answer, granted).map_err(|reason| self.failed(reason))
    }

    fn take(&self, callback: &Callback) -> Option<Pending> {
        if !self.awaits(callback) {
            return None;
        }
        self.state.lock().pending.take().filter(|pending| Instant::now() < pending.until)
    }

    /// Starts with the server's current metadata: after a move to another authorization server, nothing of the
    /// earlier one is used.
    async fn start_anew(&self, challenge: &Challenge, own: &OwnAddresses) -> Result<Begun, SignInError> {
        let client: Arc<dyn OAuthHttpClient> = Arc::clone(&self.client) as _;
        let manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), client).await;
        let mut manager = manager.map_err(|error| self.failed(self.described(&error)))?;
        manager.set_state_store(LatestState::default());
        let resolved = manager.resolve_metadata_from_challenge(challenge.header.as_deref()).await;
        let AuthorizationMetadataResolution { metadata, source, .. } =
            resolved.map_err(|error| self.failed(self.described(&error)))?;
        self.check_issuer(metadata.issuer.as_deref())?;
        manager.set_metadata(metadata);
        let scopes = self.scopes(&manager).await;
        let request = self.request(own, scopes);
        match AuthorizationSession::new(manager, request).await {
            Ok(AuthorizationSession { auth_manager, auth_url, .. }) => Ok((Arc::new(auth_manager), auth_url)),
            Err((_, error)) if source.is_discovered() => Err(self.failed(self.described(&error))),
            Err((_, error)) => {
                let reason = format!("it publishes no authorization metadata, and {}", self.described(&error));
                Err(self.failed(reason))
            }
        }
    }

    /// The client's registration data and scopes; a secret is sent only to its own issuer.
    fn request(&self, own: &OwnAddresses, scopes: Vec<String>) -> AuthorizationRequest {
        let on_this_machine = own.callback.scheme() == "http";
        let mut request = AuthorizationRequest::new(own.callback.as_str())
            .with_client_name(CLIENT_NAME)
            // RFC 8252: a client with a loopback callback is an application, not a web site.
            .with_application_type(if on_this_machine { "native" } else { "web" })
            .with_initial_scope_selection()
            .with_scopes(scopes);
        if let Some(id) = &self.settings.client_id {
            request = request.with_preregistered_client(id);
        }
        if let Some(secret) = &self.settings.client_secret {
            request = request.with_client_secret(secret.expose());
        }
        if let Some(address) = self.settings.client_metadata_url.as_ref().or(own.client_metadata.as_ref()) {
            request = request.with_client_metadata_url(address.as_str());
        }
        request
    }

    /// The configured scopes; otherwise those that the server requires, and those granted before.
    async fn scopes(&self, manager: &AuthorizationManager) -> Vec<String> {
        if !self.settings.scopes.is_empty() {
            return self.settings.scopes.clone();
        }
        let asked = manager.select_initial_scopes(&[]).await;
        let granted = self.state.lock().granted.clone();
        let mut seen = BTreeSet::new();
        asked.into_iter().chain(granted).filter(|scope| seen.insert(scope.clone())).collect()
    }

    async fn request_scopes(&self, manager: Arc<AuthorizationManager>, scope: &str) -> Result<Begun, SignInError> {
        // The library limits requests; here grants are limited instead.
        manager.reset_scope_upgrade_attempts().await;
        let url = manager.request_scope_upgrade(scope).await.map_err(|error| self.failed(self.described(&error)))?;
        Ok((manager, url))
    }

    fn check_issuer(&self, found: Option<&str>) -> Result<(), SignInError> {
        check_issuer(&self.settings, found).map_err(|reason| self.failed(reason))
    }

    /// The URL comes from the server, and a browser may execute some URLs (`javascript:`).
    fn checked(&self, written: &str) -> Result<Url, SignInError> {
        let url = Url::parse(written).map_err(|_| self.failed("the authorization URL is not a URL"))?;
        let names_nobody = url.username().is_empty() && url.password().is_none();
        match self.client.permits(&url) && names_nobody {
            true => Ok(url),
            false => Err(self.failed("the authorization URL is not one that a browser may be sent to")),
        }
    }

    fn failed(&self, reason: impl Into<String>) -> SignInError {
        SignInError::Failed { server: self.server.to_string(), reason: reason.into() }
    }
}

/// The manager that exchanges the code, and the authorization URL.
type Begun = (Arc<AuthorizationManager>, String);

fn digest(state: &str) -> [u8; 32] {
    Sha256::digest(state.as_bytes()).into()
}

/// Otherwise a server that names another authorization server would receive the client's secret.
pub(super) fn check_issuer(settings: &McpSignIn, found: Option<&str>) -> Result<(), String> {
    let Some(expected) = &settings.issuer else { return Ok(()) };
    let plain = |issuer: &str| issuer.trim_end_matches('/').to_owned();
    if found.map(plain) == Some(plain(expected)) {
        return Ok(());
    }
    let found = bounded(found.unwrap_or("one without a name"));
    Err(format!("its authorization server is {found}, but `sign_in.issuer` is {expected}"))
}

/// The library's state between authorization URL and callback, of the latest sign-in only.
#[derive(Clone, Default)]
pub(super) struct LatestState(Arc<Mutex<Option<(String, StoredAuthorizationState)>>>);

impl LatestState {
    pub(super) fn take(&self) -> Option<StoredAuthorizationState> {
        self.0.lock().take().map(|(_, kept)| kept)
    }
}

#[async_trait]
impl StateStore for LatestState {
    async fn save(&self, state: &str, kept: StoredAuthorizationState) -> Result<(), AuthError> {
        *self.0.lock() = Some((state.to_owned(), kept));
        Ok(())
    }

    async fn load(&self, state: &str) -> Result<Option<StoredAuthorizationState>, AuthError> {
        let kept = self.0.lock().take();
        Ok(kept.filter(|(known, _)| known == state).map(|(_, kept)| kept))
    }

    async fn delete(&self, _state: &str) -> Result<(), AuthError> {
        // It was removed by `load`.
        Ok(())
    }
}
