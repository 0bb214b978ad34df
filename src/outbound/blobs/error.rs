//! Errors of object storage: the failure, its place, and the remedy.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::BlobKey;

/// Longest text of the storage that a message repeats, in characters.
const MAX_PROBLEM: usize = 300;

#[derive(Debug, Error)]
pub enum BlobError {
    #[error("object storage {place} cannot be used: {problem}")]
    Unusable { place: Arc<str>, problem: String },
    #[error("{key} cannot be {operation} in object storage {place}: {problem}; {advice}")]
    Failed { operation: Operation, key: BlobKey, place: Arc<str>, problem: String, advice: &'static str },
    #[error(
        "{key} could not be {operation} in object storage {place} within {seconds} s; look at the connection to it"
    )]
    TimedOut { operation: Operation, key: BlobKey, place: Arc<str>, seconds: u64 },
    #[error("{key} is not in object storage {place}; something else removed it, such as a rule of the bucket")]
    Missing { key: BlobKey, place: Arc<str> },
    #[error("{key} in object storage {place} is not what was written; look at what else writes there")]
    Damaged { key: BlobKey, place: Arc<str> },
    #[error("{key} has {bytes} bytes, and in object storage {place} it may have {max}")]
    TooLarge { key: BlobKey, place: Arc<str>, bytes: u64, max: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Write,
    Read,
    Remove,
    List,
}

impl BlobError {
    pub(super) fn failed(operation: Operation, key: &BlobKey, place: &Arc<str>, error: &object_store::Error) -> Self {
        use object_store::Error as Cause;

        let advice = match error {
            Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => {
                "give its credentials the right to read, write, list and delete below the prefix"
            }
            Cause::NotFound { .. } => "create the bucket or folder",
            _ => "look at the connection to it and at `cluster.blobs`",
        };
        Self::Failed { operation, key: key.clone(), place: Arc::clone(place), problem: problem_of(error), advice }
    }

    pub(super) fn unusable(place: &Arc<str>, error: &(dyn Error + 'static)) -> Self {
        Self::Unusable { place: Arc::clone(place), problem: problem_of(error) }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Write => "written",
            Self::Read => "read",
            Self::Remove => "removed",
            Self::List => "listed",
        })
    }
}

/// One short line: the answer of a server may be a page.
fn problem_of(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_PROBLEM) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
