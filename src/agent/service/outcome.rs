//! The outcome of a run: the calls that its client is to run, and the summary of its thread.

use std::sync::Arc;

use tracing::Span;

use super::own_requests::meter_of;
use super::{AgentService, open};
use crate::client_calls::SentPrefix;
use crate::message::{AssistantTurn, ToolMessage};
use crate::meter::MeteredModel;
use crate::{FinishReason, Message, Pauses, client_calls, summary};
use sekisho_config::AgentProfile;
use sekisho_core::call::{BudgetScopes, Caller};
use sekisho_core::error::{CallError, ErrorCode};

/// The data that is stored when a run ends.
pub(super) struct Outcome {
    pub(super) service: Arc<AgentService>,
    pub(super) profile: Arc<AgentProfile>,
    pub(super) caller: Arc<Caller>,
    pub(super) scopes: BudgetScopes,
    pub(super) input: Vec<Message>,
    pub(super) thread: Option<Arc<str>>,
    /// The thread's previous summary.
    pub(super) old: Option<String>,
    pub(super) pauses: Pauses,
    /// The beginning of its requests.
    pub(super) sent: SentPrefix,
}

impl Outcome {
    /// Stores the messages of a run that a later request of its client continues.
    pub(super) async fn keep_paused(&self, reason: FinishReason, added: &[Message]) {
        if !reason.is_pause() || self.pauses == Pauses::InConversation {
            return;
        }
        let store = self.service.gateway.store();
        if let Err(error) = client_calls::keep(store, &self.caller.key, &self.input, (added, &self.sent)).await {
            tracing::error!(cause = error.cause(), "a run goes on without the results that the gateway had for it");
        }
    }

    /// Adds the answer of a call for which an earlier run paused to the stored messages of that run.
    pub(super) async fn keep_resumed(&self, answer: &ToolMessage) {
        if self.pauses != Pauses::ForClient {
            return;
        }
        if let Err(error) = client_calls::keep_answer(self.service.gateway.store(), &self.caller.key, answer).await {
            // Its approval has the reply too.
            tracing::error!(cause = error.cause(), "the answer of a call that was approved is not stored with its run");
        }
    }

    /// Runs in the background; the reply does not wait for it (A47).
    pub(super) fn summarize_thread(self, reason: FinishReason, added: &[Message]) {
        if reason != FinishReason::Stop {
            return;
        }
        let last = |messages: &[Message], text: fn(&Message) -> Option<String>| {
            messages.iter().rev().find_map(text).unwrap_or_default()
        };
        let user = last(&self.input, |message| match message {
            Message::User(message) => Some(message.text()),
            _ => None,
        });
        let reply = last(added, |message| message.as_assistant().map(AssistantTurn::text));
        let memory = self.service.gateway.configuration().current().agent.memory.clone();
        let (Some(thread), true) = (self.thread.clone(), memory.summaries) else { return };
        let Ok(slot) = Arc::clone(&self.service.summaries).try_acquire_owned() else {
            tracing::warn!("too many concurrent thread summaries; a thread keeps its old summary");
            return;
        };
        let gateway = Arc::clone(&self.service.gateway);
        let profile = gateway.configuration().current().agent.summary_profile(&self.profile);
        gateway.background().spawn_until_closing(async move {
            let _slot = slot;
            if let Err(error) = self.renew(&profile, &thread, [&user, &reply], memory.max_summaries).await {
                tracing::warn!(%error, "a thread keeps its old summary");
            }
        });
    }

    async fn renew(
        &self,
        profile: &AgentProfile,
        thread: &str,
        exchange: [&str; 2],
        max_summaries: u32,
    ) -> Result<(), CallError> {
        let (service, key) = (&self.service, &self.caller.key);
        let model = open(profile, &service.gateway)?;
        let (meter, span) = (meter_of(&service.gateway, (&self.caller, &self.scopes)), Span::none());
        let model = MeteredModel { model: &*model, meter: &meter, profile, span: &span, end: None };
        let summary = summary::of_thread(&model, profile, &service.prompts, self.old.as_deref(), exchange).await;
        let summary = summary.map_err(|error| CallError::new(ErrorCode::UpstreamError, error.to_string()))?;
        if summary.is_empty() {
            return Ok(());
        }
        service
            .gateway
            .store()
            .thread_summaries()
            .keep(key, thread, &summary, max_summaries)
            .await
            .map_err(CallError::from)
    }
}
