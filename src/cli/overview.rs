//! `sekisho` without a command, on a terminal: the gateway of this machine, its problems, and the next commands.

use std::io::{self, IsTerminal};

use clap::CommandFactory;
use serde_json::Value;

use super::client::{Endpoint, Remote, Unanswered};
use super::{Cli, Common, Exit, local_gateway, present, with_config};
use sekisho_api::NamedCaller;
use sekisho_config::Config;

/// The most problems that are shown.
const MAX_PROBLEMS: usize = 5;

const NEXT: [(&str, &str); 3] = [
    ("sekisho connect", "puts the gateway into your editor, before its MCP servers"),
    ("sekisho add", "adds tools: npx …, uvx …, https://…, FILE.py"),
    ("sekisho --help", "lists all commands"),
];

pub(super) fn run(common: &Common) -> Exit {
    if !io::stdout().is_terminal() || common.server.is_some() {
        present::info(&Cli::command().render_help().to_string());
        return Exit::WrongCommandLine;
    }
    with_config(common, |config| match local_gateway::find(&config, &NamedCaller::administrator()) {
        Err(exit) => exit,
        Ok(None) => {
            present::line(&format!("no gateway runs on {}", config.state_directory().display()));
            present::line(&servers(&config));
            show_next(("sekisho serve", "runs the gateway, with its console"));
            Exit::Done
        }
        Ok(Some(gateway)) => match state(&gateway) {
            Ok(lines) => {
                lines.iter().for_each(|line| present::line(line));
                show_next(("sekisho console", "prints a link to the pages for operators"));
                Exit::Done
            }
            Err(unanswered) => unanswered.report(),
        },
    })
}

fn servers(config: &Config) -> String {
    format!("{} MCP servers and {} APIs are configured", config.mcp.servers.len(), config.openapi.collections.len())
}

/// The gateway, its tools and problems, in a few lines.
pub(super) fn state(gateway: &Endpoint) -> Result<Vec<String>, Unanswered> {
    let remote = Remote::new(gateway)?;
    let status = remote.get(&["gateway"], &[])?;
    let tools = remote.get(&["tools", "list"], &[("detail", "full")])?;
    // 503 while it refuses every call.
    let ready = remote.get_any(&["readyz"])?;
    Ok(lines(&status, &tools, &ready))
}

/// A line about the gateway, one about its tools, and its problems.
fn lines(status: &Value, tools: &Value, ready: &Value) -> Vec<String> {
    let background = if status["on_demand"] == true { ", in the background for its clients" } else { "" };
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_offered = |tool: &&Value| tool["quarantined"].is_null() && tool["unavailable"].is_null();
    let (offered, dangerous) = tools
        .iter()
        .filter(is_offered)
        .fold((0, 0), |(offered, dangerous), tool| (offered + 1, dangerous + usize::from(tool["dangerous"] == true)));
    let mut lines = vec![
        format!("a gateway runs (process {}){background}", status["process_id"]),
        format!("{offered} tools are offered, {dangerous} of them dangerous: these need a role"),
    ];
    let problems = ["degraded", "notes"].into_iter().flat_map(|name| ready[name].as_object().into_iter().flatten());
    let problems: Vec<_> = problems.map(|(part, reason)| (part, reason.as_str().unwrap_or_default())).collect();
    for (part, reason) in problems.iter().take(MAX_PROBLEMS) {
        lines.push(present::harmless(&format!("! {part}: {reason}")).into_owned());
    }
    if problems.len() > MAX_PROBLEMS {
        lines.push(format!("! {} more: sekisho check --remote", problems.len() - MAX_PROBLEMS));
    }
    lines
}

fn show_next(first: (&str, &str)) {
    present::line("");
    let rows =
        std::iter::once(first).chain(NEXT).map(|(command, use_of_it)| vec![command.to_owned(), use_of_it.to_owned()]);
    present::lines(rows.collect());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_lines_count_tools_and_name_problems() {
        let tools = json!([
            {"name": "a", "dangerous": true},
            {"name": "b", "dangerous": false},
            {"name": "c", "dangerous": true, "quarantined": "changed"},
            {"name": "d", "unavailable": "its schema is invalid"},
        ]);
        let degraded: serde_json::Map<_, _> = (1..=6).map(|at| (format!("mcp:{at}"), json!("gone\u{1b}[2J"))).collect();
        let ready = json!({"status": "degraded", "degraded": degraded, "notes": {"tools": "not pinned"}});
        let lines = lines(&json!({"process_id": 7, "on_demand": true}), &tools, &ready);
        assert_eq!(lines[0], "a gateway runs (process 7), in the background for its clients");
        assert_eq!(lines[1], "2 tools are offered, 1 of them dangerous: these need a role");
        assert_eq!((lines.len(), &*lines[2], &*lines[7]), (8, "! mcp:1: gone", "! 2 more: sekisho check --remote"));
    }
}
