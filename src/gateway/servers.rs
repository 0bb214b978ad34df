//! The MCP servers and OpenAPI collections: the state of each, and the actions of administrators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use url::Url;
use utoipa::ToSchema;

use super::{Configuration, History, OpenapiCollections, Reach, ToolOffer};
use sekisho_calls::pipeline::Pipeline;
use sekisho_config::CollectionSettings;
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership};
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_mcp_client::{HostConnections, McpServers, ServerState, ServerStatus, UnusableServer};
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::Collection;
use sekisho_openapi::read::report::Report;

/// Failing tools that a reason names.
const MAX_NAMED: usize = 5;

/// A server or collection as it is now.
#[derive(Debug, Clone)]
pub struct SourceStatus {
    pub kind: SourceKind,
    pub name: String,
    /// The program, or scheme, host and port; for a document, where it was read.
    pub address: String,
    pub state: SourceState,
    /// When it came into its state; `None` for one that has none of its own.
    pub since: Option<SystemTime>,
    pub reason: Option<String>,
    /// Registered over HTTP, and not in the configuration.
    pub registered: bool,
    pub owner: Ownership,
    /// Names of the tools that are offered.
    pub tools: Vec<String>,
    /// Names of the tools whose upstream fails.
    pub failing: Vec<String>,
    /// Names of the tools that wait for approval.
    pub quarantined: Vec<String>,
    /// Whether it takes a user's sign-in.
    pub can_sign_in: bool,
    pub collection: Option<Arc<Collection>>,
    /// Of a program in a sandbox.
    pub connections: Vec<HostConnections>,
    /// Of the sandbox of the last program that was started.
    pub layers: Vec<&'static str>,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SourceKind {
    Mcp,
    Openapi,
}

/// Whether its tools can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    Works,
    /// It is connected or loaded, and at least half of its operations do not work, or some of its tools fail.
    Degraded,
    /// Being connected, or its document is being loaded.
    Connecting,
    NeedsSignIn,
    /// It cannot be reached, its document cannot be used, or it cannot be set up.
    Down,
    /// Switched off in the configuration.
    Disabled,
}

sekisho_core::as_str!(SourceKind);

impl SourceKind {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl SourceStatus {
    /// As tools name their source.
    pub fn source(&self) -> String {
        format!("{}:{}", self.kind.as_str(), self.name)
    }

    /// Says what does not work of one that is there. `failing`: tools of any source.
    fn degrade(&mut self, failing: &BTreeSet<String>) {
        self.failing = self.tools.iter().filter(|tool| failing.contains(*tool)).cloned().collect();
        let unusable = self.collection.as_ref().and_then(|collection| unusable_operations(&collection.report));
        if self.state != SourceState::Works || (self.failing.is_empty() && unusable.is_none()) {
            return;
        }
        let (named, further) = self.failing.split_at(self.failing.len().min(MAX_NAMED));
        let more = if further.is_empty() { String::new() } else { format!(" and {} more", further.len()) };
        let fails = (!named.is_empty())
            .then(|| format!("{} of {} tools fail: {}{more}", self.failing.len(), self.tools.len(), named.join(", ")));
        let reasons: Vec<_> = self.reason.take().into_iter().chain(fails).chain(unusable).collect();
        self.reason = Some(reasons.join("; "));
        self.state = SourceState::Degraded;
    }

    fn new(kind: SourceKind, name: &str, state: SourceState) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            address: String::new(),
            state,
            since: None,
            reason: None,
            registered: false,
            owner: Ownership::Shared,
            tools: Vec::new(),
            failing: Vec::new(),
            quarantined: Vec::new(),
            can_sign_in: false,
            collection: None,
            connections: Vec::new(),
            layers: Vec::new(),
        }
    }
}

/// The MCP servers and OpenAPI collections, as administrators and callers see them.
#[derive(Debug)]
pub struct Sources {
    configuration: Arc<Configuration>,
    pipeline: Arc<Pipeline>,
    readiness: Arc<Readiness>,
    tool_offer: Arc<ToolOffer>,
    mcp_servers: Arc<McpServers>,
    collections: Arc<OpenapiCollections>,
    history: Arc<History>,
}

impl Sources {
    pub(super) fn new(
        tool_offer: &Arc<ToolOffer>,
        collections: &Arc<OpenapiCollections>,
        history: &Arc<History>,
    ) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            readiness: Arc::clone(&tool_offer.readiness),
            tool_offer: Arc::clone(tool_offer),
            mcp_servers: Arc::clone(&tool_offer.mcp_servers),
            collections: Arc::clone(collections),
            history: Arc::clone(history),
        }
    }

    /// All servers and collections. A caller who does not see the calls of all tenants gets only those with a tool that
    /// it may see, without connections and the names of tools that are hidden from it; an administrator of a tenant also gets all
    /// of the tenant.
    pub async fn list(&self, caller: &Arc<Caller>) -> Vec<SourceStatus> {
        let config = self.configuration.current();
        let mut sources = self.servers();
        sources.extend(self.document_sources());
        let disabled = config.mcp.servers.iter().filter(|(_, settings)| settings.disabled);
        sources.extend(disabled.map(|(name, _)| SourceStatus::new(SourceKind::Mcp, name, SourceState::Disabled)));
        self.add_tools(&mut sources);
        let tenant = match self.configuration.reach(caller) {
            Reach::AllTenants => None,
            reach => {
                self.keep_visible(&mut sources, caller, reach);
                Some(&*caller.tenant)
            }
        };
        let failing = self.history.failing_tools(tenant).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "nothing is known of failing tools");
            BTreeSet::new()
        });
        sources.iter_mut().for_each(|source| source.degrade(&failing));
        sources.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        sources
    }

    /// Leaves the parts that the caller may see. A caller without a role of the console does not see the report about a
    /// document: some of its operations may be hidden tools.
    fn keep_visible(&self, sources: &mut Vec<SourceStatus>, caller: &Arc<Caller>, reach: Reach) {
        let (tools, snapshot) = (self.pipeline.tools_for(caller), self.pipeline.registry.snapshot());
        let seen: BTreeSet<_> = tools.visible().map(|(tool, _)| &*tool.metadata.source).collect();
        let visible: BTreeSet<_> = tools.visible().map(|(tool, _)| tool.name()).collect();
        let held_back = snapshot.quarantined().filter(|tool| !tool.metadata.is_hidden_from(caller));
        let held_back: BTreeSet<_> = held_back.map(|tool| &*tool.metadata.name).collect();
        let is_own = |owner: &Ownership| owner.tenant().is_some_and(|tenant| caller.administers(tenant));
        sources.retain(|status| seen.contains(&*status.source()) || is_own(&status.owner));
        for status in sources.iter_mut().filter(|status| !is_own(&status.owner)) {
            status.tools.retain(|tool| visible.contains(&**tool));
            status.quarantined.retain(|tool| held_back.contains(&**tool));
            // Calls of others led to them.
            status.connections.clear();
            if reach == Reach::Own {
                status.collection = None;
            }
        }
    }

    /// A server or collection.
    /// Errors: `not_found`: there is none, or none that the caller may see.
    pub async fn find(&self, caller: &Arc<Caller>, kind: SourceKind, name: &str) -> Result<SourceStatus, CallError> {
        let found = self.list(caller).await.into_iter().find(|status| status.kind == kind && status.name == name);
        found.ok_or_else(|| {
            let message = format!(
                "there is no such server or collection: {}:{name}; `GET /admin/servers` lists them",
                kind.as_str()
            );
            CallError::new(ErrorCode::NotFound, message)
        })
    }

    /// Connects a server again, or fetches a document that could not be reached; returns whether the owner has one of that name.
    pub fn reconnect(&self, by: &Administrator, kind: SourceKind, name: &str) -> bool {
        if self.owner_of(kind, name) != *by.owner() {
            return false;
        }
        match kind {
            SourceKind::Mcp => self.mcp_servers.reconnect(name),
            SourceKind::Openapi => {
                self.collections.fetch_soon();
                let collections = self.tool_offer.collections.load();
                collections.loaded.contains_key(name) || collections.broken.contains_key(name)
            }
        }
    }

    /// The owner of a server or collection. The configuration's are shared, also where a tenant registered the same
    /// name before.
    fn owner_of(&self, kind: SourceKind, name: &str) -> Ownership {
        let config = self.configuration.current();
        let (is_configured, registered) = match kind {
            SourceKind::Mcp => (config.mcp.servers.contains_key(name), self.mcp_servers.added(name)),
            SourceKind::Openapi => {
                (config.openapi.collections.contains_key(name), self.collections.owner_of_registered(name))
            }
        };
        registered.filter(|_| !is_configured).unwrap_or_default()
    }

    /// Whether this names a server or collection of a tenant, as tools name their source.
    pub(super) fn is_of_tenant(&self, source: &str) -> bool {
        let Some((kind, name)) = source.split_once(':') else { return false };
        let kind = SourceKind::ALL.iter().copied().find(|known| known.as_str() == kind);
        kind.is_some_and(|kind| !self.owner_of(kind, name).is_shared())
    }

    fn servers(&self) -> Vec<SourceStatus> {
        let config = self.configuration.current();
        let is_registered = |name: &str| !config.mcp.servers.contains_key(name);
        let running = self.mcp_servers.statuses().into_iter().map(SourceStatus::from);
        let unusable = self.mcp_servers.unusable().into_iter();
        let unusable = unusable.map(|(name, UnusableServer { owner, problem })| SourceStatus {
            owner,
            reason: Some(problem),
            since: self.readiness.degraded_since(&format!("mcp:{name}")),
            ..SourceStatus::new(SourceKind::Mcp, &name, SourceState::Down)
        });
        let functions = self.mcp_servers.functions();
        let functions = functions.into_iter().map(|(name, owner)| SourceStatus {
            owner,
            ..SourceStatus::new(SourceKind::Mcp, &name, SourceState::Works)
        });
        let all = running.chain(unusable).chain(functions);
        all.map(|status| SourceStatus { registered: is_registered(&status.name), ..status }).collect()
    }

    fn document_sources(&self) -> Vec<SourceStatus> {
        let (collections, config) = (self.tool_offer.collections.load(), self.configuration.current());
        let is_configured = |name: &str| config.openapi.collections.contains_key(name);
        let names: BTreeSet<_> = collections.loaded.keys().chain(collections.broken.keys()).collect();
        let status = |name: &String| {
            let loaded = collections.loaded.get(name);
            let state = match (collections.broken.contains_key(name), collections.pending.contains_key(name)) {
                (false, false) => SourceState::Works,
                (false, true) => SourceState::Connecting,
                (true, _) => SourceState::Down,
            };
            SourceStatus {
                address: loaded.map(|collection| document_of(&collection.settings)).unwrap_or_default(),
                since: self
                    .readiness
                    .degraded_since(&format!("openapi:{name}"))
                    .or(loaded.map(|collection| collection.loaded)),
                reason: collections.broken.get(name).cloned(),
                registered: !is_configured(name) && self.collections.owner_of_registered(name).is_some(),
                owner: self.owner_of(SourceKind::Openapi, name),
                collection: loaded.cloned(),
                ..SourceStatus::new(SourceKind::Openapi, name, state)
            }
        };
        names.into_iter().map(status).collect()
    }

    fn add_tools(&self, sources: &mut [SourceStatus]) {
        let snapshot = self.pipeline.registry.snapshot();
        let mut offered = BTreeMap::<&str, Vec<String>>::new();
        for tool in snapshot.tools() {
            offered.entry(&tool.metadata.source).or_default().push(tool.name().to_owned());
        }
        let mut quarantined = BTreeMap::<&str, Vec<String>>::new();
        for tool in snapshot.quarantined() {
            quarantined.entry(&tool.metadata.source).or_default().push(tool.name().to_owned());
        }
        for status in sources {
            let source = status.source();
            status.tools = offered.remove(&*source).unwrap_or_default();
            status.quarantined = quarantined.remove(&*source).unwrap_or_default();
        }
    }
}

impl From<ServerStatus> for SourceStatus {
    fn from(status: ServerStatus) -> Self {
        let state = match status.state {
            ServerState::Connected => SourceState::Works,
            ServerState::Connecting => SourceState::Connecting,
            ServerState::NeedsSignIn => SourceState::NeedsSignIn,
            ServerState::Down => SourceState::Down,
        };
        Self {
            address: status.address,
            since: Some(status.since),
            reason: status.reason.map(|reason| reason.to_string()),
            can_sign_in: status.can_sign_in,
            owner: status.owner,
            connections: status.connections,
            layers: status.layers,
            ..Self::new(SourceKind::Mcp, &status.name, state)
        }
    }
}

/// What does not work of a document of which at least half does not work.
fn unusable_operations(report: &Report) -> Option<String> {
    let (lost, closed, all) = (report.lost.len(), report.needs_credentials.len(), report.operations);
    (all > 0 && 2 * (lost + closed) >= all)
        .then(|| format!("of {all} operations {closed} lack credentials and {lost} cannot be offered"))
}

/// Where a document was read, without parts that could be a secret.
fn document_of(settings: &CollectionSettings) -> String {
    let address = |url: &Url| format!("{}{}", url.origin().ascii_serialization(), url.path());
    let file = settings.spec_file.as_ref().and_then(|file| file.file_name());
    let file = file.map(|name| name.to_string_lossy().into_owned());
    settings.spec_url.as_ref().map(address).or(file).unwrap_or_default()
}
