//! What keeps a caller from a tool, for lists that show it.

use serde::Serialize;
use utoipa::ToSchema;

/// What keeps a caller from a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Missing {
    /// `roles`, `requires_auth`, `dangerous`, or `policy` for a rule of the policy set.
    pub check: &'static str,
    /// One of these would do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    pub message: String,
}
