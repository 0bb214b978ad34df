//! Conversations that are stored: runs, events, resume, isolation, forks and logs.

mod agents;
mod background;
mod bounds;
mod bounds_of_time;
mod branches;
mod command;
mod deferred_tools;
mod isolation;
mod keys;
mod kills;
mod logs;
mod prefixes;
mod recovered;
mod runs;

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::app::{TestApp, answer};

/// An event of a run: id, name and data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SentEvent {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) data: Value,
}

pub(crate) fn event(text: &str) -> Option<SentEvent> {
    let mut lines = text.lines();
    let id = lines.next()?.strip_prefix("id: ")?.parse().unwrap();
    let name = lines.next().unwrap().strip_prefix("event: ").unwrap().to_owned();
    let data: Value = serde_json::from_str(lines.next().unwrap().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((data["type"].as_str(), lines.next()), (Some(&*name), None));
    Some(SentEvent { id, name, data })
}

/// All events of a stream, until it ends.
pub(crate) async fn events(request: RequestBuilder) -> Vec<SentEvent> {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    text.split_terminator("\n\n").filter_map(event).collect()
}

/// Reads events until this holds for one; returns all so far.
pub(crate) async fn until(response: &mut Response, is_last: impl Fn(&SentEvent) -> bool) -> Vec<SentEvent> {
    let (mut text, mut found) = (String::new(), Vec::new());
    loop {
        let chunk = response.chunk().await.unwrap().unwrap_or_else(|| panic!("the stream ended: {found:?}"));
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some((whole, rest)) = text.split_once("\n\n") {
            let (whole, rest) = (whole.to_owned(), rest.to_owned());
            text = rest;
            found.extend(event(&whole));
            if found.last().is_some_and(&is_last) {
                return found;
            }
        }
    }
}

pub(crate) fn names(events: &[SentEvent]) -> Vec<&str> {
    events.iter().map(|event| &*event.name).collect()
}

pub(crate) async fn create(app: &TestApp, body: Value) -> String {
    let (status, created) = answer(app.post("/api/conversations").json(&body)).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    created["id"].as_str().unwrap().to_owned()
}

pub(crate) fn execute(app: &TestApp, id: &str, body: &Value) -> RequestBuilder {
    app.post(&format!("/api/conversations/{id}/execute")).json(body)
}

pub(crate) fn streamed(app: &TestApp, id: &str, body: &Value) -> RequestBuilder {
    execute(app, id, body).header("accept", "text/event-stream")
}

/// The JSON reply of a run.
pub(crate) async fn ran(app: &TestApp, id: &str, body: Value) -> Value {
    let (status, reply) = answer(execute(app, id, &body)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    reply
}

pub(crate) async fn get(app: &TestApp, path: &str) -> Value {
    let (status, body) = answer(app.get(path)).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

/// Waits until the run has another status than `running`.
pub(crate) async fn ended(app: &TestApp, run: &str) -> Value {
    loop {
        let (_, body) = answer(app.get(&format!("/api/runs/{run}"))).await;
        if body["status"].as_str().is_some_and(|status| status != "running") {
            return body;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The messages of a conversation as `role: text`, calls as `call:name` and results as `result`.
pub(crate) async fn said(app: &TestApp, id: &str) -> Vec<String> {
    let page = get(app, &format!("/api/conversations/{id}/messages?limit=500")).await;
    page["messages"].as_array().unwrap().iter().map(|entry| describe(&entry["message"])).collect()
}

pub(crate) fn describe(message: &Value) -> String {
    let (role, content) = message.as_object().unwrap().iter().next().unwrap();
    if role == "tool" {
        return format!("tool: {}", content["text"].as_str().unwrap());
    }
    let part = |part: &Value| match (part["text"].as_str(), part["call"]["tool"].as_str()) {
        (Some(text), _) => text.to_owned(),
        (_, Some(tool)) => format!("[{tool}]"),
        _ => part.to_string(),
    };
    let parts: Vec<_> = content["parts"].as_array().unwrap().iter().map(part).collect();
    format!("{role}: {}", parts.join(" "))
}

pub(crate) fn hello() -> Value {
    json!({"user_input": "Is 21.5 °C warm?"})
}
