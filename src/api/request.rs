//! Turns an HTTP request into a tool call: its caller, session, budgets and arguments.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::ORIGIN;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::body::{self, HeldMemory};
use super::client_request::{MAX_ID_BYTES, REQUEST_ID};
use super::local;
use super::preference::Preferences;
use super::request_guard::Connection;
use crate::reply::ErrorReply;
use sekisho_auth::has_credentials;
use sekisho_calls::journals::RunContext;
use sekisho_core::call::{Arguments, BudgetScopes, CallContext, Caller, ClientRequest, ResultHandles, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::{HeaderError, single};
use sekisho_gateway::Gateway;
use sekisho_observe::telemetry;
use sekisho_observe::telemetry::{TRACE_PARENT, TRACE_STATE};

const AGENT_ID: HeaderName = HeaderName::from_static("x-agent-id");
const TASK_ID: HeaderName = HeaderName::from_static("x-task-id");
/// Open WebUI's header for the id of a conversation.
const CHAT_ID: HeaderName = HeaderName::from_static("x-openwebui-chat-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const APPROVAL_ID: HeaderName = HeaderName::from_static("x-approval-id");

/// `POST /tools/{name}/execute`. `arguments` and `parameters` are synonyms; send one of them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecuteRequest {
    #[schema(value_type = Option<Object>)]
    arguments: Option<Arguments>,
    #[schema(value_type = Option<Object>)]
    parameters: Option<Arguments>,
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    session_id: Option<String>,
    /// Run every check, but not the tool.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /tools/execute` and each element of `POST /tools/batch-execute`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecuteNamedRequest {
    pub tool_name: String,
    #[schema(value_type = Option<Object>)]
    arguments: Option<Arguments>,
    #[schema(value_type = Option<Object>)]
    parameters: Option<Arguments>,
    session_context: Option<SessionContext>,
    /// Run every check, but not the tool.
    #[serde(default)]
    dry_run: bool,
}

/// The session and context of the call. `user_id` never authenticates: it is forwarded and recorded as a claim.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionContext {
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    session_id: Option<String>,
    user_id: Option<String>,
    /// The text of the user for whom the call is made, such as the request to the agent. Values in it count as the user's
    /// (`policy.flow`).
    user_text: Option<String>,
    /// Of a run that is resumed; a client cannot choose it.
    #[serde(skip)]
    values_of: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    request_id: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    agent_id: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    task_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    prompt_params: Option<Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    tool_parameters: Option<Map<String, Value>>,
}

impl SessionContext {
    pub(super) fn of_session(id: String) -> Self {
        Self { session_id: Some(id), ..Self::default() }
    }
}

impl From<RunContext> for SessionContext {
    fn from(context: RunContext) -> Self {
        let RunContext {
            tool: _,
            session,
            values_of,
            user_text,
            request,
            agent,
            task,
            claimed_user,
            prompt_params,
            tool_parameters,
        } = context;
        Self {
            session_id: session,
            user_id: claimed_user,
            user_text,
            values_of,
            request_id: request,
            agent_id: agent,
            task_id: task,
            prompt_params: Some(prompt_params),
            tool_parameters: Some(tool_parameters),
        }
    }
}

/// A call made from a request, and its arguments.
#[derive(Debug)]
pub struct Incoming {
    pub call: Box<CallContext>,
    pub arguments: Arguments,
}

impl Incoming {
    /// The call holds this memory until it ends.
    #[must_use]
    pub(super) fn holding(mut self, memory: &HeldMemory) -> Self {
        self.call.body.memory.clone_from(memory);
        self
    }
}

impl ExecuteRequest {
    /// Errors: `invalid_request` for contradictory fields or headers, and the errors of opening the session.
    pub(super) fn into_call(self, tool: String, meta: &RequestMeta, gateway: &Gateway) -> Result<Incoming, CallError> {
        let context = SessionContext { session_id: self.session_id, ..SessionContext::default() };
        meta.call(tool, either(self.arguments, self.parameters)?, context, self.dry_run, gateway)
    }
}

impl ExecuteNamedRequest {
    /// Errors: `invalid_request`: another form.
    pub(super) fn from_json(request: Value) -> Result<Self, CallError> {
        serde_json::from_value(request).map_err(body::wrong_form)
    }

    /// Errors: as [`ExecuteRequest::into_call`].
    pub(super) fn into_call(self, meta: &RequestMeta, gateway: &Gateway) -> Result<Incoming, CallError> {
        let arguments = either(self.arguments, self.parameters)?;
        meta.call(self.tool_name, arguments, self.session_context.unwrap_or_default(), self.dry_run, gateway)
    }
}

/// The sender of a request, and the budgets and trace of its calls, from its headers.
#[derive(Debug)]
pub struct RequestMeta {
    pub caller: Arc<Caller>,
    /// Whether it came over the Unix socket.
    pub over_socket: bool,
    /// The thread of an agent's client (A28).
    pub thread: Option<Arc<str>>,
    /// The request, for the log and the audit trail.
    pub request: Option<Arc<ClientRequest>>,
    pub scopes: BudgetScopes,
    idempotency_key: Option<String>,
    /// The approval by which the call is made.
    approval: Option<Arc<str>>,
    pub(super) preferences: Preferences,
    pub trace: Option<sekisho_core::call::TraceParent>,
}

impl RequestMeta {
    /// Of work that goes on without its client.
    pub fn of_work(caller: Arc<Caller>, scopes: BudgetScopes) -> Self {
        Self {
            caller,
            over_socket: false,
            thread: None,
            request: None,
            scopes,
            idempotency_key: None,
            approval: None,
            preferences: Preferences::default(),
            trace: None,
        }
    }

    /// The key of a turn of an agent, which is not run again when it is sent again.
    pub fn turn_key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Only a request with one call may have an idempotency key or an approval.
    pub(super) fn forbid_headers_of_one_call(&self) -> Result<(), CallError> {
        let header = match (&self.idempotency_key, &self.approval) {
            (None, None) => return Ok(()),
            (Some(_), _) => "Idempotency-Key",
            (None, Some(_)) => "X-Approval-Id",
        };
        Err(CallError::invalid(format!(
            "`{header}` applies to one call; send the calls of this batch in requests of their own"
        )))
    }

    /// Requires a role for the route.
    /// Errors: `denied`, with the role that is missing.
    pub(super) fn require_role(&self, role: &str) -> Result<(), CallError> {
        if self.caller.has_role(role) {
            return Ok(());
        }
        let message = format!("this requires the role `{role}`; use a key that has it");
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// Requires that nobody else is the same caller: all clients without credentials are one caller, and a client
    /// elsewhere knows the work that it began only by its id.
    /// Errors: `unauthenticated`.
    pub fn require_list_of_own(&self) -> Result<(), CallError> {
        let is_elsewhere = |request: &ClientRequest| request.address.is_some_and(|address| !address.is_loopback());
        if self.caller.anonymous && self.request.as_deref().is_some_and(is_elsewhere) {
            let message = "what callers without credentials began is not listed for clients elsewhere; send a key";
            return Err(CallError::new(ErrorCode::Unauthenticated, message));
        }
        Ok(())
    }

    /// A call of a tool.
    /// Errors: the errors of opening the session.
    pub(super) fn call(
        &self,
        tool: String,
        arguments: Arguments,
        context: SessionContext,
        dry_run: bool,
        gateway: &Gateway,
    ) -> Result<Incoming, CallError> {
        let mut call = Box::new(CallContext::new(tool, Arc::clone(&self.caller), Via::Rest));
        call.dry_run = dry_run;
        call.origin.request.clone_from(&self.request);
        call.charging.scopes = BudgetScopes {
            request: context.request_id.or_else(|| self.scopes.request.clone()),
            agent: context.agent_id.or_else(|| self.scopes.agent.clone()),
            task: context.task_id.or_else(|| self.scopes.task.clone()),
            ..BudgetScopes::default()
        };
        call.origin.session =
            context.session_id.map(|id| gateway.pipeline.sessions.prepare(&self.caller, &id)).transpose()?;
        call.origin.handles = self.preferences.handle.then(|| ResultHandles {
            max_inline_bytes: gateway.pipeline.results.max_inline_bytes(),
            session: call.origin.session.as_ref().map(|session| Arc::clone(&session.id)),
        });
        call.origin.claimed_user = context.user_id;
        call.origin.user_text = context.user_text.map(Into::into);
        call.origin.values_of = context.values_of.map(Into::into);
        call.origin.prompt_params = context.prompt_params.unwrap_or_default();
        call.origin.tool_parameters = context.tool_parameters.unwrap_or_default();
        call.origin.trace.clone_from(&self.trace);
        call.resumption.idempotency_key.clone_from(&self.idempotency_key);
        call.resumption.approval.clone_from(&self.approval);
        Ok(Incoming { call, arguments })
    }
}

impl FromRequestParts<Arc<Gateway>> for RequestMeta {
    type Rejection = ErrorReply;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ErrorReply> {
        let headers = &parts.headers;
        let request = parts.extensions.get::<Connection>().map(|connection| Arc::clone(&connection.request));
        let trace = headers.get(&TRACE_PARENT).and_then(|value| value.to_str().ok()).and_then(|parent| {
            telemetry::incoming(parent, headers.get(&TRACE_STATE).and_then(|value| value.to_str().ok()))
        });
        let caller = caller_of(parts, gateway).await.inspect_err(|error| {
            if matches!(error.code(), ErrorCode::Unauthenticated | ErrorCode::RateLimited) {
                gateway.pipeline.settlement.unauthenticated(error, request.as_ref(), trace.as_ref());
            }
        })?;
        let scopes = BudgetScopes {
            request: text_header(headers, &REQUEST_ID)?,
            agent: text_header(headers, &AGENT_ID)?,
            task: text_header(headers, &TASK_ID)?,
            ..BudgetScopes::default()
        };
        let thread = text_header(headers, &CHAT_ID)?.map(Into::into);
        let idempotency_key = text_header(headers, &IDEMPOTENCY_KEY)?;
        let approval = text_header(headers, &APPROVAL_ID)?.map(Into::into);
        let preferences = Preferences::of(headers);
        let mut over_socket = false;
        if let Some(connection) = parts.extensions.get_mut::<Connection>() {
            connection.caller = Some(Arc::clone(&caller));
            over_socket = connection.over_socket;
        }
        Ok(Self { caller, over_socket, thread, request, scopes, idempotency_key, approval, preferences, trace })
    }
}

/// The caller of a request that is made within the process. No request from outside has this extension.
#[derive(Debug, Clone)]
pub(super) struct KnownCaller(pub Arc<Caller>);

/// The caller of a request. A caller without credentials owns its resources by its address.
/// Errors: `unauthenticated`: credentials that are wrong, ambiguous or missing.
pub(super) async fn caller_of(parts: &Parts, gateway: &Gateway) -> Result<Arc<Caller>, CallError> {
    if let Some(KnownCaller(caller)) = parts.extensions.get() {
        return Ok(Arc::clone(caller));
    }
    let connection = Connection::of(parts)?;
    let caller = match connection.over_socket {
        true => local::caller_of(&parts.headers)?,
        false => {
            let (is_local, client) = (connection.client.is_local, &connection.client_owner);
            let workload = connection.workload().filter(|_| !has_credentials(&parts.headers));
            match workload.and_then(|workload| gateway.keys().authenticator().workload(workload)) {
                Some(caller) => caller,
                None => gateway.keys().authenticator().authenticate(&parts.headers, is_local, client).await?,
            }
        }
    };
    Ok(match caller.anonymous {
        true => connection.owned_by_client(&caller),
        false => caller,
    })
}

fn either(arguments: Option<Arguments>, parameters: Option<Arguments>) -> Result<Arguments, CallError> {
    match (arguments, parameters) {
        (Some(_), Some(_)) => Err(CallError::invalid("`arguments` and `parameters` are synonyms; send one of them")),
        (one, other) => Ok(one.or(other).unwrap_or_default()),
    }
}

/// A GET that runs a tool must not come from another site's page, where a browser sends it without a preflight: on
/// loopback callers need no credentials.
/// Errors: `denied`.
pub fn forbid_other_sites(parts: &Parts) -> Result<(), CallError> {
    let headers = &parts.headers;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let site_is_other = headers.contains_key(FETCH_SITE) && !matches!(text(FETCH_SITE), Some("same-origin" | "none"));
    let host = Connection::of(parts)?.host(parts).unwrap_or_default();
    let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    if site_is_other || headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(is_ours) {
        return Err(CallError::new(ErrorCode::Denied, "a page of another site must not send this request; use POST"));
    }
    Ok(())
}

/// Fetch Metadata (<https://www.w3.org/TR/fetch-metadata/>).
pub(super) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

fn text_header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, CallError> {
    match single(headers, name) {
        Ok(None) => Ok(None),
        Ok(Some(text)) if !text.is_empty() && text.len() <= MAX_ID_BYTES => Ok(Some(text.to_owned())),
        Err(HeaderError::Duplicate) => Err(CallError::invalid(format!("duplicate `{name}` header"))),
        Ok(Some(_)) | Err(HeaderError::NotText) => {
            Err(CallError::invalid(format!("the header {name} must be 1 to {MAX_ID_BYTES} visible ASCII characters")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::json;

    #[test]
    fn hostile_bytes_as_the_body_of_a_call() {
        let seeds: [&[u8]; 3] = [
            br#"{"arguments": {"expression": "1", "n": [1.5, null]}, "session_id": "s", "dry_run": true}"#,
            br#"{"tool_name": "t", "parameters": {"a": {"b": "\u00e9"}}, "session_context": {"user_id": "u", "prompt_params": {"c": 1}}}"#,
            br#"[{"tool_name": "t"}, {"tool_name": "u", "arguments": {}}]"#,
        ];
        sekisho_core::fuzz::feed(&seeds, |bytes| {
            let Ok(body) = json::parse(bytes) else { return };
            let _ = json::digest(&Map::from_iter([("body".to_owned(), body.clone())]));
            let _ = serde_json::from_value::<ExecuteRequest>(body.clone());
            let _ = serde_json::from_value::<ExecuteNamedRequest>(body.clone());
            let _ = serde_json::from_value::<Vec<ExecuteNamedRequest>>(body);
        });
    }
}
