//! `/v1/responses`: agents as clients of OpenAI's Responses API see them.

pub(super) mod background;
mod background_events;
mod events;
mod input;
mod kept;
mod request;
mod response;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use self::events::EventEncoder;
use self::request::{ReadRequest, ResponseRequest};
use self::response::ResponseBody;
use super::background::BackgroundRuns;
use super::keyed_turn::{self, Progress, Turn};
use super::model_api::encoder::encoded;
use super::model_api::output::Output;
use super::model_api::{NamedAgent, session_of_thread};
use super::openai::{OpenAiError, OpenAiErrorBody};
use super::run_events;
use sekisho_agent::{AgentService, FinishReason, Message};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, Name, Parameters, RequestMeta, event_stream};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

pub(super) use self::kept::{Conversation, KeptResponses};
pub(crate) use self::request::Asked;

/// Runs an agent until it answers. It calls the gateway's tools itself; calls of the client's functions are returned.
#[utoipa::path(post, path = "/v1/responses", operation_id = "createResponse", tag = "agents", request_body = ResponseRequest,
    responses((status = 200, description = "A response, or with `stream` server-sent events of one", body = ResponseBody),
        (status = "4XX", body = OpenAiErrorBody), (status = "5XX", body = OpenAiErrorBody)))]
pub(super) async fn create(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    Extension(kept): Extension<Arc<KeptResponses>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    request: Request,
) -> Result<Response, OpenAiError> {
    let meta = meta?;
    let DigestedBody(request, memory, body) = DigestedBody::<ResponseRequest>::from_request(request, &gateway).await?;
    let turn = Turn { route: "/v1/responses".to_owned(), body };
    let serving = (Arc::clone(&gateway), agents, kept);
    let (caller, is_followed) = (Arc::clone(&meta.caller), request.is_background() && request.streams());
    let runs = Arc::clone(&background);
    // Before the response begins: a client that is refused sends the request again.
    let place = if is_followed { Some(background.stream(&caller)?) } else { None };
    let answered = keyed_turn::answer(&gateway, meta, turn, move |meta, progress| async move {
        let _memory = memory;
        if request.is_background() {
            return Ok(background::create(&meta, &serving.1, &background, request).await?);
        }
        answer(&meta, serving, request, &progress).await
    })
    .await?;
    let Some(place) = place.filter(|_| answered.status().is_success()) else { return Ok(answered) };
    // The same response for a request that is sent twice.
    let run = background::answered_run(&runs, &caller, answered).await?;
    Ok(background::streamed((gateway, runs), (caller, place), run, None))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ShowResponse {
    /// The events of a response in the background, also those still to come.
    stream: Option<bool>,
    /// With `stream`: only events with a higher `sequence_number`.
    starting_after: Option<u64>,
}

/// A response as it was answered, while another one can continue it: for an hour, and until the gateway restarts. One in the
/// background as far as it is, until a week after its end.
#[utoipa::path(get, path = "/v1/responses/{id}", operation_id = "getResponse", tag = "agents", params(("id" = String, Path), ShowResponse),
    responses((status = 200, description = "A response, or with `stream` server-sent events of one", body = ResponseBody),
        (status = "4XX", body = OpenAiErrorBody)))]
pub(super) async fn show(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(kept): Extension<Arc<KeptResponses>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    id: Result<Name, ErrorReply>,
    query: Result<Parameters<ShowResponse>, ErrorReply>,
) -> Result<Response, OpenAiError> {
    let meta = meta?;
    let (Name(id), Parameters(ShowResponse { stream, starting_after })) = (id?, query?);
    let is_followed = stream.unwrap_or_default();
    if starting_after.is_some() && !is_followed {
        return Err(
            CallError::invalid("`starting_after` is for `stream=true`; add it, or leave `starting_after` out").into()
        );
    }
    match kept.body(&meta.caller, &id) {
        Some(_) if is_followed => {
            return Err(CallError::invalid(
                "`stream` is for a response with `background`; leave it out to read this one",
            )
            .into());
        }
        Some(body) => return Ok(reply::json(StatusCode::OK, &body)),
        None => {}
    }
    let run = background::find(&background, &meta.caller.key, &id).await?.ok_or_else(|| unknown_response(&id))?;
    if is_followed {
        let place = background.stream(&meta.caller)?;
        return Ok(background::streamed((gateway, background), (Arc::clone(&meta.caller), place), run, starting_after));
    }
    Ok(reply::json(StatusCode::OK, &background::body(&gateway, &background, &run).await?))
}

fn unknown_response(id: &str) -> CallError {
    let shown: String = id.chars().take(100).collect();
    let message = format!(
        "there is no response {shown:?} of this caller, or not any more; a response is kept for an hour, with `background` for a week"
    );
    CallError::new(ErrorCode::UnknownSession, message)
}

async fn answer(
    meta: &RequestMeta,
    (gateway, agents, kept): (Arc<Gateway>, Arc<AgentService>, Arc<KeptResponses>),
    request: ResponseRequest,
    progress: &Progress,
) -> Result<Response, OpenAiError> {
    let agent = NamedAgent::find(&agents, &meta.caller, request.model.as_deref()).await?;
    let streams = request.streams();
    let begun = ResponseBody::begun(&agent.name, request.asked.clone());
    let is_kept = request.asked.is_kept();
    let ReadRequest { mut run, continued, own_messages } = request.read(&kept, &meta.caller)?;
    let conversation = match is_kept {
        true => Some(continued.unwrap_or_else(|| Conversation::new(&begun.id))),
        false => continued,
    };
    let session = match (session_of_thread(meta, &gateway), &conversation) {
        (None, Some(conversation)) => Some(gateway.pipeline.sessions.prepare(&meta.caller, &conversation.session_id)?),
        (session, _) => session,
    };
    run.place_files(&agent, meta, &gateway, session.as_ref()).await?;
    let own = run.messages.split_at(run.messages.len() - own_messages).1.to_vec();
    let events = progress.watch(run.begin(&agent, meta, &agents, session).await?).boxed();
    let (caller, id) = (Arc::clone(&meta.caller), begun.id.clone());
    let first = begun.clone();
    // Kept for another response that continues this response, and to be read again.
    let keep = move |output: Output| {
        let is_kept = is_kept && output.finish != FinishReason::Error;
        let Some(conversation) = conversation.filter(|_| is_kept) else { return };
        let body = serde_json::to_value(first.ended(&output)).unwrap_or_default();
        // They belong to the turn before.
        let answers = output.answers.into_iter().map(Message::Tool);
        let messages = answers.chain(own).chain(output.added).collect();
        kept.keep(&caller, &id, conversation, messages, output.parts, body);
    };
    if streams {
        let events = run_events::first(events).await?;
        // The response is kept before its client has it whole.
        let sent = encoded(EventEncoder::new(begun), events, keep);
        return Ok(event_stream::respond_named(sent, event_stream::COMMENT));
    }
    let output = Output::whole(events.collect::<Vec<_>>().await)?;
    let response = begun.ended(&output);
    keep(output);
    Ok(reply::json(StatusCode::OK, &response))
}
