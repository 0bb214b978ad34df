//! The sleep of a program: the part of its memory that it does not use goes back to the gateway until it goes on.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use sekisho_guest_protocol::{FromWorker, JobId};

/// The shortest sleep for which memory is given back: two messages take little time beside it.
const MIN_SLEEP: Duration = Duration::from_millis(100);

/// How the program of one job sleeps.
#[derive(Debug, Clone)]
pub struct Sleeper {
    pub job: JobId,
    pub gateway: mpsc::UnboundedSender<FromWorker>,
    /// Notified when the gateway has the memory for it again.
    pub may_continue: Arc<Notify>,
}

impl Sleeper {
    /// Sleeps, and then until there is memory for the program. It uses `memory_bytes` meanwhile.
    pub(super) async fn sleep(&self, time: Duration, memory_bytes: u64) {
        if time < MIN_SLEEP {
            return tokio::time::sleep(time).await;
        }
        self.rest(tokio::time::sleep(time), memory_bytes).await;
    }

    /// Waits for an event as it sleeps: while it waits longer than a moment, it gives memory back.
    pub async fn wait<T>(&self, event: impl Future<Output = T>, memory_bytes: u64) -> T {
        let mut event = pin!(event);
        match tokio::time::timeout(MIN_SLEEP, event.as_mut()).await {
            Ok(happened) => happened,
            Err(_) => self.rest(event, memory_bytes).await,
        }
    }

    async fn rest<T>(&self, event: impl Future<Output = T>, memory_bytes: u64) -> T {
        // Without the gateway the worker ends.
        let _ = self.gateway.send(FromWorker::Sleeping(self.job, memory_bytes));
        let happened = event.await;
        let _ = self.gateway.send(FromWorker::Waking(self.job));
        self.may_continue.notified().await;
        happened
    }
}
