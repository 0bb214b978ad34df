//! `sekisho effects`: calls without an answer, at a running gateway.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::Identity;
use super::local_gateway::with_remote_as;
use super::{Common, Exit, present};
use sekisho_api::EffectBody;

#[derive(Debug, Args)]
pub(super) struct EffectsCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

#[derive(Debug, Default, Subcommand)]
enum Action {
    /// List your calls without an answer; with the key of an administrator, all of the tenant.
    #[default]
    List,
    /// Say what became of one: `sekisho effects resolve CALL --made '{"id": 7}'`, or `--not-made`.
    Resolve {
        /// The id of a call, as `sekisho effects` lists it.
        call: String,
        #[command(flatten)]
        outcome: Outcome,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Outcome {
    /// It was made: sent again, it gets this result, which is JSON.
    #[arg(long, value_name = "JSON", value_parser = super::runs::json_of)]
    made: Option<Value>,
    /// It was not made: sent again, it is made.
    #[arg(long)]
    not_made: bool,
}

pub(super) fn run(common: &Common, command: EffectsCommand) -> Exit {
    let action = command.action.unwrap_or_default();
    with_remote_as(common, &command.identity.caller(), |remote| match &action {
        Action::List => Ok(present::listed::<EffectBody>(&remote.get_all(&["effects"], &[])?, common.json)),
        Action::Resolve { call, outcome } => {
            let name = if outcome.made.is_some() { "made" } else { "not_made" };
            let body = json!({"outcome": name, "answer": outcome.made});
            remote.send(Method::POST, &["effects", call, "resolve"], Some(&body))?;
            present::info(&format!("{call} is resolved: send it again for its answer"));
            Ok(Exit::Done)
        }
    })
}
