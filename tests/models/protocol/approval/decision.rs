//! The decisions of approvers, by the revision that they have read.

use sekisho_core::approval::ApprovalState;

use super::{Approval, Mistake, State, TTL};

impl Approval {
    /// `Approvals::decide_seen` and `ApprovalStore::decide`: `WHERE revision = $ AND expires > now`. One that others overtook is
    /// tried again: it is read anew.
    pub(super) fn decide(&self, state: &mut State, at: usize, approves: bool) {
        let Some((revision, read)) = state.approvers[at].take() else { return };
        let may_be_decided = match read {
            ApprovalState::Pending => true,
            ApprovalState::Approved => !approves,
            _ => false,
        };
        let is_as_read = revision == state.row.revision || self.has(Mistake::DecidedUnseen);
        if !may_be_decided || !is_as_read || state.row.expires <= state.now {
            return;
        }
        let row = &mut state.row;
        row.revision += 1;
        if approves {
            (row.state, row.expires) = (ApprovalState::Approved, state.now + TTL);
        } else {
            row.state = ApprovalState::Denied;
            state.was_denied = true;
        }
    }
}
