//! The methods of MCP that a client may call.

mod approval;
mod operation;
mod passed_on;
mod prompts;
mod resources;
mod tasks;
mod tools;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{
    CompleteRequestParams, CustomResult, DiscoverResult, ErrorCode, ErrorData, GetPromptRequestParams, Implementation,
    InitializeRequestParams, InitializeResult, InputResponses, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, RequestId, RequestMetaObject, ServerCapabilities, ServerConfig, ServerResult,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionsListenRequestParams, UnsubscribeRequestParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::McpServer;
use super::catalogue::{LIST_TTL_MS, page};
use super::client::{Client, ClientEvents};
use super::client_context::McpClientContext;
use super::extensions::{self, APPS, TASKS};
use super::headers::Era;
use super::message::Request;
use super::parked_calls::{Binding, Resumed};
use super::result;
use super::running_request::{Outcome, RunningRequest};
use super::session::McpSession;
use super::subscriptions;
use super::tasks::TaskOwner;
use crate::body::HeldMemory;
use crate::local;
use sekisho_config::McpEndpoint;
use sekisho_core::call::{Arguments, CallContext, Caller};
use sekisho_core::peer::ClientPeer;
use sekisho_gateway::Gateway;

pub(super) use self::operation::{error_data, run as run_operation};

/// A request that runs.
#[derive(Debug)]
pub(super) struct StartedRequest {
    pub running: RunningRequest,
    /// The part that a further request must repeat to continue this one, if its client answers questions that way.
    pub binding: Option<Binding>,
    /// The owner of the task that a long request becomes, where its client supports that.
    pub task: Option<TaskOwner>,
}

/// The sender of a request, and the request's metadata.
#[derive(Clone)]
struct Context {
    server: Arc<McpServer>,
    client: Arc<McpClientContext>,
    meta: RequestMetaObject,
    memory: HeldMemory,
    era: Era,
}

/// The parameters of a request that may ask its client questions: the part that a further request with the answers
/// repeats, and the part that it adds.
struct Questionable {
    method: &'static str,
    name: String,
    arguments: Arguments,
    given: Option<InputResponses>,
    state: Option<String>,
}

/// To whom this server presents itself, and as which one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Presented<'a> {
    pub caller: &'a Arc<Caller>,
    pub over_socket: bool,
    /// `None`: the server of all tools.
    pub endpoint: Option<&'a McpEndpoint>,
}

/// Starts a request. Its errors are outcomes too.
pub(super) fn start(
    server: &Arc<McpServer>,
    client: &Arc<McpClientContext>,
    request: Request,
    era: Era,
) -> StartedRequest {
    let Request { id, method, params, meta, memory } = request;
    let context = Context { server: Arc::clone(server), client: Arc::clone(client), meta, memory, era };
    let session = client.session.as_ref().filter(|_| era == Era::Sessions);
    let started = match (method.as_str(), era) {
        ("tools/call", _) => context.call_tool(params),
        ("tools/list", _) => parsed(params).map(|params: PaginatedRequestParams| {
            context.start_without_client(|context| context.clone().list_tools(params).boxed())
        }),
        ("tasks/get" | "tasks/cancel", _)
        | ("tasks/list" | "tasks/result", Era::Sessions)
        | ("tasks/update", Era::Stateless) => context.task_request(&method, &params),
        ("prompts/get", _) => parsed(params).and_then(|params: GetPromptRequestParams| context.get_prompt(params)),
        ("resources/read", _) => {
            parsed(params).and_then(|params: ReadResourceRequestParams| context.read_resource(params))
        }
        ("completion/complete", _) => parsed(params)
            .map(|params: CompleteRequestParams| context.start_without_client(|context| context.complete(&params))),
        ("subscriptions/listen", Era::Stateless) => context.listen(id, params),
        ("resources/subscribe", Era::Sessions) => parsed(params).map(|params: SubscribeRequestParams| {
            context.in_session(session, |server, session, call| async move {
                session.subscriptions.add(&server.gateway, call, params.uri).await
            })
        }),
        ("resources/unsubscribe", Era::Sessions) => parsed(params).map(|params: UnsubscribeRequestParams| {
            context.in_session(session, |server, session, _call| async move {
                session.subscriptions.remove(server.gateway.mcp_servers(), &params.uri).await
            })
        }),
        _ => context.at_once(&method, params, session).map(ready),
    };
    started.unwrap_or_else(|error| ready_with(Err(error)))
}

/// The answer to `initialize`, with the requested revision if it has sessions, else the newest that has; and the client's
/// capabilities.
/// Errors: invalid params.
pub(super) fn initialize(
    server: &McpServer,
    to: Presented<'_>,
    params: Map<String, Value>,
) -> Result<(ServerResult, Value), ErrorData> {
    let params: InitializeRequestParams = parsed(params)?;
    let mut result: InitializeResult = info(server, to);
    let known = ProtocolVersion::KNOWN_VERSIONS.contains(&params.protocol_version);
    result.protocol_version = match known && params.protocol_version.has_initialize() {
        true => params.protocol_version,
        false => ProtocolVersion::LATEST_WITH_INITIALIZE,
    };
    Ok((tasks::announced(result), json!(params.capabilities)))
}

impl Context {
    fn listen(&self, id: RequestId, params: Map<String, Value>) -> Result<StartedRequest, ErrorData> {
        let tasks = self.followed_tasks(&params)?;
        let params: SubscriptionsListenRequestParams = parsed(params)?;
        Ok(self.start(None, None, |context, call, client| {
            let filter = params.notifications.supported_by(&capabilities());
            subscriptions::listen(Arc::clone(&context.server), call, client, id, filter, tasks).boxed()
        }))
    }

    /// A request whose result needs no waiting.
    fn at_once(
        &self,
        method: &str,
        params: Map<String, Value>,
        session: Option<&Arc<McpSession>>,
    ) -> Result<ServerResult, ErrorData> {
        match (method, self.era) {
            ("resources/list", _) => self.resources(&parsed(params)?),
            ("resources/templates/list", _) => self.resource_templates(&parsed(params)?),
            ("prompts/list", _) => self.prompts(&parsed(params)?),
            ("server/discover", _) => Ok(ServerResult::DiscoverResult(DiscoverResult::from_server_info(
                ProtocolVersion::KNOWN_VERSIONS.to_vec(),
                with_tasks(info(&self.server, self.presented())),
            ))),
            ("ping", Era::Sessions) => Ok(ServerResult::empty(())),
            ("initialize", Era::Sessions) => {
                initialize(&self.server, self.presented(), params).map(|(result, _)| result)
            }
            ("logging/setLevel", Era::Sessions) => {
                let params: SetLevelRequestParams = parsed(params)?;
                if let Some(session) = session {
                    session.set_level(parsed_value(json!(params.level))?);
                }
                Ok(ServerResult::empty(()))
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method: {method}"), None)),
        }
    }

    /// The capabilities of the client, as it declared them when its session began or in this request.
    fn client_capabilities(&self) -> Value {
        match self.client.session.as_ref().filter(|_| self.era == Era::Sessions) {
            Some(session) => ClientPeer::capabilities(&**session).clone(),
            None => json!(self.meta.client_capabilities().unwrap_or_default()),
        }
    }

    fn declares(&self, extension: &str) -> bool {
        extensions::is_declared(&self.client_capabilities(), extension)
    }

    /// The client, for the work of this request.
    fn client(&self, given: Option<InputResponses>) -> (Client, ClientEvents) {
        let token = self.meta.get_progress_token();
        let (owner, given) = (&self.client.caller.owner, given.unwrap_or_default());
        let capabilities = self.client_capabilities();
        match self.client.session.as_ref().filter(|_| self.era == Era::Sessions) {
            Some(session) => {
                let (client, events) = Client::new(owner, capabilities, token, Some(session.level()), given);
                (client.in_session(session), events)
            }
            None => {
                let level = self.meta.log_level().and_then(|level| serde_json::from_value(json!(level)).ok());
                Client::new(owner, capabilities, token, level, given)
            }
        }
    }

    /// Starts the work that `work` creates for a call of the tool `name`.
    fn start(
        &self,
        name: Option<String>,
        given: Option<InputResponses>,
        work: impl FnOnce(&Self, CallContext, Arc<Client>) -> BoxFuture<'static, Outcome>,
    ) -> StartedRequest {
        let (client, client_events) = self.client(given);
        let client = Arc::new(client);
        let mut call = self.client.call(name.unwrap_or_default(), Arc::clone(&client));
        call.body.memory.clone_from(&self.memory);
        call.origin.trace = passed_on::trace(&self.meta).or(call.origin.trace);
        call.origin.user_text = passed_on::user_text(&self.meta);
        call.client.meta = passed_on::meta(&self.meta);
        StartedRequest {
            running: RunningRequest { work: work(self, call, client), client_events },
            binding: None,
            task: None,
        }
    }

    /// Starts work that sends nothing to its client while it runs.
    fn start_without_client(&self, work: impl FnOnce(&Self) -> BoxFuture<'static, Outcome>) -> StartedRequest {
        self.start(None, None, |context, _call, _client| work(context))
    }

    fn presented(&self) -> Presented<'_> {
        let McpClientContext { caller, over_socket, endpoint, .. } = &*self.client;
        Presented { caller, over_socket: *over_socket, endpoint: endpoint.as_deref() }
    }

    /// A call that sends nothing to its client while it runs.
    fn call_without_client(&self) -> CallContext {
        let (client, _nobody_reads) = self.client(None);
        self.client.call(String::new(), Arc::new(client))
    }

    fn in_session<F>(
        &self,
        session: Option<&Arc<McpSession>>,
        work: impl FnOnce(Arc<McpServer>, Arc<McpSession>, CallContext) -> F + Send + 'static,
    ) -> StartedRequest
    where
        F: Future<Output = Result<(), ErrorData>> + Send + 'static,
    {
        let Some(session) = session.cloned() else {
            return ready_with(Err(ErrorData::invalid_request("this needs a session; send `initialize` first", None)));
        };
        let (server, call) = (Arc::clone(&self.server), self.call_without_client());
        self.start_without_client(|_| async move { work(server, session, call).await.map(ServerResult::empty) }.boxed())
    }

    /// Starts the work that `work` creates, or continues the call that is parked under the request's state.
    fn start_or_resume(
        &self,
        request: Questionable,
        work: impl FnOnce(&Self, CallContext, Arc<Client>, Arguments) -> BoxFuture<'static, Outcome>,
    ) -> Result<StartedRequest, ErrorData> {
        let Questionable { method, name, arguments, given, state } = request;
        // Only a client that answers questions in further requests needs it.
        let binding = (state.is_some() || self.answers_in_further_requests())
            .then(|| Binding::new(&self.client.caller, method, &name, &arguments));
        if let (Some(state), Some(binding)) = (state, &binding) {
            return match self.server.parked.resume(binding, &state, given.unwrap_or_default())? {
                Resumed::Running(running) => Ok(StartedRequest { running, binding: Some(binding.clone()), task: None }),
                Resumed::StillAsking(result) => Ok(ready(ServerResult::InputRequiredResult(result))),
            };
        }
        let started = self.start(Some(name), given, |context, call, client| work(context, call, client, arguments));
        Ok(StartedRequest { binding, ..started })
    }

    fn answers_in_further_requests(&self) -> bool {
        self.era == Era::Stateless
            && self.meta.client_capabilities().is_some_and(|capabilities| {
                capabilities.elicitation.is_some() || capabilities.sampling.is_some() || capabilities.roots.is_some()
            })
    }
}

/// Whether a guard blocks a description of a source other than a tool's.
fn is_blocked(gateway: &Gateway) -> impl Fn(&str, &Value) -> bool + use<> {
    let snapshot = gateway.pipeline.registry.snapshot();
    move |source, described| snapshot.blocks_description(source, described)
}

/// The name and capabilities of this server. A client of this machine's user is told which tools its caller may not
/// use: the user chose the caller.
fn info(server: &McpServer, Presented { caller, over_socket, endpoint }: Presented<'_>) -> ServerConfig {
    let info =
        ServerConfig::new(capabilities()).with_server_info(Implementation::new("sekisho", env!("CARGO_PKG_VERSION")));
    let of_servers = server.gateway.mcp_servers().instructions(caller, &is_blocked(&server.gateway));
    let left_out = over_socket.then(|| local::left_out(&server.gateway, caller)).flatten();
    let of_endpoint = endpoint.and_then(|endpoint| endpoint.instructions.clone());
    let instructions: Vec<_> = left_out.into_iter().chain(of_endpoint).chain(of_servers).collect();
    match instructions.is_empty() {
        true => info,
        false => info.with_instructions(instructions.join("\n\n")),
    }
}

/// Adds the extension that clients of 2026-07-28 use tasks by.
fn with_tasks(mut config: ServerConfig) -> ServerConfig {
    config.capabilities.extensions.get_or_insert_default().insert(TASKS.to_owned(), Map::new());
    config
}

fn capabilities() -> ServerCapabilities {
    let capabilities = json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {"listChanged": true},
        "completions": {},
        "logging": {},
        "extensions": {APPS: {}},
    });
    serde_json::from_value(capabilities).unwrap_or_default()
}

fn ready(result: ServerResult) -> StartedRequest {
    ready_with(Ok(result))
}

fn ready_with(outcome: Outcome) -> StartedRequest {
    let running = RunningRequest { work: std::future::ready(outcome).boxed(), client_events: ClientEvents::none() };
    StartedRequest { running, binding: None, task: None }
}

/// The parameters, as the method defines them.
fn parsed<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, ErrorData> {
    parsed_value(Value::Object(params))
}

fn parsed_value<T: DeserializeOwned>(params: Value) -> Result<T, ErrorData> {
    serde_json::from_value(params)
        .map_err(|error| ErrorData::invalid_params(format!("invalid parameters: {error}"), None))
}

fn cursor(request: &PaginatedRequestParams) -> Option<&str> {
    request.cursor.as_deref()
}

/// A page of the items of servers' lists, whose member `key` identifies each. Items that violate the protocol are left out.
fn list_of<T: DeserializeOwned + Serialize>(name: &str, items: Vec<Value>, key: &str, cursor: Option<&str>) -> Outcome {
    let items = items.into_iter().filter_map(|original| {
        let item = T::deserialize(&original).and_then(serde_json::to_value);
        let mut item = item.inspect_err(|error| tracing::debug!(%error, "left out of a list")).ok()?;
        result::add_unknown(&mut item, &original);
        Some(item)
    });
    let page = page(items, |item: &Value| item[key].as_str().unwrap_or_default(), cursor)?;
    let mut list = json!({"ttlMs": LIST_TTL_MS, "cacheScope": "private", "resultType": "complete"});
    list[name] = page.items.into();
    if let Some(next) = page.next {
        list["nextCursor"] = next.into();
    }
    Ok(ServerResult::CustomResult(CustomResult(list)))
}

/// A server's result for a client of any revision.
fn result_of<T: DeserializeOwned>(mut value: Value, result: impl FnOnce(T) -> ServerResult) -> Outcome {
    if let Some(fields) = value.as_object_mut() {
        fields.entry("resultType").or_insert_with(|| json!("complete"));
    }
    let read = T::deserialize(&value).map_err(|error| {
        ErrorData::internal_error(format!("the server's result violates the protocol: {error}"), None)
    })?;
    Ok(result::with_unknown(result(read), &value))
}
