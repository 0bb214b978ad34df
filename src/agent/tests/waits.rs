//! Tools that say when to come again.

use super::*;

/// A tool that refuses some calls, with a wait.
struct NotReady {
    refusals: AtomicUsize,
    wait: Duration,
}

impl Toolbox for NotReady {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(vec![description("poll")]) })
    }

    fn call(&self, _: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let refuse = |left: usize| left.checked_sub(1);
        let refused = self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok();
        let info = json!({"code": "rate_limited", "retryable": true, "retry_after_ms": self.wait.as_secs() * 1_000});
        let text = if refused { "not yet" } else { "ready" }.to_owned();
        let answer = ToolAnswer { success: !refused, text, error_info: refused.then_some(info), images: Vec::new() };
        Box::pin(async { answer })
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_when_to_come_again_is_waited_for() {
    for (refusals, wait, expected, seconds) in
        [(2, 2, Some("ready"), 4), (1, 29, Some("ready"), 29), (1, 31, None, 0), (3, 12, None, 24)]
    {
        let call = json!([{"id": "a", "tool": "poll", "arguments": "{}"}]);
        let model = RecordingModel::new("poll.yaml", &json!({"turns": [{"calls": call}, {"text": ["done"]}]}));
        let toolbox = NotReady { refusals: AtomicUsize::new(refusals), wait: Duration::from_secs(wait) };
        let agent = Agent { model, toolbox: Arc::new(toolbox), profile: Arc::default(), summarizer: None };
        let begun = Instant::now();
        let input = RunInput { messages: question(), ..RunInput::default() };
        let events: Vec<_> = agent.run(input).collect().await;
        let answered = events.iter().find_map(|event| match event {
            Event::ToolResult { result, .. } => Some(result.as_str()),
            _ => None,
        });
        assert_eq!((answered, begun.elapsed().as_secs()), (expected, seconds), "{refusals} times {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_at_once_is_asked_with_growing_pauses() {
    let call = json!([{"id": "a", "tool": "poll", "arguments": "{}"}]);
    let model = RecordingModel::new("poll.yaml", &json!({"turns": [{"calls": call}, {"text": ["done"]}]}));
    let toolbox = Arc::new(NotReady { refusals: AtomicUsize::new(1_000), wait: Duration::ZERO });
    let agent = Agent { model, toolbox: toolbox.clone(), profile: Arc::default(), summarizer: None };
    let input = RunInput { messages: question(), ..RunInput::default() };
    let _: Vec<_> = agent.run(input).collect().await;
    // After 0.5, 1.5, 3.5, 7.5 and 15.5 s.
    assert_eq!(1_000 - toolbox.refusals.load(Ordering::SeqCst), 6);
}
