//! The beginning of a run: the messages and the tools of its first request to the model.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio::sync::mpsc::UnboundedReceiver;

use super::offer::Offer;
use super::{AgentRequest, AgentService};
use crate::session_prefix::ToolsNow;
use crate::toolbox::Frozen;
use crate::{Event, Message, ToolDescription, Toolbox, prompts};
use sekisho_config::AgentProfile;
use sekisho_core::error::CallError;

/// The beginning of a run.
pub(super) struct Beginning {
    pub(super) messages: Vec<Message>,
    pub(super) toolbox: Arc<dyn Toolbox>,
    /// The events of its sub-agents.
    pub(super) started: Option<UnboundedReceiver<Event>>,
}

impl AgentService {
    /// The messages and the tools of the first request. In a session they begin as in its first run.
    pub(super) async fn beginning(
        &self,
        request: &AgentRequest,
        mut history: Vec<Message>,
        offer: Offer,
        reminder: Option<&str>,
    ) -> Result<Beginning, CallError> {
        let Offer { toolbox, tools, all, started } = offer;
        let fresh = || self.system_prompt(&request.profile, &tools);
        // Without a list of tools nothing is settled for the whole session.
        let Some(prefix) = request.prefix.as_ref().filter(|prefix| all.is_some() || prefix.is_kept()) else {
            let messages = conversation(fresh(), history, reminder);
            return Ok(Beginning { messages, toolbox, started });
        };
        let now = ToolsNow { offered: &tools, all: all.as_deref() };
        let frozen = prefix.settle(self.today(), fresh, now, &mut history).await?;
        let messages = conversation(frozen.system, history, reminder);
        Ok(Beginning { messages, toolbox: Arc::new(Frozen { tools: frozen.tools, toolbox }), started })
    }

    pub(super) fn system_prompt(&self, profile: &AgentProfile, tools: &[ToolDescription]) -> String {
        self.prompts.system(self.today(), tools, &profile.prompt)
    }

    /// The date at the gateway, by the clock of the service.
    pub(crate) fn today(&self) -> Date {
        self.clock.now().to_zoned(TimeZone::system()).date()
    }
}

/// The messages sent to the model (A30): our prompt, the client's own, the thread's summary, the history.
pub(super) fn conversation(prompt: String, history: Vec<Message>, reminder: Option<&str>) -> Vec<Message> {
    let prompt = (!prompt.is_empty()).then_some(Message::System(prompt));
    let mut messages: Vec<_> = prompt.into_iter().chain(history).collect();
    if let Some(summary) = reminder {
        let after = messages.iter().take_while(|message| matches!(message, Message::System(_))).count();
        messages.insert(after, Message::System(prompts::reminder(summary)));
    }
    messages
}
