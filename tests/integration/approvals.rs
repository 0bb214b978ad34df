//! Calls that a person must approve: asked, decided, made once, also over restarts, crashes and replicas.

mod crashes;
mod creators;
mod races;
mod replicas;
pub(crate) mod runs;
mod together;

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::audit_events::lines;
use crate::charges::served;
use crate::cli::{Serving, sekisho, text};
use crate::lock::until;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::policy::with_policy_and;

pub(crate) const KEYS: &str = "
auth:
  api_keys:
    - {id: ann, key: key-of-ann, tenant: acme}
    - {id: bob, key: key-of-bob, tenant: acme}
    - {id: boss, key: key-of-boss, tenant: acme, roles: [approver]}
    - {id: eve, key: key-of-eve, tenant: acme, roles: [approver], person: Eve}
    - {id: eve-too, key: key-of-eve-too, tenant: acme, roles: [approver], person: Eve}
    - {id: far, key: key-of-far, tenant: other, roles: [approver]}
";

pub(crate) const ASKS: &str = "tools: {overrides: {echo: {approval: always}}}\n";

pub(crate) fn call(app: &TestApp, key: &str, arguments: &Value) -> RequestBuilder {
    app.post("/tools/echo/execute").bearer_auth(key).json(&json!({"arguments": arguments}))
}

/// The id of the approval that a call asks for.
pub(crate) async fn ask(app: &TestApp, key: &str, arguments: &Value) -> String {
    let (status, reply) = answer(call(app, key, arguments)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    reply["error_info"]["approval"]["id"].as_str().unwrap().to_owned()
}

async fn decide(app: &TestApp, key: &str, id: &str, what: &str, body: Value) -> (StatusCode, Value) {
    answer(app.post(&format!("/approvals/{id}/{what}")).bearer_auth(key).json(&body)).await
}

async fn approve(app: &TestApp, id: &str) {
    let (status, body) = decide(app, "key-of-boss", id, "approve", json!({})).await;
    assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("approved")), "{body}");
}

pub(crate) async fn show(app: &TestApp, key: &str, id: &str) -> (StatusCode, Value) {
    answer(app.get(&format!("/approvals/{id}")).bearer_auth(key)).await
}

#[tokio::test]
async fn a_call_is_approved_by_another_and_made_once() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    let arguments = json!({"to": "ann\u{202e}", "amount": 7});
    let (_, refused) = answer(call(&app, "key-of-ann", &arguments)).await;
    let needed = &refused["error_info"]["approval"];
    let id = needed["id"].as_str().unwrap();
    assert!(needed["url"].as_str().unwrap().ends_with(&format!("/console/approvals/{id}")), "{needed}");
    assert!(needed["expires_at"].as_str().unwrap().ends_with('Z'), "{needed}");
    assert!(refused["error"].as_str().unwrap().contains(&format!("`X-Approval-Id: {id}`")), "{refused}");
    // Arguments are for approvers, and no character of them hides.
    let (_, own) = show(&app, "key-of-ann", id).await;
    assert_eq!((&own["status"], own.get("arguments")), (&json!("pending"), None), "{own}");
    let (_, shown) = show(&app, "key-of-boss", id).await;
    assert_eq!(shown["arguments"], json!({"to": "ann\\u202e", "amount": 7}), "{shown}");
    assert_eq!((&shown["caller"]["id"], &shown["reasons"]), (&json!("ann"), &json!(["echo always needs approval"])));
    for stranger in ["key-of-bob", "key-of-far"] {
        let (status, hidden) = show(&app, stranger, id).await;
        let (_, unknown) = show(&app, stranger, "unknown").await;
        assert_eq!((status, &hidden["error"]), (StatusCode::NOT_FOUND, &unknown["error"]), "{stranger}");
    }
    for (key, status) in [
        ("key-of-ann", StatusCode::FORBIDDEN),
        ("key-of-bob", StatusCode::FORBIDDEN),
        ("key-of-far", StatusCode::NOT_FOUND),
    ] {
        let (found, body) = decide(&app, key, id, "approve", json!({})).await;
        assert_eq!(found, status, "{key}: {body}");
    }
    // Reading changes nothing.
    for path in [format!("/approvals/{id}/approve"), format!("/approvals/{id}/deny")] {
        let read = app.get(&path).bearer_auth("key-of-boss").send().await.unwrap();
        assert_eq!(read.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    approve(&app, id).await;
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let (status, reply) = answer(call(&app, "key-of-ann", &arguments).header("x-approval-id", id)).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        outputs.push(reply["output"].clone());
    }
    assert_eq!((&outputs[0], &outputs[0]["run"]), (&outputs[1], &json!(1)));
    assert_eq!(app.metric("shannon_approvals_total{event=\"asked\"}").await, 1.0);
    assert_eq!(app.metric("shannon_approvals_total{event=\"used\"}").await, 1.0);
    assert_eq!(app.metric("shannon_approvals_pending").await, 0.0);
    let lines = lines(app.stop().await.path());
    let events: Vec<_> =
        lines.iter().filter_map(|line| Some((line["event"].as_str()?, line["caller"].as_str()?))).collect();
    let done: Vec<_> = lines.iter().filter(|line| line["success"] == true && line["subject"] == id).collect();
    assert_eq!(
        done.iter().map(|line| line["event"].as_str().unwrap()).collect::<Vec<_>>(),
        ["approval_asked", "approval_given", "approval_used"]
    );
    // That of another tenant's approver, who was refused.
    assert!(events.contains(&("approval_given", "far")), "{events:?}");
    assert!(!lines.iter().any(|line| line.to_string().contains("amount")), "no argument is in the trail");
}

#[tokio::test]
async fn approvals_are_listed_by_status_tool_and_caller_in_pages() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    let first = ask(&app, "key-of-ann", &json!({"n": 1})).await;
    ask(&app, "key-of-ann", &json!({"n": 2})).await;
    ask(&app, "key-of-bob", &json!({"n": 1})).await;
    let (status, denied) = decide(&app, "key-of-boss", &first, "deny", json!({"reason": "no"})).await;
    assert_eq!((status, &denied["decisions"][0]["reason"]), (StatusCode::OK, &json!("no")));
    let list = async |key: &str, query: &str| {
        let (status, body) = answer(app.get(&format!("/approvals{query}")).bearer_auth(key)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    };
    for (key, query, count) in [
        ("key-of-boss", "", 3),
        ("key-of-boss", "?status=pending", 2),
        ("key-of-boss", "?status=denied&caller=ann", 1),
        ("key-of-boss", "?tool=calculator", 0),
        ("key-of-ann", "", 2),
        ("key-of-ann", "?caller=bob", 0),
        ("key-of-far", "", 0),
    ] {
        let body = list(key, query).await;
        assert_eq!(body["approvals"].as_array().unwrap().len(), count, "{key} {query}: {body}");
        assert!(!body.to_string().contains("\"arguments\""), "{body}");
    }
    let page = list("key-of-boss", "?limit=2").await;
    let next = page["next"].as_str().unwrap();
    let rest = list("key-of-boss", &format!("?limit=2&before={next}")).await;
    assert_eq!((rest["approvals"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    assert_eq!(answer(app.get("/approvals?status=lost").bearer_auth("key-of-boss")).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_request_that_prefers_to_wait_is_answered_when_somebody_decides() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    let arguments = json!({"n": 1});
    let wait = |seconds: u32| call(&app, "key-of-ann", &arguments).header("prefer", format!("wait={seconds}")).send();
    let in_vain = wait(0).await.unwrap();
    assert_eq!(
        (in_vain.status(), &in_vain.headers()["preference-applied"]),
        (StatusCode::FORBIDDEN, &"wait=0".parse().unwrap())
    );
    let id = ask(&app, "key-of-ann", &arguments).await;
    let decide_later = async |what: &str, id: &str| {
        while app.metric("shannon_approval_waiters").await == 0.0 {
            tokio::task::yield_now().await;
        }
        let (status, decided) = decide(&app, "key-of-boss", id, what, json!({})).await;
        // Whether the call is under way already or not.
        let expected = if what == "approve" { "approved" } else { "denied" };
        assert_eq!((status, &decided["status"]), (StatusCode::OK, &json!(expected)), "{decided}");
    };
    let (answered, ()) = tokio::join!(wait(60), decide_later("approve", &id));
    let answered = answered.unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    assert_eq!(answered.json::<Value>().await.unwrap()["output"], json!({"echo": {"n": 1}, "run": 1}));
    let id = ask(&app, "key-of-ann", &arguments).await;
    let (answered, ()) = tokio::join!(wait(60), decide_later("deny", &id));
    let denied = answered.unwrap().json::<Value>().await.unwrap();
    assert_eq!(code(&denied), "approval_denied");
    assert_eq!(app.metric("shannon_approval_waiters").await, 0.0);
}

/// Two hundred waiting calls hold none of two slots and no money, and each gets the one reply.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_waiting_calls_do_not_slow_another_caller() {
    let settings = "
tools: {overrides: {paid: {approval: always}}}
limits:
  max_concurrent: 2
  caller_rate_limit: 100000
  rules: [{name: paid, match: {tools: [paid]}, per: caller, max_concurrent: 2, cost_per_day: '0.15'}]
";
    let app = TestApp::with(&format!("{KEYS}{settings}")).await;
    let pay = || app.post("/tools/paid/execute").bearer_auth("key-of-ann").json(&json!({"arguments": {"n": 1}}));
    let rule = async || answer(app.get("/limits").bearer_auth("key-of-ann")).await.1["rules"][0].take();
    let waiting: Vec<_> = (0..200).map(|_| tokio::spawn(pay().header("prefer", "wait=120").send())).collect();
    while app.metric("shannon_approval_waiters").await < 200.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..50 {
        let request = app.post("/tools/sleep/execute").bearer_auth("key-of-bob");
        let (status, reply) = answer(request.json(&json!({"arguments": {"ms": 0}}))).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    // All of them wait still.
    assert_eq!(app.metric("shannon_approval_waiters").await, 200.0);
    assert_eq!(app.metric("shannon_calls_in_flight").await, 0.0);
    let left = rule().await;
    assert_eq!((&left["running"], &left["cost_left_usd"]), (&json!(0), &json!(0.15)), "{left}");
    approve(&app, &pending(&app).await).await;
    for answered in join_all(waiting).await {
        let answered = answered.unwrap().unwrap();
        assert_eq!(answered.status(), StatusCode::OK);
        assert_eq!(answered.json::<Value>().await.unwrap()["output"]["run"], 1);
    }
    assert_eq!(rule().await["cost_left_usd"], 0.05, "the call is paid once");
}

#[tokio::test]
async fn two_persons_approve_where_the_tool_needs_two() {
    let two = "tools: {overrides: {echo: {approval: always, approvals_needed: 2}}}\n";
    let app = TestApp::with(&format!("{KEYS}{two}")).await;
    let id = ask(&app, "key-of-ann", &json!({})).await;
    let (_, first) = decide(&app, "key-of-eve", &id, "approve", json!({"reason": "fine"})).await;
    assert_eq!((&first["status"], &first["approvals_needed"]), (&json!("pending"), &json!(2)), "{first}");
    let (status, same) = decide(&app, "key-of-eve-too", &id, "approve", json!({})).await;
    assert_eq!((status, code(&same)), (StatusCode::FORBIDDEN, "denied"), "one person with two keys: {same}");
    approve(&app, &id).await;
}

#[tokio::test]
async fn policies_ask_mask_and_say_who_may_approve() {
    const RULES: &str = r#"package tools
deny["never"] { false }
require_approval["costly"] { input.arguments.amount > 5 }
mask["/token"] { input.tool == "echo" }
"#;
    let app = with_policy_and(RULES, KEYS).await;
    let approvers = r#"package approvals
deny[msg] { input.approval.arguments.amount > 100; input.approver.person != "Eve"; msg := "ask Eve" }
deny["once only"] { input.scope != "once" }
"#;
    std::fs::write(app.directory.path().join("policies/approvals.rego"), approvers).unwrap();
    app.gateway.reload((**app.gateway.configuration().current()).clone()).await;
    assert_eq!(answer(call(&app, "key-of-ann", &json!({"amount": 5}))).await.0, StatusCode::OK);
    let id = ask(&app, "key-of-ann", &json!({"amount": 500, "token": "hunter2"})).await;
    let (_, shown) = show(&app, "key-of-boss", &id).await;
    assert_eq!(
        (&shown["arguments"]["token"]["masked"], &shown["arguments"]["token"]["length"]),
        (&json!(true), &json!(7))
    );
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    let (status, refused) = decide(&app, "key-of-boss", &id, "approve", json!({})).await;
    assert_eq!((status, &refused["error"]), (StatusCode::FORBIDDEN, &json!("ask Eve")));
    let wide = json!({"scope": "minutes", "minutes": 5});
    assert_eq!(decide(&app, "key-of-eve", &id, "approve", wide).await.1["error"], "once only");
    assert_eq!(decide(&app, "key-of-eve", &id, "approve", json!({})).await.0, StatusCode::OK);
}

#[tokio::test]
async fn approvers_may_approve_their_own_calls_only_if_that_is_configured() {
    for (settings, expected) in [("", StatusCode::FORBIDDEN), ("approvals: {self: true}\n", StatusCode::OK)] {
        let app = TestApp::with(&format!("{KEYS}{ASKS}{settings}")).await;
        let id = ask(&app, "key-of-boss", &json!({})).await;
        assert_eq!(decide(&app, "key-of-boss", &id, "approve", json!({})).await.0, expected, "{settings}");
    }
}

#[tokio::test]
async fn what_waits_or_is_approved_survives_a_restart() {
    let yaml = format!("{KEYS}{ASKS}");
    let app = TestApp::with(&yaml).await;
    let (waits, approved) =
        (ask(&app, "key-of-ann", &json!({"n": 1})).await, ask(&app, "key-of-ann", &json!({"n": 2})).await);
    approve(&app, &approved).await;
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    assert_eq!(ask(&app, "key-of-ann", &json!({"n": 1})).await, waits);
    assert_eq!(
        show(&app, "key-of-boss", &waits).await.1["arguments"],
        json!({"n": 1}),
        "its key is in the state directory"
    );
    approve(&app, &waits).await;
    for (id, n) in [(&waits, 1), (&approved, 2)] {
        let (status, reply) = answer(call(&app, "key-of-ann", &json!({"n": n})).header("x-approval-id", id)).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    let (_, replayed) = answer(call(&app, "key-of-ann", &json!({"n": 2})).header("x-approval-id", &approved)).await;
    assert_eq!(replayed["output"]["echo"], json!({"n": 2}), "its reply is kept: {replayed}");
}

/// As in a state that was restored from a backup, which does not have the key.
#[tokio::test]
async fn what_another_key_sealed_is_named_and_cannot_be_approved() {
    let yaml = format!("{KEYS}{ASKS}");
    let app = TestApp::with(&yaml).await;
    let id = ask(&app, "key-of-ann", &json!({"n": 1})).await;
    let directory = app.stop().await;
    std::fs::remove_file(directory.path().join("state/secrets.key")).unwrap();
    let app = TestApp::in_directory(directory, &yaml).await;
    let reason = until(async || {
        let (_, ready) = answer(app.get("/readyz").bearer_auth("key-of-boss")).await;
        Some(ready["degraded"]["secrets.key"].as_str()?.to_owned())
    });
    let reason = reason.await;
    assert!(reason.contains("not in force: 1; restore `secrets.key`"), "{reason}");
    let (status, refused) = decide(&app, "key-of-boss", &id, "approve", json!({})).await;
    assert_eq!((status, code(&refused)), (StatusCode::CONFLICT, "approval_lost"), "{refused}");
    let (status, denied) = decide(&app, "key-of-boss", &id, "deny", json!({"reason": "ask again"})).await;
    assert_eq!((status, &denied["status"]), (StatusCode::OK, &json!("denied")), "{denied}");
}

#[tokio::test]
async fn a_batch_has_no_approval_and_each_call_of_it_asks_for_its_own() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    let batch = json!([{"tool_name": "echo", "arguments": {"n": 1}}, {"tool_name": "echo", "arguments": {"n": 2}}]);
    // All requests of this client have one id.
    let post = |path: &str| app.post(path).bearer_auth("key-of-ann").header("x-request-id", "same");
    let send = || post("/tools/batch-execute").json(&batch);
    assert_eq!(answer(send().header("x-approval-id", "x")).await.0, StatusCode::BAD_REQUEST);
    let (_, replies) = answer(send()).await;
    let ids: Vec<_> = (0..2).map(|index| replies[index]["error_info"]["approval"]["id"].as_str().unwrap()).collect();
    assert_ne!(ids[0], ids[1]);
    // One person decides about both at once.
    let (_, shown) = show(&app, "key-of-boss", ids[0]).await;
    assert_eq!((&shown["calls"], &shown["with"][0]["id"]), (&json!(2), &json!(ids[1])), "{shown}");
    let single = json!({"tool_name": "echo", "arguments": {"n": 3}});
    assert_eq!(answer(post("/tools/execute").json(&single)).await.0, StatusCode::FORBIDDEN);
    let next = json!([{"tool_name": "echo", "arguments": {"n": 4}}]);
    assert_eq!(answer(post("/tools/batch-execute").json(&next)).await.0, StatusCode::OK);
    let (_, list) = answer(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    let calls: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| &item["calls"]).collect();
    assert_eq!(calls, [&json!(1), &json!(1), &json!(2)], "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_list_show_approve_and_deny() {
    let directory = tempfile::TempDir::new().unwrap();
    let yaml = format!("{KEYS}tools: {{overrides: {{calculator: {{approval: always}}}}}}\n");
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = |expression: &str| {
        let request = client.post(format!("{}/tools/calculator/execute", serving.url)).bearer_auth("key-of-ann");
        request.json(&json!({"arguments": {"expression": expression}}))
    };
    let command = |arguments: &[&str]| {
        let run = sekisho(&directory).args(["--config", "sekisho.yaml", "approvals"]).args(arguments).output().unwrap();
        (run.status.code(), text(&run))
    };
    let (_, refused) = answer(send("6*7")).await;
    let id = refused["error_info"]["approval"]["id"].as_str().unwrap().to_owned();
    let (status, listed) = command(&["list", "--status", "pending"]);
    assert!(status == Some(0) && listed.contains(&id) && listed.contains("calculator"), "{listed}");
    let (status, shown) = command(&["show", &id]);
    assert!(status == Some(0) && shown.contains("6*7") && shown.contains("used by ann"), "{shown}");
    // Whoever sends a call knows its arguments; only the run of an agent is told of others.
    let (status, refused) = command(&["approve", &id, "--arguments", "{\"expression\": \"1\"}"]);
    assert!(status == Some(3) && refused.contains("the run of an agent"), "{refused}");
    assert_eq!(command(&["approve", &id, "--arguments", "[1]"]).0, Some(2));
    let (status, refused) = command(&["approve", &id, "--arguments-sha256", &"0".repeat(64)]);
    assert!(status == Some(3) && refused.contains("open the approval again"), "{refused}");
    let sha256 = shown.split_whitespace().find(|word| word.len() == 64).unwrap_or_else(|| panic!("{shown}"));
    let (status, approved) = command(&["approve", &id, "--reason", "fine", "--arguments-sha256", sha256]);
    assert!(status == Some(0) && approved.contains("is approved"), "{approved}");
    let (status, reply) = answer(send("6*7").header("x-approval-id", &id)).await;
    assert_eq!((status, &reply["output"]), (StatusCode::OK, &json!(42)), "{reply}");
    let (_, refused) = answer(send("1+1")).await;
    let id = refused["error_info"]["approval"]["id"].as_str().unwrap().to_owned();
    let (status, denied) = command(&["deny", &id, "--reason", "no"]);
    assert!(status == Some(0) && denied.contains("is denied"), "{denied}");
    assert_eq!(command(&["approve", &id]).0, Some(3));
    let (_, denied) = answer(send("1+1").header("x-approval-id", &id)).await;
    assert_eq!(code(&denied), "approval_denied");
}

/// The example of the page, typed as it is into an empty folder. Without jq it is not run.
#[test]
fn the_example_of_the_page_runs() {
    const PAGE: &str = include_str!("../../docs/approvals.md");
    let Some(printed) = run_example(PAGE, "jq --version && curl --version") else { return };
    assert!(printed.contains("6*7"), "{printed}");
    assert_eq!(printed.matches("\"approved\"\n42\n").count(), 2, "sent again, and after a wait: {printed}");
}

/// What the first example of a page prints, typed as it is into an empty folder, but with free ports. `None` where a program that it
/// needs is missing.
#[expect(clippy::print_stderr, reason = "it says what to install")]
pub(crate) fn run_example(page: &str, programs: &str) -> Option<String> {
    let shell = |script: &str, directory: &std::path::Path| {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_sekisho")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", script]).env_clear().env("PATH", path).envs(crate::cli::cache());
        shell.current_dir(directory).output().unwrap()
    };
    let directory = tempfile::TempDir::new().unwrap();
    if !shell(programs, directory.path()).status.success() {
        eprintln!("not run: one of these fails: {programs}. Install with: sudo apt-get install jq curl python3");
        return None;
    }
    let sockets = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [port, further] = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port().to_string());
    drop(sockets);
    let block = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let listen = format!("server: {{listen: '127.0.0.1:{port}'}}\nauth:\n");
    let script = block.replace("8080", &port).replace("8181", &further).replace("auth:\n", &listen);
    // Also where a line fails.
    let run =
        shell(&format!("trap 'kill $! $gateway $policy $world 2> /dev/null || true' EXIT\n{script}"), directory.path());
    assert!(run.status.success(), "{}", text(&run));
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// The id of the only approval that waits.
async fn pending(app: &TestApp) -> String {
    let (_, list) = answer(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    list["approvals"][0]["id"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned()
}

#[tokio::test]
async fn an_mcp_client_shows_the_page_of_the_approver_and_its_call_waits() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    let opens_pages = json!({"elicitation": {"url": {}}});
    let newer = McpClient::new(&app, NEWER, Some("key-of-ann")).with_capabilities(opens_pages.clone());
    let call = json!({"name": "echo", "arguments": {"n": 1}});
    let asked = newer.result("tools/call", call.clone(), "InputRequiredResult").await;
    let question = &asked["inputRequests"]["approval"];
    let id = pending(&app).await;
    assert_eq!(
        (&question["method"], &question["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url")),
        "{asked}"
    );
    assert!(question["params"]["url"].as_str().unwrap().ends_with(&format!("/console/approvals/{id}")), "{asked}");
    let mut again = call.clone();
    again["inputResponses"] = json!({"approval": {"action": "accept"}});
    again["requestState"] = asked["requestState"].clone();
    let (answered, ()) = tokio::join!(newer.result("tools/call", again, "CallToolResult"), async {
        while app.metric("shannon_approval_waiters").await == 0.0 {
            tokio::task::yield_now().await;
        }
        approve(&app, &id).await;
    });
    assert_eq!(answered["structuredContent"]["run"], 1, "{answered}");
    // A user who does not want to wait gets the refusal.
    let asked = newer.result("tools/call", call.clone(), "InputRequiredResult").await;
    let mut declined = call.clone();
    declined["inputResponses"] = json!({"approval": {"action": "decline"}});
    declined["requestState"] = asked["requestState"].clone();
    let refused = newer.result("tools/call", declined, "CallToolResult").await;
    assert_eq!(refused["structuredContent"]["error_info"]["code"], "approval_required", "{refused}");
}

/// A client that opens no pages sends no headers either: the same call again runs, once it is approved.
#[tokio::test]
async fn an_mcp_client_that_opens_no_pages_calls_again() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    for (revision, n) in [(OLDER, 1), (NEWER, 2)] {
        let client = McpClient::connect_as(&app, revision, Some("key-of-ann")).await;
        let call = json!({"name": "echo", "arguments": {"n": n}});
        let refused = client.result("tools/call", call.clone(), "CallToolResult").await;
        assert_eq!(refused["structuredContent"]["error_info"]["code"], "approval_required", "{refused}");
        approve(&app, &pending(&app).await).await;
        let answered = client.result("tools/call", call, "CallToolResult").await;
        assert_eq!(answered["structuredContent"]["echo"], json!({"n": n}), "{answered}");
    }
}

#[tokio::test]
async fn a_receiver_of_webhooks_is_told_what_waits_and_what_was_decided() {
    #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let take = move |headers: axum::http::HeaderMap, body: String| {
        sender.send((headers, serde_json::from_str::<Value>(&body).unwrap())).unwrap();
        async { "" }
    };
    let receiver = served(axum::Router::new().route("/hook", axum::routing::post(take))).await;
    let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    let webhook = format!("approvals: {{webhook: {{url: '{receiver}/hook', secret: {secret}}}}}\n");
    let app = TestApp::with(&format!("{KEYS}{ASKS}{webhook}")).await;
    let id = ask(&app, "key-of-ann", &json!({"token": "hunter2"})).await;
    approve(&app, &id).await;
    for kind in ["approval.pending", "approval.approved"] {
        let (headers, body) = received.recv().await.unwrap();
        assert_eq!((&body["type"], &body["data"]["id"]), (&json!(kind), &json!(id)), "{body}");
        assert!(!body.to_string().contains("hunter2"), "{body}");
        assert!(headers["webhook-signature"].to_str().unwrap().starts_with("v1,"), "{headers:?}");
        assert!(headers.contains_key("webhook-id") && headers.contains_key("webhook-timestamp"), "{headers:?}");
    }
}
