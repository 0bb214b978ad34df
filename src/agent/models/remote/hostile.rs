//! Hostile and broken providers: each failure ends as a typed error, soon, and within the size limits. Sent bytes are
//! counted, including those in the network's buffers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::stream;
use serde_json::json;

use super::provider::{
    ALL, Answer, KEY, Provider, anthropic, bedrock, delta, finish, openai, question, request, two_calls,
};
use super::*;
use crate::models::StopReason;
use sekisho_core::slack::slack;

/// Bytes that the buffers between a sender and the reader hold before the sender blocks; mostly the kernel's.
const ON_THE_WAY: usize = 48 << 20;

/// The timeout of models in these tests.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The chunks of an answer up to an error, each with the run's timeout, and how many bytes the provider sent.
async fn outcome_of(protocol: Protocol, answer: Answer) -> (Vec<ModelChunk>, Option<ModelError>, usize) {
    let provider = Provider::serving(answer).await;
    let model = provider.model(protocol);
    let (mut chunks, begun) = (Vec::new(), Instant::now());
    let error = {
        let mut pieces = model.stream(Arc::new(request(question())));
        loop {
            match tokio::time::timeout(TIMEOUT, pieces.next()).await {
                Ok(Some(Ok(piece))) => chunks.push(piece),
                Ok(Some(Err(error))) => break Some(error),
                Ok(None) => break None,
                Err(_) => break Some(ModelError::Timeout),
            }
        }
    };
    assert!(begun.elapsed() < slack(Duration::from_secs(30)), "{:?}", begun.elapsed());
    let message = format!("{error:?}");
    assert!(!message.contains(KEY), "{message}");
    (chunks, error, provider.sent.load(Ordering::SeqCst))
}

/// The same bytes, repeated without end.
fn endless(protocol: Protocol, begin: &'static str, piece: &str) -> Answer {
    let piece = Bytes::from(piece.repeat((32 << 10) / piece.len().max(1) + 1));
    let pieces = move || {
        let again = piece.clone();
        stream::iter([Bytes::from_static(begin.as_bytes())]).chain(stream::repeat_with(move || again.clone())).boxed()
    };
    Answer::new(protocol, pieces)
}

fn garbled(error: &Option<ModelError>, expected: &str) {
    assert!(matches!(error, Some(ModelError::Garbled(message)) if message.contains(expected)), "{expected}: {error:?}");
}

#[tokio::test]
async fn an_endless_error_body_is_not_read_to_its_end() {
    for protocol in ALL {
        for (status, begin) in [(400, "{\"error\": {\"message\": \""), (500, ""), (200, "")] {
            let answer = endless(protocol, begin, "x").status(status).header("content-type", "application/json");
            let begun = Instant::now();
            let (chunks, error, sent) = outcome_of(protocol, answer).await;
            match (status, error) {
                (400, Some(ModelError::Refused(message))) => assert_eq!(message, "HTTP 400"),
                (500, Some(ModelError::Unavailable(message))) => assert_eq!(message, "HTTP 500"),
                // Compatible servers may send a whole answer instead of a stream.
                (200, error) if protocol != Protocol::Bedrock => garbled(&error, "1048576 bytes"),
                (200, error) => garbled(&error, protocol.framing().media_type()),
                (_, error) => panic!("{protocol:?} {status}: {error:?}"),
            }
            assert!(chunks.is_empty() && sent < ON_THE_WAY, "{protocol:?} {status}: {sent} bytes");
            assert!(begun.elapsed() < slack(Duration::from_secs(2)), "{protocol:?} {status}");
        }
    }
}

/// The status is enough.
#[tokio::test]
async fn an_error_body_that_never_arrives_is_not_waited_for() {
    let silent = || Answer::new(Protocol::Openai, || stream::pending().boxed()).status(400);
    let begun = Instant::now();
    let (_, error, _) = outcome_of(Protocol::Openai, silent()).await;
    assert_eq!(error, Some(ModelError::Refused("HTTP 400".into())));
    assert!(begun.elapsed() < slack(TIMEOUT), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_endless_line_ends_with_an_error_at_its_size_limit() {
    for protocol in [Protocol::Openai, Protocol::Anthropic] {
        for begin in ["data: ", "event: ", ": ", ""] {
            let (chunks, error, sent) = outcome_of(protocol, endless(protocol, begin, "x")).await;
            garbled(&error, "1048576 bytes");
            assert!(chunks.is_empty() && sent < ON_THE_WAY, "{protocol:?} {begin:?}: {sent} bytes");
        }
        let (_, error, sent) = outcome_of(protocol, endless(protocol, "", "data: xxxxxxxxxxxxxxxx\n")).await;
        garbled(&error, "1048576 bytes");
        assert!(sent < ON_THE_WAY, "{protocol:?}: {sent} bytes");
    }
    let (_, error, sent) = outcome_of(Protocol::Bedrock, endless(Protocol::Bedrock, "\u{7f}", "x")).await;
    garbled(&error, "1048576 bytes");
    assert!(sent < ON_THE_WAY, "{sent} bytes");
}

/// Small events without content and without end: the whole answer has a size limit too.
#[tokio::test]
async fn an_endless_sequence_of_empty_events_ends_with_an_error() {
    for piece in ["\n", ": ping\n\n", "data: {\"choices\": []}\n\n", "data: {\"choices\": [{\"delta\": {}}]}\n\n"] {
        let (chunks, error, sent) = outcome_of(Protocol::Openai, endless(Protocol::Openai, "", piece)).await;
        // The size limit or the timeout, depending on the machine's speed.
        let is_bounded = match &error {
            Some(ModelError::Garbled(message)) => message.contains("67108864 bytes"),
            Some(ModelError::Timeout) => true,
            _ => false,
        };
        assert!(is_bounded && chunks.is_empty(), "{piece:?}: {error:?}");
        assert!(sent < event_decoder::MAX_ANSWER + ON_THE_WAY, "{piece:?}: {sent} bytes, {error:?}");
    }
}

/// Keep-alives without content do not reset the timeout.
#[tokio::test]
async fn keep_alives_without_content_time_out() {
    let nothing = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}]});
    let drips = [
        (Protocol::Openai, b": ping\n\n".to_vec()),
        (Protocol::Openai, format!("data: {}\n\n", delta(&json!({"content": ""}))).into_bytes()),
        (Protocol::Openai, format!("data: {}\n\n", delta(&nothing)).into_bytes()),
        (Protocol::Anthropic, b"event: ping\ndata: {\"type\": \"ping\"}\n\n".to_vec()),
        (Protocol::Bedrock, bedrock(&[("messageStart", json!({}))])),
    ];
    let drip = |(protocol, drop): (Protocol, Vec<u8>)| async move {
        let drop = Bytes::from(drop);
        let pieces = move || {
            let ticks = tokio::time::interval(Duration::from_millis(100));
            let drop = drop.clone();
            let next = |mut ticks: tokio::time::Interval| async move {
                ticks.tick().await;
                Some(((), ticks))
            };
            stream::unfold(ticks, next).map(move |()| drop.clone()).boxed()
        };
        let (chunks, error, _) = outcome_of(protocol, Answer::new(protocol, pieces)).await;
        assert_eq!((chunks, error), (Vec::new(), Some(ModelError::Timeout)), "{protocol:?}");
    };
    futures_util::future::join_all(drips.map(drip)).await;
}

/// The fragments of a long call reset the timeout.
#[tokio::test]
async fn a_call_that_arrives_slowly_is_waited_for() {
    let fragment = |arguments: &str| {
        let function = json!({"name": "add", "arguments": arguments});
        Bytes::from(format!(
            "data: {}\n\n",
            delta(&json!({"tool_calls": [{"index": 0, "id": "a", "function": function}]}))
        ))
    };
    let mut events = vec![fragment("{\"x\": ")];
    events.extend((0..5).map(|_| fragment("1")));
    events.extend([fragment("}"), Bytes::from(openai(&[finish("tool_calls")]))]);
    let pieces = move || {
        let slowly = |event| async move {
            tokio::time::sleep(TIMEOUT / 3).await;
            event
        };
        stream::iter(events.clone()).then(slowly).boxed()
    };
    let (chunks, error, _) = outcome_of(Protocol::Openai, Answer::new(Protocol::Openai, pieces)).await;
    assert_eq!(error, None);
    let call = chunks.iter().find_map(|piece| if let ModelChunk::Call(call) = piece { Some(call) } else { None });
    assert_eq!(call.unwrap().arguments, "{\"x\": 11111}");
}

#[tokio::test]
async fn another_content_type_is_refused() {
    for protocol in ALL {
        for media_type in ["text/html", "application/json", "text/event-streams", ""] {
            let answer = Answer::whole(protocol, b"<html>", 4_096).header("content-type", media_type);
            garbled(&outcome_of(protocol, answer).await.1, protocol.framing().media_type());
        }
        // RFC 9110 §8.3.1: the type is case-insensitive, and parameters may follow.
        let media_type = format!("{}; charset=utf-8", protocol.framing().media_type().to_uppercase());
        let answer = Answer::whole(protocol, &two_calls(protocol), 4_096).header("content-type", &media_type);
        assert_eq!(outcome_of(protocol, answer).await.1, None);
    }
}

#[tokio::test]
async fn an_error_with_the_status_of_a_success_is_an_error() {
    for protocol in ALL {
        for (error, expected) in [
            (json!({"type": "overloaded_error"}), ModelError::Overloaded { retry_after: None }),
            (
                json!({"type": "rate_limit_error"}),
                ModelError::Limited { status: 429, retry_after: None, sentence: "HTTP 429: (rate_limit_error)".into() },
            ),
            (
                json!({"type": "invalid_request_error", "code": "invalid_api_key"}),
                ModelError::Refused("an error in its answer: (invalid_api_key)".into()),
            ),
            (json!(KEY), ModelError::Unavailable("an error in its answer: [redacted]".into())),
        ] {
            let body = json!({"type": "error", "error": error}).to_string();
            let answer = Answer::whole(protocol, body.as_bytes(), 4_096).header("content-type", "application/json");
            assert_eq!(outcome_of(protocol, answer).await.1, Some(expected), "{protocol:?} {body}");
        }
    }
}

/// Some servers close the connection without the protocol's last event, others do not even close it.
#[tokio::test]
async fn an_answer_without_the_last_event_is_complete() {
    let openai = openai(&[delta(&json!({"content": "3"})), finish("stop")]);
    let openai = openai.strip_suffix(b"data: [DONE]\n\n").unwrap().to_vec();
    let text = json!({"type": "text_delta", "text": "3"});
    let anthropic = anthropic(&[
        json!({"type": "content_block_delta", "index": 0, "delta": text}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ]);
    for (protocol, body) in [(Protocol::Openai, openai), (Protocol::Anthropic, anthropic)] {
        for closes in [true, false] {
            let body = Bytes::from(body.clone());
            let pieces = move || {
                let answered = stream::iter([body.clone()]);
                if closes { answered.boxed() } else { answered.chain(stream::pending()).boxed() }
            };
            let begun = Instant::now();
            let pieces = Provider::serving(Answer::new(protocol, pieces)).await.ask(protocol, question()).await;
            let [Ok(ModelChunk::Text(_)), Ok(ModelChunk::End { stop: StopReason::Stop, .. })] = &pieces[..] else {
                panic!("{protocol:?}: {pieces:?}")
            };
            assert!(begun.elapsed() < slack(LAST_WORDS_TIMEOUT * 3), "{:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn endless_arguments_texts_and_thoughts_end_with_an_error() {
    let many = "1".repeat(100_000);
    let function = json!({"name": "add", "arguments": many});
    let begins =
        |index: usize| json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": function}]});
    for (what, delta_of) in [
        ("10 MB of arguments", Box::new(|_| begins(0)) as Box<dyn Fn(usize) -> Value>),
        ("calls without end", Box::new(begins)),
        ("10 MB of text", Box::new(|_| json!({"content": many}))),
        ("10 MB of thinking", Box::new(|_| json!({"reasoning": many}))),
    ] {
        let events: Vec<_> = (0..100).map(|index| delta(&delta_of(index))).collect();
        let (_, error, _) =
            outcome_of(Protocol::Openai, Answer::whole(Protocol::Openai, &openai(&events), 65_536)).await;
        garbled(&error, "longer than 4194304 bytes");
        println!("{what}: refused");
    }
    let small: Vec<_> = (0..300)
        .map(|index| json!({"tool_calls": [{"index": index, "id": "a", "function": {"name": "add"}}]}))
        .map(|event| delta(&event))
        .collect();
    let (_, error, _) = outcome_of(Protocol::Openai, Answer::whole(Protocol::Openai, &openai(&small), 65_536)).await;
    garbled(&error, "more than 256 tool calls");
}

#[tokio::test]
async fn a_compression_bomb_ends_with_an_error_at_its_size_limit() {
    let pack = |bytes: &[u8]| {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    // About 70 MB decompressed, as many KB compressed.
    let line = pack(&[b"data: ".to_vec(), vec![b'x'; 16 << 20]].concat());
    let events = pack(": ping\n\n".repeat(9 << 20).as_bytes());
    assert!(line.len() < 256 << 10 && events.len() < 256 << 10);
    for (what, status, bomb, expected) in
        [("line", 200, &line, "1048576 bytes"), ("events", 200, &events, "67108864 bytes"), ("error", 400, &line, "")]
    {
        let answer = Answer::whole(Protocol::Openai, bomb, 4_096).header("content-encoding", "gzip").status(status);
        let provider = Provider::serving(answer).await;
        let pieces = provider.ask(Protocol::Openai, question()).await;
        match &pieces[..] {
            [Err(ModelError::Refused(message))] if status == 400 => assert_eq!(message, "HTTP 400"),
            [Err(ModelError::Garbled(message))] => assert!(message.contains(expected), "{what}: {message}"),
            _ => panic!("{what}: {pieces:?}"),
        }
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Provider::serving(Answer::whole(Protocol::Openai, &two_calls(Protocol::Openai), 4_096)).await;
    let reached = target.model(Protocol::Openai).address().unwrap();
    for (status, location) in
        [(307, reached.as_str()), (302, "http://169.254.169.254/latest/meta-data/"), (308, "http://10.0.0.1/")]
    {
        let answer = Answer::whole(Protocol::Openai, b"", 1).status(status).header("location", location);
        let (_, error, _) = outcome_of(Protocol::Openai, answer).await;
        let expected = format!("HTTP {status}, a redirect; check the profile's base_url");
        assert_eq!(error, Some(ModelError::Refused(expected)));
    }
    assert!(target.requests.lock().is_empty(), "the key is sent to no other server");
}

#[tokio::test]
async fn an_event_outside_the_protocol_is_a_typed_error() {
    let begun =
        json!({"type": "content_block_delta", "index": 9, "delta": {"type": "input_json_delta", "partial_json": "{"}});
    for (protocol, event) in [
        (Protocol::Openai, "data: {no json}\n\n".to_owned()),
        (Protocol::Openai, "data: []\n\n".to_owned()),
        (Protocol::Openai, "data: {\"choices\": 1}\n\n".to_owned()),
        (Protocol::Openai, format!("data: {}\n\n", "[".repeat(500_000))),
        (
            Protocol::Openai,
            format!("data: {}\n\n", delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}))),
        ),
        (Protocol::Anthropic, "event: content_block_start\ndata: {{{\n\n".to_owned()),
        (Protocol::Anthropic, "data: {\"type\": 1}\n\n".to_owned()),
        (Protocol::Anthropic, "data: {\"type\": \"content_block_start\"}\n\n".to_owned()),
        (Protocol::Anthropic, format!("data: {begun}\n\n")),
        (Protocol::Bedrock, String::from_utf8(vec![0; 40]).unwrap()),
    ] {
        let (chunks, error, _) = outcome_of(protocol, Answer::whole(protocol, event.as_bytes(), 4_096)).await;
        assert!(chunks.is_empty() && matches!(error, Some(ModelError::Garbled(_))), "{protocol:?}: {error:?}");
    }
}
