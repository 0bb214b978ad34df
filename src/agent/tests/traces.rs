use std::sync::Arc;

use futures_util::StreamExt;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Value, json};

use crate::toolbox::InProcess;
use crate::{AgentRequest, AgentService, Message};
use sekisho_config::{AgentProfile, Config, TelemetryConfig};
use sekisho_core::call::{Caller, TraceParent};
use sekisho_core::checkout::checkout;
use sekisho_gateway::Gateway;
use sekisho_observe::telemetry::exported::{attribute, exported};

/// The spans of a run of the script about the weather.
fn spans_of(parent: &TraceParent, model_content: bool, question: &str) -> Vec<SpanData> {
    let directory = tempfile::tempdir().unwrap();
    exported(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let telemetry = TelemetryConfig { model_content, ..TelemetryConfig::default() };
            let state_directory = Some(directory.path().to_owned());
            let config = Config { state_directory, telemetry, ..Config::default() };
            let gateway = Gateway::start(config).await.unwrap();
            let caller = Arc::new(Caller::new("ann", "acme", vec![]));
            let toolbox = Arc::new(InProcess::new(Arc::clone(&gateway), Arc::clone(&caller)));
            let script = checkout().join("config/examples/weather.yaml");
            let profile = Arc::new(AgentProfile::replay(script.to_str().unwrap()));
            let question = vec![Message::User(question.into())];
            let request = AgentRequest {
                trace: Some(parent.clone()),
                conversation: Some("talk".into()),
                ..AgentRequest::new("weather", profile, caller, toolbox, question)
            };
            let agents = AgentService::new(&gateway).unwrap();
            agents.begin(request).await.unwrap().for_each(|_| async {}).await;
            gateway.close().await;
        });
    })
}

/// The parent of all runs here.
fn parent() -> TraceParent {
    TraceParent { trace_id: [7; 16], span_id: [7; 8], flags: 1, state: None }
}

#[test]
fn contents_are_masked_events_of_requests_to_models_and_only_on_request() {
    let question = "Tell ann@example.com whether it is warm. My password=correct-horse-battery.";
    let events = |spans: &[SpanData]| -> Vec<_> {
        let all = spans.iter().flat_map(|span| span.events.events.clone());
        all.filter(|event| event.name == "gen_ai.client.inference.operation.details").collect()
    };
    assert_eq!(events(&spans_of(&parent(), false, question)).len(), 0);
    let contents = events(&spans_of(&parent(), true, question));
    assert_eq!(contents.len(), 2, "one for each request: {contents:?}");
    let attribute = |event: usize, name: &str| {
        let found = contents[event].attributes.iter().find(|attribute| attribute.key.as_str() == name);
        serde_json::from_str::<Value>(&found.unwrap().value.as_str()).unwrap()
    };
    let input = attribute(1, "gen_ai.input.messages");
    assert_eq!(input[0]["parts"][0]["content"], "Tell [masked] whether it is warm. My password=[masked]");
    assert_eq!((&input[1]["parts"][1]["name"], &input[2]["role"]), (&json!("calculator"), &json!("tool")), "{input}");
    assert_eq!(input[2]["parts"][0]["response"], "70.7", "{input}");
    let output = attribute(1, "gen_ai.output.messages");
    assert_eq!((&output[0]["finish_reason"], &output[0]["role"]), (&json!("stop"), &json!("assistant")));
    assert!(output.to_string().contains("which is 70.7 °F."), "{output}");
    assert!(attribute(0, "gen_ai.system_instructions")[0]["content"].is_string());
}

#[test]
fn a_run_is_one_trace_from_its_request_to_its_tool_calls() {
    let parent = parent();
    let spans = spans_of(&parent, false, "warm?");
    let named = |name: &str| spans.iter().filter(|span| span.name.starts_with(name)).collect::<Vec<_>>();
    let ([run], [first, second]) = (&named("invoke_agent weather")[..], &named("turn")[..]) else {
        panic!("{spans:?}")
    };
    let ([asked, again], [tool]) = (&named("chat ")[..], &named("execute_tool")[..]) else { panic!("{spans:?}") };
    let [execution] = &named("tool_execution")[..] else { panic!("{spans:?}") };
    let is_below = |child: &SpanData, parent: &SpanData| child.parent_span_id == parent.span_context.span_id();
    assert_eq!(run.parent_span_id, SpanId::from_bytes(parent.span_id));
    assert!([first, second].into_iter().all(|turn| is_below(turn, run)), "{spans:?}");
    assert!(
        is_below(asked, first) && is_below(tool, first) && is_below(execution, tool) && is_below(again, second),
        "{spans:?}"
    );
    for (span, name, value) in [
        (run, "gen_ai.operation.name", "invoke_agent".into()),
        (run, "gen_ai.agent.name", "weather".into()),
        (run, "gen_ai.provider.name", "replay".into()),
        (run, "gen_ai.conversation.id", "talk".into()),
        (run, "gen_ai.usage.input_tokens", 290_i64.into()),
        (run, "agent.tool_calls", 1_i64.into()),
        (asked, "gen_ai.operation.name", "chat".into()),
        (asked, "gen_ai.request.max_tokens", 2_000_i64.into()),
        (asked, "gen_ai.usage.output_tokens", 24_i64.into()),
        (tool, "gen_ai.operation.name", "execute_tool".into()),
        (tool, "gen_ai.tool.name", "calculator".into()),
        (execution, "tool.name", "calculator".into()),
    ] {
        assert_eq!(attribute(span, name), Some(value), "{name}");
    }
    let id = attribute(tool, "gen_ai.tool.call.id").map(|id| id.to_string());
    assert!(id.is_some_and(|id| !id.is_empty()), "the model's call has an id");
}
