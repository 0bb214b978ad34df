//! `/v1/responses`: agents as clients of OpenAI's Responses API see them.

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
use futures_util::stream::BoxStream;

use self::events::EventEncoder;
use self::kept::Conversation;
use self::request::{ReadRequest, ResponseRequest};
use self::response::ResponseBody;
use super::body::DigestedBody;
use super::documentation::OpenAiErrorBody;
use super::event_stream;
use super::keyed_turn::{self, Progress, Turn};
use super::model_api::output::Output;
use super::model_api::{NamedAgent, session_of_thread};
use super::openai::OpenAiError;
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_agent::{AgentService, Event, FinishReason, Message};
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

pub(super) use self::kept::KeptResponses;

/// Runs an agent until it answers. It calls the gateway's tools itself; calls of the client's functions are returned.
#[utoipa::path(post, path = "/v1/responses", operation_id = "createResponse", tag = "agents", request_body = ResponseRequest,
    responses((status = 200, description = "A response, or with `stream` server-sent events of one", body = ResponseBody),
        (status = "4XX", body = OpenAiErrorBody), (status = "5XX", body = OpenAiErrorBody)))]
pub(super) async fn create(
    origin: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    Extension(kept): Extension<Arc<KeptResponses>>,
    request: Request,
) -> Result<Response, OpenAiError> {
    let origin = origin?;
    let DigestedBody(request, memory, body) = DigestedBody::<ResponseRequest>::from_request(request, &gateway).await?;
    let turn = Turn { route: "/v1/responses".to_owned(), body };
    let serving = (Arc::clone(&gateway), agents, kept);
    keyed_turn::answer(&gateway, origin, turn, move |origin, progress| async move {
        let _memory = memory;
        answer(&origin, serving, request, &progress).await
    })
    .await
}

async fn answer(
    origin: &RequestMeta,
    (gateway, agents, kept): (Arc<Gateway>, Arc<AgentService>, Arc<KeptResponses>),
    request: ResponseRequest,
    progress: &Progress,
) -> Result<Response, OpenAiError> {
    let agent = NamedAgent::find(&agents, &origin.caller, request.model.as_deref()).await?;
    let streams = request.streams();
    let begun = ResponseBody::begun(&agent.name, request.asked.clone());
    let is_kept = request.asked.is_kept();
    let ReadRequest { mut run, continued, own_messages } = request.read(&kept, &origin.caller)?;
    let conversation = match is_kept {
        true => Some(continued.unwrap_or_else(|| Conversation::new(&begun.id))),
        false => continued,
    };
    let session = match (session_of_thread(origin, &gateway), &conversation) {
        (None, Some(conversation)) => {
            Some(gateway.pipeline.sessions.prepare(&origin.caller, &conversation.session_id)?)
        }
        (session, _) => session,
    };
    run.place_files(&agent, origin, &gateway, session.as_ref()).await?;
    let own = run.messages.split_at(run.messages.len() - own_messages).1.to_vec();
    let keeper = conversation.filter(|_| is_kept).map(|conversation| Keeper {
        kept,
        caller: Arc::clone(&origin.caller),
        id: begun.id.clone(),
        conversation,
        own,
    });
    let events = progress.watch(run.begin(&agent, origin, &agents, session).await?).boxed();
    match streams {
        true => Ok(stream(begun, events, keeper).await?),
        false => {
            let mut output = Output::whole(events.collect::<Vec<_>>().await)?;
            let response = begun.ended(&output);
            if let Some(keeper) = keeper {
                keeper.keep(&mut output);
            }
            Ok(reply::json(StatusCode::OK, &response))
        }
    }
}

async fn stream(
    begun: ResponseBody,
    events: BoxStream<'static, Event>,
    keeper: Option<Keeper>,
) -> Result<Response, CallError> {
    let mut events = Box::pin(event_stream::first(events).await?);
    let mut encoder = EventEncoder::new(begun);
    let sent = async_stream::stream! {
        for event in encoder.opening() {
            yield event;
        }
        while let Some(event) = events.next().await {
            for event in encoder.events(event) {
                yield event;
            }
        }
        let last = encoder.closing();
        // Before the client knows the id.
        if let Some(keeper) = keeper {
            keeper.keep(encoder.output());
        }
        yield last;
    };
    Ok(event_stream::respond_named(sent, event_stream::COMMENT))
}

/// Keeps a response once it has ended, so that another can continue it.
struct Keeper {
    kept: Arc<KeptResponses>,
    caller: Arc<Caller>,
    id: String,
    /// Before the response.
    conversation: Conversation,
    /// The messages of the request's own input.
    own: Vec<Message>,
}

impl Keeper {
    fn keep(self, output: &mut Output) {
        if output.finish == FinishReason::Error {
            return;
        }
        let added = std::mem::take(&mut output.added);
        // They belong to the turn before.
        let answers = std::mem::take(&mut output.answers).into_iter().map(Message::Tool);
        let messages = answers.chain(self.own).chain(added).collect();
        self.kept.keep(&self.caller, &self.id, self.conversation, messages, std::mem::take(&mut output.parts));
    }
}
