//! All MCP servers: which there are, which tools they offer together, and what changes there.

mod aggregate;
mod setup;
mod sign_in;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::task::TaskTracker;

pub use self::aggregate::OperationRequest;
use self::setup::Unusable;
use super::Change;
use super::registration::Registered;
use super::server::catalogue::source;
use super::server::{Owner, Server, ServerContext};
use crate::config::{Config, McpServerSettings};
use crate::infra::metrics::Metrics;
use crate::infra::outbound::Outbound;
use crate::infra::readiness::Readiness;
use crate::registry::lock::{Lock, Pin};
use crate::tool::{Source, SourceTools, ToolDefinition, Unavailable};

/// Changes that a listener may be behind before it is told only that it missed some.
const CHANGES_KEPT: usize = 256;

/// The servers, for as long as the gateway runs: a reload changes which they are.
#[derive(Debug)]
pub struct McpServers {
    outbound: Outbound,
    surroundings: Arc<ServerContext>,
    changes: broadcast::Sender<Change>,
    tools_changed: Arc<Notify>,
    running: ArcSwap<BTreeMap<String, Arc<Server>>>,
    /// Replaced and removed ones whose tools are still on offer.
    retiring: Mutex<Vec<Arc<Server>>>,
    /// Servers that cannot be set up, and why.
    unusable: ArcSwap<BTreeMap<String, String>>,
    /// Added at run time; the configuration's come before them.
    added: Mutex<BTreeMap<String, Registered>>,
    /// Single tools that were added, by their names.
    functions: ArcSwap<BTreeMap<String, ToolDefinition>>,
    tasks: TaskTracker,
}

/// Servers that end when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Retired(Vec<Arc<Server>>);

impl Drop for Retired {
    fn drop(&mut self) {
        self.0.iter().for_each(|server| server.stop.cancel());
    }
}

impl McpServers {
    /// With a `lock`, what servers say beside their tools is passed on as it was approved; the tools themselves are
    /// the registry's to judge.
    pub fn new(
        outbound: Outbound,
        readiness: Arc<Readiness>,
        metrics: Arc<Metrics>,
        lock: Arc<ArcSwapOption<Lock>>,
    ) -> Self {
        let changes = broadcast::Sender::new(CHANGES_KEPT);
        let tools_changed = Arc::new(Notify::new());
        let (all_changes, some_tools) = (changes.clone(), Arc::clone(&tools_changed));
        let surroundings = ServerContext { readiness, metrics, changes: all_changes, tools_changed: some_tools, lock };
        Self {
            outbound,
            surroundings: Arc::new(surroundings),
            changes,
            tools_changed,
            running: ArcSwap::default(),
            retiring: Mutex::default(),
            unusable: ArcSwap::default(),
            added: Mutex::default(),
            functions: ArcSwap::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Takes over which servers there are. One whose settings are the same goes on undisturbed; one whose
    /// settings changed keeps its tools on offer until it is connected anew. Nothing is waited for. Those that are
    /// no more serve calls until they [`retire`](Self::retire).
    pub fn configure(&self, config: &Config) {
        let before = self.running.load_full();
        let unusable_before = self.unusable.load_full();
        let (mut running, mut unusable) = (BTreeMap::new(), BTreeMap::new());
        let connecting = Arc::new(Semaphore::new(config.mcp.max_connecting));
        for (name, settings) in self.wanted(&config.mcp) {
            let known = before.get(&name);
            let limits = (config.mcp.max_tools_per_server, config.limits.mcp_tool_rate_limit);
            if let Some(server) = known.filter(|server| server.runs_as(&settings, limits)) {
                running.insert(name, Arc::clone(server));
                continue;
            }
            let listing = known.map(|server| server.listing.load_full()).unwrap_or_default();
            match self.connector(&name, settings, config, &connecting) {
                Ok((connector, templates)) => {
                    let surroundings = Arc::clone(&self.surroundings);
                    let server = Server::new(connector, templates, limits, surroundings, listing);
                    running.insert(name, server);
                }
                Err(problem) => {
                    unusable.insert(name, problem.to_string());
                }
            }
        }
        let mut functions = BTreeMap::new();
        for (name, registered) in self.additions().iter() {
            let Registered::Function(function) = registered else { continue };
            match self.function(function, config) {
                Ok(definition) => _ = functions.insert(name.clone(), definition),
                Err(problem) => _ = unusable.insert(name.clone(), problem.to_string()),
            }
        }
        self.functions.store(Arc::new(functions));
        for (name, server) in before.iter().filter(|(name, server)| is_new(&running, name, server)) {
            server.mark_replaced(running.contains_key(name));
            self.retiring().push(Arc::clone(server));
        }
        for name in unusable_before.keys().filter(|name| !unusable.contains_key(*name)) {
            // How it is now is told once it was tried.
            self.surroundings.readiness.forget(&source(name));
        }
        for (name, problem) in &unusable {
            self.surroundings.readiness.degrade(&source(name), problem);
        }
        let started: Vec<_> = running.iter().filter(|(name, server)| is_new(&before, name, server)).collect();
        for (_, server) in started {
            self.tasks.spawn(Arc::clone(server).keep());
        }
        self.running.store(Arc::new(running));
        self.unusable.store(Arc::new(unusable));
        self.tools_changed.notify_one();
    }

    /// The servers that are no more; to be dropped once their tools are off the registry.
    pub fn retire(&self) -> Retired {
        Retired(std::mem::take(&mut *self.retiring()))
    }

    /// Adds a server that the configuration does not know, in the place of one added before under the same name;
    /// [`configure`](Self::configure) takes it over.
    pub fn add(&self, name: &str, registered: Registered) {
        self.additions().insert(name.to_owned(), registered);
    }

    pub fn added(&self, name: &str) -> bool {
        self.additions().contains_key(name)
    }

    pub fn added_count(&self) -> usize {
        self.additions().len()
    }

    /// Uses a server once, before it is added: connects, reads its lists, and lets it go.
    ///
    /// A server that first wants a user's sign-in can be used, later.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn try_out(&self, name: &str, registered: &Registered, config: &Config) -> Result<(), String> {
        let problem = |problem: Unusable| problem.to_string();
        let settings = match registered {
            Registered::Function(function) => return self.function(function, config).map(drop).map_err(problem),
            Registered::Server(settings) => McpServerSettings::clone(settings),
        };
        let alone = Arc::new(Semaphore::new(1));
        let (connector, _) = self.connector(name, settings, config, &alone).map_err(problem)?;
        let used = async {
            let session = connector.connect(&Owner::default()).await?;
            connector.list(&session, config.mcp.max_tools_per_server).await.map(drop)
        };
        let wants_sign_in = || connector.sign_in().is_some_and(|sign_in| sign_in.asked_meanwhile().is_some());
        used.await.or_else(|reason| if wants_sign_in() { Ok(()) } else { Err(reason) })
    }

    /// Waits until the server was connected or has failed once.
    pub async fn settled_one(&self, name: &str) {
        let server = self.running.load().get(name).cloned();
        if let Some(server) = server {
            server.settle().await;
        }
    }

    /// Waits until some server's tools are others than before.
    pub async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Tells clients that there are others.
    pub fn announce(&self, change: Change) {
        // Nobody may be listening.
        let _ = self.changes.send(change);
    }

    /// Waits until each server was connected or has failed once.
    pub async fn settled(&self) {
        let running = self.running.load_full();
        join_all(running.values().map(|server| server.settle())).await;
    }

    /// Ends all connections, and the programs behind them.
    pub async fn close(&self) {
        for server in self.running.swap(Arc::default()).values() {
            server.stop.cancel();
        }
        drop(self.retire());
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Why the tools of a source (`mcp:NAME`) cannot be used right now.
    pub fn degraded(&self, source: &str) -> Option<Arc<str>> {
        self.running.load().get(source.strip_prefix("mcp:")?)?.trouble()
    }

    /// The servers that cannot be used now, each with its reason.
    pub fn out_of_reach(&self) -> BTreeMap<String, String> {
        let running = self.running.load();
        let down = running.iter().filter_map(|(name, server)| Some((name.clone(), server.down()?.to_string())));
        let unusable = self.unusable.load();
        down.chain(unusable.iter().map(|(name, problem)| (name.clone(), problem.clone()))).collect()
    }

    /// Pins of what the servers say beside their tools, by the servers' sources.
    pub fn words(&self) -> BTreeMap<String, Pin> {
        let running = self.running.load();
        running
            .iter()
            .filter_map(|(name, server)| Some((source(name), server.catalogue.load().words.clone()?)))
            .collect()
    }

    /// The sources of servers whose words wait for approval.
    pub fn quarantined(&self) -> Vec<String> {
        let running = self.running.load();
        running.iter().filter(|(_, server)| server.objection().is_some()).map(|(name, _)| source(name)).collect()
    }

    /// What changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn additions(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retiring(&self) -> MutexGuard<'_, Vec<Arc<Server>>> {
        self.retiring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for McpServers {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> SourceTools {
        let mut offer = SourceTools::default();
        for server in self.running.load().values() {
            let catalogue = server.catalogue.load();
            offer.tools.extend(catalogue.tools.iter().chain(&catalogue.operations).cloned());
            offer.unavailable.extend(catalogue.unavailable.iter().cloned());
        }
        offer.tools.extend(self.functions.load().values().cloned());
        let unusable = self.unusable.load();
        offer.unavailable.extend(
            unusable.iter().map(|(name, problem)| Unavailable { tool: format!("{name}__*"), reason: problem.clone() }),
        );
        offer
    }
}

fn is_new(before: &BTreeMap<String, Arc<Server>>, name: &str, server: &Arc<Server>) -> bool {
    !before.get(name).is_some_and(|known| Arc::ptr_eq(known, server))
}
