use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::overrides::Overrides;

/// When a circuit breaker opens (either rule), and for how long.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Failures in a row (`MCP_CB_FAILURES`, E50).
    pub consecutive_failures: u32,
    /// Seconds it stays open before one call may probe (`MCP_CB_RECOVERY_SECONDS`, E51).
    pub recovery_seconds: u64,
    /// Share of failures in the window, 0–1 (`ENFORCE_CB_ERROR_THRESHOLD`, E52).
    pub error_threshold: f64,
    /// Length of the sliding window (`ENFORCE_CB_WINDOW_SECONDS`, E53).
    pub window_seconds: u64,
    /// Calls in the window before the share counts (`ENFORCE_CB_MIN_REQUESTS`, E54).
    pub min_requests: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            recovery_seconds: 60,
            error_threshold: 0.5,
            window_seconds: 30,
            min_requests: 20,
        }
    }
}

impl BreakerConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("MCP_CB_FAILURES", "breaker.consecutive_failures", &mut self.consecutive_failures);
        environment.apply("MCP_CB_RECOVERY_SECONDS", "breaker.recovery_seconds", &mut self.recovery_seconds);
        environment.apply("ENFORCE_CB_ERROR_THRESHOLD", "breaker.error_threshold", &mut self.error_threshold);
        environment.apply("ENFORCE_CB_WINDOW_SECONDS", "breaker.window_seconds", &mut self.window_seconds);
        environment.apply("ENFORCE_CB_MIN_REQUESTS", "breaker.min_requests", &mut self.min_requests);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("breaker.consecutive_failures", self.consecutive_failures);
        findings.seconds("breaker.recovery_seconds", self.recovery_seconds);
        // Written so that not-a-number is refused too.
        if !(self.error_threshold > 0.0 && self.error_threshold <= 1.0) {
            findings.add("breaker.error_threshold", "must be above 0 and at most 1", "give a share, such as 0.5");
        }
        findings.seconds("breaker.window_seconds", self.window_seconds);
        findings.above_zero("breaker.min_requests", self.min_requests);
    }
}
