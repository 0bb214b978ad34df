//! A finding of a rule of `tools.guards` in a call, for its receipt, the metrics and the audit trail. Never the text that it found.

use std::sync::Arc;

use serde::Serialize;

/// A finding of a rule, or the failure of its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardFinding {
    /// `arguments` or `answers`.
    pub direction: &'static str,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The detector and its rule, or the category that a service named.
    pub found: Arc<str>,
    pub action: GuardAction,
}

/// What followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GuardAction {
    Label,
    Mask,
    Block,
    /// The service did not answer, and the rule lets the call pass then.
    Unanswered,
}

crate::as_str!(GuardAction);

/// Whether an answer counts as text of strangers by one of these.
pub fn is_labelled(findings: &[GuardFinding]) -> bool {
    let is_label = |finding: &GuardFinding| {
        finding.direction == "answers" && matches!(finding.action, GuardAction::Label | GuardAction::Unanswered)
    };
    findings.iter().any(is_label)
}
