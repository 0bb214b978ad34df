//! Tools: listed from the catalogue, called through the pipeline.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::{McpHandler, Request, cursor};
use crate::api::mcp::McpServer;
use crate::api::mcp::catalogue::{LIST_TTL_MS, Page, for_older_clients, page};
use crate::api::mcp::client::Client;
use crate::api::mcp::client_context::McpClientContext;
use crate::api::mcp::running_request::{Outcome, is_sessionless};
use crate::api::mcp::{result, search};
use crate::core::call::{Arguments, CallContext};

impl McpHandler {
    pub(super) fn tools(
        &self,
        request: Option<&PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let client_context = self.client_context(context);
        let cursor = cursor(request);
        let Page { items, next } = if client_context.search {
            page(search::tools().iter().cloned(), |tool| &tool.name, cursor)?
        } else {
            let catalogue = self.shared.catalogues.present(&self.shared.gateway);
            let tools = catalogue.tools_for(&client_context.caller, &self.shared.gateway);
            // Whole tools are cloned for one page only.
            let Page { items, next } = page(catalogue.usable(&tools), |tool| &tool.name, cursor)?;
            Page { items: items.into_iter().cloned().collect(), next }
        };
        let items = match is_sessionless(context) {
            true => items,
            false => items.into_iter().map(for_older_clients).collect(),
        };
        let mut result = ListToolsResult::with_all_items(items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) = (next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let client_context = self.client_context(context);
        let (name, arguments) =
            match client_context.search.then(|| search::answer(&request.name, &arguments, self, &client_context)) {
                Some(search::Answer::Result(result)) => return result.map(Into::into),
                Some(search::Answer::Call(name, arguments)) => (name, arguments),
                Some(search::Answer::NotOurs) | None => (request.name.into_owned(), arguments),
            };
        let request = Request {
            method: "tools/call",
            name,
            arguments: arguments.clone(),
            given: request.input_responses,
            state: request.request_state,
        };
        let is_older = !is_sessionless(context);
        let start = |call, client| work_of_tool(&self.shared, &client_context, call, arguments, client, is_older);
        self.run(context, request, start).await?.of_tool()
    }
}

/// The work of a tool call for a client, with the result in the form of the client's revision.
pub(in crate::api::mcp) fn work_of_tool(
    server: &McpServer,
    client_context: &Arc<McpClientContext>,
    call: CallContext,
    arguments: Arguments,
    client: Arc<Client>,
    is_older: bool,
) -> BoxFuture<'static, Result<Outcome, ErrorData>> {
    let (gateway, client_context) = (Arc::clone(&server.gateway), Arc::clone(client_context));
    async move {
        let snapshot = gateway.pipeline.registry.snapshot();
        // The pipeline refuses a tool that is hidden from the caller like an unknown one.
        let tool = snapshot.get(&call.tool).filter(|tool| !tool.metadata.is_hidden_from(&client_context.caller));
        // A client's files and interpreters exist as long as its session.
        let session = client_context.session.as_ref().filter(|_| tool.is_some_and(|tool| tool.metadata.session_aware));
        let session = match session.map(|id| gateway.sessions.open(&client_context.caller, id)).transpose() {
            Ok(session) => session,
            Err(error) => return Ok(Outcome::Tool(result::of_error(&error))),
        };
        let has_output_schema = tool.is_some_and(|tool| tool.output.is_some());
        let answered = gateway.pipeline.call(CallContext { session, ..call }, arguments).await;
        if !is_older && let Some(missing) = result::missing_capability(&answered.reply, &client) {
            return Err(missing);
        }
        let mut result = result::of_reply(&answered.reply, has_output_schema)?;
        if is_older {
            // Older revisions allow only objects as structured content.
            result.structured_content = result.structured_content.filter(Value::is_object);
        }
        Ok(Outcome::Tool(result))
    }
    .boxed()
}
