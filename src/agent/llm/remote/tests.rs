//! The true protocols, from a server in this process.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};

use super::*;
use crate::agent::llm::StopReason;
use crate::agent::message::{AssistantTurn, Message, RequestedCall, ToolMessage};
use crate::agent::toolbox::{ToolDescription, ToolImage};
use crate::outbound::test_server;

const KEY: &str = "sk-do-not-tell";

/// Serves one answer, `piece` bytes at a time, and keeps what it was asked.
async fn serving(status: u16, body: &str, piece: usize) -> (String, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, body) = (Arc::clone(&asked), body.to_owned());
    let answer = move |request: Bytes| async move {
        seen.lock().unwrap().push(serde_json::from_slice(&request).unwrap_or_default());
        let pieces: Vec<_> =
            body.as_bytes().chunks(piece).map(Bytes::copy_from_slice).map(Ok::<_, Infallible>).collect();
        let response = Response::builder().status(status).header("content-type", "text/event-stream");
        let response = response.header("retry-after", "7");
        response.body(Body::from_stream(stream::iter(pieces))).unwrap()
    };
    let address = test_server::serve(Router::new().fallback(answer)).await;
    (format!("http://{address}/v1"), asked)
}

async fn ask(protocol: Protocol, base_url: &str, messages: Vec<Message>) -> Vec<Result<ModelChunk, ModelError>> {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let model = Remote::new(http, protocol, "a-model", Some(base_url), Secret::new(KEY)).unwrap();
    assert!(!format!("{model:?}").contains(KEY));
    let tools = vec![ToolDescription {
        name: "add".into(),
        description: "Adds.".into(),
        parameters: json!({"type": "object"}),
    }];
    let request = ModelRequest { messages, tools, temperature: Some(0.2), max_tokens: 100, ..ModelRequest::default() };
    model.stream(Arc::new(request)).collect().await
}

fn question() -> Vec<Message> {
    vec![Message::System("be brief".into()), Message::User("1 + 2, and 3 + 4?".into())]
}

fn openai(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>() + "data: [DONE]\n\n"
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn anthropic(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn two_calls() -> [(Protocol, String); 2] {
    let fragment = |index: u32, arguments: &str| {
        delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
    };
    let begin = |index: u32, id: &str| {
        delta(
            &json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": "add", "arguments": ""}}]}),
        )
    };
    let openai = openai(&[
        delta(&json!({"role": "assistant", "content": "Adding 足す."})),
        begin(0, "a"),
        begin(1, "b"),
        fragment(0, "{\"x\":"),
        fragment(1, "{\"x\":3}"),
        fragment(0, "1}"),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}),
    ]);
    let start = |index: u32, id: &str| json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "id": id, "name": "add", "input": {}}});
    let input = |index: u32, text: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let anthropic = anthropic(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 11, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Adding 足す."}}),
        stop(0),
        start(1, "a"),
        input(1, "{\"x\":"),
        input(1, "1}"),
        stop(1),
        start(2, "b"),
        input(2, "{\"x\":3}"),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 6}}),
        json!({"type": "message_stop"}),
    ]);
    [(Protocol::Openai, openai), (Protocol::Anthropic, anthropic)]
}

#[tokio::test]
async fn a_turn_is_joined_from_its_fragments_split_at_every_few_bytes() {
    for (protocol, body) in two_calls() {
        for piece in [1, 2, 3, 7, body.len()] {
            let (url, _) = serving(200, &body, piece).await;
            let pieces: Result<Vec<_>, _> = ask(protocol, &url, question()).await.into_iter().collect();
            let pieces = pieces.unwrap();
            let call = |id: &str, arguments: &str| {
                ModelChunk::Call(RequestedCall { id: id.into(), tool: "add".into(), arguments: arguments.into() })
            };
            let [text, first, second, ModelChunk::End { stop, usage }] = &pieces[..] else {
                panic!("{protocol:?} {pieces:?}")
            };
            assert_eq!(*text, ModelChunk::Text("Adding 足す.".into()), "{protocol:?} by {piece}");
            assert_eq!((first, second), (&call("a", "{\"x\":1}"), &call("b", "{\"x\":3}")), "{protocol:?} by {piece}");
            assert_eq!((*stop, usage.prompt_tokens), (StopReason::ToolCalls, 11), "{protocol:?}");
            assert!(usage.completion_tokens >= 6, "{protocol:?} {usage:?}");
        }
    }
}

#[tokio::test]
async fn the_conversation_is_sent_with_calls_answers_and_tools() {
    for (protocol, body) in two_calls() {
        let (url, asked) = serving(200, &body, 4_096).await;
        let call = RequestedCall { id: "a".into(), tool: "add".into(), arguments: "{\"x\":1}".into() };
        let answer = ToolMessage { call_id: "a".into(), tool: "add".into(), text: "3".into(), images: Vec::new() };
        let turn = AssistantTurn { calls: vec![call], ..AssistantTurn::default() };
        let messages = [question(), vec![Message::Assistant(turn), Message::Tool(answer)]].concat();
        ask(protocol, &url, messages).await;
        let asked = asked.lock().unwrap();
        let sent = asked[0].to_string();
        assert_eq!((&asked[0]["model"], &asked[0]["stream"]), (&json!("a-model"), &json!(true)), "{sent}");
        for expected in ["be brief", "\"add\"", "\"a\"", "\"3\"", "1 + 2, and 3 + 4?"] {
            assert!(sent.contains(expected), "{protocol:?}: {expected} is not in {sent}");
        }
        assert!(!sent.contains(KEY));
    }
}

#[tokio::test]
async fn thinking_is_joined_and_sent_back_as_it_was_signed_or_redacted() {
    let thought = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let redacted = json!({"type": "redacted_thinking", "data": "c2VjcmV0"});
    let body = anthropic(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 11, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        thought(json!({"type": "thinking_delta", "thinking": "Adding "})),
        thought(json!({"type": "thinking_delta", "thinking": "is easy."})),
        thought(json!({"type": "signature_delta", "signature": "c2ln"})),
        thought(json!({"type": "signature_delta", "signature": "bmVk"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": redacted}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "3"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 6}}),
        json!({"type": "message_stop"}),
    ]);
    let (url, asked) = serving(200, &body, 9).await;
    let pieces: Vec<_> = ask(Protocol::Anthropic, &url, question()).await.into_iter().map(Result::unwrap).collect();
    let told: String =
        pieces.iter().map(|piece| if let ModelChunk::Thinking(text) = piece { text.as_str() } else { "" }).collect();
    assert_eq!(told, "Adding is easy.");
    let thinking = pieces.into_iter().filter_map(|piece| match piece {
        ModelChunk::ThinkingBlock(block) => Some(block),
        _ => None,
    });
    let turn = AssistantTurn { text: "3".into(), thinking: thinking.collect(), ..AssistantTurn::default() };
    let messages = [question(), vec![Message::Assistant(turn), Message::User("sure?".into())]].concat();
    ask(Protocol::Anthropic, &url, messages).await;
    let asked = asked.lock().unwrap();
    let signed = json!({"type": "thinking", "thinking": "Adding is easy.", "signature": "c2lnbmVk"});
    let text = json!({"type": "text", "text": "3"});
    assert_eq!(asked[1]["messages"][1]["content"], json!([signed, redacted, text]), "{}", asked[1]);
}

#[tokio::test]
async fn images_of_tools_are_shown_to_the_model() {
    let image = ToolImage { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    for (protocol, body) in two_calls() {
        let (url, asked) = serving(200, &body, 4_096).await;
        let calls = ["a", "b"].map(|id| RequestedCall { id: id.into(), tool: "plot".into(), arguments: "{}".into() });
        let turn = AssistantTurn { calls: calls.into(), ..AssistantTurn::default() };
        let answer = |id: &str, images: Vec<ToolImage>| {
            Message::Tool(ToolMessage { call_id: id.into(), tool: "plot".into(), text: id.into(), images })
        };
        let answers = vec![Message::Assistant(turn), answer("a", vec![image.clone()]), answer("b", Vec::new())];
        ask(protocol, &url, [question(), answers].concat()).await;
        let sent = asked.lock().unwrap()[0]["messages"].clone();
        let last = sent.as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "user", "{sent}");
        let expected = match protocol {
            Protocol::Openai => json!([
                {"type": "text", "text": "Images that `plot` gave (call a):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]),
            _ => json!([
                {"type": "tool_result", "content": "a", "tool_use_id": "a"},
                {"type": "tool_result", "content": "b", "tool_use_id": "b"},
                {"type": "text", "text": "Images that `plot` gave (call a):"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            ]),
        };
        assert_eq!(last["content"], expected, "{protocol:?}: {sent}");
    }
}

/// A server that never says what was used is not free.
#[tokio::test]
async fn what_was_used_is_estimated_where_the_server_does_not_say() {
    let silent = openai(&[
        delta(&json!({"content": "12345678"})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ]);
    let (url, _) = serving(200, &silent, 4_096).await;
    let pieces = ask(Protocol::Openai, &url, question()).await;
    let Some(Ok(ModelChunk::End { usage, .. })) = pieces.last() else { panic!("{pieces:?}") };
    assert!(usage.prompt_tokens > 5 && usage.completion_tokens == 2, "{usage:?}");
}

#[tokio::test]
async fn an_answer_cut_off_has_no_end() {
    for (protocol, body) in two_calls() {
        let (url, _) = serving(200, &body[..body.len() / 2], 64).await;
        let pieces = ask(protocol, &url, question()).await;
        assert!(
            !pieces.iter().any(|piece| matches!(piece, Ok(ModelChunk::End { .. } | ModelChunk::Call(_)))),
            "{pieces:?}"
        );
    }
}

#[tokio::test]
async fn failures_are_told_apart_and_tell_no_key() {
    let echo = format!("{{\"error\": {{\"message\": \"wrong key {KEY}\"}}}}");
    for protocol in [Protocol::Openai, Protocol::Anthropic] {
        for (status, code, hint) in [
            (529, "overloaded", "overloaded"),
            (500, "upstream_error", "HTTP 500"),
            (429, "upstream_error", "asks to wait: HTTP 429"),
            (503, "upstream_error", "asks to wait: HTTP 503"),
            (401, "upstream_error", "check the profile's api_key"),
            (404, "upstream_error", "check the profile's model"),
        ] {
            let (url, _) = serving(status, &echo, 4_096).await;
            let pieces = ask(protocol, &url, question()).await;
            let [Err(error)] = &pieces[..] else { panic!("{protocol:?} {status}: {pieces:?}") };
            assert_eq!(error.code(), code, "{status}");
            assert!(error.to_string().contains(hint) && !format!("{error:?}{error}").contains(KEY), "{error}");
            if let ModelError::Overloaded { retry_after } | ModelError::Limited { retry_after, .. } = error {
                assert_eq!(*retry_after, Some(Duration::from_secs(7)), "{status}");
            }
        }
        for garbage in ["data: {no json}\n\n", "event: content_block_start\ndata: {{{\n\n"] {
            let (url, _) = serving(200, garbage, 4_096).await;
            let pieces = ask(protocol, &url, question()).await;
            assert!(!pieces.iter().any(Result::is_ok), "{protocol:?} {pieces:?}");
        }
    }
}

#[tokio::test]
async fn a_call_at_an_absurd_place_takes_no_memory() {
    let far = delta(
        &json!({"tool_calls": [{"index": 4_000_000_000_u32, "id": "a", "function": {"name": "add", "arguments": "{}"}}]}),
    );
    let (url, _) = serving(200, &openai(&[far]), 4_096).await;
    let pieces = ask(Protocol::Openai, &url, question()).await;
    assert!(matches!(&pieces[..], [Ok(ModelChunk::Call(_)), Ok(ModelChunk::End { .. })]), "{pieces:?}");
}
