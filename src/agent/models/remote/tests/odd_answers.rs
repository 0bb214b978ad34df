//! Answers that deviate from their protocols: the cases are data, in `tests/fixtures/model_apis/odd_answers.yaml`.

use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    protocol: WireProtocol,
    media_type: Option<String>,
    #[serde(default)]
    data: Vec<String>,
    body: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    kept_thought: Option<String>,
    #[serde(default)]
    calls: Vec<String>,
    tokens: Option<(u64, u64)>,
    error: Option<String>,
    #[serde(default)]
    oddities: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireProtocol {
    #[default]
    Openai,
    Anthropic,
    Responses,
    Gemini,
}

#[tokio::test]
async fn answers_that_deviate_from_their_protocol_are_read_and_counted() {
    let cases: Vec<Case> =
        serde_saphyr::from_str(include_str!("../../../../../tests/fixtures/model_apis/odd_answers.yaml")).unwrap();
    for case in cases {
        let protocol = match case.protocol {
            WireProtocol::Openai => Protocol::Openai,
            WireProtocol::Anthropic => Protocol::Anthropic,
            WireProtocol::Responses => Protocol::Responses,
            WireProtocol::Gemini => Protocol::Gemini,
        };
        let events = || case.data.iter().map(|data| format!("data: {data}\n\n")).collect::<String>();
        let body = case.body.clone().unwrap_or_else(events);
        let mut answer = Answer::whole(protocol, body.as_bytes(), 7);
        if let Some(media_type) = &case.media_type {
            answer = answer.header("content-type", media_type);
        }
        let metrics = Arc::new(Metrics::new("ns").unwrap());
        let model = Provider::serving(answer).await.model(protocol).counted_in(Arc::clone(&metrics));
        let mut pieces: Vec<_> = model.stream(Arc::new(provider::request(question()))).collect().await;
        let end = pieces.pop();
        let pieces: Vec<_> = pieces.into_iter().map(Result::unwrap).collect();
        let name = &case.name;
        let text: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                ModelChunk::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let thinking: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                ModelChunk::Thinking(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let shown = |call: RequestedCall| format!("{} {}", call.tool, call.arguments);
        let called: Vec<_> = calls(&pieces).into_iter().map(shown).collect();
        assert_eq!((&text, &thinking, &called), (&case.text, &case.thinking, &case.calls), "{name}");
        if let Some(expected) = case.kept_thought {
            let kept = ModelChunk::Thought(Thought::Unsigned { text: expected, field: "thinking" });
            assert!(pieces.contains(&kept), "{name}: {pieces:?}");
        }
        match (end, case.error) {
            (Some(Ok(ModelChunk::End { stop, usage })), None) => {
                let expected = if called.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
                assert_eq!(stop, expected, "{name}");
                if let Some((prompt, completion)) = case.tokens {
                    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (prompt, completion), "{name}");
                }
            }
            (Some(Err(error)), Some(expected)) => assert!(error.to_string().ends_with(&expected), "{name}: {error}"),
            (end, _) => panic!("{name}: {end:?}"),
        }
        let exported = metrics.render();
        let counted = exported.lines().filter(|line| line.starts_with("ns_agent_odd_answers_total{"));
        let expected = case.oddities.iter().map(|kind| {
            let provider = "other";
            format!("ns_agent_odd_answers_total{{oddity=\"{kind}\",provider=\"{provider}\"}} 1")
        });
        assert_eq!(counted.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn arguments_that_were_encoded_twice_go_back_as_an_object() {
    assert_eq!(call("a", r#""{\"x\": 1}""#).parsed_arguments(), json!({"x": 1}));
}

#[tokio::test]
async fn refusals_of_other_vendors_are_read() {
    let google = |quota: &str| {
        json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded.", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}]}}])
    };
    let after = Some(std::time::Duration::from_millis(3_500));
    let limited = "HTTP 429: Quota exceeded. (RESOURCE_EXHAUSTED)".to_owned();
    for (status, body, expected) in [
        (
            429,
            google("GenerateRequestsPerMinutePerProjectPerModel"),
            ModelError::Limited { status: 429, retry_after: after, sentence: limited },
        ),
        (
            429,
            google("GenerateRequestsPerDayPerProjectPerModel-FreeTier"),
            ModelError::OutOfQuota("Quota exceeded. (RESOURCE_EXHAUSTED)".into()),
        ),
        (
            422,
            json!({"detail": [{"type": "missing", "loc": ["body", 0, "model"], "msg": "Field required"}]}),
            ModelError::Refused("HTTP 422: missing: body.0.model: Field required".into()),
        ),
        (
            400,
            json!({"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}}),
            ModelError::Unavailable("Failed to call a function. (tool_use_failed)".into()),
        ),
    ] {
        // Without the header, which has a wait of its own.
        let answer = Answer::whole(Protocol::Openai, body.to_string().as_bytes(), 4_096).status(status);
        let answer = answer.header("retry-after", "soon");
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        assert_eq!(pieces, [Err(expected)], "{body}");
    }
}

/// Mistral's sentence is in a list within an object.
#[tokio::test]
async fn a_field_that_mistral_refuses_is_left_out_from_then_on() {
    let detail = json!([{"type": "extra_forbidden", "loc": ["body", "stream_options"],
        "msg": "Extra inputs are not permitted", "input": {"include_usage": true}}]);
    let refusal = json!({"object": "error", "message": {"detail": detail}, "type": "invalid_request_error"});
    let refusal = Answer::whole(Protocol::Openai, refusal.to_string().as_bytes(), 4_096).status(422);
    let answers = vec![refusal, Answer::whole(Protocol::Openai, &two_calls(Protocol::Openai), 4_096)];
    let provider = Provider::serving_in_turn(answers).await;
    let pieces = provider.ask(Protocol::Openai, question()).await;
    assert!(matches!(pieces.last(), Some(Ok(ModelChunk::End { .. }))), "{pieces:?}");
    let sent: Vec<_> = provider.requests.lock().iter().map(|request| request.get("stream_options").is_some()).collect();
    assert_eq!(sent, [true, false]);
}

#[tokio::test]
async fn a_turn_that_bedrock_could_not_read_is_no_good_end() {
    for reason in ["malformed_model_output", "malformed_tool_use"] {
        let body = bedrock(&[("messageStop", json!({"stopReason": reason}))]);
        let (pieces, _) = exchange(Protocol::Bedrock, &body, 4_096, question()).await;
        let [Err(ModelError::Unavailable(sentence))] = &pieces[..] else { panic!("{reason}: {pieces:?}") };
        assert!(sentence.contains(reason), "{sentence}");
    }
}

#[test]
fn mistral_gets_no_stream_options_short_ids_and_images_with_their_result() {
    let image = || Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let turn = AssistantTurn::new("", [call("call_1", "{}")]);
    let messages = [question(), vec![Message::Assistant(turn), answer("call_1", vec![image()])]].concat();
    let request = provider::request(messages);
    let body = openai::body("mistral-large-latest", &request, Vendor::Mistral);
    assert!(body.get("stream_options").is_none(), "{body:#}");
    let result = &body["messages"][3];
    assert_eq!(result["tool_call_id"], body["messages"][2]["tool_calls"][0]["id"], "{body:#}");
    assert_eq!(result["tool_call_id"].as_str().map(str::len), Some(9), "{body:#}");
    assert_eq!((body["messages"].as_array().unwrap().len(), &result["content"][1]["type"]), (4, &json!("image_url")));
    let body = openai::body("mistralai/mistral-small", &request, Vendor::Other);
    assert_eq!(body["messages"][3]["tool_call_id"].as_str().map(str::len), Some(9), "{body:#}");
    let body = openai::body("gpt-4o", &request, Vendor::Other);
    assert_eq!(body["messages"][3]["tool_call_id"], "call_1", "{body:#}");
}
