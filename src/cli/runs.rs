//! `sekisho runs`: runs of programs that stopped, branches and cases of agents' runs, and recorded runs, at a running gateway.

#[cfg(feature = "agent")]
mod agents;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::call::{self, Identity};
use super::local_gateway::with_remote_as;
use super::{Common, Exit, present, run as recorded};
use sekisho_api::ProgramRunBody;
use sekisho_calls::journals::UnknownCall;

#[derive(Debug, Args)]
pub(super) struct RunsCommand {
    #[command(subcommand)]
    action: Option<OfRuns>,
    #[command(flatten)]
    pub(super) identity: Identity,
}

#[derive(Debug, Subcommand)]
enum OfRuns {
    #[command(flatten)]
    Kept(Action),
    #[command(flatten)]
    Recorded(recorded::Action),
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List your runs of programs that have not ended.
    List,
    /// Show the calls of a run whose outcome is not known.
    Show {
        /// The id of a run, as `sekisho runs` lists it.
        run: String,
    },
    /// Say what became of such a call: `sekisho runs settle RUN --made '{"id": 7}'`, or `--not-made`.
    Settle(Settlement),
    /// Execute a run again, from where it stopped.
    Resume {
        /// The id of a run, as `sekisho runs` lists it.
        run: String,
    },
    /// Create a conversation that goes on from an agent's run with another profile, prompt or model, and print its id.
    #[cfg(feature = "agent")]
    Branch(agents::Branching),
    /// Write an agent's run to a file: a script of its model's turns, and a case for `sekisho eval`.
    #[cfg(feature = "agent")]
    Save(agents::Saving),
}

#[derive(Debug, Args)]
struct Settlement {
    /// The id of a run, as `sekisho runs` lists it.
    run: String,
    /// Its number, where there are several.
    #[arg(long, value_name = "NUMBER")]
    call: Option<u32>,
    #[command(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Outcome {
    /// It was made: the program gets this result, which is JSON.
    #[arg(long, value_name = "JSON", value_parser = json_of)]
    made: Option<Value>,
    /// It was not made: it is made when the run is resumed.
    #[arg(long)]
    not_made: bool,
    /// Nobody can say: the program gets the error `unknown_outcome`.
    #[arg(long)]
    unknown: bool,
}

pub(super) fn run(common: &Common, command: RunsCommand) -> Exit {
    let action = match command.action {
        Some(OfRuns::Recorded(action)) => return recorded::act(common, action, &command.identity),
        Some(OfRuns::Kept(action)) => action,
        None => Action::List,
    };
    with_remote_as(common, &command.identity.caller(), |remote| match &action {
        Action::List => Ok(present::listed::<ProgramRunBody>(&remote.get_all(&["runs"], &[])?, common.json)),
        Action::Show { run } => Ok(unsettled(common, &remote.get(&["runs", run], &[])?)),
        Action::Settle(settlement) => {
            let path: [&str; 3] = ["runs", &settlement.run, "settle"];
            Ok(unsettled(common, &remote.send(Method::POST, &path, Some(&settlement.body()))?))
        }
        Action::Resume { run } => Ok(call::show(common, &remote.post(&["runs", run, "resume"], &json!({}))?)),
        #[cfg(feature = "agent")]
        Action::Branch(branching) => branching.run(common, remote),
        #[cfg(feature = "agent")]
        Action::Save(saving) => saving.run(remote),
    })
}

impl Settlement {
    fn body(&self) -> Value {
        let Outcome { made, not_made, unknown: _ } = &self.outcome;
        let outcome = match (made, not_made) {
            (Some(_), _) => "made",
            (None, true) => "not_made",
            (None, false) => "unknown",
        };
        json!({"call": self.call, "outcome": outcome, "answer": made})
    }
}

pub(super) fn json_of(text: &str) -> Result<Value, String> {
    sekisho_core::json::parse(text.as_bytes()).map_err(|error| format!("the result of a tool is JSON: {error}"))
}

fn unsettled(common: &Common, run: &Value) -> Exit {
    if common.json {
        return present::json(run);
    }
    let calls = present::entries(&run["unknown_calls"]);
    if calls.is_empty() {
        present::line("no call of the run has an unknown outcome: resume it");
        return Exit::Done;
    }
    present::list::<UnknownCall>(calls);
    Exit::Done
}
