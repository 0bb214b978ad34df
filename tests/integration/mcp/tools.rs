//! Tools that interact with their client: one while it runs, one through a header of an argument.

use std::sync::Arc;

use sekisho::{
    Arguments, Attempt, CallError, Execution, Executor, Metadata, Progress, Question, QuestionMethod, Questions,
    Source, SourceTools, ToolDefinition,
};
use serde_json::{Value, json};

pub(super) struct ConversingTools;

struct AskName;

struct OfRegion;

impl Source for ConversingTools {
    fn name(&self) -> &str {
        "test"
    }

    fn tools(&self) -> SourceTools {
        let tool = |name: &str, parameters: Value, executor: Arc<dyn Executor>| ToolDefinition {
            metadata: Metadata { name: name.into(), source: "test".into(), ..Metadata::default() },
            parameters: parameters.into(),
            output_schema: None,
            executor,
        };
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        let with_region = json!({"type": "object", "properties": {"region": region}, "required": ["region"]});
        let tools = vec![
            tool("ask_name", json!({"type": "object"}), Arc::new(AskName)),
            tool("of_region", with_region, Arc::new(OfRegion)),
        ];
        SourceTools { tools, unavailable: Vec::new() }
    }
}

impl Executor for AskName {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, _: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let peer = attempt.call.client.peer.as_ref().ok_or_else(|| CallError::tool("there is nobody to ask"))?;
            peer.progress(Progress { progress: 1.0, total: None, message: Some("asking".into()) });
            let params = json!({
                "message": "What is your name?",
                "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
            });
            let question = Question { method: QuestionMethod::Elicitation, params };
            let answers = peer.ask(Questions::from([("name".into(), question)])).await;
            let answers = answers.map_err(|why| CallError::tool(why.to_string()))?;
            let name = answers["name"].pointer("/content/name").and_then(|name| name.as_str()).unwrap_or("nobody");
            Ok(json!(format!("Hello, {name}!")).into())
        })
    }
}

impl Executor for OfRegion {
    fn execute<'a>(&'a self, _: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move { Ok(arguments["region"].clone().into()) })
    }
}
