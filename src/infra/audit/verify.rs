//! Verifies a trail: every line continues the previous one, and the line in the head exists.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::chain::{Chain, Hash, Link, MAX_LINE};
use super::writer::head_path;

/// A complete trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    pub lines: u64,
    /// Complete lines, and bytes of an incomplete one, after the last state of the head: the writer is running, or
    /// was killed.
    pub lines_beyond_head: u64,
    pub unfinished_bytes: u64,
}

/// The error in a trail, and its line.
#[derive(Debug, Error)]
pub enum AuditError {
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
    #[error("{path}, which records the end of the trail, is missing or damaged", path = path.display())]
    NoHead { path: PathBuf },
    #[error(
        "the audit trail {path} was tampered with or damaged: {error}. Find the extent with `sekisho audit verify`, \
         keep the file and its .head aside as evidence, and start again: a new trail begins in their place",
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
            | Self::NotTheHead { line } => Some(*line),
            Self::Refused { error, .. } => error.line(),
            Self::Unusable { .. } | Self::InUse { .. } | Self::Thread(_) | Self::NoHead { .. } => None,
        }
    }
}

/// Verifies the chain from the first line to the head, and the lines after it. The trail may be in use.
///
/// # Errors
/// The first error.
pub fn verify(file: &Path) -> Result<Verified, AuditError> {
    let unusable = |problem| AuditError::Unusable { path: file.to_owned(), problem };
    // The head first: lines written meanwhile are after it.
    let head = read_head(file)?;
    let mut lines = Lines::new(BufReader::new(File::open(file).map_err(unusable)?));
    let mut chain = Chain::EMPTY;
    loop {
        if head.is_some_and(|head| chain.lines == head.lines && chain.hash != head.hash) {
            return Err(AuditError::NotTheHead { line: chain.lines });
        }
        match lines.next().map_err(unusable)? {
            Next::Line(line) => chain.follow(line)?,
            Next::End { unfinished_bytes } => return ended(file, chain, head, unfinished_bytes),
        }
    }
}

fn ended(file: &Path, chain: Chain, head: Option<Chain>, unfinished_bytes: u64) -> Result<Verified, AuditError> {
    let known = match head {
        Some(head) => head.lines,
        // The head exists before the first line.
        None if chain.lines + unfinished_bytes > 0 => return Err(AuditError::NoHead { path: head_path(file) }),
        None => 0,
    };
    if chain.lines < known {
        return Err(AuditError::CutOff { line: chain.lines + 1, known });
    }
    Ok(Verified { lines: chain.lines, lines_beyond_head: chain.lines - known, unfinished_bytes })
}

impl Chain {
    /// Advances to `line`, if it is the next one.
    pub(super) fn follow(&mut self, line: &[u8]) -> Result<(), AuditError> {
        let number = self.lines + 1;
        let link = Link::read(line).ok_or(AuditError::Malformed { line: number })?;
        if link.stated != link.actual {
            return Err(AuditError::Changed { line: number });
        }
        if link.seq != number {
            return Err(AuditError::OutOfOrder { line: number, found: link.seq });
        }
        if link.prev != self.hash {
            return Err(AuditError::Replaced { line: number });
        }
        *self = Self { lines: number, bytes: self.bytes + line.len() as u64 + 1, hash: link.stated };
        Ok(())
    }

    /// Whether `line` is the last one of this chain.
    pub(super) fn ends_with(&self, line: &[u8]) -> Result<(), AuditError> {
        let number = self.lines;
        let link = Link::read(line).ok_or(AuditError::Malformed { line: number })?;
        if link.stated != link.actual {
            return Err(AuditError::Changed { line: number });
        }
        if self.hash != Hash::NONE && link.stated == self.hash && link.seq == number {
            Ok(())
        } else {
            Err(AuditError::NotTheHead { line: number })
        }
    }
}

/// The head beside `file`; `None` when there is none.
pub(super) fn read_head(file: &Path) -> Result<Option<Chain>, AuditError> {
    let path = head_path(file);
    match std::fs::read(&path) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(head) => Ok(Some(head)),
            Err(_) => Err(AuditError::NoHead { path }),
        },
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(AuditError::Unusable { path, problem }),
    }
}

/// Line after line, in bounded memory.
pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

pub(super) enum Next<'a> {
    /// Without its newline.
    Line(&'a [u8]),
    End {
        /// The bytes after the last newline.
        unfinished_bytes: u64,
    },
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        let read = self.from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut self.line)?;
        Ok(match self.line.split_last() {
            Some((b'\n', line)) => Next::Line(line),
            // Too long for a line of ours: reported as invalid.
            _ if read == MAX_LINE => Next::Line(&self.line),
            _ => Next::End { unfinished_bytes: read as u64 },
        })
    }
}
