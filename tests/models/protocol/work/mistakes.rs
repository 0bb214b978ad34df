//! The properties, the bounds within which all states are visited, and the mistakes.

use super::{Remaining, Work};

pub const NO_FORMER_WRITE: &str = "a former holder writes nothing";
pub const ONE_ACTS: &str = "one holder acts at a time";
pub const ALWAYS_FREED: &str = "a thing is always freed";

const NOTHING: Remaining =
    Remaining { seconds: 0, takings: 0, crashes: 0, partitions: 0, suspensions: 0, jumps: 0, lost_answers: 0 };

/// Replicas crash, and are cut off.
const PARTITIONS: Work =
    within(Remaining { seconds: 16, takings: 3, crashes: 1, partitions: 1, lost_answers: 1, ..NOTHING });

/// A replica is suspended, or the database's clock jumps.
const SUSPENSIONS: Work = within(Remaining { seconds: 12, takings: 2, suspensions: 1, jumps: 1, ..NOTHING });
const JUMPS: Work = within(Remaining { seconds: 12, takings: 3, jumps: 1, lost_answers: 1, ..NOTHING });

/// All states of these are visited.
pub const ALL: [Work; 3] = [PARTITIONS, SUSPENSIONS, JUMPS];

const fn within(bounds: Remaining) -> Work {
    Work { bounds, mistake: None }
}

/// A rule that a variant of the model breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    WriteWithoutFence,
    RenewalWithoutFence,
    ReleaseWithoutFence,
    TakenWhileHeld,
    /// A holder without the database goes on for as long as it does not hear otherwise.
    NeverGivesUp,
    /// A replica is lost 6 s after its last heartbeat.
    LostTooEarly,
    /// A lease has no end, and no replica is lost.
    NoEnd,
    /// A replica that was without the database takes a thing before its heartbeat: it still counts as lost, and loses the thing.
    LostDespiteItsLease,
}

/// Each mistake, the bounds within which it is looked for, and the property that it must break.
pub const MISTAKES: [(Mistake, Work, &str); 8] = [
    (Mistake::WriteWithoutFence, JUMPS, NO_FORMER_WRITE),
    (Mistake::RenewalWithoutFence, JUMPS, ONE_ACTS),
    (Mistake::ReleaseWithoutFence, JUMPS, ONE_ACTS),
    (Mistake::TakenWhileHeld, PARTITIONS, ONE_ACTS),
    (Mistake::NeverGivesUp, PARTITIONS, ONE_ACTS),
    (Mistake::LostTooEarly, PARTITIONS, ONE_ACTS),
    (Mistake::NoEnd, PARTITIONS, ALWAYS_FREED),
    (Mistake::LostDespiteItsLease, PARTITIONS, ONE_ACTS),
];
