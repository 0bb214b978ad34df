//! OpenAI's Responses: a whole exchange, with its reasoning, and what goes back.

use super::*;
use sekisho_config::{AgentProfile, ModelRow};

fn events(events: &[Value]) -> Vec<u8> {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect::<String>()
        .into_bytes()
}

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z2VoZWlt"})
}

fn two_calls_of_responses() -> Vec<u8> {
    let item = |kind: &str, index: u32, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
    let function = |id: &str, arguments: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "add", "arguments": arguments});
    let delta = |kind: &str, index: u32, delta: &str| json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta});
    let answered = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z2VoZWlt",
        "status": "completed", "content": null});
    let usage = json!({"input_tokens": 11, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 18});
    events(&[
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        item("added", 0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        delta("reasoning_summary_text", 0, "hm"),
        item("done", 0, answered),
        item("added", 1, json!({"type": "message", "role": "assistant", "content": []})),
        delta("output_text", 1, "Adding."),
        item("done", 1, json!({"type": "message", "content": [{"type": "output_text", "text": "Adding."}]})),
        item("added", 2, function("a", "")),
        delta("function_call_arguments", 2, "{\"x\":"),
        delta("function_call_arguments", 2, "1}"),
        item("done", 2, function("a", "{\"x\":1}")),
        // Some servers send no fragments.
        item("done", 3, function("b", "{\"x\":3}")),
        json!({"type": "response.completed", "response": {"status": "completed", "usage": usage}}),
    ])
}

#[tokio::test]
async fn a_response_is_read_and_its_reasoning_goes_back_in_its_place() {
    let body = two_calls_of_responses();
    for size in [1, 7, body.len()] {
        let (pieces, request) = exchange(Protocol::Responses, &body, size, question()).await;
        let mut pieces: Vec<_> = pieces.into_iter().collect::<Result<_, _>>().unwrap();
        pieces.retain(|piece| !matches!(piece, ModelChunk::Fragment { .. }));
        let usage = ModelUsage {
            prompt_tokens: 11,
            completion_tokens: 7,
            cached_tokens: 8,
            cache_write_tokens: 0,
            reasoning_tokens: 3,
        };
        let expected = [
            ModelChunk::Thinking("hm".into()),
            ModelChunk::Thought(Thought::Details(vec![reasoning()])),
            ModelChunk::Text("Adding.".into()),
            ModelChunk::Call(call("a", "{\"x\":1}")),
            ModelChunk::Call(call("b", "{\"x\":3}")),
            ModelChunk::End { stop: StopReason::ToolCalls, usage },
        ];
        assert_eq!(pieces, expected, "by {size}");
        assert_eq!((&request["store"], &request["stream"]), (&json!(false), &json!(true)));
        assert_eq!(request["instructions"], "be brief");
        assert_eq!(request["tools"][0]["name"], "add");
        assert!(request.get("previous_response_id").is_none(), "{request:#}");
    }
    let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
    let parts = vec![
        TurnPart::Thought(Thought::Details(vec![reasoning()])),
        TurnPart::Text("Adding.".into()),
        TurnPart::Call(call("a", "{\"x\":1}")),
        // Its item never arrived: the provider would refuse it.
        TurnPart::Thought(Thought::Details(vec![reasoning()])),
    ];
    let turn = Message::Assistant(AssistantTurn { parts, api: None });
    let late = Message::System("It is Tuesday now.".into());
    let messages = [question(), vec![turn, answer("a", vec![image]), late]].concat();
    let (_, request) = exchange(Protocol::Responses, &body, 4_096, messages).await;
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1 + 2, and 3 + 4?"}]},
        reasoning(),
        {"type": "message", "role": "assistant", "content": "Adding."},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{\"x\":1}"},
        {"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}]},
        {"type": "message", "role": "developer", "content": "It is Tuesday now."},
    ]);
    assert_eq!(request["input"], expected, "{request:#}");
}

#[tokio::test]
async fn the_end_of_a_response_is_read() {
    let ended = |kind: &str, response: Value| events(&[json!({"type": kind, "response": response})]);
    let incomplete = |reason: &str| {
        let details = json!({"reason": reason});
        ended("response.incomplete", json!({"status": "incomplete", "incomplete_details": details}))
    };
    let refusal = events(&[
        json!({"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."}),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ]);
    for (body, expected) in [
        (ended("response.completed", json!({"status": "completed", "error": null})), StopReason::Stop),
        (incomplete("max_output_tokens"), StopReason::Length),
        (incomplete("content_filter"), StopReason::Refusal),
        (refusal, StopReason::Refusal),
    ] {
        let pieces = chunks_of(Protocol::Responses, &body).await;
        assert!(matches!(pieces.last(), Some(ModelChunk::End { stop, .. }) if *stop == expected), "{pieces:?}");
    }
    let failed = json!({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow down."}});
    let failed = ended("response.failed", failed);
    let error = events(&[json!({"type": "error", "code": "server_error", "message": "Oh."})]);
    for (body, expected) in [(failed, "Slow down."), (error, "Oh.")] {
        let (pieces, _) = exchange(Protocol::Responses, &body, 4_096, question()).await;
        let [Err(error)] = &pieces[..] else { panic!("{pieces:?}") };
        assert!(error.to_string().contains(expected), "{error}");
    }
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "3"}]}]);
    let whole = json!({"object": "response", "status": "completed", "output": output}).to_string();
    let answer = Answer::whole(Protocol::Responses, whole.as_bytes(), 7).header("content-type", "application/json");
    let pieces = Provider::serving(answer).await.ask(Protocol::Responses, question()).await;
    assert_eq!(pieces[0], Ok(ModelChunk::Text("3".into())), "without a stream");
}

#[test]
fn reasoning_is_asked_for_encrypted_and_in_any_effort() {
    let request = |effort| {
        let thinking = Some(Thinking::Effort(effort));
        let options = ModelOptions { thinking, temperature: Some(0.2), ..ModelOptions::default() };
        ModelRequest { options, ..provider::request(question()) }
    };
    for (effort, expected) in [
        (Effort::None, json!({"effort": "none"})),
        (Effort::Xhigh, json!({"effort": "xhigh", "summary": "auto"})),
        (Effort::Max, json!({"effort": "max", "summary": "auto"})),
    ] {
        let body = responses::body("gpt-5.6-sol", &request(effort), true);
        assert_eq!((&body["reasoning"], &body["include"][0]), (&expected, &json!("reasoning.encrypted_content")));
        assert!(body.get("temperature").is_none(), "{body:#}");
    }
    let body = responses::body("gpt-4.1", &provider::request(question()), false);
    assert_eq!((body.get("include"), body.get("reasoning"), &body["temperature"]), (None, None, &json!(0.2)));
}

#[tokio::test]
async fn an_account_that_is_refused_summaries_is_asked_without_them() {
    let sentence = "Your organization must be verified to generate reasoning summaries.";
    let refusal = json!({"error": {"message": sentence, "code": "unsupported_value"}}).to_string();
    let answers = vec![
        Answer::whole(Protocol::Responses, refusal.as_bytes(), 4_096).status(400),
        Answer::whole(Protocol::Responses, &two_calls_of_responses(), 4_096),
    ];
    let provider = Provider::serving_in_turn(answers).await;
    let options = ModelOptions { thinking: Some(Thinking::Effort(Effort::Low)), ..ModelOptions::default() };
    let request = ModelRequest { options, ..provider::request(question()) };
    let model = provider.model(Protocol::Responses);
    let pieces: Vec<_> = model.stream(Arc::new(request)).collect().await;
    assert!(matches!(pieces.last(), Some(Ok(ModelChunk::End { .. }))), "{pieces:?}");
    let sent: Vec<_> = provider.requests.lock().iter().map(|request| request["reasoning"].clone()).collect();
    assert_eq!(sent, [json!({"effort": "low", "summary": "auto"}), json!({"effort": "low"})]);
}

#[tokio::test]
async fn headers_and_members_of_a_profile_are_in_each_request_and_headers_are_secrets() {
    let secret = "team-secret-7f3a";
    let refusal = json!({"error": {"message": format!("wrong team {secret}")}}).to_string();
    let answer = Answer::whole(Protocol::Responses, refusal.as_bytes(), 4_096).status(403);
    let provider = Provider::serving(answer).await;
    let profile = AgentProfile {
        headers: [("x-team".to_owned(), sekisho_config::Secret::new(secret))].into(),
        extra_body: [("service_tier".to_owned(), json!("flex")), ("store".to_owned(), json!(true))].into(),
        ..AgentProfile::default()
    };
    let model = provider.model(Protocol::Responses).with_settings(&profile).unwrap();
    let pieces: Vec<_> = model.stream(Arc::new(provider::request(question()))).collect().await;
    let [Err(ModelError::Refused(sentence))] = &pieces[..] else { panic!("{pieces:?}") };
    assert!(sentence.contains("wrong team [redacted]"), "{sentence}");
    let request = provider.requests.lock()[0].clone();
    assert_eq!((&request["service_tier"], &request["store"]), (&json!("flex"), &json!(true)), "{request:#}");
}

/// In Chat Completions these models refuse tools together with reasoning.
#[tokio::test]
async fn a_model_that_thinks_is_asked_not_to_where_chat_completions_refuse_it_beside_tools() {
    let row = ModelRow {
        efforts: vec![Effort::None, Effort::Low],
        refuses: vec![sekisho_config::RefusedFeature::ToolsWithReasoning],
        ..ModelRow::default()
    };
    let provider = Provider::serving(Answer::whole(Protocol::Openai, &two_calls(Protocol::Openai), 4_096)).await;
    let model = provider.model(Protocol::Openai).with_row(row);
    let without_tools = ModelRequest { tools: Vec::new(), ..provider::request(question()) };
    for request in [provider::request(question()), without_tools] {
        let pieces: Vec<_> = model.stream(Arc::new(request)).collect().await;
        assert!(matches!(pieces.last(), Some(Ok(ModelChunk::End { .. }))), "{pieces:?}");
    }
    let sent: Vec<_> = provider.requests.lock().iter().map(|request| request["reasoning_effort"].clone()).collect();
    assert_eq!(sent, [json!("none"), Value::Null]);
}
