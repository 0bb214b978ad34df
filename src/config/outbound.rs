use schemars::JsonSchema;
use serde::Deserialize;

/// The one HTTP client behind every tool that reaches out.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundConfig {
    /// Requests under way at once, to all origins (E69).
    pub max_connections: usize,
    /// Requests under way at once, to one origin (E70).
    pub max_connections_per_origin: usize,
    /// How long a looked-up address is kept (E71).
    pub dns_cache_seconds: u64,
    pub connect_timeout_seconds: f64,
    /// Address ranges (CIDR) that tools may reach although they are not public.
    pub allow_networks: Vec<String>,
    /// Hosts that MCP servers may stand on (`MCP_ALLOWED_DOMAINS`, E74); `*` for development only. Empty: none.
    pub mcp_allowed_domains: Vec<String>,
    /// Hosts that OpenAPI documents and their servers may stand on (`OPENAPI_ALLOWED_DOMAINS`, E75).
    pub openapi_allowed_domains: Vec<String>,
}

impl Default for OutboundConfig {
    fn default() -> Self {
        Self {
            max_connections: 100,
            max_connections_per_origin: 10,
            dns_cache_seconds: 300,
            connect_timeout_seconds: 3.0,
            allow_networks: Vec::new(),
            mcp_allowed_domains: Vec::new(),
            openapi_allowed_domains: Vec::new(),
        }
    }
}
