//! The files of a trail: the segment that is written (`audit.jsonl`), and the closed ones beside it
//! (`audit-000000000001-20260131T235959Z.jsonl`: number of the first line, time of closing).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::error::AuditError;
use super::lines::{Lines, Next};
use super::mark::FirstLine;

/// A closed file of the trail.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// The number of its first line.
    pub(super) first_line: u64,
    pub(super) closed_at: Timestamp,
}

/// `<file>.head`
pub(super) fn head_path(file: &Path) -> PathBuf {
    with_suffix(file, ".head")
}

/// `<file>.lock`, locked by the process that writes the trail.
pub(super) fn lock_path(file: &Path) -> PathBuf {
    with_suffix(file, ".lock")
}

/// `<file>.next`, a segment until it is complete.
pub(super) fn next_path(file: &Path) -> PathBuf {
    with_suffix(file, ".next")
}

/// `<file>.id`, the id of the trail among the trails of all replicas.
pub(super) fn id_path(file: &Path) -> PathBuf {
    with_suffix(file, ".id")
}

/// `<file>.key`, which signs the trail.
pub(super) fn key_path(file: &Path) -> PathBuf {
    with_suffix(file, ".key")
}

/// `<file>.pub`, the public halves of all keys that signed the trail.
pub(super) fn public_keys_path(file: &Path) -> PathBuf {
    with_suffix(file, ".pub")
}

/// The signed checkpoint of the segment that begins with this line, whether it is closed or not:
/// `audit-000000000001.checkpoint`.
pub(super) fn checkpoint_path(file: &Path, first_line: u64) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{first_line:012}.checkpoint"));
    file.with_file_name(name)
}

/// The name of the segment that is closed now.
pub(super) fn closed_path(file: &Path, first_line: u64, now: SystemTime) -> PathBuf {
    beside(file, &format!("{first_line:012}-{}", compact(now)))
}

/// The name of a file that is no longer a part of the chain.
pub(super) fn damaged_path(file: &Path, last_line: u64, now: SystemTime) -> PathBuf {
    beside(file, &format!("damaged-{last_line:012}-{}", compact(now)))
}

/// The folder of a file.
pub(super) fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The closed segments in the order of their lines.
/// Errors: the folder cannot be read.
pub(super) fn closed(file: &Path) -> Result<Vec<Segment>, AuditError> {
    let unusable = AuditError::unusable(folder(file));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(file)).map_err(&unusable)? {
        let name = entry.map_err(&unusable)?.file_name();
        if let Some((first_line, closed_at)) = read_name(file, &name) {
            found.push(Segment { path: file.with_file_name(name), first_line, closed_at });
        }
    }
    found.sort_by_key(|segment| (segment.first_line, segment.closed_at));
    Ok(found)
}

/// The first line of a file; `None` when it is no line of a trail.
pub(super) fn first_line_of(mut file: &File) -> io::Result<Option<FirstLine>> {
    file.seek(SeekFrom::Start(0))?;
    Ok(match Lines::new(BufReader::new(file)).next()? {
        Next::Line(line) => FirstLine::read(line),
        Next::End { .. } => None,
    })
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// `audit.jsonl` → `audit-<middle>.jsonl`
fn beside(file: &Path, middle: &str) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{middle}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// When the segment with this path was closed; `None` for the one that is written.
pub(super) fn closing_time(file: &Path, path: &Path) -> Option<Timestamp> {
    read_name(file, path.file_name()?).map(|(_, closed_at)| closed_at)
}

/// The number of the first line and the time in the name of a closed segment.
fn read_name(file: &Path, name: &OsStr) -> Option<(u64, Timestamp)> {
    let stem = file.file_stem()?.to_str()?;
    let middle = name.to_str()?.strip_prefix(stem)?.strip_prefix('-')?;
    let middle = match file.extension() {
        Some(extension) => middle.strip_suffix(extension.to_str()?)?.strip_suffix('.')?,
        None => middle,
    };
    let (first_line, time) = middle.split_once('-')?;
    let time = DateTime::strptime(TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some((first_line.parse().ok()?, time.timestamp()))
}

const TIME: &str = "%Y%m%dT%H%M%SZ";

fn compact(now: SystemTime) -> String {
    Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH).strftime(TIME).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_name_of_a_closed_segment_has_its_first_line_and_its_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_903_999);
        for file in ["/var/log/audit.jsonl", "audit.jsonl", "trail", "a.b.jsonl"] {
            let file = Path::new(file);
            let closed = closed_path(file, 42, now);
            let read = read_name(file, closed.file_name().unwrap()).unwrap();
            assert_eq!((read.0, read.1.as_second()), (42, 1_769_903_999), "{closed:?}");
            assert_eq!(closed.parent(), file.parent());
            let damaged = damaged_path(file, 42, now);
            assert_eq!(read_name(file, damaged.file_name().unwrap()), None, "{damaged:?}");
        }
        let closed = closed_path(Path::new("/var/log/audit.jsonl"), 42, now);
        assert_eq!(closed, Path::new("/var/log/audit-000000000042-20260131T235959Z.jsonl"));
        for other in ["audit.jsonl.1", "audit-old.jsonl", "audit-1-2.jsonl", "audit-000000000042-20260131T235959Z.txt"]
        {
            assert_eq!(read_name(Path::new("audit.jsonl"), OsStr::new(other)), None, "{other}");
        }
    }
}
