use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
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
    /// PEM files of certificates that are trusted beside those of this machine.
    pub ca_files: Vec<PathBuf>,
    /// A proxy for the requests of MCP servers, OpenAPI collections, models and tools; `web_fetch` uses it only with
    /// `tools.web_fetch.allowed_domains`. `HTTPS_PROXY` and the like count only if `url` names them.
    pub proxy: ProxyConfig,
    /// Non-public addresses and address ranges (CIDR) that every MCP server and OpenAPI collection may have,
    /// including those registered over HTTP (`SEKISHO_ALLOW_NETWORKS`). To permit them for a single one, set its own list.
    /// `web_fetch` has a separate list.
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
            ca_files: Vec::new(),
            proxy: ProxyConfig::default(),
            allow_networks: Vec::new(),
            mcp_allowed_domains: Vec::new(),
            openapi_allowed_domains: Vec::new(),
        }
    }
}

impl OutboundConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("SEKISHO_ALLOW_NETWORKS", "outbound.allow_networks", &mut self.allow_networks);
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
        self.proxy.check("outbound.proxy", findings);
        findings.networks("outbound.allow_networks", &self.allow_networks);
        findings.domains("outbound.mcp_allowed_domains", &self.mcp_allowed_domains, true);
        findings.domains("outbound.openapi_allowed_domains", &self.openapi_allowed_domains, true);
    }
}

/// A proxy for outgoing requests.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT`, with `USER:PASSWORD@` if it needs them. None: no proxy.
    pub url: Option<Secret>,
    /// Hosts (with their subdomains), addresses and address ranges (CIDR) that are reached without it; loopback always
    /// is. A range is compared with addresses in URLs, not with what names resolve to.
    pub no_proxy: Vec<String>,
}

impl ProxyConfig {
    /// The URL, if it is one of a proxy.
    pub fn parsed_url(&self) -> Option<Url> {
        let url = Url::parse(self.url.as_ref()?.expose()).ok()?;
        let is_proxy = matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none();
        (is_proxy && url.host().is_some()).then_some(url)
    }

    /// An entry of `no_proxy` that is an address, or a range of them.
    pub fn network(entry: &str) -> Option<IpNet> {
        entry.parse().ok().or_else(|| entry.parse::<IpAddr>().ok().map(IpNet::from))
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        if self.url.is_some() && self.parsed_url().is_none() {
            let advice = "write `http://HOST:PORT`, or with credentials `http://USER:PASSWORD@HOST:PORT`";
            findings.add_secret(format!("{at}.url"), "is not the URL of a proxy", advice);
        }
        for (index, entry) in self.no_proxy.iter().enumerate() {
            let host = entry.trim_start_matches('.');
            if Self::network(entry).is_none() && (host.contains(['*', '/']) || url::Host::parse(host).is_err()) {
                let advice = "write `example.com`, which includes its subdomains, or a range such as 10.0.0.0/8";
                findings.add(format!("{at}.no_proxy[{index}]"), "is no host or address range", advice);
            }
        }
    }
}
