//! The index of calls and events: what it finds, after a restart and after it was lost, and for whom.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::cli::{sekisho, text};
use crate::console::{Browser, KEYS, check_markup};

/// The id of a call.
async fn call(app: &TestApp, key: &str, tool: &str, arguments: Value) -> String {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth(key);
    let (_, reply) = answer(request.json(&json!({"arguments": arguments}))).await;
    reply["receipt"]["call_id"].as_str().unwrap().to_owned()
}

/// The ids of the calls of a page, or of a file with a call on each line.
async fn found(app: &TestApp, key: &str, query: &str) -> Vec<String> {
    let response = app.get(&format!("/admin/calls{query}")).bearer_auth(key).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{query}");
    let text = response.text().await.unwrap();
    let calls: Vec<Value> = match query.contains("format=jsonl") {
        true => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        false => serde_json::from_value(serde_json::from_str::<Value>(&text).unwrap()["items"].take()).unwrap(),
    };
    calls.iter().map(|call| call["call_id"].as_str().unwrap().to_owned()).collect()
}

fn lose_index(directory: &TempDir) {
    for suffix in ["", "-wal", "-shm"] {
        _ = std::fs::remove_file(directory.path().join(format!("state/sekisho.calls.db{suffix}")));
    }
}

#[tokio::test]
async fn calls_are_found_after_a_restart_and_after_the_index_was_lost() {
    let app = TestApp::with(KEYS).await;
    let first = call(&app, "key-of-ann", "echo", json!({"text": "hunter2"})).await;
    let unknown = call(&app, "key-of-ann", "none-of-acme", json!({})).await;
    let of_eve = call(&app, "key-of-eve", "echo", json!({})).await;
    let last = call(&app, "key-of-ann", "echo", json!({})).await;
    let app = TestApp::in_directory(app.stop().await, KEYS).await;
    let (vic, root) = ("key-of-vic", "key-of-root");
    let of_acme = [last.clone(), unknown.clone(), first.clone()];
    assert_eq!(found(&app, vic, "").await, of_acme);
    assert_eq!(found(&app, root, "").await, [&last, &of_eve, &unknown, &first].map(Clone::clone));
    assert_eq!(found(&app, "key-of-nobody", "").await, [""; 0]);
    for (query, expected) in [
        ("?tool=echo", vec![&last, &first]),
        ("?tool=none*", vec![&unknown]),
        ("?code=unknown_tool", vec![&unknown]),
        ("?stage=find&status=refused", vec![&unknown]),
        ("?tenant=other", vec![]),
        ("?caller=ann&tool=echo&since=1h", vec![&last, &first]),
        ("?until=2020-01-01T00:00:00Z", vec![]),
        ("?q=NONE-OF", vec![&unknown]),
        ("?session=none", vec![]),
        ("?format=jsonl", vec![&last, &unknown, &first]),
    ] {
        assert_eq!(found(&app, vic, query).await.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    assert_eq!(found(&app, vic, &format!("?q={first}")).await, std::slice::from_ref(&first));
    assert_eq!(found(&app, vic, &format!("?call_id={of_eve}")).await, [""; 0]);
    for wrong in ["since=x", "sort=size", "http_status=many", "min_cost=a", "after=x"] {
        let (status, _) = answer(app.get(&format!("/admin/calls?{wrong}")).bearer_auth(vic)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let (_, facets) = answer(app.get("/admin/calls/facets").bearer_auth(vic)).await;
    let tools = facets.as_array().unwrap().iter().find(|facet| facet["name"] == "tool").unwrap();
    assert_eq!(tools["values"], json!([{"value": "echo", "calls": 2}, {"value": "none-of-acme", "calls": 1}]));

    let directory = app.stop().await;
    lose_index(&directory);
    let rebuilt = sekisho(&directory).args(["--json", "audit", "index"]).output().unwrap();
    assert!(rebuilt.status.success(), "{}", text(&rebuilt));
    let app = TestApp::in_directory(directory, KEYS).await;
    assert_eq!(found(&app, vic, "").await, of_acme);
}

#[tokio::test]
async fn the_page_of_calls_survives_a_restart_and_leads_to_what_it_counts() {
    let app = TestApp::with(KEYS).await;
    let first = call(&app, "key-of-ann", "calculator", json!({})).await;
    let of_eve = call(&app, "key-of-eve", "echo", json!({})).await;
    let app = TestApp::in_directory(app.stop().await, KEYS).await;
    let (ann, vic) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-vic").await);
    let page = vic.page("/console/calls?tool=calc*&since=24h").await;
    check_markup(&page);
    assert!(page.contains(&first) && !page.contains(&of_eve), "{page}");
    assert!(page.contains("code=invalid_arguments") && page.contains("sort"), "{page}");
    // The rule for all who see the call; the text, which quotes arguments, for who may operate.
    let one = format!("/console/calls/{first}");
    let (of_viewer, of_operator) = (vic.page(&one).await, ann.page(&one).await);
    check_markup(&of_operator);
    assert!(of_viewer.contains("Violated rules") && of_operator.contains("Violated rules"), "{of_viewer}");
    assert!(!of_viewer.contains("Why it failed") && of_operator.contains("Why it failed"), "{of_operator}");
    assert_eq!(vic.get(&format!("/console/calls/{of_eve}")).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn events_are_seen_by_roles_of_their_tenant() {
    let app = TestApp::with(KEYS).await;
    let _vic = Browser::signed_in(&app, "key-of-vic").await;
    let app = TestApp::in_directory(app.stop().await, KEYS).await;
    let events = async |key: &str| answer(app.get("/admin/events?event=console_signed_in").bearer_auth(key)).await;
    for (key, callers) in [("key-of-ann", &["vic"][..]), ("key-of-eve", &[]), ("key-of-root", &["vic"])] {
        let (_, page) = events(key).await;
        let found: Vec<_> =
            page["items"].as_array().unwrap().iter().map(|event| event["caller"].as_str().unwrap()).collect();
        assert_eq!(found, callers, "{key}");
    }
    assert_eq!(events("key-of-nobody").await.0, StatusCode::FORBIDDEN);
}
