//! The rows of `replicas`, in seconds of the database's clock, as `src/store/replicas.rs` writes and reads them.

use crate::REPLICAS;

/// `LOST_AFTER` of `src/store/replica.rs`.
pub const LOST_AFTER: i16 = 12;

/// Tenths of a second of the replicas' clocks in a second of the database's: 10 % slow, right, and 10 % fast.
pub const TENTHS: [u16; REPLICAS] = [9, 10, 11];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Registered {
    pub heartbeat: i16,
    /// Since when there was no gap between heartbeats.
    pub live_since: i16,
}

impl Registered {
    /// With a heartbeat at zero, and without gaps for an hour.
    pub fn long_ago() -> Self {
        Self { heartbeat: 0, live_since: -3_600 }
    }

    /// `ReplicaStore::beat`.
    pub fn beat(&mut self, now: i16) {
        if self.heartbeat <= now - LOST_AFTER / 2 {
            self.live_since = now;
        }
        self.heartbeat = now;
    }
}

/// `Engine::is_lost`: a taker that was itself without the database takes nothing yet.
pub fn is_lost(replica: Registered, taker: Registered, now: i16, lost_after: i16) -> bool {
    let recently = now - lost_after;
    replica.heartbeat <= recently && taker.heartbeat > recently && taker.live_since <= recently
}
