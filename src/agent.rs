//! The loop on top of the gateway, as a client of it: a model, its tools, and turns until it answers.
//!
//! It sees tools only through a [`Toolbox`], in process or over HTTP to another gateway, so that every
//! tool call of an agent passes the same checkpoint as anybody's.

pub mod conversations;
pub mod desk;
pub mod event;
pub mod llm;
pub mod message;
pub mod prompts;
mod run;
pub mod summary;
pub mod toolbox;
pub mod waiting;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::config::AgentProfile;

pub use self::desk::{Desk, Errand};
pub use self::event::{Event, FinishReason, RunUsage};
pub use self::llm::Model;
pub use self::message::Message;
pub use self::prompts::{Prompts, UnreadablePrompt};
pub use self::toolbox::{ToolDescription, Toolbox};

/// A model, the tools it may call, and the bounds of its runs. Cheap to make: one for each caller.
#[derive(Clone)]
pub struct Agent {
    pub model: Arc<dyn Model>,
    pub toolbox: Arc<dyn Toolbox>,
    pub profile: Arc<AgentProfile>,
}

/// What a run begins with.
#[derive(Debug, Clone, Default)]
pub struct RunInput {
    /// The conversation so far: the system prompt first, the user's message last.
    pub messages: Vec<Message>,
    /// Tools that the client runs itself. One of the same name hides the gateway's.
    pub client_tools: Vec<ToolDescription>,
    /// Ends the run at once, with a `status` event.
    pub abort: CancellationToken,
}

impl Agent {
    /// Runs turns until the model answers without calling tools, or a bound is reached.
    ///
    /// Whatever happens, the last two events are [`Event::Finished`] and [`Event::Usage`].
    /// Dropping the stream closes the model's connection and cancels the tool calls under way.
    pub fn run(&self, input: RunInput) -> impl Stream<Item = Event> + Send + use<> {
        run::run(self.clone(), input)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Agent").field("profile", &self.profile).finish_non_exhaustive()
    }
}
