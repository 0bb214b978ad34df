//! The properties that the runs show, and that a run with a broken rule does not show.

use rand::Rng;
use rust_decimal::Decimal;

use super::{Broken, PRICES, Run, SECONDS};
use crate::lease::simulation::{Conditions, seeds};

/// A few replicas, some of which are cut off or killed, and whose leases are released.
fn with_releases(random: &mut rand::rngs::StdRng) -> Conditions {
    Conditions { replicas: random.random_range(2..=5), cut_off: 0.02, ..Conditions::of(random) }
}

#[test]
fn a_budget_is_never_overspent_whatever_is_lost() {
    for seed in seeds() {
        let run = Run::new(seed, Conditions::of, Broken::Nothing).run();
        assert_eq!(run.overspent, None, "seed {seed}: {:?}", run.conditions);
    }
}

#[test]
fn with_releases_no_more_is_overspent_than_lost_replicas_could_not_say() {
    let mut released = 0;
    for seed in seeds() {
        let run = Run::new(seed, with_releases, Broken::Nothing).run();
        assert_eq!(run.overspent, None, "seed {seed}: {:?}", run.conditions);
        released += run.known.values().filter(|(_, releases)| *releases > 0).count();
    }
    assert!(released > 10, "{released} leases were released");
}

#[test]
fn a_broken_rule_of_releases_overspends_in_some_run() {
    for broken in [Broken::SpentAfterRelease, Broken::ReleaseForgotten, Broken::LiveReleased] {
        let found = (0..2_000).find(|seed| Run::new(*seed, with_releases, broken).run().overspent.is_some());
        assert!(found.is_some(), "{broken:?} was not found");
    }
}

#[test]
fn a_budget_that_is_asked_for_evenly_is_spent() {
    let mut asked = 0;
    for seed in seeds() {
        let run = Run::new(seed, Conditions::fair, Broken::Nothing).run();
        let limit = run.limit.cost_usd.unwrap();
        assert_eq!(run.overspent, None, "seed {seed}");
        // Runs with less demand have nothing to show, nor runs in which a replica has fewer than ten calls.
        if run.is_short && run.between < SECONDS * 50_000 {
            asked += 1;
            // Less than the dearest call may be left, too: it is refused where a cheap one would fit.
            let most_left = (limit * Decimal::new(5, 2)).max(Decimal::new(PRICES[3], 2));
            let left = limit - run.really_spent;
            assert!(left <= most_left, "seed {seed}: {left} of {limit} is left, {:?}", run.conditions);
        }
    }
    assert!(asked > 10, "{asked} runs");
}

#[test]
fn a_broken_rule_overspends_in_some_run() {
    let rules =
        [Broken::Sequence, Broken::SpentTwice, Broken::SettledEarly, Broken::FreedAtLoss, Broken::OthersForgotten];
    for broken in rules {
        let found = (0..2_000).find(|seed| Run::new(*seed, Conditions::of, broken).run().overspent.is_some());
        assert!(found.is_some(), "{broken:?} was not found");
    }
}
