//! The terminal face: one file a command.

mod audit;
mod call;
mod chat;
mod check;
mod client;
mod explain;
mod import;
mod lock;
mod mcp;
mod mcp_login;
mod mcp_servers;
mod present;
mod sandbox;
mod serve;
mod target;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use url::Url;

use crate::config::{Config, ConfigError, Environment};

/// A checkpoint for AI agents' tool calls: one door, every check, a receipt for each.
///
/// Exit codes: 0 done · 1 the tool ran and failed, or what was checked is not in order · 2 the command
/// line is wrong · 3 the call was refused · 4 the configuration is wrong or the service cannot start ·
/// 5 the server at `--server` cannot be reached.
#[derive(Debug, Parser)]
#[command(name = "sekisho", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// The configuration file; without one the defaults apply.
    #[arg(long, short, global = true, env = "SEKISHO_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask a running gateway instead of working in this process; SEKISHO_SERVER says the same. Its key is read from
    /// SEKISHO_API_KEY. Commands that work on this machine only refuse it.
    #[arg(long, global = true, value_name = "URL")]
    server: Option<Url>,
    /// Print JSON, for scripts.
    #[arg(long, global = true)]
    json: bool,
}

/// What is said on the command line instead of in the configuration.
#[derive(Debug, Clone, Default, Args)]
struct ServeOptions {
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    mcp: McpOptions,
}

/// MCP servers that are named on the command line.
#[derive(Debug, Clone, Default, Args)]
struct McpOptions {
    /// An `mcpServers` file of another program, taken as it is; no configuration is needed beside it.
    #[arg(long, global = true, value_name = "FILE")]
    mcp_config: Vec<PathBuf>,
    /// Whether the names of MCP servers stand before the names of their tools.
    #[arg(long, global = true, value_name = "always|never")]
    mcp_prefix: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(ServeOptions),
    /// See what tools there are.
    Tools {
        #[command(subcommand)]
        command: Option<tools::ToolsCommand>,
    },
    /// Call a tool: `sekisho call calculator '{"expression": "(2+3)*7"}'`.
    Call(call::CallCommand),
    /// Ask an agent: `sekisho chat --model replay:FILE 'Is 21.5 °C warm?'`.
    Chat(chat::ChatCommand),
    /// Check configuration, policies and tools without starting anything.
    Check {
        /// Ask the gateway at `--server` how it is, instead.
        #[arg(long)]
        remote: bool,
        /// Print the JSON Schema of the configuration file instead.
        #[arg(long, conflicts_with = "remote")]
        print_schema: bool,
    },
    /// Pin every tool, so that one that changes is quarantined until somebody approves it.
    ///
    /// Asks every source: those of the configuration, and those registered with the gateway of the same state
    /// directory. Without a command the lock is written, where there is none yet: to `tools.lock`, or where the
    /// configuration's `tools.lock` says. A gateway that runs takes a changed file over by itself.
    Lock(lock::LockCommand),
    /// Tell which stage would stop a call, and why, without making it.
    Explain(explain::ExplainCommand),
    /// Look after the audit trail.
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// See what an API's document becomes: `sekisho import openapi api.yaml --report`.
    Import {
        #[command(subcommand)]
        command: import::ImportCommand,
    },
    /// Set up and look after the interpreter that runs untrusted Python.
    Sandbox {
        #[command(subcommand)]
        command: sandbox::SandboxCommand,
    },
    /// SourceTools the tools to an MCP client, or look after MCP servers.
    Mcp {
        #[command(subcommand)]
        command: mcp::McpCommand,
    },
    /// Print completions for a shell: `source <(sekisho completions bash)`.
    Completions { shell: Shell },
}

/// How a command ended, for scripts to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// The tool ran and failed, or what was checked is not in order.
    Failed = 1,
    WrongCommandLine = 2,
    Refused = 3,
    Misconfigured = 4,
    Unreachable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let Cli { mut common, command } = Cli::parse();
    if let Err(problem) = target::settle(&mut common, &command) {
        present::problem(&problem);
        return Exit::WrongCommandLine.into();
    }
    let exit = match command {
        Command::Completions { shell } => {
            // Into memory first: it panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sekisho", &mut script);
            present::line(String::from_utf8_lossy(&script).trim_end());
            Exit::Done
        }
        Command::Check { print_schema: true, .. } => {
            // Over many lines wherever it goes: it is kept in files, and compared.
            present::line(&format!("{:#}", crate::config::json_schema()));
            Exit::Done
        }
        Command::Check { print_schema: false, .. } => check::run(&common),
        Command::Audit { command } => audit::run(&common, command),
        Command::Serve(options) => serve::run(&common, &options),
        Command::Tools { command } => tools::run(&common, &command.unwrap_or_default()),
        Command::Call(command) => call::run(&common, command),
        Command::Chat(command) => chat::run(&common, &command),
        Command::Lock(command) => lock::run(&common, command),
        Command::Explain(command) => explain::run(&common, command),
        Command::Import { command } => import::run(&common, command),
        Command::Sandbox { command } => sandbox::run(&common, command),
        Command::Mcp { command } => mcp::run(&common, command),
    };
    exit.into()
}

/// Loads the configuration, or prints each fault with its place.
fn with_config(common: &Common, run: impl FnOnce(Config) -> Exit) -> Exit {
    match load_config(common.config.as_deref(), &ServeOptions::default()) {
        Ok(config) => run(config),
        Err(faults) => {
            present::problem(&describe(&faults));
            Exit::Misconfigured
        }
    }
}

/// The file's configuration, with the process's environment and the command line on top.
fn load_config(file: Option<&Path>, options: &ServeOptions) -> Result<Config, Vec<ConfigError>> {
    let mut environment = Environment::of_process(file).map_err(|fault| vec![fault])?;
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
    Config::load(file, &environment)
}

/// A line for each fault.
fn describe(faults: &[impl ToString]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
