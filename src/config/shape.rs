//! The part of an override that changes the arguments and results of a tool, and its cases.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::check::Findings;
use super::tools::ToolOverride;

/// Maximum cases of a tool.
const MAX_CASES: usize = 100;

/// Maximum arguments of a tool with values of other tools: each is a call.
const MAX_ENUMERATED: usize = 10;

/// The shortest time for which values count.
const MIN_SECONDS: u32 = 30;

/// The form in which a model gets a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Summary {
    /// Its list of objects as a table, as many rows as there is room for.
    Table,
    /// The names and types of its members, without values.
    Keys,
    /// Its shape and its beginning.
    Head,
}

/// Where the values of an argument are read.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Enumerate {
    /// A tool that only reads, by the name under which it is offered.
    pub tool: String,
    /// The arguments of the call of it.
    #[serde(default)]
    pub arguments: BTreeMap<String, Value>,
    /// The values in its answer: a JMESPath expression that selects a list.
    pub path: String,
    /// How long the values count before they are read again (300).
    #[serde(default)]
    pub seconds: Option<u32>,
}

impl Enumerate {
    pub fn age(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(300).into())
    }
}

/// A case of an override, which `sekisho tools test` runs: either a result with the expected output, or arguments with the
/// expected ones that are sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideCase {
    pub name: String,
    /// A result of the tool.
    #[serde(default)]
    pub result: Option<Value>,
    /// Its projection; with `enumerate` the values.
    #[serde(default)]
    pub output: Option<Value>,
    /// An argument whose values are read from `result`, which is then an answer of the tool that has them.
    #[serde(default)]
    pub enumerate: Option<String>,
    /// Arguments of a call. The source of the tool is asked for its schema.
    #[serde(default)]
    pub arguments: Option<BTreeMap<String, Value>>,
    /// The arguments that are sent.
    #[serde(default)]
    pub sent: Option<BTreeMap<String, Value>>,
    /// Instead of `output` or `sent`: a part of the error, or its code.
    #[serde(default)]
    pub error: Option<String>,
}

impl ToolOverride {
    /// Checks the values of arguments and the cases. Expressions are checked where the tools are built.
    pub(super) fn check_shape(&self, setting: impl Fn(&str) -> String, findings: &mut Findings) {
        for name in self.fix.keys().filter(|name| self.defaults.contains_key(*name)) {
            let problem = "has a fixed value, and so no default";
            findings.add(setting(&format!("defaults.{name}")), problem, "remove it here or in `fix`");
        }
        self.check_enumerated(&setting, findings);
        if self.cases.len() > MAX_CASES {
            findings.add(setting("cases"), format!("has more than {MAX_CASES} cases"), "keep the important ones");
        }
        for (index, _) in self.cases.iter().enumerate().filter(|(_, case)| !case.is_complete()) {
            let problem = "has neither a result with its output, nor arguments with the sent ones";
            let advice = "write `result` and `output`, or `arguments` and `sent`, or `error` in place of the second";
            findings.add(setting(&format!("cases[{index}]")), problem, advice);
        }
    }

    fn check_enumerated(&self, setting: impl Fn(&str) -> String, findings: &mut Findings) {
        if self.enumerate.len() > MAX_ENUMERATED {
            let problem = format!("has more than {MAX_ENUMERATED} arguments");
            findings.add(setting("enumerate"), problem, "keep those that models get wrong");
        }
        for (argument, from) in &self.enumerate {
            let at = |key: &str| setting(&format!("enumerate.{argument}{key}"));
            if self.fix.contains_key(argument) {
                findings.add(at(""), "has a fixed value, and so no others", "remove it here or in `fix`");
            }
            if from.seconds.is_some_and(|seconds| seconds < MIN_SECONDS) {
                let problem = format!("is less than {MIN_SECONDS}");
                findings.add(at(".seconds"), problem, "set how long the values count: each reading is a call");
            }
            findings.at_most_a_year(&at(".seconds"), from.seconds.unwrap_or_default().into());
        }
        let cases = self.cases.iter().enumerate();
        for (index, case) in cases.filter(|(_, case)| case.enumerate.is_some()) {
            let is_known = case.enumerate.as_ref().is_some_and(|argument| self.enumerate.contains_key(argument));
            if !is_known {
                let problem = "names an argument without values of another tool";
                let advice = "name one of `enumerate` of the override";
                findings.add(setting(&format!("cases[{index}].enumerate")), problem, advice);
            }
        }
    }
}

impl OverrideCase {
    /// An `output` that is left out is null.
    fn is_complete(&self) -> bool {
        let Self { result, output, enumerate, arguments, sent, error, .. } = self;
        match (result, arguments) {
            (None, _) if enumerate.is_some() => false,
            (Some(_), None) => sent.is_none() && !(output.is_some() && error.is_some()),
            (None, Some(_)) => output.is_none() && sent.is_some() != error.is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_one_input_and_one_expectation() {
        for (case, is_complete) in [
            ("{name: a, result: {x: 1}, output: 1}", true),
            ("{name: a, result: {x: 1}}", true),
            ("{name: a, result: {x: 1}, error: b}", true),
            ("{name: a, result: {x: 1}, output: 1, error: b}", false),
            ("{name: a, result: {x: 1}, sent: {}}", false),
            ("{name: a, arguments: {}, sent: {}}", true),
            ("{name: a, arguments: {}, error: b}", true),
            ("{name: a, arguments: {}}", false),
            ("{name: a, arguments: {}, sent: {}, error: b}", false),
            ("{name: a, arguments: {}, result: 1, sent: {}}", false),
            ("{name: a, enumerate: b, result: [1], output: [1]}", true),
            ("{name: a, enumerate: b, arguments: {}, sent: {}}", false),
            ("{name: a}", false),
        ] {
            let case: OverrideCase = serde_saphyr::from_str(case).unwrap();
            assert_eq!(case.is_complete(), is_complete, "{case:?}");
        }
    }

    #[test]
    fn values_of_another_tool_are_of_an_argument_that_is_not_fixed() {
        let changes: ToolOverride = serde_saphyr::from_str(
            "{fix: {a: 1}, enumerate: {a: {tool: t, path: x}, b: {tool: t, path: x, seconds: 29}, \
             c: {tool: t, path: x, seconds: 30}}, cases: [{name: one, enumerate: d, result: []}, \
             {name: two, enumerate: c, result: []}]}",
        )
        .unwrap();
        let mut findings = Findings::default();
        changes.check_shape(|key| format!("t.{key}"), &mut findings);
        let settings: Vec<_> = findings.found.iter().map(|finding| finding.setting.as_str()).collect();
        assert_eq!(settings, ["t.enumerate.a", "t.enumerate.b.seconds", "t.cases[0].enumerate"]);
        assert_eq!(changes.enumerate["a"].age().as_secs(), 300);
    }

    #[test]
    fn a_fixed_value_has_no_default() {
        let changes: ToolOverride =
            serde_saphyr::from_str("{fix: {a: 1}, defaults: {a: 2, b: 3}, cases: [{name: c}]}").unwrap();
        let mut findings = Findings::default();
        changes.check_shape(|key| format!("tools.overrides.t.{key}"), &mut findings);
        let settings: Vec<_> = findings.found.iter().map(|finding| finding.setting.as_str()).collect();
        assert_eq!(settings, ["tools.overrides.t.defaults.a", "tools.overrides.t.cases[0]"]);
    }
}
