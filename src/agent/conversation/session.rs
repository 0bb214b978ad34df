//! The session that a run continues (C30): its messages, or another session that begins with a summary of the older ones where they
//! are too many for the run's model.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::history::{History, OpenCall};
use super::{ConversationRuns, RunEvent, RunRequest, stored, unknown_session};
use crate::Message;
use crate::context::{self, CHARACTERS_OF_A_TOKEN};
use crate::run::longest_prompt;
use crate::session_prefix::KeptPrefix;
use crate::usage::UsageByAgent;
use sekisho_core::error::CallError;
use sekisho_store::{Conversation, HandOver, SessionMessage, SessionSummary};

/// The window of a model that the list does not have.
const USUAL_WINDOW: u64 = 128_000;

/// The share of the window that a session may have with its prompt and its tools before its older part is summarized: a
/// percentage. The rest is for the message of the run and the answers.
const SESSION_PERCENT: u64 = 75;

/// The share of the longest prompt of a run that a session may have: a percentage. A run whose messages do not fit shortens them,
/// which changes the bytes before its own, so that the session must end earlier.
const RUN_PERCENT: u64 = 90;

/// The share that its messages may have in any case, where the tools take most of the window: a percentage.
const MIN_PERCENT: u64 = 10;

/// Characters of stored messages that are read, also where a window is small: images are large, and count little.
const MIN_READ_CHARACTERS: u64 = 4 << 20;

/// The place of a summary that a session begins with: before its first message, the one of run 1 at position 0.
const BEFORE_FIRST: (i64, i64) = (0, -1);

/// The session of a run.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) history: History,
    /// The beginning of the agent's requests.
    pub(super) kept: KeptPrefix,
    /// Where older messages are summarized now.
    pub(super) compacted: Option<RunEvent>,
}

/// A message of a session.
struct Said {
    /// The number of its run; 0 for one of an earlier session.
    run_number: i64,
    run: String,
    /// The agent of its run.
    agent: String,
    message: Message,
}

impl Session {
    fn new() -> Self {
        let id = Uuid::now_v7().to_string();
        Self { id, history: History::default(), kept: KeptPrefix::default(), compacted: None }
    }
}

impl ConversationRuns {
    /// The conversation's session; a new one where there is none. Where the model can no longer read it, another session continues
    /// it: with a summary, and the last exchanges as they are. The earlier one stays as it is.
    /// Errors: `unknown_session` if its messages are no longer stored; `internal` if they are of a newer program.
    pub(super) async fn session(
        &self,
        request: &RunRequest,
        conversation: &Conversation,
        usage: &UsageByAgent,
    ) -> Result<Session, CallError> {
        let Some(session) = &conversation.session_id else { return Ok(Session::new()) };
        let (store, id) = (self.store(), &conversation.id);
        let logs = store.conversation_logs();
        let old = logs.session_summary(id, session).await.map_err(CallError::from)?;
        let weight = context::window_of(&request.profile).unwrap_or(USUAL_WINDOW) * CHARACTERS_OF_A_TOKEN;
        let (after, read) = (old.as_ref().map(|old| old.last), MIN_READ_CHARACTERS.max(weight * 2));
        let found = logs.session_messages(id, session, after, read).await.map_err(CallError::from)?;
        let (old, hand_over) = old.map_or((None, None), |old| (Some(old.text), old.hand_over));
        let old = old.filter(|text| !text.is_empty());
        if found.messages.is_empty() && hand_over.is_none() {
            return Err(unknown_session(session));
        }
        let mut kept = match request.refresh {
            true => KeptPrefix::default(),
            false => KeptPrefix::load(store, [id, session, &request.agent]).await?,
        };
        let mut all = handed_over(hand_over.as_ref())?;
        all.extend(numbered(found.messages)?);
        kept.keep_news_of(&runs_of(&request.agent, &all));
        let of_window = weight * SESSION_PERCENT / 100;
        let of_run = longest_prompt(&request.profile).map(|tokens| tokens * CHARACTERS_OF_A_TOKEN * RUN_PERCENT / 100);
        let limit = of_run.map_or(of_window, |of_run| of_run.min(of_window));
        let limit = limit.saturating_sub(kept.weight()).max(weight * MIN_PERCENT / 100);
        let first = match kept.is_closed() {
            // A run has found the messages to be too many.
            true => first_kept(&all, limit.min(total_weight(&all).saturating_sub(1))),
            false => first_kept(&all, limit),
        };
        // The answers of open calls belong to this session.
        let open = open_calls(&all);
        let stays = first == 0 || !open.is_empty();
        if stays && found.left_out == 0 {
            // The thoughts since are bound to a shorter form, which is not sent again.
            let kept = if kept.is_closed() { KeptPrefix::default() } else { kept };
            let history = with_news(all, &kept, &request.agent);
            let history = match old {
                Some(old) => history.after(&old),
                None => history,
            };
            return Ok(Session { id: session.clone(), history, kept, compacted: None });
        }
        // A request that is refused pays for no summary.
        self.check_resumes(request, &open).await?;
        let before: Vec<_> = all[..first].iter().map(|said| &said.message).collect();
        let agent = request.agent.as_str().into();
        let payer = (&request.caller, &request.scopes);
        let text =
            self.agents.summarize_older(payer, &request.profile, (&agent, usage), (old.as_deref(), &before)).await;
        let messages = usize::try_from(found.left_out).unwrap_or(usize::MAX).saturating_add(first);
        let tokens = |said: &[Said]| total_weight(said) / CHARACTERS_OF_A_TOKEN;
        let (tokens_before, tokens_after) = (tokens(&all), tokens(&all[first..]));
        let mut last: Vec<_> = all.split_off(first);
        // They are bound to the messages before.
        last.iter_mut().for_each(|said| said.message.forget_bound_thoughts());
        let history = History::of(pairs(&last));
        let earlier_session_id = Some(session.clone());
        let compacted = RunEvent::Compacted { results: 0, messages, tokens_before, tokens_after, earlier_session_id };
        let text = text.unwrap_or_else(|| without_summary(old.as_deref(), messages));
        let next = Session::new();
        let hand_over = HandOver { earlier: session.clone(), kept: written(&last)? };
        let summary = SessionSummary { text: text.clone(), last: BEFORE_FIRST, hand_over: Some(hand_over) };
        logs.keep_session_summary(id, &next.id, &summary).await.map_err(CallError::from)?;
        Ok(Session { history: history.after(&text), compacted: Some(compacted), ..next })
    }
}

/// The messages that a session has of the one before.
fn handed_over(hand_over: Option<&HandOver>) -> Result<Vec<Said>, CallError> {
    let Some(hand_over) = hand_over else { return Ok(Vec::new()) };
    let texts: Vec<String> = serde_json::from_str(&hand_over.kept).map_err(CallError::internal)?;
    let read = |text: &String| {
        let message = stored::read(text).map_err(CallError::internal)?;
        Ok(Said { run_number: 0, run: String::new(), agent: String::new(), message })
    };
    texts.iter().map(read).collect()
}

fn written(last: &[Said]) -> Result<String, CallError> {
    let texts: Vec<_> = last.iter().map(|said| stored::write(&said.message)).collect();
    serde_json::to_string(&texts).map_err(CallError::internal)
}

fn numbered(logs: Vec<SessionMessage>) -> Result<Vec<Said>, CallError> {
    let read = |SessionMessage { run_number, agent, log }: SessionMessage| {
        let message = stored::read(&log.message).map_err(CallError::internal)?;
        Ok(Said { run_number, run: log.run, agent, message })
    };
    logs.into_iter().map(read).collect()
}

/// The numbers of an agent's runs that have a message of the user.
fn runs_of(agent: &str, all: &[Said]) -> BTreeSet<i64> {
    let own = all.iter().filter(|said| said.agent == agent && matches!(said.message, Message::User(_)));
    own.map(|said| said.run_number).collect()
}

/// The messages as the agent's model got them: with the news of its runs, and without thoughts that are bound to another beginning,
/// also of other agents: each has its own.
fn with_news(all: Vec<Said>, kept: &KeptPrefix, own: &str) -> History {
    let (mut said, mut news) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
    let mut last_run = None;
    for Said { run_number, run, agent, mut message } in all {
        if agent != own || !kept.binds(run_number) {
            message.forget_bound_thoughts();
        }
        // A run has one message of the user.
        let is_first = matches!(message, Message::User(_)) && last_run.replace(run_number) != Some(run_number);
        news.push(kept.news_of(run_number).filter(|_| is_first));
        said.push((run, message));
    }
    History::with_news_of(said, news)
}

fn open_calls(all: &[Said]) -> Vec<OpenCall> {
    let last_turn = all.iter().rposition(|said| said.message.as_assistant().is_some()).unwrap_or_default();
    History::of(pairs(&all[last_turn..])).open
}

fn pairs(said: &[Said]) -> Vec<(String, Message)> {
    said.iter().map(|said| (said.run.clone(), said.message.clone())).collect()
}

fn total_weight(said: &[Said]) -> u64 {
    said.iter().map(|said| context::weight(&said.message)).sum()
}

fn without_summary(old: Option<&str>, count: usize) -> String {
    let note = format!("({count} messages were left out.)");
    old.map_or(note.clone(), |old| format!("{old}\n\n{note}"))
}

/// The messages, each with its run.
/// Errors: `internal`: a message of a newer program.
pub(super) fn said(logs: &[SessionMessage]) -> Result<Vec<(String, Message)>, CallError> {
    let read = |SessionMessage { log, .. }: &SessionMessage| Ok((log.run.clone(), stored::read(&log.message)?));
    logs.iter().map(read).collect::<Result<_, String>>().map_err(CallError::internal)
}

/// The first message that stays: the first of all if they weigh at most `max`; otherwise one of the user, from which on they
/// weigh half of that, or the last one of the user.
fn first_kept(said: &[Said], max: u64) -> usize {
    let mut weight = 0_u64;
    let mut first = None;
    for (index, Said { message, .. }) in said.iter().enumerate().rev() {
        weight = weight.saturating_add(context::weight(message));
        if matches!(message, Message::User(_)) && (first.is_none() || weight <= max / 2) {
            first = Some(index);
        }
    }
    if weight <= max { 0 } else { first.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::message::{AssistantTurn, Thought, TurnPart};
    use crate::session_prefix::{SessionPrefix, ToolsNow};
    use sekisho_store::test_support::test_store;

    #[test]
    fn the_latest_messages_stay_from_one_of_the_user_on() {
        let of = |message: Message| Said { run_number: 1, run: "r".to_owned(), agent: "a".to_owned(), message };
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

    /// By the same API, but after another prompt.
    #[tokio::test]
    async fn thoughts_of_another_agent_are_left_out() {
        let store = test_store().await;
        let prefix = SessionPrefix {
            store: store.clone(),
            conversation: "c".into(),
            session: "s".into(),
            agent: "a".into(),
            run: 1,
            kept: KeptPrefix::default(),
            files: None,
            skills: String::new(),
        };
        let now = ToolsNow { offered: &[], all: Some(&[]) };
        prefix.settle(date(2026, 12, 1), String::new, now, &mut []).await.unwrap();
        let kept = KeptPrefix::load(&store, ["c", "s", "a"]).await.unwrap();
        let said = [(1, "a"), (2, "b"), (3, "a")].map(|(run_number, agent)| {
            let parts = vec![TurnPart::Thought(Thought::Redacted("eA==".into())), TurnPart::Text("so".into())];
            let message = Message::Assistant(AssistantTurn { parts, api: Some("api".into()) });
            Said { run_number, run: run_number.to_string(), agent: agent.to_owned(), message }
        });
        let history = with_news(said.into(), &kept, "a");
        let turns = history.messages.iter().filter_map(Message::as_assistant);
        assert_eq!(turns.map(|turn| turn.thoughts().count()).collect::<Vec<_>>(), [1, 0, 1]);
    }
}
