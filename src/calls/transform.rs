//! Changes the arguments of calls before they are sent, and their results before they are returned, by the rules of
//! `tools.transform`. The findings of a rule are counted and replaced, and kept nowhere.
//!
//! [`rule`] applies one rule to a value or a text, [`answer`] all rules to an answer of a tool in all its forms,
//! [`messages`] to the messages of a running call to its client. `sekisho-guards` has the detectors.

mod answer;
mod messages;
mod rule;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use self::rule::Rule;
use sekisho_config::{Detector, TransformConfig, TransformRule};
use sekisho_core::call::Arguments;
use sekisho_core::transform_finding::{TransformFinding, TransformedPart};
use sekisho_guards::{Choice, Direction, Rules};

pub(crate) use self::answer::Striking;
pub use self::messages::TransformedPeer;
pub use self::rule::InvalidRule;
pub(crate) use self::rule::json_of_text;

/// In place of what [`masked`] finds.
const MASK: &str = "[masked]";

static MASKED: LazyLock<Choice> = LazyLock::new(|| {
    let all = [Detector::Secrets, Detector::Emails, Detector::CardNumbers];
    Choice::new(&Rules::shipped(), &all, &[], Direction::Answers)
});

/// The text with the secrets, e-mail addresses and card numbers that the detectors find masked.
pub fn masked(text: &str) -> Cow<'_, str> {
    MASKED.strike(text, MASK).map_or(Cow::Borrowed(text), |(struck, _)| Cow::Owned(struck))
}

/// The rules of a configuration.
#[derive(Debug, Default)]
pub struct TransformRules {
    arguments: Vec<Arc<Rule>>,
    results: Vec<Arc<Rule>>,
}

/// The rules for the calls of one tool; not empty.
#[derive(Debug)]
pub struct Transforms {
    arguments: Vec<Arc<Rule>>,
    results: Vec<Arc<Rule>>,
}

impl TransformRules {
    /// Errors: a rule with a path that is no JSONPath.
    pub fn compile(config: &TransformConfig, rules: &Arc<Rules>) -> Result<Self, InvalidRule> {
        let compile = |list: &[TransformRule], direction: Direction| {
            list.iter().map(|rule| Rule::compile(rule, rules, direction).map(Arc::new)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            arguments: compile(&config.arguments, Direction::Arguments)?,
            results: compile(&config.results, Direction::Answers)?,
        })
    }

    /// The rules for a tool; `None` if there are none.
    pub fn for_tool(&self, name: &str) -> Option<Arc<Transforms>> {
        let chosen = |rules: &[Arc<Rule>]| rules.iter().filter(|rule| rule.is_for(name)).cloned().collect::<Vec<_>>();
        let transforms = Transforms { arguments: chosen(&self.arguments), results: chosen(&self.results) };
        let is_empty = transforms.arguments.is_empty() && transforms.results.is_empty();
        (!is_empty).then(|| Arc::new(transforms))
    }

    /// Whether any rule changes results.
    pub fn change_results(&self) -> bool {
        !self.results.is_empty()
    }
}

impl Transforms {
    pub fn change_arguments(&self, arguments: &mut Arguments) -> Vec<TransformFinding> {
        let mut findings = Vec::new();
        if self.arguments.is_empty() {
            return findings;
        }
        let mut value = Value::Object(std::mem::take(arguments));
        for rule in &self.arguments {
            let mut counts = rule.no_counts();
            rule.change(&mut value, &mut counts);
            findings.extend(rule.findings(TransformedPart::Arguments, &counts));
        }
        // No rule replaces the whole: the configuration refuses it.
        if let Value::Object(members) = value {
            *arguments = members;
        }
        findings
    }

    pub fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    pub fn has_results(&self) -> bool {
        !self.results.is_empty()
    }
}
