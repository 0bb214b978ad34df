//! The properties, the bounds within which all states are visited, and the mistakes.

use super::{Approval, Remaining};

pub const NEVER_TWICE: &str = "an effect is never made twice";
pub const NEVER_DENIED: &str = "a call that was denied is never sent";
pub const NEVER_LATE: &str = "a call does not start after the end of its approval";
pub const ONLY_ITS_OWN: &str = "only the start of a call that was found lost is lost";
pub const ALWAYS_FREED: &str = "an approval always ends";

const NOTHING: Remaining = Remaining { steps: 0, decisions: 0, starts: 0, crashes: 0, partitions: 0, lost_answers: 0 };

/// Nobody decides or uses it in time.
const LATE: Approval = within(Remaining { steps: 5, decisions: 2, starts: 1, crashes: 1, ..NOTHING });

/// A replica is cut off, and comes back.
const PARTITIONS: Approval = within(Remaining { steps: 4, decisions: 2, starts: 2, partitions: 1, ..NOTHING });

/// A replica crashes, and the answer to a start is lost.
const CRASHES: Approval =
    within(Remaining { steps: 4, decisions: 1, starts: 2, crashes: 1, lost_answers: 1, ..NOTHING });

/// All states of these are visited.
pub const ALL: [Approval; 3] = [LATE, PARTITIONS, CRASHES];

const fn within(bounds: Remaining) -> Approval {
    Approval { bounds, mistake: None }
}

/// A rule that a variant of the model breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The start of a call does not name the state that it starts from.
    StartedFromAnyState,
    /// A call is sent though its start could not be written.
    SentWithoutRecord,
    /// A call whose runner is lost may be made again.
    LostIsApproved,
    /// A call without an answer counts as not sent.
    UnansweredNotSent,
    /// A decision does not name the revision that the approver read.
    DecidedUnseen,
    /// The start of a call leaves the revision as it is.
    StartUnseen,
    /// The start of a call does not look at the end of the approval.
    StartedLate,
    /// A call is lost by its state, whoever makes it by now.
    LostWithoutFence,
    /// Nobody looks for calls whose runner is lost.
    NeverSwept,
}

/// Each mistake, the bounds within which it is looked for, and the property that it must break.
pub const MISTAKES: [(Mistake, Approval, &str); 9] = [
    (Mistake::StartedFromAnyState, CRASHES, NEVER_TWICE),
    (Mistake::SentWithoutRecord, CRASHES, NEVER_TWICE),
    (Mistake::LostIsApproved, CRASHES, NEVER_TWICE),
    (Mistake::UnansweredNotSent, CRASHES, NEVER_TWICE),
    (Mistake::DecidedUnseen, PARTITIONS, NEVER_DENIED),
    (Mistake::StartUnseen, PARTITIONS, NEVER_DENIED),
    (Mistake::StartedLate, LATE, NEVER_LATE),
    (Mistake::LostWithoutFence, PARTITIONS, ONLY_ITS_OWN),
    (Mistake::NeverSwept, CRASHES, ALWAYS_FREED),
];
