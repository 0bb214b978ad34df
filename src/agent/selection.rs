//! Selects tools for a task by a model: it is offered the tools, and the calls that it makes are the selection.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;

use super::message::Message;
use super::models::retry;
use super::models::retry::RetryPolicy;
use super::models::{Model, ModelChunk, ModelError, ModelRequest, Purpose, StopReason};
use super::prompts::Prompts;
use super::toolbox::{ToolDescription, ToolboxCall};
use sekisho_config::AgentProfile;

/// The calls that the model makes, if their tools were offered and their arguments are an object.
pub async fn select(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    task: String,
    tools: Vec<ToolDescription>,
) -> Result<Vec<ToolboxCall>, ModelError> {
    let messages = vec![Message::System(prompts.selection().to_owned()), Message::User(task.into())];
    let request = ModelRequest::own(Purpose::Selection, messages, profile.max_tokens(), profile);
    let request = Arc::new(ModelRequest { tools, ..request });
    // A client waits, and a search can replace the model.
    let policy = RetryPolicy { timeout: profile.brief_timeout(), retries: 0, end: None };
    let work = choose(model, request, policy);
    retry::within(profile.brief_timeout(), work).await
}

async fn choose(
    model: &dyn Model,
    request: Arc<ModelRequest>,
    policy: RetryPolicy,
) -> Result<Vec<ToolboxCall>, ModelError> {
    let mut pieces = pin!(retry::ask(model, Arc::clone(&request), policy));
    let (mut requested, mut is_cut) = (Vec::new(), false);
    while let Some(piece) = pieces.next().await {
        match piece? {
            ModelChunk::Call(call) => requested.push(call),
            ModelChunk::End { stop, .. } => is_cut = stop == StopReason::Length,
            _ => {}
        }
    }
    let last = requested.len().saturating_sub(1);
    let calls = requested.into_iter().enumerate().filter_map(|(index, call)| {
        let is_offered = request.tools.iter().any(|tool| tool.name == call.tool);
        let arguments = call.read_arguments().ok().filter(|_| is_offered)?;
        let is_whole = !is_cut || !call.may_be_cut(index == last);
        is_whole.then(|| ToolboxCall::new(call.id, call.tool, arguments))
    });
    Ok(calls.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use futures_util::stream::{self, BoxStream};

    use super::*;
    use crate::message::RequestedCall;
    use crate::models::Replay;
    use sekisho_calls::budget::ModelUsage;

    struct ScriptedModel(Vec<Result<ModelChunk, ModelError>>);

    impl Model for ScriptedModel {
        fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            stream::iter(self.0.clone()).boxed()
        }
    }

    #[tokio::test]
    async fn a_call_that_the_token_limit_may_have_cut_off_is_not_selected() {
        let call = |id: &str, arguments: &str| {
            Ok(ModelChunk::Call(RequestedCall::new(id.into(), "add".into(), arguments.into())))
        };
        for (stop, expected) in [(StopReason::Length, vec!["a"]), (StopReason::ToolCalls, vec!["a", "b", "c"])] {
            let end = Ok(ModelChunk::End { stop, usage: ModelUsage::default() });
            let model = ScriptedModel(vec![call("a", "{\"x\": 1}"), call("b", ""), call("c", "{}"), end]);
            let (name, parameters) = ("add".into(), Arc::new(json!({})));
            let tool = ToolDescription { name, description: String::new(), parameters, is_deferred: false };
            let (profile, prompts) = (AgentProfile::default(), Prompts::default());
            let calls = select(&model, &profile, &prompts, "add".into(), vec![tool]).await.unwrap();
            let chosen: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
            assert_eq!(chosen, expected, "{stop:?}");
        }
    }

    #[tokio::test]
    async fn only_calls_of_offered_tools_with_valid_arguments_are_selected() {
        let script = r#"
turns: []
selection:
  - {id: a, tool: add, arguments: '{"x": 1}'}
  - {id: b, tool: invented, arguments: '{}'}
  - {id: c, tool: add, arguments: '[1]'}
  - {id: d, tool: clock, arguments: ''}
"#;
        let model = Replay::parse("s.yaml", script).unwrap();
        let tool = |name: &str| ToolDescription {
            name: name.into(),
            description: String::new(),
            parameters: Arc::new(json!({})),
            is_deferred: false,
        };
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let calls = select(&model, &profile, &prompts, "add".into(), vec![tool("add"), tool("clock")]).await.unwrap();
        let chosen: Vec<_> = calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())).collect();
        assert_eq!(chosen, [("a", "add"), ("d", "clock")]);
    }
}
