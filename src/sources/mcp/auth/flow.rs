//! Beginning a sign-in, and ending it when the user's browser comes back.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadataResolution, AuthorizationRequest, AuthorizationSession,
    OAuthHttpClient, StateStore, StoredAuthorizationState,
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::time::Instant;
use url::Url;

use super::challenge::Challenge;
use super::{SignIn, TOKEN_TIMEOUT, Wanted};
use crate::sources::mcp::server::connect::bounded;

/// How long a user has, from the address to the answer.
const USER_TIMEOUT: Duration = Duration::from_secs(600);

/// Discovery and registration together.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Our name where we register ourselves.
const CLIENT_NAME: &str = "sekisho";

/// The user is asked.
pub(super) struct Pending {
    manager: Arc<AuthorizationManager>,
    /// SHA-256 of `state`: compared in place of it, so that a comparison's time tells nothing.
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
    /// To be opened in the user's browser.
    pub authorization_url: Url,
    /// How long it can be used.
    pub expires_in: Duration,
}

/// What the authorization server sends the user's browser back with (RFC 6749 §4.1.2, RFC 9207 §2).
#[derive(Clone)]
pub struct Callback {
    pub state: String,
    pub issuer: Option<String>,
    /// The code, or the error in its place.
    pub outcome: Result<String, String>,
}

impl fmt::Debug for Callback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Callback").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Where we are reached by browsers and authorization servers.
#[derive(Debug, Clone)]
pub struct OwnAddresses {
    pub callback: Url,
    /// Where the document of what we are as a client is served, if anybody but this machine can read it there.
    pub client_metadata: Option<Url>,
}

/// Why a sign-in is not begun, or not ended.
#[derive(Debug, Error)]
pub enum SignInError {
    #[error("there is no MCP server called {0:?}")]
    NoServer(String),
    #[error("nobody signs in to the MCP server {0}: it is a program, or its credentials stand in the configuration")]
    NotPossible(String),
    #[error("the MCP server {0} asks for no sign-in just now")]
    NotAsked(String),
    #[error("{0}")]
    Endless(String),
    /// The MCP server or its authorization server does not play its part.
    #[error("the sign-in to the MCP server {server} failed: {reason}")]
    Failed { server: String, reason: String },
    #[error(
        "no such sign-in is awaited: it was used, replaced by another, or is older than 10 minutes; start it again"
    )]
    NotAwaited,
}

impl SignIn {
    /// Finds out where to sign in, and asks for a user's browser to be sent there. A sign-in that was begun before
    /// is no longer awaited.
    ///
    /// # Errors
    /// [`SignInError`].
    pub(in crate::sources::mcp) async fn start(&self, own: &OwnAddresses) -> Result<Started, SignInError> {
        let wanted = self.state().wanted.clone();
        self.client.begin();
        let starting = async {
            match wanted {
                None => Err(SignInError::NotAsked(self.server.to_string())),
                Some(Wanted::Endless(_)) => Err(SignInError::Endless(self.trouble().unwrap_or_default())),
                Some(Wanted::Scopes(scope)) => match self.manager() {
                    Some(manager) => self.ask_for_more(manager, &scope).await,
                    None => self.start_anew(&Challenge::default(), own).await,
                },
                Some(Wanted::SignIn(challenge)) => self.start_anew(&challenge, own).await,
            }
        };
        let started = tokio::time::timeout(START_TIMEOUT, Box::pin(starting)).await;
        let (manager, written) = started.map_err(|_| self.failed("the servers take too long to answer"))??;
        let authorization_url = self.checked(&written)?;
        let state = authorization_url.query_pairs().find(|(name, _)| name == "state");
        let (_, state) = state.ok_or_else(|| self.failed("where to sign in has no state"))?;
        self.state().pending = Some(Pending::new(manager, &state, Instant::now()));
        Ok(Started { authorization_url, expires_in: USER_TIMEOUT })
    }

    /// Whether the browser comes back from this server's sign-in.
    pub(in crate::sources::mcp) fn awaits(&self, callback: &Callback) -> bool {
        self.state().pending.as_ref().is_some_and(|pending| pending.state == digest(&callback.state))
    }

    /// Ends the sign-in that was begun: exchanges the code for a token. Whatever comes of it, it cannot be ended again.
    ///
    /// # Errors
    /// [`SignInError`].
    pub(in crate::sources::mcp) async fn finish(&self, callback: Callback) -> Result<(), SignInError> {
        let Pending { manager, .. } = self.take(&callback).ok_or(SignInError::NotAwaited)?;
        let code =
            callback.outcome.map_err(|error| self.failed(format!("it was refused there: {}", bounded(&error))))?;
        self.client.begin();
        let exchange = manager.exchange_code_for_token_with_issuer(&code, &callback.state, callback.issuer.as_deref());
        let exchanged = tokio::time::timeout(TOKEN_TIMEOUT, exchange).await;
        let answer = exchanged.map_err(|_| self.failed("the token server does not answer"))?;
        let answer = answer.map_err(|error| self.failed(self.described(&error)))?;
        let granted = manager.get_current_scopes().await;
        self.keep(manager, &answer, granted).map_err(|reason| self.failed(reason))
    }

    fn take(&self, callback: &Callback) -> Option<Pending> {
        if !self.awaits(callback) {
            return None;
        }
        self.state().pending.take().filter(|pending| Instant::now() < pending.until)
    }

    /// The user signs in where the server's own metadata says, as it says now: a server that has moved to another
    /// authorization server is signed in to there, with nothing of what the earlier one gave.
    async fn start_anew(&self, challenge: &Challenge, own: &OwnAddresses) -> Result<Asked, SignInError> {
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
                let reason = format!("it publishes nothing about where to sign in, and {}", self.described(&error));
                Err(self.failed(reason))
            }
        }
    }

    /// Only what the library registers or is told of beforehand; a secret goes to its own issuer alone.
    fn request(&self, own: &OwnAddresses, scopes: Vec<String>) -> AuthorizationRequest {
        let on_this_machine = own.callback.scheme() == "http";
        let mut request = AuthorizationRequest::new(own.callback.as_str())
            .with_client_name(CLIENT_NAME)
            // RFC 8252: one that comes back to this machine is an application, not a web site.
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

    /// Those of the configuration; otherwise what the server asks for, and what it asked for before.
    async fn scopes(&self, manager: &AuthorizationManager) -> Vec<String> {
        if !self.settings.scopes.is_empty() {
            return self.settings.scopes.clone();
        }
        let asked = manager.select_initial_scopes(&[]).await;
        let granted = self.state().granted.clone();
        let mut seen = BTreeSet::new();
        asked.into_iter().chain(granted).filter(|scope| seen.insert(scope.clone())).collect()
    }

    async fn ask_for_more(&self, manager: Arc<AuthorizationManager>, scope: &str) -> Result<Asked, SignInError> {
        // The library counts addresses that were asked for; what is bounded here is what was granted.
        manager.reset_scope_upgrade_attempts().await;
        let url = manager.request_scope_upgrade(scope).await.map_err(|error| self.failed(self.described(&error)))?;
        Ok((manager, url))
    }

    /// A server that names another authorization server would otherwise be given the client's secret.
    fn check_issuer(&self, found: Option<&str>) -> Result<(), SignInError> {
        let Some(expected) = &self.settings.issuer else { return Ok(()) };
        let plain = |issuer: &str| issuer.trim_end_matches('/').to_owned();
        if found.map(plain) == Some(plain(expected)) {
            return Ok(());
        }
        let found = bounded(found.unwrap_or("one without a name"));
        Err(self.failed(format!("its authorization server is {found}, and `sign_in.issuer` says {expected}")))
    }

    /// The address is somebody else's, and a browser runs what some addresses say.
    fn checked(&self, written: &str) -> Result<Url, SignInError> {
        let url = Url::parse(written).map_err(|_| self.failed("where to sign in is no address"))?;
        let names_nobody = url.username().is_empty() && url.password().is_none();
        match self.client.permits(&url) && names_nobody {
            true => Ok(url),
            false => Err(self.failed("where to sign in is not an address that a browser may be sent to")),
        }
    }

    fn failed(&self, reason: impl Into<String>) -> SignInError {
        SignInError::Failed { server: self.server.to_string(), reason: reason.into() }
    }
}

/// Who will exchange the code, and where the user is asked for it.
type Asked = (Arc<AuthorizationManager>, String);

fn digest(state: &str) -> [u8; 32] {
    Sha256::digest(state.as_bytes()).into()
}

/// What the library keeps between the address and the answer: of the latest sign-in only, once.
#[derive(Default)]
struct LatestState(Mutex<Option<(String, StoredAuthorizationState)>>);

#[async_trait]
impl StateStore for LatestState {
    async fn save(&self, state: &str, kept: StoredAuthorizationState) -> Result<(), AuthError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((state.to_owned(), kept));
        Ok(())
    }

    async fn load(&self, state: &str) -> Result<Option<StoredAuthorizationState>, AuthError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(kept.filter(|(known, _)| known == state).map(|(_, kept)| kept))
    }

    async fn delete(&self, _state: &str) -> Result<(), AuthError> {
        // It was taken.
        Ok(())
    }
}
