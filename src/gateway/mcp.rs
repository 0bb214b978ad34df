//! MCP servers while the service runs: follows changes of their tools, and registers servers over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::Gateway;
use super::parts::component_error;
use crate::breaker::BreakerRules;
use crate::config::{BreakerOverrides, Config, Secret};
use crate::infra::store::{Registrations, Store, StoreError};
use crate::sources::mcp::{Change, McpRegistration, McpServers, Registered, RegistrationError, upstream};
use crate::tool::ToolName;

/// Changes of MCP servers' tools within this time are applied together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Maximum number of servers registered over HTTP; each holds a connection.
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

/// Restores the registered servers. A record that cannot be used is logged and kept.
pub(super) async fn restore_servers(
    store: &Store,
    servers: &McpServers,
    secrets: &BTreeMap<String, Secret>,
) -> Result<(), StoreError> {
    for (name, text) in store.registrations(Registrations::McpServers).await? {
        let registration = serde_json::from_str::<McpRegistration>(&text).map_err(|error| error.to_string());
        match registration.and_then(|known| known.read(secrets).map_err(|error| error.to_string())) {
            Ok(registered) => servers.add(&name, registered),
            Err(problem) => tracing::error!(server = name, problem, "a registered MCP server cannot be used"),
        }
    }
    Ok(())
}

impl Gateway {
    /// Connects a server, offers its tools, and stores it for the next start. Replaces a registered server of the same
    /// name. Returns the names of the tools.
    ///
    /// # Errors
    /// [`AddServerError`].
    pub async fn register_mcp(self: &Arc<Self>, registration: McpRegistration) -> Result<Vec<String>, AddServerError> {
        let name = registration.name.clone();
        let config = self.config.load_full();
        if ToolName::parse(&name).is_err() {
            return Err(AddServerError::Name(name));
        }
        if config.mcp.servers.contains_key(&name) {
            return Err(AddServerError::Configured(name));
        }
        if self.mcp_servers.added_count() >= MAX_REGISTERED && !self.mcp_servers.added(&name) {
            return Err(AddServerError::TooMany);
        }
        let registered = registration.read(&config.mcp.secrets)?;
        let source = format!("mcp:{name}");
        if matches!(registered, Registered::Function(_))
            && self.pipeline.registry.snapshot().get(&name).is_some_and(|tool| tool.metadata.source != source)
        {
            return Err(AddServerError::Taken(name));
        }
        let text = serde_json::to_string(&registration)?;
        // Not active yet: if this fails, a server of the same name is not affected.
        let tried = self.mcp_servers.try_out(&name, &registered, &config).await;
        tried.map_err(|reason| AddServerError::Unusable { name: name.clone(), reason })?;
        {
            let _registrations = self.mcp_registrations.lock().await;
            self.store.keep_registration(Registrations::McpServers, &name, &text).await?;
            self.mcp_servers.add(&name, registered);
            self.mcp_servers.configure(&self.config.load());
        }
        self.mcp_servers.settled_one(&name).await;
        self.offer_mcp_tools().await;
        let snapshot = self.pipeline.registry.snapshot();
        let tools = snapshot.tools().iter().filter(|tool| tool.metadata.source == source);
        Ok(tools.map(|tool| tool.name().to_owned()).collect())
    }

    /// Removes a registered server and its tools; returns whether it existed.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    pub(crate) async fn unregister_mcp(self: &Arc<Self>, name: &str) -> Result<bool, StoreError> {
        {
            let _registrations = self.mcp_registrations.lock().await;
            if !self.mcp_servers.added(name) {
                return Ok(false);
            }
            self.store.forget_registration(Registrations::McpServers, name).await?;
            self.mcp_servers.remove(name);
            self.mcp_servers.configure(&self.config.load());
        }
        self.offer_mcp_tools().await;
        Ok(true)
    }

    /// Updates the offered tools whenever those of MCP servers change.
    pub(super) async fn follow_mcp_servers(self: &Arc<Self>) {
        loop {
            self.mcp_servers.tools_changed().await;
            // When many servers connect at the same time, they are applied as one change.
            tokio::time::sleep(TOGETHER).await;
            self.offer_mcp_tools().await;
        }
    }

    /// Updates the registry to the current tools of the MCP servers.
    pub async fn offer_mcp_tools(self: &Arc<Self>) {
        let _changing = self.changing.lock().await;
        // Taken before the tools are collected: a server that retires later may still be among them.
        let retired = self.mcp_servers.retire();
        let gateway = Arc::clone(self);
        // Compiling the schemas of thousands of tools takes long, so it must not block a thread that serves calls.
        let built = tokio::task::spawn_blocking(move || {
            let (config, collections) = (gateway.config.load(), gateway.collections.load());
            let before = gateway.pipeline.registry.snapshot();
            gateway.tool_set(gateway.lock.load_full()).rebuild(&config, &collections, &before)
        });
        match built.await.map_err(component_error("mcp")).flatten() {
            Ok(snapshot) => {
                self.offer_snapshot(snapshot);
                drop(retired);
                self.mcp_servers.announce(Change::Tools);
            }
            Err(problem) => tracing::error!(%problem, "the tools of MCP servers could not be applied"),
        }
    }
}
