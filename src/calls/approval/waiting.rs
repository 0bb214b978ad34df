//! Callers that wait until their calls are decided. They hold no slot, no budget and no arguments meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Approvals;
use sekisho_core::approval::ApprovalState;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, NeededApproval};
use sekisho_core::share::Share;
use sekisho_store::StoreError;

/// Longest wait.
pub const MAX_WAIT: Duration = Duration::from_secs(600);

/// Maximum callers that wait at once; the places are divided between the callers.
const MAX_WAITING: u64 = 1_000;

/// The waiting callers, by the id of the approval.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) share: Arc<Share>,
    by_id: Mutex<HashMap<Arc<str>, Arc<Notify>>>,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// An approver decided: approved or denied.
    Decided,
    /// Nobody did in time, or there is no place to wait.
    Undecided,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { share: Share::new(MAX_WAITING), by_id: Mutex::default() }
    }
}

impl Waiting {
    /// Wakes the callers that wait for this approval.
    pub(super) fn wake(&self, id: &str) {
        if let Some(decided) = self.by_id.lock().get(id) {
            decided.notify_waiters();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    fn ids(&self) -> Vec<String> {
        self.by_id.lock().keys().map(ToString::to_string).collect()
    }
}

/// A waiting caller. The last one for an approval removes its entry.
struct Waiter<'a> {
    approvals: &'a Approvals,
    id: Arc<str>,
    decided: Arc<Notify>,
}

impl<'a> Waiter<'a> {
    fn new(approvals: &'a Approvals, id: &Arc<str>) -> Self {
        let decided = Arc::clone(approvals.waiting.by_id.lock().entry(Arc::clone(id)).or_default());
        approvals.metrics.waits_for_approval(1);
        Self { approvals, id: Arc::clone(id), decided }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.approvals.metrics.waits_for_approval(-1);
        let mut by_id = self.approvals.waiting.by_id.lock();
        // The references of the entry and of this waiter.
        if Arc::strong_count(&self.decided) == 2 {
            by_id.remove(&self.id);
        }
    }
}

impl Approvals {
    /// Waits until an approval is decided, at most until `deadline`.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn wait(&self, caller: &Caller, id: &Arc<str>, deadline: Instant) -> Result<Waited, CallError> {
        let Some(_place) = self.waiting.share.try_acquire(&caller.owner, 1) else { return Ok(Waited::Undecided) };
        let waiter = Waiter::new(self, id);
        loop {
            let decided = waiter.decided.notified();
            let mut decided = std::pin::pin!(decided);
            // From here on a decision wakes it, also one before it waits.
            decided.as_mut().enable();
            if self.find(id).await?.state != ApprovalState::Pending {
                return Ok(Waited::Decided);
            }
            if timeout_at(deadline, decided).await.is_err() {
                return Ok(Waited::Undecided);
            }
        }
    }

    /// The approval with this id, while nobody has decided about it.
    /// Errors: `not_found`; `overloaded` when the store cannot be read.
    pub async fn undecided(&self, id: &str) -> Result<Option<NeededApproval>, CallError> {
        let approval = self.find(id).await?;
        Ok((approval.state == ApprovalState::Pending).then(|| self.needed(&approval)))
    }

    /// Wakes callers whose approvals were decided at another replica.
    pub async fn wake_decided_elsewhere(&self) -> Result<(), StoreError> {
        let ids = self.waiting.ids();
        if ids.is_empty() {
            return Ok(());
        }
        for id in self.store.approvals().decided_among(&ids).await? {
            self.waiting.wake(&id);
        }
        Ok(())
    }
}
