//! The agent as a library: the tests that the specification names (D31, D34), with its server (D32) and scripts in place of a
//! streaming model (D33).

use std::sync::Arc;

use futures_util::StreamExt;
use sekisho::{
    AgentProfile, AgentRequest, AgentService, Caller, Event, FinishReason, Gateway, InProcess, Message, Toolbox,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, config};
use crate::lock::until;
use crate::mcp::OLDER;
use crate::mcp::client::McpClient;
use crate::mcp_programs::{running, started};
use crate::mcp_servers::ready;

const HELLO: &str = "turns: [{text: [Hello, ' world', '!']}]";

const TOKYO: &str = r#"
turns:
  - text: ["I'll check the weather"]
    calls: [{id: tool_call_1, tool: get_weather, arguments: '{"city": "Tokyo"}'}]
  - text: ["It is sunny."]
"#;

/// An agent of a gateway with the server, without the HTTP service.
struct Agent {
    gateway: Arc<Gateway>,
    agents: Arc<AgentService>,
    tools: Arc<InProcess>,
    caller: Arc<Caller>,
    directory: TempDir,
}

impl Agent {
    async fn start(mood: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let gateway = Gateway::start(config(&directory, &servers(mood))).await.unwrap();
        let agents = AgentService::new(&gateway).unwrap();
        let caller = Arc::new(Caller::new("ann", "default", Vec::new()));
        let tools = Arc::new(InProcess::new(Arc::clone(&gateway), Arc::clone(&caller)));
        let agent = Self { gateway, agents, tools, caller, directory };
        until(async || agent.available_tools().await.contains(&"get_weather".to_owned()).then_some(())).await;
        agent
    }

    async fn available_tools(&self) -> Vec<String> {
        self.tools.list().await.unwrap().into_iter().map(|tool| tool.name).collect()
    }

    /// A run of the script.
    fn request(&self, script: &str, end_words: &[&str]) -> AgentRequest {
        let file = self.directory.path().join("script.yaml");
        std::fs::write(&file, script).unwrap();
        let end_words = end_words.iter().map(|word| (*word).to_owned()).collect();
        let profile = AgentProfile { end_words, ..AgentProfile::replay(file.to_str().unwrap()) };
        let (tools, caller) = (Arc::<InProcess>::clone(&self.tools), Arc::clone(&self.caller));
        AgentRequest::new(
            "tiny",
            Arc::new(profile),
            caller,
            tools,
            vec![Message::User("What's the weather in Tokyo?".into())],
        )
    }

    async fn run(&self, request: AgentRequest) -> Vec<Event> {
        self.agents.begin(request).await.unwrap().collect().await
    }

    async fn events(&self, script: &str) -> Vec<Event> {
        self.run(self.request(script, &[])).await
    }
}

fn servers(mood: &str) -> String {
    format!("mcp:\n  prefix: never\n  servers:\n    test_server: {}\n", started("weather", &json!({"MOOD": mood}), ""))
}

fn text(events: &[Event]) -> String {
    let content = |event: &Event| if let Event::Content { text } = event { Some(text.clone()) } else { None };
    events.iter().filter_map(content).collect()
}

fn ending(events: &[Event]) -> Option<FinishReason> {
    events.iter().find_map(|event| if let Event::Finished { reason, .. } = event { Some(*reason) } else { None })
}

#[tokio::test]
async fn test_agent_initialization() {
    let agent = Agent::start("library-initialization").await;
    assert!(Arc::ptr_eq(agent.agents.gateway(), &agent.gateway));
    agent.gateway.close().await;
}

/// The servers are connected for as long as the gateway is there.
#[tokio::test]
async fn test_agent_context_manager() {
    let mood = "library-context";
    let agent = Agent::start(mood).await;
    assert_eq!(running(mood), 1);
    agent.gateway.close().await;
    until(async || (running(mood) == 0).then_some(())).await;
}

#[tokio::test]
async fn test_available_tools_property() {
    let agent = Agent::start("library-tools").await;
    let tools = agent.available_tools().await;
    assert!(["calculate", "get_weather"].iter().all(|name| tools.iter().any(|tool| tool == name)), "{tools:?}");
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_run_simple_completion() {
    let agent = Agent::start("library-simple").await;
    let events = agent.events(HELLO).await;
    assert_eq!((text(&events).as_str(), ending(&events)), ("Hello world!", Some(FinishReason::Stop)), "{events:?}");
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_run_with_tool_calls() {
    let agent = Agent::start("library-calls").await;
    let events = agent.events(TOKYO).await;
    let called = events.iter().find_map(|event| match event {
        Event::ToolInput { tool_name, arguments, .. } => Some((tool_name.clone(), arguments["city"].clone())),
        _ => None,
    });
    assert_eq!(called, Some(("get_weather".to_owned(), json!("Tokyo"))), "{events:?}");
    let is_result =
        |event: &Event| matches!(event, Event::ToolResult { result, .. } if result.contains("Tokyo: Sunny, 25°C"));
    assert!(events.iter().any(is_result), "{events:?}");
    assert!(text(&events).ends_with("It is sunny."), "{events:?}");
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_process_single_turn_streaming() {
    let agent = Agent::start("library-streaming").await;
    let events = agent.events(HELLO).await;
    let pieces: Vec<_> = events
        .iter()
        .filter_map(|event| serde_json::to_value(event).unwrap()["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(pieces, ["Hello", " world", "!"], "{events:?}");
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_execute_tool_calls() {
    let agent = Agent::start("library-execute").await;
    for (tool, arguments, expected) in [
        ("calculate", r#"{"operation": "add", "a": 5, "b": 3}"#, Ok("8")),
        ("calculate", r#"{"operation": "subtract", "a": 5, "b": 3}"#, Ok("2")),
        ("calculate", r#"{"operation": "multiply", "a": 5, "b": 3}"#, Ok("15")),
        ("calculate", r#"{"operation": "divide", "a": 6, "b": 3}"#, Ok("2")),
        ("calculate", r#"{"operation": "divide", "a": 5, "b": 0}"#, Err("Division by zero")),
        ("calculate", r#"{"operation": "root", "a": 5, "b": 0}"#, Err("Unknown operation: root")),
        ("no_such_tool", "{}", Err("no_such_tool")),
    ] {
        let script =
            json!({"turns": [{"calls": [{"id": "c", "tool": tool, "arguments": arguments}]}, {"text": ["."]}]});
        let events = agent.events(&script.to_string()).await;
        let found = events.iter().find_map(|event| match event {
            Event::ToolResult { result, .. } => Some(Ok(result.as_str())),
            Event::ToolError { error, .. } => Some(Err(error.as_str())),
            _ => None,
        });
        match (found.unwrap(), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{arguments}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{arguments}: {found}"),
            (found, _) => panic!("{tool} {arguments}: {found:?}"),
        }
    }
    agent.gateway.close().await;
}

/// End words of a profile end a run; without them an answer without calls does.
#[tokio::test]
async fn test_problem_solved_detection() {
    let agent = Agent::start("library-solved").await;
    let solved = TOKYO.replace("I'll check the weather", "Problem solved, all Done.");
    for (end_words, calls) in [(&["done"][..], 0), (&[], 1)] {
        let events = agent.run(agent.request(&solved, end_words)).await;
        let inputs = events.iter().filter(|event| matches!(event, Event::ToolInput { .. })).count();
        assert_eq!((inputs, ending(&events)), (calls, Some(FinishReason::Stop)), "{end_words:?}: {events:?}");
    }
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_error_handling() {
    let agent = Agent::start("library-errors").await;
    let events = agent.events("turns: [{status: 400}]").await;
    let failed = events.iter().find_map(|event| if let Event::Error(error) = event { Some(error.code) } else { None });
    assert_eq!(
        (failed, ending(&events)),
        (Some(sekisho::ErrorCode::ModelRefused), Some(FinishReason::Error)),
        "{events:?}"
    );
    let profile = Arc::new(AgentProfile::replay("nowhere.yaml"));
    let request = AgentRequest { profile, ..agent.request(HELLO, &[]) };
    let refused = agent.agents.begin(request).await.err().unwrap();
    assert!(refused.message().contains("nowhere.yaml: cannot be read"), "{refused}");
    agent.gateway.close().await;
}

#[tokio::test]
async fn test_abort_event() {
    let agent = Agent::start("library-abort").await;
    let request = agent.request("turns: [{text: [Hello], delay_seconds: 600}]", &[]);
    request.abort.cancel();
    let events = agent.run(request).await;
    assert!(
        events.iter().any(|event| matches!(event, Event::Status { status, .. } if status == "aborted")),
        "{events:?}"
    );
    assert_eq!(ending(&events), Some(FinishReason::Aborted), "{events:?}");
    agent.gateway.close().await;
}

/// D34.
#[tokio::test]
async fn test_inmemory_server_tools() {
    let app = TestApp::with(&servers("library-server")).await;
    ready(&app).await;
    let (_, names) = answer(app.get("/tools/list")).await;
    assert!(
        ["calculate", "get_weather"].iter().all(|name| names.as_array().unwrap().contains(&json!(name))),
        "{names}"
    );
    let text =
        async |tool: &str, arguments: Value| app.call(tool, arguments).await.1["text"].as_str().unwrap().to_owned();
    let weather = text("get_weather", json!({"city": "Tokyo"})).await;
    assert!(weather.contains("Tokyo") && weather.contains("Sunny"), "{weather}");
    assert_eq!(text("calculate", json!({"operation": "add", "a": 5, "b": 3})).await, "8");
    let client = McpClient::connect(&app, OLDER).await;
    let uri = json!({"uri": "file://test/data"});
    let read = client.result("resources/read", uri, "ReadResourceResult").await;
    assert_eq!(read["contents"][0]["text"], "This is test data", "{read}");
    app.stop().await;
}
