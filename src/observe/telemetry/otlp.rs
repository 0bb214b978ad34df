//! Traces over OTLP, configured only by the standard `OTEL_*` variables.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::SpanExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::{Builder, Runtime};

use super::{SCOPE, TelemetryError};

/// `None` unless an OTLP endpoint is named and nothing switches traces off.
pub(super) fn provider(
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    if !is_wanted(environment)? {
        return Ok(None);
    }
    let exporter =
        OtlpExporter::builder().with_http().build().map_err(|problem| TelemetryError::Exporter(problem.to_string()))?;
    batching(exporter).map(Some).map_err(|problem| TelemetryError::Exporter(problem.to_string()))
}

/// Collects ended spans and exports them in batches, from a thread of its own.
pub(super) fn batching(exporter: impl SpanExporter + 'static) -> io::Result<SdkTracerProvider> {
    let exporter = OnItsOwnRuntime { exporter, runtime: Builder::new_current_thread().enable_all().build()? };
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build())
}

fn is_wanted(environment: impl Fn(&str) -> Option<String>) -> Result<bool, TelemetryError> {
    let is_disabled = environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let endpoints = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    if is_disabled || !endpoints.iter().any(|name| environment(name).is_some()) {
        return Ok(false);
    }
    match environment("OTEL_TRACES_EXPORTER").as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(false),
        Some(other) => return Err(unsupported("OTEL_TRACES_EXPORTER", other, "otlp or none")),
    }
    for variable in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        match environment(variable).as_deref() {
            None => {}
            Some("http/protobuf") => break,
            Some(other) => return Err(unsupported(variable, other, "http/protobuf")),
        }
    }
    Ok(true)
}

fn unsupported(variable: &'static str, value: &str, supported: &'static str) -> TelemetryError {
    TelemetryError::Unsupported { variable, value: value.to_owned(), supported }
}

/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, over our own name and version.
fn resource() -> Resource {
    let name = Key::from_static_str("service.name");
    let detected = Resource::builder().build();
    let is_named = detected.get(&name).is_some_and(|value| !value.as_str().starts_with("unknown_service"));
    let mut ours = vec![KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    if !is_named {
        ours.push(KeyValue::new(name, SCOPE));
    }
    Resource::builder().with_attributes(ours).build()
}

/// The batch thread has no async runtime, and the exporter's HTTP client needs one. It is not the service's:
/// spans are still sent while that one shuts down.
#[derive(Debug)]
struct OnItsOwnRuntime<E> {
    exporter: E,
    runtime: Runtime,
}

impl<E: SpanExporter> SpanExporter for OnItsOwnRuntime<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.runtime.block_on(self.exporter.export(batch));
        if let Err(problem) = &result {
            tracing::warn!(spans, %problem, "spans could not be exported");
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables that are set, and whether traces are enabled or which setting is refused.
    type Case = (&'static [(&'static str, &'static str)], Result<bool, &'static str>);

    #[test]
    fn the_standard_variables_switch_traces_on_and_off() {
        const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let cases: &[Case] = &[
            (&[], Ok(false)),
            (&[ENDPOINT], Ok(true)),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces")], Ok(true)),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")], Ok(false)),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "false")], Ok(true)),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], Ok(false)),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "otlp")], Ok(true)),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")], Err("OTEL_TRACES_EXPORTER=zipkin")),
            (&[ENDPOINT, GRPC], Err("OTEL_EXPORTER_OTLP_PROTOCOL=grpc")),
            (&[ENDPOINT, GRPC, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")], Ok(true)),
            (&[GRPC], Ok(false)),
        ];
        for (variables, expected) in cases {
            let environment =
                |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            match (is_wanted(environment), expected) {
                (Ok(wanted), Ok(expected)) => assert_eq!(wanted, *expected, "{variables:?}"),
                (Err(error), Err(named)) => assert!(error.to_string().contains(named), "{error}"),
                (got, _) => panic!("{variables:?}: {got:?}"),
            }
        }
    }
}
