//! The parameters of a request in its path and query.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::reply::ErrorReply;
use sekisho_core::error::CallError;

/// A path parameter, percent-decoded.
#[derive(Debug)]
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ErrorReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorReply> {
        Ok(Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(name)| Self(name))
            .map_err(|rejection| unreadable_path(&rejection))?)
    }
}

/// Two names in a path.
#[derive(Debug)]
pub(super) struct Names(pub String, pub String);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = ErrorReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorReply> {
        Ok(Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map(|Path((first, second))| Self(first, second))
            .map_err(|rejection| unreadable_path(&rejection))?)
    }
}

/// Query parameters; unknown ones are ignored, as caches and proxies add their own.
#[derive(Debug)]
pub struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = ErrorReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorReply> {
        Ok(Query::<T>::from_request_parts(parts, state)
            .await
            .map(|Query(parameters)| Self(parameters))
            .map_err(|rejection: QueryRejection| CallError::invalid(unreadable_query(&rejection.body_text())))?)
    }
}

/// The words of the library without its own names of things.
fn unreadable_query(reason: &str) -> String {
    let reason = reason.trim_start_matches("Failed to deserialize query string: ");
    let reason = reason.replace("invalid digit found in string", "write a whole number without a sign");
    format!("the query cannot be read: {reason}")
}

/// The refusal of a path that cannot be read.
pub(super) fn unreadable_path(rejection: &PathRejection) -> CallError {
    CallError::invalid(format!("the path cannot be read: {}", rejection.body_text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_be_read_is_named_with_what_to_write() {
        let reason = "Failed to deserialize query string: limit: invalid digit found in string";
        let expected = "the query cannot be read: limit: write a whole number without a sign";
        assert_eq!(unreadable_query(reason), expected);
    }
}
