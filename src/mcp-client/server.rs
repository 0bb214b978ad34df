//! One server: its connection, and its lists as last read.
//!
//! A failing server affects only its own tools: they stay listed, calls of them fail with the reason, and the gateway
//! retries the connection with increasing intervals.
//!
//! Methods of [`Server`] are in several files: `awaited` answers before it has listed its tools, `caller_sessions` begins and keeps the sessions of callers,
//! `connection_loop` keeps the gateway's own connection (`user_listing` the lists, where each caller signs in on its
//! own), and `subscriptions` has the subscriptions.

mod awaited;
mod caller_sessions;
mod caller_slots;
pub(crate) mod catalogue;
pub(crate) mod connect;
mod connection_loop;
pub(crate) mod endpoint;
pub(crate) mod executor;
pub(crate) mod handler;
pub(crate) mod handshake;
pub(crate) mod listing;
pub(crate) mod operations;
pub(crate) mod output;
mod page_elicitation;
pub(crate) mod session;
pub(crate) mod session_owner;
mod sign_in_tool;
mod subscribing;
pub(crate) mod subscriptions;
pub(crate) mod task;
mod user_listing;

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::caller_slots::CallerSlots;
use self::catalogue::{Catalogue, TOO_MANY, source, upstream};
use self::connect::Connector;
use self::listing::Listing;
use self::session::Session;
use self::session_owner::SessionOwner;
use self::subscriptions::Subscriptions;
use super::changes::Change;
use super::connection_record::HostConnections;
use super::names::Names;
use sekisho_calls::registry::lock::{Lock, LockViolation};
use sekisho_calls::tool::Destination;
use sekisho_config::McpServerSettings;
use sekisho_core::administration::Ownership;
use sekisho_core::call::{CallContext, Caller, Deadline, Upstream};
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::source_access::SwitchedSources;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;
use sekisho_user_tokens::User;
use sekisho_user_tokens::credentials::Template;

/// The intervals between attempts to reach a failing server.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The reason reported for a server that is no longer configured.
const REMOVED: &str = "it was removed";

/// The parts of the service that all servers share.
#[derive(Debug)]
pub(super) struct ServerContext {
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) changes: tokio::sync::broadcast::Sender<Change>,
    /// Notified when the tools of some server have changed.
    pub(super) tools_changed: Arc<Notify>,
    /// The approved state, if a lock is configured.
    pub(super) lock: Arc<ArcSwapOption<Lock>>,
    /// For whom the servers of the catalogue are switched on; `None` outside of a gateway, where they have no callers.
    pub(super) switched: Option<Arc<SwitchedSources>>,
}

/// The state of the gateway's own session, over which the lists are read.
#[derive(Debug, Clone)]
pub(super) enum State {
    Connecting,
    Connected(Arc<Session>),
    /// It has none: each caller has a session, with its own token.
    OfCallers,
    /// The reason, and the time of the next attempt.
    Down(Arc<str>, Instant),
}

/// How a server is reached, and whether it can be used.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    pub name: String,
    /// Its program, or scheme, host and port.
    pub address: String,
    pub state: ServerState,
    pub since: SystemTime,
    /// The problem, also of a server that can still be used.
    pub reason: Option<Arc<str>>,
    /// Whether it takes a user's sign-in.
    pub can_sign_in: bool,
    pub owner: Ownership,
    /// Of its programs in a sandbox.
    pub connections: Vec<HostConnections>,
    /// Of the sandbox of the last program that was started.
    pub layers: Vec<&'static str>,
}

/// Whether a server can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    Connecting,
    Connected,
    Down,
    NeedsSignIn,
}

pub(super) struct Server {
    pub(super) connector: Connector,
    /// The upstream that its circuit breaker guards.
    pub(super) upstream: Upstream,
    /// Headers that contain the caller's own tokens.
    pub(super) templates: Vec<Template>,
    pub(super) most_tools: usize,
    pub(super) rate_limit: u32,
    pub(super) context: Arc<ServerContext>,
    pub(super) catalogue: ArcSwap<Catalogue>,
    pub(super) listing: ArcSwap<Listing>,
    state: watch::Sender<State>,
    started: Instant,
    /// When it came into its state.
    since: Mutex<SystemTime>,
    /// Notified when somebody asks for a new connection.
    reconnect: Notify,
    /// Whether it has connected or failed at least once.
    settled: watch::Sender<bool>,
    callers: CallerSlots,
    pub(super) subscriptions: Subscriptions,
    /// Whether another server has its name now, and reports its state.
    succeeded: AtomicBool,
    pub(super) stop: CancellationToken,
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(
        connector: Connector,
        templates: Vec<Template>,
        (most_tools, rate_limit): (usize, u32),
        context: Arc<ServerContext>,
        before: Arc<Listing>,
    ) -> Arc<Self> {
        let settings = &connector.settings;
        let idle = Duration::from_secs(settings.session_idle_seconds.into());
        let callers = CallerSlots::new(settings.max_sessions(), idle);
        let server = Arc::new(Self {
            upstream: upstream(&connector.name),
            connector,
            templates,
            most_tools,
            rate_limit,
            context,
            catalogue: ArcSwap::default(),
            listing: ArcSwap::new(before),
            state: watch::Sender::new(State::Connecting),
            started: Instant::now(),
            since: Mutex::new(SystemTime::now()),
            reconnect: Notify::new(),
            settled: watch::Sender::new(false),
            callers,
            subscriptions: Subscriptions::default(),
            succeeded: AtomicBool::new(false),
            stop: CancellationToken::new(),
        });
        server.offer_what_is_listed();
        server
    }

    pub(super) fn name(&self) -> &str {
        &self.connector.name
    }

    pub(super) fn settings(&self) -> &McpServerSettings {
        &self.connector.settings
    }

    pub(super) fn names(&self) -> &Names {
        &self.connector.events.names
    }

    /// Whether the caller may use the parts of the server beside its tools.
    pub(super) fn may_use(&self, caller: &Caller) -> bool {
        self.is_on_for(caller) && self.may_use_when_on(caller)
    }

    /// The same, also while it is off for the caller.
    pub(super) fn may_use_when_on(&self, caller: &Caller) -> bool {
        let is_left = || caller.tools.admits_all() || operations::are_some_left_to(caller, self, self.settings());
        self.is_for(caller) && is_left()
    }

    /// Whether the server is shared or of the caller's tenant, the caller has a role that it needs, and it is switched on for the
    /// caller, if callers get it on request.
    pub(super) fn admits(&self, caller: &Caller) -> bool {
        self.is_for(caller) && self.is_on_for(caller)
    }

    fn is_for(&self, caller: &Caller) -> bool {
        let McpServerSettings { roles, owner, .. } = self.settings();
        owner.is_visible_to(&caller.tenant) && (roles.is_empty() || caller.has_one_of(roles))
    }

    fn is_on_for(&self, caller: &Caller) -> bool {
        let switched = self.context.switched.as_ref();
        let is_on = || switched.is_some_and(|switched| switched.admits(&source(self.name()), caller));
        !self.settings().on_request || is_on()
    }

    /// Whether these settings are equivalent to the current ones.
    pub(super) fn runs_as(&self, settings: &McpServerSettings, limits: (usize, u32)) -> bool {
        self.settings() == settings && (self.most_tools, self.rate_limit) == limits && !self.stop.is_cancelled()
    }

    /// Whether it lists the resource with this URI of the gateway, or names it as an app of a tool.
    pub(super) fn lists(&self, uri: &str) -> bool {
        let catalogue = self.catalogue.load();
        catalogue.apps.contains(uri) || catalogue.resources.iter().any(|resource| resource["uri"] == uri)
    }

    /// How the server's instructions and prompts differ from the lock.
    pub(super) fn lock_violation(&self) -> Option<LockViolation> {
        let lock = self.context.lock.load();
        let catalogue = self.catalogue.load();
        lock.as_ref()?.violation(&source(self.name()), catalogue.words.as_ref()?)
    }

    /// Marks it as no longer configured, and whether another server replaces it.
    pub(super) fn mark_replaced(&self, succeeded: bool) {
        self.succeeded.store(succeeded, Ordering::Relaxed);
    }

    /// Puts it into another state, and returns the one before.
    fn enter(&self, state: State) -> State {
        let before = self.state.send_replace(state);
        if discriminant(&before) != discriminant(&*self.state.borrow()) {
            *self.since.lock() = SystemTime::now();
        }
        before
    }

    /// Its state, since when, and why.
    pub(super) fn status(&self) -> ServerStatus {
        let needs_sign_in = self.connector.sign_in().and_then(|sign_in| sign_in.unmet_requirement()).is_some();
        let state = match &*self.state.borrow() {
            _ if needs_sign_in => ServerState::NeedsSignIn,
            State::Connecting => ServerState::Connecting,
            State::OfCallers if self.listing.load().tools.is_empty() => ServerState::NeedsSignIn,
            State::Connected(_) | State::OfCallers => ServerState::Connected,
            State::Down(..) => ServerState::Down,
        };
        ServerStatus {
            name: self.name().to_owned(),
            address: self.connector.reach.to_string(),
            state,
            since: *self.since.lock(),
            reason: self.problem(),
            can_sign_in: self.connector.sign_in().is_some(),
            owner: self.settings().owner.clone(),
            connections: self.connector.sandbox.connections(),
            layers: self.connector.sandbox.layers(),
        }
    }

    /// Connects it again now, and its callers with their next calls. A connection attempt that is under way goes on, and so do
    /// running calls.
    pub(super) fn reconnect(&self) {
        self.reconnect.notify_waiters();
        drop(self.callers.forget_all());
    }

    /// A caller has signed in on its own: the tools can be listed.
    pub(super) fn caller_signed_in(&self) {
        self.connector.events.lists_changed.notify_one();
    }

    /// Why it cannot be used now.
    pub(super) fn down(&self) -> Option<Arc<str>> {
        match &*self.state.borrow() {
            State::Down(reason, _) => Some(Arc::clone(reason)),
            _ => None,
        }
    }

    /// Its problem, including problems with which it can still be used.
    pub(super) fn problem(&self) -> Option<Arc<str>> {
        let cut = || self.listing.load().tools_cut.then(|| TOO_MANY.into());
        self.down().or_else(|| self.connector.sign_in()?.unmet_requirement().map(Into::into)).or_else(cut)
    }

    /// Waits until it has connected or failed once.
    pub(super) async fn settle(&self) {
        // Cannot fail: `self` has the sender.
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    /// The session for a call: the client's own, or one that callers share.
    ///
    /// While a session is opened, the call's deadline is paused; `connect_timeout_seconds` bounds the wait.
    /// Errors: `circuit_open` when the server is down, `warming_up` when it does not connect in time. Neither is
    /// recorded by the breaker, because no request was sent: a server that is up again is called at once.
    /// `upstream_error` when the caller's session cannot be opened, `overloaded` when there are too many sessions.
    pub(super) async fn session(self: &Arc<Self>, call: &CallContext) -> Result<Arc<Session>, CallError> {
        let user = self.user_with_token(call).await?;
        let mut headers = self.own_headers(call)?;
        if let Some(exchange) = &self.connector.exchange {
            // Another token is another owner: a session has one.
            let token = Box::pin(exchange.token(&call.caller)).await?;
            headers.insert(AUTHORIZATION, token.header);
        }
        let owner = SessionOwner::of(call, self.settings().share, headers);
        let owner = SessionOwner { user: user.clone(), ..owner };
        if let Some(session) = self.known(&owner) {
            return Ok(session);
        }
        let _starting = call.progress.starting.open();
        let within = Duration::from_secs(self.settings().connect_timeout_seconds.into());
        let begun = tokio::time::timeout(within, self.begin(owner)).await.unwrap_or_else(|_| {
            let problem = format!("the MCP server {} is not connected yet", self.name());
            Err(CallError::new(ErrorCode::WarmingUp, problem).retry_after(FIRST_WAIT))
        });
        match (begun, &self.connector.user_source, user) {
            // The server may have refused the token when the session began.
            (Err(error), Some(source), Some(user)) => Err(source.token(&user).await.err().unwrap_or(error)),
            (begun, ..) => begun,
        }
    }

    /// The caller of a call who has signed in, with `identity: per_user`.
    /// Errors: `sign_in_required`, and errors of the store and the authorization server.
    async fn user_with_token(&self, call: &CallContext) -> Result<Option<User>, CallError> {
        let Some(source) = &self.connector.user_source else { return Ok(None) };
        let user = User::of(&call.caller)?;
        // Boxed, because few servers have it.
        Box::pin(source.token_for(call, &user)).await?;
        Ok(Some(user))
    }

    /// The gateway's own session, if it is connected.
    pub(super) fn main(&self) -> Option<Arc<Session>> {
        match &*self.state.borrow() {
            State::Connected(session) if !session.ended.is_cancelled() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// As [`Server::main`]; waits until it is connected.
    async fn connected(&self) -> Result<Arc<Session>, CallError> {
        let mut state = self.state.subscribe();
        loop {
            match &*state.borrow_and_update() {
                State::Connected(session) if !session.ended.is_cancelled() => return Ok(Arc::clone(session)),
                State::Down(reason, until) => return Err(self.left_alone(reason, *until)),
                _ => {}
            }
            if state.changed().await.is_err() {
                return Err(self.left_alone(REMOVED, Instant::now()));
            }
        }
    }

    fn left_alone(&self, reason: &str, until: Instant) -> CallError {
        let wait = until.saturating_duration_since(Instant::now()).max(FIRST_WAIT);
        let problem = format!(
            "the MCP server {} is down and not called until the next attempt to connect: {reason}",
            self.name()
        );
        CallError::new(ErrorCode::CircuitOpen, problem).retry_after(wait)
    }

    /// Where a request on behalf of a call is sent, `about` the server's own name of a tool.
    pub(super) fn destination<'a>(&self, call: &'a CallContext, method: &'a str, about: &str) -> Destination<'a> {
        let mut address = self.connector.reach.to_string();
        if !about.is_empty() {
            address.push(' ');
            address.push_str(about);
        }
        let meta = Some(&call.client.meta).filter(|meta| !meta.is_empty());
        Destination { method: method.into(), address: address.into(), meta, ..Destination::default() }
    }

    /// Requests a resource, prompt or completion on behalf of a call.
    /// Errors: the server's own ([`output::refused`]), or the reason why it is unreachable.
    pub(super) async fn ask(
        self: &Arc<Self>,
        call: &CallContext,
        deadline: Deadline,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, CallError> {
        let session = self.session(call).await?;
        self.ask_over(&session, call, deadline, method, params).await
    }

    /// As [`Server::ask`], over the session of the call.
    pub(super) async fn ask_over(
        &self,
        session: &Session,
        call: &CallContext,
        deadline: Deadline,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, CallError> {
        let answer = call.within(deadline, session.ask_for(call, method, params)).await;
        let answer = answer.ok_or_else(|| {
            session.suspect.notify_one();
            let problem = format!("the MCP server {} did not answer in time", self.name());
            CallError::new(ErrorCode::Timeout, problem).blaming(Blame::Network)
        })?;
        let secrets = self.connector.secrets_of(session);
        match answer {
            Ok(mut answer) => {
                secrets.of_answers().strike_value(&mut answer);
                Ok(answer)
            }
            Err(failure) => Err(output::refused(self.name(), failure).redacted(&secrets)),
        }
    }
}
