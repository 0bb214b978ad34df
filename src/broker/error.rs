//! Errors of an authorization server (RFC 6749 §4.1.2.1 and §5.2, RFC 7591 §3.2.2, RFC 8707 §2).

use serde::Serialize;

use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::StoreError;

/// The code of an error, as clients read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthErrorCode {
    AccessDenied,
    InvalidClient,
    InvalidClientMetadata,
    InvalidGrant,
    InvalidRedirectUri,
    InvalidRequest,
    InvalidTarget,
    ServerError,
    TemporarilyUnavailable,
    UnsupportedGrantType,
    UnsupportedResponseType,
}

impl OAuthErrorCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "access_denied",
            Self::InvalidClient => "invalid_client",
            Self::InvalidClientMetadata => "invalid_client_metadata",
            Self::InvalidGrant => "invalid_grant",
            Self::InvalidRedirectUri => "invalid_redirect_uri",
            Self::InvalidRequest => "invalid_request",
            Self::InvalidTarget => "invalid_target",
            Self::ServerError => "server_error",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
        }
    }
}

/// A refusal: the problem, and the next step of the client or its user. It has no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OAuthError {
    #[serde(rename = "error")]
    pub code: OAuthErrorCode,
    #[serde(rename = "error_description")]
    pub description: String,
    /// The sender asked too often, and may try again after so many seconds.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

impl OAuthError {
    pub fn new(code: OAuthErrorCode, description: impl Into<String>) -> Self {
        Self { code, description: description.into(), retry_after: None }
    }

    pub fn invalid_request(description: impl Into<String>) -> Self {
        Self::new(OAuthErrorCode::InvalidRequest, description)
    }

    pub(crate) fn invalid_grant(description: &str) -> Self {
        Self::new(OAuthErrorCode::InvalidGrant, description)
    }

    pub(crate) fn unavailable(description: &str) -> Self {
        Self::new(OAuthErrorCode::TemporarilyUnavailable, description)
    }

    pub(crate) fn too_often(description: &str, retry_after: u32) -> Self {
        Self { retry_after: Some(retry_after), ..Self::unavailable(description) }
    }
}

impl From<CallError> for OAuthError {
    fn from(error: CallError) -> Self {
        if let Some(cause) = error.cause() {
            tracing::warn!(cause, "a request to the authorization server failed");
        }
        let code = match error.code() {
            ErrorCode::Unauthenticated | ErrorCode::Denied => OAuthErrorCode::AccessDenied,
            ErrorCode::Overloaded | ErrorCode::UpstreamError | ErrorCode::Timeout | ErrorCode::RateLimited => {
                OAuthErrorCode::TemporarilyUnavailable
            }
            ErrorCode::Internal => OAuthErrorCode::ServerError,
            _ => OAuthErrorCode::InvalidRequest,
        };
        Self::new(code, error.message())
    }
}

impl From<StoreError> for OAuthError {
    fn from(error: StoreError) -> Self {
        CallError::from(error).into()
    }
}
