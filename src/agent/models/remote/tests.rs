//! The protocols of the providers, served in this process.

mod failures;

use serde_json::json;

use super::provider::{ALL, Answer, KEY, Provider, anthropic, bedrock, delta, finish, openai, question, two_calls};
use super::*;
use crate::agent::message::{
    AssistantTurn, Extras, Image, Message, RequestedCall, Thought, ToolMessage, TurnPart, UserMessage, UserPart,
};
use crate::agent::models::{Purpose, StopReason};
use crate::agent::options::{ModelOptions, ToolChoice};
use crate::agent::output_format::OutputFormat;
use crate::budget::ModelUsage;
use crate::config::{Effort, Thinking};

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
    Message::Tool(ToolMessage { call_id: id.into(), tool: "plot".into(), text: id.into(), images })
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
            let usage = ModelUsage { prompt_tokens: 11, completion_tokens: 7, cached_tokens: 8, cache_write_tokens };
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
        let answer = ToolMessage { call_id: "a".into(), tool: "add".into(), text: "3".into(), images: Vec::new() };
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
            Protocol::Bedrock => assert_eq!((roles.len(), request["system"].as_array().unwrap().len()), (1, 3)),
        }
    }
}

/// Providers refuse arguments that are not an object, a message without content and, all but OpenAI, two consecutive
/// messages of one role.
#[tokio::test]
async fn what_a_provider_would_refuse_is_not_sent() {
    let turn = AssistantTurn::new(" ", [call("a", "{\"x\": 1")]);
    let answer = ToolMessage { call_id: "a".into(), tool: "add".into(), text: String::new(), images: Vec::new() };
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

#[tokio::test]
async fn reasoning_is_streamed_and_sent_back_signed_or_redacted() {
    let thought = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let begin =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let end = |index: u32| json!({"type": "content_block_stop", "index": index});
    let of_anthropic = anthropic(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 11, "output_tokens": 1}}}),
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        thought(json!({"type": "thinking_delta", "thinking": "Adding "})),
        thought(json!({"type": "thinking_delta", "thinking": "is easy."})),
        thought(json!({"type": "signature_delta", "signature": "c2ln"})),
        thought(json!({"type": "signature_delta", "signature": "bmVk"})),
        end(0),
        begin(1, json!({"type": "text", "text": "3"})),
        end(1),
        begin(2, json!({"type": "redacted_thinking", "data": "c2VjcmV0"})),
        end(2),
        begin(3, json!({"type": "tool_use", "id": "a", "name": "add", "input": {}})),
        end(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 6}}),
        json!({"type": "message_stop"}),
    ]);
    let reasoning = |index: u32, reasoning: Value| {
        ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": {"reasoningContent": reasoning}}))
    };
    let of_bedrock = bedrock(&[
        reasoning(0, json!({"text": "Adding "})),
        reasoning(0, json!({"text": "is easy."})),
        reasoning(0, json!({"signature": "c2lnbmVk"})),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        ("contentBlockDelta", json!({"contentBlockIndex": 1, "delta": {"text": "3"}})),
        ("contentBlockStop", json!({"contentBlockIndex": 1})),
        reasoning(2, json!({"redactedContent": "c2VjcmV0"})),
        ("contentBlockStop", json!({"contentBlockIndex": 2})),
        ("contentBlockStart", json!({"contentBlockIndex": 3, "start": {"toolUse": {"toolUseId": "a", "name": "add"}}})),
        ("contentBlockStop", json!({"contentBlockIndex": 3})),
        ("messageStop", json!({"stopReason": "tool_use"})),
        ("metadata", json!({"usage": {"inputTokens": 11, "outputTokens": 6}})),
    ]);
    for (protocol, body, sent_back) in [
        (
            Protocol::Anthropic,
            of_anthropic,
            json!([
                {"type": "thinking", "thinking": "Adding is easy.", "signature": "c2lnbmVk"},
                {"type": "text", "text": "3"},
                {"type": "redacted_thinking", "data": "c2VjcmV0"},
                {"type": "tool_use", "id": "a", "name": "add", "input": {}},
            ]),
        ),
        (
            Protocol::Bedrock,
            of_bedrock,
            json!([
                {"reasoningContent": {"reasoningText": {"text": "Adding is easy.", "signature": "c2lnbmVk"}}},
                {"text": "3"},
                {"reasoningContent": {"redactedContent": "c2VjcmV0"}},
                {"toolUse": {"toolUseId": "a", "name": "add", "input": {}}},
            ]),
        ),
    ] {
        let pieces = chunks_of(protocol, &body).await;
        let signed = Thought::Signed { text: "Adding is easy.".into(), signature: "c2lnbmVk".into() };
        let redacted = Thought::Redacted("c2VjcmV0".into());
        let usage = ModelUsage { prompt_tokens: 11, completion_tokens: 6, ..ModelUsage::default() };
        let expected = [
            ModelChunk::Thinking("Adding ".into()),
            ModelChunk::Thinking("is easy.".into()),
            ModelChunk::Thought(signed.clone()),
            ModelChunk::Text("3".into()),
            ModelChunk::Thought(redacted.clone()),
            ModelChunk::Call(call("a", "")),
            ModelChunk::End { stop: StopReason::ToolCalls, usage },
        ];
        assert_eq!(pieces, expected, "{protocol:?}");
        let parts = vec![
            TurnPart::Thought(signed),
            TurnPart::Text("3".into()),
            TurnPart::Thought(redacted),
            TurnPart::Call(call("a", "")),
        ];
        let turn = AssistantTurn { parts, api: None };
        let messages = [question(), vec![Message::Assistant(turn), answer("a", Vec::new())]].concat();
        let (_, request) = exchange(protocol, &body, 4_096, messages).await;
        assert_eq!(request["messages"][1]["content"], sent_back, "{request:#}");
    }
}

/// Anthropic refuses a turn that comes back in another order.
#[tokio::test]
async fn thoughts_texts_and_calls_keep_their_order() {
    let begin =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let end = |index: u32| json!({"type": "content_block_stop", "index": index});
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "add", "input": {}});
    let thinking = |text: &str| json!({"type": "thinking", "thinking": text, "signature": text});
    let body = anthropic(&[
        begin(0, thinking("one")),
        end(0),
        begin(1, tool_use("a")),
        end(1),
        begin(2, thinking("two")),
        end(2),
        begin(3, tool_use("b")),
        end(3),
        begin(4, json!({"type": "text", "text": "now"})),
        end(4),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 6}}),
        json!({"type": "message_stop"}),
    ]);
    let mut pieces = chunks_of(Protocol::Anthropic, &body).await;
    let last = pieces.pop();
    assert!(matches!(last, Some(ModelChunk::End { stop: StopReason::ToolCalls, .. })), "{last:?}");
    pieces.retain(|piece| !matches!(piece, ModelChunk::Thinking(_)));
    let signed = |text: &str| ModelChunk::Thought(Thought::Signed { text: text.into(), signature: text.into() });
    let text = ModelChunk::Text("now".into());
    let expected =
        [signed("one"), ModelChunk::Call(call("a", "")), signed("two"), ModelChunk::Call(call("b", "")), text];
    assert_eq!(pieces, expected);
    let body = openai(&[
        delta(&json!({"reasoning_content": "hm"})),
        delta(&json!({"content": "3"})),
        delta(&json!({"reasoning_content": "mhm"})),
        finish("stop"),
    ]);
    let mut pieces = chunks_of(Protocol::Openai, &body).await;
    pieces.retain(|piece| matches!(piece, ModelChunk::Thought(_) | ModelChunk::Text(_)));
    let field = "reasoning_content";
    let unsigned = |text: &str| ModelChunk::Thought(Thought::Unsigned { text: text.into(), field });
    assert_eq!(pieces, [unsigned("hm"), ModelChunk::Text("3".into()), unsigned("mhm")]);
}

/// Servers other than OpenAI's send it under two names, some under both. DeepSeek and Kimi refuse the results of calls
/// without it, and take none for questions that were answered.
#[tokio::test]
async fn reasoning_of_openai_compatible_servers_goes_back_with_the_results_of_its_calls() {
    let tool_calls = json!([{"index": 0, "id": "a", "function": {"name": "add", "arguments": "{}"}}]);
    for (sent, field) in [
        (json!({"reasoning": "hm"}), "reasoning"),
        (json!({"reasoning_content": "hm"}), "reasoning_content"),
        (json!({"reasoning_content": "hm", "reasoning": "hm"}), "reasoning_content"),
        (json!({"reasoning_content": "hm", "reasoning": null, "content": ""}), "reasoning_content"),
    ] {
        let body = openai(&[delta(&sent), delta(&json!({"tool_calls": tool_calls})), finish("tool_calls")]);
        let pieces = chunks_of(Protocol::Openai, &body).await;
        let thought = Thought::Unsigned { text: "hm".into(), field };
        assert_eq!(pieces[0], ModelChunk::Thinking("hm".into()));
        assert!(pieces.contains(&ModelChunk::Thought(thought.clone())), "{pieces:?}");
        let parts = vec![TurnPart::Thought(thought), TurnPart::Call(call("a", "{}"))];
        let turn = AssistantTurn { parts, api: None };
        let asked = [question(), vec![Message::Assistant(turn), answer("a", Vec::new())]].concat();
        let (_, request) = exchange(Protocol::Openai, &body, 4_096, asked.clone()).await;
        assert_eq!(request["messages"][2][field], "hm", "{request:#}");
        let answered = [asked, vec![Message::User("and now?".into())]].concat();
        let (_, request) = exchange(Protocol::Openai, &body, 4_096, answered).await;
        assert!(request["messages"][2].get(field).is_none(), "{request:#}");
    }
}

/// Gemini refuses the results of a call without the signature that came with it.
#[tokio::test]
async fn extra_content_of_a_call_goes_back_with_it() {
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let function = json!({"name": "add", "arguments": "{}"});
    let tool_calls = json!([{"index": 0, "id": "a", "function": function, "extra_content": extra}]);
    let body = openai(&[delta(&json!({"tool_calls": tool_calls})), finish("tool_calls")]);
    let [requested] = &calls(&chunks_of(Protocol::Openai, &body).await)[..] else { panic!() };
    assert_eq!(requested.extras, Extras::from_iter([("extra_content".to_owned(), extra.clone())]));
    let turn = AssistantTurn::new("", [requested.clone()]);
    let messages = [question(), vec![Message::Assistant(turn), answer("a", Vec::new())]].concat();
    let (_, request) = exchange(Protocol::Openai, &body, 4_096, messages).await;
    assert_eq!(request["messages"][2]["tool_calls"][0]["extra_content"], extra, "{request:#}");
}

/// What servers send that keep to OpenAI's protocol only in part: the chunks of a text "3", or of a call.
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

#[tokio::test]
async fn images_of_the_user_are_shown_to_the_model() {
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let parts = vec![UserPart::Text("what is this?".into()), UserPart::Image(image)];
    for protocol in ALL {
        let messages = vec![Message::User(UserMessage { parts: parts.clone() })];
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, messages).await;
        let expected = match protocol {
            Protocol::Openai => json!([
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]),
            Protocol::Anthropic => json!([
                {"type": "text", "text": "what is this?"},
                {"type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            ]),
            Protocol::Bedrock => json!([
                {"text": "what is this?"},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
            ]),
        };
        assert_eq!(unmarked(request["messages"][0]["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
}

#[tokio::test]
async fn images_of_tools_are_shown_to_the_model() {
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    for protocol in ALL {
        let turn = AssistantTurn::new("", [call("a", "{}"), call("b", "{}")]);
        let answers = vec![Message::Assistant(turn), answer("a", vec![image.clone()]), answer("b", Vec::new())];
        let (_, request) = exchange(protocol, &two_calls(protocol), 4_096, [question(), answers].concat()).await;
        let last = request["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "user", "{request}");
        let expected = match protocol {
            Protocol::Openai => json!([
                {"type": "text", "text": "Images returned by `plot` (call a):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]),
            Protocol::Anthropic => json!([
                {"type": "tool_result", "tool_use_id": "a", "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                ]},
                {"type": "tool_result", "tool_use_id": "b", "content": "b"},
            ]),
            Protocol::Bedrock => json!([
                {"toolResult": {"toolUseId": "a", "content": [
                    {"text": "a"}, {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "b"}]}},
            ]),
        };
        assert_eq!(unmarked(last["content"].clone()), expected, "{protocol:?}: {request:#}");
    }
}

/// Each protocol's answer with a call that the token limit cut off before its arguments.
fn cut_call(protocol: Protocol) -> Vec<u8> {
    let fragment = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}});
    let block = json!({"type": "tool_use", "id": "a", "name": "add", "input": {}});
    let start = json!({"toolUse": {"toolUseId": "a", "name": "add"}});
    match protocol {
        Protocol::Openai => openai(&[delta(&json!({"tool_calls": [fragment]})), finish("length")]),
        Protocol::Anthropic => anthropic(&[
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
            json!({"type": "message_stop"}),
        ]),
        Protocol::Bedrock => bedrock(&[
            ("contentBlockStart", json!({"contentBlockIndex": 0, "start": start})),
            ("messageStop", json!({"stopReason": "max_tokens"})),
        ]),
    }
}

#[tokio::test]
async fn a_call_that_the_token_limit_cut_off_has_that_stop_reason() {
    for protocol in ALL {
        let pieces = chunks_of(protocol, &cut_call(protocol)).await;
        assert_eq!(calls(&pieces), [call("a", "")], "{protocol:?}");
        assert!(matches!(pieces.last(), Some(ModelChunk::End { stop: StopReason::Length, .. })), "{pieces:?}");
    }
    // Some servers send `tool_calls`, with a usage of all the tokens.
    for (used, expected) in [(100, StopReason::Length), (99, StopReason::ToolCalls)] {
        let fragment = json!({"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": used}});
        let body = openai(&[delta(&json!({"tool_calls": [fragment]})), finish("tool_calls"), usage]);
        let pieces = chunks_of(Protocol::Openai, &body).await;
        assert!(matches!(pieces.last(), Some(ModelChunk::End { stop, .. }) if *stop == expected), "{pieces:?}");
    }
}

#[tokio::test]
async fn the_stop_reason_is_reported() {
    let anthropic_end = |reason: &str| {
        anthropic(&[
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 6}}),
            json!({"type": "message_stop"}),
        ])
    };
    let bedrock_end = |reason: &str| bedrock(&[("messageStop", json!({"stopReason": reason}))]);
    let openai_end = |reason: &str| openai(&[finish(reason)]);
    let refusal = openai(&[delta(&json!({"refusal": "I will not."})), finish("stop")]);
    for (protocol, body, expected) in [
        (Protocol::Openai, openai_end("stop"), StopReason::Stop),
        (Protocol::Openai, openai_end("length"), StopReason::Length),
        (Protocol::Openai, openai_end("model_length"), StopReason::Length),
        (Protocol::Openai, openai_end("model_context_window_exceeded"), StopReason::Length),
        (Protocol::Openai, openai_end("content_filter"), StopReason::Refusal),
        (Protocol::Openai, openai_end("content_filter: RECITATION"), StopReason::Refusal),
        (Protocol::Openai, openai_end("sensitive"), StopReason::Refusal),
        (Protocol::Openai, refusal, StopReason::Refusal),
        (Protocol::Anthropic, anthropic_end("end_turn"), StopReason::Stop),
        (Protocol::Anthropic, anthropic_end("max_tokens"), StopReason::Length),
        (Protocol::Anthropic, anthropic_end("refusal"), StopReason::Refusal),
        (Protocol::Bedrock, bedrock_end("end_turn"), StopReason::Stop),
        (Protocol::Bedrock, bedrock_end("max_tokens"), StopReason::Length),
        (Protocol::Bedrock, bedrock_end("guardrail_intervened"), StopReason::Refusal),
    ] {
        let pieces = chunks_of(protocol, &body).await;
        assert!(
            matches!(pieces.last(), Some(ModelChunk::End { stop, .. }) if *stop == expected),
            "{protocol:?} {expected:?}: {pieces:?}"
        );
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

/// Other servers know only the older name of the token limit, OpenAI's later models only the newer one.
#[test]
fn the_token_limit_has_openais_name_for_openai_alone() {
    let request = provider::request(question());
    let own = openai::body("gpt", &request, true);
    assert_eq!((&own["max_completion_tokens"], &own["max_tokens"]), (&json!(100), &Value::Null));
    let others = openai::body("gpt", &request, false);
    assert_eq!((&others["max_completion_tokens"], &others["max_tokens"]), (&Value::Null, &json!(100)));
}

#[test]
fn options_are_sent_in_each_protocols_own_terms() {
    let options = ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".into()],
        tool_choice: ToolChoice::Tool("add".into()),
        ..ModelOptions::default()
    };
    let of_openai = ModelOptions {
        presence_penalty: Some(1.0),
        frequency_penalty: Some(-1.0),
        seed: Some(7),
        parallel_tool_calls: Some(false),
        thinking: Some(Thinking::BudgetTokens(2_000)),
        ..options.clone()
    };
    let request = |options: ModelOptions| ModelRequest { options, ..provider::request(question()) };
    let body = openai::body("gpt-4o", &request(of_openai.clone()), true);
    let expected = json!({"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1.0, "frequency_penalty": -1.0,
        "seed": 7, "stop": ["END"], "parallel_tool_calls": false, "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "add"}}});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(body[name], *value, "{name}");
    }
    let body =
        anthropic::body("claude", &request(ModelOptions { parallel_tool_calls: Some(false), ..options.clone() }));
    let expected = json!({"temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": true}});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(body[name], *value, "{name}");
    }
    let body = bedrock::body("a-model", &request(options));
    assert_eq!(body["inferenceConfig"]["topP"], 0.9);
    assert_eq!(body["inferenceConfig"]["stopSequences"], json!(["END"]));
    assert_eq!(body["toolConfig"]["toolChoice"], json!({"tool": {"name": "add"}}));

    // OpenAI has a mode for the form of an answer; the others find it in their prompts.
    let schema = json!({"type": "object"});
    let output = OutputFormat::of_schema("n".into(), schema.clone(), true).unwrap();
    let formed = request(ModelOptions { output: Some(output), ..ModelOptions::default() });
    let expected = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    assert_eq!(openai::body("gpt-4o", &formed, true)["response_format"], expected);
    assert!(anthropic::body("claude", &formed)["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    assert!(bedrock::body("a-model", &formed)["system"][1]["text"].as_str().unwrap().contains("JSON Schema"));

    // A turn that thinks has no temperature; one that must call a tool does not think.
    let thinking = ModelOptions { thinking: Some(Thinking::Effort(Effort::Medium)), ..ModelOptions::default() };
    let expected = json!({"type": "enabled", "budget_tokens": 8_192});
    let thinks = request(ModelOptions { temperature: Some(0.2), ..thinking.clone() });
    let body = anthropic::body("claude", &thinks);
    assert_eq!((&body["thinking"], body.get("temperature")), (&expected, None));
    let body = bedrock::body("a-model", &thinks);
    assert_eq!(body["additionalModelRequestFields"]["thinking"], expected);
    assert_eq!(body["inferenceConfig"].get("temperature"), None);
    // Newer models take an effort, and no temperature and no `top_p`.
    let adaptive = request(ModelOptions { temperature: Some(0.2), top_p: Some(0.9), ..thinking.clone() });
    let (field, effort) = (json!({"type": "adaptive", "display": "summarized"}), json!({"effort": "medium"}));
    let body = anthropic::body("claude-opus-4-7", &adaptive);
    assert_eq!((&body["thinking"], &body["output_config"]), (&field, &effort));
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    let body = bedrock::body("anthropic.claude-opus-4-7-v1:0", &adaptive);
    assert_eq!(body["additionalModelRequestFields"], json!({"thinking": field, "output_config": effort}));
    assert_eq!(body["inferenceConfig"], json!({"maxTokens": 100}));
    let body = anthropic::body("claude-opus-4-7", &request(ModelOptions::default()));
    assert_eq!((body.get("thinking"), body.get("output_config")), (None, None));
    let forced = request(ModelOptions { tool_choice: ToolChoice::Required, ..thinking });
    assert_eq!(anthropic::body("claude", &forced).get("thinking"), None);

    for (model, takes_it) in [
        ("gpt-4o", true),
        ("gpt-5-mini", false),
        ("o3", false),
        ("openai/o4-mini", false),
        ("gpt-5-chat", true),
        ("olmo", true),
    ] {
        let body = openai::body(model, &request(of_openai.clone()), false);
        assert_eq!(body.get("temperature").is_some(), takes_it, "{model}");
        assert_eq!(body.get("max_tokens").is_some(), takes_it, "{model}");
    }
}

/// Places with a mark for the cache.
fn marked(body: &Value) -> Vec<String> {
    fn visit(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if fields.contains_key("cache_control") || fields.contains_key("cachePoint") {
                    found.push(path.to_owned());
                }
                fields.iter().for_each(|(name, value)| visit(value, &format!("{path}/{name}"), found));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| visit(item, &format!("{path}/{index}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    visit(body, "", &mut found);
    found.sort();
    found
}

/// The next request begins with the same tools, system prompt and messages. Providers accept at most four marks.
#[test]
fn what_the_next_request_begins_with_is_marked_for_the_cache() {
    let exchange = |id: &str| {
        let answer = ToolMessage { call_id: id.into(), tool: "add".into(), text: "3".into(), images: Vec::new() };
        [Message::Assistant(AssistantTurn::new("", [call(id, "{}")])), Message::Tool(answer)]
    };
    let messages = [question(), exchange("a").into(), exchange("b").into()].concat();
    let request = provider::request(messages);
    let expected = ["/messages/2/content/0", "/messages/4/content/0", "/system/0", "/tools/0"];
    assert_eq!(marked(&anthropic::body("claude", &request)), expected);
    let all = ["/messages/2/content/1", "/messages/4/content/1", "/system/1", "/toolConfig/tools/1"];
    for (model, expected) in [
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", &all[..]),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", &all),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", &all),
        ("us.amazon.nova-pro-v1:0", &all[..3]),
        ("anthropic.claude-3-haiku-20240307-v1:0", &[]),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", &[]),
        ("amazon.nova-canvas-v1:0", &[]),
        ("meta.llama3-1-70b-instruct-v1:0", &[]),
    ] {
        assert_eq!(marked(&bedrock::body(model, &request)), expected, "{model}");
    }
    assert!(marked(&openai::body("gpt-4o", &request, true)).is_empty(), "OpenAI needs no marks");
    let own = ModelRequest { purpose: Purpose::ContextSummary, ..request };
    assert!(marked(&anthropic::body("claude", &own)).is_empty(), "nothing continues a summary");
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
    let outbound = Outbound::new(&crate::config::OutboundConfig::default()).unwrap();
    for (protocol, base_url, expected) in [
        (Protocol::Openai, None, "https://api.openai.com/v1/chat/completions"),
        (Protocol::Anthropic, None, "https://api.anthropic.com/v1/messages"),
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
