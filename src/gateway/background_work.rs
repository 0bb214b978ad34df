//! Work that requests begin and do not wait for.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Gateway;
use super::background::HOUSEKEEPING;
use sekisho_store::AgentRun;

impl Gateway {
    /// Records the usage of an agent run in the background. Shutdown waits for it.
    pub fn keep_run(&self, run: AgentRun) {
        let store = self.store.clone();
        self.background.spawn(async move {
            if let Err(error) = store.add_run(&run).await {
                tracing::warn!(%error, "the usage of an agent run could not be recorded");
            }
        });
    }

    /// Runs a background task, which is aborted when the service stops.
    pub fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.background.spawn(async move {
            closing.run_until_cancelled(work).await;
        });
    }

    /// Has this run each minute, as long as there is `kept`: to remove what has expired, also where nothing comes after it.
    pub fn each_minute<T: Send + Sync + 'static>(&self, kept: &Arc<T>, work: impl Fn(&T) + Send + 'static) {
        let kept = Arc::downgrade(kept);
        self.in_background(async move {
            let mut tick = tokio::time::interval(HOUSEKEEPING);
            loop {
                tick.tick().await;
                let Some(kept) = kept.upgrade() else { return };
                work(&kept);
            }
        });
    }

    /// Runs a background task to its end. Shutdown waits for it: it ends soon after [`closing`](Self::closing).
    pub fn run_behind(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work.in_current_span());
    }

    /// Cancelled when background tasks are to end.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Runs work to its end, even when the request that waits for it is gone. Shutdown waits for it.
    pub async fn run_to_end<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.background.spawn(work.in_current_span()).await {
            Ok(result) => result,
            // It is never aborted, so it panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
