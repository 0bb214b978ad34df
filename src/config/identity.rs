use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// As whom the gateway calls an upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The same for all callers: configured credentials, or the sign-in of one user.
    #[default]
    Shared,
    /// As the caller, who signs in to the upstream (OAuth 2.1, authorization code).
    PerUser,
}
