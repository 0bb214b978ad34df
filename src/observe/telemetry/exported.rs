//! The spans that a test exports.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io;
use std::sync::Arc;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use tracing::Dispatch;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use super::sink::Sink;
use super::{SCOPE, log_layer, otlp, trace_layer};

/// Keeps the exported spans.
#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

/// Whether a span is enabled is one state for all threads.
pub(super) static TRACING: Mutex<()> = Mutex::new(());

/// The spans that are exported while `work` runs. Logs go nowhere.
pub fn exported(work: impl FnOnce()) -> Vec<SpanData> {
    let _alone = TRACING.lock();
    let kept = Exported::default();
    let provider = otlp::batching(kept.clone()).unwrap();
    let logs = Sink::start(io::sink()).unwrap();
    let subscriber = Registry::default()
        .with(log_layer(&logs, true, false, EnvFilter::new("trace")))
        .with(trace_layer(provider.tracer(SCOPE)));
    // While there is one dispatcher, the thread that comes to a span first decides whether it is enabled, and may have none.
    let _another = Dispatch::new(Registry::default());
    tracing::subscriber::with_default(subscriber, work);
    provider.shutdown().unwrap();
    let spans = kept.0.lock();
    spans.clone()
}

/// The value of an attribute of the span.
pub fn attribute(span: &SpanData, name: &str) -> Option<opentelemetry::Value> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|attribute| attribute.value.clone())
}
