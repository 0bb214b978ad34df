//! The title of a conversation that has none (C32): the first line of the user's message, and the model's once its run has ended.
//! Nobody waits for that one, neither the client nor the conversation's next run.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ConversationRuns;
use super::outcome::rows_of;
use crate::usage::UsageByAgent;
use sekisho_calls::budget::TakenCharges;
use sekisho_config::AgentProfile;
use sekisho_core::call::{BudgetScopes, Caller};
use sekisho_core::failpoint;
use sekisho_store::{LaterTitle, Used};

/// Maximum time for the model's title.
const TITLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum characters of a title.
const MAX_TITLE_CHARS: usize = 50;

/// A conversation whose model is to make a title, after a run that has ended.
pub(super) struct Untitled {
    pub(super) run: String,
    pub(super) conversation: String,
    pub(super) user_input: Arc<str>,
    pub(super) reply: String,
    pub(super) agent: String,
    pub(super) profile: Arc<AgentProfile>,
    pub(super) caller: Arc<Caller>,
    pub(super) scopes: BudgetScopes,
    /// The usage of the run; the title's is added.
    pub(super) usage: UsageByAgent,
}

impl ConversationRuns {
    /// Makes the title by the model for summaries, and stores it with its usage.
    pub(super) async fn add_title(&self, untitled: Untitled) {
        let Untitled { run, conversation, user_input, reply, agent, profile, caller, scopes, usage } = untitled;
        let (payer, agent) = ((&caller, &scopes), agent.into());
        let made = self.agents.title(payer, &profile, (&agent, &usage), [&user_input, &reply]);
        let made = in_time(made, self.gateway().background().closing()).await;
        failpoint::reach("run.titled");
        let (rows, charges) = usage.take_charges();
        let rows = rows_of(rows);
        let used = Used { rows: &rows, charges: charges.as_ref().map(TakenCharges::charges).unwrap_or_default() };
        let first = first_line(&user_input);
        let (first, made) = (first.as_deref(), made.as_deref());
        let title = LaterTitle { run: &run, conversation: &conversation, first, made, used };
        match self.store().conversation_runs().add_title(&title).await {
            Ok(totals) => charges.into_iter().for_each(|charges| charges.stored(&totals)),
            Err(error) => tracing::warn!(%error, conversation, "the title of a conversation could not be stored"),
        }
    }
}

/// The title, unless that takes too long or the gateway is shut down.
async fn in_time(made: impl Future<Output = Option<String>>, closing: &CancellationToken) -> Option<String> {
    let made = closing.run_until_cancelled(timeout(TITLE_TIMEOUT, made)).await;
    made.and_then(Result::ok).flatten()
}

/// A title without a model: the first line of the user's message.
pub fn first_line(user_input: &str) -> Option<String> {
    let line = user_input.lines().map(str::trim).find(|line| !line.is_empty())?;
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => Some(line.to_owned()),
        Some(_) => Some(line.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_title_is_the_first_line_and_has_at_most_fifty_characters() {
        assert_eq!(first_line("\n  Is it warm? \nTell me."), Some("Is it warm?".into()));
        assert_eq!(first_line(" \n"), None);
        let long = first_line(&"関".repeat(51)).unwrap();
        assert!(long.chars().count() == 50 && long.ends_with("関…"), "{long}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_title_is_waited_for_until_its_time_is_over_or_the_gateway_is_shut_down() {
        let (closing, begun) = (CancellationToken::new(), Instant::now());
        let made = async { Some("Made".to_owned()) };
        assert_eq!(in_time(made, &closing).await, Some("Made".to_owned()));
        assert_eq!(in_time(pending(), &closing).await, None);
        assert_eq!(begun.elapsed(), TITLE_TIMEOUT);
        closing.cancel();
        assert_eq!(in_time(pending(), &closing).await, None);
        assert_eq!(begun.elapsed(), TITLE_TIMEOUT, "a gateway that is shut down does not wait");
    }
}
