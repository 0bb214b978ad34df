//! The gateway: builds all parts from a configuration, and applies a new configuration while it runs.

mod approvals;
mod background;
mod background_work;
mod blobs;
mod changes;
mod cluster;
mod components;
mod configuration;
mod endpoints;
mod existing_names;
mod function_files;
mod history;
mod inventory;
mod keys;
mod known_names;
mod levels;
mod lock;
mod lock_review;
mod mcp;
mod name_notes;
mod offer_problems;
mod openapi;
mod overview;
mod parts;
mod policies;
mod python_tools;
mod recent_calls;
mod reload;
mod rule_levels;
mod servers;
mod sign_ins;
mod start;
mod tenants;
mod tool_set;
mod webhooks;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::name_notes::NameNotes;
use self::offer_problems::offer_problems;
use self::openapi::FetchLocks;
use self::parts::lines;
use self::reload::WaitingConfiguration;
use self::tool_set::ToolSet;
use sekisho_auth::{Authenticator, ManagedKeys};
use sekisho_calls::budget::WriteBehind;
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::policy::unknown_names;
use sekisho_calls::registry::lock::Lock;
use sekisho_calls::tool::Source;
use sekisho_config::{Config, dotenv_files};
use sekisho_mcp_client::McpServers;
use sekisho_observe::descriptors;
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::{Collections, Loader, OwnedRegistration};
use sekisho_outbound::Outbound;
use sekisho_outbound::blobs::Blobs;
use sekisho_sandbox::Sandbox;
use sekisho_store::Store;
use sekisho_store::replica::Replica;
use sekisho_store::state_lock::StateLock;
use sekisho_tools::builtin::Workspaces;
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;
use sekisho_user_tokens::UserTokens;

pub use self::approvals::{APPROVER, WaitedAnswer};
pub use self::blobs::{probe_blobs, verify_stored_trails};
pub use self::cluster::live_replicas;
pub use self::configuration::ConfigurationCheck;
pub use self::existing_names::{NameSources, RegisteredNames, existing_names};
pub use self::function_files::{FunctionFile, FunctionFolder, FunctionSource};
pub use self::inventory::{Inventory, OfferedTools, offered_tools, take_inventory};
pub use self::keys::{KeyAdministrator, WantedKey};
pub use self::known_names::{OwnTools, known_names};
pub use self::levels::{Level, LevelFilter};
pub use self::lock::read as read_lock;
pub use self::lock_review::{Approval, LockReview};
pub use self::mcp::AddServerError;
pub use self::openapi::RegisterError;
pub use self::overview::Overview;
pub use self::parts::{loader_of, require_sealing_key};
pub use self::policies::{DecisionCount, Explained};
pub use self::recent_calls::{CallFilter, Reach};
pub use self::rule_levels::RuleLevel;
pub use self::servers::{SourceKind, SourceState, SourceStatus};
pub use self::sign_ins::SignedInCaller;
pub use self::tenants::limits_of_tenant;

/// Callers and tenants with gauges of their budget.
const MAX_BUDGET_GAUGES: usize = 200;

/// The running service, independent of its APIs.
pub struct Gateway {
    pub pipeline: Arc<Pipeline>,
    pub readiness: Arc<Readiness>,
    config: ArcSwap<Config>,
    /// The configuration of the start, of which some topics stay until the next one.
    started_with: Config,
    /// Those topics that have changed since.
    restart_required: ArcSwap<Vec<&'static str>>,
    /// A changed configuration that waits for a person.
    waiting: ArcSwapOption<WaitingConfiguration>,
    authenticator: ArcSwap<Authenticator>,
    /// Of all authenticators.
    keys: Arc<ManagedKeys>,
    /// Held while managed keys are changed or read from the store.
    changing_keys: Mutex<()>,
    outbound: Outbound,
    workspaces: Workspaces,
    sandbox: Arc<Sandbox>,
    /// Further sources; the built-in tools are rebuilt on reload.
    sources: Vec<Box<dyn Source>>,
    loader: Loader,
    collections: ArcSwap<Collections>,
    python_tools: ArcSwap<PythonTools>,
    /// Held while files of Python functions are read, until they count or do not: the sandbox has the packages of one state of
    /// the folder at a time.
    reading_python_tools: Mutex<()>,
    components: ArcSwap<Components>,
    mcp_servers: McpServers,
    /// The tokens of callers who sign in on their own.
    users: Arc<UserTokens>,
    /// Held while a registered MCP server is stored or removed.
    mcp_registrations: Mutex<()>,
    /// Names in the configuration that match nothing.
    names: NameNotes,
    /// The approved state of every tool, if a lock is configured.
    lock: Arc<ArcSwapOption<Lock>>,
    /// Collections registered over HTTP, as in the store.
    registered: ArcSwap<BTreeMap<String, OwnedRegistration>>,
    /// Held while the offered tools are changed.
    changing: Mutex<()>,
    fetch_locks: FetchLocks,
    /// Notified when documents are added.
    documents_pending: Notify,
    store: Store,
    /// If it is one of several on a database.
    replica: Option<Arc<Replica>>,
    /// The storage that it shares with the others, if there is one.
    blobs: Option<Blobs>,
    usage: WriteBehind,
    background: TaskTracker,
    leaving: CancellationToken,
    draining: CancellationToken,
    closing: CancellationToken,
    /// Until the gateway is closed.
    state_lock: ArcSwapOption<StateLock>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Gateway").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

/// Why the service cannot start or apply a configuration.
#[derive(Debug, Error)]
#[error("{part}: {problem}")]
pub struct StartError {
    /// A topic of the configuration, or a part of the service.
    part: &'static str,
    problem: String,
}

impl Gateway {
    pub fn config(&self) -> Guard<Arc<Config>> {
        self.config.load()
    }

    /// Tells load balancers and clients that others are to serve the next requests; those that arrive all the same are served.
    pub fn leave(&self) {
        self.readiness.refuse_calls("shutdown", "the gateway is shutting down");
        self.leaving.cancel();
    }

    /// Cancelled by [`leave`](Self::leave).
    pub fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Cancelled when the APIs stop accepting requests, before those in flight have ended.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// The metrics in Prometheus's format, as they are now.
    pub fn metrics_text(&self) -> String {
        let metrics = &self.pipeline.settlement.metrics;
        self.pipeline.breakers.report();
        metrics.set_budgets(&self.pipeline.budget.of_today(MAX_BUDGET_GAUGES));
        if let Some(replica) = &self.replica {
            metrics.set_replicas(&replica.states());
        }
        // Outside of a runtime there are none.
        if let Ok(runtime) = Handle::try_current() {
            metrics.set_runtime_tasks(runtime.metrics().num_alive_tasks());
        }
        metrics.render()
    }

    /// The degraded components, by name, and open circuit breakers. Callers of all tenants read this, so that it has no server or
    /// collection of a tenant; [`sources`](Self::sources) has these for their administrators.
    pub fn degraded(&self) -> BTreeMap<String, String> {
        let mut degraded = self.readiness.degraded();
        degraded.retain(|component, _| !self.is_source_of_tenant(component));
        for (source, problem) in offer_problems(&self.pipeline.registry.snapshot()) {
            let problems: &mut String = degraded.entry(source).or_default();
            if !problems.is_empty() {
                problems.push_str("; ");
            }
            problems.push_str(&problem);
        }
        let open = self.pipeline.breakers.open().into_iter();
        degraded.extend(open.filter(|upstream| !self.is_source_of_tenant(&upstream.name)).map(|upstream| {
            let problem = match upstream.is_for_all {
                true => "it keeps failing and is not called for now",
                false => "it keeps failing for a tenant and is not called for it now",
            };
            (format!("circuit:{}", upstream.name), problem.to_owned())
        }));
        degraded
    }

    /// Warnings about settings, by path.
    pub fn setting_notes(&self) -> BTreeMap<String, String> {
        let config = self.config.load();
        let mut notes = config.notes();
        notes.extend(self.names.current());
        notes.extend(descriptors::shortage(&config).map(|note| ("server.max_connections".to_owned(), note)));
        let pending = self.restart_required.load();
        let note = "it was changed; the change takes effect at the next start";
        notes.extend(pending.iter().map(|topic| ((*topic).to_owned(), note.to_owned())));
        notes
    }

    /// Warnings about the configuration, by path. None of them stops the service.
    pub async fn notes(&self) -> BTreeMap<String, String> {
        let config = self.config.load_full();
        let mut notes = self.setting_notes();
        let registered = RegisteredNames::read(&self.store).await.unwrap_or_default();
        let own = OwnTools { python: &self.python_tools.load(), components: &self.components.load() };
        let collections = self.collections.load();
        let known = known_names(&config, &self.pipeline.registry.snapshot(), &collections, own, registered.servers());
        // Files that cannot be read were reported when the policies were loaded.
        let unknown = unknown_names(&config.policy, &known).unwrap_or_default();
        if !unknown.is_empty() {
            notes.insert("policy".to_owned(), lines(&unknown));
        }
        notes
    }

    /// The loader of OpenAPI documents.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// The MCP servers, for their resources, prompts and completion.
    pub fn mcp_servers(&self) -> &McpServers {
        &self.mcp_servers
    }

    /// The client for outbound requests.
    pub fn outbound(&self) -> &Outbound {
        &self.outbound
    }

    /// The workspaces of sessions.
    pub fn workspaces(&self) -> &Workspaces {
        &self.workspaces
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn authenticator(&self) -> Guard<Arc<Authenticator>> {
        self.authenticator.load()
    }

    /// The files that are the configuration, and its policies.
    pub fn configuration_files(&self, config_file: Option<&Path>) -> Vec<PathBuf> {
        let config = self.config();
        let own = config_file.into_iter().map(Path::to_owned).chain(dotenv_files(config_file));
        let named = config.mcp_files().into_iter().chain(config.references.files.iter().cloned());
        own.chain(named).chain(config.policy.directory.clone()).collect()
    }

    /// Further files whose change should cause a reload. Those of Python functions are read apart from the configuration.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        let (config, collections) = (self.config(), self.collections.load());
        let granted = config.components.grants.values().flat_map(|granted| granted.folders.values());
        let named = config.components.directory.iter().chain(granted).chain(config.openapi.files());
        let referred = collections.loaded.values().flat_map(|collection| &collection.files);
        named.cloned().chain([config.lock_file()]).chain(referred.cloned()).collect()
    }

    /// Checks in the background whether the sandbox's interpreter is installed, and reports it in readiness.
    pub fn look_for_interpreter(self: &Arc<Self>) {
        let gateway = Arc::clone(self);
        self.background.spawn(async move { gateway.sandbox.look_for_interpreter(gateway.closing.clone()).await });
    }

    /// For what a caller does with its sessions of interpreters.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Stops background tasks and writes pending records. Calls have ended or been aborted before.
    pub async fn close(&self) {
        self.pipeline.replies.finish(Instant::now()).await;
        self.closing.cancel();
        self.mcp_servers.close().await;
        self.background.close();
        self.background.wait().await;
        self.sandbox.close().await;
        self.usage.flush().await;
        self.store_uses_of_keys().await;
        self.leave_cluster().await;
        self.store.close().await;
        self.pipeline.settlement.close().await;
        self.state_lock.store(None);
    }

    /// The present tools, under this lock.
    fn tool_set(&self, lock: Option<Arc<Lock>>) -> ToolSet<'_> {
        ToolSet {
            outbound: &self.outbound,
            workspaces: &self.workspaces,
            sandbox: &self.sandbox,
            results: &self.pipeline.results,
            metrics: &self.pipeline.settlement.metrics,
            sources: &self.sources,
            python: self.python_tools.load_full(),
            components: self.components.load_full(),
            mcp: self.mcp_servers.tools(),
            lock,
        }
    }
}
