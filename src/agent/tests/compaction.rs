//! Runs whose conversation is longer than the model can read.

use super::*;
use crate::context;
use crate::message::RequestedCall;
use crate::models::{Purpose, StopReason};
use sekisho_calls::budget::ModelUsage;

/// A model with a window, which refuses a longer request as OpenAI does. It calls `read` so many times, one call a
/// turn, and then answers. Its calls depend on how often it was asked, and not on the conversation.
struct SmallModel {
    window: u64,
    calls: usize,
    /// Tokens that it counts for an estimated one.
    factor: u64,
    answered: AtomicUsize,
    requests: Mutex<Vec<Arc<ModelRequest>>>,
    refusals: AtomicUsize,
    can_summarize: bool,
}

impl SmallModel {
    fn new(window: u64, calls: usize) -> Self {
        Self {
            window,
            calls,
            factor: 1,
            answered: AtomicUsize::new(0),
            requests: Mutex::default(),
            refusals: AtomicUsize::new(0),
            can_summarize: true,
        }
    }

    fn answer(&self, request: &ModelRequest) -> Result<Vec<ModelChunk>, ModelError> {
        let prompt_tokens = context::tokens_of(&request.messages, &request.tools) * self.factor;
        if prompt_tokens + u64::from(request.max_tokens) > self.window {
            self.refusals.fetch_add(1, Ordering::SeqCst);
            let sentence = "This model's maximum context length is exceeded (context_length_exceeded)";
            return Err(ModelError::ContextLength(sentence.into()));
        }
        let end = |stop| ModelChunk::End {
            stop,
            usage: ModelUsage { prompt_tokens, completion_tokens: 1, ..ModelUsage::default() },
        };
        if request.purpose == Purpose::ContextSummary {
            let text = if self.can_summarize { "the pages so far were read" } else { "" };
            return Ok(vec![ModelChunk::Text(text.into()), end(StopReason::Stop)]);
        }
        let turn = self.answered.fetch_add(1, Ordering::SeqCst);
        if turn >= self.calls {
            return Ok(vec![ModelChunk::Text("done".into()), end(StopReason::Stop)]);
        }
        let call = RequestedCall::new(format!("c{turn}"), "read".into(), json!({"page": turn}).to_string());
        Ok(vec![ModelChunk::Call(call), end(StopReason::ToolCalls)])
    }
}

impl Model for SmallModel {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        self.requests.lock().push(Arc::clone(&request));
        match self.answer(&request) {
            Ok(chunks) => futures_util::stream::iter(chunks.into_iter().map(Ok)).boxed(),
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
        }
    }
}

/// Pages of so many bytes, each different from the last.
struct Pages(usize);

impl Toolbox for Pages {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(vec![description("read")]) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let text = format!("page {} {}", call.arguments["page"], "x".repeat(self.0));
        Box::pin(async { ToolAnswer { success: true, text, error_info: None, images: Vec::new() } })
    }
}

/// The events of a run with pages of so many bytes.
async fn play(
    model: &Arc<SmallModel>,
    bytes: usize,
    context_tokens: Option<u64>,
    messages: Vec<Message>,
) -> Vec<Event> {
    let profile =
        AgentProfile { model: Some("small".into()), context_tokens, max_tokens: Some(100), ..AgentProfile::default() };
    let profile = Arc::new(profile);
    let summarizer = Summarizer {
        model: Arc::<SmallModel>::clone(model),
        profile: Arc::clone(&profile),
        prompt: Prompts::default().context_summary().into(),
    };
    let agent = Agent {
        model: Arc::<SmallModel>::clone(model),
        toolbox: Arc::new(Pages(bytes)),
        profile,
        summarizer: Some(summarizer),
    };
    agent.run(RunInput { messages, ..RunInput::default() }).collect().await
}

fn compactions(events: &[Event]) -> Vec<(usize, usize)> {
    let counts = events.iter().filter_map(|event| match event {
        Event::Compacted { results, messages, tokens_before, tokens_after } => {
            assert!(tokens_after < tokens_before, "{event:?}");
            Some((*results, *messages))
        }
        _ => None,
    });
    counts.collect()
}

fn assert_answered(events: &[Event]) {
    let Some(Event::Finished { reason, messages }) = events.iter().rev().nth(1) else { panic!("{events:?}") };
    assert_eq!(*reason, FinishReason::Stop, "{events:?}");
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool(result) => Some(result.text.len()),
        _ => None,
    });
    assert!(results.min().is_some_and(|bytes| bytes > 1_000), "the whole conversation is kept");
}

#[tokio::test]
async fn old_results_become_lines_before_a_request_is_too_long() {
    let model = Arc::new(SmallModel::new(10_000, 12));
    let events = play(&model, 4_000, Some(10_000), question()).await;
    assert_answered(&events);
    assert_eq!(model.refusals.load(Ordering::SeqCst), 0, "the provider never had to refuse");
    let compactions = compactions(&events);
    assert!(!compactions.is_empty() && compactions.iter().all(|(_, messages)| *messages == 0), "{compactions:?}");
    let requests = model.requests.lock();
    let last = requests.last().unwrap();
    let lines = last.messages.iter().filter(|message| {
        matches!(message, Message::Tool(result) if result.text.starts_with("[left out: ")
            && result.text.contains("of the result of `read`, call call_"))
    });
    assert!(lines.count() >= 4, "{last:?}");
    assert_eq!(last.messages.first(), question().first(), "the goal stays");
}

#[tokio::test]
async fn the_older_part_becomes_a_summary_if_lines_are_not_enough() {
    let model = Arc::new(SmallModel::new(2_000, 60));
    let mut messages = vec![Message::System("be brief".into())];
    messages.extend(question());
    let events = play(&model, 1_600, Some(2_000), messages).await;
    // The profile's turns are used up by then; the run goes on through all of them.
    assert!(compactions(&events).iter().any(|(_, messages)| *messages > 0), "{events:?}");
    assert_eq!(model.refusals.load(Ordering::SeqCst), 0);
    let requests = model.requests.lock();
    let summaries: Vec<_> = requests.iter().filter(|request| request.purpose == Purpose::ContextSummary).collect();
    assert!(summaries.len() > 1);
    let Some(Message::User(second)) = summaries[1].messages.last() else { panic!() };
    let second = second.text();
    assert!(second.starts_with("Summary so far:\nthe pages so far were read\n\nMessages:\n"), "{second}");
    assert!(second.contains("Call of `read`: {\"page\":") && second.contains("Result of `read`: page "), "{second}");
    let last = requests.iter().rfind(|request| request.purpose == Purpose::Turn).unwrap();
    let [Message::System(system), Message::User(goal), Message::Assistant(_), ..] = &last.messages[..] else {
        panic!("{last:?}")
    };
    assert_eq!(system, "be brief");
    let summary = "question\n\n[Summary of the earlier conversation]\nthe pages so far were read";
    assert_eq!(goal.text(), summary);
    let calls: Vec<_> =
        last.messages.iter().filter_map(Message::as_assistant).flat_map(crate::message::AssistantTurn::calls).collect();
    let results = last.messages.iter().filter(|message| matches!(message, Message::Tool(_))).count();
    assert_eq!(calls.len(), results, "each call has its result");
}

#[tokio::test]
async fn a_refusal_of_the_provider_compacts_the_conversation_once_and_repeats_the_request() {
    // Neither the window is known nor how the model counts.
    let model = Arc::new(SmallModel { factor: 2, ..SmallModel::new(20_000, 8) });
    let events = play(&model, 8_000, None, question()).await;
    assert_answered(&events);
    assert!(!compactions(&events).is_empty());
    let refusals = model.refusals.load(Ordering::SeqCst);
    assert!((1..=2).contains(&refusals), "what was refused once is not sent again: {refusals}");
    let Some(Event::Usage(usage)) = events.last() else { panic!() };
    assert_eq!((usage.turns, usage.tool_calls), (9, 8), "a refused request is no turn");
}

#[tokio::test]
async fn what_cannot_be_compacted_fails_with_the_providers_sentence() {
    let model = Arc::new(SmallModel::new(1_000, 1));
    let messages = vec![Message::User("x".repeat(8_000).as_str().into())];
    let events = play(&model, 10, None, messages).await;
    let error = events.iter().find_map(|event| match event {
        Event::Error(error) => Some(error),
        _ => None,
    });
    let error = error.unwrap();
    assert_eq!((error.code, error.retryable), (ErrorCode::ContextLengthExceeded, false));
    assert!(error.message.contains("This model's maximum context length"), "{}", error.message);
    assert_eq!(model.refusals.load(Ordering::SeqCst), 1);

    // One compaction, and no more.
    let model = Arc::new(SmallModel::new(3_000, 9));
    let long = vec![Message::User("x".repeat(6_000).as_str().into())];
    let events = play(&model, 3_000, None, long).await;
    assert!(events.iter().any(|event| matches!(event, Event::Error(_))), "{events:?}");
    assert!(model.refusals.load(Ordering::SeqCst) <= 3);
}

#[tokio::test]
async fn without_a_summary_the_older_part_is_left_out_with_a_note() {
    let model = Arc::new(SmallModel { can_summarize: false, ..SmallModel::new(2_000, 20) });
    let events = play(&model, 1_600, Some(2_000), question()).await;
    assert!(compactions(&events).iter().any(|(_, messages)| *messages > 0));
    let requests = model.requests.lock();
    let last = requests.iter().rfind(|request| request.purpose == Purpose::Turn).unwrap();
    let Some(Message::User(goal)) = last.messages.first() else { panic!() };
    assert!(goal.text().contains(" messages were left out.)"), "{}", goal.text());
}
