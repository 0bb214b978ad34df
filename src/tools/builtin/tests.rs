//! The rules of every built-in tool, and the way its tests run it: through its executor.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use sekisho_calls::tool::{Attempt, ToolDefinition};
use sekisho_config::{Config, OutboundConfig, SandboxConfig, WorkspaceConfig};
use sekisho_core::call::{CallContext, CallOrigin, Caller, Deadline, ToolOutput, Via};
use sekisho_core::session::Session;
use sekisho_observe::metrics::Metrics;
use sekisho_store::test_support::test_store;

pub(super) async fn run(tool: &ToolDefinition, arguments: Value) -> Result<ToolOutput, CallError> {
    let call = CallContext::new(tool.metadata.name.clone(), Arc::new(Caller::anonymous()), Via::Rest);
    run_within(tool, &call, arguments).await
}

pub(super) async fn run_error(tool: &ToolDefinition, arguments: Value) -> CallError {
    match run(tool, arguments).await {
        Err(error) => error,
        Ok(output) => panic!("expected an error, got {output:?}"),
    }
}

pub(super) async fn run_within(
    tool: &ToolDefinition,
    call: &CallContext,
    arguments: Value,
) -> Result<ToolOutput, CallError> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let attempt = Attempt {
        call,
        deadline: Deadline::after(Duration::from_secs(30)),
        memory_limit_bytes: 128 << 20,
        max_output_bytes: 1 << 20,
    };
    let result = tool.executor.execute(attempt, &arguments).await;
    if let (Ok(output), Some(schema)) = (&result, &tool.output_schema) {
        let validator = jsonschema::validator_for(schema).unwrap();
        assert!(validator.is_valid(&output.value), "{} breaks its own output schema", tool.metadata.name);
    }
    result
}

async fn builtin() -> Builtin {
    let config = ToolsConfig::default();
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let metrics = Metrics::new("test").unwrap().for_sandbox();
    let sandbox = Sandbox::new(&SandboxConfig::default(), metrics, Arc::default()).unwrap();
    let workspaces = Workspaces::new("/nonexistent".into(), &config.workspace);
    let metrics = Arc::new(Metrics::new("test").unwrap());
    let results = Results::new(&Config::default(), test_store().await, metrics);
    Builtin::new(&config, outbound, workspaces, Arc::new(sandbox), Arc::new(results))
}

#[tokio::test]
async fn every_tool_describes_itself_fully() {
    for tool in builtin().await.tools().tools {
        let name = &tool.metadata.name;
        assert!(tool.metadata.description.len() > 40, "{name}: a model needs more to go by");
        assert_eq!((tool.metadata.source.as_str(), tool.metadata.version.as_str()), ("builtin", "1.0.0"), "{name}");
        assert_eq!(tool.parameters.document()["type"], "object", "{name}");
        assert_eq!(tool.parameters.document()["additionalProperties"], false, "{name}");
        for (property, schema) in tool.parameters.document()["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}.{property} has no description");
        }
        jsonschema::meta::validate(tool.parameters.document()).unwrap();
        jsonschema::meta::validate(tool.output_schema.as_ref().unwrap()).unwrap();
        // A program waits for the tools that it calls.
        let longest = if name == "python_executor" { 120 } else { 60 };
        assert!(tool.metadata.timeout_seconds <= longest, "{name}");
    }
}

#[tokio::test]
async fn each_tool_has_the_metadata_for_policies() {
    let facts: Vec<_> = builtin()
        .await
        .tools()
        .tools
        .iter()
        .map(|tool| {
            let metadata = &tool.metadata;
            let flags = [
                ("dangerous", metadata.dangerous),
                ("idempotent", metadata.idempotent),
                ("session_aware", metadata.session_aware),
            ];
            let flags: Vec<_> = flags.iter().filter(|(_, held)| *held).map(|(flag, _)| *flag).collect();
            format!("{} [{}] {}/min {}", metadata.name, metadata.category, metadata.rate_limit, flags.join(" "))
        })
        .collect();
    insta::assert_yaml_snapshot!(facts, @r#"
    - "calculator [math] 2000/min idempotent"
    - "current_time [data] 600/min idempotent"
    - "file_list [files] 60/min idempotent session_aware"
    - "file_read [files] 60/min idempotent session_aware"
    - "file_write [files] 60/min dangerous session_aware"
    - "json_query [data] 600/min idempotent"
    - "python_executor [code] 60/min session_aware"
    - "read_result [data] 600/min idempotent"
    - "web_fetch [web] 60/min idempotent"
    - "program_effects [code] 600/min "
    "#);
}

/// Fault 11: a session id without an owner.
#[tokio::test]
async fn the_same_session_id_of_another_caller_or_tenant_opens_another_workspace() {
    let directory = tempfile::TempDir::new().unwrap();
    let workspaces = Workspaces::new(directory.path().into(), &WorkspaceConfig::default());
    let (write, read) = (file_write::definition(&workspaces), file_read::definition(&workspaces));
    let call_of = |caller: Caller| {
        let session = Arc::new(Session::new(&caller, "monday"));
        CallContext {
            origin: CallOrigin { session: Some(session), ..CallOrigin::default() },
            ..CallContext::new("file_read", Arc::new(caller), Via::Rest)
        }
    };
    let ours = call_of(Caller::new("ada", "acme", Vec::new()));
    run_within(&write, &ours, json!({"path": "plan.txt", "content": "ours"})).await.unwrap();
    let again = run_within(&read, &ours, json!({"path": "plan.txt"})).await.unwrap();
    assert_eq!(again.value["content"], "ours");
    for other in [Caller::new("eve", "acme", Vec::new()), Caller::new("ada", "other", Vec::new()), Caller::anonymous()]
    {
        let refused = run_within(&read, &call_of(other), json!({"path": "plan.txt"})).await.unwrap_err();
        assert!(refused.message().contains("plan.txt does not exist"), "{refused}");
    }
}

#[tokio::test]
async fn file_tools_require_a_session() {
    for (tool, arguments) in [
        ("file_read", json!({"path": "a.txt"})),
        ("file_write", json!({"path": "a.txt", "content": ""})),
        ("file_list", json!({})),
    ] {
        let tools = builtin().await.tools().tools;
        let tool = tools.iter().find(|offered| offered.metadata.name == tool).unwrap();
        let error = run_error(tool, arguments).await;
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.message().contains("send a `session_id`"), "{}", error.message());
    }
}
