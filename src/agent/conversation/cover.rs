//! The row of a client's run, by which another process goes on with the run if this one ends before it.

use std::fmt;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use sekisho_store::{BackgroundLease, BackgroundRunStore};

/// Removes the row when it is dropped: the run has ended, or did not begin.
pub struct RunCover {
    lease: Option<BackgroundLease>,
    store: BackgroundRunStore,
    renewal: AbortHandle,
}

impl RunCover {
    /// Keeps the lease of the row, which was asked for at that moment.
    pub fn new(lease: BackgroundLease, asked: Instant, store: BackgroundRunStore) -> Self {
        let (kept, renewed) = (store.clone(), lease.clone());
        let renewal = tokio::spawn(async move { kept.keep_renewing(&renewed, asked).await }).abort_handle();
        Self { lease: Some(lease), store, renewal }
    }

    /// Waits until the row is removed.
    pub(super) async fn end(mut self) {
        self.renewal.abort();
        if let Some(lease) = self.lease.take() {
            forget(&self.store, &lease).await;
        }
    }
}

impl Drop for RunCover {
    fn drop(&mut self) {
        self.renewal.abort();
        if let Some(lease) = self.lease.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let store = self.store.clone();
            runtime.spawn(async move { forget(&store, &lease).await });
        }
    }
}

/// Without it another process finds that the run has ended.
async fn forget(store: &BackgroundRunStore, lease: &BackgroundLease) {
    if let Err(error) = store.forget(lease).await {
        tracing::warn!(%error, "the row of a run that ended is removed later");
    }
}

impl fmt::Debug for RunCover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunCover").field("lease", &self.lease).finish_non_exhaustive()
    }
}
