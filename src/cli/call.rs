//! `sekisho call`: one tool call.

use std::io::Read;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use super::client::{Endpoint, Remote, Unanswered};
use super::local_gateway::{self, Place};
use super::{Common, Exit, present};
use sekisho_api::NamedCaller;
use sekisho_core::call::{Arguments, CallContext, Via};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

#[derive(Debug, Args)]
pub(super) struct CallCommand {
    /// The name of a tool, as `sekisho tools` lists it.
    name: String,
    /// The arguments as a JSON object; `-` reads them from standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// The session of the call; the file tools require one.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Run every check, but not the tool.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) identity: Identity,
}

/// The caller of a call in this process. With a server, the key identifies the caller.
#[derive(Debug, Args)]
pub(super) struct Identity {
    /// The caller's id.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// A role of the caller; may be repeated.
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
}

impl Identity {
    pub(super) fn is_given(&self) -> bool {
        self.user.is_some() || !self.roles.is_empty()
    }

    /// Without a name or role, the caller without credentials.
    pub(super) fn caller(&self) -> NamedCaller {
        NamedCaller { user: self.user.clone(), roles: self.roles.clone() }
    }
}

pub(super) fn run(common: &Common, command: CallCommand) -> Exit {
    let arguments = match parse_arguments(&command.arguments) {
        Ok(arguments) => arguments,
        Err(problem) => {
            present::problem(&problem);
            return Exit::WrongCommandLine;
        }
    };
    match local_gateway::place(common, &command.identity) {
        Err(exit) => exit,
        Ok(Place::Gateway(gateway)) => {
            call_at(&gateway, &command, &arguments).map_or_else(Unanswered::report, |reply| show(common, &reply))
        }
        Ok(Place::Process(config, lock)) => {
            let tool = command.name.clone();
            super::serve::with_gateway(*config, lock, Some(&tool), async |gateway| {
                match call(&gateway, command, arguments).await {
                    Ok(reply) => show(common, &reply),
                    Err(error) => {
                        present::problem(&error.to_string());
                        Exit::Refused
                    }
                }
            })
        }
    }
}

fn call_at(gateway: &Endpoint, command: &CallCommand, arguments: &Arguments) -> Result<Value, Unanswered> {
    let body = json!({"arguments": arguments, "session_id": command.session, "dry_run": command.dry_run});
    Remote::new(gateway)?.post(&["tools", &command.name, "execute"], &body)
}

/// Parses the arguments of the command line: a JSON object without duplicate keys.
pub(super) fn parse_arguments(text: &str) -> Result<Arguments, String> {
    let mut input = String::new();
    let text = if text == "-" {
        std::io::stdin()
            .read_to_string(&mut input)
            .map_err(|error| format!("standard input cannot be read: {error}"))?;
        &input
    } else {
        text
    };
    match sekisho_core::json::parse(text.as_bytes()) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments must be a JSON object, such as '{\"expression\": \"1+1\"}'".into()),
        Err(problem) => Err(format!(
            "the arguments are not acceptable JSON: {problem}; write an object in single quotes, such as '{{\"expression\": \"1+1\"}}'"
        )),
    }
}

async fn call(gateway: &Gateway, command: CallCommand, arguments: Arguments) -> Result<Value, CallError> {
    let caller = command.identity.caller().caller()?;
    let mut call = CallContext::new(command.name, Arc::clone(&caller), Via::Rest);
    call.dry_run = command.dry_run;
    call.origin.session = command.session.map(|id| gateway.pipeline.sessions.prepare(&caller, &id)).transpose()?;
    let answered = gateway.pipeline.call(call, arguments).await;
    serde_json::to_value(&*answered.reply).map_err(CallError::internal)
}

/// Prints the text, or with `--json` the whole reply.
pub(super) fn show(common: &Common, reply: &Value) -> Exit {
    if common.json {
        present::json(reply);
    } else if reply["success"] == true {
        present::line(reply["text"].as_str().unwrap_or_default());
    } else {
        present::problem(&explain(reply));
    }
    exit_of(reply)
}

/// The text of a reply about a failure or refusal.
pub(super) fn explain(reply: &Value) -> String {
    let info = &reply["error_info"];
    let message = in_commands(reply["error"].as_str().unwrap_or("the call failed"));
    let mut lines = vec![format!("{}: {message}", info["code"].as_str().unwrap_or("failed"))];
    for detail in info["details"].as_array().into_iter().flatten() {
        let place = detail["path"].as_str().filter(|path| !path.is_empty()).map(|path| format!("{path}: "));
        lines.push(format!("  {}{}", place.unwrap_or_default(), detail["message"].as_str().unwrap_or_default()));
    }
    let alternatives: Vec<_> =
        info["alternatives"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !alternatives.is_empty() {
        lines.push(format!("  perhaps: {}", alternatives.join(", ")));
    }
    lines.join("\n")
}

/// The commands for routes that messages name, with the id between the two parts of the route, if there is one.
const COMMANDS: [(&str, &str, &str); 5] = [
    ("tools/list lists the tools", "", "`sekisho tools` lists the tools, and `--role` calls one that needs a role"),
    ("`GET /approvals` lists", "", "`sekisho approvals` lists"),
    ("`GET /api/conversations` lists", "", "`sekisho conversations` lists"),
    ("POST /runs/", "/resume", "`sekisho runs resume"),
    ("POST /runs/", "/settle", "`sekisho runs settle"),
];

/// A message of the gateway, with commands in place of routes.
pub(super) fn in_commands(message: &str) -> String {
    let mut message = message.to_owned();
    for (before, after, command) in COMMANDS {
        let found = message.split_once(before).map(|(start, rest)| (start.to_owned(), rest.to_owned()));
        let Some((start, rest)) = found else { continue };
        if after.is_empty() {
            message = format!("{start}{command}{rest}");
        } else if let Some((id, rest)) = rest.split_once(after).filter(|(id, _)| !id.contains(char::is_whitespace)) {
            message = format!("{start}{command} {id}`{rest}");
        }
    }
    message
}

/// A call fails with the tool's error if the tool ran; otherwise it was refused.
fn exit_of(reply: &Value) -> Exit {
    if reply["success"] == true {
        return Exit::Done;
    }
    let code = reply["error_info"]["code"].as_str().unwrap_or_default();
    match reply["error_info"]["stage"].as_str() {
        Some("execute" | "accept") if !REFUSALS.contains(&code) => Exit::Failed,
        _ => Exit::Refused,
    }
}

/// Codes with which the gateway refuses a call in its last stages: the tool has not run.
const REFUSALS: [&str; 6] =
    ["invalid_request", "invalid_arguments", "denied", "overloaded", "warming_up", "unknown_session"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_commands_instead_of_routes() {
        for (message, expected) in [
            (
                "there is no tool \"x\"; tools/list lists the tools",
                "there is no tool \"x\"; `sekisho tools` lists the tools, and `--role` calls one that needs a role",
            ),
            (
                "resume it with POST /runs/r-1/resume: it goes on",
                "resume it with `sekisho runs resume r-1`: it goes on",
            ),
            ("none: `GET /approvals` lists yours", "none: `sekisho approvals` lists yours"),
            ("none; `GET /api/conversations` lists yours", "none; `sekisho conversations` lists yours"),
            ("settle it with POST /runs/r-1/settle", "settle it with `sekisho runs settle r-1`"),
            ("the text of POST /runs/ is no route", "the text of POST /runs/ is no route"),
            ("nothing to change", "nothing to change"),
        ] {
            assert_eq!(in_commands(message), expected);
        }
    }
}
