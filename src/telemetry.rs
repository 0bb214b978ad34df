//! Logs and traces.
use crate::call::{CallContext, TraceParent};
use crate::config::TelemetryConfig;
use crate::record::CallRecord;

/// Flushes logs and spans when dropped.
#[derive(Debug)]
pub struct TelemetryGuard;

/// Sets up the process's subscriber: logs to stderr, spans over OTLP when the `OTEL_*` variables ask for it.
pub fn start(_config: &TelemetryConfig) -> Result<TelemetryGuard, String> {
    Ok(TelemetryGuard)
}

/// The span `tool_execution` (E88), child of the caller's.
pub fn tool_span(_call: &CallContext) -> tracing::Span {
    tracing::Span::none()
}

/// Ends the span's attributes and writes the call's log line (E87).
pub fn record(_span: &tracing::Span, _record: &CallRecord<'_>) {}

/// `traceparent` and `tracestate` for a request sent on behalf of the call.
pub fn outgoing(_call: &CallContext) -> Option<TraceParent> {
    None
}

/// Parses the W3C headers; `None` for anything that is not well-formed.
pub fn incoming(_traceparent: &str, _tracestate: Option<&str>) -> Option<TraceParent> {
    None
}
