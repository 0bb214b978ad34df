//! `sekisho sign-ins`: sign-ins to upstreams that are called as their callers, at a running gateway.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::SignInBody;

#[derive(Debug, Default, Subcommand)]
pub(super) enum SignInsCommand {
    /// List who has signed in to what, and what you can sign in to.
    #[default]
    List,
    /// Print the page where you sign in: `sekisho sign-ins start mcp:NAME`.
    Start {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
    },
    /// Forget and revoke the tokens of a sign-in.
    Revoke {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
        /// The id of another caller, for administrators.
        #[arg(long)]
        caller: Option<String>,
    },
}

pub(super) fn run(common: &Common, command: &SignInsCommand) -> Exit {
    with_remote(common, |remote| {
        let answer = ask(remote, command)?;
        Ok(if common.json { present::json(&answer) } else { show(command, &answer) })
    })
}

fn ask(remote: &Remote, command: &SignInsCommand) -> Result<Value, Unanswered> {
    match command {
        SignInsCommand::List => {
            let mut answer = remote.get(&["sign-ins"], &[])?;
            answer["items"] = remote.get_all(&["sign-ins"], &[])?.into();
            answer["next"] = Value::Null;
            Ok(answer)
        }
        SignInsCommand::Start { source } => remote.send(Method::POST, &["sign-ins", source], None),
        SignInsCommand::Revoke { source, caller } => {
            let query: Vec<_> = caller.iter().map(|caller| ("caller", caller.as_str())).collect();
            remote.delete(&["sign-ins", source], &query)
        }
    }
}

fn show(command: &SignInsCommand, answer: &Value) -> Exit {
    match command {
        SignInsCommand::List => {
            present::list::<SignInBody>(present::entries(&answer["items"]));
            let available: Vec<_> =
                answer["available"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !available.is_empty() {
                let available = present::harmless(&available.join(", ")).into_owned();
                present::info(&format!("not signed in yet to {available}: sekisho sign-ins start SOURCE"));
            }
        }
        SignInsCommand::Start { .. } => present::line(&format!(
            "Open this page in a browser before {} and sign in:\n{}\nThe one-time code for it is {}.",
            text(answer, "expires_at"),
            text(answer, "url"),
            text(answer, "code")
        )),
        SignInsCommand::Revoke { source, .. } => {
            present::line(&format!("the sign-in to {} is revoked", present::harmless(source)));
        }
    }
    Exit::Done
}
