//! Results that are too large for the store: objects in the storage that all replicas share, sealed like the others.
//!
//! An object is written before a row names it. If a process ends in between, no row names the object: it is removed an
//! hour later.

use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;

use super::{Results, unavailable};
use sekisho_core::call::Caller;
use sekisho_core::error::CallError;
use sekisho_observe::metrics::LargeResultOutcome;
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs};
use sekisho_store::ResultContent;

/// The folder of all of them.
const FOLDER: &str = "results";

/// Bytes of a sealed result in the store.
const MAX_STORED_BYTES: usize = 4 << 20;

/// How long a call waits for its result to be written, if its own deadline is not earlier.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// An object may be written so long before its row, and the clocks of replicas and storage differ by as much.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_hours(1);

impl Results {
    /// Sets where results go that are too large for the store.
    pub fn set_blobs(&self, blobs: &Blobs) {
        self.blobs.get_or_init(|| blobs.clone());
    }

    /// Removes objects that no row names.
    /// Errors: the first of them that cannot be removed, or they cannot be listed.
    pub async fn remove_orphans(&self) -> Result<(), BlobError> {
        let Some(blobs) = self.blobs.get() else { return Ok(()) };
        let until = self.store.now().earlier(CLOCK_MARGIN);
        let listed = blobs.list(&BlobKey::of([FOLDER])).await?;
        for object in listed.into_iter().filter(|object| object.modified < *until) {
            match self.store.results().has_object(&object.key).await {
                Ok(true) => {}
                Ok(false) => blobs.delete(&object.key).await?,
                Err(error) => {
                    tracing::warn!(%error, "it cannot be seen which objects have stored results; tried again in an hour");
                    break;
                }
            }
        }
        Ok(())
    }

    /// The content of a new row: the sealed text, or where it is too large for the store the object that has it.
    pub(super) async fn content_of(
        &self,
        caller: &Caller,
        sealed: String,
    ) -> Result<ResultContent, LargeResultOutcome> {
        if sealed.len() <= MAX_STORED_BYTES {
            return Ok(ResultContent::Sealed(sealed));
        }
        let blobs = self.blobs.get().ok_or(LargeResultOutcome::TooLarge)?;
        let folder = BlobKey::of_tenant(FOLDER, &caller.tenant);
        let problem = match tokio::time::timeout(WRITE_TIMEOUT, blobs.add(&folder, Bytes::from(sealed))).await {
            Ok(Ok(object)) => return Ok(ResultContent::Object(object)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("object storage {blobs} did not take it within {} s", WRITE_TIMEOUT.as_secs()),
        };
        tracing::warn!(problem, "a large result cannot be stored");
        Err(LargeResultOutcome::Unavailable)
    }

    pub(super) async fn sealed_text(&self, content: ResultContent) -> Result<String, CallError> {
        let object = match content {
            ResultContent::Sealed(text) => return Ok(text),
            ResultContent::Object(object) => object,
        };
        let Some(blobs) = self.blobs.get() else {
            return Err(CallError::internal("a result is in object storage, and `cluster.blobs` is not set"));
        };
        let bytes = blobs.read(&object).await.map_err(|error| unavailable(&error))?;
        String::from_utf8(bytes.into()).map_err(CallError::internal)
    }

    /// Removes an object in the background. If that fails, it is removed with the objects that no row names.
    pub(super) fn remove_object(&self, object: BlobKey) {
        let Some(blobs) = self.blobs.get().cloned() else { return };
        tokio::spawn(async move {
            if let Err(error) = blobs.delete(&object).await {
                tracing::warn!(%error, "a stored result that nobody can read cannot be removed; tried again later");
            }
        });
    }
}
