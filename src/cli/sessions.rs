//! `sekisho sessions`: sessions of interpreters, at a running gateway.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::Identity;
use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote_as;
use super::{Common, Exit, present};
use sekisho_api::{SessionInfo, Variable};

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
    /// Copy a session, with its variables and files.
    Fork {
        /// The argument `session` of its calls.
        session: String,
        /// How many copies are made.
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// End a session, and the call that has it.
    Delete {
        /// The argument `session` of its calls.
        session: String,
    },
}

pub(super) fn run(common: &Common, command: SessionsCommand) -> Exit {
    let action = command.action.unwrap_or_default();
    with_remote_as(common, &command.identity.caller(), |remote| {
        let answer = ask(remote, &action)?;
        Ok(if common.json { present::json(&answer) } else { show(&action, &answer) })
    })
}

fn ask(remote: &Remote, action: &Action) -> Result<Value, Unanswered> {
    match action {
        Action::List => {
            let sessions = remote.get_all(&["sessions"], &[])?;
            Ok(json!({"items": sessions, "next": null, "sessions": sessions}))
        }
        Action::Show { session } => remote.get(&["sessions", session], &[]),
        Action::Fork { session, count } => {
            remote.send(Method::POST, &["sessions", session, "fork"], Some(&json!({"count": count})))
        }
        Action::Delete { session } => remote.delete(&["sessions", session], &[]),
    }
}

fn show(action: &Action, answer: &Value) -> Exit {
    match action {
        Action::List | Action::Fork { .. } => {
            present::list::<SessionInfo>(present::entries(&answer["items"]));
        }
        Action::Show { .. } => {
            present::entry::<SessionInfo>(answer);
            if answer["variables"].is_null() {
                present::line("its variables can be seen when it is in memory, and no call has it");
            } else {
                present::list::<Variable>(present::entries(&answer["variables"]));
            }
        }
        Action::Delete { session } => {
            present::line(&format!("the session {} has ended", present::harmless(session)));
        }
    }
    Exit::Done
}
