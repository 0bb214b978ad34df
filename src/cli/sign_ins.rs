//! `sekisho sign-ins`: sign-ins to upstreams that are called as their callers, at a running gateway.

use std::io::{self, IsTerminal as _};

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::{CredentialBody, OauthSessionBody, SignInBody};

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
    /// List the credentials that you have stored for upstreams.
    Credentials,
    /// Store a credential for an upstream, whose secret is the first line of standard input: `sekisho sign-ins store mcp:NAME < FILE`.
    Store {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
        /// How it is sent: `key`, `basic` with a user name, or `header` for the whole value of the header.
        #[arg(long, default_value = "key", value_parser = ["key", "basic", "header"])]
        kind: String,
        /// The user name, with `--kind basic`.
        #[arg(long)]
        username: Option<String>,
        /// The last moment at which it is sent, as in RFC 3339.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// Forget a stored credential; forget and revoke the tokens of a sign-in.
    Revoke {
        /// `mcp:SERVER` or `openapi:COLLECTION`.
        source: String,
        /// The id of another caller, for administrators.
        #[arg(long)]
        caller: Option<String>,
    },
    /// List the users who signed in with clients at the gateway (`auth.broker`), for administrators.
    Sessions,
    /// End the session of a user with a client, for administrators.
    End {
        /// The id of the session.
        id: String,
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
        SignInsCommand::Credentials => Ok(remote.get_all(&["me", "credentials"], &[])?.into()),
        SignInsCommand::Sessions => Ok(remote.get_all(&["admin", "oauth", "sessions"], &[])?.into()),
        SignInsCommand::End { id } => remote.delete(&["admin", "oauth", "sessions", id], &[]),
        SignInsCommand::Store { source, kind, username, expires_at } => {
            let body = json!({"kind": kind, "username": username, "secret": read_secret(), "expires_at": expires_at});
            remote.send(Method::POST, &["me", "credentials", source], Some(&body))
        }
        SignInsCommand::Revoke { source, caller } => {
            let query: Vec<_> = caller.iter().map(|caller| ("caller", caller.as_str())).collect();
            remote.delete(&["sign-ins", source], &query)
        }
    }
}

/// Not an argument: those are in the list of processes. The gateway refuses an empty one.
fn read_secret() -> String {
    if io::stdin().is_terminal() {
        present::info("Write the secret, and press Enter. It is shown here.");
    }
    let mut line = String::new();
    if io::stdin().read_line(&mut line).is_err() {
        line.clear();
    }
    line.trim_end_matches(['\r', '\n']).to_owned()
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
        SignInsCommand::Credentials => present::list::<CredentialBody>(present::entries(answer)),
        SignInsCommand::Sessions => present::list::<OauthSessionBody>(present::entries(answer)),
        SignInsCommand::End { id } => present::line(&format!("the session {} has ended", present::harmless(id))),
        SignInsCommand::Store { source, .. } => {
            let (source, test) = (present::harmless(source), text(answer, "test"));
            present::line(&format!("the credential for {source} is stored; its test call: {test}"));
            if let Some(reason) = answer["test_error"].as_str() {
                present::info(&present::harmless(reason));
            }
        }
        SignInsCommand::Revoke { source, .. } => {
            present::line(&format!("the sign-in to {} is revoked", present::harmless(source)));
        }
    }
    Exit::Done
}
