//! The call: it stands, starts, is sent and ends; or it is found lost.

use sekisho_core::approval::ApprovalState;

use super::{Approval, Mistake, Row, State, Task};
use crate::replicas::{LOST_AFTER, is_lost};

impl Approval {
    /// `Approvals::standing`.
    pub(super) fn stand(&self, state: &mut State, at: usize) {
        let row = state.row;
        // What is read says `expired` though nobody has written that.
        let is_open = row.expires > state.now || self.has(Mistake::StartedLate);
        state.replicas[at].task = match row.state {
            ApprovalState::Approved if is_open => Task::Approved,
            ApprovalState::Executing if row.runner == at || self.is_lost(state, at) => Task::Losing(row.fence),
            _ => Task::Idle,
        };
    }

    /// `ApprovedCall::start` and `ApprovalStore::start_call`: `WHERE state = 'approved' AND expires > now`.
    pub(super) fn start(&self, state: &mut State, at: usize, is_answered: bool) {
        state.remaining.starts -= 1;
        let (row, now) = (&mut state.row, state.now);
        let is_late = row.expires <= now;
        let may_start = (row.state == ApprovalState::Approved || self.has(Mistake::StartedFromAnyState))
            && (!is_late || self.has(Mistake::StartedLate));
        if !is_answered {
            state.remaining.lost_answers -= 1;
        }
        state.replicas[at].task = Task::Idle;
        if self.has(Mistake::SentWithoutRecord) && !is_answered {
            state.replicas[at].task = Task::Sent(None);
            state.sent += 1;
            return;
        }
        if !may_start {
            return;
        }
        (row.state, row.runner, row.fence) = (ApprovalState::Executing, at, row.fence + 1);
        if !self.has(Mistake::StartUnseen) {
            row.revision += 1;
        }
        state.has_started_late |= is_late;
        if is_answered {
            state.replicas[at].task = Task::Started(row.fence);
        }
    }

    pub(super) fn send(&self, state: &mut State, at: usize) {
        if let Task::Started(fence) = state.replicas[at].task {
            state.replicas[at].task = Task::Sent(Some(fence));
            state.sent += 1;
        }
    }

    /// `ApprovalStore::end_call`: `WHERE fence = $ AND state = 'executing'`. A call that was not sent may be made again.
    pub(super) fn end(&self, state: &mut State, at: usize) {
        let (fence, was_sent) = match state.replicas[at].task {
            Task::Started(fence) => (Some(fence), false),
            Task::Sent(fence) => (fence, !self.has(Mistake::UnansweredNotSent)),
            _ => return,
        };
        state.replicas[at].task = Task::Idle;
        let row = &mut state.row;
        if Some(row.fence) == fence && row.state == ApprovalState::Executing {
            row.state = if was_sent { ApprovalState::Done } else { ApprovalState::Approved };
            row.revision += 1;
        }
    }

    /// `Approvals::lose` and `ApprovalStore::lose_call`: `WHERE fence = $ AND state = 'executing'`.
    pub(super) fn lose(&self, state: &mut State, at: usize) {
        let Task::Losing(fence) = state.replicas[at].task else { return };
        state.replicas[at].task = Task::Idle;
        let is_same = state.row.fence == fence;
        if (is_same || self.has(Mistake::LostWithoutFence)) && state.row.state == ApprovalState::Executing {
            state.has_lost_other |= !is_same;
            self.lost(&mut state.row);
        }
    }

    /// `Approvals::sweep` and `ApprovalStore::lose_calls_of_others`.
    pub(super) fn sweep(&self, state: &mut State, at: usize) {
        let is_executing = state.row.state == ApprovalState::Executing && state.row.runner != at;
        if is_executing && self.is_lost(state, at) && !self.has(Mistake::NeverSwept) {
            self.lost(&mut state.row);
        }
    }

    fn is_lost(&self, state: &State, taker: usize) -> bool {
        let [of_runner, of_taker] = [state.row.runner, taker].map(|at| state.replicas[at].registered);
        is_lost(of_runner, of_taker, state.now, LOST_AFTER)
    }

    fn lost(&self, row: &mut Row) {
        row.state = if self.has(Mistake::LostIsApproved) { ApprovalState::Approved } else { ApprovalState::Unknown };
        row.revision += 1;
    }
}
