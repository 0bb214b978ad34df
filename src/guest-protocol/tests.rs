use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test]
async fn frames_are_complete_however_the_bytes_are_split() {
    let mut sent = encode(&ToWorker::Cancel(1)).unwrap();
    sent.extend(encode(&ToWorker::Cancel(300)).unwrap());
    for cut in 0..sent.len() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut frames = Frames::new(near);
        far.write_all(&sent[..cut]).await.unwrap();
        // A cancelled read loses no bytes.
        let mut got = Vec::new();
        for _ in 0..2 {
            tokio::select! {
                biased;
                message = frames.next() => got.push(message.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        far.write_all(&sent[cut..]).await.unwrap();
        drop(far);
        while let Some(message) = frames.next().await.unwrap() {
            got.push(Some(message));
        }
        assert!(matches!(got[..], [Some(ToWorker::Cancel(1)), Some(ToWorker::Cancel(300))]), "{cut}: {got:?}");
    }
}

#[test]
fn hostile_bytes_as_frames() {
    use futures_util::FutureExt;

    let greeting = Greeting { missing_protections: vec!["a protection".into()], ..Greeting::default() };
    let ready = encode(&FromWorker::Ready(Box::new(greeting))).unwrap();
    let cancel = encode(&ToWorker::Cancel(300)).unwrap();
    let question = ToolQuestion::Call { ordinal: 1, tool: "t".into(), arguments: r#"{"x":1}"#.into() };
    let readings = vec![Reading::Real(1), Reading::Random(vec![1, 2, 3]), Reading::Waited(Some(2))];
    let read = ReadSoFar { readings, standing: ReadStanding::Behind };
    let ask = encode(&FromWorker::Ask(7, Box::new(ToolRequest { number: 3, question, read }))).unwrap();
    let reply = ToolReply { number: 3, is_ok: true, json: b"[1]".to_vec() };
    let answer = encode(&ToWorker::Answer(7, Box::new(reply))).unwrap();
    let (session, profile, part) = (7, "data".to_owned(), vec![1, 2, 3]);
    let restore = SessionRequest::Restore { session, profile, part: part.clone() };
    let restore = encode(&ToWorker::Session(9, Box::new(restore))).unwrap();
    let read = SessionReply::Part { part, next: Some(ImageCursor::Files { node: 1, offset: 2 }) };
    let read = encode(&FromWorker::Session(9, Box::new(read))).unwrap();
    let two = [ready.clone(), cancel.clone()].concat();
    let [examined, fetch] = of_components();
    let seeds: [&[u8]; 9] = [&ready, &cancel, &ask, &answer, &restore, &read, &two, &examined, &fetch];
    sekisho_core::fuzz::feed(&seeds, |bytes| {
        let mut frames = Frames::new(bytes);
        while let Some(Ok(Some(_))) = frames.next::<FromWorker>().now_or_never() {}
        let mut frames = Frames::new(bytes);
        while let Some(Ok(Some(_))) = frames.next::<ToWorker>().now_or_never() {}
    });
}

/// The contents of a file, and a request.
fn of_components() -> [Vec<u8>; 2] {
    let export = Export { interface: Some("my:tools/maths".to_owned()), function: "half".to_owned() };
    let (description, parameters, output) = ("Half.".to_owned(), "{}".to_owned(), Some("true".to_owned()));
    let problems = vec![(export.clone(), "it is `async`".to_owned())];
    let functions = vec![FoundExport { export, description, parameters, output }];
    let (kind, imports, compiled) = (ModuleKind::Component, vec!["wasi:io/poll@0.2.3".to_owned()], vec![1, 2, 3]);
    let examined = Examined { kind, functions, problems, imports, compiled };
    let (method, url) = ("GET".to_owned(), "https://example.com/".to_owned());
    let headers = vec![("accept".to_owned(), b"*/*".to_vec())];
    let question = ToolQuestion::Fetch(Box::new(HttpRequest { method, url, headers, body: vec![1] }));
    let request = ToolRequest { number: 1, question, read: ReadSoFar::default() };
    [FromWorker::Examined(Box::new(Ok(examined))), FromWorker::Ask(1, Box::new(request))]
        .map(|message| encode(&message).unwrap())
}

#[tokio::test]
async fn an_invalid_frame_is_an_error() {
    let cases: [(&[u8], &str); 4] = [
        (&u32::MAX.to_le_bytes(), "announced"),
        (&[1, 0, 0, 0, 99], ""),
        (&[9, 0, 0, 0, 1], "end of file"),
        (&[1, 0], "end of file"),
    ];
    for (bytes, says) in cases {
        let error = Frames::new(bytes).next::<ToWorker>().await.unwrap_err().to_string();
        assert!(error.contains(says), "{bytes:?}: {error}");
    }
    assert!(Frames::new(&[][..]).next::<ToWorker>().await.unwrap().is_none());
}
