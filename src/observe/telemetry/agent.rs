//! Spans of agents: plan → run → turn → model call, and under the turn each call of a tool, with its span `tool_execution`
//! or the run of its sub-agent below. Names and attributes follow the semantic conventions for generative AI
//! (<https://github.com/open-telemetry/semantic-conventions-genai>); contents of messages are in an event, if an operator asks for them.

use opentelemetry::trace::{Status as SpanStatus, TraceContextExt};
use opentelemetry::{Array, KeyValue, StringValue, Value};
use rust_decimal::prelude::ToPrimitive;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use sekisho_config::AgentProfile;
use sekisho_core::call::{ModelTurns, TraceParent};
use sekisho_core::record::{FinishReason, RunUsage};

/// Providers by the last parts of the host of their API, with their names in the conventions.
const HOSTS: [(&str, &str); 10] = [
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
];

/// The name of another server with OpenAI's API; the conventions have none.
const COMPATIBLE: &str = "openai_compatible";

/// The plan of an agent that plans, child of the request's span; its runs are below it.
pub fn plan_span(agent: &str, plan: &str, conversation: Option<&str>, parent: Option<&TraceParent>) -> Span {
    let span = tracing::info_span!(parent: None, "invoke_workflow", otel.name = format!("invoke_workflow {agent}"));
    if !span.is_disabled() {
        begin(&span, "invoke_workflow", conversation, parent);
        span.set_attribute("gen_ai.workflow.name", agent.to_owned());
        span.set_attribute("plan.id", plan.to_owned());
    }
    span
}

/// Records on a plan's span how this part of it ended: it may go on later, in a span of its own.
pub fn complete_plan(span: &Span, reason: FinishReason) {
    if !span.is_disabled() && matches!(reason, FinishReason::Error | FinishReason::Aborted) {
        failed(span, reason.as_str());
    }
}

/// A run of an agent, child of the request's span.
pub fn run_span(agent: &str, profile: &AgentProfile, conversation: Option<&str>, parent: Option<&TraceParent>) -> Span {
    let span = tracing::info_span!(parent: None, "invoke_agent", otel.name = format!("invoke_agent {agent}"));
    if !span.is_disabled() {
        begin(&span, "invoke_agent", conversation, parent);
        span.set_attribute("gen_ai.agent.name", agent.to_owned());
        span.set_attribute("gen_ai.provider.name", provider_name(profile));
        span.set_attribute("gen_ai.request.model", profile.model().to_owned());
    }
    span
}

fn begin(span: &Span, operation: &'static str, conversation: Option<&str>, parent: Option<&TraceParent>) {
    if let Some(parent) = parent {
        // Fails only for an entered span, and this one is new.
        let _ = span.set_parent(
            opentelemetry::Context::new().with_remote_span_context(super::trace_context::span_context(parent)),
        );
    }
    span.set_attribute("gen_ai.operation.name", operation);
    if let Some(conversation) = conversation {
        span.set_attribute("gen_ai.conversation.id", conversation.to_owned());
    }
}

/// As the conventions name it.
fn provider_name(profile: &AgentProfile) -> &'static str {
    match (profile.provider().as_str(), profile.base_url.as_ref().and_then(|url| url.host_str())) {
        ("bedrock", _) => "aws.bedrock",
        ("gemini", _) => "gcp.gemini",
        ("openai", Some(host)) => {
            let is_of =
                |end: &str| host.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', '-']));
            HOSTS.iter().find(|(end, _)| is_of(end)).map_or(COMPATIBLE, |(_, name)| *name)
        }
        (other, _) => other,
    }
}

/// A call of a tool by a run, below its turn. `id`: of the model's call.
pub fn execute_tool_span(turn: &Span, tool: &str, id: &str) -> Span {
    let span = tracing::info_span!(parent: turn, "execute_tool", otel.name = format!("execute_tool {tool}"));
    if !span.is_disabled() {
        span.set_attribute("gen_ai.operation.name", "execute_tool");
        span.set_attribute("gen_ai.tool.name", tool.to_owned());
        span.set_attribute("gen_ai.tool.call.id", id.to_owned());
        span.set_attribute("gen_ai.tool.type", "function");
    }
    span
}

/// Records on the span of a tool's call that it failed. `code`: of its error, if it has one.
pub fn fail_tool(span: &Span, code: Option<&str>) {
    if !span.is_disabled() {
        let code = code.unwrap_or("tool_error").to_owned();
        span.set_attribute("error.type", code.clone());
        span.set_status(SpanStatus::error(code));
    }
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
    span.set_attribute("gen_ai.provider.name", provider_name(profile));
    span.set_attribute("gen_ai.request.model", model.to_owned());
    span.set_attribute("gen_ai.request.max_tokens", i64::from(max_tokens));
    if let Some(temperature) = temperature {
        span.set_attribute("gen_ai.request.temperature", temperature);
    }
    span
}

/// Records on a model's span how the provider names its reply, and the model that made it.
pub fn name_answer(span: &Span, id: Option<String>, model: Option<String>) {
    if span.is_disabled() {
        return;
    }
    for (attribute, name) in [("gen_ai.response.id", id), ("gen_ai.response.model", model)] {
        if let Some(name) = name {
            span.set_attribute(attribute, name);
        }
    }
}

/// Records on a model's span why its reply ended, and its tokens.
pub fn complete_model(span: &Span, finish_reason: &'static str, used: &ModelTurns) {
    if !span.is_disabled() {
        span.set_attribute("gen_ai.response.finish_reasons", one(finish_reason));
        tokens(span, used);
        span.set_attribute("gen_ai.usage.reasoning.output_tokens", count(used.reasoning_tokens));
    }
}

/// Adds the content of a request and its reply to a model's span: each is JSON by the conventions.
pub fn content_event(span: &Span, instructions: String, input: String, output: String) {
    let attributes = [
        ("gen_ai.operation.name", "chat".to_owned()),
        ("gen_ai.system_instructions", instructions),
        ("gen_ai.input.messages", input),
        ("gen_ai.output.messages", output),
    ];
    let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value)).collect();
    span.add_event("gen_ai.client.inference.operation.details", attributes);
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
    let &RunUsage { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, .. } = used;
    let all =
        ModelTurns { prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, ..ModelTurns::default() };
    tokens(span, &all);
    span.set_attribute("agent.turns", i64::from(used.turns));
    span.set_attribute("agent.tool_calls", i64::from(used.tool_calls));
    span.set_attribute("agent.cost_usd", used.cost_usd.to_f64().unwrap_or_default());
    if matches!(reason, FinishReason::Error | FinishReason::Aborted) {
        failed(span, reason.as_str());
    }
}

fn tokens(span: &Span, used: &ModelTurns) {
    span.set_attribute("gen_ai.usage.input_tokens", count(used.prompt_tokens));
    span.set_attribute("gen_ai.usage.output_tokens", count(used.completion_tokens));
    span.set_attribute("gen_ai.usage.cache_read.input_tokens", count(used.cached_tokens));
    span.set_attribute("gen_ai.usage.cache_creation.input_tokens", count(used.cache_write_tokens));
}

fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn failed(span: &Span, code: &'static str) {
    span.set_attribute("error.type", code);
    span.set_status(SpanStatus::error(code));
}

fn one(word: &'static str) -> Value {
    Value::Array(Array::String(vec![StringValue::from(word)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::context_of;
    use crate::telemetry::exported::{attribute, exported};
    use sekisho_config::Provider;

    #[test]
    fn a_plan_is_a_workflow_with_its_runs_and_their_calls_below() {
        let profile = AgentProfile::replay("script.yaml");
        let spans = exported(|| {
            let plan = plan_span("main", "p", Some("talk"), None);
            let run = run_span("main", &profile, Some("talk"), context_of(&plan).as_ref());
            let turn = turn_span(&run);
            let model = model_span(&turn, &profile, 10, None);
            let used = ModelTurns { prompt_tokens: 9, cached_tokens: 8, reasoning_tokens: 2, ..ModelTurns::default() };
            name_answer(&model, Some("msg_1".into()), None);
            complete_model(&model, "stop", &used);
            fail_tool(&execute_tool_span(&turn, "add", "call_1"), Some("rate_limited"));
            complete_plan(&plan, FinishReason::Error);
        });
        let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        let (plan, run) = (named("invoke_workflow main"), named("invoke_agent main"));
        let (turn, model, tool) = (named("turn"), named("chat script.yaml"), named("execute_tool add"));
        for (child, parent) in [(run, plan), (turn, run), (model, turn), (tool, turn)] {
            assert_eq!(child.parent_span_id, parent.span_context.span_id(), "{}", child.name);
            assert_eq!(child.span_context.trace_id(), plan.span_context.trace_id());
        }
        for (span, name, value) in [
            (plan, "gen_ai.operation.name", "invoke_workflow".into()),
            (plan, "gen_ai.workflow.name", "main".into()),
            (plan, "gen_ai.conversation.id", "talk".into()),
            (plan, "error.type", "error".into()),
            (run, "gen_ai.conversation.id", "talk".into()),
            (model, "gen_ai.response.id", "msg_1".into()),
            (model, "gen_ai.usage.cache_read.input_tokens", 8_i64.into()),
            (model, "gen_ai.usage.reasoning.output_tokens", 2_i64.into()),
            (tool, "gen_ai.operation.name", "execute_tool".into()),
            (tool, "gen_ai.tool.call.id", "call_1".into()),
            (tool, "error.type", "rate_limited".into()),
        ] {
            assert_eq!(attribute(span, name), Some(value), "{name}");
        }
    }

    #[test]
    fn providers_have_their_names_of_the_conventions() {
        for (provider, base_url, expected) in [
            (Provider::Anthropic, None, "anthropic"),
            (Provider::Anthropic, Some("https://llm.example/v1"), "anthropic"),
            (Provider::Bedrock, None, "aws.bedrock"),
            (Provider::Openai, None, "openai"),
            (Provider::Openai, Some("https://api.openai.com/v1"), "openai"),
            (Provider::Openai, Some("https://eu.api.openai.com/v1"), "openai"),
            (Provider::Openai, Some("https://acme.openai.azure.com/openai/v1"), "azure.ai.openai"),
            (Provider::Openai, Some("https://us-east1-aiplatform.googleapis.com/v1"), "gcp.vertex_ai"),
            (Provider::Openai, Some("https://api.x.ai/v1"), "x_ai"),
            (Provider::Openai, Some("https://notapi.x.ai/v1"), "openai_compatible"),
            (Provider::Openai, Some("http://127.0.0.1:8000/v1"), "openai_compatible"),
            (Provider::Replay, None, "replay"),
        ] {
            let base_url = base_url.map(|url| url.parse().unwrap());
            let profile = AgentProfile { provider: Some(provider), base_url, ..AgentProfile::default() };
            assert_eq!(provider_name(&profile), expected, "{:?}", profile.base_url);
        }
    }
}
