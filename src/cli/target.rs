//! Whether a command uses a running gateway, and which one: `--server`, or its variable. A command that cannot use one
//! refuses, since the result would come from another machine than the named one.

use super::call::Identity;
use super::mcp::McpCommand;
use super::sandbox::SandboxCommand;
use super::tools::ToolsCommand;
use super::{Command, Common};

const SERVER_VARIABLE: &str = "SEKISHO_SERVER";

/// How a command uses the address of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteSupport {
    /// The command sends requests to it.
    Remote,
    /// The command works on this machine only; with an alternative.
    Local(&'static str),
    /// The command ignores it: the variable may be set for other commands.
    Ignored,
}

/// Determines the gateway of the command. An empty variable counts as unset.
/// Errors: the command line is invalid; the message explains why.
pub(super) fn settle(common: &mut Common, command: &Command) -> Result<(), String> {
    let variable = std::env::var(SERVER_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    settle_with(common, command, variable.as_deref())
}

fn settle_with(common: &mut Common, command: &Command, variable: Option<&str>) -> Result<(), String> {
    let support = remote_support(command);
    let named_by = match (&common.server, variable) {
        (Some(_), _) => "--server",
        (None, Some(_)) if support == RemoteSupport::Ignored => return Ok(()),
        (None, Some(text)) => {
            let address = super::server_address(text.trim());
            common.server = Some(address.map_err(|_| {
                format!("{SERVER_VARIABLE} is not an address of a gateway; write it like http://127.0.0.1:8080")
            })?);
            SERVER_VARIABLE
        }
        (None, None) => return Ok(()),
    };
    let instead = match support {
        RemoteSupport::Remote if identity_of(command).is_some_and(Identity::is_given) => {
            return Err(format!(
                "--as and --role are for calls in this process; the gateway set by {named_by} identifies callers by their key"
            ));
        }
        RemoteSupport::Remote => return Ok(()),
        RemoteSupport::Local(instead) => instead,
        RemoteSupport::Ignored => "",
    };
    let leave_out = if named_by == SERVER_VARIABLE { "unset the variable" } else { "leave it out" };
    Err(format!("this command cannot use the gateway set by {named_by}; {leave_out} to work on this machine{instead}"))
}

fn remote_support(command: &Command) -> RemoteSupport {
    match command {
        Command::Tools {
            command:
                Some(ToolsCommand::Lint(_) | ToolsCommand::New { .. } | ToolsCommand::Test(_) | ToolsCommand::Lock(_)),
            ..
        } => RemoteSupport::Local(""),
        Command::Tools { .. }
        | Command::Call(_)
        | Command::Import { .. }
        | Command::Cluster { .. }
        | Command::Keys { .. }
        | Command::Flow { .. }
        | Command::Limits { .. }
        | Command::Usage(_)
        | Command::Approvals { .. }
        | Command::Effects(_)
        | Command::Run(_)
        | Command::Runs(_)
        | Command::Sessions(_)
        | Command::Catalogue { .. }
        | Command::SignIns { .. }
        | Command::Results { .. }
        | Command::Check { remote: true, .. }
        | Command::Mcp { command: McpCommand::Serve { .. } | McpCommand::Login { .. } | McpCommand::Inspect { .. } } => {
            RemoteSupport::Remote
        }
        #[cfg(feature = "agent")]
        Command::Eval(command) if !command.is_live() => {
            RemoteSupport::Local("; with `--live` the tools of a gateway are called")
        }
        #[cfg(feature = "agent")]
        Command::Chat(_)
        | Command::Eval(_)
        | Command::Conversations(_)
        | Command::Tenants { .. }
        | Command::Models { .. }
        | Command::Skills { .. } => RemoteSupport::Remote,
        Command::Completions { .. }
        | Command::Check { print_schema: true, .. }
        | Command::Sandbox { command: SandboxCommand::Worker { .. } } => RemoteSupport::Ignored,
        Command::Check { .. } => RemoteSupport::Local(", or use `check --remote`"),
        Command::Explain(_) => RemoteSupport::Local(", or use `call --dry-run`"),
        Command::Connect(_) => RemoteSupport::Local(", or use `connect --http=URL`"),
        #[cfg(feature = "console")]
        Command::Console => RemoteSupport::Local(""),
        Command::Add(_)
        | Command::Serve(_)
        | Command::Lock(_)
        | Command::Policy { .. }
        | Command::Audit { .. }
        | Command::Receipt { .. }
        | Command::Backup { .. }
        | Command::Restore { .. }
        | Command::Sandbox { .. }
        | Command::Mcp { command: McpCommand::Servers(_) } => RemoteSupport::Local(""),
    }
}

fn identity_of(command: &Command) -> Option<&Identity> {
    match command {
        Command::Call(call) => Some(&call.identity),
        #[cfg(feature = "agent")]
        Command::Chat(chat) => Some(&chat.identity),
        #[cfg(feature = "agent")]
        Command::Eval(command) => Some(&command.identity),
        #[cfg(feature = "agent")]
        Command::Conversations(command) => Some(&command.identity),
        Command::Effects(command) => Some(&command.identity),
        Command::Run(command) => Some(&command.identity),
        Command::Runs(command) => Some(&command.identity),
        Command::Sessions(command) => Some(&command.identity),
        Command::Mcp { command: McpCommand::Serve { identity } } => Some(identity),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    /// The gateway to use, or why the command line is invalid.
    fn settled(arguments: &[&str], variable: Option<&str>) -> Result<Option<String>, String> {
        let Cli { mut common, command } = Cli::try_parse_from([&["sekisho"], arguments].concat()).unwrap();
        settle_with(&mut common, &command.unwrap(), variable)?;
        Ok(common.server.map(|server| server.to_string()))
    }

    const REMOTE: [&[&str]; 38] = [
        &["tools"],
        &["tools", "search", "x"],
        &["call", "x"],
        &["chat", "x"],
        &["conversations", "show", "x"],
        &["import", "openapi", "x"],
        &["check", "--remote"],
        &["cluster"],
        &["approvals"],
        &["approvals", "approve", "x"],
        &["cluster", "release", "x"],
        &["keys", "create", "--role", "x"],
        &["flow"],
        &["flow", "forget", "--tool", "x"],
        &["limits", "show"],
        &["usage", "--days", "7"],
        &["effects"],
        &["effects", "resolve", "x", "--not-made"],
        &["runs"],
        &["runs", "settle", "x", "--not-made"],
        &["runs", "branch", "x"],
        &["runs", "save", "x", "--as", "y"],
        &["runs", "export", "x"],
        &["run", "list"],
        &["eval", "x", "--live"],
        &["sessions", "show", "x"],
        &["catalogue"],
        &["catalogue", "approve", "x", "--for", "tenant"],
        &["sign-ins"],
        &["sign-ins", "start", "mcp:x"],
        &["results"],
        &["results", "show", "x", "--offset", "100"],
        &["mcp", "serve"],
        &["mcp", "login", "x"],
        &["mcp", "inspect", "x"],
        &["tenants"],
        &["models", "remove", "x"],
        &["skills", "add", "x"],
    ];

    const LOCAL: [&[&str]; 21] = [
        &["add", "x"],
        &["tools", "lint"],
        &["tools", "new", "x"],
        &["tools", "test"],
        &["tools", "lock"],
        &["serve"],
        &["connect"],
        &["console"],
        &["check"],
        &["lock"],
        &["explain", "x"],
        &["eval", "x"],
        &["audit", "verify"],
        &["sandbox", "prepare"],
        &["sandbox", "list"],
        &["sandbox", "verify"],
        &["mcp", "list"],
        &["mcp", "remove", "x"],
        &["mcp", "profile", "x"],
        &["mcp", "import", "x"],
        &["mcp", "add", "x", "--", "y"],
    ];

    const ASKING_NOBODY: [&[&str]; 3] =
        [&["completions", "bash"], &["check", "--print-schema"], &["sandbox", "worker"]];

    fn with_server<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        [&["--server", "http://gateway.example"], arguments].concat()
    }

    #[test]
    fn each_command_uses_the_gateway_or_refuses_to() {
        let url = Some("http://gateway.example/".to_owned());
        for arguments in REMOTE {
            assert_eq!(settled(&with_server(arguments), None), Ok(url.clone()), "{arguments:?}");
            assert_eq!(settled(arguments, Some("http://gateway.example")), Ok(url.clone()), "{arguments:?}");
        }
        for arguments in LOCAL {
            let refused = settled(&with_server(arguments), None).unwrap_err();
            assert!(refused.contains("--server"), "{arguments:?}: {refused}");
            let refused = settled(arguments, Some("http://gateway.example")).unwrap_err();
            assert!(refused.contains("SEKISHO_SERVER"), "{arguments:?}: {refused}");
        }
        for arguments in ASKING_NOBODY {
            assert!(settled(&with_server(arguments), None).is_err(), "{arguments:?}");
            assert_eq!(settled(arguments, Some("http://gateway.example")), Ok(None), "{arguments:?}");
        }
    }

    #[test]
    fn an_empty_variable_is_unset_and_the_command_line_overrides_it() {
        assert_eq!(settled(&["serve"], None), Ok(None));
        assert!(settled(&["tools"], Some("nowhere")).unwrap_err().contains("SEKISHO_SERVER is not an address"));
        let both = settled(&["tools", "--server", "http://one.example"], Some("http://other.example"));
        assert_eq!(both, Ok(Some("http://one.example/".to_owned())));
    }

    #[test]
    fn a_gateway_is_not_given_the_callers_identity() {
        for arguments in
            [&["call", "x", "--as", "ada"][..], &["chat", "x", "--role", "admin"], &["mcp", "serve", "--as", "ada"]]
        {
            assert!(settled(arguments, Some("http://gateway.example")).unwrap_err().contains("--as and --role"));
            assert_eq!(settled(arguments, None), Ok(None));
        }
    }
}
