//! Rules as data: `rules.yaml`, or a file in its place, read and compiled.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, OnceLock};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use thiserror::Error;

use crate::anchors::Anchors;
use crate::numbers::Check;
use crate::{Detector, Direction, known};

/// Maximum bytes of a file of rules.
pub const MAX_RULES_BYTES: u64 = 1 << 20;
/// Maximum rules of a file: each that a text may fit is searched on its own.
const MAX_RULES: usize = 1_000;
/// Maximum memory of one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// Bytes of an anchor, and of all anchors of a file: the automaton has a row for each.
const MAX_ANCHOR_BYTES: usize = 64;
const MAX_ANCHORS_BYTES: usize = 64 << 10;
/// Other words between two words of a phrase.
const MAX_GAP: usize = 3;

/// The rules that come with the program. A test checks them like the rules in a file.
pub(crate) const SHIPPED_RULES: &str = include_str!("rules.yaml");

/// The rules of a file, and one automaton over the anchors of all.
#[derive(Debug)]
pub struct Rules {
    version: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) anchors: Anchors,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) detector: Detector,
    /// Empty: all.
    pub(crate) directions: Vec<Direction>,
    pub(crate) country: Option<String>,
    pub(crate) check: Option<Check>,
    pattern: String,
    /// Most rules have no anchor in any text, and an automaton takes half a megabyte.
    automaton: OnceLock<Regex>,
    pub(crate) has_anchors: bool,
    #[cfg(test)]
    pub(crate) examples: Vec<String>,
}

/// Why a file of rules cannot be used.
#[derive(Debug, Error)]
pub enum InvalidRules {
    #[error("it is no file of rules: {0}")]
    Form(String),
    #[error("the rule {rule:?} {problem}")]
    Rule { rule: String, problem: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    version: String,
    rules: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    id: String,
    detector: Detector,
    #[serde(default)]
    words: Vec<Vec<String>>,
    #[serde(default)]
    texts: Vec<String>,
    pattern: Option<String>,
    #[serde(default)]
    anchors: Vec<String>,
    #[serde(default)]
    directions: Vec<Direction>,
    country: Option<String>,
    check: Option<Check>,
    examples: Vec<String>,
}

impl Rules {
    /// The rules that come with the program.
    pub fn shipped() -> Arc<Self> {
        #[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
        static SHIPPED: LazyLock<Arc<Rules>> =
            LazyLock::new(|| Arc::new(Rules::read(SHIPPED_RULES).expect("rules.yaml").0));
        Arc::clone(&SHIPPED)
    }

    /// Errors: [`InvalidRules`], also for a rule that does not find its own examples.
    pub fn parse(text: &str) -> Result<Self, InvalidRules> {
        let (rules, entries) = Self::read(text)?;
        for (rule, entry) in rules.rules.iter().zip(entries) {
            entry.check(rule).map_err(|problem| InvalidRules::Rule { rule: entry.id, problem })?;
        }
        Ok(rules)
    }

    /// The rules, with patterns that are not checked.
    fn read(text: &str) -> Result<(Self, Vec<RuleEntry>), InvalidRules> {
        let file: RulesFile = serde_saphyr::from_str(text).map_err(|error| InvalidRules::Form(error.to_string()))?;
        if file.rules.is_empty() || file.rules.len() > MAX_RULES {
            return Err(InvalidRules::Form(format!("it has {} rules; write 1 to {MAX_RULES}", file.rules.len())));
        }
        let (mut rules, mut anchors) = (Vec::new(), Vec::new());
        let mut ids = HashSet::new();
        for entry in &file.rules {
            let invalid = |problem: String| InvalidRules::Rule { rule: entry.id.clone(), problem };
            if !is_id(&entry.id) || !ids.insert(entry.id.clone()) {
                return Err(invalid("has no id of its own; write letters, digits and `_`".to_owned()));
            }
            let own = entry.anchors().map_err(invalid)?;
            let rule = entry.rule(!own.is_empty()).map_err(invalid)?;
            anchors.extend(own.into_iter().map(|anchor| (anchor, rules.len())));
            rules.push(rule);
        }
        if anchors.iter().map(|(anchor, _)| anchor.len()).sum::<usize>() > MAX_ANCHORS_BYTES {
            return Err(InvalidRules::Form(format!("its anchors have more than {MAX_ANCHORS_BYTES} bytes")));
        }
        let anchors = Anchors::new(anchors).map_err(InvalidRules::Form)?;
        Ok((Self { version: file.version, rules, anchors }, file.rules))
    }

    /// The version that the file states.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The countries whose personal numbers are found.
    pub fn countries(&self) -> BTreeSet<&str> {
        self.rules.iter().filter_map(|rule| rule.country.as_deref()).collect()
    }

    /// Whether a detector can find something in texts of this direction.
    pub fn search_for(&self, detector: Detector, direction: Direction) -> bool {
        let is_for = |rule: &Rule| {
            rule.detector == detector && (rule.directions.is_empty() || rule.directions.contains(&direction))
        };
        known::finder(detector).is_some() || detector == Detector::HiddenText || self.rules.iter().any(is_for)
    }
}

impl RuleEntry {
    fn anchors(&self) -> Result<Vec<String>, String> {
        let anchors = if self.anchors.is_empty() { &self.texts } else { &self.anchors };
        let is_anchor =
            |text: &&String| (2..=MAX_ANCHOR_BYTES).contains(&text.len()) && !text.contains(char::is_whitespace);
        match anchors.iter().find(|text| !is_anchor(text)) {
            Some(anchor) if self.anchors.is_empty() => {
                Err(format!("has the text {anchor:?}: add `anchors` without a space, of 2 to {MAX_ANCHOR_BYTES} bytes"))
            }
            Some(anchor) => {
                Err(format!("has the anchor {anchor:?}; write 2 to {MAX_ANCHOR_BYTES} bytes, without a space"))
            }
            None if anchors.is_empty() && self.detector != Detector::PersonalNumbers => {
                Err("has no anchors; add texts of which each finding has one".to_owned())
            }
            None => Ok(anchors.iter().flat_map(|anchor| searched(anchor)).collect()),
        }
    }

    fn rule(&self, has_anchors: bool) -> Result<Rule, String> {
        let pattern = match (&self.pattern, self.words.is_empty(), self.texts.is_empty()) {
            (Some(pattern), true, true) => with_ascii_edges(pattern),
            (None, false, true) => phrase(&self.words),
            (None, true, false) => {
                let texts = self.texts.iter().map(|text| regex::escape(text).replace(' ', r"\s+"));
                texts.collect::<Vec<_>>().join("|")
            }
            _ => return Err("needs one of `words`, `texts` and `pattern`".to_owned()),
        };
        Ok(Rule {
            id: self.id.as_str().into(),
            detector: self.detector,
            directions: self.directions.clone(),
            country: self.country.clone(),
            check: self.check,
            pattern,
            automaton: OnceLock::new(),
            has_anchors,
            #[cfg(test)]
            examples: self.examples.clone(),
        })
    }

    /// Whether the rule can be used. One whose anchors are not in its findings would find nothing.
    fn check(&self, rule: &Rule) -> Result<(), String> {
        let anchors = self.anchors()?;
        let built = built(&rule.pattern).map_err(|error| format!("has a pattern that cannot be used: {error}"))?;
        if rule.automaton.get_or_init(|| built).is_match("") {
            return Err("finds something in every text".to_owned());
        }
        if self.examples.is_empty() {
            return Err("has no examples; add a text in which it finds something".to_owned());
        }
        let is_found = |example: &&String| {
            let lower = example.to_lowercase();
            rule.places(example).next().is_some()
                && (anchors.is_empty() || anchors.iter().any(|anchor| lower.contains(anchor.as_str())))
        };
        match self.examples.iter().find(|example| !is_found(example)) {
            Some(example) => Err(format!("does not find its example {example:?}, or has no anchor in it")),
            None => Ok(()),
        }
    }
}

impl Rule {
    /// The places of its findings in a text.
    pub(crate) fn places<'t>(&self, text: &'t str) -> impl Iterator<Item = std::ops::Range<usize>> + use<'_, 't> {
        #[expect(clippy::expect_used, reason = "patterns are checked, those of the program by a test")]
        let automaton = self.automaton.get_or_init(|| built(&self.pattern).expect("a checked pattern"));
        let found = automaton.find_iter(text);
        found.filter(|found| self.check.is_none_or(|check| check.passes(found.as_str()))).map(|found| found.range())
    }
}

fn built(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).case_insensitive(true).size_limit(MAX_PATTERN_BYTES).build()
}

/// The pattern of one word of each list, with few other words between two of them.
fn phrase(words: &[Vec<String>]) -> String {
    let mut pattern = String::new();
    for (index, list) in words.iter().enumerate() {
        if index > 0 {
            // Writing to a string cannot fail.
            let _ = write!(pattern, r"(?:[^\w'’]+[\w'’]+){{0,{MAX_GAP}}}?[^\w'’]+");
        }
        let words = list.join("|");
        pattern.push_str(&with_ascii_edges(&format!(r"\b(?:{words})\b")));
    }
    pattern
}

/// A pattern of ASCII with `\b` between letters of ASCII only. The search for others is many times slower in a text that has
/// other letters.
fn with_ascii_edges(pattern: &str) -> String {
    if !pattern.is_ascii() {
        return pattern.to_owned();
    }
    let (mut parts, mut is_escaped) = (String::with_capacity(pattern.len()), false);
    for letter in pattern.chars() {
        match (is_escaped, letter) {
            (false, '\\') => {}
            (false, _) => parts.push(letter),
            (true, 'b') => parts.push_str(r"(?-u:\b)"),
            (true, _) => parts.extend(['\\', letter]),
        }
        is_escaped = !is_escaped && letter == '\\';
    }
    parts.extend(is_escaped.then_some('\\'));
    parts
}

/// An anchor as it is searched: in lower case, and its longest part of ASCII, if that has two letters. Texts have capitals of
/// other letters, which only the rules take for the same.
fn searched(anchor: &str) -> Vec<String> {
    let lower = anchor.to_lowercase();
    let part = lower.split(|letter: char| !letter.is_ascii()).max_by_key(|part| part.len()).unwrap_or_default();
    match part.len() {
        2.. => vec![part.to_owned()],
        _ => vec![lower, anchor.to_uppercase()],
    }
}

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
