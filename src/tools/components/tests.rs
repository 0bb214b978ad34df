//! Against a fake sandbox: the results of files, and of the ends of calls.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use sekisho_calls::tool::{Attempt, ToolDefinition};
use sekisho_config::{ComponentGrantsConfig, OutboundConfig};
use sekisho_core::call::{CallContext, Caller, Deadline, ToolOutput, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{Captured, ComponentCall, End, Examined, Export, FoundExport, ModuleKind, Outcome, Usage};
use sekisho_sandbox::{ComponentHttp, ExaminedFile, FileToExamine, Running, Unexamined};

/// Answers as it was told, or as for a component with one function.
#[derive(Default)]
struct StandIn {
    examined: Mutex<VecDeque<Result<Examined, Unexamined>>>,
    outcomes: Mutex<VecDeque<Outcome>>,
    examinations: Mutex<usize>,
    calls: Mutex<Vec<(ComponentCall, bool)>>,
    /// Why no component can be loaded, or why that is not known.
    unloadable: Mutex<Option<Result<String, String>>>,
    /// Written while a file is examined.
    written: Mutex<Option<PathBuf>>,
}

impl RunComponents for StandIn {
    fn examine(&self, _: FileToExamine) -> BoxFuture<'_, Result<ExaminedFile, Unexamined>> {
        *self.examinations.lock() += 1;
        if let Some(path) = self.written.lock().take() {
            fs::write(path, "new").unwrap();
        }
        let examined = self.examined.lock().pop_front().unwrap_or_else(|| Ok(examined(&[function(None, "now")], &[])));
        let file = examined.map(|examined| ExaminedFile { examined, compiled: PathBuf::from("/compiled") });
        Box::pin(async { file })
    }

    fn unloadable(&self, components: Vec<ComponentLoad>) -> BoxFuture<'_, Result<BTreeMap<String, String>, String>> {
        let unloadable = match self.unloadable.lock().clone() {
            None => Ok(BTreeMap::new()),
            Some(Ok(reason)) => Ok(components.into_iter().map(|load| (load.id, reason.clone())).collect()),
            Some(Err(problem)) => Err(problem),
        };
        Box::pin(async { unloadable })
    }

    fn call<'a>(
        &'a self,
        _: &'a CallContext,
        call: ComponentCall,
        http: Option<&'a dyn ComponentHttp>,
        _: Deadline,
    ) -> Running<'a> {
        self.calls.lock().push((call, http.is_some()));
        let outcome = self.outcomes.lock().pop_front();
        let outcome = outcome.unwrap_or_else(|| returned(&json!({"value": 7})));
        Box::pin(async { Ok(outcome) })
    }
}

fn function(interface: Option<&str>, name: &str) -> FoundExport {
    FoundExport {
        export: Export { interface: interface.map(str::to_owned), function: name.to_owned() },
        description: "What it does.".to_owned(),
        parameters: json!({"type": "object", "properties": {}}).to_string(),
        output: Some(json!({"type": "integer"}).to_string()),
    }
}

fn examined(functions: &[FoundExport], imports: &[&str]) -> Examined {
    let imports = imports.iter().map(|import| (*import).to_owned()).collect();
    let kind = ModuleKind::Component;
    Examined { kind, functions: functions.to_vec(), problems: Vec::new(), imports, compiled: Vec::new() }
}

fn outcome(end: End, result: Option<String>) -> Outcome {
    let usage = Usage { wall_time: Duration::from_millis(2), peak_memory_bytes: 9 << 20, ..Usage::default() };
    let (stdout, stderr) = (Captured::default(), Captured::default());
    Outcome {
        end,
        result,
        stdout,
        stderr,
        files: Vec::new(),
        images: Vec::new(),
        usage,
        session_bytes: None,
        read: None,
    }
}

fn returned(result: &Value) -> Outcome {
    outcome(End::Exited { code: 0 }, Some(result.to_string()))
}

/// A folder, and the sandbox that reads it.
struct Folder {
    folder: TempDir,
    config: ComponentsConfig,
    stand_in: Arc<StandIn>,
    has_lock: bool,
}

impl Folder {
    fn new(examined: Vec<Result<Examined, Unexamined>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weather.wasm"), "code").unwrap();
        let config = ComponentsConfig { directory: Some(folder.path().to_owned()), ..ComponentsConfig::default() };
        let stand_in = Arc::new(StandIn { examined: Mutex::new(examined.into()), ..StandIn::default() });
        Self { folder, config, stand_in, has_lock: true }
    }

    fn grant(&mut self, granted: ComponentGrantsConfig) {
        self.config.grants = [("weather".to_owned(), granted)].into();
    }

    async fn read(&self, before: &Components) -> Components {
        let run = Arc::clone(&self.stand_in) as Arc<dyn RunComponents>;
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let reader = ComponentReader::new(&SandboxConfig::default(), run, &outbound, self.has_lock, true);
        Components::read(&self.config, &reader, before).await
    }

    async fn problem(&self) -> String {
        let components = self.read(&Components::default()).await;
        let offer = components.tools();
        assert!(offer.tools.is_empty() && components.loads().is_empty());
        assert_eq!(offer.unavailable[0].name, "weather__*");
        components.problems()["component:weather"].clone()
    }
}

async fn call(tool: &ToolDefinition) -> Result<ToolOutput, CallError> {
    let call = CallContext::new("weather__now", Arc::new(Caller::anonymous()), Via::Rest);
    let attempt = Attempt {
        call: &call,
        deadline: Deadline::after(Duration::from_secs(10)),
        memory_limit_bytes: 512 << 20,
        max_output_bytes: 1 << 20,
    };
    tool.executor.execute(attempt, json!({"city": "Bern"}).as_object().unwrap()).await
}

#[tokio::test]
async fn each_exported_function_is_a_tool_of_this_content() {
    let functions = [function(None, "now"), function(Some("my:weather/last-days@0.1.0"), "mean-value")];
    let folder = Folder::new(vec![Ok(examined(&functions, &["wasi:cli/environment@0.2.3"]))]);
    let components = folder.read(&Components::default()).await;
    let offer = components.tools();
    let [other, now] = &offer.tools[..] else { panic!("{offer:?}") };
    assert_eq!((&*other.metadata.name, &*now.metadata.name), ("weather__last_days__mean_value", "weather__now"));
    let metadata = &now.metadata;
    assert_eq!((&*metadata.source, &*metadata.description), ("component:weather", "What it does."));
    assert!(metadata.idempotent && metadata.effects.unwrap().read_only && now.executor.sandboxed());
    let reached = now.executor.reaches().unwrap();
    assert!(reached.starts_with("sha256:") && reached.len() == 71, "the lock has the content");
    let verdicts: Vec<_> = components.verdicts().collect();
    let names = "weather__last_days__mean_value, weather__now".to_owned();
    assert_eq!(verdicts, [("component:weather".to_owned(), Ok(names))]);
    assert_eq!(call(now).await.unwrap().value, 7);
    let calls = folder.stand_in.calls.lock();
    let (sent, has_http) = &calls[0];
    assert_eq!((&*sent.arguments, sent.limits.tool_calls, *has_http), (r#"{"city":"Bern"}"#, 0, false));
    assert_eq!(components.loads()[0].id, sent.component);
}

/// By which an approval is bound.
#[tokio::test]
async fn a_component_that_is_given_other_values_has_another_identity() {
    let identity = async |granted: ComponentGrantsConfig| {
        let mut folder = Folder::new(vec![Ok(examined(&[function(None, "now")], &[]))]);
        folder.grant(granted);
        folder.read(&Components::default()).await.tools().tools[0].executor.identity()
    };
    let given = |text: &str| [("base".to_owned(), text.to_owned())].into();
    let config = |text: &str| ComponentGrantsConfig { config: given(text), ..ComponentGrantsConfig::default() };
    let env = ComponentGrantsConfig { env: given("test"), ..ComponentGrantsConfig::default() };
    assert_eq!(identity(ComponentGrantsConfig::default()).await, None);
    let (test, live, env) = (identity(config("test")).await, identity(config("live")).await, identity(env).await);
    assert!(test.is_some() && test != live && test != env && live != env, "{test:?} {live:?} {env:?}");
    assert_eq!(test, identity(config("test")).await);
}

#[tokio::test]
async fn a_component_that_workers_cannot_load_is_named_and_not_offered() {
    let folder = Folder::new(Vec::new());
    *folder.stand_in.unloadable.lock() = Some(Ok("/data/link: links are not read".to_owned()));
    let before = folder.read(&Components::default()).await;
    assert_eq!(
        before.problems()["component:weather"],
        "weather.wasm: it cannot be loaded: /data/link: links are not read"
    );
    assert!(before.loads().is_empty() && before.tools().tools.is_empty() && !before.is_waiting());
    assert!(folder.read(&before).await.is_as(&before), "clients are not told each time that the tools have changed");
    // A mode of a file is not seen from outside, so that each reading tries again.
    *folder.stand_in.unloadable.lock() = None;
    assert_eq!(folder.read(&before).await.loads().len(), 1);
    // Where no worker can be started, it is not known whether one could load it.
    *folder.stand_in.unloadable.lock() = Some(Err("no process can be started".to_owned()));
    let waiting = folder.read(&Components::default()).await;
    assert!(waiting.is_waiting() && waiting.loads().is_empty(), "{waiting:?}");
    assert!(waiting.problems()["component:weather"].contains("not be loaded yet: no process can be started"));
}

#[tokio::test]
async fn without_a_lock_nothing_is_offered_and_the_sum_is_named() {
    let mut folder = Folder::new(Vec::new());
    folder.has_lock = false;
    let problem = folder.problem().await;
    assert!(problem.contains("weather.wasm: it is not pinned: run `sekisho lock`") && problem.contains("sha256:"));
    assert_eq!(*folder.stand_in.examinations.lock(), 0, "it is not even read");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_why() {
    for (examined, says) in [
        (Err(Unexamined::Broken("it is malformed".to_owned())), "weather.wasm: it is malformed"),
        (Ok(examined(&[function(None, "now")], &["wasi:clocks/wall-clock@0.2.0"])), "grants.weather.clocks: true"),
        (Ok(examined(&[function(None, "now")], &["my:keys/store"])), "no component is granted"),
        (Ok(Examined { kind: ModuleKind::Command, ..examined(&[], &[]) }), "write weather.json"),
    ] {
        let problem = Folder::new(vec![examined]).problem().await;
        assert!(problem.contains(says), "{says}: {problem}");
    }
    let mut folder = Folder::new(Vec::new());
    folder.grant(ComponentGrantsConfig {
        folders: [("/data".to_owned(), PathBuf::from("/nowhere"))].into(),
        ..ComponentGrantsConfig::default()
    });
    assert!(folder.problem().await.contains("/nowhere that it is granted is not there"));
    folder.grant(ComponentGrantsConfig { http: vec!["https://a".to_owned()], ..ComponentGrantsConfig::default() });
    assert!(folder.problem().await.contains("components.grants.weather.http"));
}

#[tokio::test]
async fn functions_that_are_no_tools_leave_the_others() {
    let broken = Export { interface: None, function: "size".to_owned() };
    let functions = [function(None, "a-b"), function(Some("my:a/b"), "c"), function(Some("my:d/b"), "c")];
    let found = Examined {
        problems: vec![(broken, "it belongs to the resource `blob`".to_owned())],
        ..examined(&functions, &[])
    };
    let folder = Folder::new(vec![Ok(found)]);
    let components = folder.read(&Components::default()).await;
    let offer = components.tools();
    let names: Vec<_> = offer.tools.iter().map(|tool| &*tool.metadata.name).collect();
    assert_eq!(names, ["weather__a_b", "weather__b__c"]);
    let missing: Vec<_> = offer.unavailable.iter().map(|missing| (&*missing.name, &*missing.reason)).collect();
    assert_eq!(missing[0], ("weather__size", "weather.wasm: `size`: it belongs to the resource `blob`"));
    assert!(missing[1].0 == "weather__b__c" && missing[1].1.contains("rename one"), "{missing:?}");
    assert!(components.problems().is_empty(), "they are reported with the tools");
}

#[tokio::test]
async fn only_what_has_changed_is_read_again() {
    let mut folder = Folder::new(Vec::new());
    let first = folder.read(&Components::default()).await;
    let second = folder.read(&first).await;
    let executor = |components: &Components| Arc::clone(&components.tools().tools[0].executor);
    assert_eq!(*folder.stand_in.examinations.lock(), 1);
    assert!(Arc::ptr_eq(&executor(&first), &executor(&second)), "the registry keeps what it compiled");
    folder.grant(ComponentGrantsConfig { clocks: true, ..ComponentGrantsConfig::default() });
    let third = folder.read(&second).await;
    fs::write(folder.folder.path().join("weather.wasm"), "changed").unwrap();
    let fourth = folder.read(&third).await;
    assert_eq!(*folder.stand_in.examinations.lock(), 3);
    assert!(executor(&third).reaches() != executor(&fourth).reaches());
    fs::remove_file(folder.folder.path().join("weather.wasm")).unwrap();
    let fifth = folder.read(&fourth).await;
    assert!(fifth.tools().tools.is_empty() && fifth.loads().is_empty());
}

#[tokio::test]
async fn a_file_is_read_once_more_where_its_folder_changes_meanwhile() {
    let (mut folder, data) = (Folder::new(Vec::new()), tempfile::tempdir().unwrap());
    let folders = [("/data".to_owned(), data.path().to_owned())].into();
    folder.grant(ComponentGrantsConfig { folders, ..ComponentGrantsConfig::default() });
    *folder.stand_in.written.lock() = Some(data.path().join("late.txt"));
    let first = folder.read(&Components::default()).await;
    let second = folder.read(&first).await;
    folder.read(&second).await;
    assert_eq!(*folder.stand_in.examinations.lock(), 2);
}

#[tokio::test]
async fn a_description_is_bounded() {
    let described = FoundExport { description: "é".repeat(20_000), ..function(None, "now") };
    let folder = Folder::new(vec![Ok(examined(&[described], &[]))]);
    let components = folder.read(&Components::default()).await;
    assert_eq!(components.tools().tools[0].metadata.description.len(), 16 << 10);
}

#[tokio::test]
async fn what_is_not_compiled_yet_is_read_later() {
    let folder = Folder::new(vec![Err(Unexamined::NotCompiled), Err(Unexamined::Failed("no memory".to_owned()))]);
    let first = folder.read(&Components::default()).await;
    assert!(first.is_waiting() && first.problems()["component:weather"].contains("is being compiled"));
    let second = folder.read(&first).await;
    assert!(second.is_waiting() && second.problems()["component:weather"].contains("no memory"));
    assert!(!second.is_as(&first));
    folder.stand_in.examined.lock().push_back(Err(Unexamined::Failed("no memory".to_owned())));
    let same = folder.read(&second).await;
    assert!(same.is_as(&second), "clients are not told of the same problem again");
    let third = folder.read(&same).await;
    assert!(!third.is_waiting() && third.tools().tools.len() == 1 && !third.is_as(&same));
    assert!(folder.read(&third).await.is_as(&third));
}

#[tokio::test]
async fn a_component_with_hosts_sends_requests_and_may_have_effects() {
    let mut folder = Folder::new(vec![Ok(examined(&[function(None, "now")], &["wasi:http/outgoing-handler@0.2.3"]))]);
    let hosts = ["api.example.com", "Example.org"].map(str::to_owned).to_vec();
    folder.grant(ComponentGrantsConfig { http: hosts, ..ComponentGrantsConfig::default() });
    let components = folder.read(&Components::default()).await;
    let tool = &components.tools().tools[0];
    assert!(!tool.metadata.idempotent && tool.metadata.effects.is_none());
    assert_eq!(tool.metadata.labels, ["http:api.example.com", "http:example.org"], "for policies");
    call(tool).await.unwrap();
    let calls = folder.stand_in.calls.lock();
    assert!(calls[0].1 && calls[0].0.limits.tool_calls == 100);
}

#[tokio::test]
async fn how_calls_end() {
    let folder = Folder::new(Vec::new());
    let components = folder.read(&Components::default()).await;
    let offer = components.tools();
    let noisy = Outcome {
        stdout: Captured { bytes: vec![b'x'; 5_000], total: 6_000 },
        ..returned(&json!({"error": "no such city"}))
    };
    for (outcome, code, says) in [
        (noisy, ErrorCode::ToolError, "no such city"),
        (returned(&json!({"error": {"code": 7}})), ErrorCode::ToolError, r#"{"code":7}"#),
        (returned(&json!({"error": null})), ErrorCode::ToolError, "says no more"),
        (
            returned(&json!({"invalid": {"path": "/day", "message": "it is missing"}})),
            ErrorCode::InvalidArguments,
            "`/day`: it is missing",
        ),
        (outcome(End::Exited { code: 2 }, None), ErrorCode::ToolError, "exit(2)"),
        (outcome(End::Timeout, None), ErrorCode::SandboxTimeout, "stopped after"),
        (outcome(End::Memory, None), ErrorCode::SandboxMemory, "memory limit"),
        (outcome(End::Output("result_bytes".into()), None), ErrorCode::SandboxOutput, "return less"),
        (outcome(End::Trap("wasm `unreachable`".into()), None), ErrorCode::SandboxTrap, "unreachable"),
    ] {
        folder.stand_in.outcomes.lock().push_back(outcome);
        let error = call(&offer.tools[0]).await.unwrap_err();
        assert_eq!(error.code(), code, "{says}");
        assert!(error.message().contains(says), "{says}: {}", error.message());
        if says == "no such city" {
            let stdout = error.output().unwrap()["stdout"].as_str().unwrap();
            assert!(stdout.ends_with("x… (4096 of 6000 bytes)"));
        }
    }
    // Nothing else bounds the message of an error, which models read.
    let long = json!("é".repeat(2_000));
    folder.stand_in.outcomes.lock().push_back(returned(&json!({"error": long})));
    let error = call(&offer.tools[0]).await.unwrap_err();
    assert!(error.message().ends_with("é…") && error.message().len() < 1_100, "{}", error.message());
    assert_eq!(error.output(), Some(&long));
    let stderr = Captured { bytes: b"why".to_vec(), total: 3 };
    folder.stand_in.outcomes.lock().push_back(Outcome { stderr, ..returned(&json!({"error": {"code": 7}})) });
    let error = call(&offer.tools[0]).await.unwrap_err();
    assert_eq!(error.output(), Some(&json!({"stderr": "why", "error": {"code": 7}})));
}

#[tokio::test]
async fn the_result_of_a_command_is_what_it_prints() {
    let folder = Folder::new(vec![Ok(Examined { kind: ModuleKind::Command, ..examined(&[], &[]) })]);
    let description =
        json!({"description": "Measures.", "parameters": {"type": "object"}, "output": {"type": "object"}});
    fs::write(folder.folder.path().join("weather.json"), description.to_string()).unwrap();
    let components = folder.read(&Components::default()).await;
    let tool = &components.tools().tools[0];
    assert_eq!((&*tool.metadata.name, &*tool.metadata.description), ("weather__run", "Measures."));
    let printing = |end: End, stdout: &str, stderr: &str| {
        let captured = |text: &str| Captured { bytes: text.into(), total: text.len() as u64 };
        let printed = Outcome { stdout: captured(stdout), stderr: captured(stderr), ..outcome(end, None) };
        folder.stand_in.outcomes.lock().push_back(printed);
    };
    printing(End::Exited { code: 0 }, "{\"celsius\": 7}\n", "measured");
    let output = call(tool).await.unwrap();
    assert_eq!((&output.value, &output.metadata["stderr"]), (&json!({"celsius": 7}), &json!("measured")));
    assert!(!output.metadata.contains_key("stdout"));
    printing(End::Exited { code: 0 }, "7 degrees", "");
    assert!(call(tool).await.unwrap_err().message().contains("printed no JSON"));
    printing(End::Exited { code: 3 }, "", "no such city\n");
    assert!(call(tool).await.unwrap_err().message().contains("exit(3): no such city"));
    let cut = Captured { bytes: b"[1".to_vec(), total: 9 };
    folder.stand_in.outcomes.lock().push_back(Outcome { stdout: cut, ..outcome(End::Exited { code: 0 }, None) });
    assert_eq!(call(tool).await.unwrap_err().code(), ErrorCode::SandboxOutput);
}
