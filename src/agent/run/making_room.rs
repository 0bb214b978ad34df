//! Compacts the conversation of a run when its next request is too long for the model.

use tracing::Span;

use super::compaction::SummaryTask;
use super::progress::Progress;
use crate::context;
use crate::event::Event;
use crate::meter::{Meter, MeteredModel};
use crate::{Agent, summary};
use sekisho_config::AgentProfile;

/// Characters of the text to summarize if the window of the model is not known.
const TRANSCRIPT_CHARACTERS: usize = 60_000;

/// After it, a request has at most this share of the model's window, so that the next turns fit, too: a percentage.
const TARGET_PERCENT: u64 = 70;

/// The same after the provider refused a request.
const TARGET_PERCENT_AFTER_REFUSAL: u64 = 50;

/// Before a request: compacts the conversation if it would be too long. The event, if it did.
pub(super) async fn before_request(
    agent: &Agent,
    progress: &mut Progress,
    meter: &Meter,
    span: &Span,
) -> Option<Event> {
    let limit = progress.room.limit(progress.max_tokens(&agent.profile))?;
    let tokens = progress.next_tokens();
    if tokens <= limit {
        return None;
    }
    compact(agent, progress, (meter, span), (tokens, limit * TARGET_PERCENT / 100)).await
}

/// After the provider refused a request as too long. The event, if there was something to compact.
pub(super) async fn after_refusal(agent: &Agent, progress: &mut Progress, meter: &Meter, span: &Span) -> Option<Event> {
    let tokens = progress.room.refused();
    compact(agent, progress, (meter, span), (tokens, tokens * TARGET_PERCENT_AFTER_REFUSAL / 100)).await
}

/// From `tokens` to at most the `target`, as far as that is possible.
async fn compact(
    agent: &Agent,
    progress: &mut Progress,
    at: (&Meter, &Span),
    (tokens, target): (u64, u64),
) -> Option<Event> {
    let results = progress.shorten_results(tokens - target);
    let mut messages = 0;
    if progress.next_tokens() > target
        && let Some(task) = progress.next_to_summarize()
    {
        messages = task.messages.len();
        let text = summarize(agent, progress, at, &task).await;
        progress.compaction.summarize(&task, text);
    }
    if results == 0 && messages == 0 {
        return None;
    }
    progress.unbind_thoughts();
    let tokens_after = progress.next_tokens();
    tracing::info!(
        results,
        messages,
        tokens,
        tokens_after,
        "the conversation was too long for the model and is compacted"
    );
    Some(Event::Compacted { results, messages, tokens_before: tokens, tokens_after })
}

/// Maximum characters of a text that a model is to summarize: half of its window, since some characters are a token each.
pub(crate) fn transcript_characters(profile: &AgentProfile) -> usize {
    let characters = context::window_of(profile).and_then(|tokens| usize::try_from(tokens / 2).ok());
    characters.unwrap_or(TRANSCRIPT_CHARACTERS)
}

/// `None` if there is no model for summaries, or it fails.
async fn summarize(
    agent: &Agent,
    progress: &Progress,
    (meter, span): (&Meter, &Span),
    task: &SummaryTask,
) -> Option<String> {
    let summarizer = agent.summarizer.as_ref()?;
    let profile = &*summarizer.profile;
    let transcript = task.transcript(progress.conversation(), transcript_characters(profile));
    let model = MeteredModel { model: &*summarizer.model, meter, profile, span, end: None };
    let text = summary::of_context(&model, profile, &summarizer.prompt, task.old.as_deref(), &transcript).await;
    match text {
        Ok(text) if !text.is_empty() => Some(text),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, "the older part of a conversation is left out without a summary");
            None
        }
    }
}
