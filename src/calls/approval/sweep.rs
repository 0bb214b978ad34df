//! The work of every minute: calls whose runner is gone, requests that expired, records that are old.

use std::time::Duration;

use super::{Approval, Approvals};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::error::CallError;
use sekisho_observe::metrics::ApprovalEvent;
use sekisho_store::replica::LOST_AFTER;
use sekisho_store::{StoreError, StoredApproval};

/// How long the record of an approval is kept.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

impl Approvals {
    pub async fn sweep(&self) -> Result<(), StoreError> {
        for lost in self.store.approvals().lose_calls_of_others(self.runner(), LOST_AFTER).await? {
            self.record(lost, Self::record_lost);
        }
        for expired in self.store.approvals().expire().await? {
            self.waiting.wake(&expired.id);
            self.record(expired, |approvals, approval| {
                approvals.metrics.approval(ApprovalEvent::Expired);
                approvals.audit.event(event(EventKind::ApprovalExpired, approval));
                approvals.notify(approval);
            });
        }
        self.store.approvals().forget_older_than(KEPT).await?;
        self.metrics.set_approvals_pending(self.store.approvals().count_pending().await?);
        Ok(())
    }

    /// How many wait that nobody can approve, since the key that sealed them is not in force.
    /// Errors: the store cannot be read.
    pub async fn count_lost(&self) -> Result<i64, StoreError> {
        let approvals = self.store.approvals();
        // Without one that waits, no key is needed yet, and none is generated.
        let pending = approvals.count_pending().await?;
        if pending == 0 {
            return Ok(0);
        }
        match self.sealer.beginnings() {
            Ok([current, previous]) => approvals.count_pending_unlike(&current, &previous).await,
            Err(_) => Ok(pending),
        }
    }

    /// The outcome of its call is unknown from now on.
    pub(super) fn record_lost(&self, approval: &Approval) {
        tracing::warn!(
            approval = &*approval.id,
            tool = approval.tool,
            "the outcome of an approved call is unknown: its process stopped before the answer"
        );
        self.metrics.approval(ApprovalEvent::Unknown);
        self.audit.event(event(EventKind::ApprovalOutcomeUnknown, approval));
    }

    /// Tells the metrics how many wait.
    pub(super) async fn count_pending(&self) {
        match self.store.approvals().count_pending().await {
            Ok(pending) => self.metrics.set_approvals_pending(pending),
            Err(error) => tracing::debug!(%error, "the approvals that wait could not be counted"),
        }
    }

    fn record(&self, stored: StoredApproval, record: impl FnOnce(&Self, &Approval)) {
        match Approval::read(stored) {
            Ok(approval) => record(self, &approval),
            Err(error) => self.report_unreadable(&error),
        }
    }

    fn report_unreadable(&self, error: &CallError) {
        tracing::error!(error = error.cause(), "an approval in the store cannot be read");
    }
}

fn event(kind: EventKind, approval: &Approval) -> AuditEvent {
    let detail = Some(format!("{} for {} of {}", approval.tool, approval.caller_id, approval.tenant));
    AuditEvent { subject: Some(approval.id.to_string()), detail, ..AuditEvent::new(kind) }
}
