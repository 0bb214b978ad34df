//! The beginning of a session's requests to a model: the system prompt and the tools of its first request. Every later request
//! begins with the same bytes, so that the provider finds the conversation in its cache and takes back thoughts that are bound to
//! them. News (the date, files of the workspace, skills, tools) follow the user's message, and stay there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::context::{self, CHARACTERS_OF_A_TOKEN};
use super::message::{Message, UserPart};
use super::session_news;
use super::toolbox::ToolDescription;
use sekisho_core::error::CallError;
use sekisho_store::{Store, StoredPrefix};

/// Grows when the form changes so that earlier programs cannot read it.
const VERSION: u32 = 1;

/// The beginning of an agent's requests in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Prefix {
    version: u32,
    pub(super) system: String,
    pub(super) tools: Vec<ToolDescription>,
    /// As the system prompt and the tools show it.
    state: State,
    /// Whether a run had to shorten the messages: the next one begins another session.
    #[serde(default)]
    is_closed: bool,
}

/// The state of all that may change between two runs; `None`: not shown, or as before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) date: Option<String>,
    /// Names of the files in the workspace.
    pub(super) files: Option<Vec<String>>,
    /// The text about the skills that the user prefers; empty for none.
    pub(super) skills: Option<String>,
    /// A digest of each tool, by its name.
    pub(super) tools: Option<BTreeMap<String, String>>,
}

/// The news of one run.
#[derive(Debug, Clone, PartialEq)]
struct News {
    /// The number of the run.
    run: i64,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Content {
    text: Arc<str>,
    /// As far as it changed.
    state: State,
}

/// The prefix of an agent in a session as the store has it, with the news since.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptPrefix {
    prefix: Option<Prefix>,
    /// The number of the run that began it. Thoughts of earlier runs are bound to another beginning.
    first_run: i64,
    news: Vec<News>,
}

impl KeptPrefix {
    /// Errors: the store cannot be used; `internal`: the prefix is of a newer program.
    pub(super) async fn load(store: &Store, [conversation, session, agent]: [&str; 3]) -> Result<Self, CallError> {
        let stored = store.conversation_logs().session_prefix(conversation, session, agent).await;
        let Some(stored) = stored.map_err(CallError::from)? else { return Ok(Self::default()) };
        let prefix: Prefix = serde_json::from_str(&stored.prefix).map_err(CallError::internal)?;
        if prefix.version != VERSION {
            let message = format!("a prefix has version {}, and this program reads {VERSION}", prefix.version);
            return Err(CallError::internal(message));
        }
        let read = |(run, content): (i64, String)| {
            let content = serde_json::from_str(&content).map_err(CallError::internal)?;
            Ok(News { run, content })
        };
        let news = stored.news.into_iter().map(read).collect::<Result<_, CallError>>()?;
        Ok(Self { prefix: Some(prefix), first_run: stored.first_run, news })
    }

    /// Forgets the news of other runs than these, whose messages the session does not have: a fork may end within a run.
    pub(super) fn keep_news_of(&mut self, runs: &BTreeSet<i64>) {
        self.news.retain(|news| runs.contains(&news.run));
    }

    /// The news that the model got with the user's message of a run.
    pub(super) fn news_of(&self, run: i64) -> Option<Arc<str>> {
        self.news.iter().find(|news| news.run == run).map(|news| Arc::clone(&news.content.text))
    }

    /// Whether thoughts of a run of its agent are bound to this prefix.
    pub(super) fn binds(&self, run: i64) -> bool {
        self.prefix.is_some() && run >= self.first_run
    }

    /// How much of each request it takes with the news, in characters.
    pub(super) fn weight(&self) -> u64 {
        let prefix = self.prefix.as_ref().map_or(0, |prefix| {
            context::tokens_of(&[Message::System(prefix.system.clone())], &prefix.tools) * CHARACTERS_OF_A_TOKEN
        });
        let news: usize = self.news.iter().map(|news| news.content.text.len()).sum();
        prefix.saturating_add(u64::try_from(news).unwrap_or(u64::MAX))
    }

    /// Whether the next run is to begin another session.
    pub(super) fn is_closed(&self) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| prefix.is_closed)
    }

    /// The state that the model knows.
    fn state(&self, prefix: &Prefix) -> State {
        self.news.iter().fold(prefix.state.clone(), |known, news| {
            let State { date, files, skills, tools } = news.content.state.clone();
            State {
                date: date.or(known.date),
                files: files.or(known.files),
                skills: skills.or(known.skills),
                tools: tools.or(known.tools),
            }
        })
    }
}

/// The prefix of one run.
pub struct SessionPrefix {
    pub(super) store: Store,
    pub(super) conversation: String,
    pub(super) session: String,
    pub(super) agent: String,
    /// The number of the run.
    pub(super) run: i64,
    pub(super) kept: KeptPrefix,
    /// Names of the files in the workspace, for a conversation that has one.
    pub(super) files: Option<Vec<String>>,
    /// The text about the skills that the user prefers.
    pub(super) skills: String,
}

/// The tools of a run at the time that it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolsNow<'a> {
    /// Those that a first request would offer.
    pub(super) offered: &'a [ToolDescription],
    /// All that a call can reach; `None`: they could not be listed.
    pub(super) all: Option<&'a [ToolDescription]>,
}

/// The system prompt and the tools that a run sends.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) system: String,
    pub(super) tools: Vec<ToolDescription>,
}

impl SessionPrefix {
    /// Whether the session has one already.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.prefix.is_some()
    }

    /// The prefix of the session. A first run stores its own, made by `system`; a later one adds its news to the user's message,
    /// the last one, and stores these, before anything is sent.
    /// Errors: the store cannot be used.
    pub(super) async fn settle(
        &self,
        today: Date,
        system: impl FnOnce() -> String,
        tools: ToolsNow<'_>,
        messages: &mut [Message],
    ) -> Result<Frozen, CallError> {
        let now = State {
            date: Some(today.to_string()),
            files: self.files.clone(),
            skills: Some(self.skills.clone()),
            tools: tools.all.map(session_news::digests),
        };
        let Some(prefix) = &self.kept.prefix else {
            messages.iter_mut().for_each(Message::forget_bound_thoughts);
            let (system, tools) = (system(), tools.offered.to_vec());
            let prefix =
                Prefix { version: VERSION, system: system.clone(), tools: tools.clone(), state: now, is_closed: false };
            self.keep(&prefix, self.run, &[]).await?;
            return Ok(Frozen { system, tools });
        };
        let frozen = Frozen { system: prefix.system.clone(), tools: prefix.tools.clone() };
        let Some(Message::User(last)) = messages.last_mut() else { return Ok(frozen) };
        let known = self.kept.state(prefix);
        let Some((text, state)) = session_news::between(&known, &now, &prefix.tools, tools.all.unwrap_or_default())
        else {
            return Ok(frozen);
        };
        let text: Arc<str> = text.into();
        last.parts.push(as_part(&text));
        let mut news = self.kept.news.clone();
        news.push(News { run: self.run, content: Content { text, state } });
        self.keep(prefix, self.kept.first_run, &news).await?;
        Ok(frozen)
    }

    /// A run shortened the messages of the session: the next run continues it in another one.
    pub(super) async fn close(&self) -> Result<(), CallError> {
        let kept = KeptPrefix::load(&self.store, [&self.conversation, &self.session, &self.agent]).await?;
        match kept.prefix {
            Some(prefix) => self.keep(&Prefix { is_closed: true, ..prefix }, kept.first_run, &kept.news).await,
            None => Ok(()),
        }
    }

    async fn keep(&self, prefix: &Prefix, first_run: i64, news: &[News]) -> Result<(), CallError> {
        let prefix = serde_json::to_string(prefix).map_err(CallError::internal)?;
        let written = |News { run, content }: &News| Ok((*run, serde_json::to_string(content)?));
        let news = news.iter().map(written).collect::<Result<_, serde_json::Error>>().map_err(CallError::internal)?;
        let stored = StoredPrefix { first_run, prefix, news };
        let logs = self.store.conversation_logs();
        logs.keep_session_prefix(&self.conversation, &self.session, &self.agent, &stored).await.map_err(CallError::from)
    }
}

/// News as a part at the end of a message of the user.
pub(super) fn as_part(news: &str) -> UserPart {
    UserPart::Text(format!("\n\n{news}").into())
}

impl fmt::Debug for SessionPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionPrefix")
            .field("conversation", &self.conversation)
            .field("session", &self.session)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
