//! The only writer of a trail, on its own thread: takes waiting lines, writes and syncs them as one group, then the
//! head. While the disk fails, calls are refused and the group is retried, each time from the end of the last
//! complete line, so that no line is lost and no partial line remains.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::chain::{Chain, Entry, MAX_LINE};
use super::verify::{AuditError, Lines, Next, read_head, verify};
use super::{Durability, Trail};
use crate::infra::readiness::Readiness;

/// How long lines are collected into one group: including the write they are on the disk 50 ms after their call.
const GATHER: Duration = Duration::from_millis(40);

/// Interval of retries while the disk fails.
const RETRY: Duration = Duration::from_millis(200);

/// How long a closing trail waits for running calls, and for a disk that fails.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The trail's name in `/readyz`.
const COMPONENT: &str = "audit";

/// The operations that the writer needs of a file.
pub(super) trait Disk: Send + 'static {
    /// Appends `text`.
    fn append(&mut self, text: &[u8]) -> io::Result<()>;
    /// Returns once the written text is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// Replaces the head as a whole.
    fn write_head(&mut self, head: &Chain) -> io::Result<()>;
}

/// The owner of the chain.
pub(super) struct Writer<D> {
    disk: D,
    /// The end of the file on the disk.
    chain: Chain,
    /// Bytes may follow that end: a part of a group that failed.
    torn: bool,
    head_is_behind: bool,
    trail: Arc<Trail>,
    readiness: Arc<Readiness>,
}

impl<D: Disk> Writer<D> {
    pub(super) fn new(disk: D, chain: Chain, trail: Arc<Trail>, readiness: Arc<Readiness>) -> Self {
        Self { disk, chain, torn: false, head_is_behind: false, trail, readiness }
    }

    /// Writes until the trail is closed and every reserved line was written or released.
    pub(super) fn run(mut self) {
        if let Err(problem) = self.write_what_comes() {
            let lines = self.trail.lines.load(Ordering::Acquire);
            tracing::error!(lines, %problem, "the audit trail is closed without its last lines");
        }
        if self.head_is_behind {
            self.write_head();
        }
    }

    fn write_what_comes(&mut self) -> io::Result<()> {
        let gather = match self.trail.durability {
            Durability::Relaxed => GATHER,
            Durability::Strict => Duration::ZERO,
        };
        let mut entries = Vec::new();
        let mut closing = DrainTimer::default();
        loop {
            if self.trail.queue.take(gather, &mut entries) {
                self.commit(&mut entries)?;
            } else if self.trail.lines.load(Ordering::Acquire) == 0 || closing.is_over() {
                return Ok(());
            } else {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Writes the entries to the disk, for as long as it takes; returns an error only while closing.
    fn commit(&mut self, entries: &mut Vec<Entry>) -> io::Result<()> {
        let mut end = self.chain;
        let mut text = Vec::new();
        for entry in &*entries {
            end.append(entry, &mut text)?;
        }
        if let Err(problem) = self.write(&text, end) {
            self.refuse(&problem, entries);
            self.write_in_the_end(&text, end)?;
            self.readiness.restore(COMPONENT);
            self.trail.accept();
        }
        self.trail.give_back(entries.len());
        for acknowledge in entries.drain(..).filter_map(|entry| entry.acknowledge) {
            // A disconnected caller no longer waits.
            let _ = acknowledge.send(());
        }
        self.write_head();
        Ok(())
    }

    fn write(&mut self, text: &[u8], end: Chain) -> io::Result<()> {
        self.truncate_partial()?;
        self.torn = true;
        if let Err(problem) = self.disk.append(text).and_then(|()| self.disk.sync()) {
            // At once, since there may be no further attempt.
            let _ = self.truncate_partial();
            return Err(problem);
        }
        self.torn = false;
        self.chain = end;
        Ok(())
    }

    /// Removes a partially written group.
    fn truncate_partial(&mut self) -> io::Result<()> {
        if self.torn {
            self.disk.cut(self.chain.bytes)?;
            self.torn = false;
        }
        Ok(())
    }

    fn write_in_the_end(&mut self, text: &[u8], end: Chain) -> io::Result<()> {
        let mut closing = DrainTimer::default();
        loop {
            thread::sleep(RETRY);
            match self.write(text, end) {
                Err(problem) if self.trail.queue.is_closing() && closing.is_over() => return Err(problem),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Readiness first: a refused caller finds the reason there.
    fn refuse(&self, problem: &io::Error, entries: &mut [Entry]) {
        let reason = format!("the audit trail cannot be written, calls are refused: {problem}");
        self.readiness.refuse_calls(COMPONENT, reason);
        self.trail.refusing.store(true, Ordering::Release);
        for entry in entries {
            entry.acknowledge = None;
        }
    }

    fn write_head(&mut self) {
        match self.disk.write_head(&self.chain) {
            Ok(()) => self.head_is_behind = false,
            Err(problem) if !self.head_is_behind => {
                self.head_is_behind = true;
                tracing::warn!(%problem, "the head of the audit trail cannot be written; tried again with the next lines");
            }
            Err(_) => {}
        }
    }
}

/// Starts with the first check.
#[derive(Default)]
struct DrainTimer(Option<Instant>);

impl DrainTimer {
    fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > CLOSE_TIMEOUT
    }
}

/// A trail on a real disk, locked for as long as it is open.
#[derive(Debug)]
pub(super) struct TrailFile {
    file: File,
    head: PathBuf,
}

impl Disk for TrailFile {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        // What is written to a file without a name is gone when it is closed.
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed; restart to start a new trail"));
        }
        self.file.write_all(text)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// Synced before it is renamed: after a power loss there is the old head or the new one.
    fn write_head(&mut self, head: &Chain) -> io::Result<()> {
        let unfinished = self.head.with_extension("head.new");
        let mut file = private().create(true).write(true).truncate(true).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(head)?)?;
        file.sync_data()?;
        fs::rename(&unfinished, &self.head)
    }
}

/// `<file>.head`
pub(super) fn head_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".head");
    path.into()
}

/// Opens and locks a trail, verifies its end against its head, and removes a line that a crash left incomplete: no
/// reply depended on it.
pub(super) fn open(path: PathBuf) -> Result<(TrailFile, Chain), AuditError> {
    let unusable = |problem| AuditError::Unusable { path: path.clone(), problem };
    let file = create(&path).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(AuditError::InUse { path }),
        Err(fs::TryLockError::Error(problem)) => return Err(unusable(problem)),
    }
    let (chain, unfinished_bytes) = end_of(&file, &path).map_err(|error| AuditError::Refused {
        path: path.clone(),
        // Only the end was verified: the full check may find the first change.
        error: Box::new(verify(&path).err().unwrap_or(error)),
    })?;
    let mut disk = TrailFile { file, head: head_path(&path) };
    if unfinished_bytes > 0 {
        tracing::warn!(unfinished_bytes, file = %path.display(), "cut off the unfinished last line of the audit trail");
        disk.cut(chain.bytes).and_then(|()| disk.sync()).map_err(unusable)?;
    }
    // Written before the first line, so that lines without a head are an error.
    disk.write_head(&chain).and_then(|()| sync_folder(&path)).map_err(unusable)?;
    Ok((disk, chain))
}

/// Follows the chain from the head's line to the end of the file. Also returns the number of bytes after it.
fn end_of(file: &File, path: &Path) -> Result<(Chain, u64), AuditError> {
    let unusable = |problem| AuditError::Unusable { path: path.to_owned(), problem };
    let length = file.metadata().map_err(unusable)?.len();
    let mut chain = match read_head(path)? {
        Some(head) => head,
        None if length == 0 => Chain::EMPTY,
        None => return Err(AuditError::NoHead { path: head_path(path) }),
    };
    if length < chain.bytes {
        return Err(AuditError::CutOff { line: chain.lines, known: chain.lines });
    }
    if chain != Chain::EMPTY {
        chain.ends_with(&line_before(file, chain.bytes).map_err(unusable)?)?;
    }
    (&*file).seek(SeekFrom::Start(chain.bytes)).map_err(unusable)?;
    let mut lines = Lines::new(BufReader::new(file));
    loop {
        match lines.next().map_err(unusable)? {
            Next::Line(line) => chain.follow(line)?,
            Next::End { unfinished_bytes } => return Ok((chain, unfinished_bytes)),
        }
    }
}

/// The line that ends at byte `end`, without its newline.
fn line_before(mut file: &File, end: u64) -> io::Result<Vec<u8>> {
    let start = end.saturating_sub(MAX_LINE as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.take(end - start).read_to_end(&mut text)?;
    text.pop();
    let begin = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Ok(text.split_off(begin))
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    private().create(true).read(true).append(true).open(path)
}

/// Readable and writable by the owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes the files' names durable across a power loss.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
