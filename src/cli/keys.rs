//! `sekisho keys`: the keys that administrators manage, at a running gateway.

use clap::{Args, Subcommand};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::KeyBody;

#[derive(Debug, Default, Subcommand)]
pub(super) enum KeysCommand {
    /// List all keys, without their tokens.
    #[default]
    List,
    /// Create a key and print its token, which is shown this once: `sekisho keys create --person ann --role operator`.
    Create(NewKey),
    /// Show a key, without its token.
    Show {
        /// The id of a key, as `sekisho keys` lists it.
        id: String,
    },
    /// Give a key another token, and print it. The one before is accepted for a time.
    Rotate {
        /// The id of a key, as `sekisho keys` lists it.
        id: String,
        /// How long the token before is accepted; 0 for no longer.
        #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
        overlap: u64,
    },
    /// Revoke a key, for ever.
    Revoke {
        /// The id of a key, as `sekisho keys` lists it.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct NewKey {
    /// The caller's id, in budgets, logs and policies: all keys of a person are one caller. The key's id by default.
    #[arg(long)]
    person: Option<String>,
    /// What the key is for.
    #[arg(long, default_value = "")]
    description: String,
    /// A role of the caller; give it once for each.
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// The tenant of the caller; yours by default.
    #[arg(long)]
    tenant: Option<String>,
    /// A tool that may be called, whose final `*` matches any rest; give it once for each. All by default.
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// When it expires; never by default.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_660))]
    expires_in_days: Option<u32>,
}

pub(super) fn run(common: &Common, command: &KeysCommand) -> Exit {
    with_remote(common, |remote| {
        let answer = ask(remote, command)?;
        Ok(if common.json { present::json(&answer) } else { show(command, &answer) })
    })
}

fn ask(remote: &Remote, command: &KeysCommand) -> Result<Value, Unanswered> {
    match command {
        KeysCommand::List => remote.get_all(&["admin", "keys"], &[]).map(Value::from),
        KeysCommand::Create(key) => remote.send(Method::POST, &["admin", "keys"], Some(&key.body())),
        KeysCommand::Show { id } => remote.get(&["admin", "keys", id], &[]),
        KeysCommand::Rotate { id, overlap } => {
            let body = json!({"overlap_seconds": overlap});
            remote.send(Method::POST, &["admin", "keys", id, "rotate"], Some(&body))
        }
        KeysCommand::Revoke { id } => remote.send(Method::DELETE, &["admin", "keys", id], None),
    }
}

impl NewKey {
    fn body(&self) -> Value {
        let mut body = Map::from_iter([
            ("description".to_owned(), self.description.as_str().into()),
            ("roles".to_owned(), self.roles.as_slice().into()),
        ]);
        let expires =
            self.expires_in_days.map(|days| Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days)));
        for (name, value) in [
            ("person", self.person.as_deref().map(Value::from)),
            ("tenant", self.tenant.as_deref().map(Value::from)),
            ("tools", Some(self.tools.as_slice()).filter(|tools| !tools.is_empty()).map(Value::from)),
            ("expires_at", expires.map(|moment| moment.to_string().into())),
        ] {
            body.extend(value.map(|value| (name.to_owned(), value)));
        }
        body.into()
    }
}

fn show(command: &KeysCommand, answer: &Value) -> Exit {
    match command {
        KeysCommand::List => {
            present::list::<KeyBody>(present::entries(answer));
        }
        KeysCommand::Create(_) | KeysCommand::Rotate { .. } => {
            // Only the token on standard output, so that a script can take it.
            present::line(answer["token"].as_str().unwrap_or_default());
            let key = &answer["key"];
            let until = key["previous_token_until"].as_str();
            let until = until.map(|until| format!("; the token before is accepted until {until}")).unwrap_or_default();
            present::info(&format!("the token of the key {}, which is not shown again{until}", text(key, "id")));
        }
        KeysCommand::Show { .. } => return present::json(answer),
        KeysCommand::Revoke { .. } => present::line(&format!("revoked {}", text(answer, "id"))),
    }
    Exit::Done
}
