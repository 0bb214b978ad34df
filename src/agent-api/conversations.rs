//! `/api/conversations`: conversations that the store keeps, their runs and messages. Only the caller of a conversation
//! sees it: another caller's is answered like one that does not exist.

pub(super) mod background;
mod bodies;
pub(super) mod branch;
pub(super) mod execute;
pub(super) mod logs;
pub(super) mod of_api;
pub(super) mod stored_input;
pub(super) mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use uuid::Uuid;

pub use self::background::BackgroundRunBody;
use self::background::ShownRun;
pub use self::bodies::{ConversationBody, MessageBody, RunBody, Status};
use self::bodies::{
    ConversationChange, ConversationPage, ForkRequest, MessagePage, NewConversation, OldPaging, RunPage,
};
use sekisho_agent::AgentService;
use sekisho_agent::conversation::{ConversationRuns, unknown_conversation, unknown_run, unknown_session};
use sekisho_api::list::{Page, PageQuery};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{JsonBody, Name, Parameters, ReplyBody, RequestMeta};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::session::workspace_of;
use sekisho_gateway::Gateway;
use sekisho_store::{Conversation, ConversationChange as StoredChange, ConversationStatus, CopiedRun, RunStatus};

/// Maximum conversations of one caller.
pub(super) const MAX_CONVERSATIONS: u32 = 10_000;

/// Maximum paused runs in their list.
const MAX_PAUSED: u32 = 100;

const MAX_TITLE_CHARS: usize = 200;
const MAX_LABELS: usize = 64;
const MAX_LABEL_CHARS: usize = 256;

/// The caller's conversations, the one created last first.
#[utoipa::path(get, path = "/api/conversations", operation_id = "listConversations", tag = "conversations",
    params(PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = ConversationPage), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let limit = query.limit_in_store()?;
    // One conversation more than the page shows says whether there is a next page.
    let found = gateway.store().conversations().of_caller(&meta.caller.key, query.after.as_deref(), limit + 1).await;
    let page = Page::from_read(found.map_err(CallError::from)?, limit as usize, |last| last.id.clone());
    let page = page.map(ConversationBody::from);
    let conversations = page.items.clone();
    Ok(reply::json(StatusCode::OK, &ConversationPage { page, conversations }))
}

/// Creates a conversation.
#[utoipa::path(post, path = "/api/conversations", operation_id = "createConversation", tag = "conversations",
    request_body = NewConversation,
    responses((status = 201, body = ConversationBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn create(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    JsonBody(new, _memory): JsonBody<NewConversation>,
) -> Result<Response, ErrorReply> {
    let agent = agents.catalog().model(&meta.caller.tenant, new.agent.as_deref()).await?.name.to_string();
    let now = gateway.store().now();
    let conversation = Conversation {
        id: Uuid::now_v7().to_string(),
        caller_key: Arc::clone(&meta.caller.key),
        title: new.title,
        status: ConversationStatus::Active,
        agent,
        session_id: None,
        workspace: new.workspace,
        labels: new.labels,
        created: now,
        changed: now,
        branch: None,
    };
    check(conversation.title.as_deref(), &conversation.labels)?;
    if !gateway.store().conversations().add(&conversation, MAX_CONVERSATIONS).await.map_err(CallError::from)? {
        return Err(too_many().into());
    }
    Ok(reply::json(StatusCode::CREATED, &ConversationBody::from(conversation)))
}

/// A conversation.
#[utoipa::path(get, path = "/api/conversations/{id}", operation_id = "showConversation", tag = "conversations",
    params(("id" = String, Path)),
    responses((status = 200, body = ConversationBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let mut shown = ConversationBody::from(find(&gateway, &meta, &id).await?);
    if let Some(session) = &shown.session_id {
        let summary = gateway.store().conversation_logs().session_summary(&id, session).await;
        let hand_over = summary.map_err(CallError::from)?.and_then(|summary| summary.hand_over);
        shown.earlier_session_id = hand_over.map(|hand_over| hand_over.earlier);
    }
    Ok(reply::json(StatusCode::OK, &shown))
}

/// Changes a conversation. `session_id` may be null, or a session of the conversation's earlier runs.
#[utoipa::path(patch, path = "/api/conversations/{id}", operation_id = "changeConversation", tag = "conversations",
    params(("id" = String, Path)), request_body = ConversationChange,
    responses((status = 200, body = ConversationBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn change(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
    JsonBody(change, _memory): JsonBody<ConversationChange>,
) -> Result<Response, ErrorReply> {
    let before = find(&gateway, &meta, &id).await?;
    if let Some(Some(session)) = &change.session_id
        && !gateway.store().conversation_logs().has_session(&id, session).await.map_err(CallError::from)?
    {
        return Err(unknown_session(session).into());
    }
    if let Some(agent) = &change.agent {
        agents.catalog().model(&meta.caller.tenant, Some(agent)).await?;
    }
    let change = StoredChange::from(change);
    check(change.title.as_ref().and_then(Option::as_deref), change.labels.as_ref().unwrap_or(&before.labels))?;
    let now = gateway.store().now();
    let is_changed = gateway.store().conversations().change(&id, &change, now).await.map_err(CallError::from)?;
    let after = find(&gateway, &meta, &id).await?;
    match is_changed {
        true => Ok(reply::json(StatusCode::OK, &ConversationBody::from(after))),
        false => Err(locked().into()),
    }
}

/// Deletes a conversation with its runs, all that they stored, and its workspace.
#[utoipa::path(delete, path = "/api/conversations/{id}", operation_id = "deleteConversation", tag = "conversations",
    params(("id" = String, Path)),
    responses((status = 204, description = "It is deleted."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn delete(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<StatusCode, ErrorReply> {
    let conversation = find(&gateway, &meta, &id).await?;
    if !gateway.store().conversations().delete(&id).await.map_err(CallError::from)? {
        return Err(locked().into());
    }
    if conversation.workspace {
        let workspace = workspace_of(&conversation.caller_key, &id);
        if let Err(error) = gateway.workspaces().remove(&workspace).await {
            tracing::warn!(%error, workspace, "cannot delete the workspace of a deleted conversation");
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn too_many() -> CallError {
    let message = format!(
        "you have {MAX_CONVERSATIONS} conversations, the limit for a caller; delete some with \
         `DELETE /api/conversations/{{id}}`, then try again"
    );
    CallError::new(ErrorCode::Denied, message)
}

fn locked() -> CallError {
    let message = "a run of the conversation is on; cancel it first, or wait for its end";
    CallError::new(ErrorCode::ConversationLocked, message)
}

/// The runs of a conversation, the last one first.
#[utoipa::path(get, path = "/api/conversations/{id}/runs", operation_id = "listRuns", tag = "conversations",
    params(("id" = String, Path), PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = RunPage), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn runs(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, before) = (query.limit_in_store()?, query.after()?);
    find(&gateway, &meta, &id).await?;
    let found =
        gateway.store().conversation_runs().of_conversation(&id, before, limit + 1).await.map_err(CallError::from)?;
    let page = Page::from_read(found, limit as usize, |last| last.number.to_string());
    let page = page.map(|run| RunBody::of(run, None));
    let runs = page.items.clone();
    Ok(reply::json(StatusCode::OK, &RunPage { page, runs }))
}

/// The caller's runs that paused for an approver, and were not continued since: the latest of them, at most 100.
#[utoipa::path(get, path = "/api/runs/paused", operation_id = "listPausedRuns", tag = "conversations",
    responses((status = 200, body = Page<RunBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn paused(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let found = gateway.store().conversation_runs().paused(&meta.caller.key, MAX_PAUSED).await;
    let items = found.map_err(CallError::from)?.into_iter().map(|run| RunBody::of(run, None)).collect();
    Ok(reply::json(StatusCode::OK, &Page { items, next: None }))
}

/// A run, with what its models used; or one that goes on without a client, with its result.
#[utoipa::path(get, path = "/api/runs/{id}", operation_id = "showRun", tag = "conversations",
    params(("id" = String, Path)),
    responses((status = 200, body = ShownRun), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show_run(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let found = gateway.store().conversation_runs().get(&meta.caller.key, &id).await.map_err(CallError::from)?;
    let Some(run) = found else {
        let found = gateway.store().background_runs().get(&meta.caller.key, &id).await.map_err(CallError::from)?;
        let run = found.ok_or_else(|| unknown_run(&id))?;
        let shown = background::shown(&gateway, &runs, run).await?;
        return Ok(reply::json(StatusCode::OK, &ShownRun::Background(shown)));
    };
    let usage = match run.status {
        RunStatus::Running => None,
        _ => Some(gateway.store().conversation_logs().usage_of_run(&id).await.map_err(CallError::from)?),
    };
    let waits_for = runs.asks_about(&meta.caller.key, &id);
    Ok(reply::json(StatusCode::OK, &ShownRun::Run(RunBody { waits_for, ..RunBody::of(run, usage) })))
}

/// The messages of a conversation, the oldest first.
#[utoipa::path(get, path = "/api/conversations/{id}/messages", operation_id = "listMessages", tag = "conversations",
    params(("id" = String, Path), PageQuery,
        ("offset" = Option<u32>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = MessagePage), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn messages(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    Parameters(query): Parameters<PageQuery>,
    Parameters(OldPaging { offset }): Parameters<OldPaging>,
) -> Result<Response, ErrorReply> {
    let (limit, skipped) = (query.limit_in_store()?, query.after()?.or(offset).unwrap_or_default());
    find(&gateway, &meta, &id).await?;
    let found = gateway.store().conversation_runs().messages(&id, skipped, limit + 1).await.map_err(CallError::from)?;
    let Page { items, next } = Page::from_read(found, limit as usize, |_| skipped.saturating_add(limit).to_string());
    let messages = items.iter().map(MessageBody::of).collect::<Result<Vec<_>, _>>()?;
    Ok(reply::json(StatusCode::OK, &MessagePage { page: Page { items: messages.clone(), next }, messages }))
}

/// Creates a conversation that begins with the messages of another one, up to one of them.
#[utoipa::path(post, path = "/api/conversations/{id}/fork", operation_id = "forkConversation", tag = "conversations",
    params(("id" = String, Path)), request_body = ForkRequest,
    responses((status = 201, body = ConversationBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn fork(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(request, _memory): JsonBody<ForkRequest>,
) -> Result<Response, ErrorReply> {
    let original = find(&gateway, &meta, &id).await?;
    let until = request.message_id.as_deref().map_or(Until::Last, Until::Message);
    let (copied, session_id) = copied_runs(&gateway, &id, until).await?;
    let now = gateway.store().now();
    let fork = Conversation {
        id: Uuid::now_v7().to_string(),
        title: request.title.or(original.title.clone()),
        session_id,
        created: now,
        changed: now,
        ..original
    };
    check(fork.title.as_deref(), &fork.labels)?;
    if !gateway.store().conversations().fork(&fork, &copied, MAX_CONVERSATIONS).await.map_err(CallError::from)? {
        return Err(too_many().into());
    }
    Ok(reply::json(StatusCode::CREATED, &ConversationBody::from(fork)))
}

/// The last message of a copy.
#[derive(Debug, Clone, Copy)]
enum Until<'a> {
    /// Of the conversation.
    Last,
    /// The last one of the run with this id.
    EndOf(&'a str),
    /// The one with this id.
    Message(&'a str),
}

/// The runs up to a message, and the session that they end with.
async fn copied_runs(
    gateway: &Gateway,
    conversation: &str,
    until: Until<'_>,
) -> Result<(Vec<CopiedRun>, Option<String>), CallError> {
    let mut runs = gateway
        .store()
        .conversation_runs()
        .of_conversation(conversation, None, u32::MAX)
        .await
        .map_err(CallError::from)?;
    runs.retain(|run| run.status != RunStatus::Running);
    runs.reverse();
    let unknown = || CallError::new(ErrorCode::UnknownResult, "the conversation has no message with this id");
    let (run, position) = match until {
        Until::Last => (None, None),
        Until::EndOf(run) => (Some(run), None),
        Until::Message(id) => {
            let (run, position) = id.split_once(':').ok_or_else(unknown)?;
            (Some(run), Some(position.parse::<i64>().map_err(|_| unknown())?))
        }
    };
    if let Some(run) = run {
        let index = runs.iter().position(|candidate| candidate.id == run).ok_or_else(unknown)?;
        let logs = gateway.store().conversation_logs();
        if let Some(position) = position
            && !logs.has_message(run, position).await.map_err(CallError::from)?
        {
            return Err(unknown());
        }
        runs.truncate(index + 1);
    }
    let last = position.unwrap_or(i64::MAX);
    let count = runs.len();
    let session = runs.last().map(|run| run.session_id.clone());
    let copied = runs.into_iter().enumerate().map(|(index, run)| CopiedRun {
        id: run.id,
        new_id: Uuid::now_v7().to_string(),
        up_to: if index + 1 == count { last } else { i64::MAX },
    });
    Ok((copied.collect(), session))
}

/// # Errors
/// `unknown_session`: the caller has none with that id.
async fn find(gateway: &Gateway, meta: &RequestMeta, id: &str) -> Result<Conversation, CallError> {
    let found = gateway.store().conversations().get(&meta.caller.key, id).await.map_err(CallError::from)?;
    found.ok_or_else(|| unknown_conversation(id))
}

fn check(title: Option<&str>, labels: &BTreeMap<String, String>) -> Result<(), CallError> {
    let is_long = |text: &str, max: usize| text.chars().count() > max;
    let problem = if title.is_some_and(|title| is_long(title, MAX_TITLE_CHARS)) {
        format!("`title` has more than {MAX_TITLE_CHARS} characters")
    } else if labels.len() > MAX_LABELS {
        format!("`labels` has more than {MAX_LABELS} entries")
    } else if labels.iter().flat_map(|(name, value)| [name, value]).any(|text| is_long(text, MAX_LABEL_CHARS)) {
        format!("a name or value of `labels` has more than {MAX_LABEL_CHARS} characters")
    } else {
        return Ok(());
    };
    Err(CallError::new(ErrorCode::InvalidRequest, problem))
}
