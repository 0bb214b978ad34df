//! Reports in readiness that the clock of this machine differs from the database's.
//!
//! Records of replicas go by the database's clock. Tokens of issuers, signatures, certificates, logs and the audit
//! trail go by the machine's.

use jiff::SignedDuration;

use crate::Store;
use sekisho_observe::readiness::Readiness;

/// Clocks that are kept by a time server differ by less.
const MAX_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// Its name in readiness.
const COMPONENT: &str = "clock";

/// Reports how far this machine's clock is from the store's. The clock of a file is this machine's.
pub fn report(store: &Store, readiness: &Readiness) {
    let ahead = store.machine_is_ahead_by();
    if ahead.abs() <= MAX_DIFFERENCE {
        readiness.restore(COMPONENT);
        return;
    }
    let direction = if ahead.is_negative() { "behind" } else { "ahead of" };
    let reason = format!(
        "the clock of this machine is {} {direction} the database's, by which records expire: tokens, certificates and logs go by \
         this machine's; set it by a time server",
        rounded(ahead.abs())
    );
    readiness.degrade(COMPONENT, reason);
}

/// In one unit, so that the reason stays while the difference does.
fn rounded(difference: SignedDuration) -> String {
    match difference.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::test_support::{test_store, with_clock};
    use sekisho_core::database_clock::DatabaseClock;

    #[tokio::test]
    async fn a_machine_whose_clock_is_off_says_by_how_much_until_it_is_right() {
        let (clock, readiness) = (Arc::new(DatabaseClock::new()), Readiness::default());
        let store = with_clock(&test_store().await, &clock);
        report(&store, &readiness);
        assert!(readiness.degraded().is_empty());
        // Half a unit more, so that the time of the test does not count.
        for (database_ahead, expected) in [
            (SignedDuration::from_millis(-20_500), "20 s ahead of the database's"),
            (SignedDuration::from_secs(450), "7 min behind the database's"),
            (SignedDuration::from_secs(-93_600 - 1_800), "26 h ahead of the database's"),
        ] {
            clock.set(Timestamp::now() + database_ahead);
            report(&store, &readiness);
            let reason = &readiness.degraded()[COMPONENT];
            assert!(reason.contains(expected), "{reason}");
        }
        clock.set(Timestamp::now());
        report(&store, &readiness);
        assert!(readiness.degraded().is_empty());
    }
}
