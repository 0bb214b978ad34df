//! The bodies of requests and replies about conversations.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use sekisho_agent::conversation::{UnknownCall, stored};
use sekisho_api::column::{Column, Form, Listed};
use sekisho_api::list::Page;
use sekisho_config::ProfilePrompt;
use sekisho_core::error::CallError;
use sekisho_store::{
    Branch, Conversation, ConversationChange as StoredChange, ConversationRun, ConversationStatus, MessageLog,
    ModelUsageRow,
};

/// What can be set of a conversation.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConversation {
    /// Without one, the first run that succeeds sets it.
    #[schema(max_length = 200)]
    pub(super) title: Option<String>,
    /// The profile of its runs; the default profile if omitted.
    pub(super) agent: Option<String>,
    /// Whether its runs have files of their own.
    #[serde(default)]
    pub(super) workspace: bool,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

/// What is to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationChange {
    #[serde(default, deserialize_with = "stated")]
    #[schema(value_type = Option<String>, max_length = 200)]
    pub(super) title: Option<Option<String>>,
    pub(super) status: Option<Status>,
    pub(super) agent: Option<String>,
    /// The session that the next run continues; `null`: it begins a new one.
    #[serde(default, deserialize_with = "stated")]
    #[schema(value_type = Option<String>)]
    pub(super) session_id: Option<Option<String>>,
    pub(super) workspace: Option<bool>,
    pub(super) labels: Option<BTreeMap<String, String>>,
}

/// Tells `null` from a field that is left out.
fn stated<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ConversationStatus)]
pub enum Status {
    Active,
    /// No run begins.
    Inactive,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Conversation)]
pub struct ConversationBody {
    pub id: String,
    pub title: Option<String>,
    pub status: Status,
    /// The profile of its runs.
    pub agent: String,
    pub session_id: Option<String>,
    /// The session that this one continues with a summary. Only where one conversation is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_session_id: Option<String>,
    pub workspace: bool,
    pub labels: BTreeMap<String, String>,
    /// Of a branch: the run that it was branched from, and the model and the prompt in place of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchBody>,
    pub created_at: String,
    pub changed_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ConversationBranch)]
pub struct BranchBody {
    pub run_id: String,
    pub model: Option<String>,
    pub prompt: Option<ProfilePrompt>,
}

impl Listed for ConversationBody {
    const NAME: &'static str = "conversations";
    const ROUTE: &'static str = "/api/conversations";
    const NONE: &'static str = "no conversations: `sekisho conversations create` begins one";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("id"),
        Column::new("title", Form::Line).titled("conversation-title").headed("title"),
        Column::new("status", Form::Text).titled("tool-state").headed("status"),
        Column::new("agent", Form::Name).titled("agent-name").headed("agent"),
        Column::new("created_at", Form::Moment).titled("column-created"),
        Column::new("changed_at", Form::Moment).titled("column-changed").headed("changed"),
    ];
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationPage {
    #[serde(flatten)]
    pub(super) page: Page<ConversationBody>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    pub(super) conversations: Vec<ConversationBody>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Run)]
pub struct RunBody {
    pub id: String,
    pub conversation_id: String,
    /// Of the conversation's runs, from 1.
    pub number: i64,
    pub session_id: String,
    pub agent: String,
    /// As the request said; not an identity.
    pub claimed_executor: Option<String>,
    pub user_input: String,
    /// `running`, `paused` for an approver, `succeeded`, `failed`, `cancelled`, `timed_out` or `interrupted`.
    pub status: String,
    pub error: Option<RunErrorBody>,
    /// RFC 3339.
    pub created_at: String,
    /// Deprecated name of `created_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    pub begun_at: String,
    pub ended_at: Option<String>,
    /// The call about which it waits for `POST /api/runs/{id}/resolve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<UnknownCall>,
    /// Of a run that has ended, by model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub usage: Option<Value>,
}

impl Listed for RunBody {
    const NAME: &'static str = "runs";
    const ROUTE: &'static str = "/api/conversations/{id}/runs";
    const COLUMNS: &'static [Column] = &[
        Column::new("number", Form::Count).titled("run-number"),
        Column::new("status", Form::Text).titled("call-outcome"),
        Column::new("code", Form::Name).at("/error/code"),
        Column::new("agent", Form::Name).titled("agent-name"),
        Column::new("begun_at", Form::Moment).at("/created_at").titled("run-begun"),
        Column::new("ended_at", Form::Moment).titled("run-ended"),
    ];
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ConversationRunError)]
pub struct RunErrorBody {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    #[serde(flatten)]
    pub(super) page: Page<RunBody>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    pub(super) runs: Vec<RunBody>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ConversationMessage)]
pub struct MessageBody {
    /// For a fork at this message.
    pub id: String,
    pub run_id: String,
    /// Of a run that did not end with an answer.
    pub incomplete: bool,
    /// By role, with all parts.
    #[schema(value_type = Object)]
    pub message: Value,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessagePage {
    #[serde(flatten)]
    pub(super) page: Page<MessageBody>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    pub(super) messages: Vec<MessageBody>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// The last message of the fork; the last one of the conversation if omitted.
    pub(super) message_id: Option<String>,
    pub(super) title: Option<String>,
}

/// The parameter of messages in earlier versions, to be dropped in 0.3.
#[derive(Debug, Deserialize)]
pub(crate) struct OldPaging {
    pub(super) offset: Option<u32>,
}

impl From<ConversationChange> for StoredChange {
    fn from(change: ConversationChange) -> Self {
        let ConversationChange { title, status, agent, session_id, workspace, labels } = change;
        let status = status.map(|status| match status {
            Status::Active => ConversationStatus::Active,
            Status::Inactive => ConversationStatus::Inactive,
        });
        Self { title, status, agent, session_id, workspace, labels }
    }
}

impl From<Conversation> for ConversationBody {
    fn from(conversation: Conversation) -> Self {
        Self {
            id: conversation.id,
            title: conversation.title,
            status: match conversation.status {
                ConversationStatus::Active => Status::Active,
                ConversationStatus::Inactive => Status::Inactive,
            },
            agent: conversation.agent,
            session_id: conversation.session_id,
            earlier_session_id: None,
            workspace: conversation.workspace,
            labels: conversation.labels,
            branch: conversation.branch.map(|Branch { run, model, prompt }| BranchBody { run_id: run, model, prompt }),
            created_at: conversation.created.to_string(),
            changed_at: conversation.changed.to_string(),
        }
    }
}

impl RunBody {
    pub(super) fn of(run: ConversationRun, usage: Option<Vec<ModelUsageRow>>) -> Self {
        Self {
            id: run.id,
            conversation_id: run.conversation,
            number: run.number,
            session_id: run.session_id,
            agent: run.agent,
            claimed_executor: run.claimed_executor,
            user_input: run.user_input.to_string(),
            status: run.status.as_str().to_owned(),
            error: run.error.map(|error| RunErrorBody { code: error.code, message: error.message }),
            created_at: run.begun.to_string(),
            begun_at: run.begun.to_string(),
            ended_at: run.ended.map(|ended| ended.to_string()),
            waits_for: None,
            usage: usage.map(|rows| rows.iter().map(super::logs::usage).collect()),
        }
    }
}

impl MessageBody {
    pub(super) fn of(log: &MessageLog) -> Result<Self, CallError> {
        let message = stored::read(&log.message).map_err(CallError::internal)?;
        let message = serde_json::to_value(message).map_err(CallError::internal)?;
        let id = format!("{}:{}", log.run, log.position);
        Ok(Self { id, run_id: log.run.clone(), incomplete: log.incomplete, message })
    }
}
