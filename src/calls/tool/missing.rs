//! Requirements of a tool that a caller does not meet, for listings.

use serde::Serialize;
use utoipa::ToSchema;

/// A requirement of a tool that the caller does not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Missing {
    /// `tenant` for a tool of another tenant, `tools` for one that the caller's key or endpoint leaves out, `roles`, `requires_auth`,
    /// `dangerous`, `scopes` for those of its token, or `policy` for a rule of the policy set.
    pub check: &'static str,
    /// The values of which one is sufficient.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    pub message: String,
}
