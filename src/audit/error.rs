//! Why a trail cannot be opened, or is not whole.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The error in a trail, and its line.
#[derive(Debug, Error)]
pub enum AuditError {
    #[error("{path} does not exist; name the trail's file, or the configuration with --config", path = path.display())]
    NoTrail { path: PathBuf },
    #[error("{path} cannot be used: {problem}", path = path.display())]
    Unusable { path: PathBuf, problem: io::Error },
    #[error(
        "{path} is written by another process; a trail has one writer. Use that process with --server, or name \
         another folder in SEKISHO_STATE_DIRECTORY",
        path = path.display()
    )]
    InUse { path: PathBuf },
    #[error("the audit thread cannot be started: {0}")]
    Thread(io::Error),
    #[error("line {line} is not a line of an audit trail")]
    Malformed { line: u64 },
    #[error("line {line} was changed: its content does not have the hash it states")]
    Changed { line: u64 },
    #[error("line {line} is missing, or lines were moved: found line number {found}")]
    OutOfOrder { line: u64, found: u64 },
    #[error("line {line} does not follow the line before it: one of the two was replaced")]
    Replaced { line: u64 },
    #[error("line {line} is missing: the head records {known} lines")]
    CutOff { line: u64, known: u64 },
    #[error("line {line} differs from the head's record: the end of the trail was replaced")]
    NotTheHead { line: u64 },
    #[error(
        "line {line} is missing: the first line that is kept is number {found}, and no line records that the lines before it were removed"
    )]
    BeginningMissing { line: u64, found: u64 },
    #[error("{path}, which records the end of the trail, is missing or damaged", path = path.display())]
    NoHead { path: PathBuf },
    #[error("{path}: {error}", path = path.display())]
    InSegment { path: PathBuf, error: Box<Self> },
    #[error(
        "the audit trail {path} was tampered with or damaged: {error}. Find the extent with `sekisho audit verify`. \
         With `audit.on_damage: new_chain` the gateway keeps the file aside and starts a new chain",
        path = path.display()
    )]
    Refused { path: PathBuf, error: Box<Self> },
}

impl AuditError {
    /// The line of the error, counted from 1.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Malformed { line }
            | Self::Changed { line }
            | Self::OutOfOrder { line, .. }
            | Self::Replaced { line }
            | Self::CutOff { line, .. }
            | Self::NotTheHead { line }
            | Self::BeginningMissing { line, .. } => Some(*line),
            Self::InSegment { error, .. } | Self::Refused { error, .. } => error.line(),
            Self::NoTrail { .. }
            | Self::Unusable { .. }
            | Self::InUse { .. }
            | Self::Thread(_)
            | Self::NoHead { .. } => None,
        }
    }

    /// Names the file of the error.
    pub(super) fn in_segment(path: &Path) -> impl Fn(Self) -> Self {
        move |error| match error {
            error @ (Self::NoTrail { .. } | Self::Unusable { .. } | Self::InSegment { .. }) => error,
            error => Self::InSegment { path: path.to_owned(), error: Box::new(error) },
        }
    }

    /// Converts an I/O error on a file.
    pub(super) fn unusable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |problem| Self::Unusable { path: path.to_owned(), problem }
    }
}
