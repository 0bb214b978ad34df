//! The protocols of the providers, served in this process.

mod ends;
mod failures;
mod gemini_answers;
mod images;
mod odd_answers;
mod options;
mod requests;
mod responses_answers;
mod thinking;
mod tool_search;

use serde_json::json;

use super::provider::{
    ALL, Answer, KEY, Provider, anthropic, bedrock, delta, finish, openai, question, request, two_calls,
};
use super::*;
use crate::message::{
    AssistantTurn, Extras, Image, Message, RequestedCall, Thought, ToolMessage, TurnPart, UserMessage, UserPart,
};
use crate::models::{Purpose, StopReason};
use crate::options::{ModelOptions, ToolChoice};
use crate::output_format::OutputFormat;
use crate::user_file::UserFile;
use sekisho_calls::budget::ModelUsage;
use sekisho_config::{Effort, Thinking};

/// The chunks from a body sent in pieces of that many bytes, and the request.
async fn exchange(
    protocol: Protocol,
    body: &[u8],
    size: usize,
    messages: Vec<Message>,
) -> (Vec<Result<ModelChunk, ModelError>>, Value) {
    let provider = Provider::serving(Answer::whole(protocol, body, size)).await;
    let pieces = provider.ask(protocol, messages).await;
    let request = provider.requests.lock()[0].clone();
    (pieces, request)
}

/// Parts of a message without their marks for the cache.
fn unmarked(mut parts: Value) -> Value {
    for part in parts.as_array_mut().unwrap() {
        part.as_object_mut().unwrap().shift_remove("cache_control");
    }
    parts
}

/// The chunks of an answer that is expected to succeed.
async fn chunks_of(protocol: Protocol, body: &[u8]) -> Vec<ModelChunk> {
    let (pieces, _) = exchange(protocol, body, 4_096, question()).await;
    pieces.into_iter().collect::<Result<_, _>>().unwrap()
}

fn call(id: &str, arguments: &str) -> RequestedCall {
    RequestedCall::new(id.into(), "add".into(), arguments.into())
}

fn answer(id: &str, images: Vec<Image>) -> Message {
    Message::Tool(ToolMessage { call_id: id.into(), tool: "plot".into(), text: id.into(), images, is_error: false })
}

fn calls(pieces: &[ModelChunk]) -> Vec<RequestedCall> {
    let call = |piece: &ModelChunk| if let ModelChunk::Call(call) = piece { Some(call.clone()) } else { None };
    pieces.iter().filter_map(call).collect()
}

#[tokio::test]
async fn a_turn_is_joined_from_its_fragments_at_any_chunk_size() {
    for protocol in ALL {
        let body = two_calls(protocol);
        for size in [1, 2, 3, 7, body.len()] {
            let (pieces, _) = exchange(protocol, &body, size, question()).await;
            let mut pieces: Vec<_> = pieces.into_iter().collect::<Result<_, _>>().unwrap();
            pieces.retain(|piece| !matches!(piece, ModelChunk::Fragment { .. }));
            // 8 tokens of the prompt were read from the provider's cache; Anthropic wrote 2 to it.
            let cache_write_tokens = if protocol == Protocol::Anthropic { 2 } else { 0 };
            let usage = ModelUsage {
                prompt_tokens: 11,
                completion_tokens: 7,
                cached_tokens: 8,
                cache_write_tokens,
                ..ModelUsage::default()
            };
            let expected = [
                ModelChunk::Text("Adding 足す.".into()),
                ModelChunk::Call(call("a", "{\"x\":1}")),
                ModelChunk::Call(call("b", "{\"x\":3}")),
                ModelChunk::End { stop: StopReason::ToolCalls, usage },
            ];
            assert_eq!(pieces, expected, "{protocol:?} by {size}");
        }
    }
}

#[tokio::test]
async fn the_names_of_an_answer_are_kept_for_its_trace() {
    let mut first = delta(&json!({"content": "so"}));
    first["id"] = "chatcmpl-1".into();
    first["model"] = "a-model-2026".into();
    let body = openai(&[first, finish("stop")]);
    let provider = Provider::serving(Answer::whole(Protocol::Openai, &body, 9)).await;
    let sent = Arc::new(request(question()));
    let model = provider.model(Protocol::Openai);
    model.stream(Arc::clone(&sent)).collect::<Vec<_>>().await;
    let expected = AnswerNames { id: Some("chatcmpl-1".into()), model: Some("a-model-2026".into()) };
    assert_eq!(sent.accepted.names(), expected);
    sent.accepted.reset();
    assert_eq!(sent.accepted.names(), AnswerNames::default(), "a second attempt has names of its own");
}

#[tokio::test]
async fn fragments_of_a_call_are_reported_as_they_arrive() {
    for protocol in ALL {
        let pieces = chunks_of(protocol, &two_calls(protocol)).await;
        let bytes = |piece: &ModelChunk| if let ModelChunk::Fragment { bytes } = piece { *bytes } else { 0 };
        assert_eq!(pieces.iter().map(bytes).sum::<usize>(), "{\"x\":1}{\"x\":3}".len(), "{protocol:?} {pieces:?}");
    }
}

#[tokio::test]
async fn the_conversation_is_sent_with_calls_answers_and_tools() {
    for protocol in ALL {
        let answer =
            ToolMessage { call_id: "a".into(), tool: "add".into(), text: "3".into(), ..ToolMessage::default() };
        let turn = AssistantTurn::new("", [call("a", "{\"x\":1}")]);
        let messages = [question(), vec![Message::Assistant(turn), Message::Tool(answer)]].concat();
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let expected = match protocol {
            Protocol::Openai => json!({
                "model": "a-model", "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "1 + 2, and 3 + 4?"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"x\":1}"}}]},
                    {"role": "tool", "tool_call_id": "a", "content": "3"},
                ],
                "max_tokens": 100, "temperature": 0.2,
                "tools": [{"type": "function",
                    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}],
            }),
            Protocol::Anthropic => json!({
                "model": "a-model", "stream": true, "max_tokens": 100, "temperature": 0.2,
                "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "1 + 2, and 3 + 4?",
                        "cache_control": {"type": "ephemeral"}}]},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "3",
                        "cache_control": {"type": "ephemeral"}}]},
                ],
                "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"},
                    "cache_control": {"type": "ephemeral"}}],
            }),
            Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
            Protocol::Bedrock => json!({
                "system": [{"text": "be brief"}],
                "messages": [
                    {"role": "user", "content": [{"text": "1 + 2, and 3 + 4?"}]},
                    {"role": "assistant", "content": [
                        {"toolUse": {"toolUseId": "a", "name": "add", "input": {"x": 1}}}]},
                    {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "3"}]}}]},
                ],
                "inferenceConfig": {"maxTokens": 100, "temperature": 0.2},
                "toolConfig": {"tools": [{"toolSpec": {
                    "name": "add", "description": "Adds.", "inputSchema": {"json": {"type": "object"}}}}]},
            }),
        };
        assert_eq!(request, expected, "{protocol:?}: {request:#}");
    }
}

/// The chat templates of Qwen, Gemma, Mistral and others refuse a second system message, or one that is not the first.
#[tokio::test]
async fn all_system_prompts_are_sent_as_one() {
    let later = [Message::System("[summary]".into()), Message::User("go on".into()), Message::System("now".into())];
    for protocol in ALL {
        let messages = [question(), later.to_vec()].concat();
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let roles: Vec<_> = request["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        let all = "be brief\n\n[summary]\n\nnow";
        match protocol {
            Protocol::Openai => {
                assert_eq!(roles, ["system", "user", "user"]);
                assert_eq!(request["messages"][0]["content"], all);
            }
            Protocol::Anthropic => assert_eq!((roles.len(), &request["system"][0]["text"]), (1, &json!(all))),
            Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
            Protocol::Bedrock => assert_eq!((roles.len(), request["system"].as_array().unwrap().len()), (1, 3)),
        }
    }
}

/// Providers refuse arguments that are not an object, a message without content and, all but OpenAI, two consecutive
/// messages of one role.
#[tokio::test]
async fn what_a_provider_would_refuse_is_not_sent() {
    let turn = AssistantTurn::new(" ", [call("a", "{\"x\": 1")]);
    let answer = ToolMessage { call_id: "a".into(), tool: "add".into(), text: String::new(), ..ToolMessage::default() };
    let more = vec![
        Message::User("and?".into()),
        Message::Assistant(AssistantTurn::default()),
        Message::Assistant(turn),
        Message::Tool(answer),
        Message::User("go on".into()),
    ];
    for protocol in [Protocol::Anthropic, Protocol::Bedrock] {
        let messages = [question(), more.clone()].concat();
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let shape: Vec<_> = request["messages"].as_array().unwrap().iter().collect();
        let sides: Vec<_> = shape.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(sides, ["user", "assistant", "user"], "{request:#}");
        let parts: Vec<_> = shape.iter().map(|message| message["content"].as_array().unwrap().len()).collect();
        assert_eq!(parts, [2, 1, 2], "{request:#}");
        let call = &shape[1]["content"][0];
        let input = if protocol == Protocol::Bedrock { &call["toolUse"]["input"] } else { &call["input"] };
        assert_eq!(*input, json!({}), "{request:#}");
    }
}

/// The chunks of servers that keep to OpenAI's protocol only in part: the chunks of a text "3", or of a call.
#[tokio::test]
async fn odd_answers_of_openai_compatible_servers_are_read() {
    let text = |delta_value: Value| openai(&[delta(&delta_value), finish("stop")]);
    let called = |delta_value: Value| openai(&[delta(&delta_value), finish("tool_calls")]);
    let message = |message: Value| json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let parts =
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "3"}]);
    let object = json!([{"index": 0, "id": "a", "function": {"name": "add", "arguments": {"x": 1}}}]);
    let whole = message(json!({"role": "assistant", "content": "3"}));
    let whole_call = message(json!({"content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"x\":1}"}}]}));
    for (what, media_type, body) in [
        ("content in parts", "text/event-stream", text(json!({"content": parts}))),
        ("a message in a chunk", "text/event-stream", openai(std::slice::from_ref(&whole))),
        ("no stream", "application/json", whole.to_string().into_bytes()),
        ("a stream of plain text", "text/plain; charset=utf-8", text(json!({"content": "3"}))),
        ("a stream without a name", "", text(json!({"content": "3"}))),
        ("a stream of bytes", "application/octet-stream", text(json!({"content": "3"}))),
    ] {
        let answer = Answer::whole(Protocol::Openai, &body, 7).header("content-type", media_type);
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        assert!(pieces.contains(&Ok(ModelChunk::Text("3".into()))), "{what}: {pieces:?}");
        assert!(
            matches!(pieces.last(), Some(Ok(ModelChunk::End { stop: StopReason::Stop, .. }))),
            "{what}: {pieces:?}"
        );
    }
    let function_call = json!({"function_call": {"name": "add", "arguments": "{\"x\":1}"}});
    for (what, media_type, body, id) in [
        ("arguments as an object", "text/event-stream", called(json!({"tool_calls": object})), "a"),
        ("function_call", "text/event-stream", called(function_call), ""),
        ("a call without a stream", "application/json", whole_call.to_string().into_bytes(), "a"),
    ] {
        let answer = Answer::whole(Protocol::Openai, &body, 7).header("content-type", media_type);
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        let pieces: Vec<_> = pieces.into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(calls(&pieces), [call(id, "{\"x\":1}")], "{what}");
    }
}

/// A server that reports no usage is not free.
#[tokio::test]
async fn usage_is_estimated_if_the_server_reports_none() {
    let silent = openai(&[delta(&json!({"content": "12345678"})), finish("stop")]);
    let pieces = chunks_of(Protocol::Openai, &silent).await;
    let Some(ModelChunk::End { usage, .. }) = pieces.last() else { panic!("{pieces:?}") };
    assert!(usage.prompt_tokens > 5 && usage.completion_tokens == 2, "{usage:?}");
}

/// The name of the cached tokens differs.
#[tokio::test]
async fn cached_tokens_are_read_from_the_usage_of_servers_with_openais_api() {
    let details = json!({"cached_tokens": 60, "cache_write_tokens": 30});
    for (field, value, expected) in [
        ("prompt_tokens_details", details, (60, 30)),
        ("prompt_cache_hit_tokens", json!(70), (70, 0)),
        ("cached_tokens", json!(80), (80, 0)),
    ] {
        let mut usage = json!({"prompt_tokens": 100, "completion_tokens": 1});
        usage[field] = value;
        let events = [delta(&json!({"content": "ok"})), finish("stop"), json!({"choices": [], "usage": usage})];
        let pieces = chunks_of(Protocol::Openai, &provider::openai(&events)).await;
        let Some(ModelChunk::End { usage, .. }) = pieces.last() else { panic!("{pieces:?}") };
        assert_eq!((usage.cached_tokens, usage.cache_write_tokens), expected, "{field}");
    }
}

#[test]
fn urls_keep_the_profiles_path_and_query() {
    let outbound = Outbound::new(&sekisho_config::OutboundConfig::default()).unwrap();
    for (protocol, base_url, expected) in [
        (Protocol::Openai, None, "https://api.openai.com/v1/chat/completions"),
        (Protocol::Anthropic, None, "https://api.anthropic.com/v1/messages"),
        (Protocol::Responses, None, "https://api.openai.com/v1/responses"),
        (
            Protocol::Gemini,
            None,
            "https://generativelanguage.googleapis.com/v1beta/models/eu.a-model%3A0%2Fx:streamGenerateContent?alt=sse",
        ),
        (
            Protocol::Bedrock,
            None,
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/eu.a-model%3A0%2Fx/converse-stream",
        ),
        (Protocol::Openai, Some("http://h:1/v1/?api-version=2"), "http://h:1/v1/chat/completions?api-version=2"),
    ] {
        let base_url = base_url.map(|base_url| Url::parse(base_url).unwrap());
        let key = Secret::new("k");
        let model = Remote::new(outbound.clone(), protocol, "eu.a-model:0/x", base_url.as_ref(), &key).unwrap();
        assert_eq!(model.address().unwrap().as_str(), expected);
    }
    let broken = Remote::new(outbound, Protocol::Openai, "m", None, &Secret::new("k\n"));
    assert!(matches!(broken, Err(ModelError::Refused(message)) if message.contains("api_key")));
}

/// Whatever indexes a server sends, each call is reported once and whole.
#[tokio::test]
async fn calls_with_odd_indexes_and_ids_are_kept_apart() {
    let piece = |fragment: Value| delta(&json!({"tool_calls": [fragment]}));
    let begin = |index: Value, id: &str, arguments: &str| {
        piece(json!({"index": index, "id": id, "function": {"name": "add", "arguments": arguments}}))
    };
    for (what, events, expected) in [
        ("a huge index takes no memory", vec![begin(json!(4_000_000_000_u32), "a", "{}")], vec![call("a", "{}")]),
        (
            "gaps, and out of order",
            vec![
                begin(json!(7), "b", "{\"n\":"),
                begin(json!(2), "a", "{}"),
                piece(json!({"index": 7, "function": {"arguments": "7}"}})),
            ],
            vec![call("b", "{\"n\":7}"), call("a", "{}")],
        ),
        (
            "the same id at two indexes",
            vec![begin(json!(0), "a", "{}"), begin(json!(1), "a", "{\"n\":1}")],
            vec![call("a", "{}"), call("a", "{\"n\":1}")],
        ),
        (
            "all at one index",
            vec![begin(json!(0), "a", "{}"), begin(json!(0), "b", "{\"n\":1}")],
            vec![call("a", "{}"), call("b", "{\"n\":1}")],
        ),
        (
            "no index",
            vec![
                begin(Value::Null, "a", "{"),
                piece(json!({"function": {"arguments": "}"}})),
                begin(Value::Null, "b", "{}"),
            ],
            vec![call("a", "{}"), call("b", "{}")],
        ),
        (
            "the name in every fragment",
            vec![begin(json!(0), "a", "{"), begin(json!(0), "a", "}")],
            vec![call("a", "{}")],
        ),
        (
            "whole calls without ids at one index",
            vec![begin(json!(0), "", "{\"n\":1}"), begin(json!(0), "", "{\"n\":2}")],
            vec![call("", "{\"n\":1}"), call("", "{\"n\":2}")],
        ),
        (
            "the name in every fragment, without ids",
            vec![begin(json!(0), "", ""), begin(json!(0), "", "{\"n\":"), begin(json!(0), "", "1}")],
            vec![call("", "{\"n\":1}")],
        ),
    ] {
        let pieces = chunks_of(Protocol::Openai, &openai(&[events, vec![finish("tool_calls")]].concat())).await;
        assert_eq!(calls(&pieces), expected, "{what}");
    }
}
