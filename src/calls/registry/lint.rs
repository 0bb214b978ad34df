//! Faults in the descriptions of tools that keep models from using them well: a score for each tool, and the fixes as members of
//! `tools.overrides`.

mod checks;
mod enumerations;
mod rules;
mod similar_tools;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Map, Value};

use self::rules::Rule;
use super::Snapshot;
use crate::tool::Tool;

/// The points of a tool without findings.
const MAX_SCORE: u32 = 100;

/// The findings about tools.
#[derive(Debug, Serialize)]
pub struct LintReport {
    /// Of 100: the mean of the tools, rounded down.
    pub score: u32,
    pub tools: Vec<LintedTool>,
}

/// The findings about one tool.
#[derive(Debug, Serialize)]
pub struct LintedTool {
    pub name: String,
    pub source: String,
    /// Of 100.
    pub score: u32,
    pub findings: Vec<LintFinding>,
}

#[derive(Debug, Serialize)]
pub struct LintFinding {
    pub rule: Rule,
    pub problem: String,
    pub advice: &'static str,
    /// Members of `tools.overrides.TOOL`; empty where only a person can write them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub fix: Map<String, Value>,
}

/// A tool as a model sees it, and its claims about the effects of its calls.
#[derive(Debug)]
struct Described<'a> {
    name: &'a str,
    source: &'a str,
    description: &'a str,
    parameters: &'a Value,
    http_method: Option<String>,
    read_only: bool,
    destructive: Option<bool>,
    /// Whether the configuration says the effect of its calls, so that the claims do not count.
    has_sink: bool,
}

impl Snapshot {
    /// The findings about the tools whose names begin with the prefix. Similar tools are looked for among all tools.
    pub fn lint(&self, prefix: &str) -> LintReport {
        let tools: Vec<_> = self.tools().iter().map(|tool| Described::of(tool)).collect();
        LintReport::of(&tools, prefix)
    }
}

impl LintReport {
    fn of(tools: &[Described<'_>], prefix: &str) -> Self {
        let similar = similar_tools::find(tools);
        let wanted = tools.iter().zip(similar).filter(|(tool, _)| tool.name.starts_with(prefix));
        let tools: Vec<_> = wanted.map(|(tool, similar)| LintedTool::of(tool, similar)).collect();
        let sum: u64 = tools.iter().map(|tool| u64::from(tool.score)).sum();
        let mean = sum.checked_div(tools.len() as u64).and_then(|mean| u32::try_from(mean).ok());
        Self { score: mean.unwrap_or(MAX_SCORE), tools }
    }
}

impl LintedTool {
    fn of(tool: &Described<'_>, similar: Vec<LintFinding>) -> Self {
        let mut findings = checks::find(tool);
        findings.extend(similar);
        let weights: u32 = findings.iter().map(|finding| finding.rule.text().weight).sum();
        let score = MAX_SCORE.saturating_sub(weights);
        Self { name: tool.name.to_owned(), source: tool.source.to_owned(), score, findings }
    }
}

impl LintFinding {
    /// A finding that a person must fix.
    fn new(rule: Rule, problem: String) -> Self {
        Self { rule, problem, advice: &rule.text().advice, fix: Map::new() }
    }

    fn fixed_by(mut self, member: &str, value: Value) -> Self {
        self.fix.insert(member.to_owned(), value);
        self
    }
}

impl<'a> Described<'a> {
    fn of(tool: &'a Tool) -> Self {
        let metadata = &tool.metadata;
        let destructive = metadata.mcp_annotations.get("annotations").and_then(|all| all.get("destructiveHint"));
        Self {
            name: &metadata.name,
            source: &metadata.source,
            description: &metadata.description,
            parameters: tool.input.document(),
            http_method: tool.http_method(),
            read_only: metadata.only_reads(),
            destructive: destructive.and_then(Value::as_bool),
            has_sink: metadata.flow.sink.is_some(),
        }
    }

    /// The prefix of its source, if the name has one, and the name without it.
    fn parts_of_name(&self) -> (&'a str, &'a str) {
        self.name.split_once("__").filter(|(_, own)| !own.is_empty()).unwrap_or(("", self.name))
    }
}
