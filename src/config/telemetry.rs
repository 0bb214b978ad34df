use schemars::JsonSchema;
use serde::Deserialize;

/// Logs and metrics. Traces follow the standard `OTEL_*` variables.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// What is logged, in the form of `RUST_LOG`, which overrides it.
    pub log: String,
    pub log_format: LogFormat,
    /// What every metric's name starts with.
    pub metrics_namespace: String,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { log: "info".into(), log_format: LogFormat::Auto, metrics_namespace: "shannon".into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON otherwise.
    Auto,
    Pretty,
    Json,
}
