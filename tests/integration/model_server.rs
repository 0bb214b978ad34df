//! A model server with Anthropic's API that behaves as the newest models do. It holds each request of a conversation against the one
//! before, byte by byte, and refuses it at the first change. Each of its thoughts is bound to all bytes before it. The part that it
//! has seen is billed as read from its cache.
//!
//! Conversations are told apart by a word of their messages that begins with `talk-`. Where a message of the user has
//! `call TOOL {…}`, the tool is called; `seek TOOL {…}` first searches it among the deferred tools, as Anthropic's tool search tool does;
//! where it ends with `please fail`, the request fails. Requests without tools are for titles and summaries, and have no conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

/// Begins the first message of a session that continues another one.
const SUMMARY: &str = "[Summary of the earlier conversation]";

/// Bytes that are billed as a token.
const BYTES_OF_A_TOKEN: usize = 4;

pub(crate) struct ModelServer {
    /// The configuration of a profile whose model it is.
    pub(crate) profile: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The last request of each conversation, in pieces.
    seen: HashMap<String, Vec<String>>,
    requests: Vec<Value>,
    problems: Vec<String>,
    /// Titles and summaries so far: each summary is another one, by which sessions that continue another are told apart.
    texts: usize,
    bill: Bill,
}

/// Tokens of input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bill {
    pub(crate) all: usize,
    /// Read from the cache.
    pub(crate) cached: usize,
}

impl ModelServer {
    pub(crate) async fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let profile = format!(
            "provider: anthropic, model: claude-fable-5-1, base_url: '{url}', api_key: k, retries: 0, thinking: {{effort: low}}"
        );
        let answering = Arc::clone(&state);
        let respond = move |body: Bytes| async move {
            let request: Value = serde_json::from_slice(&body).unwrap();
            answering.lock().unwrap().respond(request)
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(respond)).await });
        Self { profile, state }
    }

    /// The requests of turns so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn bill(&self) -> Bill {
        self.state.lock().unwrap().bill
    }

    /// The next request of each conversation may begin with other bytes.
    pub(crate) fn forget(&self) {
        self.state.lock().unwrap().seen.clear();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let problems = std::mem::take(&mut self.state.lock().unwrap().problems);
        if !std::thread::panicking() {
            assert!(problems.is_empty(), "requests that a provider refuses: {problems:#?}");
        }
    }
}

impl State {
    fn respond(&mut self, request: Value) -> Response {
        if request["tools"].as_array().is_none_or(Vec::is_empty) {
            self.texts += 1;
            return answer(&[json!({"type": "text", "text": format!("In short: {}.", self.texts)})], Bill::default());
        }
        let pieces = pieces(&request);
        let key = conversation(&pieces);
        let before = self.seen.get(&key).cloned().unwrap_or_default();
        let same = before.iter().zip(&pieces).take_while(|(before, now)| before == now).count();
        let problem =
            changed(&before, same, &pieces).or_else(|| unbound_thought(&pieces)).or_else(|| wrong_search(&request));
        self.requests.push(request);
        if let Some(problem) = problem {
            self.problems.push(problem.clone());
            let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": problem}});
            return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
        }
        let tokens = |pieces: &[String]| pieces.iter().map(String::len).sum::<usize>() / BYTES_OF_A_TOKEN;
        let bill = Bill { all: tokens(&pieces), cached: tokens(&pieces[..same]) };
        (self.bill.all, self.bill.cached) = (self.bill.all + bill.all, self.bill.cached + bill.cached);
        let (blocks, fails) = (blocks(&pieces), is_to_fail(&pieces));
        self.seen.insert(key, pieces);
        if fails {
            let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "as asked"}});
            return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
        }
        answer(&blocks, bill)
    }
}

/// The bytes of a request in their order: the tools, the system prompt, and each block of each message. Marks for the cache are no
/// part of them.
fn pieces(request: &Value) -> Vec<String> {
    let mut request = request.clone();
    without_marks(&mut request);
    let tools = request["tools"].as_array().into_iter().flatten().map(|tool| format!("tool {tool}"));
    let messages = request["messages"].as_array().into_iter().flatten().flat_map(|message| {
        let role = message["role"].as_str().unwrap();
        let blocks = match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            content => content.as_array().unwrap().clone(),
        };
        blocks.into_iter().map(move |block| format!("{role} {block}"))
    });
    tools.chain([format!("system {}", request["system"])]).chain(messages).collect()
}

fn without_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(without_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

/// The word of the conversation. A session that continues another one has a beginning of its own.
fn conversation(pieces: &[String]) -> String {
    let text = pieces.iter().find(|piece| piece.starts_with("user")).map(String::as_str).unwrap_or_default();
    let all = pieces.join(" ");
    let rest = all.split_once("talk-").map_or("", |(_, rest)| rest);
    let word: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    if text.contains(SUMMARY) { format!("{word} {text}") } else { word }
}

/// The first piece of the earlier request that is another one now.
fn changed(before: &[String], same: usize, now: &[String]) -> Option<String> {
    let piece = before.get(same)?;
    Some(format!(
        "piece {same} of the request changed from\n{piece}\nto\n{}",
        now.get(same).map_or("nothing", String::as_str)
    ))
}

/// A thought that is sent back after other bytes than those with which it was made.
fn unbound_thought(pieces: &[String]) -> Option<String> {
    let thoughts = pieces.iter().enumerate().filter_map(|(place, piece)| {
        let block: Value = serde_json::from_str(piece.strip_prefix("assistant ")?).ok()?;
        (block["type"] == "thinking").then_some((place, block))
    });
    let mut unbound = thoughts.filter(|(place, block)| block["signature"] != signature(&pieces[..*place]));
    unbound.next().map(|(place, _)| format!("the thought at {place} is bound to another beginning"))
}

/// What Anthropic refuses of deferred tools: a mark for the cache at one, one without a tool that searches it, and a reference to a tool
/// that is not deferred.
fn wrong_search(request: &Value) -> Option<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    let (deferred, shown): (Vec<_>, Vec<_>) = tools.partition(|tool| tool["defer_loading"] == true);
    let searches = shown.iter().any(|tool| tool["type"] == "tool_search_tool_bm25_20251119");
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let found = blocks.flat_map(|block| block["content"]["tool_references"].as_array().into_iter().flatten());
    let mut unknown = found.filter(|found| !deferred.iter().any(|tool| tool["name"] == found["tool_name"]));
    if let Some(marked) = deferred.iter().find(|tool| tool.get("cache_control").is_some()) {
        return Some(format!("a deferred tool has a mark for the cache: {marked}"));
    }
    if searches == deferred.is_empty() {
        return Some(format!("{} tools are deferred, and searched: {searches}", deferred.len()));
    }
    unknown.next().map(|found| format!("no deferred tool is {found}"))
}

/// Whether the last text that is no news asks for a failure.
fn is_to_fail(pieces: &[String]) -> bool {
    let said = pieces.iter().rev().find(|piece| !piece.contains("[Information of the gateway"));
    said.is_some_and(|piece| piece.ends_with("please fail\"}") || piece.contains("please fail\",\"type\""))
}

fn signature(pieces: &[String]) -> String {
    hex::encode(Sha256::digest(pieces.join("\n")))
}

/// A thought, and a call where the user's last message asks for one. A tool that is sought is called once its search has found it.
fn blocks(pieces: &[String]) -> Vec<Value> {
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": signature(pieces)});
    let last = pieces.iter().rev().take_while(|piece| piece.starts_with("user "));
    let last: Vec<Value> = last.map(|piece| serde_json::from_str(&piece["user ".len()..]).unwrap()).collect();
    let after = |word: &str| {
        let asked = last.iter().filter_map(|block| block["text"].as_str()?.split_once(word).map(|(_, call)| call));
        asked.filter_map(|call| call.lines().next()?.split_once(' ')).next()
    };
    let sought = after("seek ");
    let call = sought.or_else(|| after("call "));
    match call.filter(|_| last.iter().all(|block| block["type"] == "text")) {
        Some((tool, arguments)) => {
            let input: Value = serde_json::from_str(arguments).unwrap();
            let id = format!("toolu_{}", pieces.len());
            let search = sought.into_iter().flat_map(|_| search(tool, pieces.len()));
            let call = json!({"type": "tool_use", "id": id, "name": tool, "input": input});
            [thought].into_iter().chain(search).chain([call]).collect()
        }
        None => vec![thought, json!({"type": "text", "text": format!("Answer after {} pieces.", pieces.len())})],
    }
}

/// A search at the provider that finds a tool.
fn search(tool: &str, number: usize) -> [Value; 2] {
    let id = format!("srvtoolu_{number}");
    let references = json!([{"type": "tool_reference", "tool_name": tool}]);
    let content = json!({"type": "tool_search_tool_search_result", "tool_references": references});
    [
        json!({"type": "server_tool_use", "id": id, "name": "tool_search_tool_bm25", "input": {"query": tool}}),
        json!({"type": "tool_search_tool_result", "tool_use_id": id, "content": content}),
    ]
}

/// The blocks as a stream.
fn answer(blocks: &[Value], bill: Bill) -> Response {
    let usage =
        json!({"input_tokens": bill.all - bill.cached, "cache_read_input_tokens": bill.cached, "output_tokens": 1});
    let mut events = vec![json!({"type": "message_start", "message": {"usage": usage}})];
    for (index, block) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let reason = if blocks.iter().any(|block| block["type"] == "tool_use") { "tool_use" } else { "end_turn" };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 10}}));
    events.push(json!({"type": "message_stop"}));
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    ([("content-type", "text/event-stream")], body).into_response()
}

#[test]
fn a_changed_byte_and_a_thought_after_other_bytes_are_found() {
    let request = |system: &str, thought: Option<String>| {
        let mut messages = vec![json!({"role": "user", "content": "talk-a"})];
        if let Some(signature) = thought {
            let block = json!({"type": "thinking", "thinking": "Hm.", "signature": signature});
            messages.push(json!({"role": "assistant", "content": [block]}));
        }
        json!({"tools": [{"name": "t", "cache_control": {}}], "system": system, "messages": messages})
    };
    let first = pieces(&request("be brief", None));
    let later = pieces(&request("be brief", Some(signature(&first))));
    assert_eq!((changed(&first, 3, &later), unbound_thought(&later)), (None, None));
    let other = pieces(&request("be long", Some(signature(&first))));
    assert!(changed(&first, 1, &other).is_some_and(|problem| problem.contains("be long")));
    assert!(unbound_thought(&other).is_some());
}
