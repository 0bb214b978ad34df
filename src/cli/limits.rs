//! `sekisho limits`: the rest of the limits of a running gateway.

use clap::Subcommand;
use serde_json::Value;

use super::local_gateway::with_remote;
use super::{Common, Exit, present};

#[derive(Debug, Default, Subcommand)]
pub(super) enum LimitsCommand {
    /// Show what is left for whom: with `--server` for the holder of the key.
    #[default]
    Show,
}

pub(super) fn run(common: &Common, LimitsCommand::Show: &LimitsCommand) -> Exit {
    with_remote(common, |remote| {
        let limits = remote.get(&["limits"], &[])?;
        Ok(if common.json { present::json(&limits) } else { show(&limits) })
    })
}

fn show(limits: &Value) -> Exit {
    let rows = |name: &str, row: fn(&Value) -> Vec<String>| {
        limits[name].as_array().into_iter().flatten().map(row).collect::<Vec<_>>()
    };
    let header = ["limit", "tenant", "who", "calls a minute", "at once", "USD today", "tokens today"];
    let rows = [rows("rules", row_of_rule), rows("rates", row_of_rate)].concat();
    if rows.is_empty() {
        present::info("no limit is partly used now: a limit is listed from its first call until it has recovered");
        return Exit::Done;
    }
    present::table(&header, rows);
    Exit::Done
}

fn row_of_rule(rule: &Value) -> Vec<String> {
    let who = format!("{} {}", text(rule, "per"), text(rule, "subject"));
    let at_once = match (&rule["running"], &rule["max_concurrent"]) {
        (Value::Number(running), Value::Number(most)) => format!("{running} of {most} run"),
        _ => String::new(),
    };
    let (usd, tokens) = (left(rule, "cost_left_usd", "cost_per_day_usd"), left(rule, "tokens_left", "tokens_per_day"));
    let rate = left(&rule["rate"], "remaining", "limit");
    vec![text(rule, "rule"), text(rule, "tenant"), who, rate, at_once, usd, tokens]
}

fn row_of_rate(rate: &Value) -> Vec<String> {
    let (tool, caller) = (text(rate, "tool"), text(rate, "caller"));
    let limit = if tool.is_empty() { "all tools".to_owned() } else { tool };
    let who = if caller.is_empty() { String::new() } else { format!("caller {caller}") };
    let rate_left = left(rate, "remaining", "limit");
    vec![limit, text(rate, "tenant"), who, rate_left, String::new(), String::new(), String::new()]
}

fn left(of: &Value, left: &str, most: &str) -> String {
    match (&of[left], &of[most]) {
        (Value::Number(left), Value::Number(most)) => format!("{left} of {most} left"),
        _ => String::new(),
    }
}

fn text(value: &Value, name: &str) -> String {
    present::harmless(value[name].as_str().unwrap_or_default()).into_owned()
}
