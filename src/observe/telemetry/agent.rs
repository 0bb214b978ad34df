//! Spans of agents: run → turn → model call, and `tool_execution` under the turn. Attributes follow the semantic
//! conventions for generative AI (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>); message contents are not
//! included.

use opentelemetry::trace::{Status as SpanStatus, TraceContextExt};
use opentelemetry::{Array, StringValue, Value};
use rust_decimal::prelude::ToPrimitive;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use sekisho_config::AgentProfile;
use sekisho_core::call::TraceParent;
use sekisho_core::record::{FinishReason, RunUsage};

/// A run of an agent, child of the request's span.
pub fn run_span(agent: &str, profile: &AgentProfile, conversation: Option<&str>, parent: Option<&TraceParent>) -> Span {
    let span = tracing::info_span!(parent: None, "invoke_agent", otel.name = format!("invoke_agent {agent}"));
    if span.is_disabled() {
        return span;
    }
    if let Some(parent) = parent {
        // Fails only for an entered span, and this one is new.
        let _ = span.set_parent(
            opentelemetry::Context::new().with_remote_span_context(super::trace_context::span_context(parent)),
        );
    }
    span.set_attribute("gen_ai.operation.name", "invoke_agent");
    span.set_attribute("gen_ai.agent.name", agent.to_owned());
    span.set_attribute("gen_ai.provider.name", profile.provider().as_str());
    span.set_attribute("gen_ai.request.model", profile.model().to_owned());
    if let Some(conversation) = conversation {
        span.set_attribute("gen_ai.conversation.id", conversation.to_owned());
    }
    span
}

/// One turn of a run.
pub fn turn_span(run: &Span) -> Span {
    tracing::info_span!(parent: run, "turn")
}

/// One request to a model.
pub fn model_span(turn: &Span, profile: &AgentProfile, max_tokens: u32, temperature: Option<f64>) -> Span {
    let model = profile.model();
    let span = tracing::info_span!(parent: turn, "chat", otel.name = format!("chat {model}"), otel.kind = "client");
    if span.is_disabled() {
        return span;
    }
    span.set_attribute("gen_ai.operation.name", "chat");
    span.set_attribute("gen_ai.provider.name", profile.provider().as_str());
    span.set_attribute("gen_ai.request.model", model.to_owned());
    span.set_attribute("gen_ai.request.max_tokens", i64::from(max_tokens));
    if let Some(temperature) = temperature {
        span.set_attribute("gen_ai.request.temperature", temperature);
    }
    span
}

/// Records on a model's span why its reply ended, and the input and output tokens.
pub fn complete_model(span: &Span, finish_reason: &'static str, input: u64, output: u64) {
    if !span.is_disabled() {
        span.set_attribute("gen_ai.response.finish_reasons", one(finish_reason));
        tokens(span, input, output);
    }
}

/// Records on a model's span that there is no reply, or that it was interrupted.
pub fn fail_model(span: &Span, code: &'static str) {
    if !span.is_disabled() {
        failed(span, code);
    }
}

/// Records a run's result on its span.
pub fn complete_run(span: &Span, reason: FinishReason, used: &RunUsage) {
    if span.is_disabled() {
        return;
    }
    span.set_attribute("gen_ai.response.finish_reasons", one(reason.as_str()));
    tokens(span, used.prompt_tokens, used.completion_tokens);
    span.set_attribute("agent.turns", i64::from(used.turns));
    span.set_attribute("agent.tool_calls", i64::from(used.tool_calls));
    span.set_attribute("agent.cost_usd", used.cost_usd.to_f64().unwrap_or_default());
    if matches!(reason, FinishReason::Error | FinishReason::Aborted) {
        failed(span, reason.as_str());
    }
}

fn tokens(span: &Span, input: u64, output: u64) {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.set_attribute("gen_ai.usage.input_tokens", count(input));
    span.set_attribute("gen_ai.usage.output_tokens", count(output));
}

fn failed(span: &Span, code: &'static str) {
    span.set_attribute("error.type", code);
    span.set_status(SpanStatus::error(code));
}

fn one(word: &'static str) -> Value {
    Value::Array(Array::String(vec![StringValue::from(word)]))
}
