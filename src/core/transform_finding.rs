//! The change that a rule of `tools.transform` made in a call, for its receipt and the metrics. Never the text that the
//! rule found.

use std::sync::Arc;

use serde::Serialize;

/// How much one path of a rule has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TransformFinding {
    pub part: TransformedPart,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The JSONPath as it is configured: the exact place of a finding may repeat the finding.
    pub path: Arc<str>,
    pub count: usize,
}

/// The part of a call that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TransformedPart {
    Arguments,
    Results,
}

crate::as_str!(TransformedPart);

/// The names of the rules, each once, for a message.
pub fn names_of(findings: &[TransformFinding]) -> String {
    let mut names: Vec<_> = findings.iter().map(|finding| format!("`{}`", finding.rule)).collect();
    names.dedup();
    names.join(", ")
}
