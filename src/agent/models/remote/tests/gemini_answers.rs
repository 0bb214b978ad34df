//! Gemini's own API: a whole exchange, with its signatures, and what goes back.

use super::*;

fn events(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\r\n\r\n")).collect::<String>().into_bytes()
}

fn candidate(parts: &Value, reason: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = reason {
        candidate["finishReason"] = reason.into();
    }
    json!({"candidates": [candidate]})
}

#[tokio::test]
async fn an_answer_of_gemini_is_read_and_its_signatures_go_back() {
    let mut last = candidate(
        &json!([
            {"functionCall": {"name": "add", "args": {"x": 1}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "add", "args": {}}},
        ]),
        Some("STOP"),
    );
    last["usageMetadata"] = json!({"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 8, "totalTokenCount": 18});
    let body = events(&[
        candidate(&json!([{"text": "hm", "thought": true}]), None),
        candidate(&json!([{"text": "Adding."}]), None),
        candidate(&json!([{"text": "", "thoughtSignature": "dGV4dA=="}]), None),
        last,
    ]);
    let signed = Thought::Signed { text: String::new(), signature: "dGV4dA==".into() };
    let with_signature = RequestedCall {
        extras: Extras::from_iter([("thoughtSignature".to_owned(), json!("c2ln"))]),
        ..call("", "{\"x\":1}")
    };
    for size in [1, 7, body.len()] {
        let (pieces, request) = exchange(Protocol::Gemini, &body, size, question()).await;
        let mut pieces: Vec<_> = pieces.into_iter().collect::<Result<_, _>>().unwrap();
        pieces.retain(|piece| !matches!(piece, ModelChunk::Fragment { .. }));
        let usage = ModelUsage {
            prompt_tokens: 11,
            completion_tokens: 7,
            cached_tokens: 8,
            cache_write_tokens: 0,
            reasoning_tokens: 4,
        };
        let expected = [
            ModelChunk::Thinking("hm".into()),
            ModelChunk::Text("Adding.".into()),
            ModelChunk::Thought(signed.clone()),
            ModelChunk::Call(with_signature.clone()),
            ModelChunk::Call(call("", "{}")),
            ModelChunk::End { stop: StopReason::ToolCalls, usage },
        ];
        assert_eq!(pieces, expected, "by {size}");
        let system = json!({"parts": [{"text": "be brief"}]});
        let declared = &request["tools"][0]["functionDeclarations"][0];
        assert_eq!((&request["systemInstruction"], &declared["name"]), (&system, &json!("add")), "{request:#}");
    }
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let parts = vec![TurnPart::Text("Adding.".into()), TurnPart::Thought(signed), TurnPart::Call(with_signature)];
    let turn = Message::Assistant(AssistantTurn { parts, api: None });
    let request = provider::request([question(), vec![turn, answer("", vec![image])]].concat());
    let part = json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}});
    let model_parts = json!([{"text": "Adding."}, {"text": "", "thoughtSignature": "dGV4dA=="},
        {"functionCall": {"name": "add", "args": {"x": 1}}, "thoughtSignature": "c2ln"}]);
    let body = gemini::body("gemini-3.8-flash", &request);
    let response = json!({"name": "plot", "response": {"result": ""}, "parts": [part]});
    let expected = json!([
        {"role": "user", "parts": [{"text": "1 + 2, and 3 + 4?"}]},
        {"role": "model", "parts": model_parts},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]);
    assert_eq!(body["contents"], expected, "{body:#}");
    let body = gemini::body("gemini-2.5-pro", &request);
    assert_eq!(body["contents"][2]["parts"][1], part, "before Gemini 3 beside the response");
}

#[tokio::test]
async fn a_blocked_prompt_and_a_withheld_answer_are_named() {
    let ratings = json!([{"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": true}]);
    let blocked = events(&[json!({"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": ratings}})]);
    let (pieces, _) = exchange(Protocol::Gemini, &blocked, 4_096, question()).await;
    let expected = "the prompt was blocked: SAFETY (HARM_CATEGORY_HARASSMENT)";
    assert_eq!(pieces, [Err(ModelError::Refused(expected.into()))]);

    let withheld = events(&[json!({"candidates": [{"finishReason": "SAFETY", "safetyRatings": ratings}]})]);
    let pieces = chunks_of(Protocol::Gemini, &withheld).await;
    let [ModelChunk::Text(text), ModelChunk::End { stop: StopReason::Refusal, .. }] = &pieces[..] else {
        panic!("{pieces:?}")
    };
    assert_eq!(text, "The provider withheld the answer: SAFETY (HARM_CATEGORY_HARASSMENT).");

    let cut = events(&[candidate(&json!([{"text": "It"}]), Some("MAX_TOKENS"))]);
    let pieces = chunks_of(Protocol::Gemini, &cut).await;
    assert!(matches!(pieces.last(), Some(ModelChunk::End { stop: StopReason::Length, .. })), "{pieces:?}");

    let malformed = events(&[candidate(&json!([]), Some("MALFORMED_FUNCTION_CALL"))]);
    let (pieces, _) = exchange(Protocol::Gemini, &malformed, 4_096, question()).await;
    assert!(matches!(&pieces[..], [Err(ModelError::Unavailable(_))]), "asked again: {pieces:?}");
}

#[tokio::test]
async fn signatures_count_in_the_length_of_an_answer() {
    let signature = "c2ln".repeat(200 << 10);
    let call = json!([{"functionCall": {"name": "add", "args": {}}, "thoughtSignature": signature}]);
    let body = events(&[candidate(&call, None)]).repeat(6);
    let (pieces, _) = exchange(Protocol::Gemini, &body, 64 << 10, question()).await;
    assert!(matches!(pieces.last(), Some(Err(ModelError::Garbled(_)))), "they are longer than 4 MiB");
}

#[test]
fn thinking_is_a_level_from_gemini_3_on_and_a_number_of_tokens_before() {
    for (model, effort, expected) in [
        ("gemini-3.8-flash", Effort::Low, json!({"includeThoughts": true, "thinkingLevel": "LOW"})),
        ("gemini-3.8-flash", Effort::None, json!({"includeThoughts": true, "thinkingLevel": "MINIMAL"})),
        ("gemini-3.1-pro", Effort::Minimal, json!({"includeThoughts": true, "thinkingLevel": "LOW"})),
        ("gemini-2.5-pro", Effort::Low, json!({"includeThoughts": true, "thinkingBudget": 2_048})),
        ("gemini-2.5-pro", Effort::None, json!({"includeThoughts": false, "thinkingBudget": 128})),
        ("gemini-2.5-flash", Effort::None, json!({"includeThoughts": false, "thinkingBudget": 0})),
        ("gemini-2.5-flash", Effort::Max, json!({"includeThoughts": true, "thinkingBudget": 24_576})),
    ] {
        let options = ModelOptions { thinking: Some(Thinking::Effort(effort)), ..ModelOptions::default() };
        let request = ModelRequest { options, ..provider::request(question()) };
        let body = gemini::body(model, &request);
        assert_eq!(body["generationConfig"]["thinkingConfig"], expected, "{model}, {effort:?}");
    }
}
