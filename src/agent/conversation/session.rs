//! The session that a run continues (C30): its latest messages that the run's model can read, after a summary of the
//! older ones.

use super::history::History;
use super::{ConversationRuns, RunEvent, RunRequest, stored, unknown_session};
use crate::Message;
use crate::context::{self, CHARACTERS_OF_A_TOKEN};
use crate::usage::UsageByAgent;
use sekisho_core::error::CallError;
use sekisho_store::{Conversation, SessionMessage, SessionSummary};

/// The window of a model that the list does not have.
const USUAL_WINDOW: u64 = 128_000;

/// The share of the window that a session may have before its older part is summarized: a percentage. The rest is for tools
/// and answers.
const SESSION_PERCENT: u64 = 75;

/// Characters of stored messages that are read, also where a window is small: images are large, and count little.
const MIN_READ_CHARACTERS: u64 = 4 << 20;

impl ConversationRuns {
    /// The messages of the conversation's session; none for a new one. The event, if the older ones are summarized now.
    ///
    /// # Errors
    /// `unknown_session` if they are no longer stored; `internal` if they are of a newer program.
    pub(super) async fn history(
        &self,
        request: &RunRequest,
        conversation: &Conversation,
        usage: &UsageByAgent,
    ) -> Result<(History, Option<RunEvent>), CallError> {
        let Some(session) = &conversation.session_id else { return Ok((History::default(), None)) };
        let (store, id) = (self.store(), &conversation.id);
        let old = store.conversation_logs().session_summary(id, session).await.map_err(CallError::from)?;
        let weight = context::window_of(&request.profile).unwrap_or(USUAL_WINDOW) * CHARACTERS_OF_A_TOKEN;
        let (after, read) = (old.as_ref().map(|old| old.last), MIN_READ_CHARACTERS.max(weight * 2));
        let found =
            store.conversation_logs().session_messages(id, session, after, read).await.map_err(CallError::from)?;
        if found.messages.is_empty() {
            return Err(unknown_session(session));
        }
        let mut said = said(&found.messages)?;
        let first = first_kept(&said, weight * SESSION_PERCENT / 100);
        let before = said[..first].iter().map(|(_, message)| message).collect::<Vec<_>>();
        if first == 0 && found.left_out == 0 {
            let history = History::of(said);
            return Ok((
                match old {
                    Some(old) => history.after(&old.text),
                    None => history,
                },
                None,
            ));
        }
        let old = old.as_ref().map(|old| &*old.text);
        let agent = request.agent.as_str().into();
        let payer = (&request.caller, &request.scopes);
        let text = self.agents.summarize_older(payer, &request.profile, (&agent, usage), (old, &before)).await;
        let messages = usize::try_from(found.left_out).unwrap_or(usize::MAX).saturating_add(first);
        let (tokens_before, tokens_after) = (tokens(&said), tokens(&said[first..]));
        let event = RunEvent::Compacted { results: 0, messages, tokens_before, tokens_after };
        let history = History::of(said.split_off(first));
        if let (Some(text), Some(last)) = (&text, first.checked_sub(1)) {
            let last = &found.messages[last];
            let last = (last.run_number, last.log.position);
            let summary = SessionSummary { text: text.clone(), last, hand_over: None };
            store.conversation_logs().keep_session_summary(id, session, &summary).await.map_err(CallError::from)?;
        }
        Ok((history.after(&text.unwrap_or_else(|| without_summary(old, messages))), Some(event)))
    }
}

fn tokens(said: &[(String, Message)]) -> u64 {
    said.iter().map(|(_, message)| context::weight(message)).sum::<u64>() / CHARACTERS_OF_A_TOKEN
}

fn without_summary(old: Option<&str>, count: usize) -> String {
    let note = format!("({count} messages were left out.)");
    old.map_or(note.clone(), |old| format!("{old}\n\n{note}"))
}

/// The messages, each with its run.
///
/// # Errors
/// `internal`: a message of a newer program.
pub(super) fn said(logs: &[SessionMessage]) -> Result<Vec<(String, Message)>, CallError> {
    let read = |SessionMessage { log, .. }: &SessionMessage| Ok((log.run.clone(), stored::read(&log.message)?));
    logs.iter().map(read).collect::<Result<_, String>>().map_err(CallError::internal)
}

/// The first message that stays: the first of all if they weigh at most `max`; otherwise one of the user, from which on they
/// weigh half of that, or the last one of the user.
fn first_kept(said: &[(String, Message)], max: u64) -> usize {
    let mut weight = 0_u64;
    let mut first = None;
    for (index, (_, message)) in said.iter().enumerate().rev() {
        weight = weight.saturating_add(context::weight(message));
        if matches!(message, Message::User(_)) && (first.is_none() || weight <= max / 2) {
            first = Some(index);
        }
    }
    if weight <= max { 0 } else { first.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AssistantTurn;

    #[test]
    fn the_latest_messages_stay_from_one_of_the_user_on() {
        let of = |message: Message| ("r".to_owned(), message);
        let user = |length: usize| of(Message::User("x".repeat(length).as_str().into()));
        let answer = |length: usize| of(Message::Assistant(AssistantTurn::new("x".repeat(length), [])));
        let said = [user(10), answer(10), user(10), answer(10), user(10), answer(10)];
        for (max, expected) in [(60, 0), (59, 4), (40, 4), (1, 4)] {
            assert_eq!(first_kept(&said, max), expected, "{max}");
        }
        assert_eq!(first_kept(&[user(5), answer(5), user(5), answer(5), user(50)], 50), 4);
        let long_ago = [user(100), answer(10), user(10), answer(10), user(10), answer(10)];
        assert_eq!(first_kept(&long_ago, 100), 2, "half of it");
        assert_eq!(first_kept(&[user(50), answer(5), user(5), answer(5)], 50), 2);
        assert_eq!(first_kept(&[answer(50)], 1), 0, "a part of one run");
    }
}
