//! The recording of a run, where runs are recorded.

use std::sync::Arc;

use uuid::Uuid;

use super::{AgentRequest, Pauses};
use crate::run_file::{RecordedBeginning, RunRecord};
use crate::{FinishReason, Message, Summarizer};
use sekisho_core::call::Caller;
use sekisho_core::run_file::RunKind;
use sekisho_gateway::Gateway;

/// A run that is recorded, and where it is kept when it has ended.
pub(super) struct Recording {
    pub(super) record: Arc<RunRecord>,
    gateway: Arc<Gateway>,
    id: Arc<str>,
    agent: Arc<str>,
    caller: Arc<Caller>,
}

/// `None` where runs are not recorded. `messages`: the whole conversation, with the system prompt.
pub(super) fn begin(
    gateway: &Arc<Gateway>,
    request: &AgentRequest,
    messages: &[Message],
    summarizer: Option<&Summarizer>,
) -> Option<Recording> {
    let recordings = &gateway.pipeline.journals.recordings;
    if !recordings.are_kept() {
        return None;
    }
    let begun = RecordedBeginning {
        profile: &request.profile,
        summarizer,
        messages,
        options: &request.options,
        client_tools: &request.client_tools,
        pauses: request.pauses != Pauses::Never,
    };
    let id = request.run.clone().unwrap_or_else(|| Uuid::now_v7().to_string().into());
    Some(Recording {
        record: RunRecord::new(begun, recordings.max_bytes()),
        gateway: Arc::clone(gateway),
        id,
        agent: Arc::clone(&request.agent),
        caller: Arc::clone(&request.caller),
    })
}

impl Recording {
    /// Keeps the run, before its end is told.
    pub(super) async fn end(self, reason: FinishReason, messages: &[Message]) {
        let Self { record, gateway, id, agent, caller } = self;
        let pipeline = &gateway.pipeline;
        let recordings = &pipeline.journals.recordings;
        let header = recordings.header((RunKind::Agent, &id, &agent), &caller, &pipeline.policy.version()).await;
        match record.end(header.clone(), reason, messages) {
            Some(text) => recordings.keep((&caller.tenant, &caller.key), &header, &text).await,
            None => tracing::info!(run = &*id, "a run is larger than `recording.max_run_bytes`, and is not kept"),
        }
    }
}
