use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::HostCall;
use super::*;
use sekisho_core::reading::Reading;
use sekisho_guest_protocol::{MAX_HELD_REPLY_BYTES, ReadSoFar, ReadStanding};

struct Run {
    host_call: HostCall,
    link: ToolLink,
    asked: UnboundedReceiver<FromWorker>,
}

impl Run {
    fn new(calls: u32) -> Self {
        Self::with(calls, ReadRecorder::default())
    }

    fn replaying(past: Vec<Reading>) -> Self {
        Self::with(9, ReadRecorder::replaying(past))
    }

    fn with(calls: u32, recorder: ReadRecorder) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
        let (gateway, asked) = unbounded_channel();
        let sleeper = Sleeper { job: 1, gateway, may_continue: Arc::default() };
        let link = ToolLink { sleeper, inbox: Arc::default(), waited: Arc::default(), recorder: Arc::new(recorder) };
        let host_call = HostCall::new(String::new(), 8, 8, 9).with_tools(link.clone(), calls);
        Self { host_call, link, asked }
    }

    /// The reply to a frame that is answered at once.
    fn reply(&mut self, frame: &[u8]) -> Value {
        match self.host_call.handle(frame).unwrap() {
            Handled::Reply(reply) => serde_json::from_slice(&reply).unwrap(),
            Handled::Wait(wait) => panic!("{wait:?}"),
        }
    }

    fn kind(&mut self, frame: &[u8]) -> String {
        self.reply(frame)["error"]["kind"].as_str().unwrap_or("none").to_owned()
    }

    /// The reply to a frame for which the program waits.
    async fn wait(&mut self, frame: &[u8]) -> Value {
        let Handled::Wait(wait) = self.host_call.handle(frame).unwrap() else { panic!("it was answered at once") };
        let reply = wait.reply(1).await;
        serde_json::from_slice(&self.host_call.tools.end_wait(&wait, reply)).unwrap()
    }

    fn asked(&mut self) -> ToolRequest {
        match self.asked.try_recv() {
            Ok(FromWorker::Ask(1, request)) => *request,
            other => panic!("{other:?}"),
        }
    }

    fn deliver(&self, number: u32, json: &str) {
        self.link.inbox.deliver(ToolReply { number, is_ok: true, json: json.as_bytes().to_vec() });
    }
}

fn start(arguments: &str) -> Vec<u8> {
    format!(r#"{{"v": 1, "id": 0, "op": "start", "tool": "t", "args": {arguments}}}"#).into_bytes()
}

#[tokio::test]
async fn a_call_is_passed_on_and_its_result_is_the_reply() {
    let mut run = Run::new(9);
    run.deliver(0, r#"{"a":[1]}"#);
    let reply = run.wait(br#"{"v":1,"id":7,"op":"call","tool":"t","args":{"x": 1.50}}"#).await;
    assert_eq!(reply, json!({"v": 1, "id": 7, "ok": true, "value": {"a": [1]}}));
    let question = ToolQuestion::Call { ordinal: 0, tool: "t".to_owned(), arguments: r#"{"x": 1.50}"#.to_owned() };
    assert_eq!(run.asked(), ToolRequest { number: 0, question, read: ReadSoFar::default() });

    let failed = ToolReply { number: 1, is_ok: false, json: br#"{"kind":"denied","message":"no"}"#.to_vec() };
    run.link.inbox.deliver(failed);
    let reply = run.wait(br#"{"v":1,"op":"describe","identifier":"a_b"}"#).await;
    assert_eq!(reply, json!({"v": 1, "id": 0, "ok": false, "error": {"kind": "denied", "message": "no"}}));
    assert_eq!(run.asked().question, ToolQuestion::DescribeIdentifier("a_b".to_owned()));

    run.deliver(2, "[]");
    run.wait(br#"{"v":1,"op":"search","query":"q","limit":3}"#).await;
    assert_eq!(run.asked().question, ToolQuestion::Search { query: "q".to_owned(), limit: 3 });
    run.deliver(3, "null");
    run.wait(br#"{"v":1,"op":"call","tool":"t"}"#).await;
    let question = ToolQuestion::Call { ordinal: 1, tool: "t".to_owned(), arguments: "{}".to_owned() };
    assert_eq!(run.asked().question, question, "questions that are no calls have no position among them");
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_started_are_waited_for_in_the_order_in_which_they_end() {
    let mut run = Run::new(9);
    for number in 0..3 {
        assert_eq!(run.reply(&start("{}"))["value"], number);
    }
    let nothing = run.wait(br#"{"v":1,"op":"wait","ids":[0,1],"timeout_ms":20}"#).await;
    assert_eq!(nothing, json!({"v": 1, "id": 0, "ok": true, "value": null}));
    for number in [2, 1] {
        run.deliver(number, "5");
    }
    let ended = run.wait(br#"{"v":1,"op":"wait","ids":[0,1,2]}"#).await;
    assert_eq!(ended["value"], json!({"id": 2, "ok": true, "value": 5}));
    let ended = run.wait(br#"{"v":1,"op":"wait","ids":[0,1]}"#).await;
    assert_eq!(ended["value"]["id"], 1);
    for wrong in ["[1]", "[]", "[0,7]"] {
        let frame = format!(r#"{{"v":1,"op":"wait","ids":{wrong}}}"#);
        assert_eq!(run.kind(frame.as_bytes()), "invalid_arguments", "{wrong}");
    }
    assert_eq!(run.kind(br#"{"v":1,"op":"wait"}"#), "invalid_arguments");
}

/// The waits of a program that is resumed end as they have ended, in whatever order its calls end now.
#[tokio::test(start_paused = true)]
async fn waits_that_are_done_again_end_as_before() {
    let waits: [&[u8]; 3] = [
        br#"{"v":1,"op":"wait","ids":[0,1],"timeout_ms":20}"#,
        br#"{"v":1,"op":"wait","ids":[0,1]}"#,
        br#"{"v":1,"op":"wait","ids":[0]}"#,
    ];
    let mut first = Run::new(9);
    first.reply(&start("{}"));
    first.reply(&start("{}"));
    let mut seen = vec![first.wait(waits[0]).await];
    for number in [1, 0] {
        first.deliver(number, "5");
    }
    for wait in &waits[1..] {
        seen.push(first.wait(wait).await);
    }
    let read = first.link.recorder.take();
    let expected = [None, Some(1), Some(0)].map(Reading::Waited);
    assert_eq!((&read.readings[..], read.standing), (&expected[..], ReadStanding::Recorded));

    let mut again = Run::replaying(read.readings);
    again.reply(&start("{}"));
    assert_eq!(again.asked().read.standing, ReadStanding::Behind);
    again.reply(&start("{}"));
    for number in [0, 1] {
        again.deliver(number, "5");
    }
    let mut seen_again = Vec::new();
    for wait in waits {
        seen_again.push(again.wait(wait).await);
    }
    assert_eq!(seen_again, seen);
    assert_eq!(again.link.recorder.take(), ReadSoFar::default());

    let mut other = Run::replaying(vec![Reading::Waited(Some(7))]);
    other.reply(&start("{}"));
    other.deliver(0, "5");
    other.wait(br#"{"v":1,"op":"wait","ids":[0]}"#).await;
    assert_eq!(other.link.recorder.take().standing, ReadStanding::Diverged);
}

/// Its memory is given back while it waits longer than a moment, and it goes on when there is memory again.
#[tokio::test(start_paused = true)]
async fn a_program_that_waits_is_counted_as_waiting_and_gives_memory_back() {
    let mut run = Run::new(9);
    let link = run.link.clone();
    let answering = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        link.inbox.deliver(ToolReply { number: 0, is_ok: true, json: b"1".to_vec() });
        tokio::time::sleep(Duration::from_secs(1)).await;
        link.sleeper.may_continue.notify_one();
    };
    let (reply, ()) = tokio::join!(run.wait(br#"{"v":1,"op":"call","tool":"t"}"#), answering);
    assert_eq!((&reply["value"], link.waited.total()), (&json!(1), Duration::from_secs(4)));
    assert_eq!(run.asked().number, 0);
    for expected in [FromWorker::Sleeping(1, 1), FromWorker::Waking(1)] {
        let sent = run.asked.try_recv().unwrap();
        assert_eq!(format!("{sent:?}"), format!("{expected:?}"));
    }
}

#[test]
fn frames_and_calls_have_limits() {
    let mut run = Run::new(40);
    let nested = |levels: usize| start(&format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels)));
    assert_eq!(run.kind(&nested(63)), "none");
    assert_eq!(run.kind(&nested(64)), "invalid_arguments");
    assert_eq!(run.kind(&start(r#"{"a": NaN}"#)), "protocol");
    assert_eq!(run.kind(br#"{"v":1,"op":"call","op":"call","tool":"t"}"#), "protocol", "a key twice");
    assert_eq!(run.kind(br#"{"v":1,"op":"start"}"#), "protocol", "no tool");
    assert_eq!(run.kind(br#"{"v":1,"op":"describe"}"#), "protocol");
    assert_eq!(run.kind(br#"{"v":1,"op":"list"}"#), "protocol");
    let long_name = "t".repeat(65);
    for member in [r#""start","tool""#, r#""describe","tool""#, r#""describe","identifier""#] {
        let frame = format!(r#"{{"v":1,"op":{member}:"{long_name}"}}"#);
        assert_eq!(run.kind(frame.as_bytes()), "unknown_tool", "{member}");
    }
    let long = |bytes: usize| start(&format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes)));
    assert_eq!(run.kind(&long((1 << 20) - 100)), "none");
    assert_eq!(run.kind(&long(1 << 20)), "too_large");
    assert_eq!(run.kind(&[b" ".repeat(64 << 10), start("{}")].concat()), "too_large", "it begins otherwise");
    for _ in 2..32 {
        assert_eq!(run.kind(&start("{}")), "none");
    }
    assert_eq!(run.kind(&start("{}")), "budget_exceeded", "32 are under way");

    let mut wide = Run::new(9);
    let half = start(&format!(r#"{{"a":"{}"}}"#, "x".repeat((1 << 20) - 100)));
    assert_eq!([wide.kind(&half), wide.kind(&half), wide.kind(&half)], ["none", "none", "too_large"]);
    let (search, describe) = (br#"{"v":1,"op":"search","query":"q"}"#, br#"{"v":1,"op":"describe","tool":"t"}"#);
    for (frame, most) in [(&search[..], 100), (&describe[..], 1_000)] {
        let asked = (0..2_000).filter(|_| matches!(wide.host_call.handle(frame), Ok(Handled::Wait(_)))).count();
        assert_eq!(asked, most);
        assert_eq!(wide.kind(frame), "budget_exceeded");
    }

    let mut narrow = Run::new(1);
    assert_eq!([narrow.kind(&start("{}")), narrow.kind(&start("{}"))], ["none", "budget_exceeded"]);
    let refused = String::from_utf8(narrow.host_call.answer(&start("{}")).unwrap()).unwrap();
    assert!(refused.contains("made 1 calls, as many as it may (`sandbox.code_mode.max_calls`)"), "{refused}");
    let mut none = HostCall::new(String::new(), 8, 8, 9);
    assert!(String::from_utf8(none.answer(&start("{}")).unwrap()).unwrap().contains("denied"));
    run.reply(br#"{"v":1,"op":"done","end":{"kind":"exited","code":0}}"#);
    assert_eq!(run.kind(&start("{}")), "denied", "it has ended");
}

#[tokio::test]
async fn results_that_a_program_does_not_take_are_bounded() {
    let mut run = Run::new(9);
    let large = "7".repeat(12 << 20);
    for number in 0..3 {
        run.reply(&start("{}"));
        run.deliver(number, &large);
    }
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let Handled::Wait(wait) = run.host_call.handle(br#"{"v":1,"op":"wait","ids":[0,1,2]}"#).unwrap() else {
            panic!()
        };
        let reply = wait.reply(1).await.unwrap();
        kinds.push((reply.is_ok, reply.json.len()));
    }
    let most = usize::try_from(MAX_HELD_REPLY_BYTES).unwrap();
    assert!(kinds[0].0 && kinds[1].0 && !kinds[2].0 && kinds.iter().map(|(_, bytes)| bytes).sum::<usize>() <= most);

    let mut run = Run::new(9);
    run.deliver(0, &"7".repeat(MAX_VALUE_BYTES + 1));
    assert_eq!(run.wait(br#"{"v":1,"op":"call","tool":"t"}"#).await["error"]["kind"], "too_large");
}

#[test]
fn hostile_bytes_as_frames_of_tools() {
    let call = br#"{"v":1,"id":7,"op":"call","tool":"t","args":{"x":[1.5,{"y":null}]}}"#;
    let wait = br#"{"v":1,"id":8,"op":"wait","ids":[0],"timeout_ms":20}"#;
    let search = br#"{"v":1,"op":"search","query":"q","limit":3}"#;
    sekisho_core::fuzz::feed(&[call, wait, search], |bytes| {
        let mut run = Run::new(9);
        if let Ok(Handled::Reply(reply)) = run.host_call.handle(bytes) {
            assert!(serde_json::from_slice::<Value>(&reply).is_ok());
        }
    });
}

/// The frames of one run, a line each: a result that one has opened is there for the next ones.
#[test]
fn hostile_bytes_as_the_frames_of_a_run() {
    let frames = br#"{"v":1,"id":1,"op":"start","tool":"t","args":{"x":[1.5,{"y":null}]}}
{"v":1,"id":2,"op":"start","tool":"t"}
{"v":1,"id":3,"op":"wait","ids":[0,1],"timeout_ms":20}
{"v":1,"op":"describe","identifier":"a_b"}
{"v":1,"op":"wait","ids":[1]}
{"v":1,"id":4,"op":"call","tool":"t","args":{}}
{"v":1,"id":5,"op":"done","end":{"kind":"exited","code":0},"result":"1"}"#;
    sekisho_core::fuzz::feed(&[frames], |bytes| {
        let mut run = Run::new(9);
        for frame in bytes.split(|byte| *byte == b'\n') {
            let reply = match run.host_call.handle(frame) {
                Ok(Handled::Reply(reply)) => reply,
                Ok(Handled::Wait(wait)) => {
                    let number = wait.numbers[0];
                    let reply = ToolReply { number, is_ok: true, json: br#"{"a":[1]}"#.to_vec() };
                    run.host_call.tools.end_wait(&wait, Some(reply))
                }
                Err(_) => return,
            };
            assert!(serde_json::from_slice::<Value>(&reply).is_ok(), "{}", reply.escape_ascii());
            assert!(run.host_call.tools.open.len() <= MAX_OPEN_CALLS);
        }
    });
}

fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<f64>().prop_map(|number| json!(number).to_string()),
        r#"[\[\]{}"\\a-z]{0,8}"#.prop_map(|text| json!(text).to_string()),
    ];
    leaf.prop_recursive(70, 200, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            inner.prop_map(|value| format!(r#"{{"]}}\"": {value}}}"#)),
        ]
    })
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn the_depth_of_a_text_is_that_of_its_value(text in json_text(), most in 0..70_usize) {
        let value: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(is_nested_deeper(text.as_bytes(), most), depth(&value) > most);
    }
}
