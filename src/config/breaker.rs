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
    /// Fraction of failures in the window, 0–1 (`ENFORCE_CB_ERROR_THRESHOLD`, E52).
    pub error_threshold: f64,
    /// Length of the sliding window (`ENFORCE_CB_WINDOW_SECONDS`, E53).
    pub window_seconds: u64,
    /// Calls in the window before the fraction counts (`ENFORCE_CB_MIN_REQUESTS`, E54).
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
        self.check_at("breaker", findings);
    }

    fn check_at(&self, setting: &str, findings: &mut Findings) {
        let at = |key: &str| format!("{setting}.{key}");
        findings.above_zero(&at("consecutive_failures"), self.consecutive_failures);
        findings.seconds(&at("recovery_seconds"), self.recovery_seconds);
        // Written so that NaN is refused too.
        if !(self.error_threshold > 0.0 && self.error_threshold <= 1.0) {
            findings.add(at("error_threshold"), "must be above 0 and at most 1", "set a fraction, such as 0.5");
        }
        findings.seconds(&at("window_seconds"), self.window_seconds);
        findings.above_zero(&at("min_requests"), self.min_requests);
    }
}

/// The breaker settings of one upstream; omitted ones are those of [`BreakerConfig`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerOverrides {
    pub consecutive_failures: Option<u32>,
    pub recovery_seconds: Option<u64>,
    pub error_threshold: Option<f64>,
    pub window_seconds: Option<u64>,
    pub min_requests: Option<u32>,
}

impl BreakerOverrides {
    /// `all`, with the settings that are set here.
    #[must_use]
    pub fn over(&self, all: &BreakerConfig) -> BreakerConfig {
        BreakerConfig {
            consecutive_failures: self.consecutive_failures.unwrap_or(all.consecutive_failures),
            recovery_seconds: self.recovery_seconds.unwrap_or(all.recovery_seconds),
            error_threshold: self.error_threshold.unwrap_or(all.error_threshold),
            window_seconds: self.window_seconds.unwrap_or(all.window_seconds),
            min_requests: self.min_requests.unwrap_or(all.min_requests),
        }
    }

    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        self.over(&BreakerConfig::default()).check_at(setting, findings);
    }
}
