//! Verifies a trail: over all segments every line continues the previous one, and the line in the head exists.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::chain::{Chain, Hash};
use super::error::AuditError;
use super::lines::{Lines, Next};
use super::mark::{FirstLine, NewChain, SegmentsRemoved};
use super::segments::{self, first_line_of, head_path};

/// A trail in which every line continues the previous one, except where a new chain is marked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Lines of all segments, the headers of segments included.
    pub lines: u64,
    pub segments: usize,
    /// Lines before the first segment, which were removed by the rule for retention.
    pub removed_lines: u64,
    /// Where lines before are missing, and the gateway stated that.
    pub damages: Vec<MarkedDamage>,
    /// Complete lines, and bytes of an incomplete one, after the last state of the head: the writer is running, or
    /// was killed.
    pub lines_beyond_head: u64,
    pub unfinished_bytes: u64,
}

/// A place where the gateway found the trail damaged and started a new chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkedDamage {
    /// The first line of the new chain.
    pub line: u64,
    #[serde(flatten)]
    pub stated: NewChain,
}

/// Verifies the chain from the first line to the head, and the lines after it. The trail may be in use.
/// Errors: the first error.
pub fn verify(file: &Path) -> Result<Verified, AuditError> {
    walk(file).map(|walked| walked.verified)
}

/// A trail that was verified, with its files.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) verified: Verified,
    /// The last line of them.
    pub(super) end: Chain,
    pub(super) files: Vec<(PathBuf, File)>,
}

/// Verifies a trail, as [`verify`] does.
pub(super) fn walk(file: &Path) -> Result<Walked, AuditError> {
    // The head first: lines written meanwhile are after it.
    let head = match read_head(file) {
        Err(AuditError::NoHead { .. }) => None,
        head => head?,
    };
    let mut walk = Walk { head, ..Walk::of_segments() };
    let files = files(file)?;
    for (path, opened) in &files {
        walk.follow(path, opened).map_err(AuditError::in_segment(path))?;
    }
    let end = walk.chain;
    Ok(Walked { verified: walk.end(file)?, end, files })
}

/// The segments in order, and the one that is written, opened.
/// Errors: there is no trail, or it cannot be read.
pub(super) fn files(file: &Path) -> Result<Vec<(PathBuf, File)>, AuditError> {
    // Opened first: if it is closed meanwhile, it is in the list as well.
    let written = File::open(file);
    let mut closed = segments::closed(file).unwrap_or_default();
    let written = match written {
        Ok(written) => Some(written),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound && !closed.is_empty() => None,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            return Err(AuditError::NoTrail { path: file.to_owned() });
        }
        Err(problem) => return Err(AuditError::unusable(file)(problem)),
    };
    if let Some(written) = &written
        && let Some(first) = first_line_of(written).map_err(AuditError::unusable(file))?
    {
        closed.retain(|segment| segment.first_line < first.number());
    }
    let mut opened = Vec::new();
    for segment in closed {
        let closed = File::open(&segment.path).map_err(AuditError::unusable(&segment.path))?;
        opened.push((segment.path, closed));
    }
    opened.extend(written.map(|written| (file.to_owned(), written)));
    Ok(opened)
}

/// The lines verified so far.
pub(super) struct Walk {
    chain: Chain,
    head: Option<Chain>,
    /// The last line of those that a line records as removed.
    removed_through: u64,
    verified: Verified,
}

impl Walk {
    /// A walk over closed segments, without the head of their trail.
    pub(super) fn of_segments() -> Self {
        Self { chain: Chain::EMPTY, head: None, removed_through: 0, verified: Verified::default() }
    }

    /// Follows a closed segment, which is named `path`.
    pub(super) fn follow_bytes(&mut self, path: &Path, segment: &[u8]) -> Result<(), AuditError> {
        let first = segment.split(|byte| *byte == b'\n').next().and_then(FirstLine::read);
        self.follow_lines(path, first.as_ref(), segment).map_err(AuditError::in_segment(path))
    }

    /// Whether this is the last line that was followed.
    pub(super) fn ends_at(&self, line: u64, hash: Hash) -> bool {
        self.chain.lines == line && self.chain.hash == hash && self.verified.unfinished_bytes == 0
    }

    pub(super) fn end_of_segments(self) -> Result<Verified, AuditError> {
        self.check_beginning().map(|()| self.verified)
    }

    fn follow(&mut self, path: &Path, mut file: &File) -> Result<(), AuditError> {
        let unusable = AuditError::unusable(path);
        let first = first_line_of(file).map_err(&unusable)?;
        file.seek(SeekFrom::Start(0)).map_err(&unusable)?;
        self.follow_lines(path, first.as_ref(), BufReader::new(file))
    }

    fn follow_lines(&mut self, path: &Path, first: Option<&FirstLine>, from: impl BufRead) -> Result<(), AuditError> {
        let unusable = AuditError::unusable(path);
        if self.verified.unfinished_bytes > 0 {
            return Err(AuditError::Malformed { line: self.chain.lines + 1 });
        }
        if self.verified.lines == 0 {
            self.begin(first);
        }
        let mut lines = Lines::new(from);
        let mut is_first = true;
        loop {
            match lines.next().map_err(&unusable)? {
                Next::Line(line) if is_first => {
                    if let Some(stated) = self.chain.follow_first(line)? {
                        self.verified.damages.push(MarkedDamage { line: self.chain.lines, stated });
                    }
                    self.verified.segments += 1;
                }
                Next::Line(line) => {
                    self.chain.follow(line)?;
                    if let Some(removed) = SegmentsRemoved::read(line) {
                        self.removed_through = self.removed_through.max(removed.through_line);
                    }
                }
                Next::End { unfinished_bytes } => {
                    self.verified.unfinished_bytes = unfinished_bytes;
                    return Ok(());
                }
            }
            is_first = false;
            self.verified.lines += 1;
            self.compare_with_head()?;
        }
    }

    /// A trail begins with line 1, with a new chain, or after lines that were removed.
    fn begin(&mut self, first: Option<&FirstLine>) {
        if let Some(first) = first.filter(|first| first.number() > 1 && !first.starts_chain()) {
            self.chain = first.before();
            self.verified.removed_lines = self.chain.lines;
        }
    }

    fn compare_with_head(&self) -> Result<(), AuditError> {
        let line = self.chain.lines;
        match self.head {
            Some(head) if line == head.lines && self.chain.hash != head.hash => Err(AuditError::NotTheHead { line }),
            _ => Ok(()),
        }
    }

    fn end(mut self, file: &Path) -> Result<Verified, AuditError> {
        let known = match self.head {
            Some(head) => head.lines,
            // The head exists before the first line.
            None if self.chain.lines + self.verified.unfinished_bytes > 0 => {
                return Err(AuditError::NoHead { path: head_path(file) });
            }
            None => 0,
        };
        if self.chain.lines < known {
            return Err(AuditError::CutOff { line: self.chain.lines + 1, known });
        }
        self.check_beginning()?;
        self.verified.lines_beyond_head = self.chain.lines - known;
        Ok(self.verified)
    }

    /// The rule for retention has removed the missing lines.
    fn check_beginning(&self) -> Result<(), AuditError> {
        if self.removed_through < self.verified.removed_lines {
            return Err(AuditError::BeginningMissing { line: 1, found: self.verified.removed_lines + 1 });
        }
        Ok(())
    }
}

/// The head beside `file`; `None` when there is none.
/// Errors: it cannot be read, or is damaged.
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
