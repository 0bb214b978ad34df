//! Agents at `/api`, for clients that keep no conversation of their own; a script plays the model.

use serde_json::{Value, json};

use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};

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
    let ask = async |key: &str| {
        let body = json!({"message": "1 + 1?", "model": "two", "session_id": "s"});
        answer(app.post("/api/chat").bearer_auth(key).json(&body)).await.1
    };
    assert_eq!(ask("a").await["reply"], "It is two.");
    assert_eq!(ask("b").await["reply"], "It is two.", "bob's own conversation begins");
    assert_eq!(ask("a").await["reply"], "As I said: two.");
}

#[tokio::test]
async fn the_same_events_are_sent_during_the_run() {
    let app = with_scripts(&[("two", TWO_MESSAGES)]).await;
    let response = app.get("/api/chat/stream?message=1%2B1&session_id=s&model=two").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, events) = data.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events[0], json!({"type": "session", "session_id": "s"}));
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = ["session", "content", "tool_input", "tool_result", "content", "content", "finished", "usage"];
    assert_eq!(kinds, expected);
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
    let switch = async |tools: Value| {
        answer(app.post("/api/tools/settings").json(&json!({"session_id": "s", "tools": tools}))).await
    };
    let (status, settings) = switch(json!({"calculator": false})).await;
    assert_eq!((status.as_u16(), &settings["session_id"]), (200, &json!("s")));
    assert_eq!((&settings["tools"]["calculator"], &settings["tools"]["echo"]), (&json!(false), &json!(true)));
    let ask = async |session: &str| chat(&app, json!({"message": "?", "model": "two", "session_id": session})).await;
    let refused = &ask("s").await["tool_calls"][0];
    assert!(refused["success"] == false && refused["text"].as_str().unwrap().contains("switched off"), "{refused}");
    assert_eq!(ask("another").await["tool_calls"][0]["success"], true);

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
        let summary = store.thread_summary("public\u{1f}anonymous", "t").await.unwrap();
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
