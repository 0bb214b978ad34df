//! `tools.transform`: rules that change arguments before they are sent, and results before they are returned.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json_path::JsonPath;

use super::check::Findings;
use sekisho_guards::Detector;

/// Maximum rules of a list: each is applied to every call of its tools.
const MAX_RULES: usize = 100;

/// Rules by the part of a call that they change. They apply in their order.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransformConfig {
    /// For valid arguments, which must still be valid then. Policies and approvers see what is sent.
    pub arguments: Vec<TransformRule>,
    /// For results, which must still match the tool's output schema then, and for what a failed tool says.
    pub results: Vec<TransformRule>,
}

/// Replaces values, or what detectors find in them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformRule {
    /// In receipts and metrics: letters, digits, `_` and `-`.
    pub name: String,
    /// Names of tools; a final `*` matches any rest. Empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// JSONPaths (RFC 9535) of the values. Empty, with `detect`: everything, texts for models and clients included.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Replaces only what these find, in all texts of the values. Empty: replaces the values.
    #[serde(default)]
    pub detect: Vec<Detector>,
    /// The replacement; with `detect` a text. Default: `[redacted]`.
    #[serde(default)]
    pub replace: Option<Value>,
}

impl TransformConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        for (list, rules) in [("arguments", &self.arguments), ("results", &self.results)] {
            let setting = format!("tools.transform.{list}");
            if rules.len() > MAX_RULES {
                findings.add(&setting, format!("has more than {MAX_RULES} rules"), "give one rule several paths");
            }
            let mut names = BTreeSet::new();
            for (index, rule) in rules.iter().enumerate() {
                let setting = format!("{setting}[{index}]");
                rule.check(&setting, findings);
                if !names.insert(&rule.name) {
                    findings.add(format!("{setting}.name"), "is a duplicate", "give each rule its own name");
                }
                let replaces_all = rule.detect.is_empty() && rule.paths.iter().any(|path| path.trim() == "$");
                if list == "arguments" && replaces_all {
                    findings.add(format!("{setting}.paths"), "replaces all arguments", "write the path of a value");
                }
            }
        }
    }
}

impl TransformRule {
    fn check(&self, setting: &str, findings: &mut Findings) {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if self.name.is_empty() || self.name.len() > 64 || !is_name(&self.name) {
            findings.add(format!("{setting}.name"), "is no name", "use up to 64 letters, digits, `_` and `-`");
        }
        let has_inner_star = |pattern: &String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        if self.tools.iter().any(has_inner_star) {
            findings.add(format!("{setting}.tools"), "has a `*` that is not at the end", "write `crm__*`");
        }
        if self.paths.is_empty() && self.detect.is_empty() {
            findings.add(setting, "changes nothing", "set `paths`, `detect` or both");
        }
        for (index, path) in self.paths.iter().enumerate() {
            if let Err(problem) = JsonPath::parse(path) {
                let problem = format!("is no JSONPath: {problem}");
                findings.add(
                    format!("{setting}.paths[{index}]"),
                    problem,
                    "write it like `$.customer.email` (RFC 9535)",
                );
            }
        }
        if !self.detect.is_empty() && self.replace.as_ref().is_some_and(|replace| !replace.is_string()) {
            findings.add(
                format!("{setting}.replace"),
                "is no text",
                "with `detect`, write what takes its place in a text",
            );
        }
    }
}
