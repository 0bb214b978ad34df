//! The thoughts of models, and the extras of calls: read, and sent back.

use super::*;

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

/// Servers other than OpenAI's send it under two names, some under both. DeepSeek and Kimi refuse calls without the reasoning
/// that led to them, also of questions that were answered.
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
        assert_eq!(request["messages"][2][field], "hm", "{request:#}");
        let parts = vec![TurnPart::Thought(Thought::Unsigned { text: "hm".into(), field }), TurnPart::Text("3".into())];
        let turn = AssistantTurn { parts, api: None };
        let answered = [question(), vec![Message::Assistant(turn), Message::User("and now?".into())]].concat();
        let (_, request) = exchange(Protocol::Openai, &body, 4_096, answered).await;
        assert!(request["messages"][2].get(field).is_none(), "without calls: {request:#}");
    }
}

/// A router refuses the results of calls of some models without the blocks, with their signatures, that came before them.
#[tokio::test]
async fn blocks_of_reasoning_are_joined_and_go_back_as_they_were() {
    let block = |text: &str, block: Value| delta(&json!({"reasoning": text, "reasoning_details": [block]}));
    let text = |fields: Value| {
        let mut block = json!({"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0});
        block.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        block
    };
    let encrypted = json!({"type": "reasoning.encrypted", "data": "eHh4", "id": "r", "index": 1});
    let tool_calls = json!([{"index": 0, "id": "a", "function": {"name": "add", "arguments": "{}"}}]);
    let body = openai(&[
        block("I ", text(json!({"text": "I ", "signature": null}))),
        block("add.", text(json!({"text": "add."}))),
        block("", text(json!({"signature": "c2ln"}))),
        block("", encrypted.clone()),
        block("", encrypted.clone()),
        delta(&json!({"tool_calls": tool_calls, "reasoning_details": null})),
        finish("tool_calls"),
    ]);
    let whole = text(json!({"text": "I add.", "signature": "c2ln"}));
    let blocks = vec![whole, encrypted.clone(), encrypted];
    let pieces = chunks_of(Protocol::Openai, &body).await;
    let thoughts = pieces.into_iter().filter_map(|piece| match piece {
        ModelChunk::Thought(thought) => Some(TurnPart::Thought(thought)),
        _ => None,
    });
    let parts: Vec<_> = thoughts.chain([TurnPart::Call(call("a", "{}"))]).collect();
    assert!(parts.contains(&TurnPart::Thought(Thought::Details(blocks.clone()))), "{parts:?}");
    let turn = Message::Assistant(AssistantTurn { parts, api: None });
    let answered = vec![turn, answer("a", Vec::new()), Message::User("and now?".into())];
    let (_, request) = exchange(Protocol::Openai, &body, 4_096, [question(), answered].concat()).await;
    let sent = &request["messages"][2];
    assert_eq!((&sent["reasoning_details"], sent.get("reasoning")), (&json!(blocks), None), "{request:#}");
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
