//! Requests that continue a conversation, as the model servers of tests get them: each begins with the bytes of the request that its last
//! turn answered. Servers with Anthropic's Messages or OpenAI's Chat Completions keep their requests in [`SentTurns`], and check them at the end of
//! their tests. `model_server.rs` has a check of its own, of each conversation from its first request on.

use serde_json::Value;

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

    /// Keeps a request, unless it is of another API.
    pub(crate) fn add(&mut self, request: &Value) {
        let Some((pieces, answered)) = pieces(request) else { return };
        let begins_as_before =
            answered.is_none_or(|answered| self.seen.iter().any(|seen| **seen == pieces[..answered]));
        if !begins_as_before {
            self.problems.push(format!("no earlier request is the beginning of {request}"));
        }
        self.seen.push(pieces);
    }

    /// At the end of the test.
    pub(crate) fn check(&self) {
        if !std::thread::panicking() && self.exception.is_none() {
            assert!(self.problems.is_empty(), "{:#?}", self.problems);
        }
    }
}

/// The tools, the system prompt and the messages, without marks for the cache, and the place of the last turn of the model. Requests
/// without tools are for titles and summaries, and continue nothing.
fn pieces(request: &Value) -> Option<(Vec<String>, Option<usize>)> {
    let messages = request["messages"].as_array().filter(|_| request["tools"].is_array())?;
    let before = [&request["tools"], &request["system"]];
    let pieces: Vec<_> = before.into_iter().chain(messages).map(|piece| unmarked(piece.clone()).to_string()).collect();
    let answered = messages.iter().rposition(|message| message["role"] == "assistant");
    Some((pieces, answered.map(|place| place + before.len())))
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
}
