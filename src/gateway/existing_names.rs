//! The names that exist in a gateway, to compare the names in its configuration with.

use std::collections::{BTreeMap, BTreeSet};

use super::OwnTools;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::OfferKind;
use sekisho_config::{Config, ConsoleConfig, ExistingNames, McpPrefix, NameKind, PolicyConfig, adapter_names};
use sekisho_core::caller::DEFAULT_TENANT;
use sekisho_mcp_client::ServerNames;
use sekisho_openapi::Collections;
use sekisho_store::{Registrations, ResourceKind, Store, StoreError, StoreLocation};

/// Methods that a setting may name although no operation of a document has them.
const METHODS: [&str; 9] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// Maximum characters of the name of a source in the names of its tools: a longer one is cut there.
const MAX_BEGINNING: usize = 55;

/// Where the names come from.
#[derive(Debug, Clone, Copy)]
pub struct NameSources<'a> {
    pub snapshot: &'a Snapshot,
    pub collections: &'a Collections,
    pub own: OwnTools<'a>,
    pub servers: &'a [ServerNames],
    pub registered: &'a RegisteredNames,
    /// The names in `agent.skills_directory`; `None` while it is not read.
    pub skills: Option<&'a BTreeSet<String>>,
}

/// The names in the store.
#[derive(Debug, Default)]
pub struct RegisteredNames {
    /// Whether the store could be read. Names that may be in it are not judged otherwise.
    is_read: bool,
    servers: BTreeSet<String>,
    models: Vec<String>,
    skills: Vec<String>,
    tenants: Vec<String>,
    keys: Vec<RegisteredKey>,
}

/// A managed key, with the caller whose it is.
#[derive(Debug)]
struct RegisteredKey {
    id: String,
    caller: String,
    tenant: String,
    roles: Vec<String>,
}

impl RegisteredNames {
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let servers =
            store.registrations().list(Registrations::McpServers).await?.into_iter().map(|server| server.name);
        let names = async |kind| {
            let stored = store.resources().names(kind).await?;
            Ok::<_, StoreError>(stored.into_iter().map(|(name, _)| name).collect())
        };
        let keys = store.keys().all().await?.into_iter();
        let keys =
            keys.map(|key| RegisteredKey { id: key.id, caller: key.person, tenant: key.tenant, roles: key.roles });
        Ok(Self {
            is_read: true,
            servers: servers.collect(),
            models: names(ResourceKind::Model).await?,
            skills: names(ResourceKind::Skill).await?,
            tenants: names(ResourceKind::Tenant).await?,
            keys: keys.collect(),
        })
    }

    /// The names in the configured store; none when the store does not exist.
    /// Errors: as [`read`](Self::read).
    pub async fn of_configured_store(config: &Config) -> Result<Self, StoreError> {
        let store = Store::open_copy(&StoreLocation::of(config)).await?;
        let names = Self::read(&store).await;
        store.close().await;
        names
    }

    /// The MCP servers.
    pub fn servers(&self) -> &BTreeSet<String> {
        &self.servers
    }
}

/// The names to compare the names of a configuration with, which need not be the one in force.
pub fn existing_names(config: &Config, sources: NameSources<'_>) -> ExistingNames {
    let mut names = ExistingNames::default();
    add_tools(&mut names, config, sources);
    add_pending(&mut names, config, sources);
    add_servers(&mut names, config, sources);
    add_documents(&mut names, config, sources.collections);
    if sources.registered.is_read {
        add_callers(&mut names, config, sources.registered);
        add_of_agents(&mut names, config, sources);
    }
    let OwnTools { python, components } = sources.own;
    if config.python_tools.directory.is_some() && has_folder(&python.problems()) {
        names.add(NameKind::PythonFile, "", python.files().cloned());
    }
    if config.components.directory.is_some() && has_folder(&components.problems()) {
        names.add(NameKind::Component, "", components.files().cloned());
    }
    names
}

fn add_of_agents(names: &mut ExistingNames, config: &Config, NameSources { registered, skills, .. }: NameSources<'_>) {
    let configured = config.agent.models.keys().chain(config.agent.profiles.keys());
    names.add(NameKind::Model, "", configured.chain(&registered.models).cloned());
    if skills.is_some() || config.agent.skills_directory.is_none() {
        names.add(NameKind::Skill, "", skills.into_iter().flatten().chain(&registered.skills).cloned());
    }
}

/// Whether a folder can be read: a problem of one of its files names the file after a colon.
fn has_folder(problems: &BTreeMap<String, String>) -> bool {
    problems.keys().all(|component| component.contains(':'))
}

fn add_tools(names: &mut ExistingNames, config: &Config, NameSources { snapshot, .. }: NameSources<'_>) {
    let offered = snapshot.tools().iter().chain(snapshot.operations()).map(|tool| tool.name().to_owned());
    let quarantined = snapshot.quarantined().map(|tool| tool.name().to_owned());
    let unavailable = snapshot.unavailable().iter().filter(|missing| missing.kind == OfferKind::Tool);
    let unavailable = unavailable.map(|missing| missing.name.clone());
    let known: BTreeSet<_> = offered.chain(quarantined).chain(unavailable).collect();
    let overrides = &config.tools.overrides;
    let renamed: BTreeSet<_> = overrides.values().filter_map(|changes| changes.rename.as_ref()).collect();
    let by_source = known.iter().filter(|name| !renamed.contains(name)).chain(snapshot.overridden());
    names.add(NameKind::SourceTool, "", by_source.cloned());
    // The settings of a rule for a tool that is not offered at all need no correction.
    let is_hidden = |name: &&String| overrides.get(*name).is_some_and(|changes| changes.hidden == Some(true));
    let hidden: Vec<_> = snapshot.overridden().iter().filter(is_hidden).cloned().collect();
    names.add(NameKind::Tool, "", known.into_iter().chain(hidden));
}

/// The beginnings of the names of tools that are not known yet, or no longer.
fn add_pending(names: &mut ExistingNames, config: &Config, sources: NameSources<'_>) {
    let NameSources { snapshot, collections, own, servers, registered, .. } = sources;
    let absent = collections.broken.keys().chain(collections.pending.keys());
    let offered: BTreeSet<_> = snapshot.tools().iter().map(|tool| tool.metadata.source.as_str()).collect();
    let (python, components) = (own.python, own.components);
    let (of_python, of_components) = (python.problems(), components.problems());
    if !has_folder(&of_python) || !has_folder(&of_components) {
        names.add_pending(String::new());
    }
    let files = python.files().zip(python.sources()).chain(components.files().zip(components.sources()));
    let unread = files.filter(|(_, source)| {
        !offered.contains(source.as_str()) || of_python.contains_key(source) || of_components.contains_key(source)
    });
    for source in absent.chain(unread.map(|(file, _)| file)) {
        names.add_pending(beginning(source));
    }
    let registered_sources = sources_of(snapshot);
    // A server lists its tools before the registry has them.
    let has_all = |server: &&ServerNames| {
        server.is_listed && (!server.has_tools || registered_sources.contains(&*format!("mcp:{}", server.name)))
    };
    let is_listed = |name: &str| servers.iter().filter(has_all).any(|server| server.name == *name);
    for server in servers.iter().filter(|server| !has_all(server)) {
        names.add_pending(server.prefix.as_deref().map(beginning).unwrap_or_default());
    }
    for (name, settings) in config.mcp.servers.iter().filter(|(name, _)| !is_listed(name)) {
        let has_prefix = settings.prefix.unwrap_or(config.mcp.prefix) == McpPrefix::Always;
        let prefix = settings.alias.as_deref().unwrap_or(name);
        names.add_pending(if has_prefix { beginning(prefix) } else { String::new() });
    }
    for name in registered.servers.iter().filter(|name| !is_listed(name)) {
        names.add_pending(beginning(name));
    }
}

/// The sources with tools that the registry has, also quarantined and unavailable ones.
fn sources_of(snapshot: &Snapshot) -> BTreeSet<&str> {
    let offered = snapshot.tools().iter().chain(snapshot.operations()).map(|tool| tool.metadata.source.as_str());
    let quarantined = snapshot.quarantined().map(|tool| tool.metadata.source.as_str());
    offered.chain(quarantined).chain(snapshot.unavailable().iter().map(|missing| missing.source.as_str())).collect()
}

fn add_servers(
    names: &mut ExistingNames,
    config: &Config,
    NameSources { servers, registered, collections, .. }: NameSources<'_>,
) {
    names.add(NameKind::McpServer, "", config.mcp.servers.keys().chain(&registered.servers).cloned());
    for server in servers {
        if let Some(tools) = &server.tools {
            names.add(NameKind::ServerTool, &server.name, tools.iter().cloned());
        }
    }
    let Collections { loaded, broken, pending } = collections;
    let known = loaded.keys().chain(broken.keys()).chain(pending.keys());
    names.add(NameKind::Collection, "", config.openapi.collections.keys().chain(known).cloned());
    names.add(NameKind::Adapter, "", config.openapi.adapters.keys().cloned());
}

/// Adds the names of the documents that are read as they are configured.
fn add_documents(names: &mut ExistingNames, config: &Config, collections: &Collections) {
    let is_settled = |name: &String| !collections.broken.contains_key(name) && !collections.pending.contains_key(name);
    let mut unread_adapters = BTreeSet::new();
    for (name, settings) in &config.openapi.collections {
        let loaded = collections.loaded.get(name).filter(|loaded| is_settled(name) && loaded.is_of_document(settings));
        let Some(loaded) = loaded else {
            unread_adapters.extend(settings.adapter_name().map(adapter_names));
            continue;
        };
        let document = &loaded.names;
        names.add(NameKind::OperationId, name, document.ids.iter().cloned());
        names.add(NameKind::Operation, name, document.ids.iter().chain(&document.operations).cloned());
        names.add(NameKind::Path, name, document.paths.iter().cloned());
        names.add(NameKind::Tag, name, document.tags.iter().cloned());
        names.add(NameKind::SecurityScheme, name, document.security_schemes.iter().cloned());
        names.add(NameKind::Method, name, document.methods.iter().map(String::as_str).chain(METHODS));
    }
    let users =
        collections.loaded.values().filter_map(|loaded| Some((loaded, adapter_names(loaded.settings.adapter_name()?))));
    for (loaded, adapter) in users.filter(|(_, adapter)| !unread_adapters.contains(adapter)) {
        names.add(NameKind::OperationId, &adapter, loaded.names.ids.iter().cloned());
    }
}

/// Where tokens may name any caller, and where no caller has credentials, none is judged.
fn add_callers(names: &mut ExistingNames, config: &Config, registered: &RegisteredNames) {
    let RegisteredNames { keys, tenants, .. } = registered;
    let configured = &config.auth.api_keys;
    names.add(NameKind::Key, "", keys.iter().map(|key| key.id.clone()));
    if config.auth.has_tokens() || (configured.is_empty() && keys.is_empty()) {
        return;
    }
    names.add(
        NameKind::Caller,
        "",
        configured.iter().map(|key| &key.id).chain(keys.iter().map(|key| &key.caller)).cloned(),
    );
    let of_callers = configured.iter().map(|key| &key.tenant).chain(keys.iter().map(|key| &key.tenant));
    names.add(NameKind::Tenant, "", of_callers.chain(tenants).cloned().chain([DEFAULT_TENANT.to_owned()]));
    let of_callers = configured.iter().flat_map(|key| &key.roles).chain(keys.iter().flat_map(|key| &key.roles));
    let console = ConsoleConfig::default().roles;
    let roles =
        [console.viewer, console.operator, console.approver, console.admin, PolicyConfig::default().dangerous_roles];
    names.add(NameKind::Role, "", of_callers.cloned().chain(roles.into_iter().flatten()));
}

/// `NAME__`, with which the names of its tools begin.
fn beginning(source: &str) -> String {
    let mut beginning = format!("{source}__");
    beginning.truncate(beginning.floor_char_boundary(MAX_BEGINNING));
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_tools::components::Components;
    use sekisho_tools::python_tools::PythonTools;

    #[test]
    fn names_of_a_server_are_judged_when_the_registry_has_its_tools() {
        let mut config = Config::default();
        config.tools.overrides.insert("m__fial".to_owned(), Default::default());
        let unknown = |has_tools| {
            let server = ServerNames {
                name: "m".to_owned(),
                prefix: Some("m".to_owned()),
                is_listed: true,
                has_tools,
                tools: None,
                prompts: Vec::new(),
                resources: 0,
            };
            let sources = NameSources {
                snapshot: &Snapshot::default(),
                collections: &Collections::default(),
                own: OwnTools { python: &PythonTools::default(), components: &Components::default() },
                servers: &[server],
                registered: &RegisteredNames::default(),
                skills: None,
            };
            config.unknown_names(&existing_names(&config, sources)).len()
        };
        assert_eq!((unknown(true), unknown(false)), (0, 1));
    }
}
