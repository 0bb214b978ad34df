//! Branches: a conversation that begins with the messages of another one up to a run's, for another profile, prompt or model.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{ConversationBody, MAX_CONVERSATIONS, Until, check, copied_runs, find, locked, too_many};
use sekisho_agent::AgentService;
use sekisho_agent::conversation::unknown_run;
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{JsonBody, Name, ReplyBody, RequestMeta};
use sekisho_config::ProfilePrompt;
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;
use sekisho_store::{Branch, Conversation, RunStatus};

const MAX_PROMPT_BYTES: usize = 65_536;

/// The differences of a branch. With any of them it begins a session of its own.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BranchRequest {
    /// The last message of the branch, by its id: one of the run, its last one if omitted.
    at: Option<String>,
    /// The profile or model of its runs; the conversation's if omitted.
    profile: Option<String>,
    /// The system prompt, in place of the profile's.
    prompt: Option<ProfilePrompt>,
    /// The profile or model whose model answers, with the prompt, tools and limits of `profile`.
    model: Option<String>,
    #[schema(max_length = 200)]
    title: Option<String>,
}

/// Creates a conversation that begins with the messages of a run's conversation up to one of the run, and goes on with another
/// profile, prompt or model. The original stays as it is.
#[utoipa::path(post, path = "/api/runs/{id}/branch", operation_id = "branchRun", tag = "conversations",
    params(("id" = String, Path)), request_body = BranchRequest,
    responses((status = 201, body = ConversationBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn branch(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    Name(id): Name,
    JsonBody(request, _memory): JsonBody<BranchRequest>,
) -> Result<Response, ErrorReply> {
    let run = gateway.store().conversation_runs().get(&meta.caller.key, &id).await.map_err(CallError::from)?;
    let run = run.ok_or_else(|| unknown_run(&id))?;
    if run.status == RunStatus::Running {
        return Err(locked().into());
    }
    let until = request.until(&run.id)?;
    let original = find(&gateway, &meta, &run.conversation).await?;
    let (copied, session) = copied_runs(&gateway, &original.id, until).await?;
    let (branch, is_changed) = request.branched(&meta, &agents, original, &run.id).await?;
    let now = gateway.store().now();
    let own = is_changed.then(|| Uuid::now_v7().to_string());
    let session_id = own.or_else(|| session.clone());
    let branch = Conversation { session_id, created: now, changed: now, ..branch };
    check(branch.title.as_deref(), &branch.labels)?;
    let conversations = gateway.store().conversations();
    let is_stored = match session.filter(|_| is_changed) {
        Some(earlier) => conversations.branch(&branch, &copied, &earlier, MAX_CONVERSATIONS).await,
        None => conversations.fork(&branch, &copied, MAX_CONVERSATIONS).await,
    };
    match is_stored.map_err(CallError::from)? {
        true => Ok(reply::json(StatusCode::CREATED, &ConversationBody::from(branch))),
        false => Err(too_many().into()),
    }
}

impl BranchRequest {
    fn until<'a>(&'a self, run: &'a str) -> Result<Until<'a>, CallError> {
        match &self.at {
            None => Ok(Until::EndOf(run)),
            Some(at) if at.split_once(':').is_some_and(|(of, _)| of == run) => Ok(Until::Message(at)),
            Some(_) => Err(CallError::invalid(
                "`at` is no message of this run; messages of a conversation have the `run_id` of theirs",
            )),
        }
    }

    /// The branch of a conversation, still with its session, and whether its requests begin with other bytes.
    async fn branched(
        self,
        meta: &RequestMeta,
        agents: &AgentService,
        original: Conversation,
        run: &str,
    ) -> Result<(Conversation, bool), CallError> {
        let Self { profile, prompt, model, title, at: _ } = self;
        let parts = prompt.as_ref().map_or([&None, &None], |prompt| [&prompt.replace, &prompt.append]);
        if parts.into_iter().flatten().map(String::len).sum::<usize>() > MAX_PROMPT_BYTES {
            return Err(CallError::invalid(format!("`prompt` has more than {MAX_PROMPT_BYTES} bytes")));
        }
        for name in [&profile, &model].into_iter().flatten() {
            agents.catalog().model(&meta.caller.tenant, Some(name)).await?;
        }
        let profile = profile.filter(|profile| *profile != original.agent);
        let is_changed = profile.is_some() || prompt.is_some() || model.is_some();
        // The differences of a branch hold on in its branches, as long as these have its profile.
        let before = original.branch.filter(|_| profile.is_none());
        let (old_model, old_prompt) = before.map_or((None, None), |before| (before.model, before.prompt));
        let branch = Branch { run: run.to_owned(), model: model.or(old_model), prompt: prompt.or(old_prompt) };
        let conversation = Conversation {
            id: Uuid::now_v7().to_string(),
            title: title.or(original.title),
            agent: profile.unwrap_or(original.agent),
            branch: Some(branch),
            caller_key: original.caller_key,
            status: original.status,
            session_id: original.session_id,
            workspace: original.workspace,
            labels: original.labels,
            created: original.created,
            changed: original.changed,
        };
        Ok((conversation, is_changed))
    }
}
