//! MCP servers while the service runs: follows changes of their tools, and registers servers over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Mutex;

use super::source_names::is_of_configured_source;
use super::{Configuration, ToolOffer};
use sekisho_calls::breaker::BreakerRules;
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::tool::ToolName;
use sekisho_config::{BreakerOverrides, Config, Secret};
use sekisho_core::administration::{Administrator, AdministratorProof, Ownership};
use sekisho_mcp_client::{McpRegistration, McpServers, Registered, RegistrationError, upstream};
use sekisho_store::{RegistrationStore, Registrations, Store, StoreError, StoredResource, WriteOutcome};

/// Maximum number of shared servers registered over HTTP; each holds a connection. The store bounds the servers of
/// tenants.
const MAX_REGISTERED: usize = 100;

/// Why a server is not registered. The offered tools do not change.
#[derive(Debug, Error)]
pub enum AddServerError {
    #[error("the configuration has an MCP server named {0:?}; choose another name")]
    Configured(String),
    #[error("{0:?} is not a valid name; use 1 to 64 letters, digits, `_` and `-`")]
    Name(String),
    #[error("{MAX_REGISTERED} MCP servers are registered, which is the maximum; remove one of them")]
    TooMany,
    #[error(
        "your tenant has as many MCP servers as it may register, or all tenants together have; remove one of yours"
    )]
    TooManyOfTenant,
    /// The name belongs to another owner, or to the configuration: the text does not name the owner.
    #[error("the name {0:?} is in use; choose another one")]
    NameTaken(String),
    #[error("a tool named {0:?} is already offered; choose another name")]
    Taken(String),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The server is unreachable, or its answers are invalid.
    #[error("the MCP server {name} cannot be used: {reason}")]
    Unusable { name: String, reason: String },
    #[error("the registration cannot be stored: {0}")]
    Unwritable(#[from] serde_json::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rules of circuit breakers; servers may have their own.
pub(super) fn breaker_rules(config: &Config) -> BreakerRules {
    let own = config.mcp.servers.iter().filter(|(_, settings)| settings.breaker != BreakerOverrides::default());
    let own = own.map(|(name, settings)| (upstream(name), settings.breaker.over(&config.breaker)));
    BreakerRules::new(&config.breaker, own)
}

/// Makes the registered servers the same as the store's: others may have been removed elsewhere. A record that cannot
/// be used is logged, and stays in the store.
pub(super) async fn restore_servers(
    store: &RegistrationStore,
    servers: &McpServers,
    secrets: &BTreeMap<String, Secret>,
) -> Result<(), StoreError> {
    let mut usable = BTreeMap::new();
    for StoredResource { name, owner, value } in store.list(Registrations::McpServers).await? {
        let registration = serde_json::from_str::<McpRegistration>(&value).map_err(|error| error.to_string());
        match registration.and_then(|known| known.read(&owner, secrets).map_err(|error| error.to_string())) {
            Ok(registered) => _ = usable.insert(name, registered),
            Err(problem) => tracing::error!(server = name, problem, "a registered MCP server cannot be used"),
        }
    }
    servers.replace_added(usable);
    Ok(())
}

/// The MCP servers that are registered over HTTP.
#[derive(Debug)]
pub struct McpRegistrations {
    configuration: Arc<Configuration>,
    pipeline: Arc<Pipeline>,
    store: RegistrationStore,
    mcp_servers: Arc<McpServers>,
    tool_offer: Arc<ToolOffer>,
    /// Held while a registered server is stored or removed.
    changing: Mutex<()>,
}

impl McpRegistrations {
    pub(super) fn new(tool_offer: &Arc<ToolOffer>, store: &Store) -> Self {
        Self {
            configuration: Arc::clone(&tool_offer.configuration),
            pipeline: Arc::clone(&tool_offer.pipeline),
            store: store.registrations(),
            mcp_servers: Arc::clone(&tool_offer.mcp_servers),
            tool_offer: Arc::clone(tool_offer),
            changing: Mutex::default(),
        }
    }

    /// Connects a server, offers its tools, and stores it for the next start. Replaces a registered server of the same
    /// name and owner. Returns the names of the tools.
    pub async fn register(
        &self,
        by: Administrator,
        registration: McpRegistration,
    ) -> Result<Vec<String>, AddServerError> {
        let (name, owner) = (registration.name.clone(), by.owner());
        let config = self.configuration.current_arc();
        if ToolName::parse(&name).is_err() {
            return Err(AddServerError::Name(name));
        }
        if config.mcp.servers.contains_key(&name) {
            return Err(match owner {
                Ownership::Shared => AddServerError::Configured(name),
                Ownership::Tenant(_) => AddServerError::NameTaken(name),
            });
        }
        if !owner.is_shared() && is_of_configured_source(&name, &config) {
            return Err(AddServerError::NameTaken(name));
        }
        self.check_room_for_server(&name, owner)?;
        let registered = registration.read(owner, &config.mcp.secrets)?;
        if matches!(registered, Registered::Function(_)) {
            self.check_function_name(&name, owner)?;
        }
        let text = serde_json::to_string(&registration)?;
        // Not active yet: if this fails, a server of the same name is not affected.
        let tried = self.mcp_servers.try_out(&name, &registered, &config).await;
        tried.map_err(|reason| AddServerError::Unusable { name: name.clone(), reason })?;
        {
            let _registrations = self.changing.lock().await;
            // Others may have been registered while this server was tried out.
            self.check_room_for_server(&name, owner)?;
            match self.store.keep(Registrations::McpServers, owner, &name, &text).await? {
                WriteOutcome::Stored => {}
                WriteOutcome::NameTaken => return Err(AddServerError::NameTaken(name)),
                WriteOutcome::Full => return Err(AddServerError::TooManyOfTenant),
            }
            self.mcp_servers.add(&name, registered);
            self.tool_offer.configure_servers().await;
        }
        self.mcp_servers.settled_one(&name).await;
        self.tool_offer.offer_mcp_tools().await;
        let (snapshot, source) = (self.pipeline.registry.snapshot(), format!("mcp:{name}"));
        let tools = snapshot.tools().iter().filter(|tool| tool.metadata.source == source);
        Ok(tools.map(|tool| tool.name().to_owned()).collect())
    }

    /// Errors: [`AddServerError::NameTaken`]: another owner has the name. [`AddServerError::TooMany`]: there are
    /// [`MAX_REGISTERED`] others.
    fn check_room_for_server(&self, name: &str, owner: &Ownership) -> Result<(), AddServerError> {
        match self.mcp_servers.added(name) {
            Some(known) if known != *owner => Err(AddServerError::NameTaken(name.to_owned())),
            None if owner.is_shared() && self.mcp_servers.shared_count() >= MAX_REGISTERED => {
                Err(AddServerError::TooMany)
            }
            _ => Ok(()),
        }
    }

    /// Errors: a tool of another source has the name. The error names the tool only if the owner's callers see it.
    fn check_function_name(&self, name: &str, owner: &Ownership) -> Result<(), AddServerError> {
        let snapshot = self.pipeline.registry.snapshot();
        let other = snapshot.get(name).filter(|tool| tool.metadata.source != format!("mcp:{name}"));
        match other {
            None => Ok(()),
            Some(tool) if tool.metadata.owner == *owner => Err(AddServerError::Taken(name.to_owned())),
            Some(_) => Err(AddServerError::NameTaken(name.to_owned())),
        }
    }

    /// Removes a registered server and its tools; returns whether the owner had one of that name.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn unregister(&self, by: Administrator, name: &str) -> Result<bool, StoreError> {
        {
            let _registrations = self.changing.lock().await;
            if self.mcp_servers.added(name).as_ref() != Some(by.owner()) {
                return Ok(false);
            }
            self.store.forget(Registrations::McpServers, by.owner(), name).await?;
            self.mcp_servers.remove(name);
            self.tool_offer.configure_servers().await;
        }
        self.tool_offer.offer_mcp_tools().await;
        Ok(true)
    }

    /// Takes over the registered servers of the store, which another replica may have changed.
    pub(super) async fn adopt(&self, config: &Config) -> Result<(), StoreError> {
        // Not while a registration is in the store, and not among the servers yet.
        let _registrations = self.changing.lock().await;
        restore_servers(&self.store, &self.mcp_servers, &config.mcp.secrets).await?;
        self.tool_offer.configure_servers().await;
        Ok(())
    }

    /// Connects a server and reads its lists as a registration does, and offers nothing.
    pub async fn try_out(&self, by: &Administrator, registration: &McpRegistration) -> Result<(), AddServerError> {
        let config = self.configuration.current_arc();
        let registered = registration.read(by.owner(), &config.mcp.secrets)?;
        let tried = self.mcp_servers.try_out(&registration.name, &registered, &config).await;
        tried.map_err(|reason| AddServerError::Unusable { name: registration.name.clone(), reason })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::Gateway;
    use sekisho_config::{McpServerSettings, OutboundConfig};
    use sekisho_core::call::{Arguments, CallContext, Caller, Via};

    fn function(name: &str) -> McpRegistration {
        let body = json!({"name": name, "url": "https://a.example/", "func_name": "f"});
        serde_json::from_value(body).unwrap()
    }

    async fn gateway(state: &TempDir) -> Arc<Gateway> {
        let outbound =
            OutboundConfig { mcp_allowed_domains: vec!["a.example".to_owned()], ..OutboundConfig::default() };
        let state_directory = Some(state.path().to_owned());
        Gateway::start(Config { outbound, state_directory, ..Config::default() }).await.unwrap()
    }

    #[tokio::test]
    async fn registrations_at_once_do_not_pass_the_maximum() {
        let directory = TempDir::new().unwrap();
        let gateway = gateway(&directory).await;
        for number in 1..MAX_REGISTERED {
            let name = format!("f{number}");
            gateway.mcp_servers.add(&name, function(&name).read(&Ownership::Shared, &BTreeMap::new()).unwrap());
        }
        let names: Vec<_> = (0..8).map(|number| format!("new{number}")).collect();
        let ended = join_all(names.iter().map(|name| {
            gateway.mcp_registrations.register(Administrator::of_tests(Ownership::Shared), function(name))
        }))
        .await;
        let refused = ended.iter().filter(|ended| matches!(ended, Err(AddServerError::TooMany))).count();
        assert_eq!((ended.iter().filter(|ended| ended.is_ok()).count(), refused), (1, 7), "{ended:?}");
        assert_eq!(gateway.mcp_servers.shared_count(), MAX_REGISTERED);
        let stored = gateway.store.registrations().list(Registrations::McpServers).await.unwrap();
        assert_eq!(stored.len(), 1, "nor is one stored that would be restored at the next start");
        gateway
            .mcp_registrations
            .register(Administrator::of_tests(Ownership::Shared), function("f1"))
            .await
            .expect("one that is replaced needs no room");
    }

    #[tokio::test]
    async fn a_function_is_left_out_where_the_configuration_has_a_server_of_its_name() {
        let directory = TempDir::new().unwrap();
        let gateway = gateway(&directory).await;
        let by = Administrator::of_tests(Ownership::Tenant("acme".into()));
        gateway.mcp_registrations.register(by, function("crm")).await.unwrap();
        assert_eq!(gateway.mcp_servers.functions().len(), 1);
        let mut config = Config::clone(&gateway.configuration.current_arc());
        config.mcp.servers.insert("crm".to_owned(), McpServerSettings { disabled: true, ..Default::default() });
        gateway.mcp_servers.configure(&config);
        assert!(gateway.mcp_servers.functions().is_empty());
    }

    #[tokio::test]
    async fn the_metrics_of_a_tool_go_with_it() {
        let directory = TempDir::new().unwrap();
        let gateway = gateway(&directory).await;
        for name in ["stays", "goes"] {
            gateway
                .mcp_registrations
                .register(Administrator::of_tests(Ownership::Shared), function(name))
                .await
                .unwrap();
            let call =
                CallContext { dry_run: true, ..CallContext::new(name, Arc::new(Caller::anonymous()), Via::Rest) };
            gateway.pipeline.call(call, Arguments::new()).await;
        }
        let is_shown = |name: &str| gateway.status.metrics_text().contains(&format!("tool_name=\"{name}\""));
        assert_eq!(["stays", "goes"].map(is_shown), [true, true]);
        assert!(
            gateway.mcp_registrations.unregister(Administrator::of_tests(Ownership::Shared), "goes").await.unwrap()
        );
        assert_eq!(["stays", "goes"].map(is_shown), [true, false]);
    }
}
