//! The pages of the console for agents: conversations, plans, models, tenants; and costs, clients and languages.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT_LANGUAGE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Response, StatusCode};
use sekisho::{Arguments, Attempt, Execution, Executor, Metadata, Source, SourceTools, ToolDefinition, ToolOutput};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::console::{Browser, HostileTools, check_markup, markup};
use crate::slack::slack;

/// A turn with a tool call that works and one that does not, then an answer.
pub(crate) const TALK: &str = r#"
turns:
  - thinking: I need the product.
    text: ["Let me see."]
    calls:
      - {id: a, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: b, tool: calculator, arguments: '{"expression": "6*"}'}
  - text: ["It is 42."]
"#;

/// Ann and Ola are operators of one tenant, Vic is a viewer there, Root an administrator.
pub(crate) fn configuration(directory: &TempDir, talk: &str) -> String {
    let file = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let (talk, plan) = (file("talk.yaml", talk), file("plan.yaml", include_str!("../../config/examples/plan.yaml")));
    format!(
        "auth:\n  anonymous: never\n  api_keys:\n    \
         - {{id: ann, key: key-of-ann, tenant: acme, roles: [on-call]}}\n    \
         - {{id: ola, key: key-of-ola, tenant: acme, roles: [on-call]}}\n    \
         - {{id: vic, key: key-of-vic, tenant: acme, roles: [support]}}\n    \
         - {{id: root, key: key-of-root, roles: [admin]}}\n\
         console: {{roles: {{viewer: [support], operator: [on-call], admin: [admin]}}}}\n\
         tools: {{overrides: {{calculator: {{cost_per_use: 0.25}}}}}}\n\
         agent:\n  default_profile: talk\n  models: {{fixed: {{model: set-by-file}}}}\n  profiles:\n    \
         talk: {{provider: replay, model: {talk}}}\n    \
         planned: {{provider: replay, model: {plan}, planner: {{preset: steps}}}}\n"
    )
}

async fn app() -> TestApp {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, TALK);
    TestApp::in_directory(directory, &yaml).await
}

/// A form with the token of the session.
pub(crate) async fn submit(browser: &Browser<'_>, path: &str, fields: &[(&str, &str)]) -> Response {
    let token = browser.token().await;
    let fields: Vec<_> = fields.iter().copied().chain([("token", token.as_str())]).collect();
    browser.post(path, &fields).send().await.unwrap()
}

/// Where a form leads.
pub(crate) async fn submitted(browser: &Browser<'_>, path: &str, fields: &[(&str, &str)]) -> String {
    let response = submit(browser, path, fields).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{path}: {}", response.text().await.unwrap());
    response.headers()[LOCATION].to_str().unwrap().split('#').next().unwrap().to_owned()
}

/// The page, once it has this text.
pub(crate) async fn page_with(browser: &Browser<'_>, path: &str, text: &str) -> String {
    let mut page = String::new();
    for _ in 0..500 {
        page = browser.page(path).await;
        if page.contains(text) {
            return page;
        }
        tokio::time::sleep(slack(Duration::from_millis(20))).await;
    }
    panic!("{text:?} is not in {page}")
}

#[tokio::test]
async fn a_conversation_is_begun_read_changed_and_deleted_by_its_caller_alone() {
    let app = app().await;
    let (ann, ola) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-ola").await);
    assert!(ann.page("/console/conversations").await.contains("There is no conversation yet."));
    let new = [("user_input", "What is 6 times 7?"), ("title", ""), ("agent", "")];
    let address = submitted(&ann, "/console/conversations", &new).await;
    let (path, run) = address.split_once("?run=").unwrap();
    // The events of its run arrive as the route sends them.
    let events = ann.get(&format!("/console/runs/{run}/events")).send().await.unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let events = events.text().await.unwrap();
    assert!(events.contains("event: tool_use") && events.contains("\"subtype\":\"finish\""), "{events}");

    let page = page_with(&ann, path, "It is 42.").await;
    check_markup(&page);
    // Each call opens its path, and leads to its receipt.
    assert!(page.contains("Let me see.") && page.contains("&quot;expression&quot;: &quot;6*7&quot;"), "{page}");
    assert_eq!(page.matches("aria-label=\"The path of the call\"").count(), 2, "{page}");
    assert!(page.contains("<li class=\"stopped\"><span class=\"stage\">execute"), "{page}");
    let (_, list) = answer(app.get("/admin/calls?tool=calculator").bearer_auth("key-of-ann")).await;
    for call in list["calls"].as_array().unwrap() {
        let id = call["call_id"].as_str().unwrap();
        assert!(page.contains(&format!("href=\"/console/calls/{id}\"")), "{page}");
        let route = format!("/admin/calls?agent_call_id={}", call["agent_call_id"].as_str().unwrap());
        let (_, found) = answer(app.get(&route).bearer_auth("key-of-ann")).await;
        assert_eq!((found["calls"].as_array().unwrap().len(), &found["calls"][0]["call_id"]), (1, &json!(id)));
    }
    assert_eq!(list["calls"].as_array().unwrap().len(), 2);

    // What the forms say is done.
    submitted(&ann, path, &[("act", "rename"), ("title", "Products")]).await;
    let fork = submitted(&ann, path, &[("act", "fork")]).await;
    assert_ne!(fork, path);
    assert!(ann.page(&fork).await.contains("It is 42.") && ann.page(path).await.contains("<h1>Products</h1>"));
    submitted(&ann, path, &[("act", "deactivate")]).await;
    assert!(ann.page(path).await.contains("inactive") && !ann.page(path).await.contains("value=\"say\""));
    assert_eq!(submit(&ann, path, &[("act", "say"), ("user_input", "x")]).await.status(), StatusCode::FORBIDDEN);
    submitted(&ann, path, &[("act", "activate")]).await;
    for fields in [&[("act", "delete")][..], &[("act", "none")], &[]] {
        assert_eq!(submit(&ann, path, fields).await.status(), StatusCode::BAD_REQUEST, "{fields:?}");
    }
    // It is nobody else's.
    for path in [path.to_owned(), format!("/console/runs/{run}/events")] {
        assert_eq!(ola.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(submit(&ola, path, &[("act", "rename"), ("title", "Mine")]).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(submitted(&ann, path, &[("act", "delete"), ("confirmed", "true")]).await, "/console/conversations");
    assert_eq!(ann.get(path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let list = ann.page("/console/conversations").await;
    assert!(list.contains(&fork) && !list.contains(path), "{list}");
}

#[tokio::test]
async fn how_calls_ended_is_shown_also_after_a_restart() {
    let app = app().await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let address = submitted(&ann, "/console/conversations", &[("user_input", "x")]).await;
    let path = address.split_once("?run=").unwrap().0.to_owned();
    let ends = |page: &str| {
        let calls = page.split("<details class=\"tool-call\"><summary>").skip(1);
        let end = |call: &str| {
            ["✓", "✕", "?", "…"].into_iter().find(|sign| call.split("</span>").next().unwrap().contains(sign))
        };
        calls.map(end).collect::<Vec<_>>()
    };
    let page = page_with(&ann, &path, "It is 42.").await;
    assert_eq!(ends(&page), [Some("✓"), Some("✕")], "{page}");
    drop(ann);
    let yaml = configuration(&app.directory, TALK);
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let page = page_with(&ann, &path, "It is 42.").await;
    assert_eq!(ends(&page), [Some("✓"), Some("✕")], "{page}");
}

#[tokio::test]
async fn the_events_of_a_run_end_with_the_session() {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, "turns: [{text: [slow], delay_seconds: 60}]");
    let app = TestApp::in_directory(directory, &yaml).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let address = submitted(&ann, "/console/conversations", &[("user_input", "x")]).await;
    let (path, run) = address.split_once("?run=").unwrap();
    let events = ann.get(&format!("/console/runs/{run}/events")).send().await.unwrap();
    let page = page_with(&ann, path, "value=\"cancel\"").await;
    assert!(
        page.contains(&format!("<live-run class=\"message assistant\" src=\"/console/runs/{run}/events\"")),
        "{page}"
    );
    submitted(&ann, "/console/sign-out", &[]).await;
    // It would last a minute.
    tokio::time::timeout(slack(Duration::from_secs(10)), events.bytes()).await.unwrap().unwrap();
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    submitted(&ann, path, &[("act", "cancel"), ("run", run)]).await;
    page_with(&ann, path, "cancelled").await;
}

#[tokio::test]
async fn a_plan_is_approved_and_its_checklist_fills() {
    let app = app().await;
    let (ann, ola) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-ola").await);
    let new = [("goal", "Which is warmer?\nTokyo or Osaka"), ("agent", "planned"), ("approve", "true")];
    let path = submitted(&ann, "/console/plans", &new).await;
    let page = page_with(&ann, &path, "waits for approval").await;
    check_markup(&page);
    assert!(page.contains("<h1>Which is warmer?</h1>") && page.contains("0 of 2 steps are done"), "{page}");
    assert_eq!(page.matches("<li class=\"pending\">").count(), 2, "{page}");
    assert!(page.contains("value=\"approve\"") && !page.contains("value=\"pause\""), "{page}");
    assert_eq!(submit(&ola, &path, &[("act", "approve")]).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(submit(&ann, &path, &[("act", "delete")]).await.status(), StatusCode::BAD_REQUEST);
    submitted(&ann, &path, &[("act", "approve")]).await;
    let page = page_with(&ann, &path, "✓ finished").await;
    check_markup(&page);
    assert!(page.contains("2 of 2 steps are done") && page.contains("is warmer than Tokyo"), "{page}");
    assert_eq!(page.matches("<li class=\"completed\">").count(), 2, "{page}");
    assert!(!page.contains("live-page") && !page.contains("name=\"act\""), "nothing can be done with it: {page}");
    assert!(page.contains("<h2 id=\"timeline\">Timeline</h2>") && page.contains("<rect class=\"turn\""), "{page}");
    let events = ann.get(&format!("{path}/events")).send().await.unwrap().text().await.unwrap();
    assert!(events.contains("event: finished"), "{events}");
    let csv = ann.page("/console/plans?format=csv").await;
    assert!(
        csv.starts_with("id,goal,status,") && csv.contains("\"Which is warmer?\nTokyo or Osaka\",\"finished\""),
        "{csv}"
    );
    let list = ann.page("/console/plans").await;
    assert!(list.contains(&path) && !ola.page("/console/plans").await.contains(&path), "{list}");
}

#[tokio::test]
async fn models_and_tenants_are_changed_by_administrators_alone() {
    let app = app().await;
    let (ann, root) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-root").await);
    let page = root.page("/console/models").await;
    check_markup(&page);
    assert!(page.contains("/console/models/fixed") && page.contains("set-by-file"), "{page}");
    // What the configuration defines has no form.
    assert!(!root.page("/console/models/fixed").await.contains("name=\"argument."));
    let model = [("name", "a/b c"), ("act", "save"), ("argument.model", "m-1"), ("argument.context_tokens", "1000")];
    let path = submitted(&root, "/console/models", &model).await;
    assert_eq!(path, "/console/models/a%2Fb%20c");
    let page = root.page(&path).await;
    check_markup(&page);
    assert!(page.contains("name=\"argument.model\" value=\"m-1\"") && page.contains("value=\"1000\""), "{page}");
    let change = [("act", "save"), ("argument.model", "m-2"), ("argument.price_per_million_prompt_tokens", "1.5")];
    submitted(&root, &path, &change).await;
    let (_, shown) = answer(app.get("/api/models/a%2Fb%20c").bearer_auth("key-of-root")).await;
    assert_eq!((&shown["model"], &shown["context_tokens"]), (&json!("m-2"), &Value::Null), "{shown}");
    // What is refused is said beside what was filled in.
    for (fields, says) in [
        (&[("name", "x"), ("argument.profile", "none")][..], "none"),
        (&[("name", "fixed"), ("argument.model", "m")], "fixed"),
    ] {
        let response = submit(&root, "/console/models", fields).await;
        assert_eq!(response.status(), StatusCode::OK);
        let page = response.text().await.unwrap();
        let (_, notice) = page.split_once("<div class=\"notice bad\"").unwrap_or_else(|| panic!("{page}"));
        assert!(notice.split("</div>").next().unwrap().contains(says), "{page}");
        assert!(page.contains(&format!("name=\"{}\" value=\"{}\"", fields[1].0, fields[1].1)), "{page}");
    }
    let tenant =
        [("name", "acme"), ("count.models", "2"), ("argument.models/0", "talk"), ("argument.models/1", "planned")];
    let tenant_path = submitted(&root, "/console/tenants", &tenant).await;
    let page = root.page(&tenant_path).await;
    assert!(page.contains("name=\"argument.models/1\" value=\"planned\""), "{page}");
    // A further entry of a list changes nothing yet.
    let more = submit(&root, &tenant_path, &[("more", "/models"), ("argument.models/0", "talk")]).await;
    assert!(more.text().await.unwrap().contains("name=\"argument.models/1\" value=\"\""));
    let (_, shown) = answer(app.get("/api/tenants/acme").bearer_auth("key-of-root")).await;
    assert_eq!(shown["models"], json!(["talk", "planned"]), "{shown}");

    // An operator sees what is of the tenant, and changes nothing.
    let page = ann.page("/console/tenants/acme").await;
    assert!(page.contains("planned") && !page.contains("name=\"argument."), "{page}");
    for (path, fields) in
        [("/console/models", &model[..]), (&path, &change), (&path, &[("act", "remove"), ("confirmed", "a/b c")])]
    {
        assert_eq!(submit(&ann, path, fields).await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(submit(&root, &path, &[("act", "remove"), ("confirmed", "a")]).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(submitted(&root, &path, &[("act", "remove"), ("confirmed", "a/b c")]).await, "/console/models");
    assert_eq!(root.get(&path).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let csv = root.page("/console/models?format=csv").await;
    assert_eq!(csv, "name,configured,status,profile,model\r\n\"fixed\",true,\"active\",,\"set-by-file\"\r\n");
}

#[tokio::test]
async fn a_viewer_and_a_forged_form_change_nothing() {
    let app = app().await;
    let (vic, root) = (Browser::signed_in(&app, "key-of-vic").await, Browser::signed_in(&app, "key-of-root").await);
    let forms: [(&str, &[(&str, &str)]); 5] = [
        ("/console/conversations", &[("user_input", "x")]),
        ("/console/plans", &[("goal", "x"), ("agent", "planned")]),
        ("/console/models", &[("name", "x"), ("argument.model", "m")]),
        ("/console/tenants", &[("name", "x")]),
        ("/console/models/fixed", &[("act", "remove"), ("confirmed", "fixed")]),
    ];
    let token = root.token().await;
    for (path, fields) in forms {
        assert_eq!(submit(&vic, path, fields).await.status(), StatusCode::FORBIDDEN, "{path}");
        let page = vic.page(path).await;
        assert!(!page.contains("<textarea") && !page.contains("name=\"argument."), "{page}");
        let with_token: Vec<_> = fields.iter().copied().chain([("token", token.as_str())]).collect();
        for forged in [
            root.post(path, fields),
            root.post_from(path, &with_token),
            root.post_from(path, &with_token).header(ORIGIN, "http://evil.example"),
            root.post(path, &with_token).header("sec-fetch-site", "cross-site"),
        ] {
            assert_eq!(forged.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{path}");
        }
    }
    for (route, list) in [("/api/conversations", "conversations"), ("/api/plans", "plans")] {
        for key in ["key-of-root", "key-of-vic"] {
            assert_eq!(answer(app.get(route).bearer_auth(key)).await.1[list], json!([]), "{route}");
        }
    }
    let (_, models) = answer(app.get("/api/models").bearer_auth("key-of-root")).await;
    assert_eq!(models["items"].as_array().unwrap().len(), 1, "{models}");
}

#[tokio::test]
async fn costs_are_summed_by_caller_and_by_tenant_for_whom_they_concern() {
    let app = app().await;
    for key in ["key-of-ann", "key-of-ann", "key-of-ola", "key-of-root"] {
        let call =
            app.post("/tools/calculator/execute").bearer_auth(key).json(&json!({"arguments": {"expression": "1"}}));
        assert_eq!(call.send().await.unwrap().status(), StatusCode::OK);
    }
    let (vic, root) = (Browser::signed_in(&app, "key-of-vic").await, Browser::signed_in(&app, "key-of-root").await);
    // The store is some hundred milliseconds behind.
    let page = page_with(&root, "/console/costs", "$1.00 and").await;
    check_markup(&page);
    let page = vic.page("/console/costs").await;
    assert!(page.contains("$0.75 and") && page.contains("66.7 %") && !page.contains("root"), "{page}");
    let csv = vic.page("/console/costs?by=tenant&days=7&format=csv").await;
    let (head, line) = csv.split_once("\r\n").unwrap();
    assert_eq!(head, "day,tenant,caller,cost_usd,tokens");
    assert!(line.contains("\"acme\",,\"0.75\","), "{csv}");
    let json: Value = serde_json::from_str(&vic.page("/console/costs?format=json").await).unwrap();
    assert_eq!((&json[0]["caller"], &json[0]["cost_usd"]), (&json!("ann"), &json!("0.5")), "{json}");
    // Without a role of the console, a caller sees what is its own.
    let (status, list) = answer(app.get("/admin/usage?days=0").bearer_auth("key-of-ann")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{list}");
}

#[tokio::test]
async fn the_page_of_clients_has_no_key() {
    let app = app().await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let page = ann.page("/console/connect").await;
    check_markup(&page);
    for client in ["Claude Code", "Claude Desktop", "Cursor", "VS Code", "Codex", "Open WebUI", "curl"] {
        assert!(page.contains(&format!("{client}</h2>")), "{client}");
    }
    assert!(page.contains(&format!("{}/mcp", app.url)) && !page.contains("key-of-"), "{page}");
}

#[tokio::test]
async fn a_language_is_chosen_by_an_address_and_remembered() {
    let app = app().await;
    let mut ann = Browser::signed_in(&app, "key-of-ann").await;
    let response = ann.get("/console/tools?q=a&lang=ja").header(ACCEPT_LANGUAGE, "en").send().await.unwrap();
    let set = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(set.starts_with("sekisho-console-language=ja; Path=/console; HttpOnly; SameSite=Lax"), "{set}");
    let page = response.text().await.unwrap();
    assert!(page.contains("<html lang=\"ja\">") && page.contains("href=\"/console/tools?q=a&amp;lang=en\""), "{page}");
    ann.cookie = format!("{}; sekisho-console-language=ja", ann.cookie);
    assert!(ann.page("/console/costs").await.contains("<h1>費用</h1>"));
    let response = ann.get("/console/tools?lang=%3Cscript%3E").send().await.unwrap();
    assert!(!response.headers().contains_key(SET_COOKIE));
    check_markup(&response.text().await.unwrap());
}

/// A tool that answers its arguments, with objects, lists, choices and a file among them.
pub(crate) struct Nested;

impl Source for Nested {
    fn name(&self) -> &str {
        "nested"
    }

    fn tools(&self) -> SourceTools {
        let parameters = json!({
            "type": "object", "required": ["to"],
            "properties": {
                "to": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "minLength": 2}, "age": {"type": ["integer", "null"]}}}},
                "days": {"type": "array", "items": {"enum": ["mon", "tue"]}},
                "photo": {"type": "object", "properties": {
                    "filename": {"type": "string"}, "content_base64": {"type": "string", "contentEncoding": "base64"}}},
            },
        });
        let tool = ToolDefinition {
            metadata: Metadata { name: "nested".into(), source: "nested".into(), ..Metadata::default() },
            parameters: parameters.into(),
            output_schema: None,
            executor: Arc::new(Repeats),
        };
        SourceTools { tools: vec![tool], unavailable: Vec::new() }
    }
}

struct Repeats;

impl Executor for Repeats {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move { Ok(ToolOutput::from(Value::Object(arguments.clone()))) })
    }
}

/// A form with files, as a browser sends it.
async fn upload(browser: &Browser<'_>, path: &str, fields: &[(&str, &str)], file: (&str, &str, &str)) -> String {
    let token = browser.token().await;
    let mut body = String::new();
    for (name, value) in fields.iter().copied().chain([("token", token.as_str())]) {
        body += &format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    let (name, file, content) = file;
    body += &format!(
        "--x\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\nContent-Type: image/png\r\n\r\n\
         {content}\r\n--x--\r\n"
    );
    let request = browser.client.post(format!("{}{path}", browser.app.url)).header(COOKIE, &browser.cookie);
    let request = request.header(ORIGIN, &browser.app.url).header("content-type", "multipart/form-data; boundary=x");
    request.body(body).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_tool_is_tried_with_objects_lists_choices_and_a_file() {
    let app = TestApp::with_tools_of(
        TempDir::new().unwrap(),
        "auth: {api_keys: [{id: root, key: key-of-root, roles: [admin]}]}",
        vec![Box::new(Nested), Box::new(HostileTools)],
    )
    .await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    let path = "/console/tools/nested";
    let fields = [("argument.to/0/name", "Ann"), ("argument.photo/filename", ""), ("argument.days", "tue")];
    // The button that adds an entry runs nothing and keeps what is filled in.
    let file = ("file.photo/content_base64", "a.png", "png");
    let mode_and_more = [&fields[..], &[("more", "/to"), ("mode", "run")]].concat();
    let page = upload(&root, path, &mode_and_more, file).await;
    check_markup(&page);
    assert!(page.contains("name=\"argument.to/1/name\"") && page.contains("value=\"Ann\""), "{page}");
    assert!(page.contains("value=\"cG5n\"") && !page.contains("id=\"reply\""), "{page}");
    // An empty entry before a wrong one: the problem is at the field of what was sent.
    let wrong = [("mode", "run"), ("count.to", "2"), ("argument.to/1/name", "B")];
    let page = submit(&root, path, &wrong).await.text().await.unwrap();
    let (_, field) = page.split_once("name=\"argument.to/0/name\" value=\"B\"").unwrap_or_else(|| panic!("{page}"));
    assert!(field.split("</div>").next().unwrap().contains("class=\"error\""), "{page}");
    let run = [&fields[..], &[("argument.to/0/age", "41"), ("mode", "run")]].concat();
    let page = upload(&root, path, &run, file).await;
    check_markup(&page);
    let sent = json!({"to": [{"name": "Ann", "age": 41}], "days": ["tue"],
        "photo": {"filename": "a.png", "content_base64": "cG5n"}});
    for text in serde_json::to_string_pretty(&sent).unwrap().lines() {
        assert!(page.contains(&text.trim().replace('"', "&quot;")), "{text}: {page}");
    }
    assert!(page.contains("aria-label=\"The path of the call\"") && page.contains("checked"), "{page}");
    // The snippets are of this call.
    assert!(page.contains("&quot;age&quot;:41"), "{page}");
    let rows = root.page("/console/tools?format=json").await;
    assert!(serde_json::from_str::<Vec<Value>>(&rows).unwrap().iter().any(|tool| tool["name"] == "nested"), "{rows}");
    let calls = root.page("/console/calls?tool=nested&format=csv").await;
    assert_eq!((calls.lines().count(), calls.matches("invalid_arguments").count()), (3, 1), "{calls}");
}

/// A script of a model that says hostile texts, and calls tools with them.
pub(crate) fn hostile_talk() -> String {
    let all = markup().join(" ");
    let call = |tool: &str| json!({"id": tool, "tool": tool, "arguments": json!({"x": all, "fail": 1}).to_string()});
    json!({"turns": [{"thinking": all, "text": [all], "calls": [call(&all), call("hostile")]}, {"text": [all]}]})
        .to_string()
}

#[tokio::test]
async fn no_text_of_an_agent_or_an_address_becomes_markup() {
    let all = markup().join(" ");
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, &hostile_talk());
    let app = TestApp::with_tools_of(directory, &yaml, vec![Box::new(HostileTools)]).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    let title: String = markup()[0].chars().take(200).collect();
    let address = submitted(&root, "/console/conversations", &[("user_input", &all), ("title", &title)]).await;
    let (path, run) = address.split_once("?run=").unwrap();
    _ = root.get(&format!("/console/runs/{run}/events")).send().await.unwrap().text().await.unwrap();
    check_markup(&root.page(path).await);
    for text in markup().iter().take(60) {
        let text: String = text.chars().take(60).collect();
        _ = submit(&root, "/console/models", &[("name", &text), ("argument.model", &text)]).await;
        _ = submit(
            &root,
            "/console/tenants",
            &[("name", &text), ("argument.prompt", &text), ("argument.models/0", &text)],
        )
        .await;
        let refused = submit(&root, "/console/models", &[("name", &text), ("argument.profile", &text)]).await;
        check_markup(&refused.text().await.unwrap());
    }
    for plan in [&all, &title] {
        let path = submitted(&root, "/console/plans", &[("goal", plan), ("agent", "planned")]).await;
        check_markup(&root.page(&path).await);
    }
    for path in ["conversations", "plans", "models", "tenants", "costs", "connect"] {
        check_markup(&root.page(&format!("/console/{path}")).await);
    }
    let (_, tenants) = answer(app.get("/api/tenants?limit=200").bearer_auth("key-of-root")).await;
    let tenants = tenants["items"].as_array().unwrap();
    assert!(tenants.len() > 20, "{tenants:?}");
    for tenant in tenants {
        let name =
            url::form_urlencoded::byte_serialize(tenant["name"].as_str().unwrap().as_bytes()).collect::<String>();
        check_markup(&root.page(&format!("/console/tenants/{}", name.replace('+', "%20"))).await);
    }
    for text in markup() {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(["before", "after", "run", "lang", "days", "by"].map(|name| (name, &*text)))
            .finish();
        for path in ["conversations", "plans", "models", "costs"] {
            check_markup(&root.get(&format!("/console/{path}?{query}")).send().await.unwrap().text().await.unwrap());
        }
    }
}
