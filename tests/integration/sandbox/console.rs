//! The console's pages of sessions of Python, and the tree of the calls that a program made.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::LOCATION;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup};
use crate::slack::slack;

const PATH: &str = "/console/sessions";

async fn app() -> PythonApp {
    // The sandbox is ready when a caller without a key gets an answer.
    let keys = KEYS.replace("  anonymous: never\n", "");
    let limits = "tools: {overrides: {python_executor: {rate_limit: 1000000}}}\nlimits: {caller_rate_limit: 1000000}\n";
    PythonApp::in_directory(TempDir::new().unwrap(), &[keys.as_str(), limits].concat()).await
}

/// A call of Ann.
async fn call(app: &TestApp, arguments: Value) -> (StatusCode, Value) {
    let request = app.post("/tools/python_executor/execute").bearer_auth("key-of-ann");
    answer(request.json(&json!({"arguments": arguments}))).await
}

/// A page that must be there, without markup of others.
async fn shown(browser: &Browser<'_>, path: &str) -> String {
    let page = browser.page(path).await;
    check_markup(&page);
    page
}

#[tokio::test]
async fn the_page_of_a_call_draws_the_tree_of_what_its_program_called() {
    let app = app().await;
    let program = "from host import tools\nfor n in range(102): tools.echo(n=n)\n\
                   try:\n  tools.fail()\nexcept Exception:\n  pass";
    let (_, reply) = call(&app.app, json!({"code": program})).await;
    let parent = reply["receipt"]["call_id"].as_str().unwrap_or_else(|| panic!("{reply}"));
    let nested = &reply["receipt"]["nested"]["calls"][0]["call_id"];
    let link = |id: &str| format!("href=\"/console/calls/{id}\"");
    let vic = Browser::signed_in(&app.app, "key-of-vic").await;
    let page = shown(&vic, &format!("/console/calls/{parent}")).await;
    assert!(page.contains("It made 103 calls") && page.contains("3 more are not shown"), "{page}");
    assert_eq!(page.matches("<ol class=\"path\"").count(), 101, "its own path, and those of a hundred calls");
    assert_eq!(page.matches("<td class=\"drawn\">").count(), 104, "its own time, and all of its calls");
    let nested = nested.as_str().unwrap();
    assert!(page.contains(&link(nested)), "{page}");
    let page = shown(&vic, &format!("/console/calls/{nested}")).await;
    assert!(page.contains(&link(parent)) && !page.contains("It made"), "{page}");

    // Tried in the console, the tree is in the reply.
    let ann = Browser::signed_in(&app.app, "key-of-ann").await;
    let code = json!({"code": "from host import tools\ntools.echo()"}).to_string();
    let token = ann.token().await;
    let fields = [("token", token.as_str()), ("json", code.as_str()), ("mode", "run")];
    let response = ann.post("/console/tools/python_executor", &fields).send().await.unwrap();
    let page = response.text().await.unwrap();
    check_markup(&page);
    assert!(page.contains("It made one call") && page.contains("class=\"call-tree\""), "{page}");
    let eve = Browser::signed_in(&app.app, "key-of-eve").await;
    let status = eve.get(&format!("/console/calls/{parent}")).send().await.unwrap().status();
    assert_eq!(status, StatusCode::NOT_FOUND, "of another tenant");
}

#[tokio::test]
async fn a_caller_sees_and_ends_its_own_sessions_alone() {
    let app = app().await;
    let ann = Browser::signed_in(&app.app, "key-of-ann").await;
    assert!(shown(&ann, PATH).await.contains("You have no session of Python."));
    let (status, reply) = call(&app.app, json!({"session": "monday", "code": "import math\nrows = [1, 2]"})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let list = shown(&ann, PATH).await;
    assert!(list.contains("href=\"/console/sessions/monday\"") && list.contains("in use now: 0."), "{list}");
    let csv = ann.page(&format!("{PATH}?format=csv")).await;
    assert!(csv.starts_with("session,generation,is_used,calls,") && csv.contains("\r\n\"monday\",1,false,1,"), "{csv}");
    let path = format!("{PATH}/monday");
    let page = shown(&ann, &path).await;
    for part in ["<h1>Session monday</h1>", ">rows<", ">list<", ">math<", ">module<", "End the session"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let csv = ann.page(&format!("{path}?format=csv")).await;
    assert!(csv.starts_with("name,type,size_bytes\r\n") && csv.contains("\"rows\",\"list\","), "{csv}");
    let ja = ann.page(&format!("{path}?lang=ja")).await;
    assert!(ja.contains("<h1>セッション monday</h1>"), "{ja}");

    let vic = Browser::signed_in(&app.app, "key-of-vic").await;
    assert!(!shown(&vic, PATH).await.contains("monday"));
    let end = async |browser: &Browser<'_>, confirmed: &str| {
        let token = browser.token().await;
        let fields = [("token", token.as_str()), ("confirmed", confirmed)];
        browser.post(&path, &fields).send().await.unwrap()
    };
    assert_eq!(vic.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(end(&vic, "monday").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(end(&ann, "").await.status(), StatusCode::BAD_REQUEST);
    let without_token = ann.post(&path, &[("confirmed", "monday")]).send().await.unwrap();
    assert_eq!(without_token.status(), StatusCode::FORBIDDEN);
    assert!(shown(&ann, &path).await.contains("End the session"), "it goes on");

    // A call that has it is shown as such, and ends with it.
    let code = "from host import tools\ntools.sleep(ms=60000)";
    let body = json!({"arguments": {"session": "monday", "code": code}});
    let request = app.app.post("/tools/python_executor/execute").bearer_auth("key-of-ann").json(&body);
    let running = tokio::spawn(answer(request));
    let begun = Instant::now();
    while !ann.page(PATH).await.contains("in use now: 1.") {
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "the call has the session");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(shown(&ann, &path).await.contains("A call has it now."));
    let ended = end(&ann, "monday").await;
    assert_eq!((ended.status(), &ended.headers()[LOCATION]), (StatusCode::SEE_OTHER, &PATH.parse().unwrap()));
    let (_, reply) = running.await.unwrap();
    assert_eq!(reply["success"], false, "{reply}");
    assert!(shown(&ann, PATH).await.contains("You have no session of Python."));
    let directory = app.app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    assert!(trail.contains("\"interpreter_session_deleted\""), "{trail}");
}
