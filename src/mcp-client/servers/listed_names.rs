//! The names that MCP servers list, to compare names in the configuration with, and to show them.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::McpServers;
use crate::server::Server;

/// The names of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNames {
    pub name: String,
    /// The prefix of their names here, before the separator; `None`: they have the server's own names.
    pub prefix: Option<String>,
    /// Whether the server has listed its tools.
    pub is_listed: bool,
    /// Whether tools of it are offered, or will be as soon as the registry has them.
    pub has_tools: bool,
    /// Its own names of all its tools, where `include` or `exclude` may leave some out. `None` while it has not listed them, and where
    /// they are too many.
    pub tools: Option<BTreeSet<String>>,
    /// The names of its prompts here.
    pub prompts: Vec<String>,
    /// The number of its resources, and of the templates of their URIs.
    pub resources: usize,
}

/// The fields of a tool as its server describes it.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

impl McpServers {
    /// The names of all servers that run.
    pub fn listed_names(&self) -> Vec<ServerNames> {
        self.running.load().values().map(|server| server.listed_names()).collect()
    }
}

impl Server {
    fn listed_names(&self) -> ServerNames {
        let listing = self.listing.load();
        let is_listed = self.main().is_some() || !listing.tools.is_empty() || !listing.left_out.is_empty();
        let is_whole = is_listed && !listing.tools_cut && listing.left_out.len() < self.most_tools;
        let is_filtered = !self.settings().include.is_empty() || !self.settings().exclude.is_empty();
        let tools = (is_whole && is_filtered).then(|| {
            let named = listing.tools.iter().filter_map(|tool| serde_json::from_str::<Named>(tool).ok());
            let uncallable = listing.uncallable.iter().map(|(name, _)| name.clone());
            named.map(|tool| tool.name).chain(uncallable).chain(listing.left_out.iter().cloned()).collect()
        });
        let catalogue = self.catalogue.load();
        let prompts = catalogue.prompts.iter().filter_map(|prompt| prompt["name"].as_str().map(str::to_owned));
        ServerNames {
            name: self.name().to_owned(),
            prefix: self.names().prefix().map(str::to_owned),
            is_listed,
            has_tools: !catalogue.tools.is_empty(),
            tools,
            prompts: prompts.collect(),
            resources: catalogue.resources.len() + catalogue.templates.len(),
        }
    }
}
