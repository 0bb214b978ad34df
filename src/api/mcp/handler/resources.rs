//! Resources of the MCP servers behind the gateway.

use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::RoleServer;
use rmcp::model::{
    CacheScope, ErrorData, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceTemplate,
};
use rmcp::service::RequestContext;
use serde_json::{Map, json};

use super::{McpHandler, Request, cursor, error_data, operation, result_of, typed};
use crate::api::mcp::catalogue::{LIST_TTL_MS, page};
use crate::api::mcp::running_request::Outcome;
use crate::core::error::{CallError, ErrorCode};

impl McpHandler {
    pub(super) fn resources(
        &self,
        request: Option<&PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.shared.gateway.mcp_servers().resources(&self.client_context(context).caller);
        let page = page(typed(resources), |resource: &Resource| &resource.uri, cursor(request))?;
        let mut result = ListResourcesResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    pub(super) fn resource_templates(
        &self,
        request: Option<&PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.shared.gateway.mcp_servers().resource_templates(&self.client_context(context).caller);
        let page = page(typed(templates), |template: &ResourceTemplate| &template.uri_template, cursor(request))?;
        let mut result = ListResourceTemplatesResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    pub(super) async fn read(
        &self,
        request: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let gateway = Arc::clone(&self.shared.gateway);
        let uri = request.uri.clone();
        let request = Request {
            method: "resources/read",
            name: request.uri,
            arguments: Map::new(),
            given: request.input_responses,
            state: request.request_state,
        };
        let outcome = self.run(context, request, |call, _client| {
            async move {
                let request = gateway.mcp_servers().read_resource(&call.caller, &uri);
                let read = operation::run(&gateway, call, request).await;
                let mut read: ReadResourceResult = result_of(read.map_err(|error| unread(&error, &uri))?)?;
                // A resource that its server makes public is shown only to callers who may use the server.
                read.cache_scope = Some(CacheScope::Private);
                Ok(Outcome::Resource(read))
            }
            .boxed()
        });
        outcome.await?.of_resource()
    }
}

fn unread(error: &CallError, uri: &str) -> ErrorData {
    match error.code() {
        ErrorCode::UnknownTool => ErrorData::resource_not_found(error.message().to_owned(), Some(json!({"uri": uri}))),
        _ => error_data(error),
    }
}
