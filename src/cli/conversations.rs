//! `sekisho conversations`: the conversations that a running gateway stores.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::Identity;
use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote_as;
use super::{Common, Exit, present};
use sekisho_agent_api::ConversationBody;

#[derive(Debug, Args)]
pub(super) struct ConversationsCommand {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

#[derive(Debug, Default, Subcommand)]
enum Command {
    /// List the conversations, the one created last first.
    #[default]
    List,
    /// Create a conversation, and print its id.
    Create {
        /// The profile of its runs; the default profile if omitted.
        #[arg(long)]
        agent: Option<String>,
        /// Without a title, the first run sets it.
        #[arg(long)]
        title: Option<String>,
        /// Give its runs files of their own.
        #[arg(long)]
        workspace: bool,
    },
    /// Show a conversation with its messages.
    Show {
        /// The id of a conversation, as `sekisho conversations` lists it.
        id: String,
    },
    /// Say something to a conversation: `sekisho conversations run ID 'Is it warm?'`.
    Run {
        /// The id of a conversation, as `sekisho conversations` lists it.
        id: String,
        /// Left out, the run goes on where the one before paused for an approver.
        input: Option<String>,
        /// Cancel the run that is on, in place of waiting for it.
        #[arg(long)]
        interrupt: bool,
        /// Let a changed prompt, profile or list of tools count in this session, too.
        #[arg(long)]
        refresh: bool,
    },
    /// Create a conversation that begins with the messages of another one.
    Fork {
        /// The id of a conversation, as `sekisho conversations` lists it.
        id: String,
        /// The last message of the fork, by its id in `show --json`; by default the last one.
        #[arg(long, value_name = "MESSAGE")]
        at: Option<String>,
    },
    /// Delete a conversation with its messages and logs.
    Delete {
        /// The id of a conversation, as `sekisho conversations` lists it.
        id: String,
    },
}

pub(super) fn run(common: &Common, command: ConversationsCommand) -> Exit {
    with_remote_as(common, &command.identity.caller(), |remote| match command.command.unwrap_or_default() {
        Command::List => list(common, remote),
        Command::Create { agent, title, workspace } => {
            let body = json!({"agent": agent, "title": title, "workspace": workspace});
            created(common, &remote.send(Method::POST, &["api", "conversations"], Some(&body))?)
        }
        Command::Show { id } => show(common, remote, &id),
        Command::Run { id, input, interrupt, refresh } => {
            let on_busy = if interrupt { "interrupt" } else { "wait" };
            let body = json!({"user_input": input, "on_busy": on_busy, "refresh": refresh, "stream": false});
            execute(common, remote, (&id, &body))
        }
        Command::Fork { id, at } => {
            let path = ["api", "conversations", &id, "fork"];
            created(common, &remote.send(Method::POST, &path, Some(&json!({"message_id": at})))?)
        }
        Command::Delete { id } => {
            remote.send(Method::DELETE, &["api", "conversations", &id], None)?;
            present::info(&format!("deleted {id}"));
            Ok(Exit::Done)
        }
    })
}

fn list(common: &Common, remote: &Remote) -> Result<Exit, Unanswered> {
    let all = remote.get_all(&["api", "conversations"], &[])?;
    Ok(present::listed::<ConversationBody>(&all, common.json))
}

fn created(common: &Common, conversation: &Value) -> Result<Exit, Unanswered> {
    if common.json {
        return Ok(present::json(conversation));
    }
    present::line(conversation["id"].as_str().unwrap_or_default());
    Ok(Exit::Done)
}

fn show(common: &Common, remote: &Remote, id: &str) -> Result<Exit, Unanswered> {
    let mut conversation = remote.get(&["api", "conversations", id], &[])?;
    let messages = remote.get_all(&["api", "conversations", id, "messages"], &[])?;
    if common.json {
        conversation["messages"] = messages.into();
        return Ok(present::json(&conversation));
    }
    let text = |name: &str| conversation[name].as_str().unwrap_or_default();
    present::line(&format!("{} ({}, {})", present::harmless(text("title")), text("agent"), text("status")));
    for entry in &messages {
        let mark = if entry["incomplete"] == true { " (incomplete)" } else { "" };
        for (role, content) in entry["message"].as_object().into_iter().flatten() {
            present::line(&format!("\n{role}{mark}: {}", present::harmless(&text_of(content))));
        }
    }
    Ok(Exit::Done)
}

/// The texts of a message, and the names of its calls.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str().or_else(|| content["text"].as_str()) {
        return text.to_owned();
    }
    let part = |part: &Value| match (part["text"].as_str(), part["call"]["tool"].as_str()) {
        (Some(text), _) => Some(text.to_owned()),
        (_, Some(tool)) => Some(format!("[{tool} {}]", part["call"]["arguments"].as_str().unwrap_or_default())),
        _ => None,
    };
    content["parts"].as_array().into_iter().flatten().filter_map(part).collect::<Vec<_>>().join(" ")
}

fn execute(common: &Common, remote: &Remote, (id, body): (&str, &Value)) -> Result<Exit, Unanswered> {
    let reply = remote.send(Method::POST, &["api", "conversations", id, "execute"], Some(body))?;
    if common.json {
        present::json(&reply);
    } else {
        present::line(reply["result"].as_str().unwrap_or_default());
        for problem in reply["errors"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            present::problem(problem);
        }
        for call in reply["approvals"].as_array().into_iter().flatten() {
            let text = |name: &str| present::harmless(call[name].as_str().unwrap_or_default());
            present::info(&format!("paused until a person decides about `{}` at {}", text("tool"), text("url")));
        }
    }
    Ok(if reply["is_error"] == true { Exit::Failed } else { Exit::Done })
}
