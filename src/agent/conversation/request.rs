//! The request for a run, and its reply.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::cover::RunCover;
use super::live::LiveRun;
use super::run_event::EventUsage;
use crate::event_log::EventLog;
use crate::skills::Skill;
use crate::toolbox::InProcess;
use crate::{Event, ModelOptions, PausedCall};
use sekisho_config::{AgentProfile, TenantConfig};
use sekisho_core::call::{BudgetScopes, Caller, TraceParent};
use sekisho_core::error::CallError;
use sekisho_store::Conversation;

/// A request to run a conversation (C2).
pub struct RunRequest {
    /// `None`: a new one.
    pub id: Option<Arc<str>>,
    pub caller: Arc<Caller>,
    pub conversation: Conversation,
    /// Without it the run goes on where the one before paused for an approver.
    pub user_input: Option<Arc<str>>,
    /// The run before, whose process ended: it goes on there, without `user_input`.
    pub goes_on: Option<Arc<str>>,
    /// Kept and logged as `claimed_executor`; not an identity.
    pub executor: Option<String>,
    /// The caller's, which is active.
    pub tenant: TenantConfig,
    /// The preferred skills, by name.
    pub skills: Vec<(String, Skill)>,
    /// The name of the profile or of the model, and the profile.
    pub agent: String,
    pub profile: Arc<AgentProfile>,
    /// In place of the profile's.
    pub options: ModelOptions,
    pub toolbox: Arc<InProcess>,
    pub scopes: BudgetScopes,
    pub trace: Option<TraceParent>,
    pub on_busy: OnBusy,
    pub on_unknown: OnUnknown,
    /// Whether the session's prompt and tools begin anew, as they are now.
    pub refresh: bool,
    /// Gets the events of the agent as they are; the run waits while it is full.
    pub watcher: Option<mpsc::Sender<Event>>,
    /// Has another process go on with it, if this one ends before it.
    pub cover: Option<RunCover>,
}

/// What a run does while another one of its conversation is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// Waits up to 5 s for its end.
    #[default]
    Wait,
    /// Cancels it.
    Interrupt,
}

/// What a run does about a call of an earlier run that was sent, has no answer, and cannot simply be repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// The model is told that it may have happened.
    #[default]
    Tell,
    /// Waits for `POST /api/runs/{id}/resolve`.
    Pause,
}

/// A run that has begun, or waits for its conversation.
pub struct StartedRun {
    pub run: Arc<LiveRun>,
    pub log: EventLog,
    pub(super) ended: tokio::task::JoinHandle<Result<RunReply, CallError>>,
}

impl StartedRun {
    pub fn id(&self) -> Arc<str> {
        Arc::clone(&self.run.id)
    }

    /// Waits for the end.
    /// Errors: why the run did not begin, or failed.
    pub async fn reply(self) -> Result<RunReply, CallError> {
        self.ended.await.unwrap_or_else(|panic| Err(CallError::internal(panic)))
    }
}

/// The result of a run (C22).
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RunReply {
    pub run_id: String,
    pub conversation_id: String,
    /// `succeeded`, `paused`, `failed`, `cancelled` or `timed_out`.
    pub status: String,
    /// Of the conversation. After its first run the first line of the user's message, until the model has made one.
    pub title: Option<String>,
    /// The last text; part of one where the run was stopped.
    pub result: String,
    pub is_error: bool,
    pub errors: Vec<String>,
    /// The calls for which it is paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub approvals: Vec<PausedCall>,
    pub usage: EventUsage,
    pub total_cost_usd: f64,
    pub num_turns: u32,
    pub duration_ms: u64,
    pub session_id: String,
}

impl std::fmt::Debug for RunRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunRequest")
            .field("caller", &self.caller)
            .field("conversation", &self.conversation.id)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StartedRun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StartedRun").field("run", &self.run).finish_non_exhaustive()
    }
}
