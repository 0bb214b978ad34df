//! What an MCP client may ask, and where it is answered.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, Implementation, InputResponses, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, Prompt,
    ReadResourceRequestParams, ReadResourceResponse, Resource, ResourceTemplate, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool as McpTool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::calling::{Outcome, Running, is_sessionless};
use super::catalogue::{LIST_TTL_MS, Page, for_older_clients, page};
use super::client::{Client, Hearing};
use super::waiting::{Binding, Resumed};
use super::watching::Subscriptions;
use super::{McpFace, result, search};
use crate::call::{Arguments, BudgetScopes, CallContext, Caller, TraceParent, Via};
use crate::error::ErrorCode;
use crate::peer::LogLevel;
use crate::pipeline::ErrorInfo;
use crate::sources::mcp::ServerFault;

/// One client, for the time of a session or of a request.
#[derive(Debug)]
pub struct Face {
    shared: Arc<McpFace>,
    visitor: Arc<Visitor>,
    /// What `logging/setLevel` asked for.
    log_level: Mutex<LogLevel>,
    subscriptions: Arc<Subscriptions>,
    /// Ends what watches for this client.
    ended: CancellationToken,
    _end: DropGuard,
}

/// Who asks, and what their calls belong to.
#[derive(Debug)]
pub struct Visitor {
    pub caller: Arc<Caller>,
    pub scopes: BudgetScopes,
    /// The MCP session, which is also the session of the calls in it.
    pub session: Option<String>,
    pub trace: Option<TraceParent>,
    /// Show three tools that find and call all others, instead of all of them.
    pub search: bool,
}

impl Visitor {
    /// Somebody with nothing but an identity.
    pub fn new(caller: Arc<Caller>) -> Self {
        Self { caller, scopes: BudgetScopes::default(), session: None, trace: None, search: false }
    }

    fn call(&self, tool: String, client: Arc<Client>) -> CallContext {
        CallContext {
            scopes: self.scopes.clone(),
            trace: self.trace.clone(),
            peer: Some(client),
            ..CallContext::new(tool, Arc::clone(&self.caller), Via::Mcp)
        }
    }
}

impl Face {
    pub fn new(shared: Arc<McpFace>, visitor: Arc<Visitor>) -> Self {
        let ended = CancellationToken::new();
        Self {
            shared,
            visitor,
            // The protocol leaves it to the server until the client says.
            log_level: Mutex::new(LogLevel::Info),
            subscriptions: Arc::default(),
            ended: ended.clone(),
            _end: ended.drop_guard(),
        }
    }

    /// Within a session each request has its own headers.
    fn visitor(&self, context: &RequestContext<RoleServer>) -> Arc<Visitor> {
        let parts = context.extensions.get::<http::request::Parts>();
        let visitor = parts.and_then(|parts| parts.extensions.get::<Arc<Visitor>>());
        Arc::clone(visitor.unwrap_or(&self.visitor))
    }

    /// The client of a request, for what the request runs.
    fn client(&self, context: &RequestContext<RoleServer>, given: Option<InputResponses>) -> (Client, Hearing) {
        let capabilities = json!(context.client_capabilities().unwrap_or_default());
        let level = match is_sessionless(context) {
            true => context.meta.log_level().and_then(|level| serde_json::from_value(json!(level)).ok()),
            false => Some(*self.log_level.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Client::new(capabilities, context.meta.get_progress_token().is_some(), level, given.unwrap_or_default())
    }

    /// Runs what `start` makes of a call, or goes on with what waits under the request's state.
    async fn run(
        &self,
        context: &RequestContext<RoleServer>,
        request: Request,
        start: impl FnOnce(CallContext, Arc<Client>) -> BoxFuture<'static, Result<Outcome, ErrorData>>,
    ) -> Result<Outcome, ErrorData> {
        let visitor = self.visitor(context);
        let Request { method, name, arguments, given, state } = request;
        let bound = [("method", json!(method)), ("name", json!(name)), ("arguments", Value::Object(arguments))];
        let bound = bound.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let binding = Binding::new(&visitor.caller, &bound);
        let running = match state {
            Some(state) => match self.shared.waiting.resume(&binding, &state, given.unwrap_or_default())? {
                Resumed::Running(running) => running,
                Resumed::StillAsking(result) => return Ok(Outcome::InputRequired(result)),
            },
            None => {
                let (client, hearing) = self.client(context, given);
                let client = Arc::new(client);
                Running { work: start(visitor.call(name, Arc::clone(&client)), client), hearing }
            }
        };
        running.serve(context, &visitor.caller, &binding, &self.shared.waiting).await
    }

    /// A call beside the pipeline, of something that is no tool.
    fn aside(&self, context: &RequestContext<RoleServer>) -> CallContext {
        let (client, _nobody_hears) = self.client(context, None);
        self.visitor(context).call(String::new(), Arc::new(client))
    }
}

/// What identifies a request across its retries, and what a retry brings.
struct Request {
    method: &'static str,
    name: String,
    arguments: Arguments,
    given: Option<InputResponses>,
    state: Option<String>,
}

impl ServerHandler for Face {
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
        match self.shared.gateway.mcp_servers().instructions(&self.visitor.caller) {
            Some(instructions) => info.with_instructions(instructions),
            None => info,
        }
    }

    /// For the check of `Mcp-Param-*` headers: only tools that this caller may know of.
    fn get_tool(&self, name: &str) -> Option<McpTool> {
        self.shared.catalogues.present(&self.shared.gateway).get(name, &self.visitor.caller).cloned()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let visitor = self.visitor(&context);
        let cursor = cursor(request.as_ref());
        let Page { items, next } = if visitor.search {
            page(search::tools().iter().cloned(), |tool| &tool.name, cursor)?
        } else {
            let catalogue = self.shared.catalogues.present(&self.shared.gateway);
            let tools = catalogue.of(&visitor.caller);
            // Whole tools are cloned for one page only.
            let Page { items, next } = page(tools, |tool| &tool.name, cursor)?;
            Page { items: items.into_iter().cloned().collect(), next }
        };
        let items = match is_sessionless(&context) {
            true => items,
            false => items.into_iter().map(for_older_clients).collect(),
        };
        let mut result = ListToolsResult::with_all_items(items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) = (next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let visitor = self.visitor(&context);
        let (name, arguments) = match visitor.search.then(|| search::answer(&request.name, &arguments, self, &visitor))
        {
            Some(search::Answer::Result(result)) => return result.map(Into::into),
            Some(search::Answer::Call(name, arguments)) => (name, arguments),
            Some(search::Answer::NotOurs) | None => (request.name.into_owned(), arguments),
        };
        let gateway = Arc::clone(&self.shared.gateway);
        let tool = gateway.pipeline.registry.snapshot().get(&name).cloned();
        let offered = tool.as_ref().is_some_and(|tool| tool.is_offered_to(&visitor.caller));
        // Files and interpreters of a client are there for as long as its session is.
        let session =
            visitor.session.as_ref().filter(|_| tool.as_ref().is_some_and(|tool| tool.metadata.session_aware));
        let session = match session.map(|id| gateway.sessions.open(&visitor.caller, id)).transpose() {
            Ok(session) => session,
            Err(error) => return Ok(result::of_error(&error).into()),
        };
        let has_output_schema = tool.is_some_and(|tool| tool.output.is_some());
        let is_older = !is_sessionless(&context);
        let request = Request {
            method: "tools/call",
            name,
            arguments: arguments.clone(),
            given: request.input_responses,
            state: request.request_state,
        };
        let outcome = self.run(&context, request, |call, client| {
            async move {
                let call = CallContext { session, ..call };
                let name = call.tool.clone();
                let answered = gateway.pipeline.call(call, arguments).await;
                if !offered {
                    // Whatever the checks said: to this caller the tool does not exist.
                    let unknown = gateway.pipeline.registry.snapshot().unknown_to(&name, &visitor.caller);
                    return Err(result::unknown_tool(unknown.message(), unknown.alternatives()));
                }
                if !is_older && let Some(missing) = result::missing_capability(&answered.reply, &client) {
                    return Err(missing);
                }
                let mut result = result::of_reply(&answered.reply, has_output_schema)?;
                if is_older {
                    // Only objects are structured content there.
                    result.structured_content = result.structured_content.filter(Value::is_object);
                }
                Ok(Outcome::Tool(result))
            }
            .boxed()
        });
        outcome.await?.of_tool()
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.shared.gateway.mcp_servers().resources(&self.visitor(&context).caller);
        let page = page(typed(resources), |resource: &Resource| &resource.uri, cursor(request.as_ref()))?;
        let mut result = ListResourcesResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.shared.gateway.mcp_servers().resource_templates(&self.visitor(&context).caller);
        let page =
            page(typed(templates), |template: &ResourceTemplate| &template.uri_template, cursor(request.as_ref()))?;
        let mut result = ListResourceTemplatesResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
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
        let outcome = self.run(&context, request, |call, _client| {
            async move {
                let read = gateway.mcp_servers().read_resource(&call, &uri).await;
                let read = read.map_err(|fault| resource_fault(fault, &uri))?;
                result_of(read).map(Outcome::Resource)
            }
            .boxed()
        });
        outcome.await?.of_resource()
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.shared.gateway.mcp_servers().prompts(&self.visitor(&context).caller);
        let page = page(typed(prompts), |prompt: &Prompt| &prompt.name, cursor(request.as_ref()))?;
        let mut result = ListPromptsResult::with_all_items(page.items);
        (result.next_cursor, result.ttl_ms, result.cache_scope) =
            (page.next, Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
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
        let outcome = self.run(&context, request, |call, _client| {
            async move {
                let prompt = gateway.mcp_servers().get_prompt(&call, &name, &arguments).await;
                result_of(prompt.map_err(fault)?).map(Outcome::Prompt)
            }
            .boxed()
        });
        outcome.await?.of_prompt()
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let Value::Object(mut params) = json!(request) else { return Ok(CompleteResult::default()) };
        params.remove("_meta");
        let call = self.aside(&context);
        let completing = self.shared.gateway.mcp_servers();
        tokio::select! {
            () = context.ct.cancelled() => Err(ErrorData::invalid_request("the request was cancelled", None)),
            completed = completing.complete(&call, &params) => result_of(completed.map_err(fault)?),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = result_of(json!(request.level))?;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let call = self.aside(&context);
        self.subscriptions.add(self.shared.gateway.mcp_servers(), call, request.uri).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(self.shared.gateway.mcp_servers(), &request.uri).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let gateway = Arc::clone(&self.shared.gateway);
        let subscriptions = Arc::clone(&self.subscriptions);
        tokio::spawn(super::watching::tell_session(gateway, context.peer, subscriptions, self.ended.clone()));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let call = self.aside(subscription.request_context());
        let gateway = &self.shared.gateway;
        super::watching::tell_listener(gateway, subscription, call, &self.shared.draining).await
    }
}

impl Face {
    pub(super) fn shared(&self) -> &McpFace {
        &self.shared
    }
}

fn cursor(request: Option<&PaginatedRequestParams>) -> Option<&str> {
    request?.cursor.as_deref()
}

/// What a server lists that is not as the protocol says is left out.
fn typed<T: DeserializeOwned>(values: Vec<Value>) -> impl Iterator<Item = T> {
    values.into_iter().filter_map(|value| {
        serde_json::from_value(value).inspect_err(|error| tracing::debug!(%error, "left out of a list")).ok()
    })
}

fn result_of<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| {
        ErrorData::internal_error(format!("the server's result is not as the protocol says: {error}"), None)
    })
}

fn resource_fault(unread: ServerFault, uri: &str) -> ErrorData {
    match unread {
        ServerFault::Unknown(what) => {
            ErrorData::resource_not_found(format!("there is no {what}"), Some(json!({"uri": uri})))
        }
        other => fault(other),
    }
}

pub(super) fn fault(fault: ServerFault) -> ErrorData {
    match fault {
        ServerFault::Unknown(what) => ErrorData::invalid_params(format!("there is no {what}"), None),
        ServerFault::Refused { code, message, data } => ErrorData::new(rmcp::model::ErrorCode(code), message, data),
        ServerFault::Failed(error) => {
            let data = json!({"error_info": ErrorInfo::from(&error)});
            match error.code() {
                ErrorCode::InvalidArguments | ErrorCode::InvalidRequest | ErrorCode::UnknownTool => {
                    ErrorData::invalid_params(error.message().to_owned(), Some(data))
                }
                _ => ErrorData::internal_error(error.message().to_owned(), Some(data)),
            }
        }
    }
}
