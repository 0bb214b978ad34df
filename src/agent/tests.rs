//! Scripted conversations as data (`tests/agent/*.yaml`), and runs that end from outside.

mod approvals;
mod compaction;
mod options;
mod recorded;
mod traces;
mod waits;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call_ids::short_id;
use super::meter::Account;
use super::models::{ModelChunk, ModelError, ModelRequest, Replay};
use super::toolbox::{ToolAnswer, ToolboxCall, ToolboxUnreachable};
use super::*;
use sekisho_calls::budget::Budgets;
use sekisho_config::{BudgetConfig, Thinking};
use sekisho_core::call::{BudgetScopes, Caller};
use sekisho_core::checkout::checkout;
use sekisho_core::error::ErrorCode;
use sekisho_observe::metrics::Metrics;

/// The model's turns, the tools' results, and the expected events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    profile: AgentProfile,
    /// The script, in the form that `replay` plays.
    model: Value,
    #[serde(default)]
    tools: Vec<ScriptedTool>,
    #[serde(default)]
    client_tools: Vec<String>,
    #[serde(default)]
    toolbox_unreachable: bool,
    /// The maximum cost of the run's model, as `budget` of the configuration.
    budget: Option<BudgetConfig>,
    /// The run is aborted after so many seconds.
    abort_after_seconds: Option<f64>,
    /// The client disconnects after so many events.
    leaves_after_events: Option<usize>,
    /// How long the run takes.
    takes_seconds: Option<u64>,
    events: Vec<Value>,
    /// The tools of the last request to the model.
    last_offer: Option<Vec<String>>,
    /// The last request to the model: role and text of each message after the first.
    last_request: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    takes_seconds: f64,
    answer: Option<String>,
    error: Option<String>,
    error_info: Option<Value>,
}

/// Scripted tools that count how many of their calls are running.
#[derive(Default)]
struct ScriptedToolbox {
    tools: Vec<ScriptedTool>,
    unreachable: bool,
    running: Arc<AtomicUsize>,
}

/// One running call; dropped when the call ends or is cancelled.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Toolbox for ScriptedToolbox {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        let described =
            |tool: &ScriptedTool| ToolDescription { description: tool.description.clone(), ..description(&tool.name) };
        let tools = self.tools.iter().map(described).collect();
        let listed = if self.unreachable { Err(ToolboxUnreachable("nobody listens".into())) } else { Ok(tools) };
        Box::pin(async { listed })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        Box::pin(async move {
            let _running = running;
            let Some(tool) = self.tools.iter().find(|tool| tool.name == call.tool) else {
                let text = format!("there is no tool `{}`", call.tool);
                return ToolAnswer { success: false, text, error_info: None, images: Vec::new() };
            };
            tokio::time::sleep(Duration::from_secs_f64(tool.takes_seconds)).await;
            let echo = || serde_json::to_string(&call.arguments).unwrap();
            let text = tool.error.clone().or_else(|| tool.answer.clone()).unwrap_or_else(echo);
            let error_info = tool.error_info.clone();
            ToolAnswer { success: tool.error.is_none(), text, error_info, images: Vec::new() }
        })
    }
}

/// A script that records the requests.
struct RecordingModel {
    script: Replay,
    requests: Mutex<Vec<Arc<ModelRequest>>>,
}

impl RecordingModel {
    fn new(name: &str, script: &Value) -> Arc<Self> {
        let script = Replay::parse(name, &script.to_string()).unwrap();
        Arc::new(Self { script, requests: Mutex::default() })
    }
}

impl Model for RecordingModel {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        self.requests.lock().push(Arc::clone(&request));
        self.script.stream(request)
    }
}

fn description(name: &str) -> ToolDescription {
    let parameters = Arc::new(json!({"type": "object"}));
    ToolDescription { name: name.into(), description: String::new(), parameters, is_deferred: false }
}

fn question() -> Vec<Message> {
    vec![Message::User("question".into())]
}

/// Role and text, with the calls of an assistant by id.
fn brief(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({"system": text}),
        Message::User(text) => json!({"user": text.text()}),
        Message::Assistant(turn) => {
            let calls: Vec<_> = turn.calls().map(|call| &call.id).collect();
            json!({"assistant": turn.text(), "calls": calls})
        }
        Message::Tool(answer) => json!({"tool": answer.call_id, "text": answer.text}),
    }
}

/// Events as JSON, without durations, which differ from run to run, and without `content`, which repeats another member.
fn event_json(events: &[Event], names: &Names) -> Vec<Value> {
    let mut values: Vec<_> = events.iter().map(|event| names.used_in(serde_json::to_value(event).unwrap())).collect();
    for event in &mut values {
        if let Some(event) = event.as_object_mut() {
            event.shift_remove("duration_ms");
            event.shift_remove("content");
        }
    }
    values
}

/// The names that a case uses for the random ids of calls: the script's own ids, or `own 1`, `own 2` … if the script
/// gives none or repeats one.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn of(events: &[Event]) -> Self {
        let (mut names, mut given) = (HashMap::new(), HashSet::new());
        let added = events.iter().flat_map(|event| match event {
            Event::Finished { messages, .. } => &messages[..],
            _ => &[],
        });
        for message in added {
            let Message::Assistant(turn) = message else { continue };
            for call in turn.calls() {
                let id = call.provider_id.as_ref().unwrap().id.clone();
                let is_free = !id.is_empty() && given.insert(id.clone());
                let name = if is_free { id } else { format!("own {}", names.len() + 1) };
                names.insert(call.id.clone(), name);
            }
        }
        // From a run whose client disconnected early.
        for event in events {
            if let Event::ToolInput { id, .. } = event {
                let name = format!("own {}", names.len() + 1);
                names.entry(id.clone()).or_insert(name);
            }
        }
        // Where a provider has no id of its own, it gets a short one.
        let short: Vec<_> = names.iter().map(|(id, name)| (short_id(id), name.clone())).collect();
        names.extend(short);
        Self(names)
    }

    fn used_in(&self, mut value: Value) -> Value {
        match &mut value {
            Value::String(text) => text.clone_from(self.0.get(text).unwrap_or(&text.clone())),
            Value::Array(items) => items.iter_mut().for_each(|item| *item = self.used_in(item.take())),
            Value::Object(fields) => fields.values_mut().for_each(|field| *field = self.used_in(field.take())),
            _ => {}
        }
        value
    }
}

/// A request with a cost limit.
fn paid_by(budget: &BudgetConfig) -> Meter {
    let budgets = Arc::new(Budgets::new(budget));
    let scopes = BudgetScopes { request: Some("r".into()), ..BudgetScopes::default() };
    let (caller, metrics) = (Arc::new(Caller::new("ann", "acme", Vec::new())), Arc::new(Metrics::new("ns").unwrap()));
    Meter::paid_by(Account { budgets, caller, scopes, metrics })
}

/// Each request of a run begins with the messages of the one before, and has its tools.
fn assert_append_only(name: &str, requests: &[Arc<ModelRequest>]) {
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let begins_as_before = after.messages.starts_with(&before.messages);
        assert!(begins_as_before && before.tools == after.tools, "{name}: {before:#?}\nis no beginning of\n{after:#?}");
    }
}

async fn check(name: &str, case: Case) {
    let model = RecordingModel::new(name, &case.model);
    let toolbox = ScriptedToolbox { tools: case.tools, unreachable: case.toolbox_unreachable, ..Default::default() };
    let (running, begun) = (Arc::clone(&toolbox.running), Instant::now());
    let agent = Agent {
        model: Arc::<RecordingModel>::clone(&model),
        toolbox: Arc::new(toolbox),
        profile: Arc::new(case.profile),
        summarizer: None,
    };
    let client_tools = case.client_tools.iter().map(|tool| description(tool)).collect();
    let meter = Arc::new(case.budget.as_ref().map(paid_by).unwrap_or_default());
    let input = RunInput { messages: question(), client_tools, meter, ..RunInput::default() };
    if let Some(seconds) = case.abort_after_seconds {
        let abort = input.abort.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            abort.cancel();
        });
    }
    let max_events = case.leaves_after_events.unwrap_or(usize::MAX);
    let events: Vec<_> = agent.run(input).take(max_events).collect().await;
    assert_eq!(running.load(Ordering::SeqCst), 0, "{name}: no call runs after the run");
    if let Some(seconds) = case.takes_seconds {
        assert_eq!(begun.elapsed().as_secs(), seconds, "{name}");
    }
    assert_append_only(name, &model.requests.lock());
    let names = Names::of(&events);
    let actual = event_json(&events, &names);
    assert_eq!(Value::from(actual.clone()), Value::from(case.events), "{name}: {:#}", Value::from(actual));
    if let Some(expected) = case.last_offer {
        let requests = model.requests.lock();
        let offered: Vec<_> = requests.last().unwrap().tools.iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(offered, expected, "{name}");
    }
    if let Some(expected) = case.last_request {
        let requests = model.requests.lock();
        let messages = requests.last().unwrap().messages.iter().skip(1);
        let messages: Vec<_> = messages.map(|message| names.used_in(brief(message))).collect();
        assert_eq!(Value::from(messages), Value::from(expected), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn scripted_conversations_give_the_expected_events() {
    let mut played = 0;
    for entry in fs::read_dir(checkout().join("tests/agent")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let case = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap());
        check(&name, case.unwrap_or_else(|problem| panic!("{name}: {problem}"))).await;
        played += 1;
    }
    assert!(played >= 32, "only {played} conversations");
}

/// An agent that sends "Let me see." and calls a tool that never returns.
fn hanging(profile: AgentProfile) -> (Agent, Arc<AtomicUsize>) {
    let call = json!({"id": "a", "tool": "hang", "arguments": "{}"});
    let script = json!({"turns": [{"text": ["Let me see."], "calls": [call]}]});
    let hang = ScriptedTool { name: "hang".into(), takes_seconds: 1e9, ..ScriptedTool::default() };
    let toolbox = ScriptedToolbox { tools: vec![hang], ..ScriptedToolbox::default() };
    let running = Arc::clone(&toolbox.running);
    let model = RecordingModel::new("hanging", &script);
    (Agent { model, toolbox: Arc::new(toolbox), profile: Arc::new(profile), summarizer: None }, running)
}

/// The expected end of an aborted run: the status, and the turn's text without the call.
fn assert_ended(events: &[Event], status: &str, reason: FinishReason) {
    let [.., Event::Status { status: actual, .. }, Event::Finished { reason: finished, messages }, Event::Usage(usage)] =
        events
    else {
        panic!("{events:?}");
    };
    assert_eq!((actual.as_str(), *finished, usage.turns), (status, reason, 1));
    let messages: Vec<_> = messages.iter().map(brief).collect();
    assert_eq!(messages, [json!({"assistant": "Let me see.", "calls": []})]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_ends_the_run_at_its_time_limit() {
    let (agent, running) = hanging(AgentProfile { max_run_seconds: 60.0, ..AgentProfile::default() });
    let begun = Instant::now();
    let input = RunInput { messages: question(), ..RunInput::default() };
    let events: Vec<_> = agent.run(input).collect().await;
    assert_ended(&events, "max_run_seconds", FinishReason::Limit);
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(running.load(Ordering::SeqCst), 0, "the call was cancelled");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_the_run_at_once_and_keeps_the_text_so_far() {
    let (agent, running) = hanging(AgentProfile::default());
    let input = RunInput { messages: question(), ..RunInput::default() };
    let (abort, begun) = (input.abort.clone(), Instant::now());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        abort.cancel();
    });
    let events: Vec<_> = agent.run(input).collect().await;
    assert_ended(&events, "aborted", FinishReason::Aborted);
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!(running.load(Ordering::SeqCst), 0, "the call was cancelled");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_running_calls() {
    let (agent, running) = hanging(AgentProfile::default());
    {
        let mut run = pin!(agent.run(RunInput { messages: question(), ..RunInput::default() }));
        while !matches!(run.next().await.expect("a call begins"), Event::ToolInput { .. }) {}
        assert!(tokio::time::timeout(Duration::from_secs(1), run.next()).await.is_err());
        assert_eq!(running.load(Ordering::SeqCst), 1);
    }
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_turn_run_in_parallel_up_to_the_profiles_limit() {
    for (parallel, seconds) in [(4, 10), (2, 20), (1, 40)] {
        let calls: Vec<_> = (0..4).map(|n| json!({"id": format!("c{n}"), "tool": "slow", "arguments": "{}"})).collect();
        let script = json!({"turns": [{"calls": calls}, {"text": ["done"]}]});
        let slow = ScriptedTool { name: "slow".into(), takes_seconds: 10.0, ..ScriptedTool::default() };
        let agent = Agent {
            model: RecordingModel::new("slow", &script),
            toolbox: Arc::new(ScriptedToolbox { tools: vec![slow], ..ScriptedToolbox::default() }),
            profile: Arc::new(AgentProfile { parallel_tool_calls: parallel, ..AgentProfile::default() }),
            summarizer: None,
        };
        let begun = Instant::now();
        agent.run(RunInput { messages: question(), ..RunInput::default() }).for_each(|_| async {}).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{parallel} at once");
    }
}
