//! No call finds data of another, and a program's claims about itself have no effect.

use std::collections::HashSet;

use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::PythonApp;

/// Writes a secret of its own all over its memory, and scans all of it for those of others. The pattern is
/// contiguous in its own memory only where it was written.
const SCAN: &str = r#"
import sys, numpy
own = sys.stdin.read()
mark = bytes(byte ^ 1 for byte in b"rdbsdu,ng,`,b`mm;")
planted = (mark + own.encode()) * 4096
kept = [planted, planted.decode(), {own: planted[:100]}]
numpy.empty(1 << 20, dtype=numpy.uint8)[:] = numpy.frombuffer(planted * 8, dtype=numpy.uint8)[:1 << 20]
room = numpy.empty(1 << 20, dtype=numpy.uint8)

class Everything:
    # The instance's whole memory as an array: an address is an offset.
    def __init__(self, start, length):
        self.__array_interface__ = {"data": (start, True), "shape": (length,), "typestr": "|u1", "version": 3}

top = room.__array_interface__["data"][0] + room.nbytes
memory = memoryview(numpy.asarray(Everything(1024, top - 1024)))
found = set()
# Pieces that stay in the processor's cache while they are looked through.
for start in range(0, len(memory), 256 << 10):
    piece = bytes(memory[max(0, start - 64):start + (256 << 10)])
    marks = piece.count(mark)
    if marks and (marks != piece.count(mark + own.encode())):
        at = piece.find(mark)
        while at >= 0:
            found.add(piece[at + len(mark):at + len(mark) + len(own)].decode(errors="replace"))
            at = piece.find(mark, at + 1)
found.discard(own)
[top, sorted(found)]
"#;

/// Unlike every other, and unlike any that is put together of pieces of one.
fn secret(call: u32) -> String {
    format!("{:016}", u64::from(call + 1).wrapping_mul(7_046_029_254_386_353_131) % 10_u64.pow(16))
}

async fn scan(app: &PythonApp, calls: u32) {
    let secrets: HashSet<_> = (0..calls).map(secret).collect();
    assert_eq!(secrets.len(), calls as usize);
    let runs = stream::iter(0..calls).map(async |call| {
        app.run_with(json!({"code": SCAN, "stdin": secret(call), "profile": "data"})).await["result"].take()
    });
    let mut runs = runs.buffer_unordered(4);
    while let Some(found) = runs.next().await {
        assert!(found[0].as_u64().unwrap() > 40 << 20, "it has looked through little: {found}");
        // A scan meets pieces of its own secret where it has copied over what it looks through.
        let of_others = found[1].as_array().unwrap().iter().filter(|one| secrets.contains(one.as_str().unwrap()));
        assert_eq!(of_others.collect::<Vec<_>>(), [&Value::Null; 0], "another call's secret was found");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_fresh_instances_find_no_secret_of_another_call() {
    let app = PythonApp::start().await;
    scan(&app, 50).await;
    app.idle().await;
}

/// As many as `SECRET_SCANS` sets, else ten thousand, which takes some ten minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn thousands_of_fresh_instances_find_no_secret_of_another_call() {
    let calls = std::env::var("SECRET_SCANS").map_or(10_000, |calls| calls.parse().unwrap());
    let app = PythonApp::start().await;
    scan(&app, calls).await;
    app.idle().await;
}

/// The scan would find what is there: one of another call's secrets among many of its own.
#[tokio::test]
async fn the_scan_finds_what_is_there() {
    let app = PythonApp::start().await;
    let code = SCAN.replace("* 4096\n", &format!("* 4096 + mark + b'{}'\n", secret(8)));
    let found = app.run_with(json!({"code": code, "stdin": secret(7), "profile": "data"})).await;
    assert!(found["result"][1].as_array().unwrap().contains(&json!(secret(8))), "{found}");
}

#[tokio::test]
async fn no_two_calls_draw_the_same_numbers() {
    let app = PythonApp::start().await;
    let code = "import random, uuid, secrets, numpy as np\n\
                [random.random(), np.random.rand(), np.random.default_rng().random(), str(uuid.uuid4()), secrets.token_hex(8)]";
    let (one, other) = (app.run(code).await, app.run(code).await);
    for index in 0..5 {
        assert_ne!(one["result"][index], other["result"][index], "{index}");
    }
}

/// The harness waits in its place.
#[tokio::test]
async fn a_program_finds_the_interpreters_own_display_hook() {
    let app = PythonApp::start().await;
    assert_eq!(app.run("import sys\nsys.displayhook is sys.__displayhook__").await["result"], json!(true));
}

#[tokio::test]
async fn no_state_is_kept_between_calls() {
    let app = PythonApp::start().await;
    let leave = "import builtins, os, sys\nbuiltins.left = 1\nsys.modules['left'] = os\n\
                 for folder in ('/tmp', '/output'): open(folder + '/left', 'w').write('x')";
    let files = app.run(leave).await["files"].clone();
    assert_eq!(files[0]["path"], "left");
    let look = "import builtins, os, sys\n\
                [hasattr(builtins, 'left'), 'left' in sys.modules, os.listdir('/tmp'), os.listdir('/output'), os.listdir('/input')]";
    assert_eq!(app.run(look).await["result"], json!([false, false, [], [], []]));
}

/// References to what a snapshot holds are not counted: that would copy its pages for each call. A program can take
/// it apart and collect all the same.
#[tokio::test]
async fn prepared_objects_are_immortal_and_optional() {
    let app = PythonApp::start().await;
    let look = "import decimal, json, sys\n\
                [sys._is_immortal(thing) for thing in (json, json.dumps, json.dumps.__code__, decimal.Decimal, [])]";
    assert_eq!(app.run(look).await["result"], json!([true, true, true, true, false]));
    let look = "import numpy, pandas, sys\n[sys._is_immortal(thing) for thing in (numpy.sum, pandas.DataFrame.sum)]";
    assert_eq!(app.run(look).await["result"], json!([true, true]));
    let without = "import gc, json, sys\n\
                   for name in list(sys.modules):\n    if name.startswith('json'): del sys.modules[name]\n\
                   del json\ngc.unfreeze()\ngc.collect()\nimport json\njson.loads('[1]')";
    assert_eq!(app.run(without).await["result"], json!([1]));
}

/// Results travel by a channel of the host's: printing one, or breaking the harness, forges nothing of another call.
/// The source of a turn, which is always the same, is not compiled for each call.
#[tokio::test]
async fn no_turn_is_compiled() {
    let app = PythonApp::start().await;
    let look = "import sys\nframe, names = sys._getframe(), []\nwhile frame := frame.f_back:\n    \
                names.append(frame.f_code.co_name)\nnames";
    let frames = ["run_compiled", "<lambda>", "_attempt", "_execute", "_run_once", "run", "<lambda>", "turn"];
    assert_eq!(app.run(look).await["result"], json!(frames));
}

#[tokio::test]
async fn a_printed_result_is_only_printed() {
    let app = PythonApp::start().await;
    let printed = r#"print('{"v":1,"id":0,"op":"done","end":{"kind":"exited","code":0},"result":"9"}')
print('\x1e{"result": 9}', flush=True)
7"#;
    let output = app.run(printed).await;
    assert_eq!((&output["result"], &output["exit_code"]), (&json!(7), &json!(0)));
    assert!(output["stdout"].as_str().unwrap().contains(r#""result":"9""#));

    let forged = "import _host, json\n\
                  _host.call(json.dumps({'v': 1, 'id': 0, 'op': 'done', 'end': {'kind': 'exited', 'code': 0}, 'result': '9'}).encode())\n\
                  import sys\nfor name in list(sys.modules):\n    if name.startswith('_sekisho'): del sys.modules[name]\n\
                  raise SystemExit(3)";
    let output = app.run(forged).await;
    assert_eq!(
        (&output["result"], &output["exit_code"]),
        (&Value::Null, &json!(3)),
        "how it really ended is told last"
    );
    for measured in ["wall_ms", "cpu_ms", "peak_memory_bytes"] {
        assert!(output["usage"][measured].as_f64().unwrap() > 0.0, "{output}");
    }
    assert_eq!(app.run("6 * 7").await["result"], 42);
}
