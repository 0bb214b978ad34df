//! Agents at `/api`, for clients that keep no conversation of their own; a script plays the model.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};
use crate::conversations::{create, ended, get, said};
use crate::sent_turns::{SentTurns, append_only};

const TWO_MESSAGES: &str = r#"
turns:
  - text: ["Let me add."]
    calls: [{id: a, tool: calculator, arguments: '{"expression": "1+1"}'}]
  - text: ["It is ", "two."]
    usage: {prompt_tokens: 10, completion_tokens: 2}
  - text: ["As I said: two."]
call_summary: "- added one and one\n- found two"
conversation_summary: "一に一を足した"
"#;

async fn chat(app: &TestApp, body: Value) -> Value {
    let (status, reply) = answer(app.post("/api/chat").json(&body)).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

#[tokio::test]
async fn a_message_is_answered_with_what_was_done_for_it_and_the_session_goes_on() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let first = chat(&app, json!({"message": "1 + 1?", "model": "two"})).await;
    assert_eq!(first["reply"], "It is two.");
    let call = json!({"name": "calculator", "arguments": {"expression": "1+1"}, "success": true, "text": "2"});
    assert_eq!(first["tool_calls"], json!([call]));
    assert_eq!(first["summary"], json!(["added one and one", "found two"]));
    assert_eq!((&first["usage"]["turns"], &first["usage"]["prompt_tokens"]), (&json!(2), &json!(10)));
    // The script goes by the turns of the conversation: the third is played only where the first two are remembered.
    let again = chat(&app, json!({"message": "sure?", "model": "two", "session_id": first["session_id"]})).await;
    assert_eq!((&again["reply"], &again["summary"]), (&json!("As I said: two."), &json!([])));
    assert_eq!(again["session_id"], first["session_id"]);
}

/// Fault 11.
#[tokio::test]
async fn a_guessed_session_opens_nothing_of_another_caller() {
    let keys = "auth: {api_keys: [{id: ann, key: a}, {id: bob, key: b}]}\n";
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), TWO_MESSAGES).unwrap();
    let profile = format!("agent: {{profiles: {{two: {{provider: replay, model: {}}}}}}}", script.path().display());
    let app = TestApp::with(&format!("{keys}{profile}")).await;
    let ask = async |key: &str, session: Option<&Value>| {
        let body = json!({"message": "1 + 1?", "model": "two", "session_id": session});
        answer(app.post("/api/chat").bearer_auth(key).json(&body)).await
    };
    let (_, first) = ask("a", None).await;
    let session = &first["session_id"];
    assert_eq!(first["reply"], "It is two.");
    let (status, reply) = ask("b", Some(session)).await;
    assert_eq!((status.as_u16(), code(&reply)), (404, "unknown_session"));
    assert_eq!(ask("b", None).await.1["reply"], "It is two.", "bob's own conversation begins");
    assert_eq!(ask("a", Some(session)).await.1["reply"], "As I said: two.");
}

#[tokio::test]
async fn a_session_is_a_stored_conversation_and_outlives_a_restart() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let first = chat(&app, json!({"message": "1 + 1?", "model": "two"})).await;
    let session = first["session_id"].as_str().unwrap().to_owned();
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    // Without a model, that of the session goes on.
    let again = chat(&app, json!({"message": "sure?", "session_id": session})).await;
    assert_eq!(again["reply"], "As I said: two.");
    let expected = ["user: 1 + 1?", "assistant: Let me add. [calculator]", "tool: 2", "assistant: It is two."];
    let said = said(&app, &session).await;
    assert_eq!(said[..4], expected);
    assert_eq!(said[4..], ["user: sure?", "assistant: As I said: two."]);
    let conversation = get(&app, &format!("/api/conversations/{session}")).await;
    assert_eq!((&conversation["title"], &conversation["agent"]), (&json!("1 + 1?"), &json!("two")));

    let body = json!({"message": "hi", "session_id": "forgotten"});
    let (status, reply) = answer(app.post("/api/chat").json(&body)).await;
    assert_eq!((status.as_u16(), code(&reply)), (404, "unknown_session"));
    let (status, reply) = answer(app.get("/api/chat/stream?message=hi&session_id=forgotten")).await;
    assert_eq!((status.as_u16(), code(&reply)), (404, "unknown_session"));
}

/// The second turn takes a minute: the client leaves in it.
const SLOW: &str = r#"
turns:
  - text: ["Let me add."]
    calls: [{id: a, tool: calculator, arguments: '{"expression": "1+1"}'}]
  - text: ["It is ", "two."]
    delay_seconds: 60
"#;

#[tokio::test]
async fn what_was_done_before_a_client_left_is_kept() {
    let app = with_scripts(&[("slow", SLOW)]).await;
    let mut response = app.get("/api/chat/stream?message=1%2B1&model=slow").send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
    let mut heard = String::new();
    while !heard.contains("tool_result") {
        heard += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    let first = heard.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let session = serde_json::from_str::<Value>(first).unwrap()["session_id"].as_str().unwrap().to_owned();
    drop(response);
    let ended = ended(&app, &run).await;
    assert_eq!((&ended["status"], &ended["conversation_id"]), (&json!("cancelled"), &json!(session)), "{ended}");
    let expected = ["user: 1+1", "assistant: Let me add. [calculator]", "tool: 2"];
    assert_eq!(said(&app, &session).await, expected);
}

#[tokio::test]
async fn two_messages_at_once_are_answered_one_after_the_other() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let id = create(&app, json!({"agent": "two"})).await;
    let ask = async || chat(&app, json!({"message": "1 + 1?", "session_id": id})).await["reply"].to_string();
    let mut replies = <[String; 2]>::from(tokio::join!(ask(), ask()));
    replies.sort();
    assert_eq!(replies, [r#""As I said: two.""#, r#""It is two.""#]);
}

#[tokio::test]
async fn the_same_events_are_sent_during_the_run() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let id = create(&app, json!({"agent": "two"})).await;
    let response = app.get(&format!("/api/chat/stream?message=1%2B1&session_id={id}")).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, events) = data.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events[0], json!({"type": "session", "session_id": id}));
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = ["session", "content", "tool_input", "tool_result", "content", "content", "finished", "usage"];
    assert_eq!(kinds, expected);
    let content = events.iter().filter(|event| event["type"] == "content");
    let texts: String = content.map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(texts, "Let me add.\n\nIt is two.", "a blank line is between the texts of two turns");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_get() {
    let app = with_scripts(&[]).await;
    let path = "/api/chat/stream?message=hi";
    for (header, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        let (status, reply) = answer(app.get(path).header(header, value)).await;
        assert_eq!((status.as_u16(), code(&reply)), (403, "denied"), "{header}");
    }
    let own = app.get(path).header("origin", &app.url).header("sec-fetch-site", "same-origin");
    assert_eq!(own.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn tools_are_switched_off_for_a_session_and_on_again() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let session = create(&app, json!({"agent": "two", "workspace": true})).await;
    let switch = async |tools: Value| {
        answer(app.post("/api/tools/settings").json(&json!({"session_id": session, "tools": tools}))).await
    };
    let (status, settings) = switch(json!({"calculator": false})).await;
    assert_eq!((status.as_u16(), &settings["session_id"]), (200, &json!(session)));
    assert_eq!((&settings["tools"]["calculator"], &settings["tools"]["echo"]), (&json!(false), &json!(true)));
    let ask =
        async |session: Option<&str>| chat(&app, json!({"message": "?", "model": "two", "session_id": session})).await;
    let refused = &ask(Some(&session)).await["tool_calls"][0];
    assert!(refused["success"] == false && refused["text"].as_str().unwrap().contains("switched off"), "{refused}");
    assert_eq!(ask(None).await["tool_calls"][0]["success"], true);

    let (status, reply) = switch(json!({"calculator": true, "calculatr": false})).await;
    assert_eq!((status.as_u16(), code(&reply)), (404, "unknown_tool"));
    assert_eq!(switch(json!({})).await.1["tools"]["calculator"], false, "nothing was switched");
    assert_eq!(switch(json!({"calculator": true})).await.1["tools"]["calculator"], true);
}

#[tokio::test]
async fn a_thread_is_summed_up_after_the_reply_and_the_next_run_is_reminded() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let ask = async || {
        let body = json!({"model": "two", "messages": [{"role": "user", "content": "1 + 1?"}]});
        let (status, reply) =
            answer(app.post("/v1/chat/completions").header("x-openwebui-chat-id", "t").json(&body)).await;
        assert_eq!(status, 200, "{reply}");
    };
    ask().await;
    let store = app.directory.path().join("state/sekisho.db");
    let summary = async || {
        let store = sekisho::testing::Store::open_file(&store).await.unwrap();
        let summary = store.thread_summaries().get("public\u{1f}anonymous", "t").await.unwrap();
        store.close().await;
        summary
    };
    let mut tries = 0;
    while summary().await.is_none() {
        tries += 1;
        assert!(tries < 100, "no summary was made");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(summary().await.as_deref(), Some("一に一を足した"));
}

#[tokio::test]
async fn invalid_chat_requests_are_refused_with_a_remedy() {
    let app = with_scripts(&[("mute", "turns: []")]).await;
    for (body, status, expected) in [
        (json!({"message": " "}), 400, "invalid_request"),
        (json!({"message": "hi", "model": "nobody"}), 400, "invalid_request"),
        (json!({"message": "hi", "session_id": ""}), 400, "invalid_request"),
        (json!({"message": "hi", "unknown": 1}), 400, "invalid_request"),
        (json!({"message": "hi", "model": "mute"}), 400, "model_refused"),
    ] {
        let (found, reply) = answer(app.post("/api/chat").json(&body)).await;
        assert_eq!((found.as_u16(), code(&reply)), (status, expected), "{body}: {reply}");
    }
    let (status, reply) = answer(app.get("/api/chat/stream?message=hi&model=mute")).await;
    assert_eq!((status.as_u16(), code(&reply)), (400, "model_refused"));
}

/// Answers every request with this text, as OpenAI does, and keeps what it is sent.
pub(crate) async fn recording_model(text: &str, turns: SentTurns) -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let requests = Arc::<Mutex<Vec<Value>>>::default();
    let seen = Arc::clone(&requests);
    let chunks = [
        json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
    let respond = move |request: Bytes| async move {
        seen.lock().unwrap().push(serde_json::from_slice(&request).unwrap());
        ([("content-type", "text/event-stream")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = append_only(Router::new().fallback(respond), turns);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, requests)
}

/// The requests of Open WebUI: the models, a message, the tasks that it gives by itself, and the next message.
#[tokio::test]
async fn a_chat_of_open_webui_is_summed_up_by_its_messages_alone_and_has_one_system_message() {
    let turns = SentTurns::with_exception("a client that keeps its messages itself gets the summary in the prompt");
    let (model, requests) = recording_model("One and one are two.", turns).await;
    let profile = format!("{{provider: openai, model: qwen3, base_url: 'http://{model}/v1'}}");
    let app = TestApp::with(&format!("agent: {{default_profile: qwen, profiles: {{qwen: {profile}}}}}")).await;
    let (_, models) = answer(app.get("/v1/models").header("x-openwebui-user-id", "u-1")).await;
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "qwen"), "{models}");
    let ask = async |messages: &Value, stream: bool| {
        let mut request = app.post("/v1/chat/completions");
        for (name, value) in
            [("user-name", "Ann%20B"), ("user-id", "u-1"), ("user-email", "a@b"), ("user-role", "admin")]
        {
            request = request.header(format!("x-openwebui-{name}"), value);
        }
        let body = json!({"model": "qwen", "stream": stream, "messages": messages, "user": {"name": "Ann B"}});
        let request = request.header("x-openwebui-chat-id", "chat-1").header("x-openwebui-message-id", "m-1");
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    };
    let system = json!({"role": "system", "content": "You are Ann's assistant."});
    let user = |text: &str| json!({"role": "user", "content": text});
    let first = ask(&json!([system, user("1 + 1?")]), true).await;
    assert!(first.contains("One and one are two.") && first.ends_with("data: [DONE]\n\n"), "{first}");
    let summaries = async || {
        let requests = requests.lock().unwrap();
        let is_summary = |request: &&Value| request["max_tokens"] == 500;
        requests.iter().filter(is_summary).map(Value::to_string).collect::<Vec<_>>()
    };
    while summaries().await.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for task in
        ["Generate a concise, 3-5 word title with an emoji", "Generate 1-3 broad tags", "Suggest 3-5 follow-ups"]
    {
        let task = format!("### Task:\n{task}.\n### Chat History:\n<chat_history>\nUSER: 1 + 1?\n</chat_history>");
        ask(&json!([user(&task)]), false).await;
    }
    // Each is one plain completion.
    let is_task = |request: &&Value| request["messages"].to_string().contains("### Task");
    let tasks: Vec<_> = requests.lock().unwrap().iter().filter(is_task).cloned().collect();
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    for task in tasks {
        let messages = task["messages"].as_array().unwrap();
        assert_eq!((messages.len(), &messages[0]["role"], task.get("tools")), (1, &json!("user"), None), "{task}");
    }
    let answered = json!({"role": "assistant", "content": "One and one are two."});
    // The summary is stored a moment after the model wrote it.
    let next = json!([system, user("1 + 1?"), answered, user("Sure?")]);
    let is_reminded = async || {
        ask(&next, true).await;
        let is_next = |request: &&Value| request["max_tokens"] != 500 && request.to_string().contains("Sure?");
        let last = requests.lock().unwrap().iter().rev().find(is_next).cloned();
        let messages = last.unwrap()["messages"].as_array().unwrap().clone();
        let systems = messages.iter().filter(|message| message["role"] == "system").count();
        assert_eq!((systems, &messages[0]["role"], messages.len()), (1, &json!("system"), 4), "{messages:?}");
        let prompt = messages[0]["content"].as_str().unwrap().to_owned();
        assert!(prompt.contains("You are Ann's assistant.") && !prompt.contains("### Task"), "{prompt}");
        prompt.matches("One and one are two.").count() == 1
    };
    while !is_reminded().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(summaries().await.iter().all(|summary| !summary.contains("### Task")), "no task becomes the summary");
}
