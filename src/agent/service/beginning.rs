//! The beginning of a run: the messages and the tools of its first request to the model.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};
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
            let (agent, others) = (request.agent.to_string(), digest_of_others(&history, reminder));
            let is_other = |sent: &SentPrefix| [&sent.agent, &sent.others, &sent.tools] != [&agent, &others, &digest];
            if of_client.as_ref().is_some_and(is_other) {
                client_calls::forget_bound_thoughts(&mut history);
            }
            let of_agent = of_client.filter(|prefix| prefix.agent == agent);
            let system = of_agent.map_or_else(fresh, |prefix| prefix.system);
            let messages = conversation(system.clone(), history, reminder);
            let sent = SentPrefix { agent, system, others, tools: digest };
            return Ok(Beginning { messages, toolbox, started, sent });
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

/// A digest of the system prompts that are not the gateway's own: the client's, and the thread's summary.
fn digest_of_others(history: &[Message], reminder: Option<&str>) -> String {
    let texts = history.iter().filter_map(Message::as_system).chain(reminder);
    let digest = texts.fold(Sha256::new(), |all, text| all.chain_update(text).chain_update([0]));
    hex::encode(digest.finalize())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_of_system_prompts_and_nothing_else() {
        let of = |time: &str, said: &str, reminder| {
            digest_of_others(&[Message::System(time.into()), Message::User(said.into())], reminder)
        };
        let first = of("It is 9:00.", "a", None);
        assert_eq!(of("It is 9:00.", "b", None), first);
        assert_ne!(of("It is 9:01.", "a", None), first);
        assert_ne!(of("It is 9:00.", "a", Some("So far.")), first);
    }
}
