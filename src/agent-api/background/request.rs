//! The request for a run that goes on without its client, sealed in the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::RunWebhook;
use crate::conversations::execute::ExecuteConversation;
use crate::conversations::stored_input::StoredInput;
use crate::responses::Asked;
use sekisho_agent::AgentService;
use sekisho_agent::conversation::RunRequest;
use sekisho_api::RequestMeta;
use sekisho_auth::WorkIdentity;
use sekisho_config::AgentProfile;
use sekisho_core::call::BudgetScopes;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::sealing::{SealedFor, Sealer, SealingError};
use sekisho_store::{BackgroundRun, Conversation};

/// The kind of the sealed texts.
const SEALED_KIND: &str = "background_run";

/// Everything that a process must know to go on with a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredRequest {
    identity: WorkIdentity,
    /// `X-Agent-Id` and `X-Task-Id`: their budgets.
    agent: Option<String>,
    task: Option<String>,
    input: StoredInput,
    /// Of a response.
    pub(crate) asked: Option<Asked>,
    pub(super) webhook: Option<RunWebhook>,
}

impl StoredRequest {
    pub(super) fn of(
        meta: &RequestMeta,
        input: StoredInput,
        asked: Option<Asked>,
        webhook: Option<RunWebhook>,
    ) -> Self {
        let identity = WorkIdentity::of(&meta.caller, meta.over_socket);
        let (agent, task) = (meta.scopes.agent.clone(), meta.scopes.task.clone());
        Self { identity, agent, task, input, asked, webhook }
    }

    /// The sender of the request, with the rights of now.
    /// Errors: `unauthenticated`: its credentials are no longer accepted.
    pub(super) async fn sender(&self, agents: &AgentService, caller_key: &str) -> Result<RequestMeta, CallError> {
        let authenticator = agents.gateway().keys().authenticator();
        let caller = authenticator.caller_of_work(caller_key, &self.identity).await?;
        let scopes = BudgetScopes { agent: self.agent.clone(), task: self.task.clone(), ..BudgetScopes::default() };
        Ok(RequestMeta::of_work(caller, scopes))
    }

    /// Errors: `invalid_request`: names that the tenant does not have, or not any more; options that no agent has.
    pub(super) async fn into_run(
        self,
        meta: &RequestMeta,
        agents: &AgentService,
        conversation: Conversation,
    ) -> Result<RunRequest, CallError> {
        let run = ExecuteConversation::from(self.input).into_run(meta, agents, conversation).await?;
        let Some(asked) = self.asked else { return Ok(run) };
        let options = asked.options()?;
        let profile = match asked.instructions.filter(|text| !text.is_empty()) {
            None => run.profile,
            Some(instructions) => Arc::new(instructed(&run.profile, &instructions)),
        };
        // The response before may have had other instructions.
        let refresh = asked.previous_response_id.is_some();
        Ok(RunRequest { options, profile, refresh, ..run })
    }

    pub(crate) fn model(&self) -> Option<&str> {
        self.input.model.as_deref()
    }

    /// Errors: `denied`: there is no key.
    pub(super) fn sealed(&self, sealer: &Sealer, owner: (&str, &str), id: &str) -> Result<String, CallError> {
        let text = serde_json::to_vec(self).map_err(CallError::internal)?;
        sealer.seal(sealed_for(owner, &owner_of(owner.1, id)), &text).map_err(|error| unsealed(&error))
    }

    /// Errors: `denied`: its key is not in force; `internal`: it was changed.
    pub(super) fn open(sealer: &Sealer, run: &BackgroundRun) -> Result<Self, CallError> {
        let owner = (&*run.tenant, &*run.caller_key);
        let opened = sealer.open(sealed_for(owner, &owner_of(owner.1, &run.id)), &run.request);
        serde_json::from_slice(&opened.map_err(|error| unsealed(&error))?).map_err(CallError::internal)
    }
}

/// The request of a run is the request of no other run of its caller.
fn owner_of(caller_key: &str, id: &str) -> String {
    format!("{caller_key} {id}")
}

fn sealed_for<'a>((tenant, _): (&'a str, &str), owner: &'a str) -> SealedFor<'a> {
    SealedFor { tenant, owner, kind: SEALED_KIND }
}

fn unsealed(error: &SealingError) -> CallError {
    match error {
        SealingError::NoKey | SealingError::UnknownKey { .. } => {
            let message = format!("a run cannot go on without its client, since its request is kept sealed: {error}");
            CallError::new(ErrorCode::Denied, message)
        }
        _ => CallError::internal(error),
    }
}

/// The profile with a client's own prompt after its prompt.
fn instructed(profile: &AgentProfile, instructions: &str) -> AgentProfile {
    let mut profile = profile.clone();
    let before = profile.prompt.append.take().map(|text| format!("{text}\n\n")).unwrap_or_default();
    profile.prompt.append = Some(format!("{before}{instructions}"));
    profile
}
