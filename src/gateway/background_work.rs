//! Work that goes on beside the requests, and for which a shutdown waits.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::housekeeping::HOUSEKEEPING;

/// The background tasks of a gateway.
#[derive(Debug, Clone, Default)]
pub struct BackgroundWork {
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl BackgroundWork {
    /// Runs a background task to its end, apart from the current span. Shutdown waits for it: it ends soon after
    /// [`closing`](Self::closing).
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Runs a task of a part of the gateway, which ends soon after the token is cancelled.
    pub(super) fn spawn_of<T, W>(&self, part: &Arc<T>, task: impl FnOnce(Arc<T>, CancellationToken) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.spawn(task(Arc::clone(part), self.closing.clone()));
    }

    /// Runs a background task to its end in the current span.
    pub fn spawn_in_span(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work.in_current_span());
    }

    /// Runs a background task, which is aborted when the service stops.
    pub fn spawn_until_closing(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            closing.run_until_cancelled(work).await;
        });
    }

    /// Runs the work each minute, as long as there is `kept`: it removes expired entries, also where no later entry
    /// comes.
    pub fn each_minute<T: Send + Sync + 'static>(&self, kept: &Arc<T>, work: impl Fn(&T) + Send + 'static) {
        let kept = Arc::downgrade(kept);
        self.spawn_until_closing(async move {
            let mut tick = tokio::time::interval(HOUSEKEEPING);
            loop {
                tick.tick().await;
                let Some(kept) = kept.upgrade() else { return };
                work(&kept);
            }
        });
    }

    /// Cancelled when background tasks are to end.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Runs work to its end, even when the request that waits for it is gone. Shutdown waits for it.
    pub async fn run_to_end<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.tasks.spawn(work.in_current_span()).await {
            Ok(result) => result,
            // It is never aborted, so it panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Waits for all tasks.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
