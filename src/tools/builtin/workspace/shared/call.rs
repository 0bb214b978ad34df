//! One call in a shared workspace, from the lock to the row that names its changes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::files::{FileContent, Files, SharedFile, contents_of, parse};
use super::{Shared, folder_of, too_long, unavailable};
use crate::builtin::workspace::folder::{Content, Workspace};
use crate::builtin::workspace::{Inner, Reach, WorkspacePath};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::blobs::{BlobKey, StoredBlob};
use sekisho_store::WorkspaceLock;

/// Objects of one workspace that are read or written at once.
const AT_ONCE: usize = 8;

/// A call that has a workspace.
pub(super) struct SharedCall<'a> {
    pub(super) shared: &'a Shared,
    pub(super) inner: &'a Arc<Inner>,
    pub(super) lock: &'a WorkspaceLock,
    /// Nobody waits for it any more: its job is not begun.
    pub(super) abandoned: &'a CancellationToken,
}

impl SharedCall<'_> {
    /// Runs `job`, and gives the workspace back. `version` is the version of the folder here, before and after.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        version: &mut Option<String>,
        reach: Reach,
        job: impl FnOnce(&Workspace) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        // Until all is stored, the folder may differ from the shared workspace.
        let known = version.take();
        let done = self.run_locked(known.as_deref(), reach, job).await;
        match done {
            Ok((done, stored)) => {
                *version = Some(stored);
                done
            }
            Err(error) => {
                self.shared.unlock(self.lock).await;
                Err(error)
            }
        }
    }

    /// The result of the job, and the version of the folder then.
    async fn run_locked<T: Send + 'static>(
        &self,
        known: Option<&str>,
        reach: Reach,
        job: impl FnOnce(&Workspace) -> Result<T, CallError> + Send + 'static,
    ) -> Result<(Result<T, CallError>, String), CallError> {
        let files = parse(&self.lock.files)?;
        if known != Some(&self.lock.version) {
            self.copy(&files).await?;
        }
        if self.abandoned.is_cancelled() {
            return Err(too_long());
        }
        let done = self.inner.work(self.lock.name(), reach, job).await;
        if reach == Reach::Write
            && let Some(version) = self.store(&files).await?
        {
            return Ok((done, version));
        }
        self.shared.unlock(self.lock).await;
        Ok((done, self.lock.version.clone()))
    }

    /// Makes the folder a copy of the shared workspace.
    async fn copy(&self, files: &Files) -> Result<(), CallError> {
        let mut here = self.contents().await?;
        if here.iter().any(|(path, content)| files.get(path).is_none_or(|file| file.content != *content)) {
            // The folder is of an earlier version, or of a call whose changes were not stored.
            self.inner.remove_folder(self.lock.name()).await.map_err(CallError::internal)?;
            here.clear();
        }
        let mut fetched = Vec::new();
        for (path, file) in files {
            if !here.contains_key(path) {
                fetched.push(self.fetch(path.clone(), file.clone()));
            }
        }
        stream::iter(fetched).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    async fn fetch(&self, path: String, file: SharedFile) -> Result<(), CallError> {
        let content = match file.stored()? {
            Some(object) => self.shared.blobs.read(&object).await.map_err(|error| unavailable(&error))?,
            None => Bytes::new(),
        };
        let write = move |workspace: &Workspace| {
            workspace.write(&WorkspacePath::parse(&path)?, Content::Bytes(&content), false).map(drop)
        };
        self.inner.work(self.lock.name(), Reach::Write, write).await
    }

    /// Stores the differences from `before`, names them in the row, and gives the workspace back; the version that it
    /// has then. `None`: nothing differs.
    async fn store(&self, before: &Files) -> Result<Option<String>, CallError> {
        let here = self.contents().await?;
        let (mut files, mut stored) = (Files::new(), Vec::new());
        for (path, content) in here {
            match before.get(&path) {
                Some(file) if file.content == content => _ = files.insert(path, file.clone()),
                _ => stored.push(self.put(path, content)),
            }
        }
        if stored.is_empty() && files.len() == before.len() {
            return Ok(None);
        }
        let stored: Vec<_> = stream::iter(stored).buffer_unordered(AT_ONCE).try_collect().await?;
        files.extend(stored);
        let (version, text) = (Uuid::new_v4().to_string(), serde_json::to_string(&files).map_err(CallError::internal)?);
        if !self.shared.store.workspaces().save(self.lock, &version, &text).await? {
            return Err(lost());
        }
        self.remove_replaced(before, &files);
        Ok(Some(version))
    }

    async fn put(&self, path: String, content: FileContent) -> Result<(String, SharedFile), CallError> {
        if content.bytes == 0 {
            return Ok((path, SharedFile { content, object: None }));
        }
        let at = WorkspacePath::parse(&path)?;
        let read = move |workspace: &Workspace| Ok(workspace.read(&at, 0, u64::MAX)?.bytes);
        let bytes = self.inner.work(self.lock.name(), Reach::Read, read).await?;
        let stored = self.shared.blobs.add(&folder_of(self.lock.name()), bytes.into()).await;
        let StoredBlob { key, sha256, bytes } = stored.map_err(|error| unavailable(&error))?;
        Ok((path, SharedFile { content: FileContent { sha256, bytes }, object: Some(key.to_string()) }))
    }

    /// In the background; objects that stay are removed with the objects that no row names.
    fn remove_replaced(&self, before: &Files, after: &Files) {
        let named: HashSet<_> = after.values().filter_map(|file| file.object.as_deref()).collect();
        let replaced = before.values().filter_map(|file| file.object.as_deref());
        let replaced: Vec<_> = replaced.filter(|object| !named.contains(object)).filter_map(BlobKey::parse).collect();
        let blobs = self.shared.blobs.clone();
        tokio::spawn(async move {
            for key in replaced {
                if let Err(error) = blobs.delete(&key).await {
                    tracing::warn!(%error, "a replaced file of a workspace cannot be removed; tried again later");
                }
            }
        });
    }

    /// The files in the folder.
    async fn contents(&self) -> Result<BTreeMap<String, FileContent>, CallError> {
        self.inner.work(self.lock.name(), Reach::Read, contents_of).await
    }
}

fn lost() -> CallError {
    let message = "another call took over this session's files, since the store was away for too long; nothing was \
                   stored; call again";
    CallError::new(ErrorCode::Overloaded, message)
}
