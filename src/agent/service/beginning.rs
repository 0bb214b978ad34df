//! The beginning of a run: the messages and the tools of its first request to the model.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio::sync::mpsc::UnboundedReceiver;

use super::offer::Offer;
use super::{AgentRequest, AgentService};
use crate::client_calls::{self, Restored, SentPrefix};
use crate::session_news;
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
    /// The gateway's part of it.
    pub(super) sent: SentPrefix,
}

impl AgentService {
    /// The messages and the tools of the first request. In a session they begin as in its first run, and where a client continues
    /// its runs with their system prompt.
    pub(super) async fn beginning(
        &self,
        request: &AgentRequest,
        history: Restored,
        offer: Offer,
        reminder: Option<&str>,
    ) -> Result<Beginning, CallError> {
        let Offer { toolbox, tools, all, started } = offer;
        let Restored { messages: mut history, prefix: of_client } = history;
        let fresh = || self.system_prompt(&request.profile, &tools);
        // Without a list of tools nothing is settled for the whole session.
        let Some(prefix) = request.prefix.as_ref().filter(|prefix| all.is_some() || prefix.is_kept()) else {
            let digest = session_news::digest(&tools);
            let agent = request.agent.to_string();
            if of_client.as_ref().is_some_and(|prefix| prefix.tools != digest || prefix.agent != agent) {
                client_calls::forget_bound_thoughts(&mut history);
            }
            let of_agent = of_client.filter(|prefix| prefix.agent == agent);
            let system = of_agent.map_or_else(fresh, |prefix| prefix.system);
            let messages = conversation(system.clone(), history, reminder);
            return Ok(Beginning { messages, toolbox, started, sent: SentPrefix { agent, system, tools: digest } });
        };
        let now = ToolsNow { offered: &tools, all: all.as_deref() };
        let frozen = prefix.settle(self.today(), fresh, now, &mut history).await?;
        let messages = conversation(frozen.system, history, reminder);
        let toolbox = Arc::new(Frozen::new(frozen.tools, toolbox));
        Ok(Beginning { messages, toolbox, started, sent: SentPrefix::default() })
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
