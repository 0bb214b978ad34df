//! The options of several commands, and the configuration that they and the environment give.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use url::Url;

use super::{Exit, present};
use sekisho_config::{Config, ConfigError, ConfigLocation, Environment};

#[derive(Debug, Clone, Args)]
pub(super) struct Common {
    /// The configuration file; without it the defaults apply.
    #[arg(long, short, global = true, env = "SEKISHO_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Use the running gateway at this URL instead of this process; also set by SEKISHO_SERVER. Its key is read from
    /// SEKISHO_API_KEY. Commands that work only on this machine refuse the option.
    #[arg(long, global = true, value_name = "URL", value_parser = server_address)]
    pub(super) server: Option<Url>,
    /// Print JSON, for scripts.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

pub(super) fn server_address(text: &str) -> Result<Url, String> {
    let parsed = text.parse::<Url>().ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = parsed.ok_or("it is not an http or https address; write it like http://127.0.0.1:8080")?;
    match url.path().trim_end_matches('/').ends_with("/mcp") {
        true => Err("it is the address for MCP; leave out /mcp, as in http://127.0.0.1:8080".to_owned()),
        false => Ok(url),
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:8080".to_owned())
}

/// Settings of the command line that override the configuration.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServeOptions {
    /// The address to listen on, in place of `server.listen` of the configuration (127.0.0.1:8080 by default).
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub(super) listen: Option<SocketAddr>,
    /// Serve only commands of this user, over the Unix socket in the state directory, and end 60 seconds after the last
    /// of them. `sekisho mcp serve` starts this by itself.
    #[arg(long, conflicts_with = "listen")]
    pub(super) on_demand: bool,
    #[command(flatten)]
    pub(super) mcp: McpOptions,
}

/// MCP servers of the command line.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct McpOptions {
    /// An `mcpServers` file of another program, used unchanged; no configuration is required.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) mcp_config: Vec<PathBuf>,
    /// Whether the names of MCP servers are prefixes of their tools' names.
    #[arg(long, global = true, value_name = "always|never")]
    pub(super) mcp_prefix: Option<String>,
}

/// Loads the configuration, or prints each error with its location.
pub(super) fn with_config(common: &Common, run: impl FnOnce(Config) -> Exit) -> Exit {
    match load_config(common.config.as_deref(), &ServeOptions::default()) {
        Ok(config) => run(config),
        Err(errors) => {
            present::problem(&describe(&errors));
            Exit::Misconfigured
        }
    }
}

/// The file's configuration, with the process's environment and the command line applied.
pub(super) fn load_config(file: Option<&Path>, options: &ServeOptions) -> Result<Config, Vec<ConfigError>> {
    let mut environment = Environment::of_process(file).map_err(|error| vec![error])?;
    if let Some(address) = options.listen {
        environment.set("SEKISHO_LISTEN", address.to_string());
    }
    if !options.mcp.mcp_config.is_empty() {
        let files: Vec<_> = options.mcp.mcp_config.iter().map(|file| file.to_string_lossy()).collect();
        environment.set("SEKISHO_MCP_CONFIG", files.join(","));
    }
    if let Some(prefix) = &options.mcp.mcp_prefix {
        environment.set("SEKISHO_MCP_PREFIX", prefix.as_str());
    }
    let config = Config::load(file, &environment).map_err(|errors| of_options(errors, options))?.refuse_empty_file()?;
    // In code it has a default in the working directory, which no operator would look at.
    match config.state_directory {
        Some(_) => Ok(config),
        None => Err(vec![ConfigError::without_state_directory()]),
    }
}

/// The errors, with the option in place of the variable that it sets.
fn of_options(mut errors: Vec<ConfigError>, options: &ServeOptions) -> Vec<ConfigError> {
    for error in errors.iter_mut().filter(|_| options.listen.is_some()) {
        if error.place == ConfigLocation::Variable("SEKISHO_LISTEN".to_owned()) {
            error.place = ConfigLocation::Setting("--listen".to_owned());
        }
    }
    errors
}

/// One line for each error.
pub(super) fn describe(errors: &[impl ToString]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
