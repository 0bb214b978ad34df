//! `sekisho sessions`: sessions of interpreters, at a running gateway.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::call::Identity;
use super::client::{Remote, Unanswered};
use super::{Common, Exit, local_gateway, present};

#[derive(Debug, Args)]
pub(super) struct SessionsCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

#[derive(Debug, Default, Subcommand)]
enum Action {
    /// List your sessions.
    #[default]
    List,
    /// Show a session with its variables.
    Show {
        /// The argument `session` of its calls.
        session: String,
    },
    /// End a session, and the call that has it.
    Delete {
        /// The argument `session` of its calls.
        session: String,
    },
}

pub(super) fn run(common: &Common, command: SessionsCommand) -> Exit {
    let endpoint = match local_gateway::find_remote_as(common, &command.identity.caller()) {
        Ok(endpoint) => endpoint,
        Err(exit) => return exit,
    };
    let action = command.action.unwrap_or_default();
    match Remote::new(&endpoint).and_then(|remote| ask(&remote, &action)) {
        Err(unanswered) => unanswered.report(),
        Ok(answer) if common.json => present::json(&answer),
        Ok(answer) => show(&action, &answer),
    }
}

fn ask(remote: &Remote, action: &Action) -> Result<Value, Unanswered> {
    match action {
        Action::List => remote.get(&["sessions"], &[]),
        Action::Show { session } => remote.get(&["sessions", session], &[]),
        Action::Delete { session } => remote.delete(&["sessions", session], &[]),
    }
}

fn show(action: &Action, answer: &Value) -> Exit {
    match action {
        Action::List => {
            let header = ["session", "generation", "calls", "memory", "last used", "ends in"];
            present::table(&header, elements(&answer["sessions"]).map(row).collect());
        }
        Action::Show { .. } => {
            let names = ["session", "generation", "calls", "memory", "last used", "ends in"];
            let lines = names.into_iter().zip(row(answer)).map(|(name, value)| vec![name.to_owned(), value]);
            present::lines(lines.collect());
            if answer["variables"].is_null() {
                present::line("a call has it: its variables can be seen when that has ended");
            } else {
                present::table(&["variable", "type", "bytes"], elements(&answer["variables"]).map(variable).collect());
            }
        }
        Action::Delete { session } => {
            present::line(&format!("the session {} has ended", present::harmless(session)));
        }
    }
    Exit::Done
}

fn row(session: &Value) -> Vec<String> {
    let megabytes = session["memory_bytes"].as_u64().unwrap_or_default() >> 20;
    vec![
        text(session, "session"),
        session["generation"].to_string(),
        session["calls"].to_string(),
        format!("{megabytes} MiB"),
        text(session, "last_used_at"),
        format!("{} s", session["ends_in_seconds"]),
    ]
}

fn variable(variable: &Value) -> Vec<String> {
    let size = variable["size_bytes"].as_u64().map(|bytes| bytes.to_string()).unwrap_or_default();
    vec![text(variable, "name"), text(variable, "type"), size]
}

fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value, name: &str) -> String {
    present::harmless(value[name].as_str().unwrap_or_default()).into_owned()
}
