//! A provider in this process, for tests: sends scripted answers in pieces, and counts the bytes sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::Url;

use super::aws_events::tests::event;
use super::{Protocol, Remote};
use crate::message::Message;
use crate::models::{Model, ModelChunk, ModelError, ModelRequest};
use crate::options::ModelOptions;
use crate::toolbox::ToolDescription;
use sekisho_config::{OutboundConfig, Secret};
use sekisho_outbound::{Outbound, test_server};

pub(super) const KEY: &str = "sk-do-not-tell";

pub(super) const ALL: [Protocol; 3] = [Protocol::Openai, Protocol::Anthropic, Protocol::Bedrock];

/// A provider that gives scripted answers.
pub(super) struct Provider {
    pub(super) url: Url,
    /// The bodies of requests.
    pub(super) requests: Arc<Mutex<Vec<Value>>>,
    /// Bytes of its answers that were written to the connection.
    pub(super) sent: Arc<AtomicUsize>,
}

/// A scripted answer.
pub(super) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Arc<dyn Fn() -> BoxStream<'static, Bytes> + Send + Sync>,
}

impl Answer {
    /// A stream with the protocol's content type.
    pub(super) fn new(
        protocol: Protocol,
        pieces: impl Fn() -> BoxStream<'static, Bytes> + Send + Sync + 'static,
    ) -> Self {
        let media_type = protocol.framing().media_type().to_owned();
        let headers = vec![("content-type", media_type), ("retry-after", "7".to_owned())];
        Self { status: 200, headers, pieces: Arc::new(pieces) }
    }

    /// A body, in pieces of `size` bytes.
    pub(super) fn whole(protocol: Protocol, body: &[u8], size: usize) -> Self {
        let pieces: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        Self::new(protocol, move || stream::iter(pieces.clone()).boxed())
    }

    pub(super) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }
}

impl Provider {
    pub(super) async fn serving(answer: Answer) -> Self {
        Self::serving_in_turn(vec![answer]).await
    }

    /// Each request gets the next answer, and later ones the last.
    pub(super) async fn serving_in_turn(answers: Vec<Answer>) -> Self {
        let answers = Arc::new(answers);
        let (requests, sent) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let (seen, counted) = (Arc::clone(&requests), Arc::clone(&sent));
        let respond = move |request: Bytes| async move {
            let number = {
                let mut seen = seen.lock();
                seen.push(serde_json::from_slice(&request).unwrap_or_default());
                seen.len()
            };
            let answer = &answers[number.min(answers.len()) - 1];
            let mut response = Response::builder().status(answer.status);
            for (name, value) in &answer.headers {
                response = response.header(*name, value);
            }
            let count = move |piece: Bytes| {
                counted.fetch_add(piece.len(), Ordering::SeqCst);
                Ok::<_, Infallible>(piece)
            };
            response.body(Body::from_stream((answer.pieces)().map(count))).unwrap()
        };
        let address = test_server::serve(Router::new().fallback(respond)).await;
        Self { url: Url::parse(&format!("http://{address}/v1")).unwrap(), requests, sent }
    }

    pub(super) fn model(&self, protocol: Protocol) -> Remote {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        Remote::new(outbound, protocol, "a-model", Some(&self.url), &Secret::new(KEY)).unwrap()
    }

    pub(super) async fn ask(&self, protocol: Protocol, messages: Vec<Message>) -> Vec<Result<ModelChunk, ModelError>> {
        let model = self.model(protocol);
        assert!(!format!("{model:?}").contains(KEY));
        model.stream(Arc::new(request(messages))).collect().await
    }
}

pub(super) fn request(messages: Vec<Message>) -> ModelRequest {
    let parameters = Arc::new(json!({"type": "object"}));
    let tools =
        vec![ToolDescription { name: "add".into(), description: "Adds.".into(), parameters, is_deferred: false }];
    let options = ModelOptions { temperature: Some(0.2), ..ModelOptions::default() };
    ModelRequest { messages, tools, options, max_tokens: 100, ..ModelRequest::default() }
}

pub(super) fn question() -> Vec<Message> {
    vec![Message::System("be brief".into()), Message::User("1 + 2, and 3 + 4?".into())]
}

pub(super) fn openai(events: &[Value]) -> Vec<u8> {
    (events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>() + "data: [DONE]\n\n").into_bytes()
}

pub(super) fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

pub(super) fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

pub(super) fn anthropic(events: &[Value]) -> Vec<u8> {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect::<String>().into_bytes()
}

pub(super) fn bedrock(events: &[(&str, Value)]) -> Vec<u8> {
    events.iter().flat_map(|(name, payload)| event(name, &payload.to_string())).collect()
}

/// Each protocol's answer with a text, two calls, and 11 and 7 tokens.
pub(super) fn two_calls(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Openai => two_calls_of_openai(),
        Protocol::Anthropic => two_calls_of_anthropic(),
        Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
        Protocol::Bedrock => two_calls_of_bedrock(),
    }
}

fn two_calls_of_openai() -> Vec<u8> {
    let fragment = |index: u32, arguments: &str| {
        delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
    };
    let begin = |index: u32, id: &str| {
        let function = json!({"name": "add", "arguments": ""});
        delta(&json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}))
    };
    openai(&[
        delta(&json!({"role": "assistant", "content": "Adding 足す."})),
        begin(0, "a"),
        begin(1, "b"),
        fragment(0, "{\"x\":"),
        fragment(1, "{\"x\":3}"),
        fragment(0, "1}"),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 8}}}),
    ])
}

fn two_calls_of_anthropic() -> Vec<u8> {
    let start = |index: u32, id: &str| {
        let block = json!({"type": "tool_use", "id": id, "name": "add", "input": {}});
        json!({"type": "content_block_start", "index": index, "content_block": block})
    };
    let input = |index: u32, text: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": text});
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    };
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let text = json!({"type": "text_delta", "text": "Adding 足す."});
    let usage = json!({"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 8,
        "output_tokens": 1});
    anthropic(&[
        json!({"type": "message_start", "message": {"usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": text}),
        stop(0),
        start(1, "a"),
        input(1, "{\"x\":"),
        input(1, "1}"),
        stop(1),
        start(2, "b"),
        input(2, "{\"x\":3}"),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ])
}

fn two_calls_of_bedrock() -> Vec<u8> {
    let start = |index: u32, id: &str| {
        let start = json!({"toolUse": {"toolUseId": id, "name": "add"}});
        ("contentBlockStart", json!({"contentBlockIndex": index, "start": start}))
    };
    let delta = |index: u32, delta: Value| ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}));
    let input = |index: u32, text: &str| delta(index, json!({"toolUse": {"input": text}}));
    let stop = |index: u32| ("contentBlockStop", json!({"contentBlockIndex": index}));
    let usage = json!({"inputTokens": 3, "cacheReadInputTokens": 8, "outputTokens": 7, "totalTokens": 18});
    bedrock(&[
        ("messageStart", json!({"role": "assistant"})),
        delta(0, json!({"text": "Adding 足す."})),
        stop(0),
        start(1, "a"),
        input(1, "{\"x\":"),
        input(1, "1}"),
        stop(1),
        start(2, "b"),
        input(2, "{\"x\":3}"),
        stop(2),
        ("messageStop", json!({"stopReason": "tool_use"})),
        ("metadata", json!({"usage": usage, "metrics": {"latencyMs": 5}})),
    ])
}
