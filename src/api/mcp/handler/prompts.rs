//! Prompts of the MCP servers behind the gateway, and the completion of their arguments.

use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::RoleServer;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    ListPromptsResult, PaginatedRequestParams, Prompt,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::{McpHandler, Request, cursor, error_data, operation, result_of, typed};
use crate::api::mcp::catalogue::{LIST_TTL_MS, page};
use crate::api::mcp::running_request::Outcome;

impl McpHandler {
    pub(super) fn prompts(
        &self,
        request: Option<&PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.shared.gateway.mcp_servers().prompts(&self.client_context(context).caller);
        let page = page(typed(prompts), |prompt: &Prompt| &prompt.name, cursor(request))?;
        let mut result = ListPromptsResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let gateway = Arc::clone(&self.shared.gateway);
        let (name, arguments) = (request.name.clone(), request.arguments.unwrap_or_default());
        let request = Request {
            method: "prompts/get",
            name: request.name,
            arguments: arguments.clone(),
            given: request.input_responses,
            state: request.request_state,
        };
        let outcome = self.run(context, request, |call, _client| {
            async move {
                let request = gateway.mcp_servers().get_prompt(&call.caller, &name, arguments);
                let prompt = operation::run(&gateway, call, request).await;
                result_of(prompt.map_err(|error| error_data(&error))?).map(Outcome::Prompt)
            }
            .boxed()
        });
        outcome.await?.of_prompt()
    }

    pub(super) async fn completion(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let Value::Object(mut params) = json!(request) else { return Ok(CompleteResult::default()) };
        params.remove("_meta");
        let call = self.unattended(context);
        let gateway = &self.shared.gateway;
        let request = gateway.mcp_servers().complete(&call.caller, params);
        tokio::select! {
            () = context.ct.cancelled() => Err(ErrorData::invalid_request("the request was cancelled", None)),
            completed = operation::run(gateway, call, request) => {
                result_of(completed.map_err(|error| error_data(&error))?)
            }
        }
    }
}
