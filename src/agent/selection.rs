//! Which tools fit a task, by a model: it is offered the tools, and the calls it would make are the answer.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::Value;

use super::llm::patience::{self, Patience};
use super::llm::{Model, ModelChunk, ModelError, ModelRequest, Purpose};
use super::message::Message;
use super::prompts::Prompts;
use super::toolbox::{ToolDescription, ToolboxCall};
use crate::config::AgentProfile;
use crate::json;

/// The calls that the model would make, of tools that it was offered and with arguments that are an object.
///
/// # Errors
/// The model's failure.
pub async fn select(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    task: String,
    tools: Vec<ToolDescription>,
) -> Result<Vec<ToolboxCall>, ModelError> {
    let request = Arc::new(ModelRequest {
        purpose: Purpose::Selection,
        messages: vec![Message::System(prompts.selection().to_owned()), Message::User(task)],
        tools,
        temperature: profile.temperature().map(|_| 0.0),
        max_tokens: profile.max_tokens(),
    });
    // Somebody waits, and a search is there in its place.
    let patience = Patience { timeout: profile.timeout(), retries: 0 };
    let work = choose(model, request, patience);
    patience::within(profile.timeout(), work).await
}

async fn choose(
    model: &dyn Model,
    request: Arc<ModelRequest>,
    patience: Patience,
) -> Result<Vec<ToolboxCall>, ModelError> {
    let mut pieces = pin!(patience::ask(model, Arc::clone(&request), patience));
    let mut calls = Vec::new();
    while let Some(piece) = pieces.next().await {
        let ModelChunk::Call(call) = piece? else { continue };
        let is_offered = request.tools.iter().any(|tool| tool.name == call.tool);
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        if let Ok(Value::Object(arguments)) = json::parse(text.as_bytes())
            && is_offered
        {
            calls.push(ToolboxCall { id: call.id, tool: call.tool, arguments });
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::llm::Replay;

    #[tokio::test]
    async fn only_calls_of_tools_that_were_offered_with_readable_arguments_are_chosen() {
        let script = r#"
turns: []
selection:
  - {id: a, tool: add, arguments: '{"x": 1}'}
  - {id: b, tool: invented, arguments: '{}'}
  - {id: c, tool: add, arguments: '[1]'}
  - {id: d, tool: clock, arguments: ''}
"#;
        let model = Replay::parse("s.yaml", script).unwrap();
        let tool =
            |name: &str| ToolDescription { name: name.into(), description: String::new(), parameters: json!({}) };
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let calls = select(&model, &profile, &prompts, "add".into(), vec![tool("add"), tool("clock")]).await.unwrap();
        let chosen: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())).collect();
        assert_eq!(chosen, [("a", "add"), ("d", "clock")]);
    }
}
