//! Scripted conversations as data (`tests/agent/*.yaml`), and the ends that come from outside.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::meter::Account;
use super::models::{ModelChunk, ModelError, ModelRequest, Replay};
use super::toolbox::{ToolAnswer, ToolboxCall, ToolboxUnreachable};
use super::*;
use crate::budget::Budgets;
use crate::config::BudgetConfig;
use crate::core::call::{BudgetScopes, Caller};

/// What the model says, what the tools answer, and what must come out.
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
    /// What the run's model may cost, as `budget` of the configuration.
    budget: Option<BudgetConfig>,
    /// The run is aborted from outside after so many seconds.
    abort_after_seconds: Option<f64>,
    /// Whoever asked hears so many events and leaves.
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

/// Tools that do as they are told, and count how many of them run.
#[derive(Default)]
struct ScriptedToolbox {
    tools: Vec<ScriptedTool>,
    unreachable: bool,
    running: Arc<AtomicUsize>,
}

/// One of those under way; dropping it says that the call was given up or is over.
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

/// A script that remembers what it was asked.
struct Listening {
    script: Replay,
    asked: Mutex<Vec<Arc<ModelRequest>>>,
}

impl Listening {
    fn new(name: &str, script: &Value) -> Arc<Self> {
        let script = Replay::parse(name, &script.to_string()).unwrap();
        Arc::new(Self { script, asked: Mutex::default() })
    }
}

impl Model for Listening {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        self.asked.lock().unwrap().push(Arc::clone(&request));
        self.script.stream(request)
    }
}

fn description(name: &str) -> ToolDescription {
    ToolDescription { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) }
}

fn question() -> Vec<Message> {
    vec![Message::User("question".into())]
}

/// Role and text, with the calls of an assistant by id.
fn brief(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({"system": text}),
        Message::User(text) => json!({"user": text}),
        Message::Assistant(turn) => {
            let calls: Vec<_> = turn.calls.iter().map(|call| &call.id).collect();
            json!({"assistant": turn.text, "calls": calls})
        }
        Message::Tool(answer) => json!({"tool": answer.call_id, "text": answer.text}),
    }
}

/// Events as JSON; durations differ from run to run.
fn told(events: &[Event], names: &Names) -> Vec<Value> {
    let mut told: Vec<_> = events.iter().map(|event| names.used_in(serde_json::to_value(event).unwrap())).collect();
    for event in &mut told {
        if let Some(event) = event.as_object_mut() {
            event.shift_remove("duration_ms");
        }
    }
    told
}

/// What a case calls the ids of calls, which are random: by the script's own ids, or `own 1`, `own 2` … where the
/// script gives none or gives one twice.
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
            for call in &turn.calls {
                let id = call.provider_id.as_ref().unwrap().id.clone();
                let is_free = !id.is_empty() && given.insert(id.clone());
                let name = if is_free { id } else { format!("own {}", names.len() + 1) };
                names.insert(call.id.clone(), name);
            }
        }
        // Of a run that nobody heard to its end.
        for event in events {
            if let Event::ToolInput { id, .. } = event {
                let name = format!("own {}", names.len() + 1);
                names.entry(id.clone()).or_insert(name);
            }
        }
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

/// A request whose money is bounded.
fn paid_by(budget: &BudgetConfig) -> Meter {
    let budgets = Arc::new(Budgets::new(budget));
    let scopes = BudgetScopes { request: Some("r".into()), ..BudgetScopes::default() };
    Meter::paid_by(Account { budgets, caller: Arc::new(Caller::new("ann", "acme", Vec::new())), scopes })
}

async fn check(name: &str, case: Case) {
    let model = Listening::new(name, &case.model);
    let toolbox = ScriptedToolbox { tools: case.tools, unreachable: case.toolbox_unreachable, ..Default::default() };
    let (running, begun) = (Arc::clone(&toolbox.running), Instant::now());
    let agent =
        Agent { model: Arc::<Listening>::clone(&model), toolbox: Arc::new(toolbox), profile: Arc::new(case.profile) };
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
    let heard = case.leaves_after_events.unwrap_or(usize::MAX);
    let events: Vec<_> = agent.run(input).take(heard).collect().await;
    assert_eq!(running.load(Ordering::SeqCst), 0, "{name}: no call goes on after the run");
    if let Some(seconds) = case.takes_seconds {
        assert_eq!(begun.elapsed().as_secs(), seconds, "{name}");
    }
    let names = Names::of(&events);
    let told = told(&events, &names);
    assert_eq!(Value::from(told.clone()), Value::from(case.events), "{name}: {:#}", Value::from(told));
    if let Some(expected) = case.last_offer {
        let asked = model.asked.lock().unwrap();
        let offered: Vec<_> = asked.last().unwrap().tools.iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(offered, expected, "{name}");
    }
    if let Some(expected) = case.last_request {
        let asked = model.asked.lock().unwrap();
        let messages = asked.last().unwrap().messages.iter().skip(1);
        let messages: Vec<_> = messages.map(|message| names.used_in(brief(message))).collect();
        assert_eq!(Value::from(messages), Value::from(expected), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn scripted_conversations_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent");
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let case = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap());
        check(&name, case.unwrap_or_else(|problem| panic!("{name}: {problem}"))).await;
        played += 1;
    }
    assert!(played >= 32, "only {played} conversations");
}

/// An agent that says "Let me see." and calls a tool that never answers.
fn hanging(profile: AgentProfile) -> (Agent, Arc<AtomicUsize>) {
    let call = json!({"id": "a", "tool": "hang", "arguments": "{}"});
    let script = json!({"turns": [{"text": ["Let me see."], "calls": [call]}]});
    let hang = ScriptedTool { name: "hang".into(), takes_seconds: 1e9, ..ScriptedTool::default() };
    let toolbox = ScriptedToolbox { tools: vec![hang], ..ScriptedToolbox::default() };
    let running = Arc::clone(&toolbox.running);
    let model = Listening::new("hanging", &script);
    (Agent { model, toolbox: Arc::new(toolbox), profile: Arc::new(profile) }, running)
}

/// What an end from outside leaves: the status, and of the turn what was said, without the call.
fn assert_ended(events: &[Event], status: &str, reason: FinishReason) {
    let [.., Event::Status { status: told, .. }, Event::Finished { reason: finished, messages }, Event::Usage(usage)] =
        events
    else {
        panic!("{events:?}");
    };
    assert_eq!((told.as_str(), *finished, usage.turns), (status, reason, 1));
    let messages: Vec<_> = messages.iter().map(brief).collect();
    assert_eq!(messages, [json!({"assistant": "Let me see.", "calls": []})]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_ends_the_run_when_its_time_is_up() {
    let (agent, running) = hanging(AgentProfile { max_run_seconds: 60.0, ..AgentProfile::default() });
    let begun = Instant::now();
    let input = RunInput { messages: question(), ..RunInput::default() };
    let events: Vec<_> = agent.run(input).collect().await;
    assert_ended(&events, "max_run_seconds", FinishReason::Limit);
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(running.load(Ordering::SeqCst), 0, "the call was given up");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_the_run_at_once_and_keeps_what_was_said() {
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
    assert_eq!(running.load(Ordering::SeqCst), 0, "the call was given up");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_gives_up_the_calls_under_way() {
    let (agent, running) = hanging(AgentProfile::default());
    {
        let mut run = pin!(agent.run(RunInput { messages: question(), ..RunInput::default() }));
        while !matches!(run.next().await, Some(Event::ToolInput { .. })) {}
        assert!(tokio::time::timeout(Duration::from_secs(1), run.next()).await.is_err());
        assert_eq!(running.load(Ordering::SeqCst), 1);
    }
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_turn_run_side_by_side_up_to_the_profiles_number() {
    for (parallel, seconds) in [(4, 10), (2, 20), (1, 40)] {
        let calls: Vec<_> = (0..4).map(|n| json!({"id": format!("c{n}"), "tool": "slow", "arguments": "{}"})).collect();
        let script = json!({"turns": [{"calls": calls}, {"text": ["done"]}]});
        let slow = ScriptedTool { name: "slow".into(), takes_seconds: 10.0, ..ScriptedTool::default() };
        let agent = Agent {
            model: Listening::new("slow", &script),
            toolbox: Arc::new(ScriptedToolbox { tools: vec![slow], ..ScriptedToolbox::default() }),
            profile: Arc::new(AgentProfile { parallel_tool_calls: parallel, ..AgentProfile::default() }),
        };
        let begun = Instant::now();
        agent.run(RunInput { messages: question(), ..RunInput::default() }).for_each(|_| async {}).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{parallel} at once");
    }
}
