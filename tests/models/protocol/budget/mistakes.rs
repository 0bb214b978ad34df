//! The properties, the bounds within which all states are visited, and the mistakes.

use super::{Budget, NOTHING, Remaining};

pub const NEVER_OVERSPENT: &str = "a budget is never overspent";
pub const NEVER_TWICE: &str = "a call is never charged twice";
pub const ALWAYS_FREED: &str = "a lease is always freed";

/// Messages are lost, charges are stored again, and a replica crashes.
const LOSSES: Budget = within(20, Remaining { calls: 3, requests: 3, crashes: 1, timeouts: 1, ..NOTHING });

/// A request arrives after a later one.
const OVERTAKEN: Budget = within(10, Remaining { calls: 2, requests: 4, steps: 1, timeouts: 1, ..NOTHING });

/// A lease is released while its replica is cut off or has crashed; a replica comes back by its heartbeat.
const RELEASES: Budget = within(10, Remaining { crashes: 1, ..RELEASE });

/// The same with a clock that jumps, and with another replica that comes back and an answer to a heartbeat that is a minute late: too many
/// states to visit all of them in a test.
const JUMPS: Budget = within(10, Remaining { heartbeats: 2, jumps: 1, ..RELEASE });
const LATE_ANSWERS: Budget = within(10, Remaining { steps: 3, heartbeats: 2, ..RELEASE });

const RELEASE: Remaining = Remaining { calls: 2, requests: 2, steps: 2, heartbeats: 1, releases: 1, ..NOTHING };

/// All states of these are visited.
pub const ALL: [Budget; 3] = [LOSSES, OVERTAKEN, RELEASES];

const fn within(limit: u64, bounds: Remaining) -> Budget {
    Budget { limit, bounds, mistake: None }
}

/// A rule that a variant of the model breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The ledger decides about requests that are older than the last one.
    LateRequestsDecided,
    /// The leases of other replicas do not count.
    OthersForgotten,
    /// An amount leaves the lease before it is stored.
    SettledBeforeStored,
    /// An amount that is stored does not leave the lease.
    NeverSettled,
    /// The leases of a live replica are released.
    LiveReleased,
    /// The ledger takes a released lease for the replica's own.
    ReleaseForgotten,
    /// A replica spends its lease however old its last heartbeat is.
    NeverInvalid,
    /// A lease is valid by a clock that can be set back, or stops while the machine is suspended.
    ClockJumps,
    /// A lease is valid from when the heartbeat was answered.
    ValidFromAnswer,
    /// A lease is valid until it can be released: clocks do not differ.
    NoMargin,
    /// A request that was not answered counts as granted.
    UnansweredGranted,
    /// A charge whose answer was lost is stored once more.
    StoredTwice,
    /// A replica that is idle keeps its lease.
    NeverGivenBack,
    /// A call that was not sent stays held.
    NotRefunded,
}

/// Each mistake, the bounds within which it is looked for, and the property that it must break.
pub const MISTAKES: [(Mistake, Budget, &str); 14] = [
    (Mistake::LateRequestsDecided, OVERTAKEN, NEVER_OVERSPENT),
    (Mistake::OthersForgotten, LOSSES, NEVER_OVERSPENT),
    (Mistake::SettledBeforeStored, OVERTAKEN, NEVER_OVERSPENT),
    (Mistake::NeverSettled, OVERTAKEN, NEVER_OVERSPENT),
    (Mistake::LiveReleased, RELEASES, NEVER_OVERSPENT),
    (Mistake::ReleaseForgotten, LATE_ANSWERS, NEVER_OVERSPENT),
    (Mistake::NeverInvalid, RELEASES, NEVER_OVERSPENT),
    (Mistake::ClockJumps, JUMPS, NEVER_OVERSPENT),
    (Mistake::ValidFromAnswer, LATE_ANSWERS, NEVER_OVERSPENT),
    (Mistake::NoMargin, RELEASES, NEVER_OVERSPENT),
    (Mistake::UnansweredGranted, LOSSES, NEVER_OVERSPENT),
    (Mistake::StoredTwice, LOSSES, NEVER_TWICE),
    (Mistake::NeverGivenBack, LOSSES, ALWAYS_FREED),
    (Mistake::NotRefunded, LOSSES, ALWAYS_FREED),
];
