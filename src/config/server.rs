use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::check::Findings;
use super::overrides::Overrides;
use sekisho_core::host::HostAndPort;

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address to listen on. Anything but loopback requires authentication (`auth`), or the server does not start.
    pub listen: SocketAddr,
    /// TLS on `listen`; without it the server speaks HTTP without encryption.
    pub tls: Option<TlsConfig>,
    /// Host names that clients use for the server, with a port or for any. Requests for others are refused, except that
    /// loopback always has its own names, and another address the addresses. Empty: any, except on loopback.
    pub allowed_hosts: Vec<String>,
    /// Addresses, and ranges of them (CIDR), of proxies in front of the server: their `Forwarded` or `X-Forwarded-For`,
    /// `-Host` and `-Proto` count. A request with such headers from another peer is never one of `anonymous: loopback`.
    pub trusted_proxies: Vec<String>,
    /// A separate listener for `/metrics`, which then needs no key there.
    pub metrics_listen: Option<SocketAddr>,
    /// Maximum request body, in bytes.
    pub max_body_bytes: usize,
    /// Maximum JSON values in one body: small ones take far more memory than text, and each body is checked at one go while
    /// other calls wait. For bodies of administrators 500,000 at least.
    pub max_json_values: usize,
    /// Maximum connections at once. Once a second address was seen, none has more than three quarters of them. A
    /// further connection is answered with 503, except for `/healthz`, `/readyz` and `/metrics`.
    pub max_connections: usize,
    /// Timeout for a request's head, and then for its body, in seconds each.
    pub read_timeout_seconds: u64,
    /// How long the listener stays open after SIGTERM, in seconds, while `/readyz` answers 503: a load balancer stops
    /// sending requests meanwhile.
    pub shutdown_delay_seconds: u64,
    /// How long running calls may continue after a shutdown signal, in seconds.
    pub shutdown_grace_seconds: u64,
    /// The MCP endpoint, `/mcp`.
    pub mcp: McpServerConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            tls: None,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            metrics_listen: None,
            max_body_bytes: 4 << 20,
            max_json_values: 50_000,
            max_connections: 10_000,
            read_timeout_seconds: 15,
            shutdown_delay_seconds: 0,
            shutdown_grace_seconds: 30,
            mcp: McpServerConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Whether only this machine can reach the server.
    pub fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// Also those under the deprecated key.
    pub fn allowed_hosts(&self) -> impl Iterator<Item = &str> {
        self.allowed_hosts.iter().chain(&self.mcp.allowed_hosts).map(String::as_str)
    }

    /// Warnings, by setting.
    /// The address of its pages for links, without a slash at its end: `server.mcp.public_url`, or that listened on.
    pub fn public_address(&self) -> String {
        match &self.mcp.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.listen),
        }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = (String, String)> {
        let renamed =
            "it is deprecated and ends with version 0.3; write `server.allowed_hosts`, which is for all routes";
        let is_renamed = !self.mcp.allowed_hosts.is_empty();
        is_renamed.then(|| ("server.mcp.allowed_hosts".to_owned(), renamed.to_owned())).into_iter()
    }

    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("SEKISHO_LISTEN", "server.listen", &mut self.listen);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if self.metrics_listen.is_some_and(|metrics| metrics == self.listen && metrics.port() != 0) {
            findings.add(
                "server.metrics_listen",
                "is the address of `listen`",
                "set another port, or omit it: `/metrics` is then on `listen`",
            );
        }
        check_hosts("server.allowed_hosts", &self.allowed_hosts, findings);
        check_hosts("server.mcp.allowed_hosts", &self.mcp.allowed_hosts, findings);
        findings.networks("server.trusted_proxies", &self.trusted_proxies);
        findings.above_zero("server.max_body_bytes", self.max_body_bytes);
        findings.above_zero("server.max_json_values", self.max_json_values);
        findings.above_zero("server.max_connections", self.max_connections);
        findings.seconds("server.read_timeout_seconds", self.read_timeout_seconds);
        findings.at_most_a_year("server.shutdown_delay_seconds", self.shutdown_delay_seconds);
        findings.at_most_a_year("server.shutdown_grace_seconds", self.shutdown_grace_seconds);
        self.mcp.check(findings);
    }
}

fn check_hosts(setting: &str, hosts: &[String], findings: &mut Findings) {
    for (index, _) in hosts.iter().enumerate().filter(|(_, host)| HostAndPort::parse(host).is_none()) {
        let advice = "write `tools.example` or `tools.example:8443`, without scheme or path";
        findings.add(format!("{setting}[{index}]"), "is not a host name", advice);
    }
}

/// TLS of the listener. Changed files are read again while the server runs.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file of the certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// PEM file of the certificate's private key, without a password.
    pub key: PathBuf,
    /// PEM file of authorities. Every client then needs a certificate of one of them, beside its key or token.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// Settings of `/mcp`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerConfig {
    /// How tools are listed for clients that do not choose (`X-Sekisho-Tools`).
    pub tools: McpToolListing,
    /// Maximum tokens of the tools of a list with `tools: auto`, by an estimate of 4 bytes a token.
    pub max_listed_tokens: usize,
    /// Web origins, such as `https://app.example:*`, whose scripts may connect; on loopback those of this machine
    /// may.
    pub allowed_origins: Vec<String>,
    /// Until version 0.3, the same as `server.allowed_hosts`, which replaces it.
    #[schemars(extend("deprecated" = true))]
    pub allowed_hosts: Vec<String>,
    /// URL at which clients reach the server, for the metadata about signing in, and for the return of browsers from
    /// a sign-in to an MCP server; its host is an allowed one. By default the URL of the request, if its host is allowed.
    pub public_url: Option<Url>,
    /// Maximum sessions at once, of clients whose protocol revision has sessions.
    pub max_sessions: usize,
    /// Maximum sessions of one caller.
    pub max_sessions_per_caller: usize,
    /// A session without a message for this long ends.
    pub session_idle_seconds: u64,
}

/// How tools are listed for an MCP client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpToolListing {
    /// Every tool that the caller may use.
    #[default]
    All,
    /// `search_tools`, `describe_tool` and `call_tool`, for large catalogues.
    Search,
    /// `search_tools` and `run_python`, whose programs call the others.
    CodeMode,
    /// Every tool where all fit in `max_listed_tokens`; else the tools of `search`, and the most used others.
    Auto,
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            tools: McpToolListing::All,
            max_listed_tokens: 8_000,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            public_url: None,
            max_sessions: 1_000,
            max_sessions_per_caller: 100,
            session_idle_seconds: 300,
        }
    }
}

impl McpServerConfig {
    fn check(&self, findings: &mut Findings) {
        findings.above_zero("server.mcp.max_listed_tokens", self.max_listed_tokens);
        findings.above_zero("server.mcp.max_sessions", self.max_sessions);
        findings.above_zero("server.mcp.max_sessions_per_caller", self.max_sessions_per_caller);
        findings.seconds("server.mcp.session_idle_seconds", self.session_idle_seconds);
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            if Url::parse(origin.trim_end_matches(":*")).is_err() {
                let setting = format!("server.mcp.allowed_origins[{index}]");
                findings.add(setting, "is not an origin", "write scheme, host and port: `https://app.example:443`");
            }
        }
    }
}
