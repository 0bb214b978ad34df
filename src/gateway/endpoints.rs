//! The virtual MCP servers of `mcp.endpoints`, each with a part of the tools.

use super::Configuration;
use sekisho_config::McpEndpoint;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};

impl Configuration {
    /// The endpoint of that name.
    /// Errors: `not_found`: there is none, or none for this caller.
    pub fn endpoint(&self, name: &str, caller: &Caller) -> Result<McpEndpoint, CallError> {
        let config = self.current();
        let found = config.mcp.endpoints.get(name).filter(|endpoint| endpoint.is_for(caller));
        found.cloned().ok_or_else(|| {
            let shown: String = name.chars().take(100).collect();
            CallError::new(ErrorCode::NotFound, format!("there is no endpoint {shown:?} (`mcp.endpoints`)"))
        })
    }
}
