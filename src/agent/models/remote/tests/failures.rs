//! Answers that are cut off, and errors in place of an answer.

use std::time::Duration;

use super::*;
use sekisho_config::SignInConfig;
use sekisho_core::error::ErrorCode;

#[tokio::test]
async fn an_answer_cut_off_has_no_end() {
    for protocol in ALL {
        let body = two_calls(protocol);
        let (pieces, _) = exchange(protocol, &body[..body.len() / 2], 64, question()).await;
        let is_end = |piece: &_| matches!(piece, Ok(ModelChunk::End { .. } | ModelChunk::Call(_)));
        assert!(!pieces.iter().any(is_end), "{pieces:?}");
    }
}

#[tokio::test]
async fn failures_are_distinguished_and_contain_no_key() {
    let echo = format!("{{\"error\": {{\"message\": \"wrong key {KEY}\", \"type\": \"{KEY}\"}}}}");
    for protocol in ALL {
        for (status, code, hint) in [
            (529, "overloaded", "overloaded"),
            (500, "upstream_error", "HTTP 500"),
            (429, "upstream_error", "is rate limiting or unavailable: HTTP 429"),
            (503, "upstream_error", "is rate limiting or unavailable: HTTP 503"),
            (400, "model_refused", "HTTP 400: wrong key [redacted]"),
            (401, "model_refused", "check the profile's api_key"),
            (404, "model_refused", "check the profile's model"),
            (408, "upstream_error", "HTTP 408"),
            (413, "context_length_exceeded", "HTTP 413"),
            (402, "rate_limited", "the quota with the model's provider is used up"),
        ] {
            let answer = Answer::whole(protocol, echo.as_bytes(), 4_096).status(status);
            let pieces = Provider::serving(answer).await.ask(protocol, question()).await;
            let [Err(error)] = &pieces[..] else { panic!("{protocol:?} {status}: {pieces:?}") };
            assert_eq!(error.code().as_str(), code, "{status}");
            assert!(error.to_string().contains(hint) && !format!("{error:?}{error}").contains(KEY), "{error}");
            if let ModelError::Overloaded { retry_after } | ModelError::Limited { retry_after, .. } = error {
                assert_eq!(*retry_after, Some(Duration::from_secs(7)), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn an_access_token_in_an_answer_is_left_out_of_its_error() {
    const TOKEN: &str = "access-token-do-not-tell";
    let granted = json!({"access_token": TOKEN}).to_string();
    let service = Provider::serving(Answer::whole(Protocol::Openai, granted.as_bytes(), 4_096)).await;
    let sign_in = SignInConfig {
        token_url: Some(service.url.clone()),
        client_id: Some("gateway".into()),
        client_secret: Some(Secret::new("s3cret-of-the-client")),
        ..SignInConfig::default()
    };
    let profile = AgentProfile { sign_in: Some(sign_in), ..AgentProfile::default() };
    let error = json!({"error": {"message": format!("no model for {TOKEN}")}}).to_string();
    for (media_type, body) in [("text/event-stream", format!("data: {error}\n\n")), ("text/html", error)] {
        let answer = Answer::whole(Protocol::Openai, body.as_bytes(), 4_096).header("content-type", media_type);
        let provider = Provider::serving(answer).await;
        let model = provider.model(Protocol::Openai).with_settings(&profile).unwrap();
        let pieces: Vec<_> = model.stream(Arc::new(provider::request(question()))).collect().await;
        let [Err(error)] = &pieces[..] else { panic!("{media_type}: {pieces:?}") };
        let sentence = error.to_string();
        assert!(sentence.contains("[redacted]") && !sentence.contains(TOKEN), "{media_type}: {sentence}");
    }
}

/// The sentences are from the providers' documentation, or from their public issues.
#[tokio::test]
async fn a_refusal_has_the_providers_sentence_and_the_code_for_it() {
    let refused = |message: &str| ModelError::Refused(format!("HTTP 400: {message}"));
    let too_long = |message: &str| ModelError::ContextLength(message.into());
    for (protocol, status, body, expected) in [
        (
            Protocol::Openai,
            400,
            json!({"error": {"message": "Unsupported value: 'temperature'", "code": "unsupported_value"}}),
            refused("Unsupported value: 'temperature' (unsupported_value)"),
        ),
        (
            Protocol::Openai,
            400,
            json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}}),
            too_long("(context_length_exceeded)"),
        ),
        (
            Protocol::Openai,
            400,
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
                "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}]),
            too_long("The input token count (9) exceeds the maximum number of tokens allowed (8). (INVALID_ARGUMENT)"),
        ),
        (
            Protocol::Openai,
            429,
            json!({"error": {"type": "insufficient_quota", "code": 7}}),
            ModelError::OutOfQuota("(insufficient_quota)".into()),
        ),
        (
            Protocol::Openai,
            422,
            json!({"detail": "no such field"}),
            ModelError::Refused("HTTP 422: no such field".into()),
        ),
        (
            Protocol::Anthropic,
            400,
            json!({"type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}}),
            too_long("prompt is too long: 9 tokens > 8 maximum (invalid_request_error)"),
        ),
        (
            Protocol::Anthropic,
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "tools.0: no\nschema"}}),
            refused("tools.0: no schema (invalid_request_error)"),
        ),
        (
            Protocol::Bedrock,
            400,
            json!({"__type": "ValidationException", "message": "Input is too long for requested model."}),
            too_long("Input is too long for requested model. (ValidationException)"),
        ),
    ] {
        let answer = Answer::whole(protocol, body.to_string().as_bytes(), 4_096).status(status);
        let pieces = Provider::serving(answer).await.ask(protocol, question()).await;
        assert_eq!(pieces, [Err(expected)], "{body}");
    }
    for sentence in [
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Invalid request: Your request exceeded model token limit: 8192",
        "Range of input length should be [1, 129024]",
        "Prompt exceeds max length",
    ] {
        let body = json!({"error": {"message": sentence}}).to_string();
        let answer = Answer::whole(Protocol::Openai, body.as_bytes(), 4_096).status(400);
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        assert_eq!(pieces, [Err(too_long(sentence))]);
    }
    let sentence = "Your credit balance is too low to access the Anthropic API.";
    let body = json!({"error": {"type": "invalid_request_error", "message": sentence}}).to_string();
    let answer = Answer::whole(Protocol::Anthropic, body.as_bytes(), 4_096).status(400);
    let pieces = Provider::serving(answer).await.ask(Protocol::Anthropic, question()).await;
    assert_eq!(pieces, [Err(ModelError::OutOfQuota(format!("{sentence} (invalid_request_error)")))]);
    let long = json!({"error": {"message": "x".repeat(10_000)}});
    let answer = Answer::whole(Protocol::Openai, long.to_string().as_bytes(), 4_096).status(400);
    let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
    assert_eq!(pieces, [Err(refused(&"x".repeat(500)))]);
}

#[tokio::test]
async fn the_wait_that_a_provider_asks_for_is_read_in_all_its_forms() {
    let date = jiff::fmt::rfc2822::to_string(&(jiff::Zoned::now() + jiff::SignedDuration::from_secs(90))).unwrap();
    for (header, value, expected) in
        [("retry-after", "11", 11..=11), ("retry-after", &date, 80..=90), ("retry-after-ms", "2500", 2..=2)]
    {
        let answer = Answer::whole(Protocol::Openai, b"{}", 1).status(429).header(header, value);
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        let [Err(ModelError::Limited { retry_after: Some(wait), .. })] = &pieces[..] else { panic!("{pieces:?}") };
        assert!(expected.contains(&wait.as_secs()), "{header}: {value}: {wait:?}");
    }
}

/// A failure of the provider is no end of the answer.
#[tokio::test]
async fn a_finish_reason_that_names_a_failure_is_one() {
    for (reason, expected) in [
        ("insufficient_system_resource", ErrorCode::UpstreamError),
        ("network_error", ErrorCode::UpstreamError),
        ("error", ErrorCode::UpstreamError),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", ErrorCode::UpstreamError),
    ] {
        let body = openai(&[delta(&json!({"content": "It is"})), finish(reason)]);
        let (pieces, _) = exchange(Protocol::Openai, &body, 4_096, question()).await;
        let [Ok(ModelChunk::Text(_)), Err(error)] = &pieces[..] else { panic!("{reason}: {pieces:?}") };
        assert_eq!(error.code(), expected, "{reason}: {error}");
    }
}

#[tokio::test]
async fn failures_within_an_answer_are_distinguished() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": KEY}});
    let broken = json!({"type": "error", "error": {"type": "api_error", "message": KEY}});
    let failure =
        |name: &str| aws_events::tests::frame(&[(":message-type", "exception"), (":exception-type", name)], KEY);
    let limited =
        |name: &str| ModelError::Limited { status: 429, retry_after: None, sentence: format!("HTTP 429: ({name})") };
    let unavailable = |rest: &str| ModelError::Unavailable(format!("an error in its answer: {rest}"));
    for (protocol, event, expected) in [
        (Protocol::Anthropic, anthropic(&[overloaded]), ModelError::Overloaded { retry_after: None }),
        (Protocol::Anthropic, anthropic(&[broken]), unavailable("[redacted] (api_error)")),
        (
            Protocol::Openai,
            openai(&[json!({"error": {"code": "rate_limit_exceeded"}})]),
            limited("rate_limit_exceeded"),
        ),
        (Protocol::Openai, openai(&[json!({"error": {"code": 500, "message": KEY}})]), unavailable("[redacted]")),
        (Protocol::Bedrock, failure("throttlingException"), limited("throttlingException")),
        (Protocol::Bedrock, failure("modelStreamErrorException"), unavailable("(modelStreamErrorException)")),
    ] {
        let (mut pieces, _) = exchange(protocol, &event, 4_096, question()).await;
        assert_eq!(pieces.pop(), Some(Err(expected)), "{protocol:?}");
        assert_eq!(pieces, [], "{protocol:?}");
    }
}

#[tokio::test]
async fn a_sentence_in_place_of_json_is_read() {
    let sentence = "the prompt exceeds the context length of 8192 tokens";
    let too_long = ModelError::ContextLength(sentence.into());
    for (media_type, body, expected) in [
        ("text/plain; charset=utf-8", sentence, too_long),
        ("text/plain", "no such deployment", ModelError::Refused("HTTP 400: no such deployment".into())),
        ("text/html", "<html>no such page</html>", ModelError::Refused("HTTP 400".into())),
    ] {
        let answer = Answer::whole(Protocol::Openai, body.as_bytes(), 4_096).status(400);
        let answer = answer.header("content-type", media_type);
        let pieces = Provider::serving(answer).await.ask(Protocol::Openai, question()).await;
        assert_eq!(pieces, [Err(expected)], "{media_type}");
    }
}
