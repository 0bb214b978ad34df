//! The metrics of approvals.

use super::Metrics;

/// The outcome of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalEvent {
    Asked,
    Approved,
    Denied,
    Expired,
    /// A call was about to be sent by it.
    Used,
    /// The outcome of its call is unknown.
    Unknown,
}

sekisho_core::as_str!(ApprovalEvent);

impl ApprovalEvent {
    pub(super) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl Metrics {
    /// Something became of an approval.
    pub fn approval(&self, event: ApprovalEvent) {
        self.families.approvals.with_label_values(&[event.as_str()]).inc();
    }

    /// Approvals that wait for a decision.
    pub fn set_approvals_pending(&self, pending: i64) {
        self.families.approvals_pending.set(pending);
    }

    /// A caller begins (1) or ends (-1) to wait for a decision.
    pub fn waits_for_approval(&self, change: i64) {
        self.families.approval_waiters.add(change);
    }
}
