//! MCP servers behind the gateway: what they offer, and that a bad one harms nobody else.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use sekisho::testing::OperationRequest;
use sekisho::{CallContext, Caller, ErrorCode, Via};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, config, degraded};
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::mcp_programs::{processes, running, server, started};
use crate::slack::slack;

async fn app_with(servers: &[(&str, String)]) -> TestApp {
    let app = TestApp::with(&yaml(servers)).await;
    ready(&app).await;
    app
}

pub(crate) fn yaml(servers: &[(&str, String)]) -> String {
    let lines: Vec<_> = servers.iter().map(|(name, settings)| format!("    {name}: {settings}\n")).collect();
    format!("mcp:\n  servers:\n{}", lines.concat())
}

pub(crate) async fn ready(app: &TestApp) {
    tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
    app.gateway.tool_offer().offer_mcp_tools().await;
}

async fn names(app: &TestApp) -> Vec<String> {
    let (_, names) = answer(app.get("/tools/list")).await;
    serde_json::from_value(names).unwrap()
}

/// The process of the server `moody`, as soon as it answers.
async fn pid(app: &TestApp) -> String {
    loop {
        let (_, reply) = app.call("moody__pid", json!({})).await;
        if reply["success"] == true {
            return reply["output"]["pid"].to_string();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_tools_of_a_program_are_called_through_the_checkpoint() {
    let app = app_with(&[("moody", server("fine", "cost_per_use: 0.002, labels: [demo]"))]).await;
    let (status, reply) = app.call("moody__echo", json!({"city": "Bern"})).await;
    assert_eq!((status, reply["text"].as_str()), (StatusCode::OK, Some(r#"{"city":"Bern"}"#)), "{reply}");
    assert_eq!((reply["usage"]["cost_usd"].as_f64(), reply.get("content")), (Some(0.002), None));

    let (_, reply) = app.call("moody__fail", json!({})).await;
    assert_eq!((code(&reply), reply["error"].as_str()), ("tool_error", Some("it did not work")), "{reply}");
    let (_, reply) = app.call("moody__refuse", json!({})).await;
    assert_eq!(code(&reply), "tool_error", "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("no such city"), "{reply}");
    let (_, reply) = app.call("moody__picture", json!({})).await;
    assert_eq!(reply["content"][0]["mimeType"], "image/png", "{reply}");
    let (_, reply) = app.call("moody__pid", json!({})).await;
    assert!(reply["output"]["pid"].is_u64(), "{reply}");

    let (_, metadata) = answer(app.get("/tools/moody__echo/metadata")).await;
    assert_eq!(metadata["source"], "mcp:moody");
    assert_eq!((&metadata["rate_limit"], &metadata["labels"]), (&json!(60), &json!(["demo"])));
    assert_eq!(app.metric("shannon_mcp_server_up{server=\"moody\"}").await, 1.0);
    app.stop().await;
}

#[tokio::test]
async fn an_error_of_a_program_keeps_the_values_of_env_that_are_no_secrets() {
    let environment = json!({"MOOD": "fine", "TABLE": "city", "A_TOKEN": "such"});
    let app = app_with(&[("moody", started("moody", &environment, ""))]).await;
    let (_, reply) = app.call("moody__refuse", json!({})).await;
    assert!(reply["error"].as_str().unwrap().contains("no [redacted] city"), "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_refuses_notifications_is_listed_and_called() {
    let app = app_with(&[("moody", server("objecting", ""))]).await;
    let (_, reply) = app.call("moody__echo", json!({"city": "Bern"})).await;
    assert_eq!(reply["text"], r#"{"city":"Bern"}"#, "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_ignores_cursors_has_each_tool_once() {
    let app = app_with(&[("moody", server("unmoved", ""))]).await;
    let (_, listed) = answer(app.get("/tools/list?detail=full")).await;
    let listed = listed.as_array().unwrap().iter().filter(|tool| tool["source"] == "mcp:moody");
    assert_eq!(listed.filter(|tool| tool["unavailable"].is_null()).count(), 5);
    assert_eq!(degraded(&app).await, Value::Null);
    app.stop().await;
}

#[tokio::test]
async fn what_servers_have_beside_tools_is_found_under_their_names() {
    let app = app_with(&[("one", server("fine", "")), ("two", server("fine", "roles: [friend]"))]).await;
    let servers = app.gateway.mcp_servers();
    let (stranger, friend) = (Caller::anonymous(), Caller::new("f", "t", vec!["friend".into()]));
    let uris = |caller: &Caller| {
        servers
            .resources(caller, &|_, _| false)
            .iter()
            .map(|found| found["uri"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(uris(&stranger), ["one+demo://one"]);
    assert_eq!(uris(&friend), ["one+demo://one", "two+demo://one"]);
    assert_eq!(servers.resource_templates(&friend, &|_, _| false)[1]["uriTemplate"], "two+demo://{n}");
    assert_eq!(servers.prompts(&friend, &|_, _| false)[1]["name"], "two__greet");
    assert_eq!(servers.instructions(&stranger, &|_, _| false).unwrap(), "one: Be patient with it.");
    let of_one = |source: &str, _: &Value| source == "mcp:one";
    assert_eq!(servers.resources(&friend, &of_one)[0]["uri"], "two+demo://one");
    assert_eq!(servers.resource_templates(&friend, &of_one)[0]["uriTemplate"], "two+demo://{n}");
    assert_eq!(servers.prompts(&friend, &of_one)[0]["name"], "two__greet");
    assert_eq!(servers.instructions(&friend, &of_one).unwrap(), "two: Be patient with it.");

    let run = async |caller: &Caller, request: OperationRequest| {
        let (call, arguments) = request.into_call(CallContext::new("", caller.clone().into(), Via::Mcp));
        let answered = app.gateway.pipeline.call(call, arguments).await;
        match &answered.reply.outcome {
            Ok(answer) => Ok(answer.output.clone()),
            Err(error) => Err(error.code()),
        }
    };
    let read = run(&friend, servers.read_resource(&friend, "two+demo://7")).await.unwrap();
    assert_eq!(read["contents"][0], json!({"uri": "two+demo://7", "text": "what \"demo://7\" says"}));
    let read = run(&stranger, servers.read_resource(&stranger, "two+demo://7")).await;
    assert_eq!(read, Err(ErrorCode::UnknownTool), "not this caller's");
    // Nor for who comes to the call itself by another way.
    let read = run(&stranger, servers.read_resource(&friend, "two+demo://7")).await;
    assert_eq!(read, Err(ErrorCode::Denied));
    let arguments = || json!({"name": "Ada"}).as_object().cloned();
    let prompt = run(&stranger, servers.get_prompt(&stranger, "one__greet", arguments())).await.unwrap();
    assert_eq!(prompt["messages"][0]["content"]["text"], "Hello \"Ada\"");
    let prompt = run(&stranger, servers.get_prompt(&stranger, "two__greet", arguments())).await;
    assert_eq!(prompt, Err(ErrorCode::UnknownTool));
    app.stop().await;
}

#[tokio::test]
async fn the_tools_of_a_server_are_for_callers_of_its_roles() {
    let keys = "auth: {api_keys: [{id: ada, key: key-of-ada, roles: [friend]}, {id: eve, key: key-of-eve}]}\n";
    let app = TestApp::with(&format!("{keys}{}", yaml(&[("moody", server("fine", "roles: [friend]"))]))).await;
    ready(&app).await;
    for (key, may) in [("key-of-ada", true), ("key-of-eve", false)] {
        let request = app.post("/tools/moody__echo/execute").json(&json!({"arguments": {}}));
        let (status, reply) = answer(request.bearer_auth(key)).await;
        let expected = if may { (StatusCode::OK, None) } else { (StatusCode::NOT_FOUND, Some("unknown_tool")) };
        assert_eq!((status, reply["error_info"]["code"].as_str()), expected, "{key}: {reply}");

        let client = McpClient::connect_as(&app, NEWER, Some(key)).await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(listed.to_string().contains("moody__echo"), may, "{key}: {listed}");
        let reply = client.reply("tools/call", json!({"name": "moody__echo", "arguments": {}})).await;
        let expected = if may { Value::Null } else { json!(-32602) };
        assert_eq!(reply["error"]["code"], expected, "{key}: {reply}");
        assert!(may || !reply.to_string().contains("friend"), "who may is not told: {reply}");
    }
    app.stop().await;
}

/// Clients whose callers may not use a server are not told of its lists.
#[tokio::test]
async fn the_lists_of_a_server_change_for_callers_of_its_roles() {
    const CHANGED: [&str; 2] = ["notifications/prompts/list_changed", "notifications/resources/list_changed"];
    let keys = "auth: {api_keys: [{id: ada, key: key-of-ada, roles: [friend]}, {id: eve, key: key-of-eve}]}\n";
    let of_friends = |name| (name, server("fine", "roles: [friend]"));
    let app = TestApp::with(&format!("{keys}{}", yaml(&[of_friends("one")]))).await;
    ready(&app).await;
    let listening = async |key| {
        let wanted = json!({"promptsListChanged": true, "resourcesListChanged": true, "toolsListChanged": true});
        McpClient::new(&app, NEWER, Some(key)).listen(wanted).await
    };
    let (mut ada, mut eve) = (listening("key-of-ada").await, listening("key-of-eve").await);
    let mut servers = vec![of_friends("one"), of_friends("two")];
    app.gateway.reload(config(&app.directory, &format!("{keys}{}", yaml(&servers)))).await;
    // The one of resources comes first.
    ada.next_of(CHANGED[1]).await;
    ada.next_of(CHANGED[0]).await;
    servers.push(("three", server("fine", "")));
    let mut of_friends_now = servers.clone();
    of_friends_now[2] = of_friends("three");
    // One that has other callers, or is removed, is told of, too.
    for servers in [&servers[..], &of_friends_now, &servers, &servers[..2]] {
        app.gateway.reload(config(&app.directory, &format!("{keys}{}", yaml(servers)))).await;
        let mut told = Vec::new();
        while told.len() < 3 {
            told.push(eve.next().await.unwrap()["method"].as_str().unwrap().to_owned());
        }
        told.sort();
        assert_eq!(told, [CHANGED[0], CHANGED[1], "notifications/tools/list_changed"], "those of `three` only");
    }
    drop((ada, eve));
    app.stop().await;
}

/// Mood, what its calls end with (nothing: success), and within which time.
const MOODS: [(&str, Option<&str>, u64); 8] = [
    ("dies", Some("upstream_error"), 5),
    ("silent", Some("timeout"), 3),
    ("twice", None, 2),
    ("wrong", Some("timeout"), 3),
    ("half", Some("upstream_error"), 5),
    ("drip", None, 3),
    ("long", Some("output_too_large"), 6),
    ("flood", None, 10),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_server_fails_in_its_own_way_in_time_and_harms_no_other() {
    let mut servers: Vec<_> = MOODS
        .iter()
        .map(|(mood, expected, seconds)| {
            let timeout = if *expected == Some("timeout") { 1 } else { *seconds };
            (*mood, server(mood, &format!("timeout_seconds: {timeout}, max_message_bytes: 1000000")))
        })
        .collect();
    servers.push(("fine", server("fine", "")));
    servers.push(("mute", server("mute", "connect_timeout_seconds: 2")));
    servers.push(("garbage", server("garbage", "connect_timeout_seconds: 2")));
    servers.push(("nowhere", "{command: /nowhere/at/all}".to_owned()));
    let began = Instant::now();
    let app = TestApp::with(&yaml(&servers)).await;
    assert!(began.elapsed() < slack(Duration::from_secs(5)), "the start waits for no server");
    ready(&app).await;

    for (mood, expected, seconds) in MOODS {
        let began = Instant::now();
        let (_, reply) = app.call(&format!("{mood}__echo"), json!({})).await;
        let found = reply["error_info"]["code"].as_str();
        assert_eq!(found, expected, "{mood}: {reply}");
        assert!(began.elapsed() < slack(Duration::from_secs(seconds)), "{mood} took {:?}", began.elapsed());
        let (_, reply) = app.call("fine__echo", json!({})).await;
        assert_eq!(reply["success"], true, "beside {mood}: {reply}");
    }

    let (_, ready) = answer(app.get("/readyz")).await;
    let why = |name: &str| ready["degraded"][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(ready["status"], "degraded");
    assert!(why("mcp:mute").contains("did not complete the handshake"), "{ready}");
    assert!(!why("mcp:garbage").is_empty(), "{ready}");
    assert!(why("mcp:nowhere").contains("/nowhere/at/all cannot be started"), "{ready}");
    assert_eq!(why("mcp:fine"), "");
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_is_down_keeps_its_tools_listed_with_the_reason() {
    const MOOD: &str = "fine-killed";
    let app = app_with(&[("moody", server(MOOD, ""))]).await;
    let before = names(&app).await;
    // It comes back at once the first time; then it is left alone for a while.
    for _ in 0..2 {
        pid(&app).await;
        // That over which it was listed, and the caller's own.
        assert!(std::process::Command::new("kill").arg("-9").args(processes(MOOD)).status().unwrap().success());
    }
    let degraded = async {
        loop {
            let (_, listed) = answer(app.get("/tools/list?detail=full")).await;
            let found = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "moody__echo").unwrap();
            if let Some(why) = found["degraded"].as_str() {
                return why.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(10), degraded).await.expect("it is down");
    assert!(why.contains("signal: 9"), "{why}");
    assert_eq!(names(&app).await, before);
    let (status, reply) = app.call("moody__echo", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::SERVICE_UNAVAILABLE, "circuit_open"), "{reply}");
    assert!(reply["error_info"]["retry_after_ms"].as_u64().unwrap() >= 1_000, "{reply}");
    // However many calls were refused, the first one after its return is let through.
    tokio::time::timeout(Duration::from_secs(10), pid(&app)).await.expect("it is connected again");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_is_left_behind_after_many_crashes_and_restarts() {
    const MOOD: &str = "dies-counted";
    let app = app_with(&[("dies", server(MOOD, ""))]).await;
    for _ in 0..5 {
        let (_, reply) = app.call("dies__echo", json!({})).await;
        assert!(matches!(code(&reply), "upstream_error" | "circuit_open"), "{reply}");
        assert!(running(MOOD) <= 2, "{} programs run", running(MOOD));
    }
    for n in 0..20 {
        let settings = server(MOOD, &format!("category: c{n}"));
        app.gateway.reload(config(&app.directory, &yaml(&[("dies", settings)]))).await;
        ready(&app).await;
    }
    app.stop().await;
    assert_eq!(running(MOOD), 0, "programs outlive the gateway");
}

#[tokio::test]
async fn a_program_that_ignores_the_newer_handshake_soon_gets_the_older_one() {
    let began = Instant::now();
    let app = app_with(&[("deaf", server("deaf", ""))]).await;
    assert!(began.elapsed() < slack(Duration::from_secs(8)), "it took {:?}", began.elapsed());
    let (_, reply) = app.call("deaf__echo", json!({})).await;
    assert_eq!(reply["success"], true, "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_lost_call_is_retried_only_if_a_trusted_server_marks_it_idempotent() {
    let directory = TempDir::new().unwrap();
    let mood = |name: &str| format!("stumbles-{}", directory.path().join(name).display());
    let servers = [("trusted", server(&mood("a"), "trusted: true")), ("stranger", server(&mood("b"), ""))];
    let app = app_with(&servers).await;
    let (_, reply) = app.call("trusted__echo", json!({"n": 1})).await;
    assert_eq!((&reply["success"], &reply["receipt"]["attempts"]), (&json!(true), &json!(2)), "{reply}");
    let (_, reply) = app.call("stranger__echo", json!({})).await;
    assert_eq!((code(&reply), &reply["receipt"]["attempts"]), ("upstream_error", &json!(1)), "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_server_may_have_a_breaker_of_its_own() {
    let own = "timeout_seconds: 1, breaker: {consecutive_failures: 2, recovery_seconds: 7}";
    let app = app_with(&[("own", server("silent", own)), ("other", server("silent", "timeout_seconds: 1"))]).await;
    for name in ["own__echo", "other__echo"] {
        for _ in 0..2 {
            let (_, reply) = app.call(name, json!({})).await;
            assert_eq!(code(&reply), "timeout", "{reply}");
        }
    }
    let (_, reply) = app.call("own__echo", json!({})).await;
    assert_eq!(code(&reply), "circuit_open", "{reply}");
    assert!(reply["error_info"]["retry_after_ms"].as_u64().unwrap() <= 7_000, "{reply}");
    let (_, reply) = app.call("other__echo", json!({})).await;
    assert_eq!(code(&reply), "timeout", "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn the_tools_of_a_server_are_limited_and_the_excess_is_reported() {
    let some = server("thousands", "include: [tool_9999, 'tool_21*']");
    let app = app_with(&[("many", server("thousands", "")), ("some", some)]).await;
    let offered = names(&app).await.iter().filter(|name| name.starts_with("many__")).count();
    assert_eq!(offered, 1_000);
    let snapshot = app.gateway.pipeline.registry.snapshot();
    let reported = snapshot.unavailable().iter().find(|tool| tool.name == "many__*").unwrap();
    assert!(reported.reason.contains("max_tools_per_server"), "{reported:?}");
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:many"].as_str().unwrap().contains("max_tools_per_server"), "{ready}");
    // Excluded tools are not counted.
    assert!(names(&app).await.contains(&"some__tool_9999".to_owned()));
    assert_eq!(ready["degraded"]["mcp:some"], Value::Null, "{ready}");
    app.stop().await;
}

#[tokio::test]
async fn a_list_of_tools_that_never_ends_is_not_read_for_ever() {
    let app = app_with(&[("endless", server("endless", "")), ("fine", server("fine", ""))]).await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:endless"].as_str().unwrap().contains("max_tools_per_server"), "{ready}");
    assert_eq!(ready["degraded"]["mcp:fine"], Value::Null, "{ready}");
    app.stop().await;
}

#[tokio::test]
async fn tools_that_change_are_followed() {
    let app = app_with(&[("moody", server("changes", ""))]).await;
    let changed = async {
        while !names(&app).await.contains(&"moody__tool_5".to_owned()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), changed).await.expect("the last list is offered");
    assert!(!names(&app).await.contains(&"moody__tool_1".to_owned()));
    app.stop().await;
}

#[tokio::test]
async fn a_reload_adds_changes_and_removes_servers_and_leaves_the_others_alone() {
    let directory = TempDir::new().unwrap();
    let app =
        TestApp::in_directory(directory, &yaml(&[("kept", server("fine", "")), ("gone", server("fine", ""))])).await;
    ready(&app).await;
    let (_, reply) = app.call("kept__pid", json!({})).await;
    let pid = reply["output"]["pid"].clone();
    let next = yaml(&[("kept", server("fine", "")), ("bare", server("fine", "prefix: never, include: ['ec*']"))]);
    app.gateway.reload(config(&app.directory, &next)).await;
    ready(&app).await;
    let names = names(&app).await;
    assert!(!names.iter().any(|name| name.starts_with("gone__")), "{names:?}");
    let (_, reply) = app.call("kept__pid", json!({})).await;
    assert_eq!(reply["output"]["pid"], pid, "an unchanged server goes on");
    // `echo` is a tool of the test's own already: the conflict is reported, and both tools continue to work.
    let snapshot = app.gateway.pipeline.registry.snapshot();
    let clash = snapshot.unavailable().iter().find(|tool| tool.name == "echo").unwrap();
    assert!(clash.reason.contains("two tools have the name"), "{clash:?}");
    let (_, reply) = app.call("echo", json!({"a": 1})).await;
    assert_eq!(reply["output"]["echo"], json!({"a": 1}));
    app.stop().await;
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled() {
    let app = app_with(&[("moody", server("silent", "timeout_seconds: 30"))]).await;
    let call = CallContext::new("moody__echo", Caller::anonymous().into(), Via::Rest);
    let running = app.gateway.pipeline.call(call, Value::default().as_object().cloned().unwrap_or_default());
    assert!(tokio::time::timeout(Duration::from_millis(200), running).await.is_err());
    assert_eq!(app.gateway.pipeline.limits.in_flight(), 0);
    app.stop().await;
}
