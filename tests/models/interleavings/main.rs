//! The bounded structures of `sekisho-core` with threads in many orders. Shuttle does not try all orders, but [`ORDERS`] of them by chance
//! and [`ORDERS`] by priorities that change (PCT), from one seed.
#![expect(clippy::expect_used, reason = "a test stops at the first surprise")]
#![expect(clippy::duplicate_mod, reason = "the scenarios are for the structures, and for each of their mistakes")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Orders of each sort in a scenario.
const ORDERS: usize = 5_000;

/// Changes of priorities in one order.
const CHANGES: usize = 3;

const SEED: u64 = 55;

include!("../mistakes.rs");

#[path = "."]
mod real {
    use sekisho_models::structures::unchanged as structures;
    #[path = "scenarios.rs"]
    pub mod scenarios;
}

/// The scenarios for each mistake, by its name.
macro_rules! scenarios_of {
    ($($name:ident)*) => {
        $(#[path = "."]
        mod $name {
            use sekisho_models::structures::$name as structures;
            #[path = "scenarios.rs"]
            pub mod scenarios;
        })*

        fn scenarios_of(mistake: &str) -> Option<&'static [(&'static str, fn())]> {
            match mistake {
                $(stringify!($name) => Some(&$name::scenarios::ALL),)*
                _ => None,
            }
        }
    };
}

scenarios_of!(
    waiters_forgotten
    checked_before_taken
    not_looked_again
    place_kept
    units_lost_on_the_way
    capacity_without_a_word
    queue_without_a_bound
    cache_checked_before_added
);

fn in_many_orders(scenario: fn()) {
    Runner::new(RandomScheduler::new_from_seed(SEED, ORDERS), Config::new()).run(scenario);
    Runner::new(PctScheduler::new_from_seed(SEED, CHANGES, ORDERS), Config::new()).run(scenario);
}

#[test]
fn structures_keep_their_bounds_and_nobody_waits_for_ever() {
    for (name, scenario) in real::scenarios::ALL {
        println!("{name}");
        in_many_orders(scenario);
    }
}

#[test]
fn each_mistake_fails_in_some_order() {
    for (mistake, .., scenario) in MISTAKES {
        let scenarios = scenarios_of(mistake).expect("it is in the list above");
        let (_, run) = scenarios.iter().find(|(name, _)| *name == scenario).expect("there is such a scenario");
        let found = catch_unwind(AssertUnwindSafe(|| in_many_orders(*run)));
        assert!(found.is_err(), "{mistake} passes {scenario}");
    }
}
