//! Replies that are too large for the store: objects in the storage that all replicas share.
//!
//! An object is written before the record names it. If a process ends in between, no record names the object: it is
//! removed when no record can be as old as it.

use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;

use super::Replies;
use super::errors::reply_out_of_reach;
use super::key::RecordKind;
use super::stored::{self, MAX_REPLY_BYTES};
use crate::pipeline::receipt::Reply;
use sekisho_core::error::CallError;
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs, StoredBlob};
use sekisho_store::KeptReply;

/// The folder of all of them.
const FOLDER: &str = "replies";

/// How long the caller of a call with a large reply waits for it to be kept.
const KEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The clocks of replicas and storage may differ by so much.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// The kept form of a reply.
pub(super) enum Kept {
    Text(String),
    Object(StoredBlob),
    Nothing,
}

impl Replies {
    /// Sets where replies go that are too large for the store.
    pub fn set_blobs(&self, blobs: &Blobs) {
        self.blobs.get_or_init(|| blobs.clone());
    }

    /// Removes objects that no record names and that are older than any record.
    /// Errors: the first of them that cannot be removed, or they cannot be listed.
    pub async fn remove_orphans(&self) -> Result<(), BlobError> {
        let Some(blobs) = self.blobs.get() else { return Ok(()) };
        let until = self.expired_at(self.store.now()).earlier(CLOCK_MARGIN);
        for object in blobs.list(&BlobKey::of([FOLDER])).await? {
            if object.modified < *until {
                blobs.delete(&object.key).await?;
            }
        }
        Ok(())
    }

    /// The text in an object, as it was written.
    pub(super) async fn read_object(&self, object: &StoredBlob, kind: RecordKind) -> Result<String, CallError> {
        let Some(blobs) = self.blobs.get() else {
            let problem = "a reply is in object storage, and `cluster.blobs` is not set";
            return Err(CallError::internal(problem));
        };
        let bytes = blobs.read(object).await.map_err(|error| reply_out_of_reach(&error, kind))?;
        String::from_utf8(bytes.into()).map_err(CallError::internal)
    }

    /// Removes an object in the background. If that fails, it is removed with the objects that no record names.
    pub(super) fn remove_object(&self, object: Option<BlobKey>) {
        let (Some(object), Some(blobs)) = (object, self.blobs.get().cloned()) else { return };
        self.tasks.spawn(async move {
            if let Err(error) = blobs.delete(&object).await {
                tracing::warn!(%error, "the stored reply of an expired call cannot be removed; tried again later");
            }
        });
    }

    /// Writes the reply to object storage, if it is large. Without that it is not kept: the record then says that the
    /// call has run.
    pub(super) async fn kept(&self, tenant: &str, reply: &Reply) -> Kept {
        let text = match stored::text_of(reply) {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(%error, "a reply could not be written as JSON");
                return Kept::Nothing;
            }
        };
        if text.len() <= MAX_REPLY_BYTES {
            return Kept::Text(text);
        }
        let Some(blobs) = self.blobs.get() else { return Kept::Nothing };
        let folder = BlobKey::of_tenant(FOLDER, tenant);
        let problem = match tokio::time::timeout(KEEP_TIMEOUT, blobs.add(&folder, Bytes::from(text))).await {
            Ok(Ok(object)) => return Kept::Object(object),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("object storage {blobs} did not take it within {} s", KEEP_TIMEOUT.as_secs()),
        };
        tracing::error!(problem, "the large reply of a call with an Idempotency-Key is not kept");
        Kept::Nothing
    }
}

impl Kept {
    pub(super) fn in_store(&self) -> KeptReply<'_> {
        match self {
            Self::Text(text) => KeptReply::Text(text),
            Self::Object(object) => KeptReply::Object(object),
            Self::Nothing => KeptReply::Nothing,
        }
    }

    pub(super) fn bytes_in_store(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Object(_) | Self::Nothing => 0,
        }
    }

    pub(super) fn into_object(self) -> Option<BlobKey> {
        match self {
            Self::Object(object) => Some(object.key),
            Self::Text(_) | Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests;
