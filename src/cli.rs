//! The command line: one file for each command.

mod add;
mod approvals;
mod audit;
mod backup;
mod build_info;
mod call;
mod catalogue;
#[cfg(feature = "agent")]
mod chat;
mod check;
mod client;
mod cluster;
mod connect;
#[cfg(feature = "console")]
mod console;
#[cfg(feature = "agent")]
mod conversations;
mod core_dumps;
mod effects;
#[cfg(feature = "agent")]
mod eval;
mod explain;
mod failure;
mod flow;
mod gateway_servers;
mod import;
mod keys;
mod limits;
mod local_gateway;
mod lock;
mod mcp;
mod mcp_inspect;
mod mcp_login;
mod mcp_servers;
mod observe;
mod options;
mod overview;
mod policy;
mod present;
mod receipt;
#[cfg(feature = "agent")]
mod resources;
mod results;
mod run;
mod runs;
mod sandbox;
mod serve;
mod sessions;
mod sign_ins;
mod start_memory;
mod target;
mod tools;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use self::options::{Common, McpOptions, ServeOptions, describe, load_config, server_address, with_config};

/// A gateway for AI agents' tool calls: every call passes the same checks and gets a receipt.
///
/// Exit codes: 0 success · 1 the tool failed, or a check found problems · 2 invalid command line · 3 the call was
/// refused · 4 invalid configuration, or the service cannot start · 5 the server at `--server` cannot be reached.
#[derive(Debug, Parser)]
#[command(name = "sekisho", version, long_version = build_info::LONG_VERSION, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Without one: the state of the gateway on this machine.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(ServeOptions),
    /// List, describe and search tools; write and test tools that are Python functions.
    Tools {
        /// List all tools with the tokens of a model's context that each takes.
        #[arg(long)]
        tokens: bool,
        #[command(subcommand)]
        command: Option<tools::ToolsCommand>,
    },
    /// Call a tool: `sekisho call calculator '{"expression": "(2+3)*7"}'`.
    Call(call::CallCommand),
    /// Ask an agent: `sekisho chat --model replay:FILE 'Is 21.5 °C warm?'`.
    #[cfg(feature = "agent")]
    Chat(chat::ChatCommand),
    /// Ask agents what cases ask, and check their answers: `sekisho eval cases --profile careful --profile fast`.
    ///
    /// A case is a file of `sekisho runs save`, with the answers of its tools. Without `--profile` its own script plays the model.
    #[cfg(feature = "agent")]
    Eval(eval::EvalCommand),
    /// Run, show and delete the conversations of a running gateway.
    #[cfg(feature = "agent")]
    Conversations(conversations::ConversationsCommand),
    /// List, show, approve and deny calls that a person must approve.
    Approvals {
        #[command(subcommand)]
        command: Option<approvals::ApprovalsCommand>,
    },
    /// Check configuration, policies and tools without starting the gateway.
    Check {
        /// Show the state of the running gateway instead: the one at `--server`, or that of the state directory.
        #[arg(long)]
        remote: bool,
        /// Print the JSON Schema of the configuration file instead.
        #[arg(long, conflicts_with = "remote")]
        print_schema: bool,
    },
    /// List the replicas that share the database of the running gateway, or release what a lost one leases.
    Cluster {
        #[command(subcommand)]
        command: Option<cluster::ClusterCommand>,
    },
    /// Pin every tool, so that a changed tool is quarantined until it is approved.
    ///
    /// Reads every source: those of the configuration, and those registered with the gateway of the same state
    /// directory. Without a subcommand the lock is written if it does not exist: to `tools.lock` beside
    /// the configuration file (without one, in the state directory), or to the path of the configuration's `tools.lock`. A running gateway loads a changed file by itself.
    Lock(lock::LockCommand),
    /// Show which stage would stop a call, and why, without running it.
    Explain(explain::ExplainCommand),
    /// Write the store, the audit trail and the files of sessions to a ZIP archive. The gateway may run meanwhile.
    ///
    /// A store at `store.url` is left to the tools of its database.
    Backup {
        /// The archive, which must not exist.
        file: PathBuf,
    },
    /// Restore a backup to a new state directory.
    Restore {
        /// An archive of `sekisho backup`.
        file: PathBuf,
    },
    /// Evaluate other policies about recorded calls: `sekisho policy replay DIR --since 7d`.
    Policy {
        #[command(subcommand)]
        command: policy::PolicyCommand,
    },
    /// Verify, search or export the audit trail.
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// Get receipts of calls, which others verify with a public key, and verify them.
    Receipt {
        #[command(subcommand)]
        command: receipt::ReceiptCommand,
    },
    /// Show the tools that an API's document gives: `sekisho import openapi api.yaml --report`.
    Import {
        #[command(subcommand)]
        command: import::ImportCommand,
    },
    /// Prepare and verify the interpreter that runs untrusted Python.
    Sandbox {
        #[command(subcommand)]
        command: sandbox::SandboxCommand,
    },
    /// Offer the tools to an MCP client, or manage MCP servers.
    Mcp {
        #[command(subcommand)]
        command: mcp::McpCommand,
    },
    /// Move the MCP servers of editors behind the gateway: `sekisho connect cursor`.
    ///
    /// Shows the changes first. Each server of the editor's file that the gateway can run moves to the gateway's own file
    /// of servers, and the editor gets the gateway in their place. The old file is kept beside it; `--undo` restores it.
    Connect(connect::ConnectCommand),
    /// Add tools: `sekisho add npx -y @modelcontextprotocol/server-filesystem ~/docs`, `sekisho add https://mcp.example.com/mcp`.
    ///
    /// The source is a program with MCP, the URL of an MCP server, the URL or file of an OpenAPI document, or a file of
    /// Python functions. A running gateway offers the tools without a restart. Where something is missing (an allowed
    /// host, a key), the command says all of it, with the lines for the configuration.
    Add(add::AddCommand),
    /// Print a link that opens the console of the running gateway in a browser on this machine, as its administrator.
    #[cfg(feature = "console")]
    Console,
    /// List, create, rotate and revoke the keys of a running gateway.
    Keys {
        #[command(subcommand)]
        command: Option<keys::KeysCommand>,
    },
    /// List and resolve your calls whose outcome is not known, at a running gateway.
    Effects(effects::EffectsCommand),
    /// The former name of `sekisho runs recorded`, `sekisho runs export` and `sekisho runs replay`.
    #[command(hide = true)]
    Run(run::RunCommand),
    /// Runs of agents and programs at a running gateway: settle and resume programs, branch and save agents, export recorded ones
    /// and play them again: `sekisho runs export ID`, `sekisho runs replay FILE`.
    Runs(runs::RunsCommand),
    /// List, show and end your sessions of interpreters at a running gateway.
    Sessions(sessions::SessionsCommand),
    /// List and ask for the sources that a running gateway has on request; as an administrator, switch them on and off.
    Catalogue {
        #[command(subcommand)]
        command: Option<catalogue::CatalogueCommand>,
    },
    /// List, begin and revoke sign-ins to upstreams that are called as their callers.
    SignIns {
        #[command(subcommand)]
        command: Option<sign_ins::SignInsCommand>,
    },
    /// List and read the large results that a running gateway has stored for you.
    Results {
        #[command(subcommand)]
        command: Option<results::ResultsCommand>,
    },
    /// Show where the values of calls come from at a running gateway: labels of tools, questions, known destinations.
    Flow {
        #[command(subcommand)]
        command: Option<flow::FlowCommand>,
    },
    /// Show what is left of the limits of a running gateway.
    Limits {
        #[command(subcommand)]
        command: Option<limits::LimitsCommand>,
    },
    /// List which callers used which tools on which days at a running gateway, and at which cost: `sekisho usage --days 7`.
    Usage(usage::UsageCommand),
    /// List and change tenants, and what their agents may use: `sekisho tenants add acme '{"models": ["fast"]}'`.
    #[cfg(feature = "agent")]
    Tenants {
        #[command(subcommand)]
        command: Option<resources::ResourceCommand>,
    },
    /// List and change the names of models: `sekisho models add fast '{"profile": "openai"}'`.
    #[cfg(feature = "agent")]
    Models {
        #[command(subcommand)]
        command: Option<resources::ResourceCommand>,
    },
    /// List and change skills: `sekisho skills add pdf '{"description": "…", "instructions": "…"}'`.
    #[cfg(feature = "agent")]
    Skills {
        #[command(subcommand)]
        command: Option<resources::ResourceCommand>,
    },
    /// Print completions for a shell: `source <(sekisho completions bash)`.
    Completions {
        /// The shell that completes.
        shell: Shell,
    },
}

/// The exit status of a command, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// The tool failed, or a check found problems.
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
    let Some(command) = command else { return overview::run(&common).into() };
    if let Err(problem) = target::settle(&mut common, &command) {
        present::problem(&problem);
        return Exit::WrongCommandLine.into();
    }
    let exit = match command {
        Command::Completions { shell } => {
            // Into memory first: clap panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sekisho", &mut script);
            present::line(String::from_utf8_lossy(&script).trim_end());
            Exit::Done
        }
        Command::Check { print_schema: true, .. } => {
            // Always formatted over several lines: the schema is kept in files, and compared.
            present::line(&format!("{:#}", sekisho_config::json_schema()));
            Exit::Done
        }
        Command::Check { remote, print_schema: false } => check::run(&common, remote),
        Command::Backup { file } => backup::write(&common, &file),
        Command::Restore { file } => backup::restore(&common, &file),
        Command::Approvals { command } => approvals::run(&common, command),
        Command::Policy { command } => policy::run(&common, &command),
        Command::Audit { command } => audit::run(&common, command),
        Command::Receipt { command } => receipt::run(&common, command),
        Command::Serve(options) => serve::run(&common, &options),
        Command::Tools { tokens, command } => tools::run(&common, tokens, &command.unwrap_or_default()),
        Command::Call(command) => call::run(&common, command),
        #[cfg(feature = "agent")]
        Command::Chat(command) => chat::run(&common, &command),
        #[cfg(feature = "agent")]
        Command::Eval(command) => eval::run(&common, &command),
        #[cfg(feature = "agent")]
        Command::Conversations(command) => conversations::run(&common, command),
        Command::Cluster { command } => cluster::run(&common, command.as_ref()),
        Command::Lock(command) => lock::run(&common, command),
        Command::Explain(command) => explain::run(&common, command),
        Command::Import { command } => import::run(&common, command),
        Command::Sandbox { command } => sandbox::run(&common, command),
        Command::Add(command) => add::run(&common, &command),
        Command::Connect(command) => connect::run(&common, &command),
        #[cfg(feature = "console")]
        Command::Console => console::run(&common),
        Command::Keys { command } => keys::run(&common, &command.unwrap_or_default()),
        Command::Flow { command } => flow::run(&common, &command.unwrap_or_default()),
        Command::Limits { command } => limits::run(&common, &command.unwrap_or_default()),
        Command::Usage(command) => usage::run(&common, &command),
        Command::Results { command } => results::run(&common, &command.unwrap_or_default()),
        Command::Effects(command) => effects::run(&common, command),
        Command::Run(command) => run::run(&common, command),
        Command::Runs(command) => runs::run(&common, command),
        Command::Sessions(command) => sessions::run(&common, command),
        Command::Catalogue { command } => catalogue::run(&common, &command.unwrap_or_default()),
        Command::SignIns { command } => sign_ins::run(&common, &command.unwrap_or_default()),
        Command::Mcp { command } => mcp::run(&common, command),
        #[cfg(feature = "agent")]
        Command::Tenants { command } => resources::run(&common, resources::Kind::Tenants, &command.unwrap_or_default()),
        #[cfg(feature = "agent")]
        Command::Models { command } => resources::run(&common, resources::Kind::Models, &command.unwrap_or_default()),
        #[cfg(feature = "agent")]
        Command::Skills { command } => resources::run(&common, resources::Kind::Skills, &command.unwrap_or_default()),
    };
    exit.into()
}

#[cfg(test)]
mod tests {
    use clap::Command as Described;

    use super::*;

    fn undescribed(command: &Described, found: &mut Vec<String>) {
        let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
        found.extend(arguments.map(|argument| format!("{} {}", command.get_name(), argument.get_id())));
        for inner in command.get_subcommands() {
            undescribed(inner, found);
        }
    }

    #[test]
    fn each_argument_is_described() {
        let mut found = Vec::new();
        undescribed(&Cli::command(), &mut found);
        assert_eq!(found, [""; 0]);
    }
}
