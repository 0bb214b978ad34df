//! Where sessions are while no process has them: sealed images in object storage, which rows of the store name.
//!
//! A process takes a session with the next fence before it has it, so that one at a time does; all its later writes
//! name that fence. An image opens only for its tenant, caller, session and generation, with the interpreter and the
//! snapshot that it differs from, and with the rights and the digest of its programs. An object is written before its
//! row names it; one that no row names is removed later.

mod objects;
mod packed;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use uuid::Uuid;

use self::objects::remove_from;
pub(super) use self::objects::{ImageReader, ImageWriter, OpenImageError};
pub(crate) use self::packed::{Packer, Unpacker};

use super::rights::Rights;
use super::session::SessionKey;
use sekisho_config::Config;
use sekisho_core::call::{Deadline, SessionEnd};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::DamagedImageError;
use sekisho_outbound::blobs::{BlobKey, Blobs};
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::sealing::Sealer;
use sekisho_store::{
    AskedOfSession, InterpreterSessionFence, InterpreterSessionKey, ListedSession, NewInterpreterSession,
    NewSessionImage, SessionImage, SessionTimes, Store, StoreError, TakenSession, WantedSession,
};

/// The folder of all images.
const FOLDER: &str = "interpreter_sessions";

/// Bytes that the images of one tenant may have together.
const MAX_TENANT_BYTES: u64 = 4 << 30;

/// Images that are read at once, and that are written: the gateway holds each in memory, packed.
const MAX_AT_ONCE: usize = 4;

/// How often it is looked whether another process has released a session, and how soon a refused caller may try again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The images of all callers.
#[derive(Debug)]
pub struct SessionImages {
    store: Store,
    sealer: Arc<Sealer>,
    blobs: Blobs,
    /// This process, as one that has sessions.
    runner: Arc<str>,
    /// Whether other processes use the same store.
    is_shared: bool,
    lifetime: Duration,
    max_image_bytes: usize,
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
}

/// The interpreter and the snapshot that an image differs from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageBase {
    pub(super) profile: String,
    pub(super) interpreter: String,
    pub(super) snapshot: String,
}

/// The programs of a session that has an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PastPrograms {
    pub(super) rights: Rights,
    /// SHA-256 of all of them.
    pub(super) digest: [u8; 32],
}

impl SessionImages {
    /// `replica`: the id of this process, where others use the same store. `None` when no image can be sealed, or none
    /// is to be stored.
    pub fn new(config: &Config, store: &Store, blobs: &Blobs, replica: Option<&Arc<str>>) -> Option<Self> {
        let sealer = Sealer::new(config);
        let sessions = &config.sandbox.sessions;
        (sessions.max_image_bytes > 0 && sealer.is_available()).then(|| Self {
            store: store.clone(),
            sealer: Arc::new(sealer),
            blobs: blobs.clone(),
            runner: replica.cloned().unwrap_or_else(|| Uuid::new_v4().to_string().into()),
            is_shared: replica.is_some(),
            lifetime: Duration::from_secs(sessions.lifetime_seconds.into()),
            max_image_bytes: sessions.max_image_bytes as usize,
            reading: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            writing: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        })
    }

    /// Whether other processes use the same store.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Takes a session for this process, which waits until another one has released it.
    /// Errors: `overloaded` when another process has it until the deadline, or cannot release it, or the store does not
    /// answer.
    pub(super) async fn take(&self, key: &SessionKey, deadline: Deadline) -> Result<TakenSession, CallError> {
        loop {
            if let Some(taken) = self.try_take(key).await? {
                return Ok(taken);
            }
            let asked = self.store.interpreter_sessions().ask_for(of_store(key), AskedOfSession::Release).await;
            if !asked.map_err(|error| unavailable(&error))? {
                return Err(kept_elsewhere(&key.name));
            }
            if deadline.has_passed() {
                return Err(used_elsewhere(&key.name));
            }
            sleep(LOOK_AGAIN.min(deadline.remaining())).await;
        }
    }

    async fn try_take(&self, key: &SessionKey) -> Result<Option<TakenSession>, CallError> {
        let times = SessionTimes { lifetime: self.lifetime, lost_after: LOST_AFTER };
        let taken = self.store.interpreter_sessions().take(of_store(key), &self.runner, times).await;
        taken.map_err(|error| unavailable(&error))
    }

    /// A session that was taken begins with a fresh interpreter; its generation. `before`: the image that it had.
    /// Errors: `overloaded` when the store does not answer, or another process has taken it.
    pub(super) async fn begin(
        &self,
        key: &SessionKey,
        fence: i64,
        (every_call, age): (bool, Duration),
        before: Option<BlobKey>,
    ) -> Result<u64, CallError> {
        let new = NewInterpreterSession { every_call, age, lifetime: self.lifetime };
        let begun = self.store.interpreter_sessions().begin(fence_of(key, fence), new).await;
        let generation = begun.map_err(|error| unavailable(&error))?.ok_or_else(|| used_elsewhere(&key.name))?;
        before.into_iter().for_each(|object| self.remove_object(object));
        Ok(generation)
    }

    /// Whether this process still has a session that it took with this fence. Another one can have taken it when this
    /// one counted as lost.
    /// Errors: `overloaded` when the store does not answer.
    pub(super) async fn has(&self, key: &SessionKey, fence: i64) -> Result<bool, CallError> {
        self.store.interpreter_sessions().is_held(fence_of(key, fence)).await.map_err(|error| unavailable(&error))
    }

    /// A session that was resumed goes on: its image is of an earlier state.
    /// Errors: `overloaded` when the store does not answer, or another process has taken it.
    pub(super) async fn forget(&self, key: &SessionKey, fence: i64, object: BlobKey) -> Result<(), CallError> {
        let forgotten = self.store.interpreter_sessions().forget_image(fence_of(key, fence)).await;
        if !forgotten.map_err(|error| unavailable(&error))? {
            return Err(used_elsewhere(&key.name));
        }
        self.remove_object(object);
        Ok(())
    }

    /// Names an image that was written, in place of the one `before`. False when the session has ended, or another process
    /// has taken it. Goes on when it is dropped: the session may have left the memory of this process.
    /// Errors: the store does not answer; it may name the image.
    pub(super) async fn keep(
        &self,
        key: &SessionKey,
        fence: i64,
        new: NewSessionImage<'_>,
        before: Option<BlobKey>,
    ) -> Result<bool, CallError> {
        let (store, blobs, key, image) =
            (self.store.interpreter_sessions(), self.blobs.clone(), key.clone(), new.image.clone());
        let NewSessionImage { every_call, calls, releases, .. } = new;
        let keeping = async move {
            let new = NewSessionImage { image: &image, every_call, calls, releases };
            let kept = store.keep_image(fence_of(&key, fence), new, MAX_TENANT_BYTES).await?;
            let is_kept = kept.is_some();
            let gone = kept.unwrap_or_else(|| vec![image.object.key.clone()]);
            gone.into_iter().chain(before.filter(|_| is_kept)).for_each(|object| remove_from(&blobs, object));
            Ok::<_, StoreError>(is_kept)
        };
        tokio::spawn(keeping).await.map_err(CallError::internal)?.map_err(|error| unavailable(&error))
    }

    /// A session has ended.
    /// Errors: the store does not answer; it may know the end.
    pub(super) async fn end(&self, key: &SessionKey, fence: i64, end: SessionEnd) -> Result<(), StoreError> {
        let object = self.store.interpreter_sessions().end(fence_of(key, fence), end.as_str()).await?;
        object.into_iter().for_each(|object| self.remove_object(object));
        Ok(())
    }

    /// This process has a session no more; its stored state stays.
    /// Errors: the store does not answer; it may know that.
    pub(super) async fn release(&self, key: &SessionKey, fence: i64) -> Result<(), StoreError> {
        self.store.interpreter_sessions().release(fence_of(key, fence)).await
    }

    /// The sessions of a caller that have an image, or another process.
    /// Errors: `overloaded` when the store does not answer.
    pub(super) async fn list(&self, owner: &Owner) -> Result<Vec<ListedSession>, CallError> {
        let listed =
            self.store.interpreter_sessions().of_caller((&owner.tenant, &owner.caller), &self.runner, LOST_AFTER).await;
        listed.map_err(|error| unavailable(&error))
    }

    /// One of these.
    /// Errors: `overloaded` when the store does not answer.
    pub(super) async fn find(&self, key: &SessionKey) -> Result<Option<ListedSession>, CallError> {
        let found = self.store.interpreter_sessions().get(of_store(key), &self.runner, LOST_AFTER).await;
        found.map_err(|error| unavailable(&error))
    }

    /// Ends a session that this process has not; false when there is none.
    /// Errors: `overloaded` when the store, or the process that has it, does not answer.
    pub(super) async fn delete(&self, key: &SessionKey, deadline: Deadline) -> Result<bool, CallError> {
        let mut has_asked = false;
        loop {
            if self.find(key).await?.is_none() {
                return Ok(has_asked);
            }
            if let Some(taken) = self.try_take(key).await? {
                let ended = self.end(key, taken.fence, SessionEnd::Deleted).await;
                return ended.map(|()| true).map_err(|error| unavailable(&error));
            }
            let asked = self.store.interpreter_sessions().ask_for(of_store(key), AskedOfSession::Delete).await;
            asked.map_err(|error| unavailable(&error))?;
            has_asked = true;
            if deadline.has_passed() {
                return Err(used_elsewhere(&key.name));
            }
            sleep(LOOK_AGAIN.min(deadline.remaining())).await;
        }
    }

    /// The sessions of this process that others want.
    pub(super) async fn wanted(&self) -> Vec<WantedSession> {
        // The component `cluster` says when the store cannot be read.
        self.store.interpreter_sessions().wanted(&self.runner).await.unwrap_or_default()
    }

    /// Tells others that this process cannot release a session.
    pub(super) async fn refuse(&self, key: &SessionKey, fence: i64) {
        if let Err(error) = self.store.interpreter_sessions().refuse_to_release(fence_of(key, fence)).await {
            tracing::warn!(%error, "it cannot be said that a session stays here; calls at other replicas wait for it");
        }
    }

    /// Held from before an image is read until it is restored.
    pub(super) async fn permit_to_read(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.reading).acquire_owned().await.ok()
    }

    /// Held while an image is packed and written.
    pub(super) async fn permit_to_write(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.writing).acquire_owned().await.ok()
    }

    /// Removes expired sessions. Returns how many sessions have an image then, and the bytes of these.
    /// Errors: the store cannot be written.
    pub(super) async fn forget_expired(&self) -> Result<(u64, u64), StoreError> {
        let objects = self.store.interpreter_sessions().forget_expired(&self.runner, LOST_AFTER).await?;
        objects.into_iter().for_each(|object| self.remove_object(object));
        self.store.interpreter_sessions().count_images().await
    }
}

impl ImageBase {
    pub(super) fn of(image: &SessionImage) -> Self {
        let SessionImage { profile, interpreter, snapshot, .. } = image.clone();
        Self { profile, interpreter, snapshot }
    }
}

impl PastPrograms {
    /// Errors: the row was changed.
    pub(super) fn of(image: &SessionImage) -> Result<Self, DamagedImageError> {
        Ok(Self { rights: Rights(digest_from_hex(&image.rights)?), digest: digest_from_hex(&image.programs)? })
    }
}

fn digest_from_hex(text: &str) -> Result<[u8; 32], DamagedImageError> {
    let mut digest = [0; 32];
    let decoded = hex::decode_to_slice(text, &mut digest);
    decoded.map(|()| digest).map_err(|_| DamagedImageError("its row was changed"))
}

fn of_store(key: &SessionKey) -> InterpreterSessionKey<'_> {
    InterpreterSessionKey { tenant: &key.owner.tenant, caller_key: &key.owner.caller, name: &key.name }
}

fn fence_of(key: &SessionKey, fence: i64) -> InterpreterSessionFence<'_> {
    InterpreterSessionFence { key: of_store(key), fence }
}

fn unavailable(error: &StoreError) -> CallError {
    let message = "the sessions cannot be read now; try again shortly, or call without `session`";
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).caused_by(error)
}

fn used_elsewhere(name: &str) -> CallError {
    let message = format!("another replica had the session `{name}` until this call's deadline; the code has not run");
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

fn kept_elsewhere(name: &str) -> CallError {
    let message = format!(
        "another replica has the session `{name}` and cannot release it; call there, or with another `session`: the \
         code has not run"
    );
    CallError::new(ErrorCode::Overloaded, message)
}
