//! `sekisho results`: results that were too large for a model, at a running gateway.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{Remote, Unanswered, sentence};
use super::local_gateway::with_remote;
use super::{Common, Exit, present};
use sekisho_api::ResultBody;

#[derive(Debug, Default, Subcommand)]
pub(super) enum ResultsCommand {
    /// List your stored results, the latest first.
    #[default]
    List,
    /// Print a part of a result: `sekisho results show HANDLE --offset 100`.
    Show(WantedPart),
}

#[derive(Debug, Args)]
pub(super) struct WantedPart {
    /// The handle of a result, as `sekisho results` lists it.
    handle: String,
    /// Elements or lines to skip.
    #[arg(long)]
    offset: Option<u64>,
    /// Most elements or lines; 100 by default.
    #[arg(long)]
    limit: Option<u64>,
    /// JMESPath, for JSON.
    #[arg(long)]
    query: Option<String>,
    /// A regular expression that elements or lines must match.
    #[arg(long)]
    grep: Option<String>,
    /// The session of the call whose result it is, if it had one.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

pub(super) fn run(common: &Common, command: &ResultsCommand) -> Exit {
    with_remote(common, |remote| match command {
        ResultsCommand::List => Ok(present::listed::<ResultBody>(&remote.get_all(&["results"], &[])?, common.json)),
        ResultsCommand::Show(wanted) => Ok(show(&wanted.read(remote)?, common.json)),
    })
}

impl WantedPart {
    fn read(&self, remote: &Remote) -> Result<Value, Unanswered> {
        let Self { handle, offset, limit, query, grep, session } = self;
        let [offset, limit] = [offset, limit].map(|number| number.map(|number| number.to_string()));
        let given = [
            ("offset", offset.as_deref()),
            ("limit", limit.as_deref()),
            ("query", query.as_deref()),
            ("grep", grep.as_deref()),
            ("session_id", session.as_deref()),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        remote.get(&["results", handle], &given)
    }
}

/// The reply to a call of `read_result`, which may say why the tool failed.
fn show(reply: &Value, as_json: bool) -> Exit {
    if reply["success"] != true {
        present::problem(&sentence(reply));
        return Exit::Failed;
    }
    let output = &reply["output"];
    if as_json {
        return present::json(output);
    }
    match (output["text"].as_str(), output["items"].as_array()) {
        (Some(text), _) => present::line(present::harmless(text).trim_end()),
        (None, Some(items)) => items.iter().for_each(present::json_line),
        (None, None) => return present::json(&output["value"]),
    }
    if let Some(next) = output["next_offset"].as_u64() {
        present::info(&format!("{} in all; the next part has --offset {next}", output["total"]));
    }
    Exit::Done
}
