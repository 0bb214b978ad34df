//! What a model is asked beside its runs: to sum up the tool calls of a reply (A73), and a thread (A42).

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;

use super::message::Message;
use super::models::retry;
use super::models::retry::RetryPolicy;
use super::models::{Model, ModelChunk, ModelError, ModelRequest, Purpose};
use super::prompts::{MAX_SUMMARY, Prompts, beginning, summary_input};
use crate::config::AgentProfile;

/// Tokens of a summary (A46).
const MAX_TOKENS: u32 = 500;

/// Items of the summary of a reply's tool calls (A58).
const MAX_ITEMS: usize = 3;

/// Most characters of each tool's answer that is summed up.
const MAX_ANSWER: usize = 1_000;

/// Most calls that are summed up.
const MAX_CALLS: usize = 50;

/// A tool call that led to a reply.
#[derive(Debug, Clone, Copy)]
pub struct Done<'a> {
    pub tool: &'a str,
    pub success: bool,
    pub text: &'a str,
}

/// The new summary of a thread, from its old one and the latest exchange.
///
/// # Errors
/// The model's failure.
pub async fn of_thread(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    old: Option<&str>,
    [user, reply]: [&str; 2],
) -> Result<String, ModelError> {
    let input = summary_input(old, user, reply);
    let text = ask(model, profile, Purpose::ConversationSummary, prompts.conversation_summary(), input).await?;
    Ok(beginning(text.trim(), MAX_SUMMARY).to_owned())
}

/// What was done for a reply, in a few items.
///
/// # Errors
/// The model's failure.
pub async fn of_calls(
    model: &dyn Model,
    profile: &AgentProfile,
    prompts: &Prompts,
    question: &str,
    calls: &[Done<'_>],
) -> Result<Vec<String>, ModelError> {
    let line = |call: &Done<'_>| {
        let outcome = if call.success { "answered" } else { "failed" };
        format!("- {} {outcome}: {}", call.tool, beginning(call.text, MAX_ANSWER))
    };
    let calls = calls.iter().take(MAX_CALLS).map(line).collect::<Vec<_>>().join("\n");
    let input = format!("Question:\n{}\n\nTool calls:\n{calls}", beginning(question, MAX_ANSWER));
    let text = ask(model, profile, Purpose::CallSummary, prompts.reasoning_summary(), input).await?;
    Ok(items(&text))
}

async fn ask(
    model: &dyn Model,
    profile: &AgentProfile,
    purpose: Purpose,
    prompt: &str,
    input: String,
) -> Result<String, ModelError> {
    let request = ModelRequest {
        purpose,
        messages: vec![Message::System(prompt.to_owned()), Message::User(input)],
        tools: Vec::new(),
        // A46; left out where the model takes none.
        temperature: profile.temperature().map(|_| 0.0),
        max_tokens: MAX_TOKENS,
    };
    // A reply waits for its summary, and a background task should not be long either.
    let patience = RetryPolicy { timeout: profile.timeout(), retries: 0 };
    let work = async {
        let mut pieces = pin!(retry::ask(model, Arc::new(request), patience));
        let mut text = String::new();
        while let Some(piece) = pieces.next().await {
            if let ModelChunk::Text(more) = piece? {
                text.push_str(&more);
            }
        }
        Ok(text)
    };
    retry::within(profile.timeout(), work).await
}

/// The items of a list, one a line, whatever they begin with.
fn items(text: &str) -> Vec<String> {
    let item = |line: &str| {
        let item = line.trim().trim_start_matches(['-', '*', '•']).trim();
        beginning(item, MAX_SUMMARY).to_owned()
    };
    text.lines().map(item).filter(|item| !item.is_empty()).take(MAX_ITEMS).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use futures_util::stream::{self, BoxStream};
    use tokio::time::Instant;

    use super::*;
    use crate::agent::models::StopReason;
    use crate::budget::ModelUsage;

    /// Says one thing, and remembers what it was asked.
    struct Saying(&'static str, Mutex<Vec<Arc<ModelRequest>>>);

    impl Model for Saying {
        fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            self.1.lock().unwrap().push(request);
            let end = ModelChunk::End { stop: StopReason::Stop, usage: ModelUsage::default() };
            stream::iter([Ok(ModelChunk::Text(self.0.into())), Ok(end)]).boxed()
        }
    }

    fn saying(text: &'static str) -> Saying {
        Saying(text, Mutex::default())
    }

    #[tokio::test]
    async fn a_threads_summary_is_asked_for_as_specified_and_never_too_long() {
        let model = saying(concat!("  質質質質質質質質質質", "質質質質質質質質質質"));
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let summary = of_thread(&model, &profile, &prompts, Some("before"), ["q", "a"]).await.unwrap();
        assert_eq!(summary.chars().count(), 20);
        let asked = model.1.lock().unwrap()[0].clone();
        assert_eq!((asked.temperature, asked.max_tokens, asked.tools.len()), (Some(0.0), 500, 0));
        assert!(matches!(&asked.messages[..], [Message::System(_), Message::User(text)] if text.contains("before")));
        let endless = saying(Box::leak("x".repeat(1_000).into_boxed_str()));
        let summary = of_thread(&endless, &profile, &prompts, None, ["q", "a"]).await.unwrap();
        assert_eq!(summary.chars().count(), MAX_SUMMARY);
    }

    /// Says a word now and then, for ever.
    struct Dripping;

    impl Model for Dripping {
        fn stream(&self, _: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
            let word = |()| async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Some((Ok(ModelChunk::Text("word".into())), ()))
            };
            stream::unfold((), word).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_summary_without_an_end_is_not_waited_for() {
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let begun = Instant::now();
        let summary = of_thread(&Dripping, &profile, &prompts, None, ["q", "a"]).await;
        assert_eq!((summary, begun.elapsed()), (Err(ModelError::Timeout), profile.timeout()));
    }

    #[tokio::test]
    async fn calls_are_summed_up_in_three_items_at_most() {
        let model = saying("- looked it up\n\n* found 3\n- third\n- fourth");
        let calls = [Done { tool: "search", success: false, text: "no such page" }];
        let (profile, prompts) = (AgentProfile::default(), Prompts::default());
        let items = of_calls(&model, &profile, &prompts, "what?", &calls).await.unwrap();
        assert_eq!(items, ["looked it up", "found 3", "third"]);
        let asked = model.1.lock().unwrap()[0].clone();
        let Some(Message::User(input)) = asked.messages.last() else { panic!("{asked:?}") };
        assert!(input.contains("- search failed: no such page") && input.contains("what?"), "{input}");
    }
}
