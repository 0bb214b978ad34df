//! Prompts of the MCP servers behind the gateway, and the completion of their arguments.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{
    CompleteRequestParams, ErrorData, GetPromptRequestParams, PaginatedRequestParams, Prompt, ServerResult,
};
use serde_json::{Value, json};

use super::{Context, Questionable, StartedRequest, cursor, error_data, is_blocked, list_of, operation, result_of};
use crate::mcp::running_request::Outcome;

impl Context {
    pub(super) fn prompts(&self, request: &PaginatedRequestParams) -> Outcome {
        let is_blocked = is_blocked(&self.server.gateway);
        let prompts = self.server.gateway.mcp_servers().prompts(&self.client.caller, &is_blocked);
        list_of::<Prompt>("prompts", prompts, "name", cursor(request))
    }

    pub(super) fn get_prompt(&self, request: GetPromptRequestParams) -> Result<StartedRequest, ErrorData> {
        let has_arguments = request.arguments.is_some();
        let request = Questionable {
            method: "prompts/get",
            name: request.name,
            arguments: request.arguments.unwrap_or_default(),
            given: request.input_responses,
            state: request.request_state,
        };
        self.start_or_resume(request, |context, call, _client, arguments| {
            let (gateway, client) = (Arc::clone(&context.server.gateway), Arc::clone(&context.client));
            let arguments = has_arguments.then_some(arguments);
            async move {
                let request = gateway.mcp_servers().get_prompt(&call.caller, &call.tool, arguments);
                let prompt = operation::run(&gateway, call, request).await;
                let prompt = prompt.inspect_err(|error| client.was_refused(error));
                result_of(prompt.map_err(|error| error_data(&error))?, ServerResult::GetPromptResult)
            }
            .boxed()
        })
    }

    pub(super) fn complete(&self, request: &CompleteRequestParams) -> BoxFuture<'static, Outcome> {
        let (gateway, call) = (Arc::clone(&self.server.gateway), self.call_without_client());
        let client = Arc::clone(&self.client);
        let params = match json!(request) {
            Value::Object(params) => params,
            _ => serde_json::Map::new(),
        };
        async move {
            let request = gateway.mcp_servers().complete(&call.caller, params);
            let completed = operation::run(&gateway, call, request).await;
            let completed = completed.inspect_err(|error| client.was_refused(error));
            result_of(completed.map_err(|error| error_data(&error))?, ServerResult::CompleteResult)
        }
        .boxed()
    }
}
