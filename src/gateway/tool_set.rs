//! All tools that a gateway offers, from all sources.

use std::sync::Arc;

use super::StartError;
use super::parts::{component_error, lines};
use sekisho_calls::registry::lock::Lock;
use sekisho_calls::registry::{Known, Snapshot};
use sekisho_calls::results::Results;
use sekisho_calls::tool::{EnumeratedValues, Source, SourceTools};
use sekisho_config::Config;
use sekisho_core::source_access::{OnRequest, SwitchedSources};
use sekisho_observe::metrics::Metrics;
use sekisho_openapi::Collections;
use sekisho_outbound::Outbound;
use sekisho_sandbox::Sandbox;
use sekisho_tools::builtin::{Builtin, Workspaces};
use sekisho_tools::components::Components;
use sekisho_tools::python_tools::PythonTools;

/// The sources of the tools, and the lock that approves them.
pub(super) struct ToolSet<'a> {
    pub outbound: &'a Outbound,
    pub workspaces: &'a Workspaces,
    pub sandbox: &'a Arc<Sandbox>,
    pub results: &'a Arc<Results>,
    pub metrics: &'a Metrics,
    /// Sources of a program that embeds the gateway.
    pub sources: &'a [Box<dyn Source>],
    pub python: Arc<PythonTools>,
    pub components: Arc<Components>,
    /// The tools of the MCP servers.
    pub mcp: SourceTools,
    pub lock: Option<Arc<Lock>>,
    /// For whom the sources of the catalogue are switched on.
    pub switched: &'a Arc<SwitchedSources>,
    /// The values of arguments that were read from other tools.
    pub values: Arc<EnumeratedValues>,
}

impl ToolSet<'_> {
    /// The tools that an operator names: all but tools of Python functions, of components and of MCP servers.
    pub(super) fn fixed(&self, config: &Config, collections: &Collections) -> SourceTools {
        let (outbound, workspaces) = (self.outbound.clone(), self.workspaces.clone());
        let (sandbox, results) = (Arc::clone(self.sandbox), Arc::clone(self.results));
        let mut offered = Builtin::new(&config.tools, outbound, workspaces, sandbox, results).tools();
        for source in self.sources.iter().map(|source| &**source).chain([collections as &dyn Source]) {
            let more = source.tools();
            offered.tools.extend(more.tools);
            offered.unavailable.extend(more.unavailable);
        }
        offered
    }

    /// The registry's next state. Unchanged tools are taken from `before`.
    /// Errors: names and schemas that cannot be registered.
    pub(super) fn rebuild(
        self,
        config: &Config,
        collections: &Collections,
        before: &Snapshot,
    ) -> Result<Snapshot, StartError> {
        let mut fixed = self.fixed(config, collections);
        // A tool that cannot be registered leaves the others. When two have one name, the operator's own counts.
        let mut found = self.python.tools();
        for more in [self.components.tools(), self.mcp, collections.tools_of_tenants()] {
            found.tools.extend(more.tools);
            found.unavailable.extend(more.unavailable);
        }
        // Nor does a tenant take the name of a tool from all others.
        found.tools.sort_by_key(|tool| !tool.metadata.owner.is_shared());
        let on_request = |source: &str| config.catalogue.has(source).then(|| OnRequest(Arc::clone(self.switched)));
        for offered in [&mut fixed, &mut found] {
            for tool in &mut offered.tools {
                tool.metadata.on_request = on_request(&tool.metadata.source);
            }
            for missing in &mut offered.unavailable {
                missing.on_request = on_request(&missing.source);
            }
        }
        let known = Known { before, values: &self.values };
        Snapshot::build_with(fixed, found, &config.tools, self.metrics, self.lock, known)
            .map_err(|errors| component_error("tools")(lines(&errors)))
    }
}
