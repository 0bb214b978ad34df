use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;

/// The HTTP client for all outgoing requests.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundConfig {
    /// Maximum requests under way, to all origins (E69).
    pub max_connections: usize,
    /// Maximum requests under way, to one origin (E70).
    pub max_connections_per_origin: usize,
    /// How long resolved addresses are cached (E71).
    pub dns_cache_seconds: u64,
    pub connect_timeout_seconds: f64,
    /// Non-public addresses and address ranges (CIDR) that every MCP server and OpenAPI collection may have,
    /// including those registered over HTTP. To permit them for a single one, set its own list. `web_fetch` has a
    /// separate list.
    pub allow_networks: Vec<String>,
    /// Permitted hosts of MCP servers (`MCP_ALLOWED_DOMAINS`, E74); `*` for development only. Empty: none.
    pub mcp_allowed_domains: Vec<String>,
    /// Permitted hosts of OpenAPI documents and their servers (`OPENAPI_ALLOWED_DOMAINS`, E75).
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

impl OutboundConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("MCP_ALLOWED_DOMAINS", "outbound.mcp_allowed_domains", &mut self.mcp_allowed_domains);
        environment.apply(
            "OPENAPI_ALLOWED_DOMAINS",
            "outbound.openapi_allowed_domains",
            &mut self.openapi_allowed_domains,
        );
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("outbound.max_connections", self.max_connections);
        findings.above_zero("outbound.max_connections_per_origin", self.max_connections_per_origin);
        findings.at_most_a_year("outbound.dns_cache_seconds", self.dns_cache_seconds);
        findings.duration("outbound.connect_timeout_seconds", self.connect_timeout_seconds);
        findings.networks("outbound.allow_networks", &self.allow_networks);
        findings.domains("outbound.mcp_allowed_domains", &self.mcp_allowed_domains, true);
        findings.domains("outbound.openapi_allowed_domains", &self.openapi_allowed_domains, true);
    }
}
