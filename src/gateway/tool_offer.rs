//! The tools that are offered: their sources as they are now, and how a change of them is applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Mutex, Notify};

use super::Configuration;
use super::parts::component_error;
use super::tool_set::ToolSet;
use sekisho_calls::pipeline::Pipeline;
use sekisho_calls::registry::lock::Lock;
use sekisho_calls::tool::{EnumeratedValues, Source};
use sekisho_core::caller::Caller;
use sekisho_core::source_access::SwitchedSources;
use sekisho_mcp_client::{Change, McpServers};
use sekisho_observe::readiness::Readiness;
use sekisho_openapi::Collections;
use sekisho_outbound::Outbound;
use sekisho_sandbox::Sandbox;
use sekisho_tools::builtin::Workspaces;
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;

/// Changes of MCP servers' tools within this time are applied together.
pub(super) const TOGETHER: Duration = Duration::from_millis(50);

/// The sources of the offered tools, and the lock that approves them.
pub struct ToolOffer {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) outbound: Outbound,
    pub(super) workspaces: Workspaces,
    pub(super) sandbox: Arc<Sandbox>,
    /// The sources of a program that embeds the gateway. The built-in tools are rebuilt each time.
    pub(super) embedded: Vec<Box<dyn Source>>,
    pub(super) mcp_servers: Arc<McpServers>,
    pub(super) collections: ArcSwap<Collections>,
    pub(super) python_tools: ArcSwap<PythonTools>,
    pub(super) components: ArcSwap<Components>,
    /// The approved state of every tool, if a lock is configured.
    pub(super) lock: Arc<ArcSwapOption<Lock>>,
    /// For whom the sources of the catalogue are switched on.
    pub(super) switched: Arc<SwitchedSources>,
    /// The values of arguments that were read from other tools.
    pub(super) values: ArcSwap<EnumeratedValues>,
    /// Held while the offered tools are changed.
    pub(super) changing: Mutex<()>,
    /// How often the tools of MCP servers were collected.
    pub(super) collected: AtomicU64,
    /// Notified when names of tools have changed.
    pub(super) names_changed: Notify,
}

sekisho_core::debug_fields!(ToolOffer { mcp_servers });

impl ToolOffer {
    /// The present tools, under this lock.
    pub(super) fn tool_set(&self, lock: Option<Arc<Lock>>) -> ToolSet<'_> {
        ToolSet {
            outbound: &self.outbound,
            workspaces: &self.workspaces,
            sandbox: &self.sandbox,
            results: &self.pipeline.results,
            metrics: &self.pipeline.settlement.metrics,
            sources: &self.embedded,
            python: self.python_tools.load_full(),
            components: self.components.load_full(),
            mcp: self.mcp_servers.tools(),
            lock,
            switched: &self.switched,
            values: self.values.load_full(),
        }
    }

    /// Whether the caller has a source: it is not one of the catalogue, or switched on for the caller.
    pub(super) fn is_on_for(&self, source: &str, caller: &Caller) -> bool {
        !self.configuration.current().catalogue.has(source) || self.switched.admits(source, caller)
    }

    /// Connects the MCP servers of the configuration in force. It waits while another one is applied, which would otherwise get the
    /// servers of before.
    pub(super) async fn configure_servers(&self) {
        let _changing = self.changing.lock().await;
        self.mcp_servers.configure(&self.configuration.current());
    }

    /// Updates the offered tools whenever the tools of MCP servers change.
    pub(super) async fn follow_mcp_servers(self: &Arc<Self>) {
        loop {
            self.mcp_servers.tools_changed().await;
            // When many servers connect at the same time, they are applied as one change.
            tokio::time::sleep(TOGETHER).await;
            self.offer_mcp_tools().await;
        }
    }

    /// Before a list of the tools: offers the tools of servers that connect within a moment of their start.
    pub async fn offer_new_servers(self: &Arc<Self>) {
        if !self.mcp_servers.settled_soon().await {
            return;
        }
        let (offer, collected) = (Arc::clone(self), self.collected.load(Ordering::SeqCst));
        // A client that goes away does not stop it: others wait for the same.
        let offered = tokio::spawn(async move {
            let _changing = offer.changing.lock().await;
            // Of many clients that ask at the same time, one has the tools collected for all.
            if offer.collected.load(Ordering::SeqCst) == collected {
                offer.offer_collected_tools().await;
            }
        });
        let _panicked = offered.await;
    }

    /// Updates the registry to the current tools of the MCP servers.
    pub async fn offer_mcp_tools(self: &Arc<Self>) {
        let _changing = self.changing.lock().await;
        self.offer_collected_tools().await;
    }

    /// The caller holds `changing`.
    async fn offer_collected_tools(self: &Arc<Self>) {
        self.collected.fetch_add(1, Ordering::SeqCst);
        // Taken before the tools are collected: a server that retires later may still be among them.
        let retired = self.mcp_servers.retire();
        let offer = Arc::clone(self);
        // Compiling the schemas of thousands of tools takes long, so it must not block a thread that serves calls.
        let built = tokio::task::spawn_blocking(move || {
            let (config, collections) = (offer.configuration.current(), offer.collections.load());
            let before = offer.pipeline.registry.snapshot();
            offer.tool_set(offer.lock.load_full()).rebuild(&config, &collections, &before)
        });
        match built.await.map_err(component_error("mcp")).flatten() {
            Ok(snapshot) => {
                self.replace(snapshot);
                drop(retired);
                self.mcp_servers.announce(Change::Tools);
            }
            Err(problem) => tracing::error!(%problem, "the tools of MCP servers could not be applied"),
        }
    }
}
