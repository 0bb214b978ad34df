use schemars::JsonSchema;
use serde::Deserialize;

/// How a permitted call is attempted, and attempted again (E68).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutionConfig {
    /// Attempts of an idempotent tool, counting the first.
    pub max_attempts: u32,
    /// One attempt over the network may take this long, and never longer than the call has left.
    pub attempt_timeout_seconds: f64,
    /// The wait before the second attempt; doubled before each further one.
    pub backoff_base_seconds: f64,
    /// The longest wait between attempts.
    pub backoff_max_seconds: f64,
}

impl Default for ExecutionConfig {
    fn default() -> Self {
        Self { max_attempts: 3, attempt_timeout_seconds: 10.0, backoff_base_seconds: 1.0, backoff_max_seconds: 10.0 }
    }
}
