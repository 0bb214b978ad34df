//! What the console shows of the calls of agents: a call about which a run waits for a decision, and the receipts of plans;
//! and the skills that agents load.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::console::{Browser, check_markup};
use crate::console_agents::{TALK, configuration, page_with, submit, submitted};

/// A call that takes a minute, and an answer.
pub(crate) const SLOW: &str = r#"
turns:
  - text: ["Let me see."]
    calls: [{id: a, tool: sleep, arguments: '{"ms": 60000, "note": "<b>100 €</b>"}'}]
  - text: ["Done."]
"#;

async fn app(talk: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, talk);
    TestApp::in_directory(directory, &yaml).await
}

/// Says something; the page of the conversation and the run.
async fn said(ann: &Browser<'_>, path: &str) -> (String, String) {
    let fields: &[(&str, &str)] = if path == "/console/conversations" { &[] } else { &[("act", "say")] };
    let fields = [&[("user_input", "Pay.")], fields].concat();
    let address = submitted(ann, path, &fields).await;
    let (path, run) = address.split_once("?run=").unwrap();
    (path.to_owned(), run.to_owned())
}

/// A conversation with a call that was sent, and was cut off before its answer.
async fn cut_off(app: &TestApp, ann: &Browser<'_>) -> String {
    let (path, run) = said(ann, "/console/conversations").await;
    let id = path.rsplit('/').next().unwrap();
    let route = format!("/api/logs/tool_executions?conversation_id={id}");
    loop {
        let (_, log) = answer(app.get(&route).bearer_auth("key-of-ann")).await;
        if !log["rows"].as_array().unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    submitted(ann, &path, &[("act", "cancel"), ("run", &run)]).await;
    page_with(ann, &path, "– cancelled").await;
    path
}

#[tokio::test]
async fn a_call_that_may_have_happened_is_decided_on_the_page_of_its_conversation() {
    let app = app(SLOW).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    for decision in ["skip", "repeat"] {
        let path = cut_off(&app, &ann).await;
        let (_, run) = said(&ann, &path).await;
        let page = page_with(&ann, &path, "This run waits for your decision").await;
        check_markup(&page);
        assert!(page.contains("&quot;note&quot;: &quot;&lt;b&gt;100 €&lt;/b&gt;&quot;"), "{page}");
        let (_, shown) = answer(app.get(&format!("/api/runs/{run}")).bearer_auth("key-of-ann")).await;
        let call = shown["waits_for"]["call_id"].as_str().unwrap().to_owned();
        assert_eq!(shown["waits_for"]["tool_name"], "sleep", "{shown}");
        assert!(page.contains(&format!("name=\"call_id\" value=\"{call}\"")), "{page}");

        // Nobody else decides, and about nothing else.
        for key in ["key-of-ola", "key-of-vic"] {
            let (status, reply) = answer(app.get(&format!("/api/runs/{run}")).bearer_auth(key)).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{reply}");
            let other = Browser::signed_in(&app, key).await;
            let fields = [("act", decision), ("run", &*run), ("call_id", &*call)];
            assert!(submit(&other, &path, &fields).await.status().is_client_error(), "{key}");
        }
        let fields = [("act", decision), ("run", &*run), ("call_id", "another")];
        assert_eq!(submit(&ann, &path, &fields).await.status(), StatusCode::NOT_FOUND);

        let mut events = ann.get(&format!("/console/runs/{run}/events")).send().await.unwrap();
        assert_eq!(submitted(&ann, &path, &[("act", decision), ("run", &run), ("call_id", &call)]).await, path);
        if decision == "repeat" {
            let repeated = format!("\"tool_use_id\":\"{call}\"");
            let mut sent = String::new();
            while !sent.contains(&repeated) {
                let more = events.chunk().await.unwrap().unwrap_or_else(|| panic!("it is not sent again: {sent}"));
                sent.push_str(&String::from_utf8_lossy(&more));
            }
            // It takes a minute again.
            submitted(&ann, &path, &[("act", "cancel"), ("run", &run)]).await;
        }
        let end = if decision == "skip" { "Done." } else { "2</th><td><span class=\"tag\">– cancelled" };
        let page = page_with(&ann, &path, end).await;
        assert!(!page.contains("This run waits for your decision"), "{page}");
    }
}

#[tokio::test]
async fn the_runs_of_a_conversation_have_pages_and_are_a_file() {
    let app = app("turns: [{text: [one]}]").await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let (_, created) =
        answer(app.post("/api/conversations").bearer_auth("key-of-ann").json(&json!({"title": "Long"}))).await;
    let id = created["id"].as_str().unwrap();
    for _ in 0..21 {
        let run = app.post(&format!("/api/conversations/{id}/execute")).bearer_auth("key-of-ann");
        _ = answer(run.json(&json!({"user_input": "Hello"}))).await;
    }
    let path = format!("/console/conversations/{id}");
    let page = ann.page(&path).await;
    let older = format!("{path}?runs_before=2");
    assert!(
        page.contains(&format!("href=\"{older}#runs\"")) && !page.contains("<th class=\"number\" scope=\"row\">1</th>"),
        "{page}"
    );
    let page = ann.page(&older).await;
    assert!(
        page.contains("<th class=\"number\" scope=\"row\">1</th>")
            && !page.contains("<th class=\"number\" scope=\"row\">2</th>"),
        "{page}"
    );
    let csv = ann.page(&format!("{path}?format=csv")).await;
    assert!(csv.starts_with("number,status,code,agent,begun_at,ended_at\r\n21,") && csv.lines().count() == 21, "{csv}");
    let rest = ann.page(&format!("{older}&format=csv")).await;
    assert!(rest.contains("\r\n1,") && rest.lines().count() == 2, "{rest}");
}

#[tokio::test]
async fn the_steps_of_a_plan_lead_to_the_receipts_of_their_calls() {
    let app = app(TALK).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let path = submitted(&ann, "/console/plans", &[("goal", "Which is warmer?"), ("agent", "planned")]).await;
    let page = page_with(&ann, &path, "✓ finished").await;
    check_markup(&page);
    let id = path.rsplit('/').next().unwrap();
    let (_, plan) = answer(app.get(&format!("/api/plans/{id}")).bearer_auth("key-of-ann")).await;
    let (_, recent) = answer(app.get("/admin/calls?tool=calculator").bearer_auth("key-of-ann")).await;
    let steps = plan["plan"].as_array().unwrap();
    let calls: Vec<_> = steps.iter().flat_map(|step| step["calls"].as_array().unwrap()).collect();
    assert!(!calls.is_empty() && calls.len() == recent["calls"].as_array().unwrap().len(), "{plan} {recent}");
    for call in calls {
        assert_eq!((&call["tool"], &call["failed"]), (&json!("calculator"), &json!(false)), "{call}");
        let of_call = |found: &&Value| found["agent_call_id"] == call["id"];
        let receipt = recent["calls"].as_array().unwrap().iter().find(of_call).expect("a receipt");
        let link = format!("href=\"/console/calls/{}\"", receipt["call_id"].as_str().unwrap());
        assert!(page.contains(&link), "{page}");
    }
}

#[tokio::test]
async fn a_skill_is_shown_with_its_files_and_tenants_and_changed_by_administrators_alone() {
    let app = app(TALK).await;
    let (root, ann) = (Browser::signed_in(&app, "key-of-root").await, Browser::signed_in(&app, "key-of-ann").await);
    assert!(root.page("/console/skills").await.contains("There is no skill."));
    let files = json!({"scripts/read.py": "print('<b>')"}).to_string();
    let form = [
        ("name", "pdf"),
        ("act", "save"),
        ("argument.description", "Reads PDFs."),
        ("argument.instructions", "# PDF\n\nRun the <script>."),
        ("argument.files", &files),
    ];
    assert_eq!(submit(&ann, "/console/skills", &form).await.status(), StatusCode::FORBIDDEN);
    let path = submitted(&root, "/console/skills", &form).await;
    assert_eq!(path, "/console/skills/pdf");
    for (tenant, skills) in [("acme", json!(["pdf"])), ("none", json!([])), ("all", Value::Null)] {
        let body = json!({"name": tenant, "skills": skills});
        let create = app.post("/api/tenants").bearer_auth("key-of-root").json(&body);
        assert_eq!(create.send().await.unwrap().status(), StatusCode::CREATED);
    }
    let page = root.page(&path).await;
    check_markup(&page);
    assert!(page.contains("Run the &lt;script&gt;.") && page.contains("print('&lt;b&gt;')"), "{page}");
    for (tenant, has) in [("acme", true), ("none", false), ("all", true)] {
        assert_eq!(page.contains(&format!("href=\"/console/tenants/{tenant}\"")), has, "{tenant}: {page}");
    }
    // An operator sees what is of the tenant.
    let page = ann.page(&path).await;
    assert!(page.contains("href=\"/console/tenants/acme\"") && !page.contains("/console/tenants/all\""), "{page}");
    assert!(!page.contains("name=\"argument."), "{page}");
    let list = root.page("/console/skills").await;
    check_markup(&list);
    assert!(list.contains("href=\"/console/skills/pdf\"") && list.contains("Reads PDFs."), "{list}");
    let csv = root.page("/console/skills?format=csv").await;
    assert!(csv.contains("\"pdf\",false,,\"Reads PDFs.\",\"[\"\"scripts/read.py\"\"]\"\r\n"), "{csv}");

    let change = [("act", "save"), ("argument.description", "Reads."), ("argument.instructions", "Run.")];
    submitted(&root, &path, &change).await;
    let (_, shown) = answer(app.get("/api/skills/pdf").bearer_auth("key-of-root")).await;
    assert_eq!((&shown["description"], &shown["files"]), (&json!("Reads."), &json!({})), "{shown}");
    let refused = submit(
        &root,
        "/console/skills",
        &[("name", "No Name"), ("argument.description", "d"), ("argument.instructions", "i")],
    )
    .await;
    assert!(refused.text().await.unwrap().contains("lower-case letters"));
    assert_eq!(submit(&root, &path, &[("act", "remove"), ("confirmed", "pd")]).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(submitted(&root, &path, &[("act", "remove"), ("confirmed", "pdf")]).await, "/console/skills");
    assert_eq!(root.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}
