//! Responses in the background: each is a run of a stored conversation, which goes on without its client.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use uuid::Uuid;

use super::kept::KeptResponses;
use super::request::ResponseRequest;
use super::response::{ResponseBody, Status};
use crate::background::{BackgroundRuns, NewRun};
use crate::conversations::background::last_text;
use crate::conversations::stored_input::StoredInput;
use crate::model_api::output::Output;
use crate::model_api::{NamedAgent, invalid};
use crate::openai::{OpenAiError, OpenAiErrorBody};
use sekisho_agent::{AgentService, Event, FinishReason, RunError, RunUsage};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{Name, RequestMeta};
use sekisho_core::error::{CallError, ErrorCode};
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
            Some(_) => invalid("the response has ended: only one with `background` can be cancelled").into(),
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
    let begun = ResponseBody::in_background(&model, asked, (&run.id, run.created.as_second()), status);
    if run.state != BackgroundState::Ended {
        return Ok(begun);
    }
    Ok(begun.ended(&output_of(gateway, run).await?).with_status(status))
}

/// The output of a run that has ended.
async fn output_of(gateway: &Gateway, run: &BackgroundRun) -> Result<Output, CallError> {
    let (mut output, mut used) = (Output::new(), RunUsage::default());
    for id in &run.runs {
        for row in gateway.store().conversation_logs().usage_of_run(id).await? {
            used.add(&row.used);
        }
    }
    let text = match run.runs.last() {
        Some(last) => last_text(gateway, last).await?,
        None => String::new(),
    };
    let failed = !matches!(run.status, Some(RunStatus::Succeeded | RunStatus::Cancelled));
    let failure = run.error.as_ref().filter(|_| failed).map(|error| {
        let code = serde_json::from_value(json!(error.code)).unwrap_or(ErrorCode::Internal);
        Event::Error(RunError::from(&CallError::new(code, error.message.as_str())))
    });
    let reason = if failed { FinishReason::Error } else { FinishReason::Stop };
    let events = [Event::Content { text }].into_iter().chain(failure);
    for event in events.chain([Event::Finished { reason, messages: Vec::new() }, Event::Usage(used)]) {
        output.add(event);
    }
    Ok(output)
}
