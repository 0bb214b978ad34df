//! What the run of a conversation refers to: tenants, models, skills, tokens and sub-agents.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::{SentEvent, create, events, execute, get, names, ran, streamed};
use crate::app::{TestApp, answer};
use crate::checkout::checkout;
use crate::lock::until;
use crate::openapi::document;
use crate::sent_turns::{SentTurns, append_only};

/// A gateway with agents that play these scripts, and more configuration. An agent named `main` is the default.
pub(super) async fn with_agents(scripts: &[(&str, Value, &str)], more: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let mut profiles = String::new();
    for (name, script, keys) in scripts {
        let file = directory.path().join(format!("{name}.yaml"));
        std::fs::write(&file, script.to_string()).unwrap();
        let prices = "price_per_million_prompt_tokens: 3, price_per_million_completion_tokens: 7";
        profiles
            .push_str(&format!("    {name}: {{provider: replay, model: '{}', {prices}, {keys}}}\n", file.display()));
    }
    let yaml = format!(
        "{more}\nagent:\n  default_profile: main\n  skills_directory: {}/examples/skills\n  subagents: {{types: {{clerk: {{description: Calculates., prompt: You calculate., model: small}}}}}}\n  models: {{small: {{profile: calculating}}, retired: {{profile: calculating, status: inactive}}}}\n  profiles:\n{profiles}",
        checkout().display()
    );
    TestApp::in_directory(directory, &yaml).await
}

fn tokens(prompt: u64, completion: u64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion})
}

fn of<'a>(sent: &'a [SentEvent], name: &str) -> Vec<&'a Value> {
    sent.iter().filter(|event| event.name == name).map(|event| &event.data).collect()
}

fn task() -> Value {
    let arguments = json!({"description": "a sum", "prompt": "6*7?", "subagent_type": "clerk"});
    json!({"id": "t", "tool": "Task", "arguments": arguments.to_string()})
}

#[tokio::test]
async fn a_sub_agent_has_events_journaled_calls_and_a_usage_row_of_its_own() {
    let main = json!({
        "turns": [{"calls": [task()], "usage": tokens(100, 10)}, {"text": ["It is 42."], "usage": tokens(200, 20)}],
        "title": "A sum",
    });
    let calculating = json!({"turns": [
        {"calls": [{"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"}], "usage": tokens(11, 1)},
        {"text": ["42"], "usage": tokens(13, 5)},
    ]});
    let app = with_agents(&[("main", main, "subagents: [clerk]"), ("calculating", calculating, "")], "").await;
    let id = create(&app, json!({})).await;
    let sent = events(streamed(&app, &id, &json!({"user_input": "6*7?"}))).await;
    let expected = [
        "system",
        "tool_use",
        "subagent_begin",
        "text_delta",
        "subagent_end",
        "tool_result",
        "text_delta",
        "result",
        "system",
    ];
    assert_eq!(names(&sent), expected);
    let texts = of(&sent, "text_delta");
    assert_eq!((&texts[0]["text"], &texts[0]["parent_tool_use_id"]), (&json!("42"), &sent[1].data["tool_use_id"]));
    assert_eq!((&texts[1]["text"], texts[1].get("parent_tool_use_id")), (&json!("It is 42."), None));
    let call = &of(&sent, "tool_use")[0]["tool_use_id"];
    let (begin, end) = (of(&sent, "subagent_begin")[0], of(&sent, "subagent_end")[0]);
    assert_eq!((&begin["tool_use_id"], &end["tool_use_id"], &end["is_error"]), (call, call, &json!(false)));
    assert_eq!((&begin["subagent_type"], &end["usage"]["input_tokens"]), (&json!("clerk"), &json!(24)));
    let result = of(&sent, "result")[0];
    assert_eq!(result["usage"]["input_tokens"], 324, "with the sub-agent's: {result}");

    let run = get(&app, &format!("/api/runs/{}", sent[0].data["run_id"].as_str().unwrap())).await;
    let rows: Vec<_> = run["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["agent"].as_str().unwrap(), row["input_tokens"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("main", 300), ("clerk", 24)], "{run}");
    // To the millionth: the rows are what the caller was charged.
    let charged: rust_decimal::Decimal = "0.001224".parse().unwrap();
    let costs = run["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cost_usd"].to_string().trim_matches('"').parse::<rust_decimal::Decimal>().unwrap());
    assert_eq!(costs.sum::<rust_decimal::Decimal>(), charged, "{run}");

    // The calls of the sub-agent are below its own, and each turn of the agent has its usage.
    let timeline = get(&app, &format!("/api/runs/{}/timeline", sent[0].data["run_id"].as_str().unwrap())).await;
    let step = |step: &Value| {
        let work = &step["work"];
        (
            step["depth"].as_u64().unwrap(),
            work["tool"].as_str().unwrap_or("").to_owned(),
            work["usage"]["prompt_tokens"].as_u64(),
        )
    };
    let steps: Vec<_> = timeline["items"].as_array().unwrap().iter().map(step).collect();
    let expected = [(0, "", Some(100)), (1, "Task", None), (2, "calculator", None), (0, "", Some(200))];
    assert_eq!(steps, expected.map(|(depth, tool, tokens)| (depth, tool.to_owned(), tokens)), "{timeline}");

    titled(&app, &id, &json!("A sum")).await;
    let log = get(&app, &format!("/api/logs/tool_executions?conversation_id={id}")).await;
    let text = log.to_string();
    assert!(text.contains("\"Task\"") && text.contains("\"calculator\""), "{log}");
}

/// Its turns are those of the plan's parts, and not of the conversation.
#[tokio::test]
async fn the_calls_and_the_usage_of_a_run_that_plans_are_logged() {
    let call = json!({"id": "c", "tool": "calculator", "arguments": "{\"expression\": \"6*7\"}"});
    let main = json!({"turns": [], "title": "A sum", "plan": {
        "planner": [[{"text": ["{\"steps\": [\"Calculate\"], \"success_criteria\": \"a number\"}"], "usage": tokens(10, 1)}]],
        "attempts": [[
            {"calls": [call], "usage": tokens(100, 10)},
            {"text": ["The product of six and seven is 42, by the calculator."], "usage": tokens(200, 20)},
        ]],
        "answer": [{"text": ["It is 42."], "usage": tokens(1000, 100)}],
    }});
    let app = with_agents(&[("main", main.clone(), "planner: {preset: steps}"), ("calculating", main, "")], "").await;
    let id = create(&app, json!({})).await;
    let sent = events(streamed(&app, &id, &json!({"user_input": "6*7?"}))).await;
    let result = of(&sent, "result")[0];
    assert_eq!((&result["result"], &result["usage"]["input_tokens"]), (&json!("It is 42."), &json!(1310)), "{result}");
    let rows = async |log: &str| get(&app, &format!("/api/logs/{log}?conversation_id={id}")).await["rows"].clone();
    let calls = rows("tool_executions").await;
    assert_eq!((calls.as_array().unwrap().len(), &calls[0]["tool_name"]), (1, &json!("calculator")), "{calls}");
    let usage = rows("usage").await;
    let of_main = |row: &&Value| row["agent"] == "main";
    let usage: Vec<_> =
        usage.as_array().unwrap().iter().filter(of_main).map(|row| row["input_tokens"].clone()).collect();
    assert_eq!(usage, [json!(1310)]);
}

#[tokio::test]
async fn what_a_run_names_is_checked_before_it_begins() {
    let talk = json!({"turns": [{"text": ["hello"]}]});
    let more =
        "auth: {api_keys: [{id: ann, tenant: acme, key: key-of-ann}, {id: bob, tenant: closed, key: key-of-bob}]}
tenants: {acme: {models: [main, retired], skills: []}, closed: {status: inactive}}";
    let app = with_agents(&[("main", talk.clone(), ""), ("calculating", talk, "")], more).await;
    let ann = |path: &str, body: Value| app.post(path).bearer_auth("key-of-ann").json(&body);
    let (status, created) = answer(ann("/api/conversations", json!({}))).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let path = format!("/api/conversations/{}/execute", created["id"].as_str().unwrap());
    for (body, words) in [
        (json!({"user_input": "a", "model": "small"}), "there is no model \"small\" for this tenant"),
        (json!({"user_input": "a", "model": "retired"}), "the model \"retired\" is inactive"),
        (json!({"user_input": "a", "preferred_skills": ["release-notes"]}), "there is no skill \"release-notes\""),
    ] {
        let (status, reply) = answer(ann(&path, body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
        assert!(reply["error"].as_str().unwrap().contains(words), "{reply}");
    }
    let (status, _) = answer(ann(&path, json!({"user_input": "a"}))).await;
    assert_eq!(status, StatusCode::OK);
    let (status, reply) = answer(app.post("/api/conversations").bearer_auth("key-of-bob").json(&json!({}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(reply["error"].as_str().unwrap().contains("the tenant \"closed\" is inactive"), "{reply}");
}

/// Also where nothing runs.
#[tokio::test]
async fn the_openai_and_anthropic_apis_know_what_a_tenant_may_use() {
    let talk = json!({"turns": [{"text": ["hello"]}]});
    let more =
        "auth: {api_keys: [{id: ann, tenant: acme, key: key-of-ann}, {id: bob, tenant: closed, key: key-of-bob}]}
tenants: {acme: {models: [main]}, closed: {status: inactive}}";
    let app = with_agents(&[("main", talk.clone(), ""), ("calculating", talk, "")], more).await;
    let (_, models) = answer(app.get("/v1/models").bearer_auth("key-of-ann")).await;
    let names: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(names, [json!("main")]);
    let count = |model: &str| json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    for (key, model, expected) in [("ann", "main", 200), ("ann", "calculating", 400), ("bob", "main", 400)] {
        let key = format!("key-of-{key}");
        let (status, _) = answer(app.get(&format!("/v1/models/{model}")).bearer_auth(&key)).await;
        let counted = app.post("/v1/messages/count_tokens").bearer_auth(&key).json(&count(model));
        let described = if model == "calculating" { 404 } else { expected };
        assert_eq!((status.as_u16(), answer(counted).await.0.as_u16()), (described, expected), "{key}: {model}");
    }
    assert_eq!(answer(app.get("/v1/models").bearer_auth("key-of-bob")).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_files_of_a_preferred_skill_are_in_the_workspace() {
    let lists = json!({"turns": [
        {"calls": [{"id": "l", "tool": "file_list", "arguments": "{\"recursive\": true}"}]},
        {"text": ["done"]},
    ]});
    let app = with_agents(&[("main", lists, ""), ("calculating", json!({"turns": []}), "")], "").await;
    for (workspace, expected) in [(true, true), (false, false)] {
        let id = create(&app, json!({"workspace": workspace, "title": "t"})).await;
        let body = json!({"user_input": "notes", "preferred_skills": ["release-notes"]});
        let sent = events(streamed(&app, &id, &body)).await;
        let listed = of(&sent, "tool_result")[0]["content"].to_string();
        assert_eq!(listed.contains("skills/release-notes/templates/notes.md"), expected, "{workspace}: {listed}");
    }
}

#[tokio::test]
async fn an_agent_loads_a_skill_and_its_files_are_in_the_workspace() {
    let loads = json!({"turns": [
        {"calls": [{"id": "s", "tool": "Skill", "arguments": "{\"skill\": \"release-notes\"}"}]},
        {"calls": [{"id": "l", "tool": "file_list", "arguments": "{\"recursive\": true}"}]},
        {"text": ["done"]},
    ]});
    let keys = "tools: {exclude: [Skill]}";
    let app =
        with_agents(&[("main", loads.clone(), ""), ("without", loads.clone(), keys), ("calculating", loads, "")], "")
            .await;
    for (agent, workspace) in [("main", true), ("main", false), ("without", true)] {
        let id = create(&app, json!({"workspace": workspace, "title": "t", "agent": agent})).await;
        let sent = events(streamed(&app, &id, &json!({"user_input": "notes"}))).await;
        let [loaded, listed] = &of(&sent, "tool_result")[..] else { panic!("{sent:?}") };
        let content = loaded["content"].as_str().unwrap();
        assert_eq!(loaded["is_error"], agent == "without", "{content}");
        assert_eq!(content.contains("templates/notes.md"), agent == "main", "{content}");
        assert_eq!(content.contains("in the folder `skills/release-notes`"), agent == "main" && workspace, "{content}");
        let is_placed = listed["content"].to_string().contains("skills/release-notes/templates/notes.md");
        assert_eq!(is_placed, agent == "main" && workspace, "{listed}");
    }
}

/// C12.
#[tokio::test]
async fn tokens_of_a_request_are_sent_by_its_run_alone_and_kept_nowhere() {
    let upstream = TestApp::with("auth: {anonymous: never, api_keys: [{id: bob, key: hunter2-and-more}]}").await;
    let lists = json!({"turns": [{"calls": [{"id": "l", "tool": "itself__tools", "arguments": "{}"}]}, {"text": ["done"]}, {"calls": [{"id": "l", "tool": "itself__tools", "arguments": "{}"}]}, {"text": ["done"]}]});
    let file = TempDir::new().unwrap();
    let specification = file.path().join("itself.json");
    std::fs::write(&specification, document(&upstream.url).to_string()).unwrap();
    let more = format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}
openapi: {{collections: {{itself: {{spec_file: '{}', auth_config: {{headers_template: {{X-API-Key: '$${{upstream}}'}}}}}}}}}}",
        specification.display()
    );
    let app = with_agents(&[("main", lists, ""), ("calculating", json!({"turns": []}), "")], &more).await;
    let id = create(&app, json!({"title": "t"})).await;
    let body = json!({"user_input": "a", "tokens": {"upstream": "hunter2-and-more"}});
    let sent = events(streamed(&app, &id, &body)).await;
    let result = of(&sent, "tool_result")[0];
    assert!(result["is_error"] == false && result["content"].to_string().contains("calculator"), "{result}");
    let sent = events(streamed(&app, &id, &json!({"user_input": "b"}))).await;
    let result = of(&sent, "tool_result")[0];
    assert!(
        result["is_error"] == true && result["content"].to_string().contains("the caller's token `upstream`"),
        "{result}"
    );
    let directory = app.stop().await;
    assert_eq!(files_with(directory.path(), b"hunter2-and-more"), Vec::<String>::new());
}

/// The files below a folder that contain these bytes.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path).is_ok_and(|text| text.windows(bytes.len()).any(|window| window == bytes)) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A model makes the title after the reply.
async fn titled(app: &TestApp, id: &str, title: &Value) {
    let path = format!("/api/conversations/{id}");
    until(async || (get(app, &path).await["title"] == *title).then_some(())).await;
}

/// The model for titles answers when it is told to.
#[tokio::test]
async fn a_reply_and_the_next_run_do_not_wait_for_the_title() {
    let (asked, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = TestApp::with(&format!(
        "agent: {{default_profile: talk, memory: {{summary_model: titles}}, profiles: {{talk: {{provider: openai, model: m, \
         base_url: 'http://{}/v1'}}}}}}",
        model_for_titles(Arc::clone(&asked), Arc::clone(&answers)).await
    ))
    .await;
    let id = create(&app, json!({})).await;
    let sent = events(streamed(&app, &id, &json!({"user_input": "Hi\nthere"}))).await;
    assert_eq!(names(&sent), ["system", "text_delta", "result", "system"], "before the title is made");
    asked.notified().await;
    let next = ran(&app, &id, json!({"user_input": "And now?"})).await;
    assert_eq!((&next["result"], &next["title"]), (&json!("hello"), &json!("Hi")));
    answers.notify_one();
    titled(&app, &id, &json!("A greeting")).await;
    let run = get(&app, &format!("/api/runs/{}", sent[0].data["run_id"].as_str().unwrap())).await;
    let used: Vec<_> = run["usage"].as_array().unwrap().iter().map(|row| row["input_tokens"].clone()).collect();
    assert_eq!(used, [json!(50), json!(70)], "the usage of the title is the run's: {run}");
}

/// Serves OpenAI's API: the model `titles` tells that it is asked, and waits.
async fn model_for_titles(asked: Arc<Notify>, answers: Arc<Notify>) -> SocketAddr {
    let respond = move |request: Bytes| async move {
        let request: Value = serde_json::from_slice(&request).unwrap();
        let (text, tokens) = match request["model"] == "titles" {
            true => {
                asked.notify_one();
                answers.notified().await;
                ("A greeting", 70)
            }
            false => ("hello", 50),
        };
        let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": "stop"});
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 3});
        let chunks = [json!({"choices": [choice]}), json!({"choices": [], "usage": usage})];
        let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
        ([("content-type", "text/event-stream")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = append_only(Router::new().fallback(respond), SentTurns::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn a_title_is_made_only_where_none_is_set_and_the_run_succeeded() {
    let script = json!({"turns": [{"text": ["hello"]}, {"text": ["again"]}], "title": "\"A greeting\""});
    let failing = json!({"turns": [], "title": "never"});
    let app = with_agents(&[("main", script, ""), ("calculating", failing, "")], "").await;
    for (body, agent, expected) in [
        (json!({}), "main", json!("A greeting")),
        (json!({"title": "Mine"}), "main", json!("Mine")),
        (json!({}), "calculating", Value::Null),
    ] {
        let id = create(&app, body).await;
        let asked = json!({"user_input": "Hi", "model": agent});
        if agent == "main" {
            ran(&app, &id, asked).await;
        } else {
            let (status, _) = answer(execute(&app, &id, &asked)).await;
            assert_ne!(status, StatusCode::OK);
        }
        titled(&app, &id, &expected).await;
    }
}

/// A model's name stands for a profile with another model, in every API.
#[tokio::test]
async fn the_models_of_a_tenant_can_be_named_where_agents_can() {
    let answer_42 = json!({"turns": [{"text": ["42"]}]});
    let more = "auth: {anonymous: never, api_keys: [{id: ann, tenant: acme, key: key-of-ann}, \
                {id: bob, tenant: other, key: key-of-bob}]}\ntenants: {acme: {models: [small]}, other: {models: [main]}}";
    let main = json!({"turns": [{"text": ["I am main"]}]});
    let app = with_agents(&[("main", main, ""), ("calculating", answer_42, "")], more).await;
    let listed = async |key: &str| {
        let (_, list) = answer(app.get("/v1/models").bearer_auth(key)).await;
        let ids = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!((listed("key-of-ann").await, listed("key-of-bob").await), (vec!["small".into()], vec!["main".into()]));
    let messages = json!([{"role": "user", "content": "6*7?"}]);
    let requests = |model: &str| {
        [
            ("/v1/chat/completions", json!({"model": model, "messages": messages})),
            ("/v1/responses", json!({"model": model, "input": "6*7?"})),
            ("/v1/messages", json!({"model": model, "max_tokens": 100, "messages": messages})),
            ("/api/chat", json!({"model": model, "message": "6*7?"})),
        ]
    };
    for (path, body) in requests("small") {
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-ann").json(&body)).await;
        assert!(status == StatusCode::OK && reply.to_string().contains("42"), "{path}: {reply}");
        let (status, reply) = answer(app.post(path).bearer_auth("key-of-bob").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {reply}");
        assert!(reply.to_string().contains("there is no model"), "{path}: {reply}");
    }
    for (path, body) in requests("retired") {
        let (status, _) = answer(app.post(path).bearer_auth("key-of-ann").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
    }
    for (name, status) in [("small", 200), ("main", 404), ("retired", 404)] {
        let found = answer(app.get(&format!("/v1/models/{name}")).bearer_auth("key-of-ann")).await;
        assert_eq!(found.0, status, "{name}: {}", found.1);
    }
}
