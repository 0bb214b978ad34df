//! The console's inbox: calls that are decided together, paused runs that go on, and what an open page learns.

use reqwest::header::{LOCATION, ORIGIN, REFERER};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::approvals::runs::agent_with;
use crate::approvals::{ASKS, KEYS, ask, show};
use crate::console::{Browser, check_markup};
use crate::console_agents::{page_with, submit, submitted};
use crate::policy::with_policy_and;

const PATH: &str = "/console/inbox";

async fn app() -> TestApp {
    let viewer = "    - {id: vic, key: key-of-vic, tenant: acme, roles: [support]}\n";
    TestApp::with(&format!("{KEYS}{viewer}console: {{roles: {{viewer: [support]}}}}\n{ASKS}")).await
}

async fn status_of(app: &TestApp, id: &str) -> Value {
    show(app, "key-of-boss", id).await.1["status"].clone()
}

/// What the box of a call sends: its id and the digest of the arguments that are shown.
fn chosen(page: &str, id: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("name=\"chosen\" value=\"{id} ")).unwrap_or_else(|| panic!("{id}: {page}"));
    format!("{id} {}", rest.split('"').next().unwrap())
}

async fn count(browser: &Browser<'_>) -> (StatusCode, Value) {
    answer(browser.get("/console/inbox/count?signed_in=true")).await
}

#[tokio::test]
async fn several_calls_are_decided_at_once_by_what_the_page_shows() {
    let app = app().await;
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    assert!(boss.page(PATH).await.contains("No call waits for a decision."));
    assert_eq!(count(&boss).await, (StatusCode::OK, json!({"waiting": 0})));
    let text = "<script>alert(1)</script>";
    let mut ids = Vec::new();
    for arguments in [json!({"n": 1}), json!({"n": 2}), json!({"text": text}), json!({"n": 4})] {
        ids.push(ask(&app, "key-of-ann", &arguments).await);
    }
    assert_eq!(count(&boss).await, (StatusCode::OK, json!({"waiting": 4})));
    let page = boss.page(PATH).await;
    check_markup(&page);
    assert!(page.contains("echo always needs approval") && page.contains("&quot;n&quot;: 1"), "{page}");
    // The Enter key in the field of the reason decides nothing: the first button of the form is its button.
    let (_, form) = page.split_once("action=\"/console/inbox\"").unwrap();
    let (_, first) = form.split_once("<button ").unwrap();
    assert!(first.starts_with("class=\"unseen\" disabled"), "{page}");
    let boxes: Vec<_> = ids.iter().map(|id| chosen(&page, id)).collect();

    let two = [("act", "approve"), ("reason", "fine"), ("chosen", &*boxes[0]), ("chosen", &*boxes[1])];
    assert_eq!(submitted(&boss, PATH, &two).await, format!("{PATH}?decided=2"));
    for (id, status) in ids.iter().zip(["approved", "approved", "pending", "pending"]) {
        assert_eq!(status_of(&app, id).await, status);
    }
    assert!(boss.page(&format!("{PATH}?decided=2")).await.contains("2 calls were decided."));
    // One that was decided meanwhile does not hold the other up, and is named.
    let both = [("act", "deny"), ("reason", "no"), ("chosen", "none"), ("chosen", &*boxes[2])];
    let page = submit(&boss, PATH, &both).await.text().await.unwrap();
    check_markup(&page);
    assert!(page.contains("One call was decided.") && page.contains("Nothing was decided about these:"), "{page}");
    assert_eq!(status_of(&app, &ids[2]).await, "denied");
    // Other arguments than those that were seen.
    let seen = format!("{} {}", ids[3], "0".repeat(64));
    let refused = submit(&boss, PATH, &[("act", "approve"), ("chosen", &*seen)]).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    for fields in [&[("chosen", &*boxes[3])][..], &[("act", "all"), ("chosen", &*boxes[3])], &[("act", "approve")]] {
        assert_eq!(submit(&boss, PATH, fields).await.status(), StatusCode::BAD_REQUEST, "{fields:?}");
    }
    assert_eq!(status_of(&app, &ids[3]).await, "pending");
    assert_eq!(count(&boss).await.1, json!({"waiting": 1}));
}

#[tokio::test]
async fn nobody_but_an_approver_in_a_page_of_the_console_decides_in_the_inbox() {
    let app = app().await;
    let id = ask(&app, "key-of-ann", &json!({"amount": 7})).await;
    let (boss, vic) = (Browser::signed_in(&app, "key-of-boss").await, Browser::signed_in(&app, "key-of-vic").await);
    let page = vic.page(PATH).await;
    check_markup(&page);
    assert!(!page.contains("amount") && !page.contains("name=\"chosen\""), "{page}");
    assert_eq!(count(&vic).await.1, json!({"waiting": 0}));
    for act in ["approve", "deny"] {
        let token = boss.token().await;
        let fields = [("act", act), ("chosen", &*id), ("token", &*token)];
        for forged in [
            boss.post(PATH, &fields[..2]),
            boss.post_from(PATH, &fields),
            boss.post_from(PATH, &fields).header(ORIGIN, "http://evil.example"),
            boss.post(PATH, &fields).header("sec-fetch-site", "cross-site"),
            vic.post(PATH, &fields),
        ] {
            assert_eq!(forged.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{act}");
        }
        assert_eq!(submit(&vic, PATH, &[("act", act), ("chosen", &*id)]).await.status(), StatusCode::FORBIDDEN);
        let far = Browser::signed_in(&app, "key-of-far").await;
        assert!(!far.page(PATH).await.contains(&id));
        assert_eq!(submit(&far, PATH, &[("act", act), ("chosen", &*id)]).await.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(status_of(&app, &id).await, "pending");
    // An own call.
    let own = ask(&app, "key-of-boss", &json!({})).await;
    assert_eq!(submit(&boss, PATH, &[("act", "approve"), ("chosen", &*own)]).await.status(), StatusCode::FORBIDDEN);
}

fn of_ann(app: &TestApp, path: &str, body: &Value) -> RequestBuilder {
    app.post(path).bearer_auth("key-of-ann").json(body)
}

#[tokio::test]
async fn a_paused_run_says_what_was_asked_and_is_continued_by_a_button() {
    // Ann talks to agents, and is no approver.
    let roles = "console: {roles: {operator: [paying], approver: [approver]}}\n";
    let app = agent_with(&format!("{ASKS}{roles}")).await;
    let keys = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let keys = keys.replace(
        "{id: ann, key: key-of-ann, tenant: acme}",
        "{id: ann, key: key-of-ann, tenant: acme, roles: [paying]}",
    );
    let app = TestApp::in_directory(app.stop().await, &keys).await;
    let (status, conversation) = answer(of_ann(&app, "/api/conversations", &json!({}))).await;
    assert!(status.is_success(), "{conversation}");
    let id = conversation["id"].as_str().unwrap();
    let said = json!({"user_input": "Pay <b>ann</b>\nnow", "stream": false});
    _ = answer(of_ann(&app, &format!("/api/conversations/{id}/execute"), &said)).await;
    let (_, paused) = answer(app.get("/api/runs/paused").bearer_auth("key-of-ann")).await;
    assert_eq!((&paused["items"][0]["conversation_id"], &paused["items"][0]["status"]), (&json!(id), &json!("paused")));
    let (_, of_bob) = answer(app.get("/api/runs/paused").bearer_auth("key-of-bob")).await;
    assert_eq!(of_bob["items"], json!([]));

    // The approver reads what the agent was asked; others do not.
    let boss = Browser::signed_in(&app, "key-of-boss").await;
    let page = boss.page(PATH).await;
    check_markup(&page);
    assert!(page.contains("What the agent was asked") && page.contains("Pay &lt;b&gt;ann&lt;/b&gt;\nnow"), "{page}");
    let (_, pending) = answer(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    let approval = pending["items"][0]["id"].as_str().unwrap();
    let (_, own) = show(&app, "key-of-ann", approval).await;
    assert_eq!(own.get("request"), None, "{own}");
    let box_of_call = chosen(&page, approval);

    let (ann, path) = (Browser::signed_in(&app, "key-of-ann").await, format!("/console/conversations/{id}"));
    assert_eq!(count(&ann).await.1, json!({"waiting": 1}));
    for page in [ann.page(PATH).await, ann.page(&path).await] {
        check_markup(&page);
        assert!(page.contains("value=\"continue\"") && page.contains(&path), "{page}");
    }
    assert!(ann.page(&path).await.contains(&format!("href=\"/console/approvals/{approval}\"")));
    submitted(&boss, PATH, &[("act", "approve"), ("chosen", &*box_of_call)]).await;
    submitted(&ann, &path, &[("act", "continue")]).await;
    let page = page_with(&ann, &path, "Done.").await;
    assert!(!page.contains("value=\"continue\""), "{page}");
    let (_, paused) = answer(app.get("/api/runs/paused").bearer_auth("key-of-ann")).await;
    assert_eq!(paused["items"], json!([]));
}

#[tokio::test]
async fn what_an_agent_was_asked_is_not_shown_where_the_policies_mask_something() {
    const RULES: &str = "package tools\ndeny[\"never\"] { false }\n\
                         require_approval[\"always\"] { input.tool == \"echo\" }\nmask[\"/token\"] { input.tool == \"echo\" }\n";
    let directory = tempfile::TempDir::new().unwrap();
    let script = directory.path().join("pays.yaml");
    let call = r#"{id: a, tool: echo, arguments: '{"token": "hunter2"}'}"#;
    std::fs::write(&script, format!("turns:\n  - text: [See.]\n    calls: [{call}]\n  - text: [Done.]\n")).unwrap();
    let agent = format!(
        "agent: {{default_profile: pays, profiles: {{pays: {{provider: replay, model: '{}'}}}}}}\n",
        script.display()
    );
    let app = with_policy_and(RULES, &format!("{KEYS}{agent}")).await;
    let said = json!({"messages": [{"role": "user", "content": "The token is hunter2."}]});
    _ = answer(of_ann(&app, "/v1/chat/completions", &said)).await;
    let page = Browser::signed_in(&app, "key-of-boss").await.page(PATH).await;
    assert!(page.contains("masked") && !page.contains("hunter2"), "{page}");
}

#[tokio::test]
async fn an_open_page_learns_that_its_session_has_ended() {
    let app = app().await;
    let vic = Browser::signed_in(&app, "key-of-vic").await;
    assert!(vic.page("/console").await.contains("<inbox-count src=\"/console/inbox/count?signed_in=true\""));
    let token = vic.token().await;
    _ = vic.post("/console/sign-out", &[("token", &token)]).send().await.unwrap();
    for address in ["/console/inbox/count?signed_in=true", "/console/live", "/console/calls/live"] {
        let response = vic.get(address).send().await.unwrap();
        // Callers of this machine are accepted without a session: the page had one.
        let expected = if address.contains("count") { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        assert_eq!(response.status(), expected, "{address}");
    }
    // A gateway that accepts nobody without a key.
    let app = TestApp::with(crate::console::KEYS).await;
    let browser = Browser::new(&app);
    for address in ["/console/inbox/count", "/console/live", "/console/calls/live"] {
        assert_eq!(browser.get(address).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{address}");
    }
    // The page with the form is shown again after the sign-in, and no address of another site.
    for (from, to) in [
        (format!("{}/console/keys?after=a", app.url), "%2Fconsole%2Fkeys%3Fafter%3Da"),
        ("http://evil.example/console/keys".to_owned(), "%2Fconsole%2Fkeys"),
        ("http://evil.example/mcp".to_owned(), "%2Fconsole"),
    ] {
        let response = browser.post("/console/keys", &[("person", "x")]).header(REFERER, from).send().await.unwrap();
        assert_eq!(response.headers()[LOCATION], format!("/console/sign-in?to={to}"));
    }
}
