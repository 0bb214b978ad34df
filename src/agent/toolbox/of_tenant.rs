//! The tools of the sources that a tenant has.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxUnreachable};
use sekisho_calls::tool::Tool;
use sekisho_config::TenantConfig;
use sekisho_gateway::Gateway;

/// A toolbox without the tools of MCP servers and collections that the tenant does not have (C11): they are neither listed
/// nor run, nor called by a tool that is.
pub struct OfTenant {
    pub gateway: Arc<Gateway>,
    pub tenant: TenantConfig,
    pub toolbox: Arc<dyn Toolbox>,
}

impl OfTenant {
    /// A tool that the gateway does not offer is of no source that the tenant has.
    fn admits(&self, name: &str) -> bool {
        let snapshot = self.gateway.pipeline.registry.snapshot();
        snapshot.get(name).is_some_and(|tool| self.has(tool))
    }

    fn has(&self, tool: &Tool) -> bool {
        self.tenant.has_source(&tool.metadata.source)
    }

    /// The call, with the tools that its tool may call itself.
    fn narrowed(&self, call: ToolboxCall) -> ToolboxCall {
        let snapshot = self.gateway.pipeline.registry.snapshot();
        if !snapshot.get(&call.tool).is_some_and(|tool| tool.metadata.sandboxed) {
            return call;
        }
        let theirs = snapshot.tools().iter().filter(|tool| self.has(tool)).map(|tool| tool.name().to_owned());
        let nested_scope = call.nested_scope.narrowed(&theirs.collect::<Vec<_>>(), None);
        ToolboxCall { nested_scope, ..call }
    }
}

impl Toolbox for OfTenant {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let mut tools = self.toolbox.list().await?;
            tools.retain(|tool| self.admits(&tool.name));
            Ok(tools)
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if self.admits(&call.tool) {
            return self.toolbox.call(self.narrowed(call));
        }
        let text = format!("there is no tool `{}` for this tenant; use another", call.tool);
        Box::pin(async { ToolAnswer { success: false, text, error_info: None, images: Vec::new() } })
    }
}

impl std::fmt::Debug for OfTenant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OfTenant").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
