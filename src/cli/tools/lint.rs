//! `sekisho tools lint`: the score of the tools, the findings about them, and the fixes as `tools.overrides`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Map, Value};

use super::reported_tools;
use crate::cli::{Common, Exit, present};
use sekisho_calls::registry::{LintFinding, LintReport, LintedTool};
use sekisho_config::{Config, ToolOverride};

/// `tools.overrides`.
type Overrides = BTreeMap<String, ToolOverride>;

#[derive(Debug, Args)]
pub(in crate::cli) struct LintCommand {
    /// Only the tools whose names begin so, such as `github__`.
    #[arg(default_value = "")]
    prefix: String,
    /// The lowest score of the tools together, of 100, with which the command succeeds.
    #[arg(long, value_name = "SCORE", value_parser = clap::value_parser!(u32).range(0..=100))]
    minimum: Option<u32>,
}

pub(super) fn run(common: &Common, config: &Config, command: &LintCommand) -> Exit {
    let Some(offered) = reported_tools(config) else { return Exit::Misconfigured };
    let report = offered.snapshot.lint(&command.prefix);
    if report.tools.is_empty() {
        present::problem("no name of a tool begins so; `sekisho tools` lists the tools");
        return Exit::Failed;
    }
    if common.json {
        present::json(&report);
    } else {
        show(&report, &config.tools.overrides);
    }
    match command.minimum.filter(|minimum| report.score < *minimum) {
        Some(minimum) => {
            present::problem(&format!("the score {} is below {minimum}", report.score));
            Exit::Failed
        }
        None => Exit::Done,
    }
}

fn show(report: &LintReport, overrides: &Overrides) {
    let all: Vec<_> = findings(report).collect();
    if !all.is_empty() {
        let row = |(tool, finding): &(&LintedTool, &LintFinding)| {
            let rule = finding.rule.as_str().to_owned();
            vec![tool.name.clone(), tool.score.to_string(), rule, finding.problem.clone()]
        };
        present::table(&["tool", "score", "rule", "problem"], all.iter().map(row).collect());
        present::line("");
        overlay(report, overrides).iter().for_each(|line| present::line(&present::harmless(line)));
    }
    let faulty = report.tools.iter().filter(|tool| !tool.findings.is_empty()).count();
    present::info(&format!(
        "score {} of 100, with {} findings about {faulty} of {} tools",
        report.score,
        all.len(),
        report.tools.len()
    ));
}

fn findings(report: &LintReport) -> impl Iterator<Item = (&LintedTool, &LintFinding)> {
    report.tools.iter().flat_map(|tool| tool.findings.iter().map(move |finding| (tool, finding)))
}

/// The fixes as a part of the configuration. Those that only a person can write are comments. Names and values are JSON, of which
/// every text is YAML, too.
fn overlay(report: &LintReport, overrides: &Overrides) -> Vec<String> {
    // A tool that is renamed is there under the name that its source gives.
    let key = |name: &str| {
        let renamed = overrides.iter().find(|(_, changes)| changes.rename.as_deref() == Some(name));
        Value::from(renamed.map_or(name, |(key, _)| key.as_str()))
    };
    let mut fixed = Vec::new();
    for tool in &report.tools {
        let mut members = Map::new();
        for (member, value) in tool.findings.iter().flat_map(|finding| &finding.fix) {
            members.entry(member.as_str()).or_insert_with(|| value.clone());
        }
        if !members.is_empty() {
            fixed.push(format!("    {}:", key(&tool.name)));
            fixed.extend(members.iter().map(|(member, value)| format!("      {member}: {value}")));
        }
    }
    let manual = findings(report).filter(|(_, finding)| finding.fix.is_empty());
    let mut manual: Vec<_> = manual.map(|(tool, finding)| format!("# {}: {}", tool.name, finding.advice)).collect();
    manual.dedup();
    if !fixed.is_empty() {
        manual.extend(["tools:", "  overrides:"].map(str::to_owned));
    }
    manual.extend(fixed);
    manual
}
