//! Plans over HTTP and on the terminal; a script plays planner, steps and evaluator.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code};
use crate::chat::recording_model;
use crate::checkout::checkout;
use crate::cli::sekisho;
use crate::sent_turns::SentTurns;
use crate::slack::slack;

const PLAN: &str = include_str!("../../config/examples/plan.yaml");

/// Two callers, and an agent that plans and one that does not, with the same script.
fn configuration(directory: &TempDir, script: &str) -> String {
    let file = directory.path().join("plan.yaml");
    std::fs::write(&file, script).unwrap();
    let model = file.display();
    format!(
        "auth: {{api_keys: [{{id: ann, key: a}}, {{id: bob, key: b}}]}}\n\
         agent:\n  default_profile: plain\n  profiles:\n    plain: {{provider: replay, model: {model}}}\n    \
         planned: {{provider: replay, model: {model}, planner: {{preset: steps}}}}\n  \
         models: {{small: {{profile: planned}}}}\n"
    )
}

async fn app(script: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, script);
    TestApp::in_directory(directory, &yaml).await
}

async fn post(app: &TestApp, path: &str, body: Value) -> (u16, Value) {
    let (status, reply) = answer(app.post(path).bearer_auth("a").json(&body)).await;
    (status.as_u16(), reply)
}

async fn get(app: &TestApp, path: &str) -> (u16, Value) {
    let (status, reply) = answer(app.get(path).bearer_auth("a")).await;
    (status.as_u16(), reply)
}

/// The plan, once it has that status.
async fn reached(app: &TestApp, id: &str, status: &str) -> Value {
    for _ in 0..1_000 {
        let (_, plan) = get(app, &format!("/api/plans/{id}")).await;
        if plan["status"] == status {
            return plan;
        }
        tokio::time::sleep(slack(Duration::from_millis(10))).await;
    }
    panic!("{:?}", get(app, &format!("/api/plans/{id}")).await)
}

fn types(stream: &str) -> Vec<String> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| Some(serde_json::from_str::<Value>(data).ok()?["type"].as_str()?.to_owned())).collect()
}

#[tokio::test]
async fn a_plan_goes_on_by_itself_and_its_events_can_be_followed_from_any_id() {
    let app = app(PLAN).await;
    let (status, plan) = post(&app, "/api/plans", json!({"goal": "Which is warmer?"})).await;
    assert_eq!((status, &plan["status"], &plan["preset"]), (201, &json!("running"), &json!("steps")));
    let id = plan["id"].as_str().unwrap().to_owned();
    let follow = |after: Option<&str>| {
        let request = app.get(&format!("/api/plans/{id}/events")).bearer_auth("a");
        after.map_or_else(
            || request.try_clone().unwrap(),
            |after| request.try_clone().unwrap().header("Last-Event-ID", after),
        )
    };
    let whole = follow(None).send().await.unwrap().text().await.unwrap();
    let seen = types(&whole);
    for expected in ["node", "plan", "step", "tool_input", "tool_result", "evaluation", "content", "finished", "usage"]
    {
        assert!(seen.iter().any(|name| name == expected), "{expected} is not in {seen:?}");
    }
    let ids: Vec<u64> = whole.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let rest = follow(Some("5")).send().await.unwrap().text().await.unwrap();
    assert!(rest.starts_with("id: 6\n") && whole.ends_with(&rest), "{rest}");
    assert_eq!(follow(Some("x")).send().await.unwrap().status(), 400);

    let done = reached(&app, &id, "finished").await;
    assert_eq!(done["answer"], "Osaka (75.2 °F) is warmer than Tokyo (70.7 °F).");
    assert_eq!((&done["finished"], &done["total_attempts"], &done["node"]), (&json!(true), &json!(2), &json!("End")));
    assert!(done["plan"].as_array().unwrap().iter().all(|step| step["status"] == "completed"), "{done}");
    let (_, list) = get(&app, "/api/plans?limit=1").await;
    assert_eq!((&list["plans"][0]["id"], &list["plans"][0]["status"]), (&json!(id), &json!("finished")));
    assert_eq!((&list["next"], &list["items"]), (&Value::Null, &list["plans"]));
    let created = list["items"][0]["created_at"].as_str().unwrap();
    assert_eq!(get(&app, &format!("/api/plans?before={created}")).await.1["plans"], json!([]));
}

#[tokio::test]
async fn another_callers_plan_is_not_found() {
    let app = app(PLAN).await;
    let (_, plan) = post(&app, "/api/plans", json!({"goal": "Which is warmer?", "approve_plan": true})).await;
    let path = format!("/api/plans/{}", plan["id"].as_str().unwrap());
    for (method, path, body) in [
        ("GET", path.clone(), None),
        ("GET", format!("{path}/events"), None),
        ("PATCH", path.clone(), Some(json!({"steps": [{"instruction": "x"}]}))),
        ("POST", format!("{path}/pause"), None),
        ("POST", format!("{path}/continue"), None),
        ("POST", format!("{path}/approve"), None),
        ("POST", format!("{path}/cancel"), None),
    ] {
        let send = async |key: Option<&str>| {
            let request = app.client.request(method.parse().unwrap(), format!("{}{path}", app.url));
            let request =
                key.map_or_else(|| request.try_clone().unwrap(), |key| request.try_clone().unwrap().bearer_auth(key));
            answer(body.iter().fold(request, reqwest::RequestBuilder::json)).await
        };
        let (status, reply) = send(Some("b")).await;
        assert_eq!((status.as_u16(), code(&reply)), (404, "not_found"), "{method} {path}: {reply}");
        let (status, reply) = send(None).await;
        assert_eq!((status.as_u16(), code(&reply)), (404, "not_found"), "{method} {path}, without a key: {reply}");
    }
    assert_eq!(answer(app.get("/api/plans").bearer_auth("b")).await.1["plans"], json!([]));
}

#[tokio::test]
async fn a_plan_waits_for_approval_and_its_open_steps_can_be_changed() {
    let app = app(PLAN).await;
    let body = json!({"goal": "Which is warmer?", "approve_plan": true, "profile": "planned"});
    let (_, plan) = post(&app, "/api/plans", body).await;
    let id = plan["id"].as_str().unwrap().to_owned();
    let waiting = reached(&app, &id, "waiting_for_approval").await;
    assert_eq!((&waiting["total_attempts"], waiting["plan"].as_array().unwrap().len()), (&json!(0), 2));
    assert_eq!(post(&app, &format!("/api/plans/{id}/pause"), json!({})).await.0, 400);
    assert_eq!(post(&app, &format!("/api/plans/{id}/continue"), json!({})).await.0, 400);
    let change = json!({"steps": [{"instruction": "Convert 21.5 °C to °F", "expected": "°F"}]});
    let request = app.client.patch(format!("{}/api/plans/{id}", app.url)).bearer_auth("a").json(&change);
    let (status, changed) = answer(request).await;
    assert_eq!((status.as_u16(), changed["plan"].as_array().unwrap().len()), (200, 1), "{changed}");
    assert_eq!(post(&app, &format!("/api/plans/{id}/approve"), json!({})).await.0, 200);
    let done = reached(&app, &id, "finished").await;
    assert_eq!(done["total_attempts"], 1, "{done}");
    assert_eq!(post(&app, &format!("/api/plans/{id}/cancel"), json!({})).await.0, 400);
}

/// The first attempt takes a minute.
const SLOW: &str = r#"
turns: []
plan:
  planner: [[{text: ['{"steps": ["calculate"]}']}]]
  attempts:
    - - calls: [{id: a, tool: calculator, arguments: '{"expression": "6*7"}'}]
      - {text: [done], delay_seconds: 60}
  answer: [{text: [done]}]
"#;

#[tokio::test]
async fn a_running_plan_is_cancelled_at_once() {
    let app = app(SLOW).await;
    let (_, plan) = post(&app, "/api/plans", json!({"goal": "Calculate"})).await;
    let id = plan["id"].as_str().unwrap().to_owned();
    assert_eq!(post(&app, &format!("/api/plans/{id}/cancel"), json!({})).await.0, 200);
    reached(&app, &id, "cancelled").await;
    let (status, reply) = post(&app, &format!("/api/plans/{id}/continue"), json!({})).await;
    assert_eq!((status, code(&reply)), (400, "invalid_request"));
}

#[tokio::test]
async fn a_plan_outlives_its_process_and_goes_on_at_its_last_node() {
    let first = app(SLOW).await;
    let (_, plan) = post(&first, "/api/plans", json!({"goal": "Calculate"})).await;
    let id = plan["id"].as_str().unwrap().to_owned();
    let ran = r#"shannon_tool_executions_total{status="success",tool_name="calculator"} 1"#;
    while !first.get("/metrics").bearer_auth("a").send().await.unwrap().text().await.unwrap().contains(ran) {
        tokio::time::sleep(slack(Duration::from_millis(10))).await;
    }
    let directory = first.stop().await;
    let yaml = configuration(&directory, &SLOW.replace("60", "0"));
    let second = TestApp::in_directory(directory, &yaml).await;
    let paused = reached(&second, &id, "paused").await;
    assert_eq!((&paused["node"], &paused["total_attempts"]), (&json!("Executor_RunMCP"), &json!(1)), "{paused}");
    // No log of events outlives a process: the plan as it is stands for them.
    let path = format!("/api/plans/{id}/events");
    let events = second.get(&path).bearer_auth("a").send().await.unwrap().text().await.unwrap();
    assert!(events.starts_with("event: plan\n") && events.contains("\"paused\""), "{events}");
    assert_eq!(post(&second, &format!("/api/plans/{id}/continue"), json!({})).await.0, 200);
    // The short result is to be evaluated, and the script has no evaluator.
    let failed = reached(&second, &id, "failed").await;
    assert_eq!(
        (&failed["node"], &failed["plan"][0]["result"]),
        (&json!("Planner_Evaluate"), &json!("done")),
        "{failed}"
    );
}

/// The store takes every state of the plan but the last one.
#[tokio::test]
async fn a_plan_whose_end_cannot_be_stored_is_paused_and_can_be_continued_or_cancelled() {
    let app = app(PLAN).await;
    sqlx::any::install_default_drivers();
    let file = app.directory.path().join("state/sekisho.db");
    let database = sqlx::AnyPool::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    let run = async |statement: &'static str| sqlx::raw_sql(statement).execute(&database).await.unwrap();
    for (act, ended) in [("continue", "finished"), ("cancel", "cancelled")] {
        run("CREATE TRIGGER no_end BEFORE UPDATE ON plans WHEN NEW.status = 'finished' BEGIN SELECT RAISE(ABORT, 'full'); END")
            .await;
        let (_, plan) = post(&app, "/api/plans", json!({"goal": "Which is warmer?"})).await;
        let id = plan["id"].as_str().unwrap().to_owned();
        let path = format!("/api/plans/{id}");
        let events = app.get(&format!("{path}/events")).bearer_auth("a").send().await.unwrap().text().await.unwrap();
        assert!(events.contains("Osaka (75.2 °F)"), "{events}");
        reached(&app, &id, "paused").await;
        run("DROP TRIGGER no_end").await;
        assert_eq!(post(&app, &format!("{path}/{act}"), json!({})).await.0, 200, "{act}");
        reached(&app, &id, ended).await;
    }
}

#[tokio::test]
async fn agents_with_a_planner_plan_in_every_api() {
    let app = app(PLAN).await;
    let question = json!([{"role": "user", "content": "Which is warmer?"}]);
    let (status, completion) =
        post(&app, "/v1/chat/completions", json!({"model": "planned", "messages": question})).await;
    assert_eq!(status, 200, "{completion}");
    let choice = &completion["choices"][0];
    assert_eq!(choice["message"]["content"], "Osaka (75.2 °F) is warmer than Tokyo (70.7 °F).");
    let (_, reply) = post(&app, "/api/chat", json!({"model": "planned", "message": "Which is warmer?"})).await;
    assert_eq!(reply["reply"], "Osaka (75.2 °F) is warmer than Tokyo (70.7 °F).", "{reply}");
    assert_eq!(reply["tool_calls"].as_array().unwrap().len(), 2);
    let tools = json!([{"type": "function", "function": {"name": "click", "parameters": {}}}]);
    let body = json!({"model": "planned", "messages": question, "tools": tools});
    assert_eq!(post(&app, "/v1/chat/completions", body).await.0, 400);

    let path = "/api/planner/stream?message=Which%20is%20warmer%3F&model=plain";
    let stream = app.get(path).bearer_auth("a").send().await.unwrap().text().await.unwrap();
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let seen = types(&stream);
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("session", "node"), "{seen:?}");
    assert!(stream.contains("\"plan_id\"") && stream.contains("Osaka"), "{stream}");
}

#[tokio::test]
async fn a_plan_may_name_a_model_of_the_configuration() {
    let app = app(PLAN).await;
    let (status, plan) = post(&app, "/api/plans", json!({"goal": "Which is warmer?", "model": "small"})).await;
    assert_eq!((status, &plan["profile"]), (201, &json!("small")), "{plan}");
    let plan = reached(&app, plan["id"].as_str().unwrap(), "finished").await;
    assert_eq!(plan["answer"], "Osaka (75.2 °F) is warmer than Tokyo (70.7 °F).");
}

#[tokio::test]
async fn the_images_and_files_of_a_goal_reach_the_planner_and_the_steps() {
    // An answer that is a plan, and long enough for a result.
    let plan =
        r#"{"steps": [{"instruction": "Look at it.", "expected": "a word"}], "success_criteria": "It is named."}"#;
    let (model, requests) = recording_model(plan, SentTurns::default()).await;
    let profile = format!("{{provider: openai, model: m, base_url: 'http://{model}/v1', planner: {{preset: steps}}}}");
    let app = TestApp::with(&format!("agent: {{default_profile: seeing, profiles: {{seeing: {profile}}}}}")).await;
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let file =
        json!({"type": "file", "file": {"filename": "notes.txt", "file_data": "data:text/plain;base64,aGVsbG8="}});
    let content = json!([{"type": "text", "text": "What is it?"}, image, file]);
    let body = json!({"messages": [{"role": "user", "content": content}]});
    let (status, completion) = post(&app, "/v1/chat/completions", body).await;
    assert_eq!(status, 200, "{completion}");
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 3, "planner, step and answer: {requests:?}");
    for request in &requests {
        let last = &request["messages"].as_array().unwrap().last().unwrap()["content"];
        assert_eq!(last[1], image, "{request}");
        assert!(last[2]["text"].as_str().unwrap().contains("hello"), "{request}");
    }
}

/// B21.
#[tokio::test]
async fn a_planner_has_a_temperature_of_its_own() {
    let plan =
        r#"{"steps": [{"instruction": "Look at it.", "expected": "a word"}], "success_criteria": "It is named."}"#;
    let (model, requests) = recording_model(plan, SentTurns::default()).await;
    let planner = "planner: {preset: steps, temperature: 0.9}";
    let profile = format!("{{provider: openai, model: m, base_url: 'http://{model}/v1', {planner}}}");
    let app = TestApp::with(&format!("agent: {{default_profile: seeing, profiles: {{seeing: {profile}}}}}")).await;
    let body = json!({"messages": [{"role": "user", "content": "What is it?"}]});
    assert_eq!(post(&app, "/v1/chat/completions", body).await.0, 200);
    let requests = requests.lock().unwrap().clone();
    assert_eq!((&requests[0]["temperature"], &requests[1]["temperature"]), (&json!(0.9), &json!(0.7)));
}

#[tokio::test]
async fn a_planner_without_a_plan_is_an_error_event() {
    let broken = "{turns: [], plan: {planner: [[{text: [no]}, {text: [plan]}]]}}";
    let app = app(broken).await;
    let path = "/api/planner/stream?message=Do%20it";
    let stream = app.get(path).bearer_auth("a").send().await.unwrap().text().await.unwrap();
    assert!(stream.contains(r#""type":"error","code":"invalid_output""#), "{stream}");
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
}

#[tokio::test]
async fn wrong_requests_are_named() {
    let app = app(PLAN).await;
    for (body, problem) in [
        (json!({"goal": " "}), "goal"),
        (json!({}), "goal"),
        (json!({"goal": "x", "preset": "none"}), "`steps` or `plan_and_act`"),
        (json!({"goal": "x", "profile": "nobody"}), "nobody"),
        (json!({"goal": "x", "profile": "plain", "model": "plain"}), "synonyms"),
        (json!({"goal": "x", "approve": true}), "approve"),
    ] {
        let (status, reply) = post(&app, "/api/plans", body.clone()).await;
        assert_eq!(status, 400, "{body}: {reply}");
        assert!(reply["error"].as_str().unwrap().contains(problem), "{body}: {reply}");
    }
    for query in ["limit=0", "limit=501", "before=yesterday", "after=yesterday"] {
        assert_eq!(get(&app, &format!("/api/plans?{query}")).await.0, 400, "{query}");
    }
    assert_eq!(get(&app, "/api/plans/none").await.0, 404);
}

#[test]
fn the_terminal_shows_a_checklist_that_fills() {
    let directory = TempDir::new().unwrap();
    let script = format!("replay:{}", checkout().join("config/examples/plan.yaml").display());
    let output = sekisho(&directory).args(["chat", "--plan", "--model", &script, "Which is warmer?"]).output().unwrap();
    let (answer, progress) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(answer, "Osaka (75.2 °F) is warmer than Tokyo (70.7 °F).\n", "{progress}");
    let marks: Vec<_> = progress.lines().filter_map(|line| line.split_once(" 1. Convert")).collect();
    let marks: Vec<_> = marks.into_iter().map(|(mark, _)| mark.trim()).collect();
    assert_eq!(marks, ["[ ]", "[…]", "[x]"], "{progress}");
}
