//! Logs to stderr, and traces over OTLP when the `OTEL_*` variables request them.
//!
//! Every ended call is one line (E87) and, with traces on, one span `tool_execution` (E88). Neither contains
//! arguments or secrets. With traces off the span does not exist, and its creation costs a few instructions.

mod agent;
#[cfg(any(test, feature = "test-support"))]
pub mod exported;
mod json;
mod otlp;
mod sink;
mod trace_context;

#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::{env, fmt, io};

use opentelemetry::trace::{Status as SpanStatus, TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use rust_decimal::prelude::ToPrimitive;
use thiserror::Error;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{Directive, EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use self::json::JsonLog;
use self::sink::{Sink, SinkWriter};
use self::trace_context::{span_context, trace_parent};
use sekisho_config::{LogFormat, TelemetryConfig};
use sekisho_core::call::{CallContext, Stage, TraceParent};
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};

pub use self::agent::{
    complete_model, complete_plan, complete_run, content_event, execute_tool_span, fail_model, fail_tool, model_span,
    name_answer, plan_span, run_span, turn_span,
};
pub use self::trace_context::{TRACE_PARENT, TRACE_STATE, incoming};

/// Sends the last spans and writes the last log lines when dropped.
#[derive(Debug)]
#[must_use]
pub struct TelemetryGuard {
    traces: Option<SdkTracerProvider>,
    _logs: SinkWriter,
}

/// Why logs or traces cannot be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    #[error(
        "{from}: {directive:?} is not a log directive; write a level (error, warn, info, debug, trace, off) \
         or `target=level`, separated by commas"
    )]
    InvalidDirective { from: &'static str, directive: String },
    #[error("{variable}={value} is not supported; {supported} is")]
    Unsupported { variable: &'static str, value: String, supported: &'static str },
    #[error("the OTLP exporter cannot be set up from the OTEL_* variables: {0}")]
    Exporter(String),
    #[error("the thread that writes the log cannot be started: {0}")]
    Thread(io::Error),
    #[error("logs and traces were already set up in this process")]
    AlreadyStarted,
}

/// Sets up the process's subscriber. `RUST_LOG` overrides `config.log`.
/// Errors: a log directive that is none, an `OTEL_*` setting that cannot be met, or a second start.
pub fn start(config: &TelemetryConfig) -> Result<TelemetryGuard, TelemetryError> {
    let from_environment = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let filter = match from_environment("RUST_LOG") {
        Some(directives) => log_filter("RUST_LOG", &directives)?,
        None => log_filter("telemetry.log", &config.log)?,
    };
    let traces = otlp::provider(from_environment)?;
    let terminal = io::stderr().is_terminal();
    let json = match config.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Pretty => false,
        LogFormat::Json => true,
    };
    let logs = Sink::start(io::stderr()).map_err(TelemetryError::Thread)?;
    let subscriber = tracing_subscriber::registry().with(log_layer(&logs, json, terminal, filter));
    // Not an optional layer: every call would then check whether its span is enabled.
    match &traces {
        None => tracing::subscriber::set_global_default(subscriber),
        Some(provider) => tracing::subscriber::set_global_default(subscriber.with(trace_layer(provider.tracer(SCOPE)))),
    }
    .map_err(|_| TelemetryError::AlreadyStarted)?;
    Ok(TelemetryGuard { traces, _logs: logs })
}

/// The span `tool_execution` (E88), child of the caller's. Wrap the call's work in it.
pub fn tool_span(call: &CallContext) -> Span {
    let span = tracing::info_span!("tool_execution");
    if !span.is_disabled()
        && let Some(parent) = &call.origin.trace
    {
        // Fails only for a span that was entered, and this one is new.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(span_context(parent)));
    }
    span
}

/// The trace that the call belongs to: the trace of its span, or without traces the caller's.
pub fn trace_id(span: &Span, call: &CallContext) -> Option<[u8; 16]> {
    if span.is_disabled() {
        call.origin.trace.as_ref().map(|parent| parent.trace_id)
    } else {
        Some(span.context().span().span_context().trace_id().to_bytes())
    }
}

/// Writes the call's log line (E87). `cause`: the cause of its error, only for the operator.
pub fn log_call(call: &CallSummary, cause: Option<&str>) {
    // The level of an event is a constant of its place in the code.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: "sekisho::call",
                $level,
                call_id = %call.id,
                tool_name = &*call.tool,
                success = call.status == Status::Success,
                status = call.status.as_str(),
                error = call.code.map(ErrorCode::as_str),
                stage = call.stage.map(Stage::as_str),
                cause,
                duration_ms = call.duration.as_micros() as f64 / 1_000.0,
                cost_usd = call.cost_usd.to_f64(),
                caller = &*call.caller,
                tenant = &*call.tenant,
                client = call.client.map(tracing::field::display),
                request_id = Some(&*call.request_id).filter(|id| !id.is_empty()),
                trace_id = call.trace_id.map(|id| tracing::field::display(TraceId(id))),
                "a tool call ended"
            )
        };
    }
    match call.code {
        Some(ErrorCode::Internal) => line!(Level::ERROR),
        _ => line!(Level::INFO),
    }
}

/// Completes the call's span. `category`: of its tool.
pub fn complete(span: &Span, call: &CallSummary, category: Option<&str>) {
    if !span.is_disabled() {
        set_attributes(span, call, category);
    }
}

/// The context that a request sent on behalf of the call carries: the span's the code runs in, or without
/// traces the caller's own, passed on.
pub fn outgoing(call: &CallContext) -> Option<TraceParent> {
    current().or_else(|| call.origin.trace.clone())
}

/// The context of the span that the code runs in, where there is one.
pub fn current() -> Option<TraceParent> {
    context_of(&Span::current())
}

/// The context of a span that is traced.
pub fn context_of(span: &Span) -> Option<TraceParent> {
    let current = span.context();
    let span = current.span();
    let context = span.span_context();
    context.is_valid().then(|| trace_parent(context))
}

/// Under which name spans are exported.
const SCOPE: &str = "sekisho";

fn set_attributes(span: &Span, call: &CallSummary, category: Option<&str>) {
    span.set_attribute("tool.name", call.tool.to_string());
    if let Some(category) = category {
        span.set_attribute("tool.category", category.to_owned());
    }
    span.set_attribute("tool.success", call.status == Status::Success);
    span.set_attribute("tool.cost_usd", call.cost_usd.to_f64().unwrap_or_default());
    span.set_attribute("call.id", call.id.to_string());
    if let Some(code) = call.code {
        span.set_attribute("error.type", code.as_str());
        span.set_status(SpanStatus::error(code.as_str()));
    }
}

#[derive(Clone, Copy)]
struct TraceId([u8; 16]);

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Spans are left to the trace layer, so that none is made only for the log.
fn log_layer<S>(logs: &SinkWriter, json: bool, colours: bool, filter: EnvFilter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let sink = logs.sink();
    let filter = filter_fn(|metadata| !metadata.is_span()).and(filter);
    if json {
        JsonLog::new(sink).with_filter(filter).boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .with_ansi(colours)
            .with_writer(move || sink.clone())
            .with_filter(filter)
            .boxed()
    }
}

fn trace_layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with(SCOPE)))
}

fn log_filter(from: &'static str, directives: &str) -> Result<EnvFilter, TelemetryError> {
    let directives = directives.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    // It logs whole messages between MCP servers and clients.
    let directives = directives.chain(["rmcp=off"]);
    let mut parsed = directives.map(|text| {
        let invalid = || TelemetryError::InvalidDirective { from, directive: text.to_owned() };
        text.parse::<Directive>().map_err(|_| invalid())
    });
    // Without a directive nothing is logged.
    let nothing = EnvFilter::builder().with_default_directive(LevelFilter::OFF.into()).parse_lossy("");
    parsed.try_fold(nothing, |filter, directive| Ok(filter.add_directive(directive?)))
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(Err(problem)) = self.traces.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::warn!(%problem, "the last spans could not be sent");
        }
    }
}
