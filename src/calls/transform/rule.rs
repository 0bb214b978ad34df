//! One rule, applied to a value or to a text.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use serde_json_path::{JsonPath, NormalizedPath};
use thiserror::Error;

use sekisho_config::TransformRule;
use sekisho_core::json;
use sekisho_core::tool_scope::matches;
use sekisho_core::transform_finding::{TransformFinding, TransformedPart};
use sekisho_guards::{Choice, Direction, Rules};

/// The replacement of a rule without one of its own.
const REDACTED: &str = "[redacted]";

/// The whole value.
const WHOLE: &str = "$";

/// Why a rule cannot be used.
#[derive(Debug, Error)]
#[error("the rule {rule:?} of tools.transform has a path that is no JSONPath: {problem}")]
pub struct InvalidRule {
    rule: String,
    problem: serde_json_path::ParseError,
}

#[derive(Debug)]
pub(super) struct Rule {
    name: Arc<str>,
    tools: Vec<String>,
    paths: Vec<Path>,
    /// The findings that are replaced in the texts of its selection; `None`: the selection.
    detectors: Option<Choice>,
    replacement: Value,
    /// It replaces the findings of its detectors, wherever they are.
    anywhere: bool,
}

#[derive(Debug)]
struct Path {
    text: Arc<str>,
    selector: JsonPath,
}

impl Rule {
    /// `direction`: of the texts that it is for.
    pub(super) fn compile(
        config: &TransformRule,
        rules: &Arc<Rules>,
        direction: Direction,
    ) -> Result<Self, InvalidRule> {
        let TransformRule { name, tools, paths, detect, replace } = config;
        let anywhere = paths.is_empty();
        let whole = [WHOLE.to_owned()];
        let paths = if anywhere { &whole[..] } else { paths.as_slice() };
        let compile = |path: &String| match JsonPath::parse(path) {
            Ok(selector) => Ok(Path { text: path.as_str().into(), selector }),
            Err(problem) => Err(InvalidRule { rule: name.clone(), problem }),
        };
        Ok(Self {
            name: name.as_str().into(),
            tools: tools.clone(),
            paths: paths.iter().map(compile).collect::<Result<_, _>>()?,
            detectors: (!detect.is_empty()).then(|| Choice::new(rules, detect, &[], direction)),
            replacement: replace.clone().unwrap_or_else(|| REDACTED.into()),
            anywhere,
        })
    }

    /// Replaces the findings of these detectors, wherever they are.
    pub(super) fn striking(name: &str, detectors: Choice) -> Self {
        Self {
            name: name.into(),
            tools: Vec::new(),
            paths: vec![Path { text: WHOLE.into(), selector: JsonPath::default() }],
            detectors: Some(detectors),
            replacement: REDACTED.into(),
            anywhere: true,
        }
    }

    pub(super) fn is_for(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| matches(pattern, tool))
    }

    /// Whether it searches all texts, not only the texts that its paths select.
    pub(super) fn looks_anywhere(&self) -> bool {
        self.anywhere
    }

    /// How much each path has found before the rule is applied.
    pub(super) fn no_counts(&self) -> Vec<usize> {
        vec![0; self.paths.len()]
    }

    pub(super) fn findings(&self, part: TransformedPart, counts: &[usize]) -> impl Iterator<Item = TransformFinding> {
        let found = self.paths.iter().zip(counts).filter(|(_, count)| **count > 0);
        found.map(move |(path, count)| TransformFinding {
            part,
            rule: Arc::clone(&self.name),
            path: Arc::clone(&path.text),
            count: *count,
        })
    }

    /// Changes the selection of its paths. A text that is JSON is changed like its value.
    pub(super) fn change(&self, value: &mut Value, counts: &mut [usize]) {
        if let Value::String(text) = value
            && !self.replaces_whole()
            && self.change_json(text, counts)
        {
            return;
        }
        self.change_value(value, counts);
    }

    /// Changes a text in place of a value: like the value if it is JSON, otherwise as the selection of a path that
    /// selects the whole. Returns whether it is one of the two.
    pub(super) fn change_text(&self, text: &mut String, counts: &mut [usize]) -> bool {
        if !self.replaces_whole() && self.change_json(text, counts) {
            return true;
        }
        if !self.selects_whole() {
            return false;
        }
        let mut value = Value::String(std::mem::take(text));
        self.change_value(&mut value, counts);
        *text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        true
    }

    /// Counts findings without a path.
    pub(super) fn add(found: usize, counts: &mut [usize]) {
        if let Some(count) = counts.first_mut() {
            *count += found;
        }
    }

    /// Whether the text is a JSON object or array, which is changed.
    fn change_json(&self, text: &mut String, counts: &mut [usize]) -> bool {
        let Some(mut value) = json_of_text(text) else { return false };
        let before: usize = counts.iter().sum();
        self.change_value(&mut value, counts);
        if counts.iter().sum::<usize>() > before {
            *text = value.to_string();
        }
        true
    }

    /// Replaces the findings of its detectors in all texts of a value.
    pub(super) fn strike(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => self.strike_text(text),
            Value::Array(items) => items.iter_mut().map(|item| self.strike(item)).sum(),
            Value::Object(members) => self.strike_members(members),
            // A card number may be an integer.
            Value::Number(number) if number.is_u64() => {
                let mut digits = number.to_string();
                let count = self.strike_text(&mut digits);
                if count > 0 {
                    *value = digits.into();
                }
                count
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    /// As [`strike`](Self::strike), for an object's members and their names.
    pub(super) fn strike_members(&self, members: &mut Map<String, Value>) -> usize {
        let in_values: usize = members.values_mut().map(|member| self.strike(member)).sum();
        let found_in = |name: &String| self.struck(name).is_some();
        if !members.keys().any(found_in) {
            return in_values;
        }
        let (mut in_names, mut numbers) = (0, HashMap::new());
        for (mut name, member) in std::mem::take(members) {
            in_names += self.strike_text(&mut name);
            let name = unused(name, members, &mut numbers);
            members.insert(name, member);
        }
        in_values + in_names
    }

    /// Replaces the findings of its detectors in a text.
    pub(super) fn strike_text(&self, text: &mut String) -> usize {
        match self.struck(text) {
            Some((struck, count)) => {
                *text = struck;
                count
            }
            None => 0,
        }
    }

    fn struck(&self, text: &str) -> Option<(String, usize)> {
        self.detectors.as_ref()?.strike(text, self.text())
    }

    fn change_value(&self, value: &mut Value, counts: &mut [usize]) {
        for (path, count) in self.paths.iter().zip(counts) {
            let places: Vec<_> =
                path.selector.query_located(value).locations().map(NormalizedPath::to_json_pointer).collect();
            // A place inside of one that was replaced is gone.
            for place in places {
                *count += value.pointer_mut(&place).map_or(0, |selected| self.change_selected(selected));
            }
        }
    }

    fn change_selected(&self, selected: &mut Value) -> usize {
        if self.detectors.is_some() {
            return self.strike(selected);
        }
        let is_new = *selected != self.replacement;
        if is_new {
            selected.clone_from(&self.replacement);
        }
        usize::from(is_new)
    }

    /// Whether it replaces a value as a whole, with any content.
    fn replaces_whole(&self) -> bool {
        self.detectors.is_none() && self.selects_whole()
    }

    /// So does a rule without paths.
    fn selects_whole(&self) -> bool {
        self.paths.iter().any(|path| path.text.trim() == WHOLE)
    }

    /// The replacement of a part of a text.
    fn text(&self) -> &str {
        self.replacement.as_str().unwrap_or(REDACTED)
    }
}

/// The text, if it is a JSON object or array. Read leniently, so that no path misses a value.
pub(crate) fn json_of_text(text: &str) -> Option<Value> {
    text.trim_start().starts_with(['{', '[']).then(|| json::lenient(text).ok()).flatten()
}

/// The name, with a number if there is such a member. `numbers`: by name the next one to try, since thousands of names may become
/// one.
fn unused(name: String, members: &Map<String, Value>, numbers: &mut HashMap<String, usize>) -> String {
    if !members.contains_key(&name) {
        return name;
    }
    let number = numbers.entry(name.clone()).or_insert(2);
    loop {
        let unused = format!("{name} {number}");
        *number += 1;
        if !members.contains_key(&unused) {
            return unused;
        }
    }
}
