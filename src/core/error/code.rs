//! The codes of errors, and what each says of the call.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The closed list of error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// What was stored of a session of an interpreter cannot be opened: the next call begins anew.
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
    /// The client disconnected. Only in logs, metrics and the audit trail: no reply can be sent.
    Cancelled,
}

impl ErrorCode {
    /// In the order of their numbers.
    pub const ALL: [Self; 42] = [
        Self::InvalidRequest,
        Self::InvalidArguments,
        Self::ContextLengthExceeded,
        Self::ModelRefused,
        Self::Unauthenticated,
        Self::SignInRequired,
        Self::BudgetExceeded,
        Self::TokenLimitExceeded,
        Self::Denied,
        Self::ApprovalRequired,
        Self::ApprovalDenied,
        Self::ApprovalExpired,
        Self::ApprovalMismatch,
        Self::ToolChanged,
        Self::UnknownTool,
        Self::UnknownSession,
        Self::UnknownResult,
        Self::NotFound,
        Self::ConversationLocked,
        Self::IdempotencyConflict,
        Self::UnknownOutcome,
        Self::ReplayDiverged,
        Self::SessionLost,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidOutput,
        Self::RateLimited,
        Self::Internal,
        Self::UpstreamError,
        Self::TokenExchangeFailed,
        Self::OutputTooLarge,
        Self::Overloaded,
        Self::CircuitOpen,
        Self::WarmingUp,
        Self::Timeout,
        Self::SandboxTimeout,
        Self::ToolError,
        Self::SandboxMemory,
        Self::SandboxOutput,
        Self::SandboxTrap,
        Self::NameTaken,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidArguments => "invalid_arguments",
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::ModelRefused => "model_refused",
            Self::Unauthenticated => "unauthenticated",
            Self::SignInRequired => "sign_in_required",
            Self::BudgetExceeded => "budget_exceeded",
            Self::TokenLimitExceeded => "token_limit_exceeded",
            Self::Denied => "denied",
            Self::ApprovalRequired => "approval_required",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalMismatch => "approval_mismatch",
            Self::ToolChanged => "tool_changed",
            Self::UnknownTool => "unknown_tool",
            Self::UnknownSession => "unknown_session",
            Self::UnknownResult => "unknown_result",
            Self::NotFound => "not_found",
            Self::ConversationLocked => "conversation_locked",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::UnknownOutcome => "unknown_outcome",
            Self::ReplayDiverged => "replay_diverged",
            Self::SessionLost => "session_lost",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::InvalidOutput => "invalid_output",
            Self::RateLimited => "rate_limited",
            Self::Internal => "internal",
            Self::UpstreamError => "upstream_error",
            Self::TokenExchangeFailed => "token_exchange_failed",
            Self::OutputTooLarge => "output_too_large",
            Self::Overloaded => "overloaded",
            Self::CircuitOpen => "circuit_open",
            Self::WarmingUp => "warming_up",
            Self::Timeout => "timeout",
            Self::SandboxTimeout => "sandbox_timeout",
            Self::ToolError => "tool_error",
            Self::SandboxMemory => "sandbox_memory",
            Self::SandboxOutput => "sandbox_output",
            Self::SandboxTrap => "sandbox_trap",
            Self::NameTaken => "name_taken",
            Self::Cancelled => "cancelled",
        }
    }

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
