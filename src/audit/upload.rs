//! Copies closed segments to object storage, in their order. A segment that was not copied is copied later, also after
//! a restart, and is not removed before (`audit.retention_days`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

use super::Audit;
use super::chain::Link;
use super::error::AuditError;
use super::lines::line_before;
use super::segments::{self, Segment};
use super::stored::{SegmentRecord, folder};
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs};

/// Copies the segments of one trail.
#[derive(Debug)]
pub struct SegmentUploads {
    file: PathBuf,
    blobs: Blobs,
    folder: BlobKey,
    /// The replica that copies, and its host.
    replica: String,
    host: String,
    /// The names of the segments that the storage had when they were listed, without the names in `done`; `None` until
    /// then.
    stored: Option<BTreeSet<String>>,
    /// Segments that are there, whose file was looked at. They are forgotten with their files.
    done: BTreeSet<PathBuf>,
}

/// Why segments are not copied.
#[derive(Debug, Error)]
pub enum UploadError {
    #[error(transparent)]
    Storage(#[from] BlobError),
    #[error(transparent)]
    Trail(#[from] AuditError),
    #[error("the segment {path} has no line at its end", path = path.display())]
    NoLine { path: PathBuf },
}

impl SegmentUploads {
    /// Errors: the id of the trail cannot be read or written.
    pub fn new(file: PathBuf, blobs: Blobs, replica: &str, host: &str) -> Result<Self, AuditError> {
        let trail = trail_id(&file)?;
        tracing::info!(trail, storage = %blobs, "closed segments of the audit trail are copied to object storage");
        Ok(Self {
            folder: folder(&trail),
            file,
            blobs,
            replica: replica.to_owned(),
            host: host.to_owned(),
            stored: None,
            done: BTreeSet::new(),
        })
    }

    /// Copies the segments that the storage does not have, and lets `audit` remove those that it has.
    /// Errors: the first that cannot be copied, and how many wait.
    pub async fn copy_closed(&mut self, audit: &Audit) -> Result<(), (UploadError, usize)> {
        let file = self.file.clone();
        let closed = blocking(move || segments::closed(&file)).await.map_err(|error| (error.into(), 0))?;
        self.done.retain(|path| closed.iter().any(|segment| segment.path == *path));
        let mut waiting = closed.len();
        for segment in closed {
            if !self.done.contains(&segment.path) {
                let last_line = self.copy(&segment).await.map_err(|error| (error, waiting))?;
                audit.segments_stored_through(last_line);
                self.done.insert(segment.path);
            }
            waiting -= 1;
        }
        Ok(())
    }

    /// Copies a segment, unless the storage has it; its last line.
    async fn copy(&mut self, segment: &Segment) -> Result<u64, UploadError> {
        if self.stored.is_none() {
            let listed = self.blobs.list(&self.folder).await?;
            let names = listed.iter().filter_map(|object| object.key.name().strip_suffix(".json"));
            self.stored = Some(names.map(str::to_owned).collect());
        }
        let (path, first_line, closed_at) = (segment.path.clone(), segment.first_line, segment.closed_at.to_string());
        let last = blocking({
            let path = path.clone();
            move || last_link(&path)
        });
        let last = last.await?.ok_or_else(|| UploadError::NoLine { path: path.clone() })?;
        let mut record = SegmentRecord {
            first_line,
            last_line: last.seq,
            head: last.stated,
            bytes: 0,
            sha256: String::new(),
            closed_at,
            replica: self.replica.clone(),
            host: self.host.clone(),
        };
        let name = record.name();
        if self.stored.as_mut().is_some_and(|stored| stored.remove(&name)) {
            return Ok(last.seq);
        }
        let text = blocking(move || fs::read(&path).map_err(AuditError::unusable(&path))).await?;
        (record.bytes, record.sha256) = (text.len() as u64, hex::encode(Sha256::digest(&text)));
        let record = serde_json::to_vec(&record).map_err(|error| AuditError::unusable(&segment.path)(error.into()))?;
        // The record last: its lines are there then.
        self.blobs.put(&self.folder.child(&format!("{name}.jsonl")), Bytes::from(text)).await?;
        self.blobs.put(&self.folder.child(&format!("{name}.json")), Bytes::from(record)).await?;
        tracing::info!(segment = name, "a segment of the audit trail was copied to object storage");
        Ok(last.seq)
    }

    /// The segments that the storage has, as far as this process knows, and among them the segments whose files are
    /// here.
    #[cfg(test)]
    pub(super) fn known(&self) -> (usize, usize) {
        (self.stored.as_ref().map_or(0, BTreeSet::len) + self.done.len(), self.done.len())
    }
}

/// The last line's place in the chain.
fn last_link(path: &Path) -> Result<Option<Link>, AuditError> {
    let unusable = AuditError::unusable(path);
    let file = File::open(path).map_err(&unusable)?;
    let length = file.metadata().map_err(&unusable)?.len();
    Ok(Link::read(&line_before(&file, length).map_err(&unusable)?))
}

/// The id of a trail, which it gets when it is first asked for.
pub(super) fn trail_id(file: &Path) -> Result<String, AuditError> {
    let path = segments::id_path(file);
    let unusable = AuditError::unusable(&path);
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<Uuid>() {
            Ok(id) => Ok(id.to_string()),
            Err(error) => Err(unusable(io::Error::other(error))),
        },
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::new_v4().to_string();
            let write = || -> io::Result<()> {
                let mut created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
                created.write_all(id.as_bytes())?;
                created.sync_all()
            };
            write().map_err(unusable).map(|()| id)
        }
        Err(problem) => Err(unusable(problem)),
    }
}

/// Runs file access apart from the threads of the calls.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AuditError> + Send + 'static,
) -> Result<T, AuditError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
