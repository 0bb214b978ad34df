use std::sync::Arc;

use futures_util::StreamExt;
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use crate::toolbox::InProcess;
use crate::{AgentRequest, AgentService, Message};
use sekisho_config::{AgentProfile, Config};
use sekisho_core::call::{Caller, TraceParent};
use sekisho_core::checkout::checkout;
use sekisho_gateway::Gateway;
use sekisho_observe::telemetry::exported::{attribute, exported};

#[test]
fn a_run_is_one_trace_from_its_request_to_its_tool_calls() {
    let directory = tempfile::tempdir().unwrap();
    let parent = TraceParent { trace_id: [7; 16], span_id: [7; 8], flags: 1, state: None };
    let spans = exported(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = Config { state_directory: Some(directory.path().to_owned()), ..Config::default() };
            let gateway = Gateway::start(config).await.unwrap();
            let caller = Arc::new(Caller::new("ann", "acme", vec![]));
            let toolbox = Arc::new(InProcess::new(Arc::clone(&gateway), Arc::clone(&caller)));
            let script = checkout().join("config/examples/weather.yaml");
            let profile = Arc::new(AgentProfile::replay(script.to_str().unwrap()));
            let question = vec![Message::User("warm?".into())];
            let request = AgentRequest {
                trace: Some(parent.clone()),
                conversation: Some("talk".into()),
                ..AgentRequest::new("weather", profile, caller, toolbox, question)
            };
            let agents = AgentService::new(&gateway).unwrap();
            agents.begin(request).await.unwrap().for_each(|_| async {}).await;
            gateway.close().await;
        });
    });
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
