//! The sessions of a server's callers: begun by their first call, looked after, and ended.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;

use super::Server;
use super::caller_slots::AllInUse;
use super::connection_loop::{sign_of_life, wait_after};
use super::endpoint::Endpoint;
use super::listing::name_of;
use super::session::Session;
use super::session_owner::{OwnerKey, SessionOwner};
use sekisho_config::McpShare;
use sekisho_core::call::CallContext;
use sekisho_core::error::{Blame, CallError, ErrorCode};

impl Server {
    /// The headers with the caller's own tokens.
    pub(super) fn own_headers(&self, call: &CallContext) -> Result<HeaderMap, CallError> {
        let mut headers = HeaderMap::new();
        if self.templates.is_empty() {
            return Ok(headers);
        }
        let tokens = call.origin.tool_parameters.get("tokens").and_then(Value::as_object);
        for template in &self.templates {
            headers.insert(template.header.clone(), template.fill(tokens)?);
        }
        Ok(headers)
    }

    /// The owner's session, where it needs no waiting.
    pub(super) fn known(&self, owner: &SessionOwner) -> Option<Arc<Session>> {
        self.main().filter(|main| self.is_shared(main, owner)).or_else(|| self.callers.get(owner.key.as_ref()?))
    }

    /// The session of an owner, or the gateway's own, where there is one.
    pub(crate) fn known_of(&self, owner: Option<&OwnerKey>) -> Option<Arc<Session>> {
        match owner {
            Some(owner) => self.callers.get(owner),
            None => self.main(),
        }
    }

    /// Whether the server has a tool of this name in the session of a call's client, where it added the tool. Read once after each
    /// change that the server announces there.
    pub(crate) async fn has_in_session(&self, call: &CallContext, name: &str) -> bool {
        let Ok(headers) = self.own_headers(call) else { return false };
        let owner = SessionOwner::of(call, self.settings().share, headers);
        let Some(session) = owner.key.as_ref().and_then(|key| self.callers.get(key)) else { return false };
        if session.connection.has_other_tools.swap(false, Ordering::Relaxed) {
            let Ok(listing) = self.connector.list(&session, self.most_tools).await else {
                session.connection.has_other_tools.store(true, Ordering::Relaxed);
                return false;
            };
            let catalogue = self.catalogue.load();
            let known: HashSet<_> = catalogue.tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
            let tools = listing.tools.iter().filter_map(|tool| serde_json::from_str::<Value>(tool).ok());
            let names = tools.filter_map(|tool| Some(self.names().qualified(name_of(&tool))?.to_string()));
            *session.own_tools.lock() = names.filter(|name| !known.contains(name.as_str())).collect();
        }
        session.own_tools.lock().contains(name)
    }

    /// Whether calls of the owner go over the gateway's own session: where the settings say that the server is
    /// stateless, and where the protocol says so, since without sessions a connection over HTTP carries nothing. A
    /// program has a memory whichever revision it speaks.
    fn is_shared(&self, main: &Session, owner: &SessionOwner) -> bool {
        if !self.templates.is_empty() || self.has_token(owner) {
            return false;
        }
        let is_stateless = main.is_modern() && matches!(self.connector.reach, Endpoint::Http(_));
        self.settings().share == McpShare::All
            || (is_stateless && !(owner.has_handshake() && self.connector.era.may_know_older()))
    }

    /// Whether requests of the owner have a token of its caller's own.
    fn has_token(&self, owner: &SessionOwner) -> bool {
        owner.user.is_some() || (self.connector.exchange.is_some() && owner.key.is_some())
    }

    /// Begins the owner's session, once the server is known to be there. In a box, since it is rare, and the task that
    /// keeps a session may begin the next one.
    pub(super) fn begin(self: &Arc<Self>, owner: SessionOwner) -> BoxFuture<'_, Result<Arc<Session>, CallError>> {
        let beginning = async move {
            if let Some(key) = owner.key.clone().filter(|_| self.has_token(&owner)) {
                // The gateway's own session may have credentials that end before the callers' credentials.
                return self.begin_own(key, owner).await;
            }
            let main = self.connected().await?;
            match owner.key.clone() {
                Some(key) if !self.is_shared(&main, &owner) => self.begin_own(key, owner).await,
                _ => Ok(main),
            }
        };
        beginning.boxed()
    }

    async fn begin_own(self: &Arc<Self>, key: OwnerKey, owner: SessionOwner) -> Result<Arc<Session>, CallError> {
        let is_kept = |key: &OwnerKey| self.subscriptions.has_any(key);
        let claim = self.callers.place(&owner.caller, &key, is_kept).map_err(|AllInUse| self.all_in_use())?;
        let owner = Arc::new(owner);
        let begun = claim.place.get_or_try_init(async || {
            let session = self.connect_for(&owner).await.map_err(|reason| self.not_begun(&reason))?;
            let session = Arc::new(session);
            self.subscribe_again(&session).await;
            let keeper = Arc::clone(self).keep_own(key.clone(), Arc::clone(&owner), Arc::downgrade(&session));
            tokio::spawn(keeper);
            Ok(session)
        });
        begun.await.cloned()
    }

    /// Connects in a task of its own: when the call is cancelled meanwhile, the session that the server began is ended
    /// in order.
    async fn connect_for(self: &Arc<Self>, owner: &Arc<SessionOwner>) -> Result<Session, String> {
        let (server, owner) = (Arc::clone(self), Arc::clone(owner));
        let connecting = tokio::spawn(async move { server.connector.connect(&owner).await });
        connecting.await.unwrap_or_else(|error| Err(format!("the task that connects failed: {error}")))
    }

    fn not_begun(&self, reason: &str) -> CallError {
        let asked = self.connector.sign_in().and_then(|sign_in| sign_in.requirement_since_connecting());
        match asked {
            Some(asked) => CallError::new(ErrorCode::ToolError, asked).blaming(Blame::Call),
            None => {
                let problem = format!("the MCP server {} cannot be used now: {reason}", self.name());
                CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network)
            }
        }
    }

    /// Ends the session when nobody uses it, when its client's ends, or the server is no more.
    async fn keep_own(self: Arc<Self>, key: OwnerKey, owner: Arc<SessionOwner>, session: Weak<Session>) {
        let Some((ended, suspect, close)) = session
            .upgrade()
            .map(|session| (session.ended.clone(), Arc::clone(&session.suspect), session.close.clone()))
        else {
            return;
        };
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                () = ended.cancelled() => break,
                () = self.stop.cancelled() => return,
                () = owner.client_ended() => {
                    self.subscriptions.forget(&key);
                    self.callers.forget(&key, &session);
                    return close.cancel();
                }
                () = suspect.notified() => {
                    let Some(doubtful) = session.upgrade() else { break };
                    if let Err(reason) = sign_of_life(&doubtful).await {
                        tracing::warn!(server = self.name(), %reason, "closing a caller's session with an MCP server");
                        close.cancel();
                    }
                }
                () = tokio::time::sleep_until(look_at) => {
                    let is_kept = self.subscriptions.has_any(&key);
                    let Some(next) = self.callers.forget_idle(&key, &session, is_kept) else { return };
                    look_at = next;
                }
            }
        }
        self.callers.forget(&key, &session);
        self.begin_again(key, owner).await;
    }

    /// A session was lost that tells of resources: another one takes its place.
    async fn begin_again(self: Arc<Self>, key: OwnerKey, owner: Arc<SessionOwner>) {
        let mut failures = 0;
        while self.subscriptions.has_any(&key) {
            failures += 1;
            tokio::select! {
                () = tokio::time::sleep(wait_after(failures)) => {}
                () = self.stop.cancelled() => return,
                () = owner.client_ended() => return self.subscriptions.forget(&key),
            }
            let owner = SessionOwner {
                caller: owner.caller.clone(),
                key: Some(key.clone()),
                headers: owner.headers.clone(),
                user: owner.user.clone(),
                client: owner.client.clone(),
            };
            if self.begin(owner).await.is_ok() {
                return;
            }
        }
    }

    fn all_in_use(&self) -> CallError {
        let problem = format!(
            "the MCP server {} has no session left for you (`max_sessions`): all that could end are in use; end one, or \
             retry later",
            self.name()
        );
        CallError::new(ErrorCode::Overloaded, problem)
    }
}
