//! Tools that are Python functions: called over REST, MCP and by programs, broken, and corrected.

mod modules;
mod operators;

use std::fs;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{answer, code, config};
use crate::approvals::KEYS;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::slack::slack;

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
            fs::create_dir_all(tools.join(name).parent().unwrap()).unwrap();
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

    /// Waits until a call ends so.
    async fn until(&self, tool: &str, arguments: Value, is_so: impl Fn(StatusCode, &Value) -> bool) {
        let waiting = async {
            loop {
                let (status, reply) = self.call(tool, arguments.clone()).await;
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
    let of_bern = || json!({"city": "Bern"});
    own.until("weather__now", of_bern(), |_, reply| reply["output"]["days"] == 2).await;
    fs::write(&path, "").unwrap();
    own.until("weather__now", of_bern(), |status, _| status == StatusCode::NOT_FOUND).await;
    assert!(own.degraded().await["python:weather"].as_str().unwrap().contains("no function with annotations"));
    fs::write(&path, WEATHER).unwrap();
    own.until("weather__now", of_bern(), |_, reply| reply["output"]["days"] == 1).await;
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

const ORDERS: &str = r#"
from typing import Annotated
from uuid import UUID
from pydantic import BaseModel, Field
from _rates import RATE
from shop.models import Line

class Order(BaseModel):
    number: UUID
    lines: list[Line] = Field(min_length=1)

def total(order: Order, discount: Annotated[float, Field(ge=0, le=1)] = 0) -> dict[str, float | str]:
    """The price of an order."""
    price = sum(line.quantity * line.price for line in order.lines) * (1 - discount) * RATE
    return {"number": str(order.number), "total": price}
"#;

const LINE: &str = "from decimal import Decimal\nfrom pydantic import BaseModel, Field\n\
    class Line(BaseModel):\n    price: float\n    quantity: int = Field(1, ge=1)\n";

/// A module that files share is a part of the tools of those that import it.
#[tokio::test]
async fn files_share_modules_and_take_models_of_pydantic() {
    let files = [("orders.py", ORDERS), ("_rates.py", "RATE = 2\n"), ("shop/models.py", LINE)];
    let own = OwnTools::start(&files, "").await;
    assert_eq!(own.degraded().await["python:orders"], Value::Null);
    let number = "886313e1-3b8a-5372-9b90-0c9aee199e5d";
    let order = |quantity: i32| json!({"order": {"number": number, "lines": [{"price": 1.5, "quantity": quantity}]}});
    for _ in 0..2 {
        assert_eq!(own.output("orders__total", order(2)).await, json!({"number": number, "total": 6.0}));
    }
    let (status, reply) = own.call("orders__total", order(0)).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"), "{reply}");
    let (_, schema) = answer(own.app.app.get("/tools/orders__total/schema")).await;
    assert!(schema.to_string().contains(r#""minimum":1"#), "{schema}");

    own.write("_rates.py", "RATE = 3\n").await;
    assert_eq!(own.output("orders__total", order(2)).await["total"], 9.0);
    own.write("shop/models.py", "x = (\n").await;
    let degraded = own.degraded().await;
    let reason = degraded["python:orders"].as_str().unwrap_or_else(|| panic!("{degraded}"));
    assert!(reason.contains("orders.py:6: shop/models.py:1: "), "{reason}");
}

/// The numbers are those of a desktop, as in a program.
#[tokio::test]
async fn integers_of_a_function_have_64_bits() {
    let source = "import numpy as np\nfrom scipy.signal import find_peaks\n\n\
        def spent(calls: int) -> int:\n    counts = np.bincount([0] * calls)\n    return int((counts * 50_000)[0])\n\n\
        def peaks(rate: int) -> list[int]:\n    values = np.zeros(4 * rate)\n    values[[rate // 2, 3 * rate]] = 1\n    \
        return (find_peaks(values)[0] * 1_000_000 // rate).tolist()\n";
    let own = OwnTools::start(&[("numbers.py", source)], "").await;
    assert_eq!(own.output("numbers__spent", json!({"calls": 70_000})).await, 3_500_000_000_i64);
    assert_eq!(own.output("numbers__peaks", json!({"rate": 50_000})).await, json!([500_000, 3_000_000]));
}
