//! One server: kept connected, listed, and known for what it last said it has.
//!
//! A server that fails harms its own tools alone. They stay listed, calls of them say what is wrong, and it is
//! tried again, less and less often.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use rand::Rng;
use rmcp::model::SubscriptionFilter;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Change;
use super::catalogue::{Catalogue, TOO_MANY, Terms, source};
use super::connect::Connector;
use super::executor::ServerTool;
use super::listing::Listing;
use super::names::Names;
use super::output;
use super::session::Session;
use super::subscriptions::Subscriptions;
use crate::call::{CallContext, Caller, Deadline};
use crate::config::McpServerSettings;
use crate::error::{Blame, CallError, ErrorCode};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::sources::credentials::Template;

/// The waits between attempts to reach a server that fails.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A connection that held so long was a good one: when it is lost, another is made at once.
const GOOD_AFTER: Duration = Duration::from_secs(30);

/// Lists are read again at most so often, however often a server says that they changed.
const LIST_EVERY: Duration = Duration::from_millis(250);

/// How long nobody listens to a server that has ended the listening.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// How long a server may take to show that it still lives, once a call had no answer.
const SIGN_OF_LIFE_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection may take to close, its program to end.
const GOODBYE_WITHIN: Duration = Duration::from_secs(6);

/// What is said of a server that is no longer configured.
const REMOVED: &str = "it was removed";

/// Connections of single callers that one server has at once, and how long an unused one is kept.
const MOST_CALLERS: usize = 256;
const CALLER_IDLE: Duration = Duration::from_secs(600);

/// What all servers share with the rest of the service.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) changes: tokio::sync::broadcast::Sender<Change>,
    /// Some server's tools are others than before.
    pub(super) tools_changed: Arc<Notify>,
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
    callers: Mutex<HashMap<[u8; 32], CallerSession>>,
    pub(super) subscriptions: Subscriptions,
    /// A call had no answer in time.
    doubted: Notify,
    /// Another server has its name now, and speaks for it.
    succeeded: AtomicBool,
    pub(super) stop: CancellationToken,
}

/// The connection of one caller.
struct CallerSession {
    session: Arc<OnceCell<Arc<Session>>>,
    used: Instant,
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
            connector,
            templates,
            most_tools,
            rate_limit,
            surroundings,
            catalogue: ArcSwap::default(),
            listing: ArcSwap::new(before),
            state: watch::Sender::new(State::Connecting),
            settled: watch::Sender::new(false),
            callers: Mutex::default(),
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
        self.down().or_else(|| self.listing.load().tools_cut.then(|| TOO_MANY.into()))
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
        let session =
            async { if self.templates.is_empty() { self.shared().await } else { self.of_caller(call).await } };
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
        let cell = self.caller_cell(&call.caller, &headers)?;
        let session = cell
            .get_or_try_init(async || {
                let session = self.connector.connect(&headers).await;
                session.map(Arc::new).map_err(|reason| self.unreachable(&reason))
            })
            .await?;
        Ok(Arc::clone(session))
    }

    /// The place of the caller's connection. Another token of the same caller is another connection.
    fn caller_cell(&self, caller: &Caller, headers: &HeaderMap) -> Result<Arc<OnceCell<Arc<Session>>>, CallError> {
        let mut digest = Sha256::new().chain_update(&*caller.key);
        for (name, value) in headers {
            digest = digest.chain_update([0x1f]).chain_update(name).chain_update([0x1f]).chain_update(value.as_bytes());
        }
        let key = digest.finalize().into();
        let mut callers = self.callers();
        callers.retain(|_, known| !known.is_spent());
        if callers.len() >= MOST_CALLERS && !callers.contains_key(&key) {
            let problem = format!("the MCP server {} has {MOST_CALLERS} callers already", self.name());
            return Err(CallError::new(ErrorCode::Overloaded, problem));
        }
        let known =
            callers.entry(key).or_insert_with(|| CallerSession { session: Arc::default(), used: Instant::now() });
        known.used = Instant::now();
        Ok(Arc::clone(&known.session))
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<[u8; 32], CallerSession>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget_idle_callers(&self) {
        self.callers().retain(|_, known| !known.is_spent());
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

    /// Keeps the server connected until it is told to stop.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let keeping = self.stop.run_until_cancelled(Box::pin(self.connect_and_tend())).await;
            let Some(reason) = keeping else { break };
            failures = if began.elapsed() >= GOOD_AFTER { 0 } else { failures + 1 };
            if failures <= 1 && matches!(*self.state.borrow(), State::Connected(_)) {
                // Calls wait for the new connection instead of failing.
                self.state.send_replace(State::Connecting);
                self.tell(|told, _| told.metrics.mcp_server(self.name(), false));
                tracing::warn!(server = self.name(), reason, "an MCP server was lost and is connected anew");
                continue;
            }
            let wait = wait_after(failures);
            self.went_down(&reason, wait);
            if self.stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                break;
            }
        }
        self.leave().await;
    }

    /// Gives why the connection ended or could not be made.
    async fn connect_and_tend(self: &Arc<Self>) -> String {
        let session = match self.connector.connect(&HeaderMap::new()).await {
            Ok(session) => Arc::new(session),
            Err(reason) => return reason,
        };
        if let Err(reason) = self.list_in_time(&session).await {
            return reason;
        }
        self.state.send_replace(State::Connected(Arc::clone(&session)));
        self.came_up(&session);
        self.subscribe_again(&session).await;
        let mut listening = std::pin::pin!(self.listen(&session));
        let mut listens = session.is_modern();
        loop {
            tokio::select! {
                () = session.ended.cancelled() => {
                    return session.ending.told().unwrap_or_else(|| "the connection ended".to_owned());
                }
                () = self.connector.news.lists_changed.notified() => {
                    tokio::time::sleep(LIST_EVERY).await;
                    if let Err(reason) = self.list_in_time(&session).await {
                        tracing::warn!(server = self.name(), reason, "an MCP server's lists could not be read again");
                    }
                }
                () = self.doubted.notified() => {
                    if let Err(reason) = self.sign_of_life(&session).await {
                        return reason;
                    }
                }
                () = &mut listening, if listens => listens = false,
            }
        }
    }

    /// Servers without sessions tell what changed only to those who listen. Where that ends, as when a server sends
    /// more than is listened to, something may have been missed.
    async fn listen(&self, session: &Session) {
        let filter = serde_json::json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        });
        let Ok(filter) = serde_json::from_value::<SubscriptionFilter>(filter) else { return };
        while let Ok(mut subscription) = session.peer.listen(filter.clone()).await {
            while let Ok(Some(notification)) = subscription.next().await {
                self.connector.news.hear(&notification);
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
            self.connector.news.lists_changed.notify_one();
        }
    }

    async fn list_in_time(self: &Arc<Self>, session: &Session) -> Result<(), String> {
        let listing = self.connector.list(session, self.most_tools).await?;
        let before = self.listing.load();
        if **before != listing {
            let told = [
                (before.resources != listing.resources || before.templates != listing.templates, Change::Resources),
                (before.prompts != listing.prompts, Change::Prompts),
            ];
            self.listing.store(Arc::new(listing));
            self.offer_what_is_listed();
            for (_, change) in told.into_iter().filter(|(changed, _)| *changed) {
                // Nobody may be listening.
                let _ = self.surroundings.changes.send(change);
            }
        }
        Ok(())
    }

    /// Makes what the server listed available under the configuration's terms.
    fn offer_what_is_listed(self: &Arc<Self>) {
        let terms =
            Terms { server: self.name(), settings: self.settings(), names: self.names(), rate_limit: self.rate_limit };
        let catalogue = Catalogue::of(&self.listing.load(), &terms, |name| {
            Arc::new(ServerTool { server: Arc::clone(self), name: name.to_owned() })
        });
        self.catalogue.store(Arc::new(catalogue));
        self.surroundings.tools_changed.notify_one();
    }

    async fn sign_of_life(&self, session: &Session) -> Result<(), String> {
        // The newer revision has no ping.
        let method = if session.is_modern() { "tools/list" } else { "ping" };
        let answer = tokio::time::timeout(SIGN_OF_LIFE_WITHIN, session.ask(method, Map::new())).await;
        answer.map(|_answer| ()).map_err(|_| "it answers neither calls nor a ping".to_owned())
    }

    fn came_up(&self, session: &Session) {
        let version = session.info.protocol_version.as_str();
        tracing::info!(server = self.name(), version, "an MCP server is connected");
        self.tell(|told, source| {
            match self.trouble() {
                Some(trouble) => told.readiness.degrade(source, &*trouble),
                None => told.readiness.restore(source),
            }
            told.metrics.mcp_server(self.name(), true);
        });
        self.settled.send_replace(true);
    }

    fn went_down(&self, reason: &str, wait: Duration) {
        self.state.send_replace(State::Down(reason.into(), Instant::now() + wait));
        self.tell(|told, source| {
            told.readiness.degrade(source, reason);
            told.metrics.mcp_server(self.name(), false);
        });
        self.settled.send_replace(true);
    }

    /// Tells the rest of the service how it is, unless another server has the name by now.
    fn tell(&self, how: impl FnOnce(&Surroundings, &str)) {
        if !self.succeeded.load(Ordering::Relaxed) {
            how(&self.surroundings, &source(self.name()));
        }
    }

    async fn leave(&self) {
        let before = self.state.send_replace(State::Down(REMOVED.into(), Instant::now()));
        self.callers().clear();
        // Its tools hold on to it.
        self.catalogue.store(Arc::default());
        self.tell(|told, source| {
            told.readiness.restore(source);
            told.metrics.forget_mcp_server(self.name());
        });
        self.settled.send_replace(true);
        if let State::Connected(session) = before {
            let ended = session.ended.clone();
            drop(session);
            // Calls still under way may keep it a little longer.
            let _ = tokio::time::timeout(GOODBYE_WITHIN, ended.cancelled()).await;
        }
    }

    /// Asks for a resource, prompt or completion on behalf of a caller.
    ///
    /// # Errors
    /// As the server's own, or why it cannot be asked.
    pub(super) async fn ask(
        &self,
        call: &CallContext,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, super::ServerFault> {
        let deadline = call.deadline(Duration::from_secs(self.settings().timeout_seconds.into()));
        let session = self.session(call, deadline).await?;
        let answer = call.within(deadline, session.ask_for(call, method, params)).await;
        answer
            .ok_or_else(|| {
                self.doubted.notify_one();
                let problem = format!("the MCP server {} did not answer in time", self.name());
                CallError::new(ErrorCode::Timeout, problem).blaming(Blame::Network)
            })?
            .map_err(|failure| output::fault(self.name(), failure))
    }
}

impl CallerSession {
    fn is_spent(&self) -> bool {
        self.used.elapsed() >= CALLER_IDLE || self.session.get().is_some_and(|session| session.ended.is_cancelled())
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

/// Doubled from failure to failure, with jitter, so that servers that fell together are not tried together.
fn wait_after(failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(10)));
    doubled.min(LONGEST_WAIT).mul_f64(rand::rng().random_range(0.5..=1.0))
}
