//! The configured tools, sources and roles, to check the names in policies.

use std::collections::BTreeSet;

use sekisho_calls::policy::KnownNames;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::{OfferKind, qualified_name};
use sekisho_config::{Config, McpPrefix};
use sekisho_openapi::Collections;
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;

/// The role that the gateway itself requires.
const ADMINISTRATOR: &str = "admin";

/// The tools in folders.
#[derive(Debug, Clone, Copy)]
pub struct OwnTools<'a> {
    pub python: &'a PythonTools,
    pub components: &'a Components,
}

/// The names of a configuration. `registered` are MCP servers that were registered over HTTP. MCP servers are not
/// queried for their tools: any name with their prefix is accepted.
pub fn known_names(
    config: &Config,
    snapshot: &Snapshot,
    collections: &Collections,
    own: OwnTools<'_>,
    registered: &BTreeSet<String>,
) -> KnownNames {
    let servers = &config.mcp.servers;
    let unprefixed = servers.values().any(|server| server.prefix == Some(McpPrefix::Never));
    let aliases = servers.iter().map(|(name, server)| server.alias.as_deref().unwrap_or(name));
    // Sources without tools, which may get tools later.
    let absent = collections.broken.keys().chain(collections.pending.keys());
    let absent = absent.chain(own.python.files()).chain(own.components.files()).map(String::as_str);
    let prefixes = aliases.chain(registered.iter().map(String::as_str)).chain(absent);
    KnownNames {
        tools: (!unprefixed).then(|| tools(config, snapshot)),
        tool_prefixes: prefixes.map(prefix).collect(),
        sources: sources(config, collections, own, registered),
        roles: (!config.auth.has_tokens()).then(|| roles(config, snapshot)),
    }
}

/// `NAME__`, the prefix of the names of its tools.
fn prefix(name: &str) -> String {
    let name = qualified_name(name, "x").to_string();
    name.strip_suffix('x').unwrap_or(&name).to_owned()
}

fn tools(config: &Config, snapshot: &Snapshot) -> BTreeSet<String> {
    let offered = snapshot.tools().iter().map(|tool| tool.name().to_owned());
    let quarantined = snapshot.quarantined().map(|tool| tool.name().to_owned());
    let unavailable = snapshot.unavailable().iter().filter(|missing| missing.kind == OfferKind::Tool);
    let unavailable = unavailable.map(|missing| missing.name.clone());
    let overrides = config.tools.overrides.iter();
    let configured = overrides.flat_map(|(name, changes)| [Some(name.clone()), changes.rename.clone()]).flatten();
    offered.chain(quarantined).chain(unavailable).chain(configured).collect()
}

fn sources(
    config: &Config,
    collections: &Collections,
    own: OwnTools<'_>,
    registered: &BTreeSet<String>,
) -> BTreeSet<String> {
    let servers = config.mcp.servers.keys().chain(registered).map(|name| format!("mcp:{name}"));
    let Collections { loaded, broken, pending } = collections;
    let collections = loaded.keys().chain(broken.keys()).chain(pending.keys()).map(|name| format!("openapi:{name}"));
    let own = own.python.sources().chain(own.components.sources());
    servers.chain(collections).chain(own).chain(["builtin".to_owned()]).collect()
}

fn roles(config: &Config, snapshot: &Snapshot) -> BTreeSet<String> {
    let keys = config.auth.api_keys.iter().flat_map(|key| &key.roles);
    let servers = config.mcp.servers.values().flat_map(|server| &server.roles);
    let overrides = config.tools.overrides.values().filter_map(|changes| changes.roles.as_ref()).flatten();
    let tools = snapshot.tools().iter().flat_map(|tool| &tool.metadata.roles);
    let dangerous = &config.policy.dangerous_roles;
    let named = keys.chain(servers).chain(overrides).chain(tools).chain(dangerous);
    named.cloned().chain([ADMINISTRATOR.to_owned()]).collect()
}
