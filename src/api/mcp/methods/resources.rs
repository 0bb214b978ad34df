//! Resources of the MCP servers behind the gateway.

use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::model::{
    CacheScope, ErrorData, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResult, Resource,
    ResourceTemplate, ServerResult,
};
use serde_json::{Map, json};

use super::{Context, Questionable, StartedRequest, cursor, error_data, is_blocked, list_of, operation, result_of};
use crate::mcp::running_request::Outcome;
use sekisho_core::error::{CallError, ErrorCode};

impl Context {
    pub(super) fn resources(&self, request: &PaginatedRequestParams) -> Outcome {
        let is_blocked = is_blocked(&self.server.gateway);
        let resources = self.server.gateway.mcp_servers().resources(&self.client.caller, &is_blocked);
        list_of::<Resource>("resources", resources, "uri", cursor(request))
    }

    pub(super) fn resource_templates(&self, request: &PaginatedRequestParams) -> Outcome {
        let is_blocked = is_blocked(&self.server.gateway);
        let templates = self.server.gateway.mcp_servers().resource_templates(&self.client.caller, &is_blocked);
        list_of::<ResourceTemplate>("resourceTemplates", templates, "uriTemplate", cursor(request))
    }

    pub(super) fn read_resource(&self, request: ReadResourceRequestParams) -> Result<StartedRequest, ErrorData> {
        let request = Questionable {
            method: "resources/read",
            name: request.uri,
            arguments: Map::new(),
            given: request.input_responses,
            state: request.request_state,
        };
        self.start_or_resume(request, |context, call, _client, _arguments| {
            let (gateway, client) = (Arc::clone(&context.server.gateway), Arc::clone(&context.client));
            async move {
                let uri = call.tool.clone();
                let request = gateway.mcp_servers().read_resource(&call.caller, &uri);
                let read = operation::run(&gateway, call, request).await;
                let read = read.inspect_err(|error| client.was_refused(error));
                // A resource that its server makes public is shown only to callers who may use the server.
                let private = |mut read: ReadResourceResult| {
                    read.cache_scope = Some(CacheScope::Private);
                    ServerResult::ReadResourceResult(read)
                };
                result_of(read.map_err(|error| unread(&error, &uri))?, private)
            }
            .boxed()
        })
    }
}

fn unread(error: &CallError, uri: &str) -> ErrorData {
    match error.code() {
        ErrorCode::UnknownTool => ErrorData::resource_not_found(error.message().to_owned(), Some(json!({"uri": uri}))),
        _ => error_data(error),
    }
}
