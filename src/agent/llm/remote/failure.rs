//! Failures of the library and of providers, as the loop knows them.

use std::time::Duration;

use http::{HeaderMap, header};

use crate::agent::llm::ModelError;

/// What a failure of the library means for the run; nothing of what the provider wrote.
pub(super) fn failure(error: &genai::Error) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, headers, .. } => ModelError::of_status(status.as_u16(), retry_after(headers)),
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => web_failure(webc_error),
        E::WebStream { error, .. } => match (error.downcast_ref::<E>(), error.downcast_ref::<genai::webc::Error>()) {
            (Some(inner), _) => failure(inner),
            (None, Some(inner)) => web_failure(inner),
            (None, None) => ModelError::Unavailable("the connection failed".into()),
        },
        // An error in the midst of the stream: overload, for the most part.
        E::ChatResponse { .. } => ModelError::Unavailable("it reported an error in its answer".into()),
        _ => ModelError::Garbled("it does not keep to the provider's protocol".into()),
    }
}

fn web_failure(error: &genai::webc::Error) -> ModelError {
    match error.status() {
        Some(status) => ModelError::of_status(status.as_u16(), error.headers().and_then(retry_after)),
        None => ModelError::Unavailable("the connection failed".into()),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
