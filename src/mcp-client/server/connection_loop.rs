//! Keeps a server connected, reads its lists, and reports its state to the rest of the service.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use rand::Rng;
use serde_json::{Map, json};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::catalogue::{Catalogue, ListingPolicy, source};
use super::executor::ServerTool;
use super::listing::Listing;
use super::operations;
use super::session::{Session, listen};
use super::session_owner::SessionOwner;
use super::{FIRST_WAIT, REMOVED, Server, ServerContext, State};
use crate::changes::Change;
use crate::transport::message::Failure;
use sekisho_core::error::{Blame, Detail};

/// Maximum interval between attempts to reach a failing server.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A connection that lasted this long was stable: when it is lost, the server is reconnected at once.
const GOOD_AFTER: Duration = Duration::from_secs(30);

/// Minimum interval between readings of the lists, even if a server reports changes more often.
pub(super) const LIST_EVERY: Duration = Duration::from_millis(250);

/// Wait before subscribing again to a server that ended the subscription.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Timeout of the liveness check after a call without an answer.
const SIGN_OF_LIFE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a server over HTTP is asked whether it is there: no connection shows that it has ended. With the time to
/// connect, its end is reported within 30 s.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(20);

/// Why a connection ends that somebody asked to make anew.
const RECONNECT: &str = "an operator asked for a new connection";

/// Timeout to close a connection, including the exit of its process.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(6);

impl Server {
    /// Keeps the server connected until it is stopped.
    pub(crate) async fn keep(self: Arc<Self>) {
        if self.connector.lists_as_user() {
            self.stop.run_until_cancelled(Box::pin(self.list_for_callers())).await;
            return self.leave().await;
        }
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let keeping = self.stop.run_until_cancelled(Box::pin(self.connect_and_tend())).await;
            let Some(reason) = keeping else { break };
            failures = if began.elapsed() >= GOOD_AFTER { 0 } else { failures + 1 };
            if failures <= 1 && matches!(*self.state.borrow(), State::Connected(_)) {
                // Calls wait for the new connection instead of failing.
                self.enter(State::Connecting);
                self.notify(|context, _| context.metrics.mcp_server(self.name(), false));
                tracing::warn!(server = self.name(), reason, "the connection to an MCP server was lost; reconnecting");
                continue;
            }
            let wait = wait_after(failures);
            self.went_down(&reason, wait);
            let waited = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.is_signed_in() => failures = 0,
                    () = self.reconnect.notified() => failures = 0,
                }
            };
            if self.stop.run_until_cancelled(waited).await.is_none() {
                break;
            }
        }
        self.leave().await;
    }

    /// Returns why the connection ended or could not be opened.
    async fn connect_and_tend(self: &Arc<Self>) -> String {
        let session = match self.connector.connect(&SessionOwner::default()).await {
            Ok(session) => Arc::new(session),
            Err(reason) => return reason,
        };
        if let Err(reason) = self.list_in_time(&session).await {
            return reason;
        }
        self.enter(State::Connected(Arc::clone(&session)));
        self.came_up(&session);
        self.subscribe_again(&session).await;
        let mut listening = std::pin::pin!(self.listen(&session));
        let mut listens = session.is_modern();
        let mut liveness = tokio::time::interval_at(Instant::now() + LIVENESS_INTERVAL, LIVENESS_INTERVAL);
        liveness.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = liveness.tick(), if self.settings().url.is_some() => {
                    // A busy server may take its time.
                    if let Err(SilentServer::Unreachable(reason)) = sign_of_life(&session).await {
                        return reason;
                    }
                }
                () = session.ended.cancelled() => {
                    let reason = session.connection.ending.reason().unwrap_or_else(|| "the connection ended".to_owned());
                    return self.connector.secrets_of(&session).strike(&reason).into_owned();
                }
                () = self.connector.events.lists_changed.notified() => {
                    tokio::time::sleep(LIST_EVERY).await;
                    if let Err(reason) = self.list_in_time(&session).await {
                        tracing::warn!(server = self.name(), reason, "an MCP server's lists could not be read again");
                    }
                }
                () = session.suspect.notified() => {
                    if let Err(silent) = sign_of_life(&session).await {
                        return silent.to_string();
                    }
                }
                () = &mut listening, if listens => listens = false,
                () = self.reconnect.notified() => return RECONNECT.to_owned(),
                // Calls of this server fail without it; other servers are not affected.
                () = self.sign_in_changes() => self.report_problem(),
            }
        }
    }

    /// Servers without sessions send changes only to subscribers. When a subscription ends, for example because a server
    /// sends too much, changes may have been missed.
    async fn listen(&self, session: &Session) {
        let filter = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        loop {
            let began = Instant::now();
            let ended = listen(&session.connection, filter.clone()).await;
            // A server that refuses, or ends it at once, is not asked again.
            if matches!(ended, Err(Failure::Refused(_) | Failure::Call(_))) || began.elapsed() < LISTEN_AGAIN {
                return;
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
            self.connector.events.lists_changed.notify_one();
        }
    }

    async fn list_in_time(self: &Arc<Self>, session: &Session) -> Result<(), String> {
        let listing = self.connector.list(session, self.most_tools).await?;
        self.take_over(listing);
        Ok(())
    }

    /// Offers the listing, where it differs from before.
    pub(super) fn take_over(self: &Arc<Self>, listing: Listing) {
        let before = self.listing.load();
        if **before != listing {
            let server = || Some(self.name().to_owned());
            let other_resources = before.resources != listing.resources || before.templates != listing.templates;
            let changes = [
                (other_resources, Change::Resources(server())),
                (before.prompts != listing.prompts, Change::Prompts(server())),
            ];
            self.listing.store(Arc::new(listing));
            self.offer_what_is_listed();
            for (_, change) in changes.into_iter().filter(|(changed, _)| *changed) {
                // It is not an error if there is no receiver.
                let _ = self.context.changes.send(change);
            }
        }
    }

    /// Makes the listed tools, resources and prompts available as configured.
    pub(super) fn offer_what_is_listed(self: &Arc<Self>) {
        let terms = ListingPolicy {
            server: self.name(),
            settings: self.settings(),
            names: self.names(),
            reach: &self.connector.reach,
            rate_limit: self.rate_limit,
        };
        let listing = self.listing.load_full();
        let mut catalogue = Catalogue::of(&listing, &terms, |name, marked, tasks| {
            let (server, package) = (Arc::clone(self), listing.package.clone());
            Arc::new(ServerTool { server, name: name.to_owned(), marked, tasks, package })
        });
        catalogue.operations = operations::of(self);
        catalogue.tools.extend(self.sign_in_tool());
        if let Some(Detail { rule, path, .. }) = catalogue.flags.first() {
            let count = catalogue.flags.len();
            let server = self.name();
            tracing::warn!(
                server,
                count,
                rule,
                path,
                "an MCP server has suspected prompt injections in its instructions or prompts"
            );
        }
        let cut = catalogue.tools.iter().filter(|tool| tool.metadata.description_problem.is_some());
        let cut: Vec<_> = cut.map(|tool| tool.metadata.name.as_str()).collect();
        if !cut.is_empty() {
            tracing::warn!(server = self.name(), tools = ?cut, "descriptions of tools are cut (max_description_bytes)");
        }
        self.catalogue.store(Arc::new(catalogue));
        self.context.tools_changed.notify_one();
    }

    fn came_up(&self, session: &Session) {
        let version = session.info.protocol_version.as_str();
        tracing::info!(server = self.name(), version, "an MCP server is connected");
        if let Some(sign_in) = self.connector.sign_in() {
            sign_in.is_authorized();
        }
        self.report_problem();
        self.notify(|context, _| context.metrics.mcp_server(self.name(), true));
        self.settled.send_replace(true);
    }

    pub(super) fn report_problem(&self) {
        self.notify(|context, source| match self.problem() {
            Some(problem) => context.readiness.degrade(source, &*problem),
            None => context.readiness.restore(source),
        });
    }

    async fn sign_in_changes(&self) {
        match self.connector.sign_in() {
            Some(sign_in) => sign_in.changed().await,
            None => std::future::pending().await,
        }
    }

    async fn is_signed_in(&self) {
        match self.connector.sign_in() {
            Some(sign_in) => sign_in.done().await,
            None => std::future::pending().await,
        }
    }

    fn went_down(&self, reason: &str, wait: Duration) {
        self.enter(State::Down(reason.into(), Instant::now() + wait));
        self.notify(|context, source| {
            context.readiness.degrade(source, reason);
            context.metrics.mcp_server(self.name(), false);
        });
        self.settled.send_replace(true);
    }

    /// Reports its state to the rest of the service, unless another server has its name now.
    pub(super) fn notify(&self, how: impl FnOnce(&ServerContext, &str)) {
        if !self.succeeded.load(Ordering::Relaxed) {
            how(&self.context, &source(self.name()));
        }
    }

    async fn leave(&self) {
        let before = self.enter(State::Down(REMOVED.into(), Instant::now()));
        let mut ending = self.callers.forget_all();
        // Its tools keep a reference to it.
        self.catalogue.store(Arc::default());
        self.notify(|context, source| {
            context.readiness.forget(source);
            context.metrics.forget_mcp_server(self.name());
        });
        self.settled.send_replace(true);
        if let State::Connected(session) = before {
            ending.push(session.ended.clone());
        }
        // Running calls may keep a session a little longer.
        let ended = join_all(ending.iter().map(CancellationToken::cancelled));
        let _ = tokio::time::timeout(GOODBYE_TIMEOUT, ended).await;
    }
}

/// Why a server shows no sign of life.
#[derive(Debug, Error)]
pub(super) enum SilentServer {
    #[error("it answers neither calls nor pings")]
    NoAnswer,
    #[error("{0}")]
    Unreachable(String),
}

/// Whether the server still answers, be it with an error.
pub(super) async fn sign_of_life(session: &Session) -> Result<(), SilentServer> {
    // The newer revision of the protocol has no `ping`.
    let method = if session.is_modern() { "server/discover" } else { "ping" };
    match tokio::time::timeout(SIGN_OF_LIFE_TIMEOUT, session.ask(method, Map::new())).await {
        Err(_) => Err(SilentServer::NoAnswer),
        Ok(Err(Failure::Call(error))) if error.blame() == Blame::Network => {
            Err(SilentServer::Unreachable(error.message().to_owned()))
        }
        Ok(_answer) => Ok(()),
    }
}

/// Doubled after each failure, with jitter, so that servers that failed together are not retried together.
pub(super) fn wait_after(failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(10)));
    doubled.min(MAX_WAIT).mul_f64(rand::rng().random_range(0.5..=1.0))
}
