//! `sekisho tenants|models|skills`: the resources of agents, as stored by a running gateway.

use std::io::Read as _;

use clap::Subcommand;
use http::Method;
use serde_json::{Value, json};

use super::client::{Remote, Unanswered};
use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_core::json;

/// A kind of resource, as its route names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Tenants,
    Models,
    Skills,
}

#[derive(Debug, Default, Subcommand)]
pub(super) enum ResourceCommand {
    /// List all.
    #[default]
    List,
    /// Show one.
    Show {
        /// Its name.
        name: String,
    },
    /// Add one.
    Add {
        /// Its name.
        name: String,
        /// Its settings as a JSON object; `-` reads them from standard input.
        #[arg(default_value = "{}", value_name = "JSON")]
        settings: String,
    },
    /// Replace the settings of one that was added. One of the configuration is changed there.
    Change {
        /// Its name.
        name: String,
        /// All its settings as a JSON object; `-` reads them from standard input.
        #[arg(value_name = "JSON")]
        settings: String,
    },
    /// Remove one that was added. One of the configuration is removed there.
    Remove {
        /// Its name.
        name: String,
    },
}

pub(super) fn run(common: &Common, kind: Kind, command: &ResourceCommand) -> Exit {
    with_remote(common, |remote| match ask(remote, kind.path(), command) {
        Err(Problem::Settings(problem)) => {
            present::problem(&problem);
            Ok(Exit::WrongCommandLine)
        }
        Err(Problem::Unanswered(unanswered)) => Err(unanswered),
        Ok(answer) if common.json => Ok(present::json(&answer)),
        Ok(answer) => Ok(show(kind, command, &answer)),
    })
}

enum Problem {
    /// The settings of the command line are no JSON object.
    Settings(String),
    Unanswered(Unanswered),
}

impl From<Unanswered> for Problem {
    fn from(unanswered: Unanswered) -> Self {
        Self::Unanswered(unanswered)
    }
}

/// One resource, or a list of all.
fn ask(remote: &Remote, kind: &str, command: &ResourceCommand) -> Result<Value, Problem> {
    Ok(match command {
        ResourceCommand::List => remote.get_all(&["api", kind], &[])?.into(),
        ResourceCommand::Show { name } => remote.get(&["api", kind, name], &[])?,
        ResourceCommand::Add { name, settings } => {
            let mut body = read_settings(settings)?;
            body["name"] = json!(name);
            remote.send(Method::POST, &["api", kind], Some(&body))?
        }
        ResourceCommand::Change { name, settings } => {
            remote.send(Method::PUT, &["api", kind, name], Some(&read_settings(settings)?))?
        }
        ResourceCommand::Remove { name } => remote.send(Method::DELETE, &["api", kind, name], None)?,
    })
}

fn read_settings(given: &str) -> Result<Value, Problem> {
    let mut input = String::new();
    let text = match given {
        "-" => {
            let read = std::io::stdin().read_to_string(&mut input);
            read.map_err(|error| Problem::Settings(format!("standard input cannot be read: {error}")))?;
            &input
        }
        text => text,
    };
    match json::parse(text.as_bytes()) {
        Ok(settings @ Value::Object(_)) => Ok(settings),
        Ok(_) => {
            Err(Problem::Settings("the settings must be a JSON object, such as '{\"status\": \"active\"}'".into()))
        }
        Err(problem) => Err(Problem::Settings(format!("the settings are not acceptable JSON: {problem}"))),
    }
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Tenants => "tenants",
            Self::Models => "models",
            Self::Skills => "skills",
        }
    }
}

fn show(kind: Kind, command: &ResourceCommand, answer: &Value) -> Exit {
    let done = match (command, answer) {
        (_, Value::Array(items)) if items.is_empty() => {
            let kind = kind.path();
            present::info(&format!("no {kind}: `sekisho {kind} add` adds one"));
            return Exit::Done;
        }
        (_, Value::Array(items)) => {
            let row = |item: &Value| vec![text(item, "name"), origin(item).to_owned(), summary(item)];
            present::lines(items.iter().map(row).collect());
            return Exit::Done;
        }
        (ResourceCommand::Show { .. }, _) => return present::json(answer),
        (ResourceCommand::Add { .. }, _) => "added",
        (ResourceCommand::Change { .. }, _) => "changed",
        _ => "removed",
    };
    present::line(&format!("{done} {}", text(answer, "name")));
    Exit::Done
}

fn text(item: &Value, field: &str) -> String {
    item[field].as_str().unwrap_or_default().to_owned()
}

fn origin(item: &Value) -> &'static str {
    if item["configured"] == true { "configured" } else { "stored" }
}

/// The text that a list shows beside the name: a status other than active, a model's id, a skill's description.
fn summary(item: &Value) -> String {
    let status = item["status"].as_str().filter(|status| *status != "active");
    let what = item["model"].as_str().or(item["description"].as_str());
    [status, what].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
