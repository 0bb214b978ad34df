//! Summaries by a model: of the tool calls of a reply (A73), of a thread (A42), of messages that a model cannot read
//! any more, and in a title (C32).

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;

use super::message::Message;
use super::models::retry;
use super::models::retry::RetryPolicy;
use super::models::{Model, ModelChunk, ModelError, ModelRequest, Purpose};
use super::prompts::{MAX_SUMMARY, MAX_TITLE, Prompts, beginning, summary_input, title_input};
use sekisho_config::AgentProfile;

/// Maximum tokens of a summary (A46).
const MAX_TOKENS: u32 = 500;

/// Maximum tokens of the summary of a conversation's older part.
const MAX_CONTEXT_TOKENS: u32 = 1_500;

/// Maximum items in the summary of a reply's tool calls (A58).
const MAX_ITEMS: usize = 3;

/// Maximum characters of each tool result in the input.
const MAX_ANSWER: usize = 1_000;

/// Maximum calls in the input.
const MAX_CALLS: usize = 50;

/// A tool call that led to a reply.
#[derive(Debug, Clone, Copy)]
pub struct CompletedCall<'a> {
    pub tool: &'a str,
    pub success: bool,
    pub text: &'a str,
}

/// The new summary of a thread, from its old one and the latest exchange.
pub async fn of_thread(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    old: Option<&str>,
    [user, reply]: [&str; 2],
) -> Result<String, ModelError> {
    let input = summary_input(old, user, reply);
    let text =
        ask(model, profile, (Purpose::ConversationSummary, MAX_TOKENS), prompts.conversation_summary(), input).await?;
    Ok(beginning(text.trim(), MAX_SUMMARY).to_owned())
}

/// The summary of the older part of a conversation, from its old one and the messages since.
pub async fn of_context(
    model: &dyn Model,
    profile: &AgentProfile,
    prompt: &str,
    old: Option<&str>,
    messages: &str,
) -> Result<String, ModelError> {
    let old = old.map(|old| format!("Summary so far:\n{old}\n\n")).unwrap_or_default();
    let input = format!("{old}Messages:\n{messages}");
    let text = ask(model, profile, (Purpose::ContextSummary, MAX_CONTEXT_TOKENS), prompt, input).await?;
    Ok(text.trim().to_owned())
}

/// The summary of a reply's calls, in a few items.
pub async fn of_calls(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    question: &str,
    calls: &[CompletedCall<'_>],
) -> Result<Vec<String>, ModelError> {
    let line = |call: &CompletedCall<'_>| {
        let outcome = if call.success { "answered" } else { "failed" };
        format!("- {} {outcome}: {}", call.tool, beginning(call.text, MAX_ANSWER))
    };
    let calls = calls.iter().take(MAX_CALLS).map(line).collect::<Vec<_>>().join("\n");
    let input = format!("Question:\n{}\n\nTool calls:\n{calls}", beginning(question, MAX_ANSWER));
    let text = ask(model, profile, (Purpose::CallSummary, MAX_TOKENS), prompts.reasoning_summary(), input).await?;
    Ok(items(&text))
}

/// The title of a conversation; `None` if the model wrote none.
pub async fn title(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    [user, reply]: [&str; 2],
) -> Result<Option<String>, ModelError> {
    let input = title_input(user, reply);
    let text = ask(model, profile, (Purpose::Title, MAX_TOKENS), prompts.title(), input).await?;
    // A fence of Markdown is no title, and characters that change the order of a line would show another one.
    let text = text.replace(is_hidden, "");
    let line =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```")).unwrap_or_default();
    // Models put titles into quotes, or mark them as headings.
    let line = line.trim_start_matches('#').trim_matches(['"', '\'', '*', '「', '」', '“', '”', ' ']);
    let title = beginning(line, MAX_TITLE).trim_end();
    Ok((!title.is_empty()).then(|| title.to_owned()))
}

/// Control characters, and those that change the direction of a text
/// (<https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters>).
fn is_hidden(character: char) -> bool {
    let is_directional =
        matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    is_directional || character.is_control() && character != '\n'
}

async fn ask(
    model: &dyn Model,
    profile: &AgentProfile,
    (purpose, max_tokens): (Purpose, u32),
    prompt: &str,
    input: String,
) -> Result<String, ModelError> {
    let messages = vec![Message::System(prompt.to_owned()), Message::User(input.into())];
    let request = ModelRequest::own(purpose, messages, max_tokens, profile);
    // The reply waits for this summary, and a background task should be short too.
    let policy = RetryPolicy { timeout: profile.brief_timeout(), retries: 0, end: None };
    let work = async {
        let mut pieces = pin!(retry::ask(model, Arc::new(request), policy));
        let mut text = String::new();
        while let Some(piece) = pieces.next().await {
            if let ModelChunk::Text(more) = piece? {
                text.push_str(&more);
            }
        }
        Ok(text)
    };
    retry::within(profile.brief_timeout(), work).await
}

/// The items of a list, one a line, without their bullets.
fn items(text: &str) -> Vec<String> {
    let item = |line: &str| {
        let item = line.trim().trim_start_matches(['-', '*', '•']).trim();
        beginning(item, MAX_SUMMARY).to_owned()
    };
    text.lines().map(item).filter(|item| !item.is_empty()).take(MAX_ITEMS).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream::{self, BoxStream};
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::models::StopReason;
    use sekisho_calls::budget::ModelUsage;

    /// Answers with one text, and records the requests.
    struct ScriptedModel(&'static str, Mutex<Vec<Arc<ModelRequest>>>);

    impl Model for ScriptedModel {
        fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            self.1.lock().push(request);
            let end = ModelChunk::End { stop: StopReason::Stop, usage: ModelUsage::default() };
            stream::iter([Ok(ModelChunk::Text(self.0.into())), Ok(end)]).boxed()
        }
    }

    fn model_answering(text: &'static str) -> ScriptedModel {
        ScriptedModel(text, Mutex::default())
    }

    #[tokio::test]
    async fn a_threads_summary_is_requested_as_specified_and_never_too_long() {
        let model = model_answering(concat!("  質質質質質質質質質質", "質質質質質質質質質質"));
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let summary = of_thread(&model, &profile, &prompts, Some("before"), ["q", "a"]).await.unwrap();
        assert_eq!(summary.chars().count(), 20);
        let request = model.1.lock()[0].clone();
        assert_eq!((request.options.temperature, request.max_tokens, request.tools.len()), (Some(0.0), 500, 0));
        assert!(
            matches!(&request.messages[..], [Message::System(_), Message::User(text)] if text.text().contains("before"))
        );
        let endless = model_answering(Box::leak("x".repeat(1_000).into_boxed_str()));
        let summary = of_thread(&endless, &profile, &prompts, None, ["q", "a"]).await.unwrap();
        assert_eq!(summary.chars().count(), MAX_SUMMARY);
    }

    /// Sends a word every 20 seconds without end.
    struct EndlessModel;

    impl Model for EndlessModel {
        fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            let word = |()| async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Some((Ok(ModelChunk::Text("word".into())), ()))
            };
            stream::unfold((), word).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_summary_without_an_end_times_out() {
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let begun = Instant::now();
        let summary = of_thread(&EndlessModel, &profile, &prompts, None, ["q", "a"]).await;
        assert_eq!((summary, begun.elapsed()), (Err(ModelError::Timeout), profile.brief_timeout()));
    }

    #[tokio::test]
    async fn calls_are_summarized_in_three_items_at_most() {
        let model = model_answering("- looked it up\n\n* found 3\n- third\n- fourth");
        let calls = [CompletedCall { tool: "search", success: false, text: "no such page" }];
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let items = of_calls(&model, &profile, &prompts, "what?", &calls).await.unwrap();
        assert_eq!(items, ["looked it up", "found 3", "third"]);
        let request = model.1.lock()[0].clone();
        let Some(Message::User(input)) = request.messages.last() else { panic!("{request:?}") };
        let input = input.text();
        assert!(input.contains("- search failed: no such page") && input.contains("what?"), "{input}");
    }

    #[tokio::test]
    async fn a_title_is_one_line_of_at_most_fifty_characters() {
        let profile = AgentProfile::default();
        for (answer, expected) in [
            ("\n\"Warm weather\"\nMore.", Some("Warm weather")),
            ("# 「天気」", Some("天気")),
            (" \n", None),
            ("```\nWarm\n```", Some("Warm")),
            ("Wa\u{202E}rm\u{1B}", Some("Warm")),
        ] {
            let model = ScriptedModel(answer, Mutex::default());
            let found = title(&model, &profile, &Prompts::default(), ["Is it warm?", "Yes."]).await.unwrap();
            assert_eq!(found.as_deref(), expected, "{answer:?}");
            let request = Arc::clone(&model.1.lock()[0]);
            assert_eq!(request.purpose, Purpose::Title);
            let Message::User(input) = &request.messages[1] else { panic!("{request:?}") };
            assert!(input.text().contains("Is it warm?") && input.text().contains("Yes."));
        }
        let long = ScriptedModel(
            "関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関関",
            Mutex::default(),
        );
        let found = title(&long, &profile, &Prompts::default(), ["a", "b"]).await.unwrap().unwrap();
        assert_eq!(found.chars().count(), 50);
    }
}
