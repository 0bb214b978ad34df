//! `sekisho flow`: where the values of calls come from, at a running gateway.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::present::text;
use super::{Common, Exit, present};
use sekisho_api::{FlowDestinationBody, FlowQuestionBody};

#[derive(Debug, Default, Subcommand)]
pub(super) enum FlowCommand {
    /// Show the labels of each tool, and why it has them: whether strangers can write its results, and the effect of its calls.
    #[default]
    Show,
    /// Show the questions since the start: with `policy.flow: observe` those that a person would have been asked.
    Report,
    /// List the destinations that are known, each by its tool and argument.
    Destinations,
    /// Forget known destinations, such as one that an attack has reached: `sekisho flow forget --destination eve@evil.example`.
    Forget(Forget),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct Forget {
    /// Destinations of calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// A mail address, URL, host, account or other destination, as a call names it.
    #[arg(long)]
    destination: Option<String>,
    /// Those that were reached for the first time at this moment (RFC 3339) or later.
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// All of the tenant.
    #[arg(long)]
    all: bool,
    /// The tenant; yours by default.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) fn run(common: &Common, command: &FlowCommand) -> Exit {
    with_remote(common, |remote| {
        let answer = ask(remote, command)?;
        Ok(if common.json { present::json(&answer) } else { show(command, &answer) })
    })
}

fn ask(remote: &Remote, command: &FlowCommand) -> Result<Value, Unanswered> {
    match command {
        FlowCommand::Show => remote.get_all(&["admin", "flow", "tools"], &[]).map(Value::from),
        FlowCommand::Report => remote.get(&["admin", "flow"], &[]),
        FlowCommand::Destinations => remote.get_all(&["admin", "flow", "destinations"], &[]).map(Value::from),
        FlowCommand::Forget(forget) => remote.send(Method::POST, &["admin", "flow", "forget"], Some(&forget.body())),
    }
}

impl Forget {
    fn body(&self) -> Value {
        let mut body = Map::from_iter([("all".to_owned(), self.all.into())]);
        for (name, value) in
            [("tool", &self.tool), ("destination", &self.destination), ("since", &self.since), ("tenant", &self.tenant)]
        {
            body.extend(value.as_ref().map(|value| (name.to_owned(), value.as_str().into())));
        }
        body.into()
    }
}

fn show(command: &FlowCommand, answer: &Value) -> Exit {
    match command {
        FlowCommand::Show => {
            let rows = present::entries(answer).iter().map(row_of_tool).collect();
            present::table(&["tool", "results", "secrets", "effect", "why"], rows);
        }
        FlowCommand::Report => report(answer),
        FlowCommand::Destinations => present::list::<FlowDestinationBody>(present::entries(answer)),
        FlowCommand::Forget(_) => present::line(&format!("forgotten: {}", answer["forgotten"])),
    }
    Exit::Done
}

fn row_of_tool(tool: &Value) -> Vec<String> {
    let secrecy = texts(&tool["secrecy"], ", ");
    vec![text(tool, "tool"), text(tool, "trust"), secrecy, text(tool, "sink"), texts(&tool["why"], "; ")]
}

fn report(answer: &Value) {
    let (mode, since) = (text(answer, "mode"), text(answer, "since"));
    let (asked, calls) = (&answer["asked"], &answer["calls"]);
    present::info(&format!(
        "policy.flow: {mode}; since {since}: {asked} of {calls} calls with effects are in question"
    ));
    let questions = present::entries(&answer["questions"]);
    if !questions.is_empty() {
        present::list::<FlowQuestionBody>(questions);
    }
}

fn texts(values: &Value, separator: &str) -> String {
    let texts = values.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(|text| present::harmless(text).into_owned()).collect::<Vec<_>>().join(separator)
}
