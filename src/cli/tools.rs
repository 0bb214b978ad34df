//! `sekisho tools`: lists, shows, measures, searches and scores tools, writes and tests Python functions, and pins their packages.

mod detail;
mod lint;
mod lock_packages;
mod new_file;
mod run_cases;
mod tokens;

use clap::Subcommand;
use serde_json::Value;

use super::call::in_commands;
use super::client::Remote;
use super::{Common, Exit, present, with_config};
use sekisho_calls::registry::{Snapshot, ToolMetadata, ToolSchema, ToolSummary};
use sekisho_config::Config;
use sekisho_gateway::OfferedTools;
use sekisho_mcp_client::ServerNames;

#[derive(Debug, Subcommand)]
pub(super) enum ToolsCommand {
    #[command(flatten)]
    Listing(ListingCommand),
    /// Score the descriptions of tools, list the faults that keep models from using them well, and print fixes for `tools.overrides`.
    ///
    /// Exit code 1 if the score is below --minimum.
    Lint(lint::LintCommand),
    /// Write an example of tools that are Python functions, with cases that test them.
    New {
        /// Of the file, without `.py`: it begins the names of its tools.
        name: String,
    },
    /// Run the cases of `tools.overrides`, and of Python functions: FILE.cases.yaml beside FILE.py.
    Test(run_cases::TestCommand),
    /// Fetch the packages that Python functions import, and pin them: the wheels of requirements.txt beside the files.
    ///
    /// Each is compared with its sum in requirements.lock if it has one, and unpacked into sekisho's cache folder. Run it
    /// on each machine that serves the tools: the gateway itself fetches nothing.
    Lock(lock_packages::LockCommand),
}

#[derive(Debug, Default, Subcommand)]
pub(super) enum ListingCommand {
    /// List all tools.
    #[default]
    List,
    /// Show one tool: its arguments, who may call it, its limits; with --json its schemas, too.
    Show {
        /// The name of a tool, as `sekisho tools` lists it.
        name: String,
    },
    /// Search tools by a few words, best match first.
    Search {
        /// Words about a tool.
        query: String,
    },
}

impl Default for ToolsCommand {
    fn default() -> Self {
        Self::Listing(ListingCommand::default())
    }
}

/// With `tokens`, the list has the tokens of each tool.
pub(super) fn run(common: &Common, tokens: bool, command: &ToolsCommand) -> Exit {
    match command {
        ToolsCommand::Listing(ListingCommand::List) if tokens => tokens::run(common),
        _ if tokens => {
            present::problem("`--tokens` is for the list of all tools: `sekisho tools --tokens`");
            Exit::WrongCommandLine
        }
        ToolsCommand::Listing(command) => list(common, command),
        ToolsCommand::Lint(command) => with_config(common, |config| lint::run(common, &config, command)),
        ToolsCommand::New { name } => with_config(common, |config| new_file::run(&config, name)),
        ToolsCommand::Test(command) => with_config(common, |config| run_cases::run(common, config, command)),
        ToolsCommand::Lock(command) => with_config(common, |config| lock_packages::run(common, &config, command)),
    }
}

fn list(common: &Common, command: &ListingCommand) -> Exit {
    match &common.server {
        Some(server) => Remote::at(server)
            .and_then(|remote| ask(&remote, command))
            .map_or_else(super::client::Unanswered::report, |answer| show(common, command, &answer)),
        None => with_config(common, |config| {
            let Some(offered) = reported_tools(&config) else { return Exit::Misconfigured };
            match look_up(&offered.snapshot, command) {
                Ok(answer) => show(common, command, &answer),
                Err(problem) => {
                    present::problem(&problem);
                    Exit::Failed
                }
            }
        }),
    }
}

/// The tools of every source. Reports those that are not offered.
fn reported_tools(config: &Config) -> Option<OfferedTools> {
    let offered = offered_tools(config)?;
    for (source, reason) in &offered.out_of_reach {
        present::problem(&format!("{source}: {reason}"));
    }
    for missing in offered.snapshot.unavailable() {
        present::problem(&format!("{} is not offered: {}", missing.described(), missing.reason));
    }
    Some(offered)
}

/// Asks every source, and shows that it does.
pub(super) fn offered_tools(config: &Config) -> Option<OfferedTools> {
    let runtime = super::serve::runtime()?;
    let progress = present::progress("asking MCP servers and reading documents");
    let offered = runtime.block_on(sekisho_gateway::offered_tools(config));
    progress.finish_and_clear();
    offered.inspect_err(|problem| present::problem(&problem.to_string())).ok()
}

/// Shows the tools of one source, why some are not offered, and the number of its prompts and resources.
pub(super) fn show_source(common: &Common, config: &Config, name: &str) -> Exit {
    let Some(offered) = offered_tools(config) else { return Exit::Misconfigured };
    if let Some(reason) = offered.out_of_reach.get(&format!("mcp:{name}")) {
        present::problem(&format!(
            "its tools are not offered yet: {reason}. A running gateway tries again; `sekisho tools` shows the tools then, and \
             `sekisho mcp remove {name}` removes the server"
        ));
        return Exit::Failed;
    }
    let listed = match look_up(&offered.snapshot, &ListingCommand::List) {
        Ok(listed) => listed,
        Err(problem) => {
            present::problem(&problem);
            return Exit::Failed;
        }
    };
    let prefix = format!("{name}__");
    let is_of_source = |tool: &&Value| tool["name"].as_str().is_some_and(|tool| tool.starts_with(&prefix));
    let tools: Vec<_> = listed.as_array().into_iter().flatten().filter(is_of_source).cloned().collect();
    let others = offered.servers.iter().find(|server| server.name == name).and_then(beside_tools);
    if tools.is_empty() && others.is_none() {
        present::problem("it offers no tools; `sekisho check` shows why");
        return Exit::Failed;
    }
    let dangers = dangers(&tools, &config.policy.dangerous_roles);
    let exit = show(common, &ListingCommand::List, &Value::Array(tools));
    for said in dangers.into_iter().chain(others) {
        present::info(&said);
    }
    exit
}

/// The prompts and resources of an MCP server, if it has any.
fn beside_tools(server: &ServerNames) -> Option<String> {
    const MAX_NAMED: usize = 5;
    let mut kinds = Vec::new();
    if !server.prompts.is_empty() {
        let more = if server.prompts.len() > MAX_NAMED { ", …" } else { "" };
        let named = server.prompts.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        kinds.push(format!("{} ({named}{more})", present::counted(&server.prompts.len(), "prompt")));
    }
    if server.resources > 0 {
        kinds.push(present::counted(&server.resources, "resource"));
    }
    (!kinds.is_empty()).then(|| format!("it also has {}: clients use them over MCP", kinds.join(" and ")))
}

/// Why some of them need a role, and how to open one.
fn dangers(tools: &[Value], roles: &[String]) -> Option<String> {
    let dangerous = tools.iter().filter(|tool| tool["dangerous"] == true).filter_map(|tool| tool["name"].as_str());
    let dangerous: Vec<_> = dangerous.collect();
    let (first, roles) = (dangerous.first()?, roles.join(" or "));
    Some(format!(
        "{} of {} tools are dangerous, since their source says that they destroy something, or `tools.overrides` does: callers \
         need the role {roles}; `tools: {{overrides: {{{first}: {{dangerous: false}}}}}}` in the configuration opens one",
        dangerous.len(),
        tools.len()
    ))
}

fn ask(remote: &Remote, command: &ListingCommand) -> Result<Value, super::client::Unanswered> {
    match command {
        ListingCommand::List => remote.get(&["tools", "list"], &[("detail", "full")]),
        ListingCommand::Search { query } => remote.get(&["tools", "search"], &[("q", query)]),
        ListingCommand::Show { name } => {
            let mut shown = remote.get(&["tools", name, "metadata"], &[])?;
            let schema = remote.get(&["tools", name, "schema"], &[])?;
            merge(&mut shown, schema);
            Ok(shown)
        }
    }
}

const MAX_HITS: usize = 10;

fn look_up(snapshot: &Snapshot, command: &ListingCommand) -> Result<Value, String> {
    let outcome = match command {
        ListingCommand::List => {
            let mut all: Vec<_> = snapshot.tools().iter().map(|tool| ToolSummary::of(tool)).collect();
            all.extend(snapshot.quarantined().map(ToolSummary::of_quarantined));
            all.sort_by(|one, other| one.name().cmp(other.name()));
            serde_json::to_value(all)
        }
        ListingCommand::Search { query } => {
            let hits = snapshot.search(query, MAX_HITS).into_iter();
            serde_json::to_value(hits.map(|(tool, score)| ToolSummary::of(tool).scored(score)).collect::<Vec<_>>())
        }
        ListingCommand::Show { name } => {
            let tool = snapshot.get(name).ok_or_else(|| in_commands(snapshot.missing(name, |_| true).message()))?;
            serde_json::to_value(ToolMetadata::of(tool)).and_then(|mut shown| {
                merge(&mut shown, serde_json::to_value(ToolSchema::whole(tool))?);
                Ok(shown)
            })
        }
    };
    outcome.map_err(|error| error.to_string())
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn show(common: &Common, command: &ListingCommand, answer: &Value) -> Exit {
    if common.json {
        return present::json(answer);
    }
    if matches!(command, ListingCommand::Show { .. }) {
        return detail::show(answer);
    }
    let rows = answer.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|tool| {
        let flag = |name: &str| tool[name].as_bool() == Some(true);
        let marks = ["dangerous", "requires_auth", "sandboxed"].into_iter().filter(|name| flag(name));
        let others = [
            ("degraded", "degraded"),
            ("quarantined", "quarantined"),
            ("unavailable", "not offered"),
            ("description_problem", "description cut"),
            ("output_schema_problem", "output not checked"),
            ("flags", "flagged"),
        ];
        let marks = marks.chain(tool["kind"].as_str());
        let marks = marks.chain(others.into_iter().filter(|(name, _)| !tool[*name].is_null()).map(|(_, mark)| mark));
        // Only a server reports this, for the caller of the key.
        let marks = marks.chain((tool["usable"] == false && tool["unavailable"].is_null()).then_some("not usable"));
        let description = tool["unavailable"].as_str().or(tool["description"].as_str());
        vec![
            tool["name"].as_str().unwrap_or_default().to_owned(),
            tool["category"].as_str().unwrap_or_default().to_owned(),
            marks.collect::<Vec<_>>().join(", "),
            description.and_then(|text| text.lines().next()).unwrap_or_default().to_owned(),
        ]
    });
    present::lines(rows.collect());
    Exit::Done
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_and_resources_are_counted() {
        let server = |prompts: &[&str], resources| ServerNames {
            name: "m".to_owned(),
            prefix: None,
            is_listed: true,
            has_tools: false,
            tools: None,
            prompts: prompts.iter().map(ToString::to_string).collect(),
            resources,
        };
        assert_eq!(beside_tools(&server(&[], 0)), None);
        for (server, expected) in [
            (server(&["greet"], 2), "1 prompt (greet) and 2 resources:"),
            (server(&["a", "b", "c", "d", "e", "f"], 0), "6 prompts (a, b, c, d, e, …):"),
            (server(&[], 1), "it also has 1 resource:"),
        ] {
            let said = beside_tools(&server).unwrap();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn dangerous_tools_are_counted_with_the_role_that_they_need() {
        let tools =
            [json!({"name": "a", "dangerous": false}), json!({"name": "b", "dangerous": true}), json!({"name": "c"})];
        let dangers = |tools: &[Value]| dangers(tools, &["operator".to_owned(), "sre".to_owned()]);
        assert_eq!(dangers(&tools[..1]), None);
        let said = dangers(&tools).unwrap();
        for part in ["1 of 3 tools", "the role operator or sre", "tools: {overrides: {b: {dangerous: false}}}"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
