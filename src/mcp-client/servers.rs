//! All MCP servers, their tools, and notifications of changes.

mod aggregate;
mod examined;
mod listed_names;
mod observed;
mod setup;
mod sign_in;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::task::TaskTracker;

pub use self::aggregate::OperationRequest;
pub use self::examined::ExaminedTool;
pub use self::listed_names::ServerNames;
pub use self::observed::{ObservedCall, ObservedRun};
use self::setup::Unusable;
use super::changes::Change;
use super::registration::Registered;
use super::server::catalogue::source;
use super::server::listing::name_of;
use super::server::session_owner::SessionOwner;
use super::server::{Server, ServerContext};
pub use super::server::{ServerState, ServerStatus};
use sekisho_calls::registry::lock::{Lock, Pin};
use sekisho_calls::tool::{AwaitedTools, OfferKind, Source, SourceTools, ToolDefinition, Unavailable};
use sekisho_config::{Config, McpServerSettings};
use sekisho_core::administration::Ownership;
use sekisho_core::call::Caller;
use sekisho_core::error::CallError;
use sekisho_core::source_access::SwitchedSources;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::Outbound;
use sekisho_user_tokens::UserTokens;

/// Capacity of the channel of changes. A receiver that is further behind learns only that it missed some.
const CHANGES_KEPT: usize = 256;

/// The servers of a running gateway; a reload can add and remove some.
#[derive(Debug)]
pub struct McpServers {
    outbound: Outbound,
    /// Where the tokens of callers are; `None` if none are to be used.
    users: Option<Arc<UserTokens>>,
    context: Arc<ServerContext>,
    changes: broadcast::Sender<Change>,
    tools_changed: Arc<Notify>,
    running: ArcSwap<BTreeMap<String, Arc<Server>>>,
    /// Replaced and removed servers whose tools are still offered.
    retiring: Mutex<Vec<Arc<Server>>>,
    /// Servers that cannot be set up.
    unusable: ArcSwap<BTreeMap<String, UnusableServer>>,
    /// Servers added at run time; servers of the configuration take precedence.
    added: Mutex<BTreeMap<String, Registered>>,
    /// Single tools added at run time, by name.
    functions: ArcSwap<BTreeMap<String, ToolDefinition>>,
    tasks: TaskTracker,
}

/// A server or function that cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableServer {
    pub owner: Ownership,
    pub problem: String,
}

/// Servers that are stopped when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Retired(Vec<Arc<Server>>);

impl Drop for Retired {
    fn drop(&mut self) {
        self.0.iter().for_each(|server| server.stop.cancel());
    }
}

impl McpServers {
    /// `users` has the tokens of callers who sign in on their own; without it, none are used, and only a gateway that runs
    /// may use any. `switched` has the sources of the catalogue that are on; without it all are. With a `lock`, instructions and
    /// prompts of servers are passed on only as approved; the registry applies the lock to the tools.
    pub fn new(
        outbound: Outbound,
        readiness: Arc<Readiness>,
        metrics: Arc<Metrics>,
        lock: Arc<ArcSwapOption<Lock>>,
        users: Option<Arc<UserTokens>>,
        switched: Option<Arc<SwitchedSources>>,
    ) -> Self {
        let changes = broadcast::Sender::new(CHANGES_KEPT);
        let tools_changed = Arc::new(Notify::new());
        let (all_changes, some_tools) = (changes.clone(), Arc::clone(&tools_changed));
        let context =
            ServerContext { readiness, metrics, changes: all_changes, tools_changed: some_tools, lock, switched };
        Self {
            outbound,
            users,
            context: Arc::new(context),
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

    /// Applies the configured servers. A server with unchanged settings keeps its connection; one with changed settings
    /// keeps its tools until it is connected again. Does not wait. Removed servers serve calls until they
    /// [`retire`](Self::retire).
    pub fn configure(&self, config: &Config) {
        let before = self.running.load_full();
        let unusable_before = self.unusable.load_full();
        let (mut running, mut unusable) = (BTreeMap::new(), BTreeMap::new());
        let connecting = Arc::new(Semaphore::new(config.mcp.max_connecting));
        for (name, settings) in self.wanted(config) {
            // The state that another owner had under this name is not shown to this one.
            let known = before.get(&name).filter(|server| server.settings().owner == settings.owner);
            let limits = (config.mcp.max_tools_per_server, config.limits.mcp_tool_rate_limit);
            if let Some(server) = known.filter(|server| server.runs_as(&settings, limits)) {
                running.insert(name, Arc::clone(server));
                continue;
            }
            let listing = known.map(|server| server.listing.load_full()).unwrap_or_default();
            let owner = settings.owner.clone();
            match self.connector(&name, settings, config, &connecting) {
                Ok((connector, templates)) => {
                    let context = Arc::clone(&self.context);
                    let server = Server::new(connector, templates, limits, context, listing);
                    running.insert(name, server);
                }
                Err(problem) => {
                    unusable.insert(name, UnusableServer { owner, problem: problem.to_string() });
                }
            }
        }
        let mut functions = BTreeMap::new();
        // As a server that was added, a function is left out where the configuration has the name.
        for (name, registered) in self.added.lock().iter().filter(|(name, _)| !config.mcp.servers.contains_key(*name)) {
            let Registered::Function(function) = registered else { continue };
            match self.function(function, config) {
                Ok(definition) => _ = functions.insert(name.clone(), definition),
                Err(problem) => {
                    let owner = registered.owner().clone();
                    unusable.insert(name.clone(), UnusableServer { owner, problem: problem.to_string() });
                }
            }
        }
        self.functions.store(Arc::new(functions));
        for (name, server) in before.iter().filter(|(name, server)| is_new(&running, name, server)) {
            server.mark_replaced(running.contains_key(name));
            self.retiring.lock().push(Arc::clone(server));
        }
        for name in unusable_before.keys().filter(|name| !unusable.contains_key(*name)) {
            // Its state is reported after the first attempt to connect.
            self.context.readiness.forget(&source(name));
        }
        for (name, UnusableServer { problem, .. }) in &unusable {
            self.context.readiness.degrade(&source(name), problem);
        }
        let started = running.iter().filter(|(name, server)| is_new(&before, name, server));
        let started: Vec<_> = started.map(|(_, server)| Arc::clone(server)).collect();
        self.running.store(Arc::new(running));
        self.announce_others_than(&before);
        for server in started {
            self.tasks.spawn(server.keep());
        }
        self.unusable.store(Arc::new(unusable));
        self.tools_changed.notify_one();
    }

    /// The removed servers; drop them after their tools have left the registry.
    pub fn retire(&self) -> Retired {
        Retired(std::mem::take(&mut *self.retiring.lock()))
    }

    /// Adds a server that is not in the configuration, and replaces one added before under the same name;
    /// [`configure`](Self::configure) applies it.
    pub fn add(&self, name: &str, registered: Registered) {
        self.added.lock().insert(name.to_owned(), registered);
    }

    /// Makes the added servers these; [`configure`](Self::configure) applies them.
    pub fn replace_added(&self, registered: BTreeMap<String, Registered>) {
        *self.added.lock() = registered;
    }

    /// Removes a server that was [added](Self::add); [`configure`](Self::configure) applies it.
    pub fn remove(&self, name: &str) {
        self.added.lock().remove(name);
    }

    /// Whose a server is that was [added](Self::add).
    pub fn added(&self, name: &str) -> Option<Ownership> {
        self.added.lock().get(name).map(|registered| registered.owner().clone())
    }

    /// How many of those are shared.
    pub fn shared_count(&self) -> usize {
        self.added.lock().values().filter(|registered| registered.owner().is_shared()).count()
    }

    /// Tests a server before it is added: connects, reads its lists, and disconnects.
    ///
    /// A server that requires a user's sign-in is accepted, because it can be used after the sign-in.
    /// Errors: why it cannot be used.
    pub async fn try_out(&self, name: &str, registered: &Registered, config: &Config) -> Result<(), String> {
        let problem = |problem: Unusable| problem.to_string();
        let settings = match registered {
            Registered::Function(function) => return self.function(function, config).map(drop).map_err(problem),
            Registered::Server(settings) => McpServerSettings::clone(settings),
        };
        let alone = Arc::new(Semaphore::new(1));
        let (connector, _) = self.connector(name, settings, config, &alone).map_err(problem)?;
        let used = async {
            let session = connector.connect(&SessionOwner::default()).await?;
            connector.list(&session, config.mcp.max_tools_per_server).await.map(drop)
        };
        let wants_sign_in =
            || connector.sign_in().is_some_and(|sign_in| sign_in.requirement_since_connecting().is_some());
        used.await.or_else(|reason| if wants_sign_in() { Ok(()) } else { Err(reason) })
    }

    /// How each server is reached, and whether it can be used.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.running.load().values().map(|server| server.status()).collect()
    }

    /// Warnings about the sandboxes of programs, by setting: missing layers, and refused grants.
    pub fn sandbox_notes(&self) -> BTreeMap<String, String> {
        let running = self.running.load();
        let note = |(name, server): (&String, &Arc<Server>)| {
            Some((format!("mcp.servers.{name}.sandbox"), server.connector.sandbox.missing()?))
        };
        running.iter().filter_map(note).collect()
    }

    /// The servers and functions that cannot be set up.
    pub fn unusable(&self) -> BTreeMap<String, UnusableServer> {
        BTreeMap::clone(&self.unusable.load())
    }

    /// The single tools added at run time, by name, with whose each is.
    pub fn functions(&self) -> Vec<(String, Ownership)> {
        let functions = self.functions.load();
        functions.iter().map(|(name, definition)| (name.clone(), definition.metadata.owner.clone())).collect()
    }

    /// Connects a server again now; returns whether there is one of that name.
    pub fn reconnect(&self, name: &str) -> bool {
        let running = self.running.load();
        let server = running.get(name);
        server.inspect(|server| server.reconnect());
        server.is_some()
    }

    /// Waits until the server has connected or failed once.
    pub async fn settled_one(&self, name: &str) {
        let server = self.running.load().get(name).cloned();
        if let Some(server) = server {
            server.settle().await;
        }
    }

    /// Waits until the tools of some server change.
    pub async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Notifies clients that the tools have changed.
    pub fn announce(&self, change: Change) {
        // It is not an error if there is no receiver.
        let _ = self.changes.send(change);
    }

    /// Waits until each server has connected or failed once.
    pub async fn settled(&self) {
        let running = self.running.load_full();
        join_all(running.values().map(|server| server.settle())).await;
    }

    /// Waits a moment for servers that were started just now and have neither connected nor failed. Returns whether there were any.
    pub async fn settled_soon(&self) -> bool {
        let running = self.running.load_full();
        let graces: Vec<_> = running.values().filter_map(|server| Some((server, server.list_grace()?))).collect();
        let settled = graces.iter().map(|(server, grace)| tokio::time::timeout(*grace, server.settle()));
        // The tools of a slower one are announced when it connects.
        let _late = join_all(settled).await;
        !graces.is_empty()
    }

    /// Waits until each server that may have a tool of this name has connected or failed once. Returns whether the name has the prefix of
    /// one of them.
    pub async fn settled_for(&self, tool: &str) -> bool {
        let running = self.running.load_full();
        let is_prefixed = running.values().any(|server| server.names().is_prefix_of(tool));
        let may_have = |server: &&Arc<Server>| match is_prefixed {
            true => server.names().is_prefix_of(tool),
            false => !server.names().is_prefixed(),
        };
        join_all(running.values().filter(may_have).map(|server| server.settle())).await;
        is_prefixed
    }

    /// Closes all connections, and stops the servers' processes.
    pub async fn close(&self) {
        for server in self.running.swap(Arc::default()).values() {
            server.stop.cancel();
        }
        drop(self.retire());
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Why the tools of a source (`mcp:NAME`) cannot be used now.
    pub fn degraded(&self, source: &str) -> Option<Arc<str>> {
        self.running.load().get(source.strip_prefix("mcp:")?)?.problem()
    }

    /// The servers that cannot be used now, each with its reason.
    pub fn out_of_reach(&self) -> BTreeMap<String, String> {
        let running = self.running.load();
        let down = running.iter().filter_map(|(name, server)| Some((name.clone(), server.down()?.to_string())));
        let unusable = self.unusable.load();
        down.chain(unusable.iter().map(|(name, server)| (name.clone(), server.problem.clone()))).collect()
    }

    /// The pins of the servers' instructions and prompts, by source.
    pub fn words(&self) -> BTreeMap<String, Pin> {
        let running = self.running.load();
        running
            .iter()
            .filter_map(|(name, server)| Some((source(name), server.catalogue.load().words.clone()?)))
            .collect()
    }

    /// The sources of servers whose instructions and prompts wait for approval, with whose each is.
    pub fn quarantined(&self) -> Vec<(String, Ownership)> {
        let running = self.running.load();
        let held_back = running.iter().filter(|(_, server)| server.lock_violation().is_some());
        held_back.map(|(name, server)| (source(name), server.settings().owner.clone())).collect()
    }

    /// A receiver of the changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

impl AwaitedTools for McpServers {
    fn refusal(&self, tool: &str, caller: &Caller) -> Option<CallError> {
        self.running.load().values().find_map(|server| server.refusal(tool, caller))
    }
}

impl Source for McpServers {
    fn name(&self) -> &str {
        "mcp"
    }

    fn tools(&self) -> SourceTools {
        let mut offer = SourceTools::default();
        let mut prompts: HashMap<(String, &Ownership), &str> = HashMap::new();
        let running = self.running.load();
        for server in running.values() {
            let catalogue = server.catalogue.load();
            offer.tools.extend(catalogue.tools.iter().chain(&catalogue.operations).cloned());
            offer.unavailable.extend(catalogue.unavailable.iter().cloned());
            let owner = &server.settings().owner;
            for name in catalogue.prompts.iter().map(name_of) {
                // A prompt of a tenant hides none from the others.
                let of = |owner| prompts.get(&(name.to_owned(), owner)).copied();
                match of(owner).or_else(|| of(&Ownership::Shared)) {
                    None => _ = prompts.insert((name.to_owned(), owner), server.name()),
                    Some(first) => offer.unavailable.push(hidden_prompt(server, name, first)),
                }
            }
        }
        offer.tools.extend(self.functions.load().values().cloned());
        let unusable = self.unusable.load();
        offer.unavailable.extend(unusable.iter().map(|(name, UnusableServer { owner, problem })| {
            Unavailable::new(&source(name), format!("{name}__*"), problem.as_str()).of_owner(owner)
        }));
        offer
    }
}

/// A prompt hidden by a prompt with the same name of the server `first`.
fn hidden_prompt(server: &Server, name: &str, first: &str) -> Unavailable {
    let reason = format!("callers who may use the MCP server {first} get its prompt of this name; give one a prefix");
    let settings = server.settings();
    let missing = Unavailable::of(OfferKind::Prompt, &source(server.name()), name, reason);
    missing.for_roles(&settings.roles).of_owner(&settings.owner)
}

fn is_new(before: &BTreeMap<String, Arc<Server>>, name: &str, server: &Arc<Server>) -> bool {
    !before.get(name).is_some_and(|known| Arc::ptr_eq(known, server))
}
