//! The checks of an agent's answer.

use serde::Serialize;
use serde_json::{Map, Value};

use super::case::{Expectation, ExpectedCall};
use crate::message::RequestedCall;
use crate::output_format::unfenced;
use crate::prompts::beginning;
use sekisho_core::json;

/// Characters of a value in a sentence.
const MAX_SHOWN: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// `calls`, `arguments`, `text_contains`, `json`, `judge`, or `run` for a run without an answer.
    pub name: &'static str,
    pub passed: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Check {
    pub(super) fn passed(name: &'static str) -> Self {
        Self { name, passed: true, problem: None }
    }

    pub(super) fn failed(name: &'static str, problem: String) -> Self {
        Self { name, passed: false, problem: Some(problem) }
    }

    fn new(name: &'static str, problem: Option<String>) -> Self {
        problem.map_or_else(|| Self::passed(name), |problem| Self::failed(name, problem))
    }
}

/// All checks but the judge's.
pub(super) fn of(expect: &Expectation, calls: &[RequestedCall], text: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(expected) = &expect.calls {
        let names = other_tools(expected, calls);
        // Without the same tools there are no arguments to compare.
        let arguments = names.is_none().then(|| Check::new("arguments", other_arguments(expected, calls)));
        let has_arguments = expected.iter().any(|call| call.arguments.is_some());
        checks.push(Check::new("calls", names));
        checks.extend(arguments.filter(|_| has_arguments));
    }
    checks.extend(expect.text_contains.iter().map(|part| {
        let missing = || format!("the answer has no {part:?}: {:?}", beginning(text, MAX_SHOWN));
        Check::new("text_contains", (!text.contains(part.as_str())).then(missing))
    }));
    checks.extend(expect.json.as_ref().map(|expected| Check::new("json", other_json(expected, text))));
    checks
}

fn other_tools(expected: &[ExpectedCall], calls: &[RequestedCall]) -> Option<String> {
    let expected: Vec<_> = expected.iter().map(|call| call.tool.as_str()).collect();
    let made: Vec<_> = calls.iter().map(|call| call.tool.as_str()).collect();
    (made != expected).then(|| {
        let named = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("expected calls: {}; made: {}", named(&expected), named(&made))
    })
}

fn other_arguments(expected: &[ExpectedCall], calls: &[RequestedCall]) -> Option<String> {
    expected.iter().zip(calls).find_map(|(expected, call)| {
        let wanted = expected.arguments.as_ref()?;
        let is_same = call.read_arguments().is_ok_and(|made| same_members(wanted, &made));
        let wanted = Value::Object(wanted.clone()).to_string();
        let (wanted, made) = (beginning(&wanted, MAX_SHOWN), beginning(&call.arguments, MAX_SHOWN));
        (!is_same).then(|| format!("expected of `{}`: {wanted}; sent: {made}", call.tool))
    })
}

fn other_json(expected: &Value, text: &str) -> Option<String> {
    match json::parse(unfenced(text.trim()).as_bytes()) {
        Ok(found) if same(expected, &found) => None,
        Ok(found) => Some(format!("the answer is {}", beginning(&found.to_string(), MAX_SHOWN))),
        Err(problem) => Some(format!("the answer is no JSON: {problem}")),
    }
}

/// Whether two values are equal; 2 and 2.0 are.
pub(super) fn same(first: &Value, second: &Value) -> bool {
    match (first, second) {
        // Not of two integers: large ones are the same fraction.
        (Value::Number(first), Value::Number(second)) if first.is_f64() || second.is_f64() => {
            first.as_f64() == second.as_f64()
        }
        (Value::Array(first), Value::Array(second)) => {
            first.len() == second.len() && first.iter().zip(second).all(|(first, second)| same(first, second))
        }
        (Value::Object(first), Value::Object(second)) => same_members(first, second),
        (first, second) => first == second,
    }
}

pub(super) fn same_members(first: &Map<String, Value>, second: &Map<String, Value>) -> bool {
    let has = |(name, value): (&String, &Value)| second.get(name).is_some_and(|other| same(value, other));
    first.len() == second.len() && first.iter().all(has)
}
