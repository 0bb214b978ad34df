//! Runs agents on top of the gateway, as one of its clients: a model in a loop with tools until it answers.
//!
//! An agent reaches tools only through a [`Toolbox`], in process or over HTTP to another gateway, so that each of its
//! tool calls passes the same checks as any other caller's.

pub mod call_ids;
pub mod catalog;
mod client_calls;
mod context;
pub mod conversation;
pub mod conversation_prompt;
pub mod evaluation;
pub mod event;
pub mod event_log;
mod front_matter;
pub mod message;
pub mod meter;
pub mod models;
pub mod options;
pub mod output_format;
pub mod plan;
pub mod prompts;
mod run;
pub mod run_file;
mod run_recorder;
pub mod selection;
pub mod service;
mod session_news;
mod session_prefix;
mod skill_tool;
pub mod skills;
mod subagents;
pub mod summary;
pub mod toolbox;
pub mod turn_observer;
pub mod usage;
pub mod user_file;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::Stream;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use sekisho_config::AgentProfile;

pub use self::call_ids::CallIds;
pub use self::event::{Event, FinishReason, PausedCall, RunError, RunUsage};
pub use self::message::Message;
pub use self::meter::Meter;
pub use self::models::Model;
pub use self::options::{ModelOptions, PartOfPlan, ToolChoice};
pub use self::output_format::OutputFormat;
pub use self::prompts::{Prompts, UnreadablePrompt};
pub use self::service::{AgentRequest, AgentService, Pauses};
pub use self::toolbox::{ToolDescription, Toolbox};
pub use self::turn_observer::TurnObserver;

/// A model, the tools it may call, and the limits of its runs. Cheap to create: one for each caller.
#[derive(Clone)]
pub struct Agent {
    pub model: Arc<dyn Model>,
    pub toolbox: Arc<dyn Toolbox>,
    pub profile: Arc<AgentProfile>,
    /// Summarizes the older part of a conversation that is too long; without one it is left out.
    pub summarizer: Option<Summarizer>,
}

/// A model for summaries of conversations, and its prompt.
#[derive(Clone)]
pub struct Summarizer {
    pub model: Arc<dyn Model>,
    pub profile: Arc<AgentProfile>,
    pub prompt: Arc<str>,
}

/// The input of a run.
#[derive(Debug, Clone)]
pub struct RunInput {
    /// The conversation so far: the system prompt first, the user's message last.
    pub messages: Vec<Message>,
    /// Tools that the client runs itself. They hide the gateway's tools of the same name.
    pub client_tools: Vec<ToolDescription>,
    pub options: ModelOptions,
    /// Ends the run at once, with a `status` event.
    pub abort: CancellationToken,
    /// Counts the usage of the run and charges its account.
    pub meter: Arc<Meter>,
    /// Parent span of the run's trace.
    pub span: Span,
    /// Gets each turn with tool calls before these are sent.
    pub observer: Option<TurnObserver>,
    /// Whether it pauses for calls that a person must approve: whoever stores its messages lets a later run make them.
    pub pauses: bool,
    pub call_ids: CallIds,
}

impl Default for RunInput {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            client_tools: Vec::new(),
            options: ModelOptions::default(),
            abort: CancellationToken::new(),
            meter: Arc::default(),
            span: Span::none(),
            observer: None,
            pauses: false,
            call_ids: CallIds::default(),
        }
    }
}

impl Agent {
    /// Runs turns until the model answers without calling tools, or a limit is reached.
    ///
    /// The last two events are always [`Event::Finished`] and [`Event::Usage`].
    /// Dropping the stream closes the model's connection and cancels the tool calls under way.
    pub fn run(&self, input: RunInput) -> impl Stream<Item = Event> + Send + use<> {
        run::run(self.clone(), input)
    }
}

impl fmt::Debug for Summarizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Summarizer").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Agent").field("profile", &self.profile).finish_non_exhaustive()
    }
}
