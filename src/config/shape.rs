//! The part of an override that changes the arguments and results of a tool, and its cases.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::check::Findings;
use super::tools::ToolOverride;

/// Maximum cases of a tool.
const MAX_CASES: usize = 100;

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

/// A case of an override, which `sekisho tools test` runs: either a result with the expected output, or arguments with the
/// expected ones that are sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideCase {
    pub name: String,
    /// A result of the tool.
    #[serde(default)]
    pub result: Option<Value>,
    /// Its projection.
    #[serde(default)]
    pub output: Option<Value>,
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
        if self.cases.len() > MAX_CASES {
            findings.add(setting("cases"), format!("has more than {MAX_CASES} cases"), "keep the important ones");
        }
        for (index, _) in self.cases.iter().enumerate().filter(|(_, case)| !case.is_complete()) {
            let problem = "has neither a result with its output, nor arguments with the sent ones";
            let advice = "write `result` and `output`, or `arguments` and `sent`, or `error` in place of the second";
            findings.add(setting(&format!("cases[{index}]")), problem, advice);
        }
    }
}

impl OverrideCase {
    /// An `output` that is left out is null.
    fn is_complete(&self) -> bool {
        let Self { result, output, arguments, sent, error, .. } = self;
        match (result, arguments) {
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
            ("{name: a}", false),
        ] {
            let case: OverrideCase = serde_saphyr::from_str(case).unwrap();
            assert_eq!(case.is_complete(), is_complete, "{case:?}");
        }
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
