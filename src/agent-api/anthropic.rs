//! `/v1/messages`: agents as clients of Anthropic's API see them.

mod content;
mod defined_tools;
mod error;
mod events;
mod message;
mod request;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::Value;

use self::error::{AnthropicError, AnthropicErrorBody};
use self::events::{EventEncoder, PING, shown};
use self::message::{MessageBody, TokenCount};
use self::request::{MessagesRequest, RequestedThread};
use super::keyed_turn::{self, Progress, Turn};
use super::model_api::encoder::encoded;
use super::model_api::output::Output;
use super::model_api::{NamedAgent, session_of_thread};
use super::responses::{Conversation, KeptResponses};
use super::run_events;
use sekisho_agent::{AgentService, FinishReason, Message};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, JsonBody, RequestMeta, event_stream};
use sekisho_gateway::Gateway;

/// Runs an agent until it answers. It calls the gateway's tools itself; calls of the client's tools are returned.
#[utoipa::path(post, path = "/v1/messages", operation_id = "createMessage", tag = "agents", request_body = MessagesRequest,
    responses((status = 200, description = "A message, or with `stream` server-sent events of one", body = MessageBody),
        (status = "4XX", body = AnthropicErrorBody), (status = "5XX", body = AnthropicErrorBody)))]
pub(super) async fn create(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    Extension(kept): Extension<Arc<KeptResponses>>,
    request: Request,
) -> Result<Response, AnthropicError> {
    let meta = meta?;
    let DigestedBody(request, memory, body) = DigestedBody::<MessagesRequest>::from_request(request, &gateway).await?;
    let turn = Turn { route: "/v1/messages".to_owned(), body };
    keyed_turn::answer(&gateway, meta, turn, move |meta, progress| async move {
        let _memory = memory;
        answer(&meta, (&agents, &kept), request, &progress).await
    })
    .await
}

async fn answer(
    meta: &RequestMeta,
    (agents, kept): (&Arc<AgentService>, &Arc<KeptResponses>),
    request: MessagesRequest,
    progress: &Progress,
) -> Result<Response, AnthropicError> {
    let agent = NamedAgent::find(agents, &meta.caller, request.model.as_deref()).await?;
    let (streams, shows_thinking) = (request.streams(), request.shows_thinking());
    let session = session_of_thread(meta, agents.gateway());
    let begun = MessageBody::begun(&agent.name);
    let conversation = match request.thread() {
        None => None,
        Some(RequestedThread::Create) => Some(Conversation::new(&begun.id)),
        Some(RequestedThread::Continue { previous_message_id }) => {
            Some(kept.find_message(&meta.caller, previous_message_id)?)
        }
    };
    let earlier = conversation.as_ref().map(Conversation::messages).unwrap_or_default();
    let (mut run, own) = request.into_run_after(earlier)?;
    run.place_files(&agent, meta, agents.gateway(), session.as_ref()).await?;
    let own = run.messages.split_at(run.messages.len() - own).1.to_vec();
    let events = progress.watch(run.begin(&agent, meta, agents, session).await?).boxed();
    let (caller, id, kept) = (Arc::clone(&meta.caller), begun.id.clone(), Arc::clone(kept));
    // Kept for another request of the thread.
    let keep = move |finish: FinishReason, answers: Vec<Message>, added: Vec<Message>| {
        let Some(conversation) = conversation.filter(|_| finish != FinishReason::Error) else { return };
        // The answers belong to the turn before.
        let messages = answers.into_iter().chain(own).chain(added).collect();
        kept.keep(&caller, &id, conversation, messages, Vec::new(), Value::Null);
    };
    if streams {
        let shown = shown(run_events::first(events).await?, shows_thinking);
        let ended = move |output: Output| {
            keep(output.finish, output.answers.into_iter().map(Message::Tool).collect(), output.added);
        };
        return Ok(event_stream::respond_named(encoded(EventEncoder { message: begun }, shown, ended), PING));
    }
    let mut output = Output::whole(shown(events, shows_thinking).collect::<Vec<_>>().await)?;
    let (answers, added) = (std::mem::take(&mut output.answers), std::mem::take(&mut output.added));
    let finish = output.finish;
    let mut message = MessageBody::of(&agent.name, output)?;
    message.id = begun.id;
    keep(finish, answers.into_iter().map(Message::Tool).collect(), added);
    Ok(reply::json(StatusCode::OK, &message))
}

/// Estimates the tokens of a request to `POST /v1/messages`, without running it.
#[utoipa::path(post, path = "/v1/messages/count_tokens", operation_id = "countTokens", tag = "agents", request_body = MessagesRequest,
    responses((status = 200, body = TokenCount),
        (status = "4XX", body = AnthropicErrorBody), (status = "5XX", body = AnthropicErrorBody)))]
pub(super) async fn count_tokens(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    request: Request,
) -> Result<Response, AnthropicError> {
    let meta = meta?;
    let JsonBody(request, _memory) = JsonBody::<MessagesRequest>::from_request(request, &gateway).await?;
    let agent = NamedAgent::find(&agents, &meta.caller, request.model.as_deref()).await?;
    let session = session_of_thread(&meta, &gateway);
    let run = request.into_run()?.without_file_contents();
    let input_tokens = agents.count_prompt(run.into_agent_request(&agent, &meta, &gateway, session)).await?;
    Ok(reply::json(StatusCode::OK, &TokenCount { input_tokens }))
}
