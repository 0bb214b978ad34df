//! `/v1`: agents as OpenAI clients see them.

mod completion;
mod request;
pub(super) mod terms;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use self::completion::{Chunk, ChunkEncoder, Completion};
use self::request::CompletionRequest;
use super::keyed_turn::{self, Progress, Turn};
use super::model_api::encoder::encoded;
use super::model_api::output::Output;
use super::model_api::{NamedAgent, session_of_thread, should_retry};
use super::run_events;
use sekisho_agent::AgentService;
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, ErrorInfoBody, Name, RequestMeta, event_stream};
use sekisho_calls::pipeline::Receipt;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// The agents' profiles and models.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Models {
    object: String,
    pub data: Vec<ModelEntry>,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelEntry {
    /// The value of `model` in a completion request.
    pub id: String,
    object: String,
    /// A profile has no date, but clients require a number.
    created: i64,
    owned_by: String,
}

/// Lists the agents that the caller can use. Profiles and models without a key, inactive ones, and those that the caller's tenant does not have, are left
/// out.
#[utoipa::path(get, path = "/v1/models", operation_id = "listModels", tag = "agents",
    responses((status = 200, body = Models), (status = "4XX", body = OpenAiErrorBody)))]
pub(super) async fn models(
    meta: Result<RequestMeta, ErrorReply>,
    Extension(agents): Extension<Arc<AgentService>>,
) -> Result<Response, OpenAiError> {
    let names = agents.usable_models(&meta?.caller).await?;
    let data = names.iter().map(|name| entry(name)).collect();
    Ok(reply::json(StatusCode::OK, &Models { object: "list".to_owned(), data }))
}

/// Describes one agent of the list. Every other name is answered as unknown (404, `model_not_found`).
#[utoipa::path(get, path = "/v1/models/{name}", operation_id = "getModel", tag = "agents", params(("name" = String, Path)),
    responses((status = 200, body = ModelEntry), (status = "4XX", body = OpenAiErrorBody)))]
pub(super) async fn model(
    meta: Result<RequestMeta, ErrorReply>,
    Extension(agents): Extension<Arc<AgentService>>,
    name: Result<Name, ErrorReply>,
) -> Result<Response, OpenAiError> {
    let meta = meta?;
    let Name(name) = name?;
    agents.check_model(&meta.caller, &name).await.map_err(OpenAiError::of_model)?;
    Ok(reply::json(StatusCode::OK, &entry(&name)))
}

/// Runs an agent until it answers. It calls the gateway's tools itself; calls of the client's tools are returned.
#[utoipa::path(post, path = "/v1/chat/completions", operation_id = "createChatCompletion", tag = "agents", request_body = CompletionRequest,
    responses((status = 200, description = "A completion, or with `stream` server-sent chunks of one", body = Completion),
        (status = "4XX", body = OpenAiErrorBody), (status = "5XX", body = OpenAiErrorBody)))]
pub(super) async fn complete(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    request: Request,
) -> Result<Response, OpenAiError> {
    let meta = meta?;
    let DigestedBody(request, memory, body) =
        DigestedBody::<CompletionRequest>::from_request(request, &gateway).await?;
    let turn = Turn { route: "/v1/chat/completions".to_owned(), body };
    keyed_turn::answer(&gateway, meta, turn, move |meta, progress| async move {
        let _memory = memory;
        answer(&meta, &agents, request, &progress).await
    })
    .await
}

async fn answer(
    meta: &RequestMeta,
    agents: &Arc<AgentService>,
    request: CompletionRequest,
    progress: &Progress,
) -> Result<Response, OpenAiError> {
    let (streams, includes_usage) = (request.streams(), request.includes_usage());
    let agent = NamedAgent::find(agents, &meta.caller, request.model.as_deref()).await?;
    let session = session_of_thread(meta, agents.gateway());
    let events = progress.watch(request.into_run()?.begin(&agent, meta, agents, session).await?).boxed();
    if streams {
        let encoder = ChunkEncoder::new(&agent.name, includes_usage);
        let keep_alive = text_of(&encoder.keep_alive());
        let chunks = encoded(encoder, run_events::first(events).await?, drop);
        return Ok(event_stream::respond(chunks.map(|chunk| text_of(&chunk)), keep_alive));
    }
    let output = Output::whole(events.collect::<Vec<_>>().await)?;
    Ok(reply::json(StatusCode::OK, &Completion::of(&agent.name, output)))
}

/// Never fails: a chunk has no map with keys that are not strings.
fn text_of(chunk: &Chunk) -> String {
    serde_json::to_string(chunk).unwrap_or_default()
}

fn entry(id: &str) -> ModelEntry {
    ModelEntry { id: id.to_owned(), object: "model".to_owned(), created: 0, owned_by: "sekisho".to_owned() }
}

/// An error that both kinds of clients can read: a gateway reply, with OpenAI's object as its `error`.
#[derive(Debug)]
pub(super) struct OpenAiError {
    error: CallError,
    /// OpenAI's own code, where it differs from the gateway's.
    code: Option<&'static str>,
}

impl From<ErrorReply> for OpenAiError {
    fn from(reply: ErrorReply) -> Self {
        CallError::from(reply).into()
    }
}

impl From<CallError> for OpenAiError {
    fn from(error: CallError) -> Self {
        Self { error, code: None }
    }
}

impl OpenAiError {
    /// For the description of a model.
    fn of_model(error: CallError) -> Self {
        let code = (error.code() == ErrorCode::NotFound).then_some("model_not_found");
        Self { error, code }
    }
}

impl IntoResponse for OpenAiError {
    fn into_response(self) -> Response {
        let mut problem = OpenAiProblem::of(&self.error);
        problem.code = self.code.unwrap_or(problem.code);
        let problem = json!(problem);
        should_retry::refused(self.error, |body| body["error"] = problem)
    }
}

/// The body of an error at `/v1`: a reply whose `error` is the object that OpenAI clients expect.
#[derive(Debug, ToSchema)]
#[schema(as = Fault)]
#[expect(dead_code, reason = "only describes")]
pub(super) struct OpenAiErrorBody {
    success: bool,
    text: String,
    error: OpenAiErrorDetail,
    error_info: ErrorInfoBody,
    receipt: Receipt,
}

#[derive(Debug, ToSchema)]
#[schema(as = FaultDetail)]
#[expect(dead_code, reason = "only describes")]
struct OpenAiErrorDetail {
    message: String,
    r#type: String,
    param: Option<String>,
    /// From the closed list of error codes.
    code: String,
}

/// OpenAI's object for an error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OpenAiProblem {
    message: String,
    r#type: &'static str,
    param: Option<String>,
    code: &'static str,
}

impl OpenAiProblem {
    pub(super) fn of(error: &CallError) -> Self {
        let code = error.code();
        Self {
            message: error.message().to_owned(),
            r#type: kind(reply::status(code)),
            param: None,
            code: code.as_str(),
        }
    }
}

/// The error type for a status, from <https://platform.openai.com/docs/guides/error-codes>.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYMENT_REQUIRED => "insufficient_quota",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}
