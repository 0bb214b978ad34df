use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry::trace::SpanId;
use opentelemetry_otlp::WithExportConfig;
use parking_lot::Mutex;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::Registry;

use super::exported::{TRACING, attribute, exported};
use super::*;
use sekisho_core::call::{Caller, Stage, Via};
use sekisho_core::error::CallError;
use sekisho_core::slack::slack;

/// Records all written bytes.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn lines(&self) -> Vec<Value> {
        let text = self.text();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Kept {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As the settlement of a call does.
fn record(span: &Span, call: &CallContext, error: Option<&CallError>) {
    let summary = CallSummary {
        duration: Duration::from_micros(1_250),
        cost_usd: Decimal::new(1, 3),
        trace_id: trace_id(span, call),
        ..CallSummary::new(call, None, error, String::new())
    };
    complete(span, &summary, Some("math"));
    log_call(&summary, error.and_then(CallError::cause));
}

/// The log lines of `work`.
fn logged(directives: &str, json: bool, work: impl FnOnce()) -> Kept {
    let kept = Kept::default();
    let writer = Sink::start(kept.clone()).unwrap();
    let filter = log_filter("test", directives).unwrap();
    let subscriber = Registry::default().with(log_layer(&writer, json, false, filter));
    tracing::subscriber::with_default(subscriber, work);
    drop(writer);
    kept
}

fn call() -> CallContext {
    let mut call = CallContext::new("calculator", Arc::new(Caller::new("ann", "acme", vec![])), Via::Rest);
    call.origin.trace = incoming("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("congo=1"));
    call.origin.claimed_user = Some("claimed".into());
    call
}

#[test]
fn an_ended_call_is_one_line_with_the_fields_of_the_specification() {
    let (ok, failed) = (call(), call());
    let error = CallError::internal("the disk\nburns").at_stage(Stage::Execute);
    let lines = logged("info", true, || {
        record(&Span::none(), &ok, None);
        record(&Span::none(), &failed, Some(&error));
    })
    .lines();
    let mut expected = json!({
        "timestamp": lines[0]["timestamp"], "level": "INFO", "target": "sekisho::call", "message": "a tool call ended",
        "call_id": ok.id.to_string(), "tool_name": "calculator", "success": true, "status": "success",
        "duration_ms": 1.25, "cost_usd": 0.001, "caller": "ann", "tenant": "acme",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    });
    assert_eq!(lines[0], expected);
    expected["timestamp"] = lines[1]["timestamp"].clone();
    for (field, value) in [
        ("level", json!("ERROR")),
        ("call_id", json!(failed.id.to_string())),
        ("success", json!(false)),
        ("status", json!("error")),
        ("error", json!("internal")),
        ("stage", json!("execute")),
        ("cause", json!("the disk\nburns")),
    ] {
        expected[field] = value;
    }
    assert_eq!(lines[1], expected);
    let timestamp: jiff::Timestamp = lines[0]["timestamp"].as_str().unwrap().parse().unwrap();
    assert!(timestamp.duration_until(jiff::Timestamp::now()).as_secs() < 60);
}

#[test]
fn hostile_texts_stay_one_line() {
    let mut hostile = call();
    hostile.tool = "evil\n{\"level\":\"ERROR\"}\u{1b}[31m".repeat(100);
    let work = || record(&Span::none(), &hostile, None);
    for json in [true, false] {
        let text = logged("info", json, work).text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}') && text.len() < 2_000, "{text}");
    }
}

#[test]
fn an_event_of_any_library_is_a_sound_line() {
    let lines = logged("trace", true, || {
        tracing::debug!(target: "a\"b", level = 3, timestamp = ?Some("x"), r#type = "t", wide = u128::MAX, "say \"hi\"");
        tracing::warn!(nan = f64::NAN, negative = -1, none = Option::<u64>::None, error = %io::Error::other("no"));
    })
    .lines();
    let without_time = |line: &Value| {
        let mut line = line.as_object().unwrap().clone();
        line.shift_remove("timestamp");
        Value::Object(line)
    };
    let wide: Value = serde_json::from_str(&u128::MAX.to_string()).unwrap();
    assert_eq!(
        without_time(&lines[0]),
        json!({"level": "DEBUG", "target": "a\"b", "message": "say \"hi\"", "field.level": 3,
               "field.timestamp": "Some(\"x\")", "type": "t", "wide": wide})
    );
    assert_eq!(
        without_time(&lines[1]),
        json!({"level": "WARN", "target": module_path!(), "nan": null, "negative": -1, "error": "no"})
    );
}

#[test]
fn a_field_that_logs_while_it_is_logged_does_no_harm() {
    struct Chatty;
    impl fmt::Debug for Chatty {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            tracing::info!("inner");
            formatter.write_str("chatty")
        }
    }
    let kept = logged("info", true, || tracing::info!(value = ?Chatty, "outer"));
    assert!(kept.lines().iter().any(|line| line["message"] == "outer" && line["value"] == "chatty"), "{}", kept.text());
}

#[test]
fn a_directive_that_is_none_is_named() {
    for (directives, wrong) in [("sekisho=loud", "sekisho=loud"), ("info, hyper=warn,a=b=c", "a=b=c"), ("[", "[")] {
        let error = log_filter("RUST_LOG", directives).unwrap_err().to_string();
        assert!(error.starts_with(&format!("RUST_LOG: {wrong:?}")), "{error}");
    }
    for directives in ["info", "", "warn,sekisho::call=off", "sekisho=debug,hyper=info"] {
        log_filter("RUST_LOG", directives).unwrap();
    }
    let silent = logged("", true, || tracing::error!("it is switched off"));
    assert!(silent.text().is_empty());
}

#[test]
fn a_process_sets_up_its_telemetry_once() {
    let _guard = start(&TelemetryConfig::default()).unwrap();
    assert!(matches!(start(&TelemetryConfig::default()), Err(TelemetryError::AlreadyStarted)));
}

#[test]
fn the_line_of_a_call_can_be_switched_off_alone() {
    let call = call();
    let kept = logged("info, sekisho::call=off", true, || {
        record(&Span::none(), &call, None);
        tracing::info!("still here");
    });
    assert_eq!(kept.lines().len(), 1);
}

#[test]
fn without_traces_there_is_no_span_and_the_callers_context_is_passed_on() {
    let _alone = TRACING.lock();
    let call = call();
    logged("trace", true, || {
        let span = tool_span(&call);
        assert!(span.is_disabled());
        assert_eq!(span.in_scope(|| outgoing(&call)), call.origin.trace);
    });
}

#[test]
fn a_call_is_a_span_below_its_callers_with_the_attributes_of_the_specification() {
    let call = call();
    let mut sent = None;
    let spans = exported(|| {
        let span = tool_span(&call);
        sent = span.in_scope(|| {
            tracing::info!("an event within");
            outgoing(&call)
        });
        record(&span, &call, None);
    });
    let [span] = &spans[..] else { panic!("{spans:?}") };
    let (parent, sent) = (call.origin.trace.unwrap(), sent.unwrap());
    assert_eq!(span.name, "tool_execution");
    assert_eq!(span.parent_span_id, SpanId::from_bytes(parent.span_id));
    assert!(span.parent_span_is_remote);
    assert_eq!(span.span_context.trace_id().to_bytes(), parent.trace_id);
    assert_eq!(attribute(span, "tool.name"), Some("calculator".into()));
    assert_eq!(attribute(span, "tool.category"), Some("math".into()));
    assert_eq!(attribute(span, "tool.success"), Some(true.into()));
    assert_eq!(attribute(span, "tool.cost_usd"), Some(0.001.into()));
    assert_eq!(attribute(span, "call.id"), Some(call.id.to_string().into()));
    // The outgoing header names this span, not the caller's.
    assert_eq!((sent.trace_id, sent.span_id), (parent.trace_id, span.span_context.span_id().to_bytes()));
    assert_eq!((sent.flags, sent.state.as_deref()), (1, Some("congo=1")));
}

#[test]
fn a_failed_call_is_a_failed_span() {
    let call = call();
    let error = CallError::new(ErrorCode::RateLimited, "no").at_stage(Stage::Limits);
    let spans = exported(|| {
        let span = tool_span(&call);
        record(&span, &call, Some(&error));
    });
    assert_eq!(spans[0].status, SpanStatus::error("rate_limited"));
    assert_eq!(attribute(&spans[0], "tool.success"), Some(false.into()));
    assert_eq!(attribute(&spans[0], "error.type"), Some("rate_limited".into()));
}

#[test]
fn a_trace_its_caller_does_not_sample_is_passed_on_and_not_exported() {
    let mut call = call();
    call.origin.trace.as_mut().unwrap().flags = 0;
    let mut sent = None;
    let spans = exported(|| {
        let span = tool_span(&call);
        sent = span.in_scope(|| outgoing(&call));
        record(&span, &call, None);
    });
    assert!(spans.is_empty(), "{spans:?}");
    let sent = sent.unwrap();
    assert_eq!((sent.trace_id, sent.flags), (call.origin.trace.unwrap().trace_id, 0));
}

#[test]
fn a_call_without_a_trace_starts_one_and_a_call_within_a_call_is_its_child() {
    let (mut outer, mut inner) = (call(), call());
    outer.origin.trace = None;
    let spans = exported(|| {
        let span = tool_span(&outer);
        span.in_scope(|| {
            inner.origin.trace = outgoing(&outer);
            record(&tool_span(&inner), &inner, None);
        });
        record(&span, &outer, None);
    });
    let [inner, outer] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(outer.parent_span_id, SpanId::INVALID);
    assert_eq!(inner.parent_span_id, outer.span_context.span_id());
    assert_eq!(inner.span_context.trace_id(), outer.span_context.trace_id());
}

#[tokio::test]
async fn spans_arrive_at_a_collector_before_the_end() {
    let (received, mut requests) = tokio::sync::mpsc::channel::<(HeaderMap, Bytes)>(1);
    let collector = post(|headers: HeaderMap, body: Bytes| async move {
        let _ = received.send((headers, body)).await;
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let server = tokio::spawn(async { axum::serve(listener, Router::new().route("/v1/traces", collector)).await });

    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().with_endpoint(endpoint).build().unwrap();
    let provider = otlp::batching(exporter).unwrap();
    let subscriber = Registry::default().with(trace_layer(provider.tracer(SCOPE)));
    let call = call();
    async { record(&tool_span(&call), &call, None) }.with_subscriber(subscriber).await;
    let shutdown = tokio::task::spawn_blocking(move || provider.shutdown());
    let received = tokio::time::timeout(slack(Duration::from_secs(20)), requests.recv()).await;
    let (headers, body) = received.expect("spans arrive").unwrap();
    shutdown.await.unwrap().unwrap();
    server.abort();
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let contains = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    for part in [&b"tool_execution"[..], b"tool.name", b"calculator", b"service.name", b"sekisho"] {
        assert!(contains(part), "{}", part.escape_ascii());
    }
    assert!(contains(&call.origin.trace.unwrap().trace_id));
}
