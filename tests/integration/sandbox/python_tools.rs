//! Tools that are Python functions: called over REST, MCP and by programs, broken, and corrected.

use std::fs;
use std::io::{Cursor, Write};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::PythonApp;
use crate::app::{answer, code, config};
use crate::approvals::KEYS;
use crate::cli::{sekisho, text};
use crate::console::{Browser, KEYS as CONSOLE_KEYS, check_markup};
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::slack::slack;

const BROKEN: &str = include_str!("../../python_tools/broken.yaml");

/// A gateway with files of tools.
struct OwnTools {
    app: PythonApp,
    yaml: String,
}

impl OwnTools {
    async fn start(files: &[(&str, &str)], more: &str) -> Self {
        Self::with(files, "{}", "", more).await
    }

    /// With settings of the files, overrides of tools, and more of the configuration.
    async fn with(files: &[(&str, &str)], settings: &str, overrides: &str, more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let tools = directory.path().join("tools");
        fs::create_dir(&tools).unwrap();
        for (name, source) in files {
            fs::write(tools.join(name), source).unwrap();
        }
        let overrides = format!("python_executor: {{rate_limit: 1000000}}, {overrides}");
        let yaml = format!(
            "python_tools: {{directory: '{}', settings: {settings}}}\ntools: {{overrides: {{{overrides}}}}}\n{more}",
            tools.display()
        );
        Self { app: PythonApp::in_directory(directory, &yaml).await, yaml }
    }

    /// Writes a file, and has the gateway read it.
    async fn write(&self, name: &str, source: &str) {
        fs::write(self.app.app.directory.path().join("tools").join(name), source).unwrap();
        self.app.app.gateway.reload(config(&self.app.app.directory, &self.yaml)).await;
    }

    async fn call(&self, tool: &str, arguments: Value) -> (StatusCode, Value) {
        self.app.app.call(tool, arguments).await
    }

    /// The output of a call that must go well.
    async fn output(&self, tool: &str, arguments: Value) -> Value {
        let (status, mut reply) = self.call(tool, arguments).await;
        assert!(status == StatusCode::OK && reply["success"] == true, "{status}: {reply}");
        reply["output"].take()
    }

    /// Waits until a call of `weather__now` ends so.
    async fn until(&self, is_so: impl Fn(StatusCode, &Value) -> bool) {
        let waiting = async {
            loop {
                let (status, reply) = self.call("weather__now", json!({"city": "Bern"})).await;
                if is_so(status, &reply) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(slack(Duration::from_secs(20)), waiting).await.expect("it is read in time");
    }

    async fn degraded(&self) -> Value {
        answer(self.app.app.get("/readyz")).await.1["degraded"].take()
    }
}

const WEATHER: &str = r#"
COUNT = 0

def now(city: str, days: int = 1) -> dict[str, int | str]:
    """The weather of a city.

    Args:
        city: Its name.
    """
    global COUNT
    COUNT += 1
    return {"city": city, "days": days, "count": COUNT}
"#;

#[tokio::test]
async fn a_function_is_called_over_rest_and_mcp_broken_and_corrected() {
    let own = OwnTools::start(&[("weather.py", WEATHER)], "").await;
    for _ in 0..2 {
        let output = own.output("weather__now", json!({"city": "Bern"})).await;
        assert_eq!(output, json!({"city": "Bern", "days": 1, "count": 1}), "each call has an interpreter of its own");
    }
    let (status, reply) = own.call("weather__now", json!({"days": 3})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"), "{reply}");
    let (_, schema) = answer(own.app.app.get("/tools/weather__now/schema")).await;
    assert!(schema.to_string().contains("Its name."), "{schema}");

    let client = McpClient::connect(&own.app.app, NEWER).await;
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    let listed =
        listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "weather__now").unwrap().clone();
    assert_eq!(listed["description"], "The weather of a city.");
    assert_eq!(listed["annotations"]["readOnlyHint"], true, "{listed}");
    let call = json!({"name": "weather__now", "arguments": {"city": "Basel"}});
    let called = client.result("tools/call", call.clone(), "CallToolResult").await;
    assert_eq!(called["structuredContent"]["city"], "Basel", "{called}");

    own.write("weather.py", &WEATHER.replace("city: str", "city")).await;
    let degraded = own.degraded().await;
    let reason = degraded["python:weather"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("weather.py:4: `city` has no annotation: write city: str"), "{reason}");
    let (status, reply) = own.call("weather__now", json!({"city": "Bern"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"), "{reply}");

    own.write("weather.py", &WEATHER.replace("days: int = 1", "days: int = 2")).await;
    assert_eq!(own.degraded().await["python:weather"], Value::Null);
    assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["days"], 2);
    fs::remove_file(own.app.app.directory.path().join("tools/weather.py")).unwrap();
    own.write("other.py", "def one() -> int:\n    return 1\n").await;
    assert_eq!(own.call("weather__now", json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(own.output("other__one", json!({})).await, 1);
}

/// Files are read apart from the configuration, which may be one that cannot be applied.
#[tokio::test]
async fn a_changed_file_counts_without_a_reload() {
    let often = "weather__now: {rate_limit: 1000000}";
    let own = OwnTools::with(&[("weather.py", WEATHER)], "{}", often, "").await;
    own.app.app.gateway.refuse_reload("it is broken");
    let path = own.app.app.directory.path().join("tools/weather.py");
    fs::write(&path, WEATHER.replace("days: int = 1", "days: int = 2")).unwrap();
    own.until(|_, reply| reply["output"]["days"] == 2).await;
    fs::write(&path, "").unwrap();
    own.until(|status, _| status == StatusCode::NOT_FOUND).await;
    assert!(own.degraded().await["python:weather"].as_str().unwrap().contains("no function with annotations"));
    fs::write(&path, WEATHER).unwrap();
    own.until(|_, reply| reply["output"]["days"] == 1).await;
}

const TYPES: &str = r#"
import datetime as dt
from dataclasses import dataclass
from enum import Enum
from host import settings, tool

class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"

@dataclass
class Place:
    latitude: float
    longitude: float = 0.0

@tool(name="at", labels=["own"], timeout_seconds=5)
async def forecast(place: Place, day: dt.date, unit: Unit = Unit.C) -> dict:
    print("measured")
    return {"north": place.latitude > 0, "day": day + dt.timedelta(days=1), "unit": unit, "from": settings["station"]}

def divide(by: int) -> float:
    return 1 / by

def numbers() -> list[float]:
    import numpy as np
    return np.arange(3) / 2

def wrong() -> int:
    return "a text"
"#;

#[tokio::test]
async fn values_have_their_types_and_failures_their_lines() {
    let own = OwnTools::with(&[("weather.py", TYPES)], "{weather: {station: Chasseral}}", "", "").await;
    let arguments = json!({"place": {"latitude": 47}, "day": "2026-02-28", "unit": "fahrenheit"});
    let (_, reply) = own.call("weather__at", arguments).await;
    let expected = json!({"north": true, "day": "2026-03-01", "unit": "fahrenheit", "from": "Chasseral"});
    assert_eq!(reply["output"], expected, "{reply}");
    assert_eq!(reply["metadata"]["stdout"], "measured\n", "{reply}");
    assert!(reply["metadata"]["peak_memory_bytes"].as_u64().unwrap() > 0);
    let (status, reply) = own.call("weather__at", json!({"place": {"latitude": 47}, "day": "tomorrow"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"), "{reply}");
    assert_eq!(reply["error_info"]["details"][0]["path"], "/day");
    let (_, reply) = own.call("weather__divide", json!({"by": 0})).await;
    assert_eq!(code(&reply), "tool_error");
    assert_eq!(reply["error"], "ZeroDivisionError: division by zero (weather.py, line 22)", "{reply}");
    assert_eq!(reply["error_info"]["details"][0]["path"], "weather.py:22");
    assert_eq!(own.output("weather__numbers", json!({})).await, json!([0.0, 0.5, 1.0]));
    assert_eq!(code(&own.call("weather__wrong", json!({})).await.1), "invalid_output");
}

const NEEDS: &str = r#"
import json
import _host
from host import ToolError, tool, tools

@tool(needs=["calculator"])
def square(x: int) -> str:
    return str(tools.calculator(expression=f"{x} ** 2"))

@tool(needs=["calculator"])
def asks_for_more(name: str) -> str:
    try:
        return str(tools[name]())
    except ToolError as error:
        return f"{error.code}: {error.message}"

@tool(needs=["calculator"])
def goes_around() -> str:
    return _host.call(b'{"v":1,"op":"call","tool":"echo","args":{}}').decode()

def has_none() -> str:
    return _host.call(b'{"v":1,"op":"call","tool":"echo","args":{}}').decode()

@tool(needs=["needs__again"])
def again(n: int) -> int:
    try:
        return tools.needs__again(n=n + 1)
    except ToolError as error:
        return n if error.code == "denied" else -1

@tool(needs=["needs__square"])
def by_another(x: int) -> str:
    return tools.needs__square(x=x)
"#;

#[tokio::test]
async fn a_function_calls_the_tools_that_it_needs_and_no_others() {
    let own = OwnTools::start(&[("needs.py", NEEDS)], "sandbox: {memory_limit_mb: 128}").await;
    let (_, reply) = own.call("needs__square", json!({"x": 7})).await;
    assert!(reply["output"].as_str().unwrap().contains("49"), "{reply}");
    assert_eq!(reply["receipt"]["nested"]["calls"][0]["tool"], "calculator", "{reply}");
    let refused = own.output("needs__asks_for_more", json!({"name": "echo"})).await;
    assert!(refused.as_str().unwrap().contains("write @tool(needs=[\"echo\"])"), "{refused}");
    // Whatever the function does, the gateway bounds its calls.
    let refused = own.output("needs__goes_around", json!({})).await;
    assert!(refused.as_str().unwrap().contains("unknown_tool"), "{refused}");
    let refused = own.output("needs__has_none", json!({})).await;
    assert!(refused.as_str().unwrap().contains("cannot call tools"), "{refused}");
    assert!(own.output("needs__by_another", json!({"x": 3})).await.as_str().unwrap().contains('9'), "each has its own");
    assert_eq!(own.output("needs__again", json!({"n": 0})).await, 3, "four functions inside each other");
    let program = "from host import tools\n[tools.needs__square(x=2), tools.needs__square(x=3)]";
    let result = own.app.run(program).await["result"].take();
    assert!(result[0].as_str().unwrap().contains('4') && result[1].as_str().unwrap().contains('9'), "{result}");
}

/// A wheel with one module.
fn wheel(source: &str) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in
        [("sekisho_small/__init__.py", source), ("sekisho_small-1.0.dist-info/METADATA", "Name: s\n")]
    {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[tokio::test]
async fn functions_alone_import_the_packages_that_are_pinned() {
    let own = OwnTools::start(&[("weather.py", WEATHER)], "").await;
    let directory = &own.app.app.directory;
    let wheels = directory.path().join("wheels");
    fs::create_dir(&wheels).unwrap();
    fs::write(wheels.join("sekisho_small-1.0-py3-none-any.whl"), wheel("ANSWER = 42\n")).unwrap();
    fs::write(directory.path().join("tools/requirements.txt"), "sekisho-small==1.0\n").unwrap();
    fs::write(directory.path().join("sekisho.yaml"), "python_tools: {directory: tools}\n").unwrap();
    let uses = "import sekisho_small\ndef answer() -> int:\n    return sekisho_small.ANSWER\n\
                def writes() -> str:\n    try:\n        open(sekisho_small.__file__, 'w')\n    \
                except OSError as error:\n        return str(error)\n";
    own.write("uses.py", uses).await;
    let degraded = own.degraded().await;
    let reason = degraded["python_packages"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("requirements.txt:1: `sekisho-small==1.0` is not pinned"), "{reason}");
    let reason = degraded["python:uses"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("uses.py:1: ModuleNotFoundError"), "{reason}");

    let arguments = ["--config", "sekisho.yaml", "--json", "tools", "lock", "--wheels", "wheels"];
    let locked = sekisho(directory).args(arguments).output().unwrap();
    assert_eq!(locked.status.code(), Some(0), "{}", text(&locked));
    let locked: Value = serde_json::from_slice(&locked.stdout).unwrap();
    assert_eq!(locked, json!({"packages": ["sekisho-small 1.0"], "needs": []}));
    own.write("uses.py", uses).await;
    assert_eq!(own.output("uses__answer", json!({})).await, 42);
    let refused = own.output("uses__writes", json!({})).await;
    assert!(refused.as_str().unwrap().contains("Read-only"), "{refused}");
    assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["city"], "Bern");
    let program = "try:\n    import sekisho_small\n    found = True\nexcept ImportError:\n    found = False\nfound";
    assert_eq!(own.app.run(program).await["result"], false, "programs of callers do not see them");

    fs::write(directory.path().join("tools/requirements.txt"), "sekisho-small==2.0\n").unwrap();
    own.write("uses.py", uses).await;
    let degraded = own.degraded().await;
    assert!(degraded["python_packages"].is_string() && degraded["python:uses"].is_string(), "{degraded}");
    assert_eq!(own.call("uses__answer", json!({})).await.0, StatusCode::NOT_FOUND);
}

const SLOW: &str = r#"
import random
import time

time.sleep(0.4)
BEGAN = time.monotonic()
OWN = random.Random(7)
SEEN = []
with open("/tmp/written", "w") as file:
    file.write("once")

def state() -> dict:
    SEEN.append(1)
    with open("/tmp/written") as file:
        written = file.read()
    with open("/tmp/written", "w") as file:
        file.write("changed")
    return {"seen": len(SEEN), "written": written, "own": OWN.random(), "drawn": random.random()}

def clocks() -> dict:
    return {"time": time.time(), "since": time.monotonic() - BEGAN}

def uses_numpy() -> float:
    import numpy
    return float(numpy.random.random())
"#;

/// What a module does when it is executed is done once, and calls share nothing of it.
#[tokio::test]
async fn a_call_goes_on_from_the_image_of_its_module() {
    let own = OwnTools::start(&[("slow.py", SLOW)], "").await;
    let mut drawn = Vec::new();
    for _ in 0..4 {
        let (status, reply) = own.call("slow__state", json!({})).await;
        let output = &reply["output"];
        assert_eq!(
            (status, &output["seen"], &output["written"]),
            (StatusCode::OK, &json!(1), &json!("once")),
            "{reply}"
        );
        assert_eq!(output["own"], 0.32383276483316237, "a generator with a seed begins with it in each call: {reply}");
        assert!(reply["metadata"]["wall_ms"].as_f64().unwrap() < 400.0, "it is not executed again: {reply}");
        drawn.push(output["drawn"].to_string());
        drawn.push(own.output("slow__uses_numpy", json!({})).await.to_string());
    }
    let different: std::collections::BTreeSet<_> = drawn.iter().collect();
    assert_eq!(different.len(), drawn.len(), "random numbers are not shared: {drawn:?}");
    let clocks = own.output("slow__clocks", json!({})).await;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((clocks["time"].as_f64().unwrap() - now).abs() < 30.0, "{clocks}");
    assert!((0.0..30.0).contains(&clocks["since"].as_f64().unwrap()), "{clocks}");

    own.write("slow.py", &SLOW.replace("\"once\"", "\"twice\"")).await;
    assert_eq!(own.output("slow__state", json!({})).await["written"], "twice", "other code has another image");
}

#[tokio::test]
async fn a_module_whose_executions_differ_is_executed_in_each_call() {
    let modules = [
        ("bytes.py", "import os\nVALUE = os.urandom(8).hex()\n"),
        ("day.py", "import time\nVALUE = str(time.time_ns())\n"),
        ("number.py", "import random\nVALUE = str(random.random())\n"),
    ];
    let sources = modules.map(|(name, text)| (name, format!("{text}def value() -> str:\n    return VALUE\n")));
    let files: Vec<_> = sources.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let own = OwnTools::start(&files, "").await;
    for tool in ["bytes__value", "day__value", "number__value"] {
        let first = own.output(tool, json!({})).await;
        assert_ne!(first, own.output(tool, json!({})).await, "{tool}");
    }
}

const PAYS: &str = r#"
import random
from host import tool, tools

@tool(needs=["calculator", "paid"])
def pay(amount: int) -> dict:
    drawn = random.random()
    tools.calculator(expression="1 + 1")
    paid = tools.paid(amount=amount)
    return {"drawn": drawn, "paid": paid["echo"]["amount"]}
"#;

#[tokio::test]
async fn a_function_whose_call_needs_approval_goes_on_when_it_is_approved() {
    let policies = TempDir::new().unwrap();
    let rules = "package tools\ndeny[msg] { input.tool == \"fail\"; msg := \"no\" }\n\
                 require_approval[msg] { input.tool == \"paid\"; msg := \"a person approves it\" }\n";
    fs::write(policies.path().join("rules.rego"), rules).unwrap();
    let more = format!("policy: {{directory: '{}'}}\n{KEYS}", policies.path().display());
    let own = OwnTools::start(&[("bank.py", PAYS)], &more).await;
    let app = &own.app.app;
    let request = || {
        let body = json!({"arguments": {"amount": 7}});
        app.post("/tools/bank__pay/execute").bearer_auth("key-of-ann").json(&body)
    };
    let stopped = async || {
        let (_, reply) = answer(request()).await;
        assert_eq!(code(&reply), "approval_required", "{reply}");
        let info = &reply["error_info"];
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
        let (run, approval) = (text(&info["run"]), text(&info["approval"]["id"]));
        let approve = app.post(&format!("/approvals/{approval}/approve")).bearer_auth("key-of-boss");
        assert_eq!(answer(approve.json(&json!({}))).await.0, StatusCode::OK);
        run
    };
    let resume = |run: &str| app.post(&format!("/runs/{run}/resume")).bearer_auth("key-of-ann");
    let run = stopped().await;
    let (status, reply) = answer(resume(&run)).await;
    assert_eq!((status, &reply["output"]["paid"]), (StatusCode::OK, &json!(7)), "{reply}");
    assert_eq!(reply["receipt"]["nested"]["replayed"], 1, "{reply}");

    let run = stopped().await;
    own.write("bank.py", &format!("{PAYS}\n# changed\n")).await;
    let (_, reply) = answer(resume(&run)).await;
    assert_eq!(code(&reply), "replay_diverged", "the file is another one: {reply}");
}

#[tokio::test]
async fn operators_see_sources_cases_and_failures_and_nobody_else_does() {
    let keys = CONSOLE_KEYS.replace("  anonymous: never\n", "");
    let cases = "- {name: by zero, tool: divide, arguments: {by: 0}, error: tool_error}\n";
    let bad = "# <script>alert(1)</script>\ndef now(city) -> str:\n    return city\n";
    let files = [("weather.py", TYPES), ("weather.cases.yaml", cases), ("bad.py", bad)];
    let own = OwnTools::start(&files, &keys).await;
    let app = &own.app.app;
    let call = app.post("/tools/weather__divide/execute").bearer_auth("key-of-root");
    let (_, reply) = answer(call.json(&json!({"arguments": {"by": 0}}))).await;
    assert_eq!(code(&reply), "tool_error", "{reply}");

    let get = async |path: &str, key: &str| answer(app.get(path).bearer_auth(key)).await;
    let (_, listed) = get("/admin/python-tools", "key-of-root").await;
    let names: Vec<_> = listed["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bad", "weather"]);
    assert!(listed["files"][0]["problems"][0].as_str().unwrap().contains("bad.py:2: `city` has no annotation"));
    assert!(listed["files"][1]["tools"].to_string().contains("weather__divide"), "{listed}");
    let (_, shown) = get("/admin/python-tools/weather", "key-of-root").await;
    assert_eq!((&shown["source"], &shown["cases"][0]["error"]), (&json!(TYPES), &json!("tool_error")), "{shown}");
    assert_eq!(
        (&shown["failures"][0]["tool"], shown["failures"].as_array().unwrap().len()),
        (&json!("weather__divide"), 1)
    );
    assert_eq!(get("/admin/python-tools/none", "key-of-root").await.0, StatusCode::NOT_FOUND);
    for key in ["key-of-ann", "key-of-vic", "key-of-nobody"] {
        for path in ["/admin/python-tools", "/admin/python-tools/weather"] {
            let (status, reply) = get(path, key).await;
            assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{key}: {reply}");
            assert!(!reply.to_string().contains("forecast"), "{reply}");
        }
    }

    let root = Browser::signed_in(app, "key-of-root").await;
    for (path, parts) in [
        ("/console/python-tools", &["weather.py", "weather__divide", "has no annotation"][..]),
        ("/console/python-tools/weather", &["def divide(by: int)", "by zero", "weather__divide"]),
        ("/console/python-tools/bad", &["&lt;script&gt;", "has no annotation"]),
        ("/console/tools/weather__divide", &["href=\"/console/python-tools/weather\""]),
    ] {
        let page = root.page(path).await;
        check_markup(&page);
        assert!(parts.iter().all(|part| page.contains(part)), "{path}: {page}");
    }
}

/// Each broken file of the data in a folder, beside one that is fine.
#[tokio::test]
async fn broken_files_are_named_and_leave_the_others() {
    let cases: Vec<Value> = serde_saphyr::from_str(BROKEN).unwrap();
    let named: Vec<_> = (0..).map(|at| format!("broken{at}")).zip(&cases).collect();
    let files: Vec<_> = named.iter().map(|(name, case)| (format!("{name}.py"), source(case))).collect();
    let mut files: Vec<_> = files.iter().map(|(name, source)| (name.as_str(), source.as_str())).collect();
    files.push(("weather.py", WEATHER));
    files.push(("clash.py", "def one() -> int:\n    return 1\ndef two() -> int:\n    return 2\n"));
    let own = OwnTools::with(&files, "{}", "echo: {rename: clash__one}", "").await;
    let degraded = own.degraded().await;
    for (name, case) in &named {
        let reason = degraded[format!("python:{name}")].as_str().unwrap_or_else(|| panic!("{name} {case}: {degraded}"));
        let place = case["line"].as_u64().map_or_else(|| format!("{name}.py"), |line| format!("{name}.py:{line}: "));
        assert!(reason.contains(&place), "{case}\n{reason}");
        for says in case["says"].as_array().unwrap() {
            assert!(reason.contains(says.as_str().unwrap()), "{case}\n{reason}");
        }
    }
    assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["city"], "Bern");
    let clash = degraded["python:clash"].as_str().unwrap();
    assert!(clash.contains("clash__one (two tools have the name"), "{clash}");
    assert_eq!(own.output("clash__two", json!({})).await, 2);
}

fn source(case: &Value) -> String {
    let repeated = &case["repeat"];
    match repeated["times"].as_u64() {
        Some(times) => {
            let text = |name: &str| repeated[name].as_str().unwrap();
            text("before").to_owned() + &text("text").repeat(usize::try_from(times).unwrap())
        }
        None => case["source"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn the_check_and_the_list_name_what_is_broken() {
    let directory = TempDir::new().unwrap();
    let tools = directory.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("weather.py"), WEATHER).unwrap();
    fs::write(tools.join("bad.py"), "def now(city) -> str:\n    return city\ndef fine() -> int:\n    return 1\n")
        .unwrap();
    fs::write(tools.join("worse.py"), "def now() -> str\n").unwrap();
    let yaml = "python_tools: {directory: tools, settings: {wether: {}}}\n";
    fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let run = |arguments: &[&str]| {
        let output = sekisho(&directory).args(["--config", "sekisho.yaml", "--json"]).args(arguments).output();
        output.unwrap()
    };
    let checked = run(&["check"]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let findings: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let of = |part: &str| {
        let found = findings.as_array().unwrap().iter().find(|finding| finding["part"] == part);
        found.unwrap_or_else(|| panic!("{part}: {findings}")).clone()
    };
    assert_eq!(of("python:weather"), json!({"part": "python:weather", "ok": true, "says": "weather__now"}));
    for (part, says) in
        [("python:bad", "bad.py:1: `city` has no annotation"), ("python:worse", "worse.py:1: expected ':'")]
    {
        let finding = of(part);
        assert!(finding["ok"] == false && finding["says"].as_str().unwrap().contains(says), "{finding}");
    }
    assert!(of("python_tools.settings")["says"].as_str().unwrap().contains("wether"));
    let listed = run(&["tools"]);
    let tools: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names: Vec<_> = tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(
        names.contains(&"weather__now") && names.contains(&"bad__fine") && !names.contains(&"bad__now"),
        "{names:?}"
    );
    assert!(text(&listed).contains("bad__now is not offered: bad.py:1"), "{}", text(&listed));
    let called = run(&["call", "weather__now", r#"{"city": "Bern"}"#]);
    assert_eq!(called.status.code(), Some(0), "{}", text(&called));
}

#[test]
fn an_example_is_written_and_its_cases_run() {
    let directory = TempDir::new().unwrap();
    let run = |arguments: &[&str]| sekisho(&directory).args(arguments).output().unwrap();
    let written = run(&["tools", "new", "weather"]);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written));
    assert!(text(&written).contains("tools/weather.py") && text(&written).contains("python_tools: {directory: tools}"));
    assert_eq!(run(&["tools", "new", "weather"]).status.code(), Some(1), "nothing is replaced");
    assert_eq!(run(&["tools", "new", "a-b"]).status.code(), Some(2));
    for command in ["test", "lock"] {
        assert_eq!(run(&["tools", command]).status.code(), Some(4), "no folder is configured");
    }

    fs::write(directory.path().join("sekisho.yaml"), "python_tools: {directory: tools}\n").unwrap();
    let test =
        |arguments: &[&str]| run(&[&["--config", "sekisho.yaml", "--json", "tools", "test"], arguments].concat());
    let tested = test(&["weather"]);
    assert_eq!(tested.status.code(), Some(0), "{}", text(&tested));
    let cases: Vec<Value> = serde_json::from_slice(&tested.stdout).unwrap();
    assert!(cases.len() == 4 && cases.iter().all(|case| case["ok"] == true), "{cases:?}");
    assert!(cases[0]["wall_ms"].as_f64().unwrap() > 0.0 && cases[0]["peak_memory_bytes"].as_u64().unwrap() > 0);

    let wrong = "- {name: wrong, tool: convert, arguments: {degrees: 32}, output: 1}\n\
                 - {name: slow, tool: convert, arguments: {degrees: 32}, max_seconds: 0.0000001}\n";
    fs::write(directory.path().join("tools/weather.cases.yaml"), wrong).unwrap();
    let tested = test(&[]);
    let cases: Vec<Value> = serde_json::from_slice(&tested.stdout).unwrap();
    assert_eq!((tested.status.code(), cases.len()), (Some(1), 2), "{cases:?}");
    assert!(cases[0]["problem"].as_str().unwrap().contains("and not 1"), "{cases:?}");
    assert!(cases[1]["problem"].as_str().unwrap().contains("should take"), "{cases:?}");
    assert_eq!(test(&["other"]).status.code(), Some(1), "no such file");
}
