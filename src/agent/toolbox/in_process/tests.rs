use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::agent::models::Replay;
use crate::agent::{Agent, Event, Message, RunInput};
use crate::config::{AgentProfile, Config};

const WEATHER: &str = include_str!("../../../../config/examples/weather.yaml");

async fn toolbox() -> (InProcess, TempDir) {
    let state = TempDir::new().unwrap();
    let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
    let gateway = Gateway::start(config).await.unwrap();
    let caller = Arc::new(Caller::new("ann", "acme", Vec::new()));
    (InProcess::new(gateway, caller), state)
}

fn call(tool: &str, arguments: Value) -> ToolboxCall {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    ToolboxCall::new("a", tool, arguments)
}

#[tokio::test]
async fn the_scripted_weather_runs_its_tool_through_the_pipeline() {
    let (toolbox, state) = toolbox().await;
    let gateway = Arc::clone(&toolbox.gateway);
    let agent = Agent {
        model: Arc::new(Replay::parse("weather.yaml", WEATHER).unwrap()),
        toolbox: Arc::new(toolbox),
        profile: Arc::new(AgentProfile::default()),
        summarizer: None,
    };
    let input = RunInput { messages: vec![Message::User("weather?".into())], ..RunInput::default() };
    let events: Vec<_> = agent.run(input).collect().await;
    let result = events.iter().find_map(|event| match event {
        Event::ToolResult { result, .. } => Some(result.as_str()),
        _ => None,
    });
    assert!(result.is_some_and(|result| result.contains("70.7")), "{events:?}");
    gateway.close().await;
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"calculator\"") && audit.contains("\"agent\"") && audit.contains("\"ann\""), "{audit}");
}

#[tokio::test]
async fn refusals_carry_their_typed_error_and_disabled_tools_are_not_listed() {
    let (mut toolbox, _state) = toolbox().await;
    let refused = toolbox.call(call("calculater", json!({}))).await;
    assert!(!refused.success);
    assert_eq!(refused.error_info.map(|info| info["code"].clone()), Some(json!("unknown_tool")));

    let names = async |toolbox: &InProcess| {
        let tools = toolbox.list().await.unwrap();
        tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    assert!(names(&toolbox).await.contains(&"calculator".to_owned()));
    toolbox.off.insert("calculator".into());
    assert!(!names(&toolbox).await.contains(&"calculator".to_owned()));
    let off = toolbox.call(call("calculator", json!({"expression": "1 + 1"}))).await;
    assert!(!off.success && off.text.contains("switched off"), "{off:?}");
}
