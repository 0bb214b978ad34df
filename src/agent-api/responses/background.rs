//! Responses in the background: each is a run of a stored conversation, which goes on without its client.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::ready;
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::background_events::{BackgroundEncoder, Texts};
use super::kept::KeptResponses;
use super::request::ResponseRequest;
use super::response::{ResponseBody, Status};
use crate::background::{BackgroundRuns, NewRun};
use crate::conversations::stored_input::StoredInput;
use crate::model_api::NamedAgent;
use crate::model_api::output::Output;
use crate::openai::{OpenAiError, OpenAiErrorBody};
use sekisho_agent::conversation::stored;
use sekisho_agent::{AgentService, Event, FinishReason, RunError, RunUsage};
use sekisho_api::event_stream::{self, NamedEvent};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{Name, RequestMeta};
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::Lease;
use sekisho_gateway::Gateway;
use sekisho_store::{BackgroundKind, BackgroundRun, BackgroundState, Conversation, RunStatus};

/// Answers at once with a response that is queued.
///
/// # Errors
/// `invalid_request`: an option that a run in the background cannot keep; `overloaded`: too many wait.
pub(super) async fn create(
    meta: &RequestMeta,
    agents: &AgentService,
    background: &BackgroundRuns,
    request: ResponseRequest,
) -> Result<Response, CallError> {
    let model = NamedAgent::find(agents, &meta.caller, request.model.as_deref()).await?.name;
    let (text, asked) = request.read_in_background()?;
    let conversation = match &asked.previous_response_id {
        Some(id) => Some(continued(agents.gateway(), background, &meta.caller.key, id).await?),
        None => None,
    };
    let (id, kind) = (format!("resp_{}", Uuid::now_v7().simple()), BackgroundKind::Response);
    let input = StoredInput::message(text, Some(model));
    let new = NewRun { kind, id, conversation, input, asked: Some(asked), webhook: None };
    let run = background.submit(meta, new).await?;
    Ok(reply::json(StatusCode::OK, &body(agents.gateway(), background, &run).await?))
}

/// Ends a response in the background; its messages so far are stored.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", operation_id = "cancelResponse", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = ResponseBody), (status = "4XX", body = OpenAiErrorBody), (status = "5XX", body = OpenAiErrorBody)))]
pub(crate) async fn cancel(
    meta: Result<RequestMeta, ErrorReply>,
    State(gateway): State<Arc<Gateway>>,
    Extension(kept): Extension<Arc<KeptResponses>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    id: Result<Name, ErrorReply>,
) -> Result<Response, OpenAiError> {
    let meta = meta?;
    let Name(id) = id?;
    let Some(run) = find(&background, &meta.caller.key, &id).await? else {
        return Err(match kept.body(&meta.caller, &id) {
            Some(_) => CallError::invalid("the response has ended: only one with `background` can be cancelled").into(),
            None => super::unknown_response(&id).into(),
        });
    };
    let run = background.cancel(&meta.caller.key, &run.id).await?.unwrap_or(run);
    Ok(reply::json(StatusCode::OK, &body(&gateway, &background, &run).await?))
}

/// A response of the caller in the background.
pub(super) async fn find(
    background: &BackgroundRuns,
    caller_key: &str,
    id: &str,
) -> Result<Option<BackgroundRun>, CallError> {
    Ok(background.find(caller_key, id).await?.filter(|run| run.kind == BackgroundKind::Response))
}

/// The conversation of the response that a request in the background continues.
async fn continued(
    gateway: &Gateway,
    background: &BackgroundRuns,
    caller_key: &str,
    id: &str,
) -> Result<Conversation, CallError> {
    let unknown = || {
        let shown: String = id.chars().take(100).collect();
        let message = format!(
            "`previous_response_id`: there is no response {shown:?} with `background` to continue; a response in the background \
             continues such a one"
        );
        CallError::new(ErrorCode::UnknownSession, message)
    };
    let run = find(background, caller_key, id).await?.ok_or_else(unknown)?;
    if run.state != BackgroundState::Ended {
        let message = "`previous_response_id`: the response has not ended; wait for its end";
        return Err(CallError::new(ErrorCode::ConversationLocked, message));
    }
    let found = gateway.store().conversations().get(caller_key, &run.conversation).await?;
    found.ok_or_else(unknown)
}

/// The response as far as it is.
pub(super) async fn body(
    gateway: &Gateway,
    background: &BackgroundRuns,
    run: &BackgroundRun,
) -> Result<ResponseBody, CallError> {
    let begun = without_output(background, run)?;
    if run.state != BackgroundState::Ended {
        return Ok(begun);
    }
    let texts = texts_of(gateway, &run.runs, has_form(background, run)?).await?;
    ended(gateway, &begun, run, &texts).await
}

/// The response with its status.
fn without_output(background: &BackgroundRuns, run: &BackgroundRun) -> Result<ResponseBody, CallError> {
    let request = background.opened(run)?;
    let (model, asked) = (request.model().unwrap_or_default().to_owned(), request.asked.unwrap_or_default());
    let status = match (run.state, run.status) {
        (BackgroundState::Queued, _) => Status::Queued,
        // A person decides about a call, or it runs.
        (BackgroundState::Running | BackgroundState::Paused, _) => Status::InProgress,
        (BackgroundState::Ended, Some(RunStatus::Succeeded)) => Status::Completed,
        (BackgroundState::Ended, Some(RunStatus::Cancelled)) => Status::Cancelled,
        (BackgroundState::Ended, _) => Status::Failed,
    };
    Ok(ResponseBody::in_background(&model, asked, (&run.id, run.created.as_second()), status))
}

/// Whether the answer is to have a form, and is shown once it has it.
fn has_form(background: &BackgroundRuns, run: &BackgroundRun) -> Result<bool, CallError> {
    let asked = background.opened(run)?.asked.unwrap_or_default();
    Ok(asked.options()?.output.is_some())
}

/// The texts that runs of a conversation have stored.
async fn texts_of(gateway: &Gateway, runs: &[String], is_one: bool) -> Result<Texts, CallError> {
    let mut texts = Texts::new(is_one);
    for run in runs {
        for message in gateway.store().conversation_logs().messages_of_run(run).await? {
            texts.add_message(&stored::read(&message).map_err(CallError::internal)?);
        }
    }
    Ok(texts)
}

/// The response of a run that has ended, with these texts.
async fn ended(
    gateway: &Gateway,
    begun: &ResponseBody,
    run: &BackgroundRun,
    texts: &Texts,
) -> Result<ResponseBody, CallError> {
    let (mut output, mut used) = (Output::new(), RunUsage::default());
    output.parts = texts.parts();
    for id in &run.runs {
        for row in gateway.store().conversation_logs().usage_of_run(id).await? {
            used.add(&row.used);
        }
    }
    let failed = !matches!(run.status, Some(RunStatus::Succeeded | RunStatus::Cancelled));
    let failure = run.error.as_ref().filter(|_| failed).map(|error| {
        let code = serde_json::from_value(json!(error.code)).unwrap_or(ErrorCode::Internal);
        Event::Error(RunError::from(&CallError::new(code, error.message.as_str())))
    });
    let reason = if failed { FinishReason::Error } else { FinishReason::Stop };
    for event in failure.into_iter().chain([Event::Finished { reason, messages: Vec::new() }, Event::Usage(used)]) {
        output.add(event);
    }
    Ok(begun.ended(&output).with_status(begun.status()))
}

/// Answers with the events of the response after a number, also those still to come, for which it looks at the store where the
/// run is in another process. Without its last event the stream ends when the gateway closes, or the caller's key ends.
pub(super) fn streamed(
    (gateway, background): (Arc<Gateway>, Arc<BackgroundRuns>),
    (caller, place): (Arc<Caller>, Lease),
    run: BackgroundRun,
    after: Option<u64>,
) -> Response {
    let (key_ended, closing) = (gateway.keys().ended(&caller), gateway.background().closing().clone());
    let events = events(gateway, background, (caller, place), run, after).filter_map(|event| {
        ready(event.inspect_err(|error| tracing::warn!(cause = error.cause(), "a stream of a response ends")).ok())
    });
    let events = events.take_until(key_ended).take_until(closing.cancelled_owned());
    event_stream::respond_named(events, event_stream::COMMENT)
}

/// Interval of looks at the store for a run that is not in this process.
const PAUSE: Duration = Duration::from_millis(500);

fn events(
    gateway: Arc<Gateway>,
    background: Arc<BackgroundRuns>,
    (caller, place): (Arc<Caller>, Lease),
    mut run: BackgroundRun,
    after: Option<u64>,
) -> impl Stream<Item = Result<NamedEvent, CallError>> + Send + 'static {
    try_stream! {
        let _place = place;
        let mut encoder = BackgroundEncoder::new(without_output(&background, &run)?, after);
        let is_one = has_form(&background, &run)?;
        let mut followed: Option<String> = None;
        loop {
            let begun = without_output(&background, &run)?;
            for event in encoder.state(begun.status()) {
                yield event;
            }
            if run.state == BackgroundState::Ended {
                let texts = texts_of(&gateway, &run.runs, is_one).await?;
                let body = ended(&gateway, &begun, &run, &texts).await?;
                for event in encoder.closing(&texts, &body) {
                    yield event;
                }
                break;
            }
            let last = run.runs.last().filter(|last| followed.as_ref() != Some(*last)).cloned();
            match last.and_then(|last| Some((background.log(&caller.key, &last)?, last))) {
                Some((log, last)) => {
                    let earlier = run.runs.split_last().map_or(&[][..], |(_, earlier)| earlier);
                    let mut texts = texts_of(&gateway, if is_one { &[][..] } else { earlier }, is_one).await?;
                    let mut logged = pin!(log.follow(None));
                    while let Some(event) = logged.next().await {
                        if !texts.add_event(&event) {
                            break;
                        }
                        for event in encoder.grown(&texts) {
                            yield event;
                        }
                    }
                    followed = Some(last);
                }
                None => sleep(PAUSE).await,
            }
            let found = find(&background, &caller.key, &run.id).await?;
            run = found.ok_or_else(|| super::unknown_response(&run.id))?;
        }
    }
}

/// The run of a response that was answered as an object.
///
/// # Errors
/// The response is gone.
pub(super) async fn answered_run(
    background: &BackgroundRuns,
    caller: &Caller,
    answer: Response,
) -> Result<BackgroundRun, CallError> {
    let body = answer.into_body().collect().await.map_err(CallError::internal)?.to_bytes();
    let response: Value = serde_json::from_slice(&body).map_err(CallError::internal)?;
    let id = response["id"].as_str().unwrap_or_default();
    find(background, &caller.key, id).await?.ok_or_else(|| super::unknown_response(id))
}
