//! The servers of the gateway, to which `sekisho connect` and `sekisho add` add some.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::mcp_servers;
use sekisho_config::{Config, Environment, mcp_file};
use sekisho_outbound::DomainList;

/// The gateway's servers: all of them, and the entries of the file that is written.
pub(super) struct GatewayServers {
    config: Config,
    environment: Environment,
    file: PathBuf,
    entries: Map<String, Value>,
    is_changed: bool,
}

impl GatewayServers {
    /// Errors: the file cannot be read.
    pub(super) fn read(config: Config, environment: Environment) -> Result<Self, String> {
        let file = mcp_servers::file_of(&config)?;
        let entries = mcp_file::entries::read(&file)?;
        Ok(Self { config, environment, file, entries, is_changed: false })
    }

    /// Whether the gateway reads this file itself, so that its servers cannot move.
    pub(super) fn reads(&self, file: &Path) -> bool {
        let real = |file: &Path| fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        self.config.mcp_files().iter().any(|own| real(own) == real(file))
    }

    /// Adds a server of an editor, unless it is there already. Returns its name: with the editor's as a suffix where
    /// another server has it.
    /// Errors: why the gateway cannot have the server.
    pub(super) fn take(&mut self, name: &str, editor: &str, entry: Value) -> Result<String, String> {
        let plain = mcp_file::as_name(name);
        for name in [plain.clone(), mcp_file::as_name(&format!("{plain}-{editor}"))] {
            match self.entries.get(&name) {
                Some(existing) if *existing == entry => return Ok(name),
                Some(_) => {}
                // In the configuration, or in another file.
                None if self.config.mcp.servers.contains_key(&name) => {}
                None => {
                    let with_server = self.with_server(&name, &entry, &self.environment)?;
                    // An editor may start the gateway without the variables of this shell. An entry that is invalid
                    // without them would keep the gateway from starting.
                    self.with_server(&name, &entry, &Environment::default()).map_err(|problem| {
                        format!("the gateway could not start where a variable of it is not set: {problem}")
                    })?;
                    self.insert(&name, entry, with_server);
                    return Ok(name);
                }
            }
        }
        Err(format!("the gateway has another server {plain:?}"))
    }

    /// Adds a server.
    /// Errors: the name is taken, or the gateway cannot have the server.
    pub(super) fn add(&mut self, name: &str, entry: Value) -> Result<(), String> {
        if self.entries.contains_key(name) {
            return Err(format!(
                "the gateway has a server {name:?} already; choose another name, or first `sekisho mcp remove {name}`"
            ));
        }
        if self.config.mcp.servers.contains_key(name) {
            return Err(format!(
                "the gateway has a server {name:?} already, in its configuration; choose another name"
            ));
        }
        let with_server = self.with_server(name, &entry, &self.environment)?;
        self.insert(name, entry, with_server);
        Ok(())
    }

    fn insert(&mut self, name: &str, entry: Value, with_server: Config) {
        self.config = with_server;
        self.entries.insert(name.to_owned(), entry);
        self.is_changed = true;
    }

    /// The configuration with the server. Refuses what would keep the gateway from starting, or the server from being
    /// reached.
    fn with_server(&self, name: &str, entry: &Value, environment: &Environment) -> Result<Config, String> {
        let text = json!({"mcpServers": {name: entry}}).to_string();
        let settings = mcp_file::parse(text.as_bytes(), environment)?.remove(name).ok_or_else(|| {
            let valid = mcp_file::as_name(name);
            format!(
                "{name:?} cannot be the name of a server: write it with letters, digits, `-` and `_`, as in {valid:?}"
            )
        })?;
        if let Some(url) = &settings.url {
            let allowed = DomainList::parse(&self.config.outbound.mcp_allowed_domains);
            if !allowed.is_ok_and(|allowed| allowed.allows(url)) {
                let host = url.host_str().unwrap_or_default();
                return Err(format!("its host {host} is not in `outbound.mcp_allowed_domains` (MCP_ALLOWED_DOMAINS)"));
            }
        }
        let mut with_server = self.config.clone();
        with_server.mcp.servers.insert(name.to_owned(), settings);
        match with_server.check().first() {
            Some(error) => Err(error.to_string()),
            None => Ok(with_server),
        }
    }

    /// Errors: the file cannot be written.
    pub(super) fn write(&self) -> Result<(), String> {
        if self.is_changed { mcp_file::entries::write(&self.file, &self.entries) } else { Ok(()) }
    }
}
