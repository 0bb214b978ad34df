use schemars::JsonSchema;
use serde::Deserialize;

/// Approval of calls by a person.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// Whether approvers may approve their own calls, for a gateway with one user.
    #[serde(rename = "self")]
    pub own: bool,
}

/// Which calls of a tool a person must approve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalRule {
    /// None, unless a policy asks for it.
    #[default]
    Never,
    /// Those of a caller for whom no call of this version of the tool was approved yet.
    FirstUse,
    Always,
}
