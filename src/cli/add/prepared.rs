//! Prepared servers: common servers with their sandbox, their variables and the marks of their tools.

use serde_json::{Value, json};

use super::{AddCommand, add_server, shown};
use crate::cli::{Common, Exit, present};
use sekisho_config::PreparedServer;

/// Adds a prepared server, whose tools get the marks of its overlay.
pub(super) fn add(common: &Common, command: &AddCommand, prepared: &PreparedServer) -> Exit {
    let overlay = &command.source;
    let name = command.name.clone().unwrap_or_else(|| overlay.clone());
    if command.key_env.is_some() {
        let variables = prepared.variables.join(", ");
        present::problem(&format!("{overlay} has its own variables: {variables}; leave out --key-env"));
        return Exit::WrongCommandLine;
    }
    if prepared.url.is_some() && !command.arguments.is_empty() {
        present::problem(&format!("{overlay} is a URL, and only a program has arguments"));
        return Exit::WrongCommandLine;
    }
    if let Some(needed) = prepared.arguments.as_ref().filter(|_| command.arguments.is_empty()) {
        present::problem(&format!("{overlay} needs {needed} behind its name, as in `sekisho add {overlay} /PATH`"));
        return Exit::WrongCommandLine;
    }
    let as_written = AddCommand {
        source: prepared.command.clone().or_else(|| prepared.url.clone()).unwrap_or_default(),
        arguments: prepared.args.iter().chain(&command.arguments).cloned().collect(),
        name: None,
        kind: None,
        key_env: prepared.url.as_ref().and_then(|_| prepared.variables.first().cloned()),
    };
    shown(common, add_server(common, &as_written, &name, Some((overlay.as_str(), prepared))), &name)
}

/// Adds the variables, the sandbox and the overlay of a prepared server.
pub(super) fn complete(entry: &mut Value, overlay: &str, prepared: &PreparedServer) {
    entry["overlay"] = overlay.into();
    if let Some(network) = &prepared.network {
        entry["sandbox"] = json!({"network": network});
    }
    if prepared.command.is_some() && !prepared.variables.is_empty() {
        let named = |name: &String| (name.clone(), format!("${{{name}:-}}").into());
        entry["env"] = Value::Object(prepared.variables.iter().map(named).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_config::{Environment, mcp_file, prepared_server};

    #[test]
    fn the_entry_of_a_prepared_server_has_its_sandbox_its_variables_and_its_overlay() {
        let prepared = prepared_server("slack").unwrap();
        let mut entry = json!({"command": "npx", "args": prepared.args});
        complete(&mut entry, "slack", prepared);
        let env = json!({"SLACK_BOT_TOKEN": "${SLACK_BOT_TOKEN:-}", "SLACK_TEAM_ID": "${SLACK_TEAM_ID:-}"});
        let args = ["-y", "@modelcontextprotocol/server-slack"];
        let sandbox = json!({"network": ["slack.com"]});
        assert_eq!(entry, json!({"command": "npx", "args": args, "overlay": "slack", "sandbox": sandbox, "env": env}));
        let text = json!({"mcpServers": {"slack": entry}}).to_string();
        let read = mcp_file::parse(text.as_bytes(), &Environment::default()).unwrap();
        assert_eq!((read["slack"].overlay.as_deref(), read["slack"].unread.is_empty()), (Some("slack"), true));
    }
}
