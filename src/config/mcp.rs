mod client_certificate;
mod endpoint;
pub mod file;
mod prepared;
mod sandbox;
mod secret_variables;
mod server;
mod sign_in;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

pub use self::client_certificate::ClientCertificateConfig;
pub use self::endpoint::{McpEndpoint, McpResults};
use self::prepared::check_overlay;
pub use self::prepared::{PreparedServer, PreparedShape, PreparedTool, prepared_names, prepared_server};
pub use self::sandbox::{
    McpSandbox, McpSandboxFolder, McpSandboxHome, McpSandboxMode, McpSandboxNetwork, McpSandboxSettings,
};
pub(crate) use self::secret_variables::is_host_with_port;
pub use self::secret_variables::{identity_of_headers, is_credential_header};
pub use self::server::{McpRevision, McpServerSettings, McpShare, McpTransport};
pub use self::sign_in::McpSignIn;
use super::check::Findings;
use super::overrides::{FromVariable, Overrides};
use super::tools::{TOOL_NAME_RULE, is_tool_name};
use super::{ConfigError, Environment, Secret};
use crate::yaml::document::Document;

/// The list of servers in the working directory (A49).
pub(super) const FOUND_FILE: &str = ".mcp_servers";

/// MCP servers whose tools, resources and prompts are offered.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// By name, which is the prefix of the tools' names: `NAME__TOOL`.
    pub servers: BTreeMap<String, McpServerSettings>,
    /// `mcpServers` files of other programs, read unchanged (`SEKISHO_MCP_CONFIG`). Without any, `mcp.json` in the state directory,
    /// which `sekisho mcp add` writes, and `.mcp_servers` in the working directory (A49) are read if they exist; the latter may not
    /// start programs or read variables.
    pub files: Vec<PathBuf>,
    /// Whether tools' names have the server's name as a prefix, by default (`SEKISHO_MCP_PREFIX`).
    pub prefix: McpPrefix,
    /// Values of `${name}` in the headers of servers registered over HTTP.
    pub secrets: BTreeMap<String, Secret>,
    /// For servers that require a token and have no credentials of their own (A54, A55).
    pub oauth: Option<McpOAuth>,
    /// Maximum tools of one server; further ones are not offered.
    pub max_tools_per_server: usize,
    /// Servers started or connected to at the same time.
    pub max_connecting: usize,
    /// Servers that are programs run in a sandbox, unless their own `sandbox` is off: what happens where this machine lacks a layer of it.
    pub sandbox: McpSandboxMode,
    /// Virtual servers, by name: each has a part of the tools, at `/mcp/NAME`.
    pub endpoints: BTreeMap<String, McpEndpoint>,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            files: Vec::new(),
            prefix: McpPrefix::Always,
            secrets: BTreeMap::new(),
            oauth: None,
            max_tools_per_server: 1_000,
            max_connecting: 8,
            sandbox: McpSandboxMode::On,
            endpoints: BTreeMap::new(),
        }
    }
}

/// When a server's name is the prefix of its tools' names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpPrefix {
    #[default]
    Always,
    /// Names are unchanged. A tool whose name is in use is not offered.
    Never,
}

impl FromVariable for McpPrefix {
    const EXPECTED: &'static str = "`always` or `never`";

    fn from_variable(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

impl FromVariable for Vec<PathBuf> {
    const EXPECTED: &'static str = "a list of files separated by commas";

    fn from_variable(text: &str) -> Option<Self> {
        Vec::<String>::from_variable(text).map(|files| files.into_iter().map(PathBuf::from).collect())
    }
}

/// OAuth 2.0 client credentials (RFC 6749 §4.4).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpOAuth {
    /// Its host must be in `outbound.mcp_allowed_domains`.
    pub token_url: Url,
    pub client_id: String,
    pub client_secret: Secret,
    #[serde(default)]
    pub scopes: Vec<String>,
}

impl McpConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("SEKISHO_MCP_CONFIG", "mcp.files", &mut self.files);
        environment.apply("SEKISHO_MCP_PREFIX", "mcp.prefix", &mut self.prefix);
    }

    /// Records which values of `env` a variable, a file or a program gave.
    pub(super) fn record_references(&mut self, document: &Document) {
        for (name, settings) in &mut self.servers {
            settings.env_references = secret_variables::references(document, name);
        }
    }

    /// Adds the servers of these files to the configured ones.
    pub(super) fn read_files(&mut self, files: &[PathBuf], environment: &Environment) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for file in files {
            // Whoever unpacks an archive and works in it did not choose its programs, nor the servers that get secrets.
            let is_chosen = !self.files.is_empty() || file != Path::new(FOUND_FILE);
            // Of `sekisho mcp add`. Others write the files of other programs: an editor, or a project with its next update.
            let is_own = self.files.is_empty() && file != Path::new(FOUND_FILE);
            match file::read(file, environment) {
                Ok(servers) if !is_chosen && file::read(file, &Environment::default()).as_ref() != Ok(&servers) => {
                    let error = ConfigError::of_file(file, "it reads variables of the environment".to_owned());
                    errors.push(error.advise("name the file in `mcp.files`, if you trust it"));
                }
                Ok(servers) => {
                    for (name, mut settings) in servers {
                        if !is_own {
                            settings.keep_sandbox();
                        }
                        if settings.command.is_some() && !is_chosen {
                            let error = ConfigError::of_file(file, format!("{name:?} starts a program"));
                            errors.push(error.advise("name the file in `mcp.files`, if you trust it"));
                            continue;
                        }
                        match self.servers.entry(name) {
                            Entry::Vacant(entry) => {
                                entry.insert(settings);
                            }
                            Entry::Occupied(entry) => {
                                let problem = format!("duplicate server name {:?}", entry.key());
                                let error = ConfigError::of_file(file, problem);
                                errors.push(error.advise("rename one of the two"));
                            }
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Settings of servers that have no effect, and variables that are not set, by path.
    pub(super) fn notes(&self) -> impl Iterator<Item = (String, String)> {
        let note = |(name, settings): (&String, &McpServerSettings)| {
            let setting = format!("mcp.servers.{name}");
            let notes = [settings.unread_members(), settings.unset_variables()];
            let notes: Vec<_> = notes.into_iter().flatten().collect();
            let notes = (!notes.is_empty()).then(|| (setting.clone(), notes.join("; ")));
            let open = settings.has_no_sandbox().map(|note| (format!("{setting}.sandbox"), note));
            [notes, open]
        };
        self.servers.iter().flat_map(note).flatten()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (name, settings) in &self.servers {
            let setting = format!("mcp.servers.{name}");
            if !is_tool_name(name) {
                findings.add(&setting, "is not a valid server name", TOOL_NAME_RULE);
            }
            settings.check(&setting, findings);
        }
        if let Some(oauth) = &self.oauth {
            check_http(&oauth.token_url, "mcp.oauth.token_url", findings);
        }
        findings.above_zero("mcp.max_tools_per_server", self.max_tools_per_server);
        findings.above_zero("mcp.max_connecting", self.max_connecting);
        for (name, endpoint) in &self.endpoints {
            endpoint.check(name, findings);
        }
    }
}

fn check_http(url: &Url, setting: &str, findings: &mut Findings) {
    if !matches!(url.scheme(), "http" | "https") {
        findings.add(setting, "is not an http or https address", "write it like https://mcp.example.com/mcp");
    }
}
