//! One server: kept connected, listed, and known for what it last said it has.
//!
//! A server that fails harms its own tools alone. They stay listed, calls of them say what is wrong, and it is
//! tried again, less and less often.

mod callers;
mod keeping;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderMap;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::callers::{Callers, MOST_CALLERS};
use super::Change;
use super::catalogue::{Catalogue, TOO_MANY, source};
use super::connect::Connector;
use super::listing::Listing;
use super::names::Names;
use super::output;
use super::session::Session;
use super::subscriptions::Subscriptions;
use crate::call::{CallContext, Caller, Deadline, Upstream};
use crate::config::McpServerSettings;
use crate::error::{Blame, CallError, ErrorCode};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::registry::lock::{Lock, Objection};
use crate::sources::credentials::Template;

/// The waits between attempts to reach a server that fails.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// What is said of a server that is no longer configured.
const REMOVED: &str = "it was removed";

/// What all servers share with the rest of the service.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) changes: tokio::sync::broadcast::Sender<Change>,
    /// Some server's tools are others than before.
    pub(super) tools_changed: Arc<Notify>,
    /// What was approved, where somebody keeps a lock.
    pub(super) lock: Arc<ArcSwapOption<Lock>>,
}

/// How it is with the connection that all callers share.
#[derive(Debug, Clone)]
pub(super) enum State {
    Connecting,
    Connected(Arc<Session>),
    /// Why, and when it is tried again.
    Down(Arc<str>, Instant),
}

pub(super) struct Server {
    pub(super) connector: Connector,
    /// What its breaker guards.
    pub(super) upstream: Upstream,
    /// Headers with the caller's own tokens in them.
    pub(super) templates: Vec<Template>,
    pub(super) most_tools: usize,
    pub(super) rate_limit: u32,
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) catalogue: ArcSwap<Catalogue>,
    pub(super) listing: ArcSwap<Listing>,
    state: watch::Sender<State>,
    /// It was connected or has failed at least once.
    settled: watch::Sender<bool>,
    callers: Callers,
    pub(super) subscriptions: Subscriptions,
    /// A call had no answer in time.
    doubted: Notify,
    /// Another server has its name now, and speaks for it.
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
        surroundings: Arc<Surroundings>,
        before: Arc<Listing>,
    ) -> Arc<Self> {
        let server = Arc::new(Self {
            upstream: super::upstream(&connector.name),
            connector,
            templates,
            most_tools,
            rate_limit,
            surroundings,
            catalogue: ArcSwap::default(),
            listing: ArcSwap::new(before),
            state: watch::Sender::new(State::Connecting),
            settled: watch::Sender::new(false),
            callers: Callers::default(),
            subscriptions: Subscriptions::default(),
            doubted: Notify::new(),
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
        &self.connector.news.names
    }

    pub(super) fn may_use(&self, caller: &Caller) -> bool {
        let roles = &self.settings().roles;
        roles.is_empty() || roles.iter().any(|role| caller.has_role(role))
    }

    /// Whether it would run no differently under these settings.
    pub(super) fn runs_as(&self, settings: &McpServerSettings, limits: (usize, u32)) -> bool {
        self.settings() == settings && (self.most_tools, self.rate_limit) == limits && !self.stop.is_cancelled()
    }

    /// Whether it lists the resource, by the URI it has here.
    pub(super) fn lists(&self, uri: &str) -> bool {
        self.catalogue.load().resources.iter().any(|resource| resource["uri"] == uri)
    }

    /// What the lock has against what the server says to models beside its tools, now.
    pub(super) fn objection(&self) -> Option<Objection> {
        let lock = self.surroundings.lock.load();
        let catalogue = self.catalogue.load();
        lock.as_ref()?.objection(&source(self.name()), catalogue.words.as_ref()?)
    }

    /// Takes note that it is no longer configured, and whether another takes its place.
    pub(super) fn gives_way(&self, succeeded: bool) {
        self.succeeded.store(succeeded, Ordering::Relaxed);
    }

    /// Why it cannot be used right now.
    pub(super) fn down(&self) -> Option<Arc<str>> {
        match &*self.state.borrow() {
            State::Down(reason, _) => Some(Arc::clone(reason)),
            _ => None,
        }
    }

    /// What is wrong with it, also where it can be used.
    pub(super) fn trouble(&self) -> Option<Arc<str>> {
        let cut = || self.listing.load().tools_cut.then(|| TOO_MANY.into());
        self.down().or_else(|| self.connector.sign_in()?.trouble().map(Into::into)).or_else(cut)
    }

    /// Waits until it was connected or has failed once.
    pub(super) async fn settle(&self) {
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    /// The connection for a call: the shared one, or the caller's own where the server is told who calls.
    ///
    /// # Errors
    /// `circuit_open` when the server is down, `warming_up` when it is not there in time. Neither is an outcome for
    /// the breaker, since the server was not asked: one that is back is called at once. `upstream_error` when the
    /// caller's own connection cannot be made.
    pub(super) async fn session(&self, call: &CallContext, deadline: Deadline) -> Result<Arc<Session>, CallError> {
        // In a box, since most servers are not told who calls.
        let session = async {
            if self.templates.is_empty() { self.shared().await } else { Box::pin(self.of_caller(call)).await }
        };
        tokio::time::timeout_at(deadline.0, session).await.unwrap_or_else(|_| {
            let problem = format!("the MCP server {} is not connected yet", self.name());
            Err(CallError::new(ErrorCode::WarmingUp, problem).retry_after(FIRST_WAIT))
        })
    }

    /// A guard for the wait for an answer; dropped without one, the server is doubted.
    pub(super) fn watch_patience(&self) -> Patience<'_> {
        Patience(Some(&self.doubted))
    }

    async fn shared(&self) -> Result<Arc<Session>, CallError> {
        // Mostly there is nothing to wait for.
        if let State::Connected(session) = &*self.state.borrow()
            && !session.ended.is_cancelled()
        {
            return Ok(Arc::clone(session));
        }
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

    async fn of_caller(&self, call: &CallContext) -> Result<Arc<Session>, CallError> {
        let tokens = call.tool_parameters.get("tokens").and_then(Value::as_object);
        let mut headers = HeaderMap::new();
        for template in &self.templates {
            headers.insert(template.header.clone(), template.fill(tokens)?);
        }
        let place = self.callers.place(&call.caller, &headers).ok_or_else(|| {
            let problem = format!("the MCP server {} has {MOST_CALLERS} callers already", self.name());
            CallError::new(ErrorCode::Overloaded, problem)
        })?;
        let session = place
            .get_or_try_init(async || {
                let session = self.connector.connect(&headers).await;
                session.map(Arc::new).map_err(|reason| self.unreachable(&reason))
            })
            .await?;
        Ok(Arc::clone(session))
    }

    pub(super) fn forget_idle_callers(&self) {
        self.callers.forget_idle();
    }

    fn unreachable(&self, reason: &str) -> CallError {
        let problem = format!("the MCP server {} cannot be used now: {reason}", self.name());
        CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network)
    }

    fn left_alone(&self, reason: &str, until: Instant) -> CallError {
        let wait = until.saturating_duration_since(Instant::now()).max(FIRST_WAIT);
        let problem = format!("the MCP server {} is down and left alone for now: {reason}", self.name());
        CallError::new(ErrorCode::CircuitOpen, problem).retry_after(wait)
    }

    /// When a request on behalf of a call must have ended.
    pub(super) fn deadline_of(&self, call: &CallContext) -> Deadline {
        call.deadline(Duration::from_secs(self.settings().timeout_seconds.into()))
    }

    /// Asks for a resource, prompt or completion on behalf of a call.
    ///
    /// # Errors
    /// As the server's own ([`output::refused`]), or why it cannot be asked.
    pub(super) async fn ask(
        &self,
        call: &CallContext,
        deadline: Deadline,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, CallError> {
        let session = self.session(call, deadline).await?;
        let answer = call.within(deadline, session.ask_for(call, method, params)).await;
        answer
            .ok_or_else(|| {
                self.doubted.notify_one();
                let problem = format!("the MCP server {} did not answer in time", self.name());
                CallError::new(ErrorCode::Timeout, problem).blaming(Blame::Network)
            })?
            .map_err(|failure| output::refused(self.name(), failure).redacted(&self.connector.secrets(&session.sent)))
    }
}

/// See [`Server::watch_patience`].
pub(super) struct Patience<'a>(Option<&'a Notify>);

impl Patience<'_> {
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if let Some(doubted) = self.0 {
            doubted.notify_one();
        }
    }
}
