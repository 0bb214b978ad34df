//! Why a request to `/mcp` is refused before its method runs.

use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::message::Refusal;
use crate::reply;
use crate::reply::ErrorReply;
use sekisho_core::error::{CallError, ErrorCode};

#[derive(Debug)]
pub(super) enum HttpRefusal {
    /// An error in the form of the REST API, with a status other than its code's.
    Http { error: Box<CallError>, status: Option<StatusCode>, allow: Option<&'static str> },
    /// A JSON-RPC error, with status 400.
    Message(Box<Refusal>),
}

impl HttpRefusal {
    pub(super) fn status(status: StatusCode, message: &str) -> Self {
        let code = match status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::UnsupportedMediaType,
            _ => ErrorCode::InvalidRequest,
        };
        Self::Http { error: Box::new(CallError::new(code, message)), status: Some(status), allow: None }
    }

    /// `allowed` are the methods that are possible here.
    pub(super) fn not_allowed(allowed: &'static str) -> Self {
        let error = CallError::new(ErrorCode::InvalidRequest, format!("/mcp accepts {allowed} here"));
        Self::Http { error: Box::new(error), status: Some(StatusCode::METHOD_NOT_ALLOWED), allow: Some(allowed) }
    }
}

impl From<CallError> for HttpRefusal {
    fn from(error: CallError) -> Self {
        Self::Http { error: Box::new(error), status: None, allow: None }
    }
}

impl From<Box<Refusal>> for HttpRefusal {
    fn from(refusal: Box<Refusal>) -> Self {
        Self::Message(refusal)
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Http { error, status, allow } => {
                let mut response = ErrorReply::from(*error).into_response();
                if let Some(status) = status {
                    *response.status_mut() = status;
                }
                if let Some(allow) = allow {
                    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
                }
                response
            }
            Self::Message(refusal) => reply::json(StatusCode::BAD_REQUEST, &Value::from(refusal)),
        }
    }
}
