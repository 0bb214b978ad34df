//! Runs that pause for calls that a person must approve.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::toolbox::OnApproval;

/// `add` answers at once, and `pay` once a person has decided.
#[derive(Default)]
struct Approved {
    is_decided: AtomicBool,
    called: Mutex<Vec<(String, OnApproval)>>,
}

impl Toolbox for Approved {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(["add", "pay"].map(description).into()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let is_decided = self.is_decided.load(Ordering::SeqCst) && matches!(call.on_approval, OnApproval::Resume(_));
        let success = call.tool != "pay" || is_decided;
        let approval = json!({"id": "p", "expires_at": "2030-01-01T00:00:00Z", "url": "https://gateway.test/p"});
        let info = json!({"code": "approval_required", "retryable": false, "approval": approval});
        let text = if success { format!("{} is done", call.tool) } else { "a person must approve it".to_owned() };
        self.called.lock().push((call.tool, call.on_approval));
        let answer = ToolAnswer { success, text, error_info: (!success).then_some(info), images: Vec::new() };
        Box::pin(async { answer })
    }
}

struct Setup {
    agent: Agent,
    model: Arc<RecordingModel>,
    toolbox: Arc<Approved>,
}

impl Setup {
    /// A model whose first turn makes both calls.
    fn new() -> Self {
        let calls = json!([{"id": "a", "tool": "add", "arguments": "{}"}, {"id": "b", "tool": "pay", "arguments": "{\"n\": 1}"}]);
        let script = json!({"turns": [{"text": ["Let me see."], "calls": calls}, {"text": ["done"]}]});
        let (model, toolbox) = (RecordingModel::new("pay.yaml", &script), Arc::new(Approved::default()));
        let agent = Agent { model: model.clone(), toolbox: toolbox.clone(), profile: Arc::default(), summarizer: None };
        Self { agent, model, toolbox }
    }

    async fn run(&self, messages: Vec<Message>) -> Vec<Event> {
        self.agent.run(RunInput { messages, pauses: true, ..RunInput::default() }).collect().await
    }

    /// A run that pauses, and the conversation with its messages.
    async fn paused(&self) -> (Vec<Event>, Vec<Message>) {
        let events = self.run(question()).await;
        let (reason, added) = end_of(&events);
        assert_eq!(reason, FinishReason::ApprovalRequired);
        let messages = [question(), added].concat();
        (events, messages)
    }

    /// Role and text of the messages of the last request, without ids.
    fn last_request(&self) -> Vec<String> {
        let requests = self.model.requests.lock();
        let text = |message: &Message| match message {
            Message::System(text) => format!("system: {text}"),
            Message::User(message) => format!("user: {}", message.text()),
            Message::Assistant(turn) => format!("assistant: {}", turn.text()),
            Message::Tool(answer) => format!("{}: {}", answer.tool, answer.text),
        };
        requests.last().unwrap().messages.iter().map(text).collect()
    }
}

fn end_of(events: &[Event]) -> (FinishReason, Vec<Message>) {
    let end = events.iter().find_map(|event| match event {
        Event::Finished { reason, messages } => Some((*reason, messages.clone())),
        _ => None,
    });
    end.unwrap()
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::name).collect()
}

#[tokio::test]
async fn a_run_pauses_after_the_other_calls_of_the_turn() {
    let setup = Setup::new();
    let (events, messages) = setup.paused().await;
    let expected = ["content", "tool_input", "tool_input", "tool_result", "approval", "status", "finished", "usage"];
    assert_eq!(names(&events), expected);
    let Event::Approval(paused) = &events[4] else { panic!("{events:?}") };
    let [_, Message::Assistant(turn), Message::Tool(answer)] = &messages[..] else { panic!("{messages:?}") };
    let calls: Vec<_> = turn.calls().collect();
    assert_eq!((calls[0].approval.as_deref(), calls[1].approval.as_deref()), (None, Some("p")));
    assert_eq!((&answer.call_id, answer.text.as_str()), (&calls[0].id, "add is done"));
    assert_eq!((&paused.call_id, &*paused.id, paused.tool.as_str()), (&calls[1].id, "p", "pay"));
    let event = serde_json::to_value(&events[4]).unwrap();
    let expected = json!({"type": "approval", "id": "p", "call_id": calls[1].id, "tool": "pay",
        "expires_at": "2030-01-01T00:00:00Z", "url": "https://gateway.test/p"});
    assert_eq!(event, expected);
    let Event::Status { status, message } = &events[5] else { panic!("{events:?}") };
    assert_eq!(status, "approval_required");
    assert!(message.contains("`pay` at https://gateway.test/p"), "{message}");
}

#[tokio::test]
async fn a_paused_run_goes_on_where_it_stopped_once_somebody_has_decided() {
    let setup = Setup::new();
    let (_, messages) = setup.paused().await;
    let events = setup.run(messages.clone()).await;
    assert_eq!(names(&events), ["tool_input", "approval", "status", "finished", "usage"], "nobody has decided");
    assert_eq!(end_of(&events), (FinishReason::ApprovalRequired, Vec::new()));
    assert_eq!(setup.model.requests.lock().len(), 1, "the model is not asked meanwhile");
    setup.toolbox.is_decided.store(true, Ordering::SeqCst);
    let events = setup.run(messages).await;
    assert_eq!(names(&events), ["tool_input", "tool_result", "resumed", "content", "finished", "usage"]);
    let Event::Resumed { answer } = &events[2] else { panic!("{events:?}") };
    assert_eq!((answer.text.as_str(), answer.is_error), ("pay is done", false));
    let expected = ["user: question", "assistant: Let me see.", "add: add is done", "pay: pay is done"];
    assert_eq!(setup.last_request(), expected);
    let (reason, added) = end_of(&events);
    assert_eq!((reason, added.len()), (FinishReason::Stop, 1), "the answer belongs to the turn before");
    let called = setup.toolbox.called.lock();
    let calls: Vec<_> = called.iter().map(|(tool, on_approval)| (tool.as_str(), on_approval.clone())).collect();
    let resumed = || ("pay", OnApproval::Resume("p".into()));
    assert_eq!(calls, [("add", OnApproval::Pause), ("pay", OnApproval::Pause), resumed(), resumed()]);
}

#[tokio::test]
async fn what_the_user_says_meanwhile_is_answered_without_the_call() {
    let setup = Setup::new();
    let (_, mut messages) = setup.paused().await;
    messages.push(Message::User("never mind".into()));
    let events = setup.run(messages.clone()).await;
    assert_eq!(names(&events), ["tool_input", "tool_error", "resumed", "content", "finished", "usage"]);
    let request = setup.last_request();
    assert!(request[3].starts_with("pay: Error: The call waits for a person"), "{request:?}");
    assert_eq!(request[4], "user: never mind");
    setup.toolbox.is_decided.store(true, Ordering::SeqCst);
    setup.run(messages).await;
    assert_eq!(setup.last_request()[3..], ["pay: pay is done", "user: never mind"]);
}

#[tokio::test]
async fn a_run_that_nobody_stores_tells_the_model() {
    let setup = Setup::new();
    let events: Vec<_> = setup.agent.run(RunInput { messages: question(), ..RunInput::default() }).collect().await;
    assert!(names(&events).contains(&"tool_error") && !names(&events).contains(&"approval"), "{events:?}");
    assert_eq!(setup.toolbox.called.lock()[1].1, OnApproval::Wait);
}
