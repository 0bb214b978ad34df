//! The requirement of a refused call: a decision, or a sign-in.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The approval that a refused call needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeededApproval {
    /// For the header `X-Approval-Id` of the same call.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// RFC 3339: when it can no longer be given, or be used.
    pub expires_at: String,
    /// The page where an approver decides.
    pub url: String,
}

/// Where the caller of a refused call signs in to its upstream.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeededSignIn {
    /// The page of this gateway where the sign-in begins.
    pub url: String,
    /// For that page, in a browser that is not signed in to the console as the caller. Whoever has it can sign the caller in.
    pub code: String,
    /// RFC 3339: how long both can be used.
    pub expires_at: String,
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: String,
}

crate::debug_fields!(NeededSignIn { source });
