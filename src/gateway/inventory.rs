//! Lists all tools of all sources without serving requests, for `sekisho tools`, `check` and `lock`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::components::ReadWith;
use super::parts::{component_error, loader, sandbox, workspaces};
use super::tool_set::ToolSet;
use super::{StartError, components, lock, mcp, openapi, python_tools};
use sekisho_calls::registry::Snapshot;
use sekisho_calls::registry::lock::{Lock, Pin, pins};
use sekisho_calls::results::Results;
use sekisho_calls::tool::{Source, ToolDefinition};
use sekisho_config::Config;
use sekisho_mcp_client::{McpServers, ServerNames};
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::{Collections, DesiredCollections, Wait};
use sekisho_outbound::Outbound;
use sekisho_store::{Store, StoreLocation};
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;

/// The current tools of all sources.
#[derive(Debug, Default)]
pub struct Inventory {
    /// By the name under which a tool is offered, and by `mcp:SERVER` for the instructions and prompts of MCP servers.
    pub pins: BTreeMap<String, Pin>,
    /// Sources (`mcp:SERVER`, `openapi:COLLECTION`) that could not be queried, with the reason.
    pub out_of_reach: BTreeMap<String, String>,
}

/// The tools of a configuration, as a gateway would offer them.
#[derive(Debug)]
pub struct OfferedTools {
    pub snapshot: Snapshot,
    pub collections: Collections,
    pub python_tools: Arc<PythonTools>,
    pub components: Arc<Components>,
    /// The lists of the MCP servers.
    pub servers: Vec<ServerNames>,
    /// As in [`Inventory`].
    pub out_of_reach: BTreeMap<String, String>,
}

/// The offers of all sources.
struct Surveyed {
    offered: OfferedTools,
    definitions: Vec<ToolDefinition>,
    /// The pins of the instructions and prompts of MCP servers.
    words: BTreeMap<String, Pin>,
}

/// The tools of all sources: of the configuration, and registered over HTTP in the same state directory. Connects to
/// every MCP server and reads every document, and then disconnects.
/// Errors: names and schemas that cannot be registered, or a store or lock that cannot be read.
pub async fn offered_tools(config: &Config) -> Result<OfferedTools, StartError> {
    let lock = lock::read(config).await?.map(Arc::new);
    let has_lock = lock.is_some();
    Ok(survey(config, lock, has_lock).await?.offered)
}

/// The same as pins, for any lock.
/// Errors: as [`offered_tools`].
pub async fn take_inventory(config: &Config) -> Result<Inventory, StartError> {
    let Surveyed { offered, definitions, words } = survey(config, None, true).await?;
    let mut pins = pins(&definitions, &config.tools, &offered.snapshot);
    pins.extend(words);
    let mut out_of_reach = offered.out_of_reach;
    out_of_reach.extend(offered.components.problems());
    Ok(Inventory { pins, out_of_reach })
}

/// `has_lock`: whether components are offered, which are not without a lock.
async fn survey(config: &Config, lock: Option<Arc<Lock>>, has_lock: bool) -> Result<Surveyed, StartError> {
    let readiness = Arc::new(Readiness::default());
    let metrics = Arc::new(Metrics::new(&config.telemetry.metrics_namespace).map_err(component_error("telemetry"))?);
    let outbound = Outbound::new(&config.outbound).map_err(component_error("outbound"))?;
    // A gateway that runs renews the tokens of callers.
    let (lock_of_words, ready, measured) = (Arc::default(), Arc::clone(&readiness), Arc::clone(&metrics));
    let servers = McpServers::new(outbound.clone(), ready, measured, lock_of_words, None, None);
    // A copy: the gateway of the same state directory may run.
    let store = Store::open_copy(&StoreLocation::of(config)).await.map_err(component_error("store"))?;
    let registered = openapi::registered(&store.registrations()).await.map_err(component_error("store"))?;
    mcp::restore_servers(&store.registrations(), &servers, &config.mcp.secrets)
        .await
        .map_err(component_error("store"))?;
    store.close().await;
    servers.configure(config);
    let wanted = DesiredCollections::of(&config.openapi, &registered);
    let (loader, none) = (loader(config, &outbound)?, Collections::default());
    let (collections, ()) =
        tokio::join!(Collections::load(wanted, &config.openapi, &loader, Wait::ForAll, &none), servers.settled());
    let (found, words, listed) = (servers.tools(), servers.words(), servers.listed_names());
    let out_of_reach = out_of_reach(&collections, &servers);
    servers.close().await;
    let sandbox = sandbox(config, &metrics, &readiness)?;
    let python_tools = python_tools::read(config, &sandbox, &PythonTools::default()).await;
    let with = ReadWith { sandbox: &sandbox, outbound: &outbound, has_lock, may_compile: true };
    let components = components::read(config, with, &Components::default()).await;
    sandbox.close().await;
    let tools = ToolSet {
        outbound: &outbound,
        workspaces: &workspaces(config),
        sandbox: &sandbox,
        // Nothing is read.
        results: &Arc::new(Results::new(config, store, Arc::clone(&metrics))),
        metrics: &metrics,
        sources: &[],
        python: Arc::clone(&python_tools),
        components: Arc::clone(&components),
        mcp: found,
        lock,
        // Nobody calls.
        switched: &Arc::default(),
        values: Arc::default(),
    };
    let fixed = tools.fixed(config, &collections).tools;
    let outside = tools.mcp.tools.iter().cloned().chain(components.tools().tools);
    let outside = outside.chain(collections.tools_of_tenants().tools);
    let definitions = fixed.into_iter().chain(outside).collect();
    let snapshot = tools.rebuild(config, &collections, &Snapshot::default())?;
    let offered = OfferedTools { snapshot, collections, python_tools, components, servers: listed, out_of_reach };
    Ok(Surveyed { offered, definitions, words })
}

pub(super) fn out_of_reach(collections: &Collections, servers: &McpServers) -> BTreeMap<String, String> {
    let broken = collections.broken.iter().map(|(name, reason)| (format!("openapi:{name}"), reason.clone()));
    let down = servers.out_of_reach().into_iter().map(|(name, reason)| (format!("mcp:{name}"), reason));
    broken.chain(down).collect()
}
