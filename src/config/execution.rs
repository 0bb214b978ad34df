use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// Timeouts and retries of a permitted call (E68).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutionConfig {
    /// Attempts of an idempotent tool, including the first.
    pub max_attempts: u32,
    /// Maximum duration of one attempt over the network, within the call's own deadline; then the request is sent
    /// again. Without it an attempt may take all the time that is left, and only failed connections are retried.
    pub attempt_timeout_seconds: Option<f64>,
    /// The wait before the second attempt; doubled for each further one.
    pub backoff_base_seconds: f64,
    /// The longest wait between attempts.
    pub backoff_max_seconds: f64,
}

impl Default for ExecutionConfig {
    fn default() -> Self {
        Self { max_attempts: 4, attempt_timeout_seconds: None, backoff_base_seconds: 1.0, backoff_max_seconds: 10.0 }
    }
}

impl ExecutionConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("execution.max_attempts", self.max_attempts);
        if let Some(timeout) = self.attempt_timeout_seconds {
            findings.duration("execution.attempt_timeout_seconds", timeout);
        }
        findings.duration("execution.backoff_base_seconds", self.backoff_base_seconds);
        findings.duration("execution.backoff_max_seconds", self.backoff_max_seconds);
        if self.backoff_max_seconds < self.backoff_base_seconds {
            findings.add(
                "execution.backoff_max_seconds",
                "is shorter than `backoff_base_seconds`, the first wait",
                "set at least as many seconds",
            );
        }
    }
}
