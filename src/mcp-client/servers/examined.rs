//! The tools of a server that nobody uses yet, for whoever decides about it.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::McpServers;
use crate::server::catalogue::wants;
use crate::server::connect::Connector;
use crate::server::listing::name_of;
use crate::server::session_owner::SessionOwner;
use sekisho_config::{Config, prepared_server};

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedTool {
    /// The name that it would have here.
    pub name: String,
    /// Its server says that it may destroy something, or its overlay that it is dangerous.
    pub is_dangerous: bool,
    /// By its overlay.
    pub needs_approval: bool,
}

impl McpServers {
    /// Connects a server, lists its tools, and disconnects. Nothing is offered.
    /// Errors: why its tools cannot be listed.
    pub async fn examine(&self, name: &str, config: &Config) -> Result<Vec<ExaminedTool>, String> {
        let settings = self.allowed(config).remove(name).ok_or("it is disabled, or not in the configuration")?;
        let alone = Arc::new(Semaphore::new(1));
        let connector = self.connector(name, settings, config, &alone).map_err(|problem| problem.to_string())?.0;
        let session = connector.connect(&SessionOwner::default()).await?;
        let listing = connector.list(&session, config.mcp.max_tools_per_server).await?;
        Ok(listing.tools.iter().filter_map(|text| examined(text, &connector)).collect())
    }
}

fn examined(text: &str, connector: &Connector) -> Option<ExaminedTool> {
    let tool = serde_json::from_str::<Value>(text).ok()?;
    if !wants(&connector.settings, name_of(&tool)) {
        return None;
    }
    let name = connector.events.names.qualified(name_of(&tool))?.to_string();
    let prepared = connector.settings.overlay.as_deref().and_then(prepared_server);
    let marks = prepared.map(|prepared| prepared.tool(name_of(&tool))).unwrap_or_default();
    let is_destructive = tool.pointer("/annotations/destructiveHint") == Some(&Value::Bool(true));
    let (is_dangerous, needs_approval) = (is_destructive || marks.is_dangerous, marks.needs_approval);
    Some(ExaminedTool { name, is_dangerous, needs_approval })
}
