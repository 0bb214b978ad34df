//! Opens a trail where it ended: checks the end against the head, removes an incomplete line that a crash left, and
//! starts a new chain where the end is damaged.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::chain::Chain;
use super::disk::{Disk, TrailFile, sync_folder};
use super::error::AuditError;
use super::lines::{Lines, Next, line_before};
use super::mark::{FirstLine, Mark, NewChain};
use super::receipts::Signer;
use super::segments::{self, damaged_path, first_line_of, head_path};
use super::verify::{read_head, verify};
use sekisho_config::OnDamage;

/// A trail that is ready to be continued.
#[derive(Debug)]
pub(super) struct Opened<D> {
    pub(super) disk: D,
    pub(super) chain: Chain,
    /// `None` while the file has no line.
    pub(super) segment: Option<OpenSegment>,
    /// Why it continues in a new chain.
    pub(super) damage: Option<String>,
    /// Signs its segments.
    pub(super) signer: Option<Signer>,
}

/// The segment that is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenSegment {
    pub(super) first_line: u64,
    pub(super) began: SystemTime,
    /// Its first line says only where the segment belongs.
    pub(super) has_header: bool,
}

/// The end of a trail on the disk.
struct End {
    /// `bytes` counts in the file that is written.
    chain: Chain,
    /// Bytes after the last line of that file.
    unfinished_bytes: u64,
    first: Option<FirstLine>,
    head_missing: bool,
}

/// Why the end of a trail differs from its head, and the last line that is known.
struct Damage {
    error: AuditError,
    last: Chain,
}

/// Opens and locks a trail, and verifies its end. A line that a crash left incomplete is removed: no reply depended on
/// it.
pub(super) fn open(path: PathBuf, on_damage: OnDamage) -> Result<Opened<TrailFile>, AuditError> {
    let mut disk = TrailFile::open(path.clone())?;
    match find_end(&path, disk.file()) {
        Ok(end) => resume(disk, &end).map_err(AuditError::unusable(&path)),
        Err(Damage { error: error @ AuditError::Unusable { .. }, .. }) => Err(error),
        Err(Damage { error, last }) => {
            // Only the end was verified: the full check may find the first change.
            let error = verify(&path).err().unwrap_or(error);
            match on_damage {
                OnDamage::Refuse => Err(AuditError::Refused { path, error: Box::new(error) }),
                OnDamage::NewChain => {
                    let reason = error.to_string();
                    let (chain, segment) =
                        start_chain(&mut disk, last, &reason).map_err(AuditError::unusable(&path))?;
                    disk.write_head(&chain).map_err(AuditError::unusable(&path))?;
                    let signer = Some(Signer::new(path));
                    Ok(Opened { disk, chain, segment: Some(segment), damage: Some(reason), signer })
                }
            }
        }
    }
}

/// Starts a new chain after `last`, in a file of its own.
pub(super) fn start_chain(disk: &mut impl Disk, last: Chain, reason: &str) -> std::io::Result<(Chain, OpenSegment)> {
    let began = SystemTime::now();
    let keep_as = damaged_path(disk.path(), last.lines, began);
    let kept = disk.found()?.bytes().is_some_and(|bytes| bytes > 0);
    let name = keep_as.file_name().filter(|_| kept).map(|name| name.to_string_lossy().into_owned());
    let mark = Mark::NewChain(NewChain::after(&last, reason, name));
    start_file(disk, last, &mark, &keep_as, began)
}

/// Starts a file whose first line is `mark`.
pub(super) fn start_file(
    disk: &mut impl Disk,
    mut chain: Chain,
    mark: &Mark,
    keep_as: &Path,
    began: SystemTime,
) -> std::io::Result<(Chain, OpenSegment)> {
    chain.bytes = 0;
    let mut text = Vec::new();
    chain.append_mark(mark, &mut text)?;
    disk.start_file(&text, keep_as)?;
    Ok((chain, OpenSegment { first_line: chain.lines, began, has_header: true }))
}

fn resume(mut disk: TrailFile, end: &End) -> std::io::Result<Opened<TrailFile>> {
    let mut chain = end.chain;
    let file = disk.path().to_owned();
    if end.unfinished_bytes > 0 {
        let unfinished_bytes = end.unfinished_bytes;
        tracing::warn!(unfinished_bytes, file = %file.display(), "cut off the unfinished last line of the audit trail");
        disk.cut(chain.bytes)?;
        disk.sync()?;
    }
    let mut segment = end.first.as_ref().map(|first| OpenSegment {
        first_line: first.number(),
        began: first.time().unwrap_or_else(SystemTime::now),
        has_header: first.is_header(),
    });
    if segment.is_none() && chain.lines > 0 {
        // The process ended between closing a segment and starting the next one.
        let keep_as = segments::closed_path(&file, chain.lines + 1, SystemTime::now());
        let mark = Mark::Segment;
        let (started, open) = start_file(&mut disk, chain, &mark, &keep_as, SystemTime::now())?;
        (chain, segment) = (started, Some(open));
    }
    if end.head_missing {
        tracing::warn!(
            file = %head_path(&file).display(),
            "the audit trail has no head: whether lines are missing at its end cannot be checked; it goes on from its \
             last line"
        );
        let mut text = Vec::new();
        let mut marked = chain;
        marked.append_mark(&Mark::HeadMissing, &mut text)?;
        disk.append(&text)?;
        disk.sync()?;
        chain = marked;
    }
    // Written before the first line, so that lines without a head are noticed.
    disk.write_head(&chain)?;
    sync_folder(&file)?;
    Ok(Opened { disk, chain, segment, damage: None, signer: Some(Signer::new(file)) })
}

/// Follows the chain from the head's line to the end of the last file.
fn find_end(path: &Path, file: &File) -> Result<End, Damage> {
    let early = |error| Damage { error, last: Chain::EMPTY };
    let head = match read_head(path) {
        Err(AuditError::NoHead { .. }) => None,
        head => head.map_err(early)?,
    };
    let mut files: Vec<_> =
        segments::closed(path).map_err(early)?.into_iter().map(|s| (s.first_line, s.path)).collect();
    let length = file.metadata().map_err(|problem| early(AuditError::unusable(path)(problem)))?.len();
    let first = first_line_of(file).map_err(|problem| early(AuditError::unusable(path)(problem)))?;
    let closed = files.len();
    if length > 0 {
        // A text that is no line of a trail is found when the trail is followed.
        let number = first.as_ref().map_or_else(|| head.map_or(0, |head| head.lines) + 1, FirstLine::number);
        files.push((number, path.to_owned()));
    }
    // The last line that is known, the file to go on from, and whether from its beginning.
    let (mut chain, at, from_start) = match head {
        Some(head) if first.as_ref().is_some_and(|first| first.starts_chain() && first.number() == head.lines + 1) => {
            (head, closed, true)
        }
        Some(head) if head.lines == 0 => (head, 0, true),
        Some(head) => match files.iter().rposition(|(first_line, _)| *first_line <= head.lines) {
            Some(at) => (head, at, false),
            None => return Err(Damage { error: missing(&head), last: head }),
        },
        None => (before(&files).map_err(early)?, files.len().saturating_sub(1), true),
    };
    let known = chain;
    let damage = |error: AuditError, reached: Chain| Damage {
        error,
        last: if reached.lines > known.lines { reached } else { known },
    };
    let mut unfinished_bytes = 0;
    for (index, (_, path)) in files.iter().enumerate().skip(at) {
        if unfinished_bytes > 0 {
            return Err(damage(AuditError::Malformed { line: chain.lines + 1 }, chain));
        }
        unfinished_bytes = follow(path, &mut chain, from_start || index > at)
            .map_err(AuditError::in_segment(path))
            .map_err(|error| damage(error, chain))?;
    }
    if files.len() == closed && closed > 0 {
        chain.bytes = 0;
    }
    let head_missing = head.is_none() && !files.is_empty();
    Ok(End { chain, unfinished_bytes, first, head_missing })
}

/// The end of the chain before the last file.
fn before(files: &[(u64, PathBuf)]) -> Result<Chain, AuditError> {
    let Some((_, path)) = files.last() else { return Ok(Chain::EMPTY) };
    let file = File::open(path).map_err(AuditError::unusable(path))?;
    let first = first_line_of(&file).map_err(AuditError::unusable(path))?;
    Ok(first.map_or(Chain::EMPTY, |first| first.before()))
}

fn missing(head: &Chain) -> AuditError {
    AuditError::CutOff { line: head.lines, known: head.lines }
}

/// Follows the lines of a file, from its beginning or from the end of `chain`. Returns the number of bytes after the
/// last line.
fn follow(path: &Path, chain: &mut Chain, from_start: bool) -> Result<u64, AuditError> {
    let unusable = AuditError::unusable(path);
    let mut file = File::open(path).map_err(&unusable)?;
    if from_start {
        chain.bytes = 0;
    } else {
        if file.metadata().map_err(&unusable)?.len() < chain.bytes {
            return Err(missing(chain));
        }
        chain.ends_with(&line_before(&file, chain.bytes).map_err(&unusable)?)?;
        file.seek(SeekFrom::Start(chain.bytes)).map_err(&unusable)?;
    }
    let mut lines = Lines::new(BufReader::new(file));
    let mut is_first = from_start;
    loop {
        match lines.next().map_err(&unusable)? {
            Next::Line(line) if is_first => _ = chain.follow_first(line)?,
            Next::Line(line) => chain.follow(line)?,
            Next::End { unfinished_bytes } => return Ok(unfinished_bytes),
        }
        is_first = false;
    }
}
