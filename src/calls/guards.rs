//! The rules of `tools.guards` about the texts of calls and answers. [`texts`] has the texts of an answer, [`services`]
//! the services that judge texts, and [`forms`] the forms of their requests.

mod forms;
mod services;
#[cfg(test)]
mod tests;
mod texts;

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::transform::Striking;
use sekisho_config::{Direction, GuardFailure, GuardRule, GuardsConfig, OnMatch};
use sekisho_core::call::ToolOutput;
use sekisho_core::guard_finding::{GuardAction, GuardFinding};
use sekisho_core::tool_scope::matches;
use sekisho_guards::{Choice, MAX_RULES_BYTES, Rules};

pub use self::services::GuardServices;
pub(crate) use self::texts::{texts_of, texts_of_arguments, texts_of_value};

/// Findings of one rule in one call that are recorded.
const MAX_FOUND: usize = 8;

/// The rules of a configuration, and of its file.
#[derive(Debug, Default)]
pub struct GuardRules {
    config: GuardsConfig,
    rules: Option<Arc<Rules>>,
    arguments: Vec<Arc<Guard>>,
    answers: Vec<Arc<Guard>>,
    descriptions: Vec<Arc<Guard>>,
}

/// The rules for the calls of one tool; not empty.
#[derive(Debug)]
pub struct Guards {
    arguments: Vec<Arc<Guard>>,
    answers: Vec<Arc<Guard>>,
}

/// A rule, for one direction.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) name: Arc<str>,
    pub(crate) on_match: OnMatch,
    pub(crate) service: Option<Arc<str>>,
    pub(crate) on_failure: GuardFailure,
    direction: Direction,
    tools: Vec<String>,
    sources: Vec<String>,
    tenants: Vec<String>,
    choice: Choice,
    striking: Striking,
}

/// Why the file of rules cannot be used.
#[derive(Debug, Error)]
#[error("tools.guards.rules_file: {}: {problem}", file.display())]
pub struct InvalidRulesFile {
    file: PathBuf,
    problem: String,
}

impl GuardRules {
    /// The rules of a configuration; `before` where it is the same one, so that a file that was changed behind it loosens nothing.
    /// Errors: [`InvalidRulesFile`]: without it, or without rules in it, nothing would be found.
    pub(crate) fn of(config: &GuardsConfig, before: &Arc<Self>) -> Result<Arc<Self>, InvalidRulesFile> {
        if before.config == *config {
            return Ok(Arc::clone(before));
        }
        let rules = match &config.rules_file {
            None => Rules::shipped(),
            Some(file) => {
                let problem = |problem| InvalidRulesFile { file: file.clone(), problem };
                let text = read(file).map_err(problem)?;
                let rules = Rules::parse(&text).map_err(|error| problem(error.to_string()))?;
                match missing_in(&rules, config) {
                    Some(missing) => return Err(problem(missing)),
                    None => Arc::new(rules),
                }
            }
        };
        let of = |direction: Direction| -> Vec<_> {
            let chosen = config.rules.iter().filter(|rule| rule.directions.contains(&direction));
            chosen.map(|rule| Arc::new(Guard::new(rule, direction, &rules))).collect()
        };
        Ok(Arc::new(Self {
            config: config.clone(),
            arguments: of(Direction::Arguments),
            answers: of(Direction::Answers),
            descriptions: of(Direction::Descriptions),
            rules: Some(rules),
        }))
    }

    /// The rules of the detectors.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.clone().unwrap_or_else(Rules::shipped)
    }

    /// The rules for a tool; `None` if there are none.
    pub(crate) fn for_tool(&self, name: &str, source: &str) -> Option<Arc<Guards>> {
        let chosen = |guards: &[Arc<Guard>]| -> Vec<_> {
            guards.iter().filter(|guard| guard.is_for(name, source)).cloned().collect()
        };
        let guards = Guards { arguments: chosen(&self.arguments), answers: chosen(&self.answers) };
        (!guards.arguments.is_empty() || !guards.answers.is_empty()).then(|| Arc::new(guards))
    }

    /// Whether any rule looks at descriptions.
    pub(crate) fn look_at_descriptions(&self) -> bool {
        !self.descriptions.is_empty()
    }

    /// The findings in the description of a tool. `texts`: all that its source says.
    pub(crate) fn of_description(&self, name: &str, source: &str, texts: &[Cow<'_, str>]) -> Vec<GuardFinding> {
        let guards = self.descriptions.iter().filter(|guard| guard.is_for(name, source));
        guards.flat_map(|guard| guard.findings(texts)).collect()
    }
}

impl Guards {
    pub(crate) fn for_arguments(&self, tenant: &str) -> impl Iterator<Item = &Arc<Guard>> {
        self.arguments.iter().filter(move |guard| guard.is_for_tenant(tenant))
    }

    pub(crate) fn for_answers(&self, tenant: &str) -> impl Iterator<Item = &Arc<Guard>> {
        self.answers.iter().filter(move |guard| guard.is_for_tenant(tenant))
    }
}

impl Guard {
    fn new(config: &GuardRule, direction: Direction, rules: &Arc<Rules>) -> Self {
        let choice = Choice::new(rules, &config.detect, &config.countries, direction);
        Self {
            name: config.name.as_str().into(),
            on_match: config.on_match,
            service: config.service.as_deref().map(Into::into),
            on_failure: config.on_failure,
            direction,
            tools: config.tools.clone(),
            sources: config.sources.clone(),
            tenants: config.tenants.clone(),
            striking: Striking::new(&config.name, choice.clone()),
            choice,
        }
    }

    fn is_for(&self, tool: &str, source: &str) -> bool {
        let is_one = |patterns: &[String], name: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
        };
        is_one(&self.tools, tool) && is_one(&self.sources, source)
    }

    fn is_for_tenant(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.iter().any(|one| one == tenant)
    }

    /// What its detectors find.
    pub(crate) fn findings(&self, texts: &[Cow<'_, str>]) -> Vec<GuardFinding> {
        let mut findings: Vec<GuardFinding> = Vec::new();
        for found in texts.iter().flat_map(|text| self.choice.find(text)) {
            let named = format!("{}/{}", found.detector.as_str(), found.rule);
            if findings.iter().all(|finding| *finding.found != named) && findings.len() < MAX_FOUND {
                findings.push(self.finding(&named, self.action()));
            }
        }
        findings
    }

    pub(crate) fn finding(&self, found: &str, action: GuardAction) -> GuardFinding {
        let rule = Arc::clone(&self.name);
        GuardFinding { direction: self.direction.as_str(), rule, found: found.into(), action }
    }

    pub(crate) fn action(&self) -> GuardAction {
        match self.on_match {
            OnMatch::Label => GuardAction::Label,
            OnMatch::Mask => GuardAction::Mask,
            OnMatch::Block => GuardAction::Block,
        }
    }

    pub(crate) fn direction(&self) -> &'static str {
        self.direction.as_str()
    }

    pub(crate) fn mask_text(&self, text: &mut String) {
        self.striking.strike_text(text);
    }

    /// Replaces what its detectors find in all forms of an answer.
    pub(crate) fn mask(&self, output: &mut ToolOutput) {
        self.striking.strike(output);
    }
}

/// The first detector or country of the configuration for which a file has no rule, so that nothing would be found.
fn missing_in(rules: &Rules, config: &GuardsConfig) -> Option<String> {
    let known = rules.countries();
    for GuardRule { name, detect, directions, countries, .. } in &config.rules {
        if let Some(country) = countries.iter().find(|country| !known.contains(country.as_str())) {
            return Some(format!("it has no rule of the country {country:?} of tools.guards ({name})"));
        }
        for direction in directions {
            if let Some(detector) = detect.iter().find(|detector| !rules.search_for(**detector, *direction)) {
                let (detector, direction) = (detector.as_str(), direction.as_str());
                return Some(format!("it has no rule of {detector} for {direction}, which tools.guards has ({name})"));
            }
        }
    }
    None
}

fn read(file: &Path) -> Result<String, String> {
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let mut text = String::new();
    opened.take(MAX_RULES_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > MAX_RULES_BYTES {
        true => Err(format!("it has more than {MAX_RULES_BYTES} bytes")),
        false => Ok(text),
    }
}
