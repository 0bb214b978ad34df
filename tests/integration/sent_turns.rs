//! Requests that continue a conversation, as the model servers of tests get them: each begins with the bytes of the request that its last
//! turn answered. Model servers are [`append_only`], and refuse a request at the first changed byte; others keep their requests in
//! [`SentTurns`], and check them at the end of their tests. `model_server.rs` has a check of its own, of each conversation from its first request on.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// A model server that refuses requests whose beginning is another one, unless the test is an exception.
pub(crate) fn append_only(router: Router, turns: SentTurns) -> Router {
    let turns = Arc::new(Mutex::new(turns));
    router.layer(middleware::from_fn(move |request: Request, next: Next| held(Arc::clone(&turns), request, next)))
}

async fn held(turns: Arc<Mutex<SentTurns>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let problem = serde_json::from_slice(&bytes).ok().and_then(|sent| turns.lock().unwrap().refuse(&sent));
    match problem {
        Some(problem) => (StatusCode::BAD_REQUEST, problem).into_response(),
        None => next.run(Request::from_parts(parts, Body::from(bytes))).await,
    }
}

#[derive(Default)]
pub(crate) struct SentTurns {
    seen: Vec<Vec<String>>,
    problems: Vec<String>,
    /// Why requests of this test begin otherwise.
    exception: Option<&'static str>,
}

impl SentTurns {
    /// Of a test whose requests continue nothing that the server got.
    pub(crate) fn with_exception(reason: &'static str) -> Self {
        Self { exception: Some(reason), ..Self::default() }
    }

    /// Keeps a request, unless it has no tools.
    pub(crate) fn add(&mut self, request: &Value) {
        let Some((pieces, answered)) = pieces(request) else { return };
        let begins_as_before =
            answered.is_none_or(|answered| self.seen.iter().any(|seen| **seen == pieces[..answered]));
        if !begins_as_before {
            self.problems.push(format!("no earlier request is the beginning of {request}"));
        }
        self.seen.push(pieces);
    }

    /// Keeps a request, and says why it is refused.
    fn refuse(&mut self, request: &Value) -> Option<String> {
        let before = self.problems.len();
        self.add(request);
        self.problems.get(before).filter(|_| self.exception.is_none()).cloned()
    }

    /// At the end of the test.
    pub(crate) fn check(&self) {
        if !std::thread::panicking() && self.exception.is_none() {
            assert!(self.problems.is_empty(), "{:#?}", self.problems);
        }
    }
}

/// The members with the prompt and the messages of Anthropic's API and OpenAI's Chat Completions, of Responses and of Gemini's API.
const MEMBERS: [(&str, &str); 3] =
    [("system", "messages"), ("instructions", "input"), ("systemInstruction", "contents")];

/// The tools, the system prompt and the messages, without marks for the cache, and the place of the last turn of the model. Requests
/// without tools are for titles and summaries, and continue nothing.
fn pieces(request: &Value) -> Option<(Vec<String>, Option<usize>)> {
    let (prompt, messages) = MEMBERS.into_iter().find_map(|(prompt, messages)| {
        let messages = request[messages].as_array().filter(|_| request["tools"].is_array())?;
        Some((&request[prompt], messages))
    })?;
    let before = [&request["tools"], prompt];
    let pieces: Vec<_> = before.into_iter().chain(messages).map(|piece| unmarked(piece.clone()).to_string()).collect();
    let mut answered = messages.iter().rposition(is_of_model);
    // A turn of Responses has an item for each of its parts.
    while let Some(place) =
        answered.filter(|place| request["input"].is_array() && *place > 0 && is_of_model(&messages[place - 1]))
    {
        answered = Some(place - 1);
    }
    Some((pieces, answered.map(|place| place + before.len())))
}

fn is_of_model(message: &Value) -> bool {
    let is = |member: &str, values: &[&str]| message[member].as_str().is_some_and(|value| values.contains(&value));
    is("role", &["assistant", "model"])
        || is("type", &["function_call", "reasoning", "tool_search_call", "tool_search_output"])
}

fn unmarked(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(|member| *member = unmarked(member.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = unmarked(item.take())),
        _ => {}
    }
    value
}

#[test]
fn a_changed_beginning_is_found() {
    let request =
        |system: &str, messages: &[Value]| serde_json::json!({"tools": [], "system": system, "messages": messages});
    let user = serde_json::json!({"role": "user", "content": [{"text": "a", "cache_control": {"type": "ephemeral"}}]});
    let plain = serde_json::json!({"role": "user", "content": [{"text": "a"}]});
    let answer = serde_json::json!({"role": "assistant", "content": "b"});
    for (second, problems) in [
        (request("s", &[plain.clone(), answer.clone(), user.clone()]), 0),
        (request("S", &[plain, answer.clone()]), 1),
        (request("s", &[answer.clone(), user.clone(), answer]), 1),
    ] {
        let mut turns = SentTurns::with_exception("the test looks at the problems");
        turns.add(&request("s", std::slice::from_ref(&user)));
        turns.add(&second);
        assert_eq!(turns.problems.len(), problems, "{second}");
    }
    let item = |item: Value| serde_json::json!({"tools": [], "instructions": "s", "input": [{"role": "user", "content": "a"}, item]});
    let mut first = item(Value::Null);
    first["input"].as_array_mut().unwrap().pop();
    let mut call = item(serde_json::json!({"type": "reasoning"}));
    call["input"].as_array_mut().unwrap().push(serde_json::json!({"type": "function_call"}));
    let mut turns = SentTurns::default();
    assert_eq!((turns.refuse(&first), turns.refuse(&call)), (None, None));
    call["instructions"] = "t".into();
    assert!(turns.refuse(&call).is_some_and(|problem| problem.starts_with("no earlier request")));
}
