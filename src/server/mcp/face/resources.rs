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

use super::{Face, Request, cursor, fault, result_of, typed};
use crate::server::mcp::calling::Outcome;
use crate::server::mcp::catalogue::{LIST_TTL_MS, page};
use crate::sources::mcp::ServerFault;

impl Face {
    pub(super) fn resources(
        &self,
        request: Option<&PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.shared.gateway.mcp_servers().resources(&self.visitor(context).caller);
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
        let templates = self.shared.gateway.mcp_servers().resource_templates(&self.visitor(context).caller);
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
                let read = gateway.mcp_servers().read_resource(&call, &uri).await;
                let read = read.map_err(|fault| resource_fault(fault, &uri))?;
                let mut read: ReadResourceResult = result_of(read)?;
                // What its server shows to everybody is here for those who may use the server.
                read.cache_scope = Some(CacheScope::Private);
                Ok(Outcome::Resource(read))
            }
            .boxed()
        });
        outcome.await?.of_resource()
    }
}

fn resource_fault(unread: ServerFault, uri: &str) -> ErrorData {
    match unread {
        ServerFault::Unknown(what) => {
            ErrorData::resource_not_found(format!("there is no {what}"), Some(json!({"uri": uri})))
        }
        other => fault(other),
    }
}
