//! The codes of errors, and the meaning of each for the call.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The closed list of error codes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ErrorCode {
    InvalidRequest,
    InvalidArguments,
    /// An agent's conversation is longer than its model can read.
    ContextLengthExceeded,
    /// The model's provider refused a request.
    ModelRefused,
    Unauthenticated,
    /// The caller must sign in to the upstream.
    SignInRequired,
    BudgetExceeded,
    TokenLimitExceeded,
    Denied,
    ApprovalRequired,
    /// An approver denied the call.
    ApprovalDenied,
    ApprovalExpired,
    /// The approval is for another call.
    ApprovalMismatch,
    ToolChanged,
    UnknownTool,
    UnknownSession,
    UnknownResult,
    /// Nothing of that name, or nothing that the caller may know.
    NotFound,
    ConversationLocked,
    IdempotencyConflict,
    /// The call was started, and whoever ran it stopped before its answer.
    UnknownOutcome,
    /// A program that was resumed did something else than before.
    ReplayDiverged,
    /// The stored state of an interpreter's session cannot be opened: the next call begins anew.
    SessionLost,
    TooLarge,
    UnsupportedMediaType,
    InvalidOutput,
    RateLimited,
    Internal,
    UpstreamError,
    /// No token for the upstream was given for the caller's.
    TokenExchangeFailed,
    OutputTooLarge,
    Overloaded,
    CircuitOpen,
    WarmingUp,
    Timeout,
    SandboxTimeout,
    ToolError,
    SandboxMemory,
    SandboxOutput,
    SandboxTrap,
    /// Another tenant, or all tenants together, use the name.
    NameTaken,
    /// The record of the approval cannot be opened: the key that sealed it is not in force.
    ApprovalLost,
    /// The client disconnected. Only in logs, metrics and the audit trail: no reply can be sent.
    Cancelled,
}

crate::as_str!(ErrorCode);

impl ErrorCode {
    /// In the order of their numbers.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Whether the same call may succeed later without a change by anyone.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::CircuitOpen
                | Self::WarmingUp
                | Self::Timeout
                | Self::UpstreamError
                | Self::ConversationLocked
        )
    }

    /// The tool ran and reported failure: a result, not an error of the pipeline.
    pub fn is_reported_by_tool(self) -> bool {
        matches!(
            self,
            Self::ToolError | Self::SandboxMemory | Self::SandboxOutput | Self::SandboxTrap | Self::SandboxTimeout
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
