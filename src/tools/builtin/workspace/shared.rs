//! Workspaces that replicas share. The files of each are objects in object storage, and a row of the store names them; the
//! folder of a replica is a copy of it.
//!
//! One call works in a workspace at a time, over all replicas. It takes the row, fetches the files that its replica
//! does not have, works in the folder, stores the changed files as new objects, and then names them in the row. The row
//! is changed only by the call that has it, which its fence shows. A call that ends before leaves the files as they
//! were.

mod call;
mod files;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::call::SharedCall;
use self::files::{Files, parse};
use super::folder::Workspace;
use super::folder_entries::FolderEntries;
use super::{Inner, Reach};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::blobs::{BlobError, BlobKey, Blobs};
use sekisho_store::{Store, StoreError, WorkspaceLock};

/// The folder of all workspaces in object storage.
const FOLDER: &str = "workspaces";

/// How often it is looked whether another call has given a workspace back.
const POLL: Duration = Duration::from_millis(50);

/// How long a call waits for that, unless its deadline is earlier.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// No call takes so long from an object to the row that names it.
const UNNAMED: SignedDuration = SignedDuration::from_hours(1);

/// The parts that replicas share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The id of this replica.
    replica: Arc<str>,
    store: Store,
    blobs: Blobs,
    /// The version that the folder here has, by name; `None`: not known. Locked while a call works in it.
    folders: FolderEntries<Mutex<Option<String>>>,
}

impl Shared {
    pub(super) fn new(replica: Arc<str>, store: Store, blobs: Blobs) -> Self {
        Self { replica, store, blobs, folders: FolderEntries::new() }
    }

    /// Runs `job` in a workspace while no other call, at any replica, works in it. Once it runs, it continues and its
    /// changes are stored even if this future is dropped.
    pub(super) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        name: &str,
        reach: Reach,
        job: impl FnOnce(&Workspace) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let abandoned = CancellationToken::new();
        let _abandons = abandoned.clone().drop_guard();
        let (shared, inner, name) = (Arc::clone(self), Arc::clone(inner), name.to_owned());
        let work = async move {
            let folder = shared.folders.entry(&name).map_err(CallError::internal)?;
            let mut folder = abandoned.run_until_cancelled(folder.lock_owned()).await.ok_or_else(too_long)?;
            let lock = shared.lock(&name, &abandoned).await?;
            let call = SharedCall { shared: &shared, inner: &inner, lock: &lock, abandoned: &abandoned };
            tokio::select! {
                done = call.run(&mut folder, reach, job) => done,
                never = shared.renew(&lock) => match never {},
            }
        };
        tokio::spawn(work).await.map_err(CallError::internal)?
    }

    /// Removes the folder here, which other replicas do not need.
    pub(super) async fn forget(&self, inner: &Arc<Inner>, name: &str) -> io::Result<()> {
        let folder = self.folders.entry(name)?;
        let mut version = folder.lock().await;
        *version = None;
        inner.remove_folder(name).await?;
        drop(version);
        drop(folder);
        self.folders.remove_unheld(name);
        Ok(())
    }

    /// As [`forget`](Self::forget), on a blocking thread, unless a call works in the folder; returns whether it did.
    pub(super) fn remove_copy(&self, inner: &Inner, name: &str) -> io::Result<bool> {
        let folder = self.folders.entry(name)?;
        let Ok(mut version) = folder.try_lock() else { return Ok(false) };
        *version = None;
        inner.remove(name)?;
        drop(version);
        drop(folder);
        self.folders.remove_unheld(name);
        Ok(true)
    }

    /// Removes a workspace at all replicas: its row, by which folders are no copies of it any more, and its objects.
    pub(super) async fn remove(&self, inner: &Arc<Inner>, name: &str) -> io::Result<()> {
        // Listed first: an object that is stored after its row is gone belongs to the next workspace of this name.
        let objects = self.blobs.list(&folder_of(name)).await.map_err(io::Error::other)?;
        self.store.workspaces().remove(name).await.map_err(io::Error::other)?;
        self.forget(inner, name).await?;
        for object in objects {
            self.blobs.delete(&object.key).await.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Removes workspaces that no call has used for `idle` at any replica, except `kept`. Their objects are removed
    /// with the objects that no row names.
    pub(super) async fn remove_idle(&self, idle: Duration, kept: &HashSet<String>) -> Result<(), StoreError> {
        self.store.workspaces().remove_idle(idle, kept).await
    }

    /// Removes objects that no row names: objects of removed workspaces, and of calls that ended before they named
    /// them.
    pub(super) async fn remove_orphans(&self) -> Result<(), CallError> {
        let until = self.store.now().earlier(UNNAMED);
        let mut objects: HashMap<String, Vec<BlobKey>> = HashMap::new();
        for object in self.blobs.list(&BlobKey::of([FOLDER])).await.map_err(|error| unavailable(&error))? {
            if let Some(name) = object.key.parent_name().filter(|_| object.modified < *until) {
                objects.entry(name.to_owned()).or_default().push(object.key);
            }
        }
        for (name, keys) in objects {
            // Read after the list: objects that were named since then are in it.
            let files = self.store.workspaces().files(&name).await?;
            let files = files.map_or_else(|| Ok(Files::new()), |files| parse(&files))?;
            let named: HashSet<_> = files.values().filter_map(|file| file.object.as_deref()).collect();
            for key in keys.iter().filter(|key| !named.contains(&*key.to_string())) {
                self.blobs.delete(key).await.map_err(|error| unavailable(&error))?;
            }
        }
        Ok(())
    }

    /// Takes the row, as soon as no other call has it.
    async fn lock(&self, name: &str, abandoned: &CancellationToken) -> Result<WorkspaceLock, CallError> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            if let Some(lock) = self.store.workspaces().lock(name, &self.replica).await? {
                if abandoned.is_cancelled() {
                    self.unlock(&lock).await;
                    return Err(too_long());
                }
                return Ok(lock);
            }
            if abandoned.is_cancelled() || Instant::now() >= until {
                return Err(too_long());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Renews the lease until it is lost: the call then goes on, and its changes are refused.
    async fn renew(&self, lock: &WorkspaceLock) -> Infallible {
        self.store.workspaces().keep_renewing(lock).await
    }

    async fn unlock(&self, lock: &WorkspaceLock) {
        if let Err(error) = self.store.workspaces().unlock(lock).await {
            tracing::warn!(%error, "a workspace could not be given back; others can use it when its lease ends");
        }
    }
}

/// The folder of a workspace in object storage.
fn folder_of(name: &str) -> BlobKey {
    BlobKey::of([FOLDER, name])
}

fn too_long() -> CallError {
    let message = "other calls work in this session's files; call again when they have ended";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

/// Logs the storage, which the reply must not name.
fn unavailable(error: &BlobError) -> CallError {
    tracing::error!(%error, "the files of a session cannot be read or stored");
    let message = "the session's files cannot be read or stored now, and are as they were; call again later";
    CallError::new(ErrorCode::Overloaded, message).caused_by(error)
}
