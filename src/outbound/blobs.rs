//! Object storage for bytes that replicas share: a bucket of S3, Google Cloud or Azure, or a shared folder.
//!
//! Objects are whole and at most [`MAX_OBJECT_BYTES`] long. An object that the store's tables name is written with its
//! SHA-256 ([`Blobs::add`]) and checked when it is read ([`Blobs::read`]). Requests go over the gateway's own HTTP
//! client (`http`).

mod error;
mod http;
mod key;
mod open;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use jiff::Timestamp;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use self::error::Operation;
use crate::Outbound;
use sekisho_config::BlobsConfig;

pub use self::error::BlobError;
pub use self::key::BlobKey;

/// The longest object.
pub const MAX_OBJECT_BYTES: usize = 128 << 20;

/// How long one operation may take, with its retries.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The storage. Clones share its connections.
#[derive(Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    /// Bucket and prefix, for messages.
    place: Arc<str>,
    /// The same storage, where it is a folder whose objects only this user may read.
    private: Option<Arc<LocalFileSystem>>,
}

/// An object that a table names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    pub key: BlobKey,
    /// In hex.
    pub sha256: String,
    pub bytes: u64,
}

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    pub key: BlobKey,
    pub bytes: u64,
    /// By the clock of the storage.
    pub modified: Timestamp,
}

impl Blobs {
    /// Nothing is sent yet.
    /// Errors: the configuration names no storage that can be used.
    pub fn open(config: &BlobsConfig, outbound: &Outbound) -> Result<Self, BlobError> {
        open::open(config, outbound)
    }

    /// In an existing folder of this machine. Only this user can read its objects.
    /// Errors: it cannot be used.
    pub fn open_folder(path: &Path) -> Result<Self, BlobError> {
        open::open_folder(path)
    }

    /// Writes an object, in place of one with this key.
    /// Errors: [`BlobError`]; it may have been written nevertheless.
    pub async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(self.too_large(key, bytes.len() as u64, MAX_OBJECT_BYTES));
        }
        let written = async {
            self.store.put(key.path(), PutPayload::from_bytes(bytes)).await?;
            match &self.private {
                Some(folder) => open::close_to_others(folder, key.path()).await,
                None => Ok(()),
            }
        };
        self.within(Operation::Write, key, written).await
    }

    /// Writes a new object below `folder`.
    /// Errors: [`BlobError`]; it may have been written nevertheless, and nothing names it.
    pub async fn add(&self, folder: &BlobKey, bytes: Bytes) -> Result<StoredBlob, BlobError> {
        let key = folder.child(&Uuid::now_v7().to_string());
        let stored = StoredBlob { sha256: digest(&bytes), bytes: bytes.len() as u64, key };
        self.put(&stored.key, bytes).await?;
        Ok(stored)
    }

    /// The object with this key, if there is one.
    /// Errors: [`BlobError`], also for an object that is longer than `max_bytes`.
    pub async fn get(&self, key: &BlobKey, max_bytes: usize) -> Result<Option<Bytes>, BlobError> {
        let read = async {
            let found = self.store.get(key.path()).await?;
            match found.meta.size {
                size if size > max_bytes as u64 => Ok(Err(self.too_large(key, size, max_bytes))),
                _ => found.bytes().await.map(Ok),
            }
        };
        match self.within(Operation::Read, key, read).await {
            Ok(read) => read.map(Some),
            Err(BlobError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object as it was written.
    /// Errors: [`BlobError`], also for one that is missing or has changed.
    pub async fn read(&self, stored: &StoredBlob) -> Result<Bytes, BlobError> {
        let StoredBlob { key, sha256, bytes } = stored;
        let length = usize::try_from(*bytes).unwrap_or(usize::MAX).min(MAX_OBJECT_BYTES);
        let found = self.get(key, length).await.and_then(|found| found.ok_or_else(|| self.missing(key)));
        match found {
            Ok(found) if found.len() as u64 == *bytes && digest(&found) == *sha256 => Ok(found),
            Ok(_) | Err(BlobError::TooLarge { .. }) => Err(self.damaged(key)),
            Err(error) => Err(error),
        }
    }

    /// Removes an object; one that is not there is removed already.
    pub async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        match self.within(Operation::Remove, key, self.store.delete(key.path())).await {
            Err(BlobError::Missing { .. }) => Ok(()),
            removed => removed,
        }
    }

    /// All objects below `folder`, in the order of their keys.
    pub async fn list(&self, folder: &BlobKey) -> Result<Vec<ListedBlob>, BlobError> {
        let listed = self.store.list(Some(folder.path())).map_ok(|found| ListedBlob {
            key: BlobKey::of_path(found.location),
            bytes: found.size,
            modified: Timestamp::from_microsecond(found.last_modified.timestamp_micros()).unwrap_or(Timestamp::MAX),
        });
        let mut listed: Vec<_> = self.within(Operation::List, folder, listed.try_collect()).await?;
        listed.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(listed)
    }

    /// Writes, reads and removes an object.
    /// Errors: the first of them that fails.
    pub async fn probe(&self) -> Result<(), BlobError> {
        let stored = self.add(&BlobKey::of(["probes"]), Bytes::from(Uuid::new_v4().to_string())).await?;
        let read = self.read(&stored).await;
        self.delete(&stored.key).await?;
        read.map(drop)
    }

    async fn within<T>(
        &self,
        operation: Operation,
        key: &BlobKey,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, BlobError> {
        match tokio::time::timeout(TIMEOUT, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(object_store::Error::NotFound { .. })) if operation != Operation::Write => Err(self.missing(key)),
            Ok(Err(error)) => Err(BlobError::failed(operation, key, &self.place, &error)),
            Err(_) => {
                let place = Arc::clone(&self.place);
                Err(BlobError::TimedOut { operation, key: key.clone(), place, seconds: TIMEOUT.as_secs() })
            }
        }
    }

    fn too_large(&self, key: &BlobKey, bytes: u64, max: usize) -> BlobError {
        BlobError::TooLarge { key: key.clone(), place: Arc::clone(&self.place), bytes, max }
    }

    fn missing(&self, key: &BlobKey) -> BlobError {
        BlobError::Missing { key: key.clone(), place: Arc::clone(&self.place) }
    }

    fn damaged(&self, key: &BlobKey) -> BlobError {
        BlobError::Damaged { key: key.clone(), place: Arc::clone(&self.place) }
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Blobs").field(&self.place).finish()
    }
}

impl fmt::Display for Blobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.place)
    }
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
