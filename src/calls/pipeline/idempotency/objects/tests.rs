use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::pipeline::idempotency::IdempotentOutcome;
use crate::pipeline::idempotency::tests::{reply_of, request};
use crate::pipeline::tests::call;
use sekisho_config::SessionConfig;
use sekisho_core::call::{Deadline, SendingState};
use sekisho_core::error::ErrorCode;
use sekisho_outbound::blobs::test_support::{folder_storage, storage_out_of_reach};
use sekisho_store::Store;
use sekisho_store::test_support::test_store;

const LARGE: usize = 6 << 20;

/// Replicas on one store, and the folder that they share.
struct Replicas {
    store: Store,
    folder: TempDir,
}

impl Replicas {
    async fn new() -> Self {
        Self { store: test_store().await, folder: TempDir::new().unwrap() }
    }

    async fn replica(&self, blobs: &Blobs) -> Arc<Replies> {
        let replies = Replies::open(&SessionConfig::default(), self.store.clone()).await.unwrap();
        replies.set_blobs(blobs);
        Arc::new(replies)
    }

    async fn with_storage(&self) -> Arc<Replies> {
        self.replica(&folder_storage(self.folder.path())).await
    }

    /// The files of stored replies.
    fn objects(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() { walk(&entry, found) } else { found.push(entry) }
            }
        }
        let mut found = Vec::new();
        walk(self.folder.path(), &mut found);
        found
    }
}

/// Sends a call with the key `k`. The first call ends with a reply of this size; later ones get the reply of the first.
/// Returns whether it is the first, and the reply.
async fn send(replies: &Arc<Replies>, bytes: usize) -> Result<(bool, String), ErrorCode> {
    let deadline = Deadline::after(std::time::Duration::from_secs(60));
    match replies.enter(&call(), "k", request(), deadline).await.map_err(|error| error.code())? {
        IdempotentOutcome::Answered(reply) => Ok((false, stored::text_of(&reply).unwrap())),
        IdempotentOutcome::Unknown(..) => Err(ErrorCode::UnknownOutcome),
        IdempotentOutcome::First(mut guard) => {
            guard.record(deadline).await.unwrap();
            let reply = reply_of(bytes);
            guard.end(&reply, SendingState::Sent).await;
            Ok((true, stored::text_of(&reply).unwrap()))
        }
    }
}

#[tokio::test]
async fn a_large_reply_is_replayed_at_another_replica() {
    let replicas = Replicas::new().await;
    let (is_first, text) = send(&replicas.with_storage().await, LARGE).await.unwrap();
    assert!(is_first && text.len() > LARGE);
    let other = replicas.with_storage().await;
    assert!(send(&other, 1).await.unwrap() == (false, text), "the same text, and no run");
    assert_eq!(replicas.objects().len(), 1);

    // An expired record takes its object with it.
    other.reconfigure(&SessionConfig { idempotency_seconds: 0, ..SessionConfig::default() });
    other.forget_expired().await.unwrap();
    other.finish(Instant::now() + std::time::Duration::from_secs(60)).await;
    assert!(replicas.objects().is_empty());
}

#[tokio::test]
async fn a_small_reply_stays_in_the_store() {
    let replicas = Replicas::new().await;
    let replies = replicas.with_storage().await;
    assert!(send(&replies, 1_000).await.unwrap().0);
    assert!(!send(&replies, 1).await.unwrap().0);
    assert!(replicas.objects().is_empty());
}

#[tokio::test]
async fn a_reply_that_was_changed_or_removed_is_an_error_and_no_second_run() {
    let replicas = Replicas::new().await;
    send(&replicas.with_storage().await, LARGE).await.unwrap();
    let other = replicas.with_storage().await;
    let [object] = replicas.objects().try_into().unwrap();
    let mut bytes = fs::read(&object).unwrap();
    bytes[LARGE / 2] ^= 1;
    fs::write(&object, bytes).unwrap();
    assert_eq!(send(&other, 1).await, Err(ErrorCode::IdempotencyConflict));
    fs::remove_file(&object).unwrap();
    assert_eq!(send(&other, 1).await, Err(ErrorCode::IdempotencyConflict));
}

#[tokio::test]
async fn without_its_storage_a_large_reply_is_an_error_and_no_second_run() {
    let replicas = Replicas::new().await;
    let away = replicas.replica(&storage_out_of_reach()).await;
    send(&replicas.with_storage().await, LARGE).await.unwrap();
    assert_eq!(send(&away, 1).await, Err(ErrorCode::Overloaded), "it may be read later");
    assert!(!send(&replicas.with_storage().await, 1).await.unwrap().0);

    // Away when the call ends: its first caller has the reply, others learn that it has run.
    let replicas = Replicas::new().await;
    let away = replicas.replica(&storage_out_of_reach()).await;
    assert!(send(&away, LARGE).await.unwrap().0);
    assert_eq!(send(&away, 1).await, Err(ErrorCode::IdempotencyConflict));
    assert_eq!(send(&replicas.with_storage().await, 1).await, Err(ErrorCode::IdempotencyConflict));
}

#[tokio::test]
async fn an_object_that_no_record_can_name_is_removed() {
    let replicas = Replicas::new().await;
    let replies = replicas.with_storage().await;
    send(&replies, LARGE).await.unwrap();
    let blobs = folder_storage(replicas.folder.path());
    blobs.add(&BlobKey::of_tenant(FOLDER, "acme"), Bytes::from_static(b"of a process that ended")).await.unwrap();
    replies.remove_orphans().await.unwrap();
    assert_eq!(replicas.objects().len(), 2, "a record may name it");
    let old = SystemTime::now() - std::time::Duration::from_secs(SessionConfig::default().idempotency_seconds + 3_700);
    for object in replicas.objects().iter().filter(|object| fs::metadata(object).unwrap().len() < 100) {
        fs::File::options().write(true).open(object).unwrap().set_modified(old).unwrap();
    }
    replies.remove_orphans().await.unwrap();
    assert_eq!(replicas.objects().len(), 1);
    assert!(!send(&replies, 1).await.unwrap().0);
}
