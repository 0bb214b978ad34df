//! Closed segments in object storage: their places, and whether the trails of all replicas are whole there.
//!
//! Below `audit/TRAIL` each segment has two objects: its lines (`.jsonl`), and a record of them (`.json`), which is written
//! after the lines. A trail keeps its id (`<file>.id`) over restarts, while a replica gets another one.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::chain::Hash;
use super::error::AuditError;
use super::verify::{Verified, Walk};
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs, MAX_OBJECT_BYTES};

/// The folder of all trails.
const FOLDER: &str = "audit";

/// The storage's record of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentRecord {
    pub(super) first_line: u64,
    pub(super) last_line: u64,
    /// The hash of its last line.
    pub(super) head: Hash,
    pub(super) bytes: u64,
    /// SHA-256 of the whole segment, in hex.
    pub(super) sha256: String,
    /// RFC 3339, UTC.
    pub(super) closed_at: String,
    /// The replica that copied it, and its host.
    pub(super) replica: String,
    pub(super) host: String,
}

/// A trail in object storage.
#[derive(Debug)]
pub struct StoredTrail {
    /// Its id.
    pub trail: String,
    /// The host of the replica that copied the last segment.
    pub host: String,
    pub found: Result<Verified, StoredTrailError>,
}

/// Why a trail in object storage is not whole.
#[derive(Debug, Error)]
pub enum StoredTrailError {
    #[error(transparent)]
    Trail(AuditError),
    #[error(
        "line {line} is in two segments with other contents: two gateways went on with one trail, such as with a copy of a state directory"
    )]
    Forked { line: u64 },
    #[error("{0} is no record of a segment")]
    NoRecord(BlobKey),
    #[error(transparent)]
    Storage(#[from] BlobError),
}

impl SegmentRecord {
    /// The name of its objects, without their ending.
    pub(super) fn name(&self) -> String {
        format!("{:012}-{:012}-{}", self.first_line, self.last_line, &self.head.as_str()[..16])
    }
}

/// The folder of a trail.
pub(super) fn folder(trail: &str) -> BlobKey {
    BlobKey::of([FOLDER, trail])
}

/// Verifies the closed segments of all trails. A segment that was not copied yet is not missing.
/// Errors: the storage cannot be listed.
pub async fn verify_stored(blobs: &Blobs) -> Result<Vec<StoredTrail>, BlobError> {
    let mut trails: BTreeMap<String, Vec<BlobKey>> = BTreeMap::new();
    for object in blobs.list(&BlobKey::of([FOLDER])).await? {
        let Some(trail) = object.key.parent_name().filter(|_| object.key.name().ends_with(".json")) else { continue };
        trails.entry(trail.to_owned()).or_default().push(object.key);
    }
    let mut verified = Vec::new();
    for (trail, records) in trails {
        let mut host = String::new();
        let found = verify_trail(blobs, &trail, records, &mut host).await;
        verified.push(StoredTrail { trail, host, found });
    }
    Ok(verified)
}

async fn verify_trail(
    blobs: &Blobs,
    trail: &str,
    keys: Vec<BlobKey>,
    host: &mut String,
) -> Result<Verified, StoredTrailError> {
    let mut walk = Walk::of_segments();
    let mut last_line = 0;
    // Their names begin with the numbers of their lines.
    for key in keys {
        let record = read_record(blobs, &key).await?;
        if record.first_line <= last_line {
            return Err(StoredTrailError::Forked { line: record.first_line });
        }
        last_line = record.last_line;
        record.host.clone_into(host);
        let lines = folder(trail).child(&format!("{}.jsonl", record.name()));
        let segment = blobs.get(&lines, MAX_OBJECT_BYTES).await?.unwrap_or_default();
        let at = lines.to_string();
        walk.follow_bytes(Path::new(&at), &segment).map_err(StoredTrailError::Trail)?;
        if hex::encode(Sha256::digest(&segment)) != record.sha256 || !walk.ends_at(record.last_line, record.head) {
            return Err(StoredTrailError::Trail(AuditError::NotTheHead { line: record.last_line }));
        }
    }
    walk.end_of_segments().map_err(StoredTrailError::Trail)
}

async fn read_record(blobs: &Blobs, key: &BlobKey) -> Result<SegmentRecord, StoredTrailError> {
    const LONGEST: usize = 16 << 10;
    let text = blobs.get(key, LONGEST).await?.unwrap_or_default();
    let record = serde_json::from_slice(&text).ok();
    // Its name decides in which order it is read.
    let is_named = |record: &SegmentRecord| key.name() == format!("{}.json", record.name());
    record.filter(is_named).ok_or_else(|| StoredTrailError::NoRecord(key.clone()))
}
