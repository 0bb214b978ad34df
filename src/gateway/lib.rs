//! The gateway: builds all parts from a configuration, and applies a new configuration while it runs.

mod approvals;
mod assembly;
mod background;
mod background_work;
mod blobs;
mod call_contents;
mod call_index;
mod change_trial;
mod changes;
mod cluster;
mod components;
mod configuration;
mod configuration_changes;
mod configuration_notes;
mod endpoints;
mod enumerations;
mod existing_names;
mod failures;
mod figures;
mod function_files;
mod history;
mod housekeeping;
mod indexed_calls;
mod inventory;
mod keys;
mod known_names;
mod levels;
mod lock;
mod lock_review;
mod mcp;
mod offer_problems;
mod openapi;
mod overview;
mod parts;
mod policies;
mod python_tools;
mod reload;
mod rule_levels;
mod servers;
mod sign_ins;
mod source_catalogue;
mod source_names;
mod start;
mod stored_credentials;
mod tenants;
mod tool_offer;
mod tool_set;
mod webhooks;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::configuration_changes::ConfigurationChanges;
use self::housekeeping::Housekeeping;
use sekisho_broker::Broker;
use sekisho_calls::budget::WriteBehind;
use sekisho_calls::pipeline::Pipeline;
use sekisho_mcp_client::McpServers;
use sekisho_observe::readiness::Readiness;
use sekisho_outbound::Outbound;
use sekisho_sandbox::Sandbox;
use sekisho_store::Store;
use sekisho_store::state_lock::StateLock;
use sekisho_tools::builtin::Workspaces;

pub use self::approvals::{APPROVER, CallApprovals, WaitedAnswer};
pub use self::background_work::BackgroundWork;
pub use self::blobs::{probe_blobs, verify_stored_trails};
pub use self::call_contents::OpenedContent;
pub use self::call_index::{CallIndex, rebuild_index};
pub use self::change_trial::{ChangeTrial, TriedCalls};
pub use self::cluster::{Cluster, live_replicas};
pub use self::configuration::{Configuration, ConfigurationCheck};
pub use self::configuration_changes::ChangePreview;
pub use self::configuration_notes::ConfigurationNotes;
pub use self::existing_names::{NameSources, RegisteredNames, existing_names};
pub use self::failures::NextStep;
pub use self::figures::FiguresOf;
pub use self::function_files::{FunctionFile, FunctionFolder, FunctionSource};
pub use self::history::History;
pub use self::indexed_calls::Reach;
pub use self::inventory::{Inventory, OfferedTools, offered_tools, take_inventory};
pub use self::keys::{KeyAdministrator, Keys, WantedKey};
pub use self::known_names::{OwnTools, known_names};
pub use self::levels::{Level, LevelFilter};
pub use self::lock::read as read_lock;
pub use self::lock_review::{Approval, LockReview};
pub use self::mcp::{AddServerError, McpRegistrations};
pub use self::openapi::{OpenapiCollections, RegisterError};
pub use self::overview::{Overview, Status};
pub use self::parts::{loader_of, require_sealing_key};
pub use self::policies::{DecisionCount, Explained};
pub use self::python_tools::PythonFunctions;
pub use self::rule_levels::RuleLevel;
pub use self::servers::{SourceKind, SourceState, SourceStatus, Sources};
pub use self::sign_ins::{SignIns, SignedInCaller};
pub use self::source_catalogue::{CatalogueEntry, ProfileTool, SourceCatalogue, SourceDecision, SourceProfile};
pub use self::stored_credentials::{CredentialKind, KeptCredential, NewCredential};
pub use self::tenants::{limit_tenants, limits_of_tenant};
pub use self::tool_offer::ToolOffer;
pub use self::webhooks::post_webhook;

/// The running service, independent of its APIs.
pub struct Gateway {
    pub pipeline: Arc<Pipeline>,
    pub readiness: Arc<Readiness>,
    background: BackgroundWork,
    configuration: Arc<Configuration>,
    changes: ConfigurationChanges,
    keys: Arc<Keys>,
    broker: Broker,
    history: Arc<History>,
    approvals: Arc<CallApprovals>,
    outbound: Outbound,
    workspaces: Workspaces,
    sandbox: Arc<Sandbox>,
    tool_offer: Arc<ToolOffer>,
    mcp_registrations: Arc<McpRegistrations>,
    collections: Arc<OpenapiCollections>,
    python_functions: Arc<PythonFunctions>,
    sources: Arc<Sources>,
    mcp_servers: Arc<McpServers>,
    sign_ins: Arc<SignIns>,
    source_catalogue: Arc<SourceCatalogue>,
    configuration_notes: Arc<ConfigurationNotes>,
    status: Arc<Status>,
    cluster: Arc<Cluster>,
    housekeeping: Arc<Housekeeping>,
    store: Store,
    call_index: Arc<CallIndex>,
    usage: WriteBehind,
    leaving: CancellationToken,
    draining: CancellationToken,
    /// Until the gateway is closed.
    state_lock: ArcSwapOption<StateLock>,
}

sekisho_core::debug_fields!(Gateway { pipeline });

/// Why the service cannot start or apply a configuration.
#[derive(Debug, Error)]
#[error("{part}: {problem}")]
pub struct StartError {
    /// A topic of the configuration, or a part of the service.
    part: &'static str,
    problem: String,
}

impl Gateway {
    sekisho_core::getters! {
        /// The background tasks.
        background: BackgroundWork;
        /// The configuration in force.
        configuration: Configuration;
        /// Cancelled by [`leave`](Self::leave).
        leaving: CancellationToken;
        /// Cancelled when the APIs stop accepting requests, before running requests have ended.
        draining: CancellationToken;
        /// Warnings about the configuration.
        configuration_notes: ConfigurationNotes;
        /// The current state of the gateway.
        status: Status;
        /// The replicas that share the database with this gateway.
        cluster: Cluster;
        /// The keys by which callers are authenticated.
        keys: Keys;
        /// The gateway as the authorization server of its clients.
        broker: Broker;
        /// The calls that ended, and the decisions about them.
        history: History;
        /// Calls that a person must approve.
        approvals: CallApprovals;
        /// The offered tools.
        tool_offer: Arc<ToolOffer>;
        /// The MCP servers that are registered over HTTP.
        mcp_registrations: McpRegistrations;
        /// The OpenAPI collections.
        collections: OpenapiCollections;
        /// The tools that are Python functions.
        python_functions: PythonFunctions;
        /// The MCP servers and OpenAPI collections, and how each is.
        sources: Sources;
        /// The MCP servers, for their resources, prompts and completion.
        mcp_servers: McpServers;
        /// Sign-ins of callers to upstreams.
        sign_ins: SignIns;
        /// The sources that callers get on request.
        source_catalogue: Arc<SourceCatalogue>;
        /// The client for outbound requests.
        outbound: Outbound;
        /// The workspaces of sessions.
        workspaces: Workspaces;
        store: Store;
        /// For requests of a caller about its sessions of interpreters.
        sandbox: Sandbox;
    }

    /// Tells load balancers and clients that others are to serve the next requests; requests that still arrive are
    /// served.
    pub fn leave(&self) {
        self.readiness.leave();
        self.leaving.cancel();
    }

    /// Further files whose change should cause a reload. Files of Python functions are read apart from the
    /// configuration.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        let (config, collections) = (self.configuration.current(), self.tool_offer.collections.load());
        let granted = config.components.grants.values().flat_map(|granted| granted.folders.values());
        let named = config.components.directory.iter().chain(granted).chain(config.openapi.files());
        let referred = collections.loaded.values().flat_map(|collection| &collection.files);
        named.cloned().chain([config.lock_file()]).chain(referred.cloned()).collect()
    }

    /// Checks in the background whether the sandbox's interpreter is installed, and reports it in readiness.
    pub fn look_for_interpreter(&self) {
        let look = |sandbox: Arc<Sandbox>, closing| async move { sandbox.look_for_interpreter(closing).await };
        self.background.spawn_of(&self.sandbox, look);
    }

    /// Stops background tasks and writes pending records. Calls have ended or been aborted before.
    pub async fn close(&self) {
        self.pipeline.replies.finish(Instant::now()).await;
        self.background.closing().cancel();
        self.mcp_servers.close().await;
        self.background.ended().await;
        self.sandbox.close().await;
        self.usage.flush().await;
        self.keys.store_uses().await;
        self.cluster.leave().await;
        self.pipeline.settlement.close().await;
        self.call_index.close().await;
        self.store.close().await;
        self.state_lock.store(None);
    }
}
