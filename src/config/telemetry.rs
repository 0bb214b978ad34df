use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::check::Findings;
use super::overrides::Overrides;

/// Logs and metrics. Traces follow the standard `OTEL_*` variables.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// What is logged, in the syntax of `RUST_LOG`, which overrides it.
    pub log: String,
    pub log_format: LogFormat,
    /// Each metric is exported with this prefix, and with `sekisho`.
    pub metrics_namespace: String,
    /// Whether spans of requests to models have an event with the messages and the answer. Secrets, e-mail addresses and card
    /// numbers are masked.
    pub model_content: bool,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: "info".into(),
            log_format: LogFormat::Auto,
            metrics_namespace: "shannon".into(),
            model_content: false,
        }
    }
}

impl TelemetryConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("RUST_LOG", "telemetry.log", &mut self.log);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if EnvFilter::try_new(&self.log).is_err() {
            findings.add(
                "telemetry.log",
                "is not a log filter",
                "write it like RUST_LOG, such as `info,sekisho=debug`",
            );
        }
        // A metric's name may start with a letter or `_`; colons are reserved for recording rules.
        let namespace = self.metrics_namespace.as_bytes();
        let starts_well = namespace.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_');
        if !starts_well || !namespace.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            findings.add(
                "telemetry.metrics_namespace",
                "is not a valid prefix of a Prometheus metric name",
                "use letters, digits and `_`, not starting with a digit",
            );
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON otherwise.
    Auto,
    Pretty,
    Json,
}
