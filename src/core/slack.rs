//! One factor for the bounds that tests set on the real clock.
#![allow(clippy::expect_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

/// The bound, times the factor in the variable `SEKISHO_TEST_SLACK`: above 1 on a machine that is slow or loaded, where
/// a test that takes longer than usual says nothing about the code.
///
/// # Panics
/// When the variable is not a number of at least 1.
pub fn slack(bound: Duration) -> Duration {
    let Some(factor) = std::env::var_os("SEKISHO_TEST_SLACK") else { return bound };
    let factor = factor.to_str().and_then(|factor| factor.parse::<f64>().ok()).filter(|factor| *factor >= 1.0);
    bound.mul_f64(factor.expect("SEKISHO_TEST_SLACK is a number of at least 1, such as 3"))
}
