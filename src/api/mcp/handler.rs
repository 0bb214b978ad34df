//! The methods of MCP that a client may call.

mod operation;
mod prompts;
mod resources;
mod tools;

pub(super) use self::operation::{error_data, run as run_operation};
pub(super) use self::tools::work_of_tool;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData, GetPromptRequestParams,
    GetPromptResponse, Implementation, InputResponses, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    Tool as McpTool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::McpServer;
use super::client::{Client, ClientEvents};
use super::client_context::McpClientContext;
use super::parked_calls::{Binding, Resumed};
use super::running_request::{Outcome, Running, is_sessionless};
use super::sessions::SessionState;
use super::subscriptions::Subscriptions;
use crate::core::call::{Arguments, CallContext};
use crate::core::peer::ClientSession;

/// One client, for the duration of a session or of a request.
#[derive(Debug)]
pub(super) struct McpHandler {
    shared: Arc<McpServer>,
    client_context: Arc<McpClientContext>,
    session: Arc<SessionState>,
    subscriptions: Arc<Subscriptions>,
    /// How many tools the caller may not use, if the person who starts the gateway can change that.
    left_out: Option<String>,
    /// Ends the session and its subscriptions.
    _end: DropGuard,
}

/// The identity of a request across its retries, and the content of a retry.
struct Request {
    method: &'static str,
    name: String,
    arguments: Arguments,
    given: Option<InputResponses>,
    state: Option<String>,
}

impl McpHandler {
    pub(super) fn new(
        shared: Arc<McpServer>,
        client_context: Arc<McpClientContext>,
        session: Arc<SessionState>,
    ) -> Self {
        let ended = session.ended().clone();
        let (subscriptions, _end) = (Arc::default(), ended.drop_guard());
        Self { shared, client_context, session, subscriptions, left_out: None, _end }
    }

    /// The same, with instructions about the tools that are left out.
    pub(super) fn with_left_out(self, left_out: Option<String>) -> Self {
        Self { left_out, ..self }
    }

    pub(super) fn shared(&self) -> &McpServer {
        &self.shared
    }

    /// Within a session each request has its own headers.
    fn client_context(&self, context: &RequestContext<RoleServer>) -> Arc<McpClientContext> {
        let parts = context.extensions.get::<http::request::Parts>();
        let client_context = parts.and_then(|parts| parts.extensions.get::<Arc<McpClientContext>>());
        Arc::clone(client_context.unwrap_or(&self.client_context))
    }

    /// The client of a request, for the work that the request runs.
    fn client(&self, context: &RequestContext<RoleServer>, given: Option<InputResponses>) -> (Client, ClientEvents) {
        let capabilities = json!(context.client_capabilities().unwrap_or_default());
        let is_sessionless = is_sessionless(context);
        let level = match is_sessionless {
            true => context.meta.log_level().and_then(|level| serde_json::from_value(json!(level)).ok()),
            false => Some(self.session.log_level()),
        };
        let wants_progress = context.meta.get_progress_token().is_some();
        let (client, client_events) = Client::new(capabilities, wants_progress, level, given.unwrap_or_default());
        (if is_sessionless { client } else { client.in_session(&self.session) }, client_events)
    }

    /// Runs the call that `start` creates, or continues the call parked under the request's state.
    async fn run(
        &self,
        context: &RequestContext<RoleServer>,
        request: Request,
        start: impl FnOnce(CallContext, Arc<Client>) -> BoxFuture<'static, Result<Outcome, ErrorData>>,
    ) -> Result<Outcome, ErrorData> {
        let client_context = self.client_context(context);
        let Request { method, name, arguments, given, state } = request;
        let bound = [("method", json!(method)), ("name", json!(name)), ("arguments", Value::Object(arguments))];
        let bound = bound.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let binding = Binding::new(&client_context.caller, &bound);
        let running = match state {
            Some(state) => match self.shared.parked.resume(&binding, &state, given.unwrap_or_default())? {
                Resumed::Running(running) => running,
                Resumed::StillAsking(result) => return Ok(Outcome::InputRequired(result)),
            },
            None => client_context.attach().unwrap_or_else(|| {
                let (client, client_events) = self.client(context, given);
                let client = Arc::new(client);
                Running { work: start(client_context.call(name, Arc::clone(&client)), client), client_events }
            }),
        };
        running.serve(context, &client_context.caller, &binding, &self.shared.parked).await
    }

    /// A call that sends nothing to its client while it runs.
    fn unattended(&self, context: &RequestContext<RoleServer>) -> CallContext {
        let (client, _nobody_hears) = self.client(context, None);
        self.client_context(context).call(String::new(), Arc::new(client))
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        let info =
            ServerConfig::new(capabilities).with_server_info(Implementation::new("sekisho", env!("CARGO_PKG_VERSION")));
        let of_servers = self.shared.gateway.mcp_servers().instructions(&self.client_context.caller);
        let instructions: Vec<_> = self.left_out.iter().cloned().chain(of_servers).collect();
        match instructions.is_empty() {
            true => info,
            false => info.with_instructions(instructions.join("\n\n")),
        }
    }

    /// For the check of `Mcp-Param-*` headers: only tools that this caller may see.
    fn get_tool(&self, name: &str) -> Option<McpTool> {
        self.shared.catalogues.present(&self.shared.gateway).get(name, &self.client_context.caller).cloned()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.tools(request.as_ref(), &context)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, &context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.resources(request.as_ref(), &context)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.resource_templates(request.as_ref(), &context)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.read(request, &context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.prompts(request.as_ref(), &context)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.prompt(request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.completion(&request, &context).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let level = serde_json::from_value(json!(request.level))
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        self.session.set_log_level(level);
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let call = self.unattended(&context);
        self.subscriptions.add(&self.shared.gateway, call, request.uri).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(self.shared.gateway.mcp_servers(), &request.uri).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Some(client) = context.peer.peer_info() {
            self.session.introduced(&client.capabilities);
        }
        self.session.is_ready();
        let (shared, caller) = (Arc::clone(&self.shared), Arc::clone(&self.client_context.caller));
        let (subscriptions, session) = (Arc::clone(&self.subscriptions), Arc::clone(&self.session));
        tokio::spawn(super::subscriptions::notify_session(shared, caller, context.peer, subscriptions, session));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let call = self.unattended(subscription.request_context());
        super::subscriptions::notify_listener(&self.shared, subscription, call).await
    }
}

fn cursor(request: Option<&PaginatedRequestParams>) -> Option<&str> {
    request?.cursor.as_deref()
}

/// Items of a server's list that violate the protocol are left out.
fn typed<T: DeserializeOwned>(values: Vec<Value>) -> impl Iterator<Item = T> {
    values.into_iter().filter_map(|value| {
        serde_json::from_value(value).inspect_err(|error| tracing::debug!(%error, "left out of a list")).ok()
    })
}

/// A server's result for a client of any revision: rmcp omits what older revisions lack.
fn result_of<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    if let Some(fields) = value.as_object_mut() {
        fields.entry("resultType").or_insert_with(|| json!("complete"));
    }
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(format!("the server's result violates the protocol: {error}"), None))
}
