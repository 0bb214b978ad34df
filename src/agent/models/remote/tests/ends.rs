//! How a turn ends.

use super::*;

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
        Protocol::Responses | Protocol::Gemini => unreachable!("they have tests of their own"),
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
        (Protocol::Openai, openai_end("MAX_TOKENS"), StopReason::Length),
        (Protocol::Openai, openai_end("SAFETY"), StopReason::Refusal),
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

#[tokio::test]
async fn the_explanation_of_a_refusal_is_its_text() {
    let details = json!({"type": "refusal", "category": "bio", "explanation": "It could do harm."});
    let body = anthropic(&[
        json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}),
        json!({"type": "message_stop"}),
    ]);
    let pieces = chunks_of(Protocol::Anthropic, &body).await;
    let [ModelChunk::Text(text), ModelChunk::End { stop: StopReason::Refusal, .. }] = &pieces[..] else {
        panic!("{pieces:?}")
    };
    assert_eq!(text, "It could do harm.");
}
