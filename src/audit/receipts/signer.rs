//! Signs the segment that is written, on the thread that writes it: at most once in a second, and when the segment is closed.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::checkpoint::{Checkpoint, Origin};
use super::key_file;
use super::note::{SigningKey, text_in};
use super::tree::Tree;
use crate::chain::{Chain, Link};
use crate::disk::replace;
use crate::lines::{Lines, Next};
use crate::segments::checkpoint_path;
use crate::upload::trail_id;

/// Time between two signatures.
const INTERVAL: Duration = Duration::from_secs(1);

/// The signer of one trail.
#[derive(Debug)]
pub(crate) struct Signer {
    file: PathBuf,
    segment: Option<Signed>,
    tried_at: Option<Instant>,
}

/// A segment, as far as it was read.
#[derive(Debug)]
struct Signed {
    key: SigningKey,
    origin: Origin,
    bytes: u64,
    tree: Tree,
    /// The last checkpoint, which no later one may contradict.
    last: Option<Checkpoint>,
    /// The segment contradicts its last checkpoint: it is not signed any more.
    is_refused: bool,
}

impl Signer {
    pub(crate) fn new(file: PathBuf) -> Self {
        // Before others ask for it at the same time. A problem is found again by the first signature.
        let _ = trail_id(&file);
        Self { file, segment: None, tried_at: None }
    }

    /// As [`sign`](Self::sign), if that was long enough ago.
    pub(crate) fn sign_when_due(&mut self, first_line: u64, end: &Chain) -> Option<io::Result<()>> {
        let is_due = self.tried_at.is_none_or(|tried_at| tried_at.elapsed() >= INTERVAL);
        let is_signed =
            || self.segment.as_ref().is_some_and(|segment| segment.has(first_line, end) || segment.is_refused);
        (is_due && !is_signed()).then(|| self.sign(first_line, end))
    }

    /// Signs the segment that begins with this line, up to the end of the chain.
    pub(crate) fn sign(&mut self, first_line: u64, end: &Chain) -> io::Result<()> {
        self.tried_at = Some(Instant::now());
        let mut segment = match self.segment.take() {
            Some(segment) if segment.origin.first_line == first_line => segment,
            _ => Signed::begin(&self.file, first_line)?,
        };
        if segment.is_refused || segment.has(first_line, end) {
            self.segment = Some(segment);
            return Ok(());
        }
        let read = segment.follow(&self.file, end);
        // A segment that cannot be read is read again from its beginning, one that cannot be signed is not.
        if read.is_err() && !segment.is_refused {
            return read;
        }
        let signed = read.and_then(|()| segment.sign(&self.file));
        self.segment = Some(segment);
        signed
    }
}

impl Signed {
    fn begin(file: &Path, first_line: u64) -> io::Result<Self> {
        let key = key_file::open(file)?;
        let mut lines = Lines::new(BufReader::new(File::open(file)?));
        let first = match lines.next()? {
            Next::Line(line) => Link::read(line).filter(|link| link.seq == first_line),
            Next::End { .. } => None,
        };
        let first = first.ok_or_else(|| replaced(file))?;
        let origin = Origin::new(key.public().name(), first_line, first.stated);
        let last = fs::read_to_string(checkpoint_path(file, first_line)).ok();
        let last = last.and_then(|note| Checkpoint::read(text_in(&note).ok()?)).filter(|last| last.origin == origin);
        Ok(Self { key, origin, bytes: 0, tree: Tree::default(), last, is_refused: false })
    }

    /// Whether the segment is signed up to its end.
    fn has(&self, first_line: u64, end: &Chain) -> bool {
        let lines = (end.lines + 1).saturating_sub(first_line);
        self.origin.first_line == first_line
            && self.bytes > 0
            && self.last.as_ref().is_some_and(|last| last.lines == lines)
    }

    fn sign(&mut self, file: &Path) -> io::Result<()> {
        let checkpoint = Checkpoint { origin: self.origin.clone(), lines: self.tree.leaves(), root: self.tree.root() };
        if self.last.as_ref().is_some_and(|last| last.lines > checkpoint.lines) {
            return self.refuse(file);
        }
        if self.last.as_ref() != Some(&checkpoint) {
            let note = self.key.sign(&checkpoint.text());
            replace(&checkpoint_path(file, self.origin.first_line), note.as_bytes())?;
            self.last = Some(checkpoint);
        }
        Ok(())
    }

    /// Takes the lines in that were written since.
    fn follow(&mut self, file: &Path, end: &Chain) -> io::Result<()> {
        let mut written = File::open(file)?;
        written.seek(SeekFrom::Start(self.bytes))?;
        let mut lines = Lines::new(BufReader::new(written.take(end.bytes.saturating_sub(self.bytes))));
        let last_end = format!("\"{}\"}}", end.hash.as_str());
        let mut is_end = self.bytes == end.bytes;
        while let Next::Line(line) = lines.next()? {
            is_end = line.ends_with(last_end.as_bytes());
            self.bytes += line.len() as u64 + 1;
            self.tree.push(line);
            let last = self.last.as_ref().filter(|last| last.lines == self.tree.leaves());
            if last.is_some_and(|last| last.root != self.tree.root()) {
                return self.refuse(file);
            }
        }
        let has_all = self.origin.first_line + self.tree.leaves() == end.lines + 1;
        if is_end && has_all { Ok(()) } else { Err(replaced(file)) }
    }

    fn refuse(&mut self, file: &Path) -> io::Result<()> {
        self.is_refused = true;
        let problem = format!(
            "{} has other lines than were signed: it was changed, or restored from an older copy. Find the extent with \
             `sekisho audit verify`, and begin a new segment with SIGHUP",
            file.display()
        );
        Err(io::Error::other(problem))
    }
}

fn replaced(file: &Path) -> io::Error {
    io::Error::other(format!("{} has not the lines that were written", file.display()))
}
