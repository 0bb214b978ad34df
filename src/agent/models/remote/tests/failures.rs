//! Answers that are cut off, and errors in place of an answer.

use std::time::Duration;

use super::*;

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
            (401, "upstream_error", "check the profile's api_key"),
            (404, "upstream_error", "check the profile's model"),
        ] {
            let answer = Answer::whole(protocol, echo.as_bytes(), 4_096).status(status);
            let pieces = Provider::serving(answer).await.ask(protocol, question()).await;
            let [Err(error)] = &pieces[..] else { panic!("{protocol:?} {status}: {pieces:?}") };
            assert_eq!(error.code(), code, "{status}");
            assert!(error.to_string().contains(hint) && !format!("{error:?}{error}").contains(KEY), "{error}");
            if let ModelError::Overloaded { retry_after } | ModelError::Limited { retry_after, .. } = error {
                assert_eq!(*retry_after, Some(Duration::from_secs(7)), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_contains_the_providers_name_for_it() {
    for (protocol, body, expected) in [
        (
            Protocol::Openai,
            json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}}),
            "context_length_exceeded",
        ),
        (Protocol::Openai, json!({"error": {"type": "insufficient_quota", "code": 7}}), "insufficient_quota"),
        (Protocol::Anthropic, json!({"type": "error", "error": {"type": "request_too_large"}}), "request_too_large"),
        (Protocol::Bedrock, json!({"__type": "ValidationException", "message": "no"}), "ValidationException"),
    ] {
        let answer = Answer::whole(protocol, body.to_string().as_bytes(), 4_096).status(400);
        let pieces = Provider::serving(answer).await.ask(protocol, question()).await;
        let expected = ModelError::Refused(format!("HTTP 400 ({expected})"));
        assert_eq!(pieces, [Err(expected)], "{body}");
    }
}

#[tokio::test]
async fn failures_within_an_answer_are_distinguished() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": KEY}});
    let broken = json!({"type": "error", "error": {"type": "api_error", "message": KEY}});
    let failure =
        |name: &str| aws_events::tests::frame(&[(":message-type", "exception"), (":exception-type", name)], KEY);
    let limited = ModelError::Limited { status: 429, retry_after: None };
    let unavailable = ModelError::Unavailable("it reported an error in its answer".into());
    for (protocol, event, expected) in [
        (Protocol::Anthropic, anthropic(&[overloaded]), ModelError::Overloaded { retry_after: None }),
        (Protocol::Anthropic, anthropic(&[broken]), unavailable.clone()),
        (Protocol::Openai, openai(&[json!({"error": {"code": "rate_limit_exceeded"}})]), limited.clone()),
        (Protocol::Openai, openai(&[json!({"error": {"code": 500, "message": KEY}})]), unavailable.clone()),
        (Protocol::Bedrock, failure("throttlingException"), limited),
        (Protocol::Bedrock, failure("modelStreamErrorException"), unavailable),
    ] {
        let (mut pieces, _) = exchange(protocol, &event, 4_096, question()).await;
        assert_eq!(pieces.pop(), Some(Err(expected)), "{protocol:?}");
        assert_eq!(pieces, [], "{protocol:?}");
    }
}
