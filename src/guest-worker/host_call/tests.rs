use super::*;

fn text(answer: Result<Vec<u8>, Spent>) -> String {
    String::from_utf8(answer.unwrap()).unwrap()
}

/// A picture that is eight bytes long.
const SMALLEST: &str = "iVBORw0KGgo=";

fn image(base64: &str) -> Vec<u8> {
    format!(r#"{{"v": 1, "id": 0, "op": "image", "png": "{base64}"}}"#).into_bytes()
}

fn kind_of(answer: Result<Vec<u8>, Spent>) -> String {
    let answer: serde_json::Value = serde_json::from_slice(&answer.unwrap()).unwrap();
    answer["error"]["kind"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn the_program_is_delivered_and_its_result_and_pictures_are_received() {
    let mut host_call = HostCall::new("1+1".to_owned(), 8, 8, 9);
    let job = text(host_call.answer(br#"{"v":1,"id":7,"op":"job"}"#));
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    assert_eq!(job, json!({"v": 1, "id": 7, "ok": true, "value": {"code": "1+1", "result_bytes": 8}}));
    host_call.answer(&image(SMALLEST)).unwrap();
    host_call.answer(br#"{"v":1,"op":"done","end":{"kind":"exited","code":3},"result":"2"}"#).unwrap();
    let left = Left { end: Some(End::Exited { code: 3 }), result: Some("2".to_owned()), images: vec![PNG.to_vec()] };
    assert_eq!(host_call.left, left);
}

#[test]
fn a_module_is_delivered_with_what_is_done_with_it() {
    let task = ModuleTask::Read { file: "weather.py".to_owned(), shared: "{}".to_owned() };
    let mut host_call = HostCall::new("x = 1".to_owned(), 8, 8, 9).with_module(Some(task));
    let job = text(host_call.answer(br#"{"v":1,"op":"job"}"#));
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let expected =
        json!({"code": "x = 1", "result_bytes": 8, "module": {"read": {"file": "weather.py", "shared": "{}"}}});
    assert_eq!(job["value"], expected);
}

#[test]
fn a_result_over_the_limit_ends_the_run() {
    let mut host_call = HostCall::new(String::new(), 4, 9, 9);
    let done = host_call.answer(br#"{"v":1,"op":"done","end":{"kind":"exited","code":0},"result":"22222"}"#);
    assert_eq!(done, Err(Spent("result_bytes")));
}

#[test]
fn pictures_that_do_not_fit_or_are_none_are_left_out() {
    let mut host_call = HostCall::new(String::new(), 4, 20, 99);
    assert_eq!(kind_of(host_call.answer(&image("UE5H"))), "invalid_arguments", "it is no PNG file");
    for expected in ["none", "none", "too_large"] {
        assert_eq!(kind_of(host_call.answer(&image(SMALLEST))), expected);
    }
    assert_eq!(host_call.left.images.len(), 2);
    let mut host_call = HostCall::new(String::new(), 4, 1 << 20, 99);
    let refused = (0..20).filter(|_| kind_of(host_call.answer(&image(SMALLEST))) == "too_large").count();
    assert_eq!((host_call.left.images.len(), refused), (16, 4));
}

#[test]
fn only_results_and_pictures_are_long_and_together_they_are_bounded() {
    let padding = " ".repeat(SHORT_FRAME_BYTES);
    let mut host_call = HostCall::new(String::new(), 4, 1 << 20, 99);
    for frame in [format!(r#"{{"v": 1, "op": "job"{padding}}}"#), format!(r#"{{"v": 1, "id": "{padding}"}}"#)] {
        assert_eq!(kind_of(host_call.answer(frame.as_bytes())), "too_large");
    }
    let long = image(&"A".repeat(1 << 20));
    let kinds: Vec<_> = (0..9).map(|_| kind_of(host_call.answer(&long))).collect();
    assert_eq!(kinds[0], "invalid_arguments", "it was parsed");
    assert_eq!(kinds[8], "too_large", "no longer");
}

#[test]
fn the_texts_of_an_exception_are_bounded() {
    let long = "é".repeat(200 << 10);
    let frame = format!(
        r#"{{"v": 1, "id": 0, "op": "done", "end": {{"kind": "exception", "type": "{long}", "message": "{long}", "traceback": "{long}"}}}}"#
    );
    let mut host_call = HostCall::new(String::new(), 1 << 20, 0, 9);
    host_call.answer(frame.as_bytes()).unwrap();
    let Some(End::Exception { kind, message, traceback, .. }) = host_call.left.end else { panic!("no end") };
    assert!(kind.len() + message.len() + traceback.len() <= 145 << 10);
}

#[test]
fn hostile_bytes_as_frames_of_the_harness() {
    let job = br#"{"v":1,"id":7,"op":"job"}"#;
    let done = br#"{"v":1,"op":"done","end":{"kind":"exited","code":3},"result":"2"}"#;
    let failed = br#"{"v":1,"op":"done","end":{"kind":"exception","type":"E","message":"m","traceback":"t","line":1,"column":2}}"#;
    sekisho_core::fuzz::feed(&[job, &image(SMALLEST), done, failed], |bytes| {
        let mut host_call = HostCall::new("1+1".to_owned(), 64, 64, 9);
        if let Ok(reply) = host_call.answer(bytes) {
            assert!(serde_json::from_slice::<serde_json::Value>(&reply).is_ok());
        }
        assert!(host_call.left.result.as_ref().is_none_or(|result| result.len() <= 64));
    });
}

#[test]
fn an_invalid_frame_is_answered_with_its_kind_of_error() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "protocol"),
        (b"\xff\x00", "protocol"),
        (br#"{"v":1,"op":"fork"}"#, "protocol"),
        (br#"{"v":1,"id":"a text","op":"job"}"#, "protocol"),
        (br#"{"v":1,"op":"image"}"#, "protocol"),
        (br#"{"v":2,"op":"job"}"#, "protocol"),
        (br#"{"v":1,"op":"image","png":"*"}"#, "invalid_arguments"),
        (br#"{"v":1,"op":"list"}"#, "denied"),
        (br#"{"v":1,"op":"call","tool":"t","args":{}}"#, "denied"),
    ];
    for (frame, kind) in cases {
        let answered = kind_of(HostCall::new(String::new(), 8, 8, 9).answer(frame));
        assert_eq!(answered, kind, "{}", String::from_utf8_lossy(frame));
    }
    let nested = format!(r#"{{"v":1,"op":"call","args":{}"#, "[".repeat(1 << 10));
    assert!(text(HostCall::new(String::new(), 8, 8, 9).answer(nested.as_bytes())).contains("protocol"));
}
