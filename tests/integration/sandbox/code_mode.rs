//! Programs that call tools: they may what their caller may, and nothing more.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{TestApp, answer, code};
use crate::audit_events::lines;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::mcp_programs::server;
use crate::mcp_servers::{ready, yaml as mcp};
use crate::openapi::document;
use crate::slack::slack;

const IMPORT: &str = "from host import tools, ToolError\n";

/// With overrides of tools, and more of the configuration.
async fn app(overrides: &str, more: &str) -> PythonApp {
    in_directory(TempDir::new().unwrap(), overrides, more).await
}

async fn in_directory(directory: TempDir, overrides: &str, more: &str) -> PythonApp {
    let limits = "python_executor: {rate_limit: 1000000}, calculator: {rate_limit: 1000000}";
    let yaml = format!("tools: {{overrides: {{{limits}, {overrides}}}}}\n{more}\n");
    PythonApp::in_directory(directory, &yaml).await
}

/// The value of a program that must go well, and the receipt of its call.
async fn run(app: &PythonApp, program: &str) -> (Value, Value) {
    let (status, mut reply) = app.call(json!({"code": format!("{IMPORT}{program}")})).await;
    assert!(status == StatusCode::OK && reply["success"] == true, "{program}\n{status}: {reply}");
    (reply["output"]["result"].take(), reply["receipt"].take())
}

/// What a call in a program is refused with: the code, and after how many seconds it may succeed.
async fn refusal(app: &PythonApp, call: &str) -> (String, Value) {
    let program = format!(
        "try:\n  kept = ['none', repr({call})]\nexcept ToolError as error:\n  kept = [error.code, error.retry_after]\nkept"
    );
    let (result, _) = run(app, &program).await;
    (result[0].as_str().unwrap().to_owned(), result[1].clone())
}

/// A REST API, an MCP server and a built-in tool in one program.
#[tokio::test]
async fn one_program_calls_tools_of_every_kind_and_its_receipt_shows_them() {
    let upstream = TestApp::start().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("itself.json");
    std::fs::write(&file, document(&upstream.url).to_string()).unwrap();
    let more = format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
         openapi: {{collections: {{itself: {{spec_file: '{}'}}}}}}\n{}",
        file.display(),
        mcp(&[("moody", server("fine", ""))])
    );
    let app = in_directory(directory, "", &more).await;
    ready(&app.app).await;
    let program = "names = tools.itself__tools(category='math')\n\
                   sums = tools.gather(*[tools.calculator(expression=f'{n} * 2') for n in range(3)])\n\
                   echoed = tools.moody__echo(city='Bern')\n\
                   ['calculator' in names, sums, 'Bern' in str(echoed), tools.search('calculate')[0]['call']]";
    let (result, receipt) = run(&app, program).await;
    assert_eq!(
        (&result[0], &result[2], &result[3]),
        (&json!(true), &json!(true), &json!("tools.calculator")),
        "{result}"
    );
    assert_eq!(result[1].as_array().unwrap().len(), 3);
    let nested = &receipt["nested"];
    assert!(nested["count"] == 5 && nested["cost_usd"].as_f64().unwrap() >= 0.001, "{nested}");
    let called: Vec<_> =
        nested["calls"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap()).collect();
    assert_eq!(called, ["itself__tools", "calculator", "calculator", "calculator", "moody__echo"]);
    assert!(
        nested["calls"].as_array().unwrap().iter().all(|call| call["code"].is_null() && call["duration_ms"].is_f64())
    );
    let parent = receipt["call_id"].clone();
    let calls: Vec<_> = nested["calls"].as_array().unwrap().iter().map(|call| call["call_id"].clone()).collect();
    let (_, recent) = answer(app.app.get("/admin/calls?tool=moody__echo")).await;
    assert_eq!((&recent["calls"][0]["parent"], &recent["calls"][0]["depth"]), (&parent, &json!(1)), "{recent}");
    let directory = app.app.stop().await;
    for call in calls {
        let lines = lines(directory.path());
        let line = lines.iter().find(|line| line["call_id"] == call).unwrap();
        assert_eq!((&line["parent"], &line["depth"], &line["via"]), (&parent, &json!(1), &json!("sandbox")));
    }
}

#[tokio::test]
async fn what_its_caller_may_not_a_program_may_not_either() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let rules = "package tools\n\
                 deny[msg] { input.tool == \"fail\"; input.call.depth == 1; input.call.parent != null\n\
                 count(input.call.program) == 64; msg := \"no program calls it\" }\n";
    std::fs::write(policies.join("rules.rego"), rules).unwrap();
    let overrides = "paid: {roles: [admin]}, panic: {dangerous: true}";
    let app = in_directory(directory, overrides, &format!("policy: {{directory: '{}'}}", policies.display())).await;
    assert_eq!(code(&app.app.call("fail", json!({})).await.1), "tool_error", "the policy lets callers call it");
    for (call, expected) in [
        ("tools.fail()", "denied"),
        ("tools['paid']()", "unknown_tool"),
        ("tools['panic']()", "denied"),
        ("tools.python_executor(code='1')", "denied"),
        ("tools.calculator(expression='7')", "none"),
        ("tools.calculator(expression=7)", "invalid_arguments"),
        ("tools.calculator(wrong=7)", "invalid_arguments"),
        ("tools.calculator(expression='1 / 0')", "tool_error"),
    ] {
        assert_eq!(refusal(&app, call).await.0, expected, "{call}");
    }
    // Whatever the program writes, it is the same call.
    for forged in [
        "import host\ngetattr(host.tools, 'fa' + 'il')()",
        "t = tools\nt['fail']()",
        "eval('tools' + '.fail()')",
        "calls = [tools.fail]\ncalls[0]()",
    ] {
        let (_, reply) = app.call(json!({"code": format!("{IMPORT}{forged}")})).await;
        assert!(reply["error"].as_str().unwrap().contains("denied: no program calls it"), "{forged}: {reply}");
    }
    let frames = "import _host, json\n\
                  send = lambda frame: json.loads(_host.call(frame))\n\
                  [send(b'{\"v\":1,\"op\":\"call\",\"tool\":\"paid\",\"args\":{}}')['error']['kind'],\n \
                   send(b'{\"v\":1,\"op\":\"call\",\"tool\":\"fail\",\"args\":{},\"caller\":\"admin\",\"depth\":0}')['error']['kind'],\n \
                   send(b'{\"v\":1,\"op\":\"wait\",\"ids\":[0]}')['error']['kind'],\n \
                   send(b'{\"v\":1,\"op\":\"call\",\"tool\":\"calculator\",\"args\":' + b'[' * 9999)['error']['kind']]";
    assert_eq!(run(&app, frames).await.0, json!(["unknown_tool", "denied", "invalid_arguments", "protocol"]));
}

#[tokio::test]
async fn calls_of_a_program_draw_on_the_budget_and_the_rates_of_its_caller() {
    let app = app("sleep: {cost_per_use: '0.2'}, upstream: {rate_limit: 2}", "").await;
    // A request may cost 0.50 USD (E60), with all that its program calls.
    let program = "codes = []\nfor _ in range(4):\n  try:\n    codes.append(tools.sleep(ms=1))\n  \
                   except ToolError as error:\n    codes.append(error.code)\ncodes";
    for _ in 0..2 {
        let (codes, receipt) = run(&app, program).await;
        assert_eq!(codes, json!([1, 1, "budget_exceeded", "budget_exceeded"]));
        assert_eq!((&receipt["nested"]["count"], &receipt["nested"]["cost_usd"]), (&json!(4), &json!(0.4)));
    }
    let of_request = |id: &'static str| {
        let body = json!({"arguments": {"code": format!("{IMPORT}{program}")}});
        answer(app.app.post("/tools/python_executor/execute").header("x-request-id", id).json(&body))
    };
    assert_eq!(of_request("r-1").await.1["output"]["result"], json!([1, 1, "budget_exceeded", "budget_exceeded"]));
    assert_eq!(of_request("r-1").await.1["output"]["result"][0], "budget_exceeded", "it is the same request");
    assert_eq!(app.app.gateway.pipeline.budget.held().tokens, 0);
    for expected in ["none", "none", "rate_limited"] {
        let (code, wait) = refusal(&app, "tools.upstream()").await;
        assert_eq!(code, expected);
        assert!(code == "none" || wait.as_f64().unwrap() > 0.0, "{wait}");
    }
}

#[tokio::test]
async fn calls_run_in_parallel_and_a_wait_is_not_the_programs_own_time() {
    let app = app("", "sandbox: {timeout_seconds: 2}").await;
    let begun = Instant::now();
    let program = "import asyncio\nlen(await asyncio.gather(*[tools.sleep(ms=1500) for _ in range(10)]))";
    assert_eq!(run(&app, program).await.0, 10);
    assert!(begun.elapsed() < slack(Duration::from_secs(8)), "{:?}", begun.elapsed());
    assert_eq!(
        run(&app, "[tools.sleep(ms=1500) for _ in range(2)]").await.0,
        json!([1500, 1500]),
        "three seconds in all"
    );
    let (_, reply) = app.call(json!({"code": "while True: pass"})).await;
    assert_eq!(code(&reply), "sandbox_timeout", "its own time has its limit");

    let begun = Instant::now();
    let (_, reply) = app.call(json!({"code": format!("{IMPORT}tools.sleep(ms=60000)"), "timeout_seconds": 1})).await;
    assert!(["sandbox_timeout", "tool_error"].contains(&code(&reply)), "{reply}");
    assert!(begun.elapsed() < slack(Duration::from_secs(5)), "{:?}", begun.elapsed());
    let ended = "import time\nx = tools.sleep.start(ms=60000)\ntime.sleep(.5)\n'not waited for'";
    let (_, receipt) = run(&app, ended).await;
    assert_eq!(receipt["nested"]["calls"][0]["code"], "cancelled");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_what_its_program_has_called() {
    let app = app("", "").await;
    let body = json!({"arguments": {"code": format!("{IMPORT}tools.sleep(ms=60000)")}});
    let request = app.app.post("/tools/python_executor/execute").json(&body);
    let sent = tokio::spawn(request.send());
    let begun = Instant::now();
    while app.metric("runs_live").await < 1.0 || app.app.metric("shannon_calls_in_flight").await < 2.0 {
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "the tool is called");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sent.abort();
    app.idle().await;
    while app.app.metric("shannon_calls_in_flight").await > 0.0 {
        assert!(begun.elapsed() < slack(Duration::from_secs(30)), "a call is left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let directory = app.app.stop().await;
    let lines = lines(directory.path());
    let line = lines.iter().find(|line| line["tool"] == "sleep").unwrap();
    assert_eq!((&line["status"], &line["depth"]), (&json!("cancelled"), &json!(1)));
}

#[tokio::test]
async fn a_call_that_is_sent_again_with_its_key_calls_nothing_twice() {
    let app = app("", "").await;
    let body = json!({"arguments": {"code": format!("{IMPORT}tools.echo(n=1)['run']")}});
    let send = || answer(app.app.post("/tools/python_executor/execute").header("idempotency-key", "k-1").json(&body));
    let (first, again) = (send().await.1, send().await.1);
    assert_eq!((&first["output"]["result"], &again["output"]["result"]), (&json!(1), &json!(1)), "{first}");
    assert_eq!(app.app.call("echo", json!({})).await.1["output"]["run"], 2);
}

#[tokio::test]
async fn code_mode_has_limits_and_can_be_switched_off() {
    let app = app("flood: {max_output_bytes: 1000000}", "sandbox: {code_mode: {max_calls: 3}}").await;
    let many = "for _ in range(3): tools.echo()\ntry:\n  tools.echo()\nexcept ToolError as error:\n  kept = [error.code, 'more' in str(error) or 'many' in str(error)]\nkept";
    assert_eq!(run(&app, many).await.0, json!(["budget_exceeded", true]));
    let (_, reply) =
        app.call(json!({"code": "import _host\nwhile True: _host.call(b'{\"v\":1,\"op\":\"list\"}')"})).await;
    assert_eq!(code(&reply), "sandbox_output", "{reply}");
    let flood = "tools['flood']()";
    assert_eq!(refusal(&app, flood).await.0, "output_too_large", "a tool's own limit");
    drop(app);
    let off = self::app("", "sandbox: {code_mode: {enabled: false}}").await;
    assert_eq!(refusal(&off, "tools.echo()").await.0, "denied");
}

#[tokio::test]
async fn an_mcp_client_gets_a_tool_that_runs_programs_over_those_of_its_endpoint() {
    let endpoint = "mcp: {endpoints: {coded: {code_mode: true, tools: [calculator, python_executor]}}}";
    let app = app("", endpoint).await;
    let client = McpClient::new(&app.app, NEWER, None).at_endpoint("coded");
    let program = "try:\n  tools.echo()\nexcept ToolError as error:\n  refused = error.code\n\
                   [str(tools.calculator(expression='6*7')), refused]";
    let call = json!({"name": "run_python", "arguments": {"code": format!("{IMPORT}{program}")}});
    let called = client.result("tools/call", call, "CallToolResult").await;
    let result = &called["structuredContent"]["result"];
    assert!(result[0].as_str().is_some_and(|sum| sum.contains("42")) && result[1] == "unknown_tool", "{called}");
}

#[tokio::test]
async fn programs_of_an_agent_call_what_its_profile_leaves_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("script.yaml");
    let program = "tools.calculator(expression='6*7')\ntry:\n  tools['echo']()\nexcept ToolError:\n  pass\n\
                   import _host\n_host.call(b'{\"v\":1,\"op\":\"call\",\"tool\":\"echo\",\"args\":{}}')";
    let arguments = json!({"code": format!("{IMPORT}{program}")}).to_string();
    let calls = json!([{"id": "a", "tool": "run_python", "arguments": arguments}]);
    let turns = json!({"turns": [{"calls": calls}, {"text": ["Done."]}]});
    std::fs::write(&script, turns.to_string()).unwrap();
    let agent = format!(
        "agent: {{default_profile: coded, profiles: {{coded: {{provider: replay, model: '{}', code_mode: true, \
         tools: {{exclude: [echo]}}}}}}}}",
        script.display()
    );
    let app = in_directory(directory, "", &agent).await;
    let body = json!({"model": "coded", "messages": [{"role": "user", "content": "What is 6*7?"}]});
    let (status, completion) = answer(app.app.post("/v1/chat/completions").json(&body)).await;
    assert_eq!((status, &completion["choices"][0]["message"]["content"]), (StatusCode::OK, &json!("Done.")));
    let directory = app.app.stop().await;
    let nested: Vec<_> = lines(directory.path()).into_iter().filter(|line| line["depth"] == 1).collect();
    let ended: Vec<_> = nested.iter().map(|line| (line["tool"].as_str(), line["code"].as_str())).collect();
    assert_eq!(ended, [(Some("calculator"), None), (Some("echo"), Some("unknown_tool"))], "{nested:#?}");
}
