use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::model_api::encoder::encoded_run;
use sekisho_agent::models::ModelError;
use sekisho_agent::{Event, RunError};
use sekisho_core::error::ErrorCode;

fn content(text: &str) -> Event {
    Event::Content { text: text.into() }
}

fn client_call(id: &str) -> Event {
    Event::ClientToolCall { id: id.into(), tool_name: "click".into(), arguments: "{\"x\":1}".into() }
}

fn finished(reason: sekisho_agent::FinishReason) -> Event {
    Event::Finished { reason, messages: Vec::new() }
}

fn error() -> Event {
    Event::Error(RunError::from(&ModelError::Timeout))
}

fn used() -> Event {
    Event::Usage(RunUsage { prompt_tokens: 7, completion_tokens: 5, cached_tokens: 3, ..RunUsage::default() })
}

fn chunks_for(include_usage: bool, events: Vec<Event>) -> Vec<Value> {
    let chunks = encoded_run(ChunkEncoder::new("weather", include_usage), events);
    chunks.iter().map(|chunk| serde_json::to_value(chunk).unwrap()).collect()
}

fn content_of(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

fn finish(chunks: &[Value]) -> &Value {
    let reasons: Vec<_> =
        chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).filter(|reason| !reason.is_null()).collect();
    assert_eq!(reasons.len(), 1, "{chunks:?}");
    reasons[0]
}

#[test]
fn an_answer_is_sent_in_openai_chunks() {
    let tool = Event::ToolInput { id: "a".into(), tool_name: "calculator".into(), arguments: Map::new() };
    let mut chunks = chunks_for(false, vec![tool, content("It is warm."), used()]);
    let id = chunks[0]["id"].clone();
    for chunk in &mut chunks {
        assert_eq!(chunk["id"], id);
        assert!(chunk["created"].as_i64().unwrap() > 1_700_000_000);
        (chunk["id"], chunk["created"]) = (json!("chatcmpl"), json!(1));
    }
    let chunk = |delta: Value, finish_reason: Value| {
        json!({"id": "chatcmpl", "object": "chat.completion.chunk", "created": 1, "model": "weather",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})
    };
    let expected = [
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"content": "It is warm."}), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    assert_eq!(chunks, expected);
}

#[test]
fn the_texts_of_two_turns_have_a_blank_line_between_them() {
    let tool = || Event::ToolResult { id: "a".into(), tool_name: "weather".into(), result: "25".into() };
    let run = || vec![content("I look."), tool(), content("It is "), content("warm."), used()];
    assert_eq!(content_of(&chunks_for(false, run())), "I look.\n\nIt is warm.");
    let whole = serde_json::to_value(Completion::of("weather", Output::whole(run()).unwrap())).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "I look.\n\nIt is warm.");
}

#[test]
fn usage_comes_last_if_requested_and_is_null_before() {
    let chunks = chunks_for(true, vec![content("a"), used()]);
    let (last, before) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(
        last["usage"],
        json!({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3}})
    );
    assert!(before.iter().all(|chunk| chunk.get("usage").is_some_and(Value::is_null)), "{before:?}");
}

#[test]
fn calls_of_the_clients_tools_are_sent_with_their_index() {
    let chunks =
        chunks_for(false, vec![client_call("a"), client_call("b"), finished(sekisho_agent::FinishReason::ToolCalls)]);
    for (place, id) in [(0, "a"), (1, "b")] {
        let expected = json!([{"index": place, "id": id, "type": "function",
            "function": {"name": "click", "arguments": "{\"x\":1}"}}]);
        assert_eq!(chunks[place + 1]["choices"][0]["delta"]["tool_calls"], expected);
    }
    assert_eq!(finish(&chunks), "tool_calls");
}

fn paused_call() -> (PausedCall, Value) {
    let call =
        json!({"id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"});
    (serde_json::from_value(call.clone()).unwrap(), call)
}

#[test]
fn the_calls_of_a_paused_run_are_in_the_last_chunk_and_in_the_message() {
    let (paused, call) = paused_call();
    let run = |reason| vec![content("Let me see."), Event::Approval(paused.clone()), finished(reason)];
    let chunks = chunks_for(false, run(sekisho_agent::FinishReason::ApprovalRequired));
    assert_eq!(finish(&chunks), "approval_required");
    assert_eq!(chunks.last().unwrap()["choices"][0]["delta"], json!({"approvals": [call]}));
    let output = Output::whole(run(sekisho_agent::FinishReason::ApprovalRequired)).unwrap();
    let whole = serde_json::to_value(Completion::of("weather", output)).unwrap();
    let message = json!({"role": "assistant", "content": "Let me see.", "approvals": [call]});
    assert_eq!(whole["choices"][0], json!({"index": 0, "message": message, "finish_reason": "approval_required"}));
    // The last chunk of a run with another end has no calls.
    let chunks = chunks_for(false, run(sekisho_agent::FinishReason::Limit));
    assert_eq!(chunks.last().unwrap()["choices"][0]["delta"], json!({}));
}

/// A70.
#[test]
fn an_error_in_the_middle_is_sent_after_the_content() {
    let chunks = chunks_for(false, vec![content("It is"), error(), finished(sekisho_agent::FinishReason::Error)]);
    assert_eq!(content_of(&chunks), "It is\n\n[the model did not answer in time]");
    assert_eq!(finish(&chunks), "error");
    let failure = json!({
        "message": "the model did not answer in time", "type": "server_error", "param": null, "code": "timeout",
    });
    assert_eq!(chunks.last().unwrap()["error"], failure);
    assert!(chunks.iter().rev().skip(1).all(|chunk| chunk.get("error").is_none()), "{chunks:?}");
}

#[test]
fn a_run_ended_by_a_limit_reports_it() {
    let limit = Event::Status { status: "turn_limit".into(), message: "50 turns are used up".into() };
    let chunks = chunks_for(false, vec![limit, finished(sekisho_agent::FinishReason::Limit)]);
    assert_eq!((content_of(&chunks).as_str(), finish(&chunks)), ("\n\n[50 turns are used up]", &json!("length")));
}

#[test]
fn a_complete_completion_has_the_same_content() {
    let whole =
        |events: Vec<Event>| serde_json::to_value(Completion::of("weather", Output::whole(events).unwrap())).unwrap();
    let answer = whole(vec![content("It is "), content("warm."), used()]);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["message"], json!({"role": "assistant", "content": "It is warm."}));
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["total_tokens"]),
        (&json!("stop"), &json!(12))
    );
    let calls = whole(vec![client_call("a"), finished(sekisho_agent::FinishReason::ToolCalls)]);
    let expected = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "click", "arguments": "{\"x\":1}"}}]});
    assert_eq!(
        (&calls["choices"][0]["message"], &calls["choices"][0]["finish_reason"]),
        (&expected, &json!("tool_calls"))
    );
}

#[test]
fn a_complete_completion_that_failed_is_an_error_with_the_content_so_far() {
    let error = Output::whole([content("It is"), error(), used()]).unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::Timeout, "the model did not answer in time"));
    assert_eq!(error.output(), Some(&json!("It is")));
}

proptest! {
    #[test]
    fn no_piece_is_long_and_nothing_is_lost(text in "\\PC{0,180}") {
        let pieces: Vec<_> = pieces(&text).collect();
        prop_assert_eq!(pieces.concat(), text.as_str());
        prop_assert!(pieces.iter().all(|piece| (1..=MAX_PIECE).contains(&piece.chars().count())));
    }
}
