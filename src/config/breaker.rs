use schemars::JsonSchema;
use serde::Deserialize;

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
