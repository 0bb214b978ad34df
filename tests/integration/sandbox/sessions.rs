//! Sessions: interpreters that live on between the calls that name them.

mod stored;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::join;
use reqwest::StatusCode;
use sekisho::{CallContext, Caller, Via};
use serde_json::{Value, json};

use super::load::kill;
use super::{PythonApp, workers};
use crate::app::{answer, code};
use crate::audit_events::lines;
use crate::cli::{cache, text};
use crate::slack::slack;

fn arguments(session: &str, code: &str) -> Value {
    json!({"session": session, "code": code})
}

impl PythonApp {
    /// The reply to a call in a session.
    async fn turn(&self, session: &str, code: &str) -> Value {
        self.call(arguments(session, code)).await.1
    }

    /// The result of a call in a session that must go well.
    async fn result(&self, session: &str, code: &str) -> Value {
        self.run_with(arguments(session, code)).await["result"].take()
    }

    /// The reply to the call of a caller with a name.
    async fn turn_of(&self, caller: &str, session: &str, code: &str) -> Value {
        let caller = Arc::new(Caller::new(caller, "tenant", vec![]));
        let call = CallContext::new("python_executor", caller, Via::Rest);
        let arguments = arguments(session, code).as_object().cloned().unwrap();
        serde_json::to_value(&*self.app.gateway.pipeline.call(call, arguments).await.reply).unwrap()
    }

    async fn show(&self, session: &str) -> (StatusCode, Value) {
        answer(self.app.get(&format!("/sessions/{session}"))).await
    }

    async fn delete(&self, session: &str) -> StatusCode {
        let request = self.app.client.delete(format!("{}/sessions/{session}", self.app.url));
        request.send().await.unwrap().status()
    }
}

#[tokio::test]
async fn variables_imports_functions_and_files_are_there_in_the_next_call() {
    let app = PythonApp::start().await;
    let begin = "import math\nx = 41\ndef add(n):\n    global x\n    x += n\n    return x\n\
                 open('/tmp/kept', 'w').write('tmp')\nf = open('log.txt', 'w')\n_ = f.write('one')";
    let output = app.run_with(arguments("a", begin)).await;
    assert_eq!(output["session"], json!({"name": "a", "generation": 1, "is_new": true}));
    let content = |output: &Value| BASE64_STANDARD.decode(output["files"][0]["content_base64"].as_str().unwrap());
    assert_eq!(content(&output).unwrap(), b"one");
    assert_eq!(app.result("a", "[add(1), math.floor(2.5), open('/tmp/kept').read()]").await, json!([42, 2, "tmp"]));
    let output = app.run_with(arguments("a", "f.write(' two')")).await;
    assert_eq!(content(&output).unwrap(), b"one two", "what changed comes back");
    let output = app.run_with(arguments("a", "open('log.txt').read()")).await;
    assert_eq!((&output["result"], &output["files"]), (&json!("one two"), &json!([])));
    assert_eq!(output["session"], json!({"name": "a", "generation": 1, "is_new": false}));
    // Without the argument nothing is kept, whatever the session of the call is.
    for extra in [json!({"code": "x"}), arguments("b", "x")] {
        let body = json!({"arguments": extra, "session_id": "a"});
        let (_, reply) = answer(app.app.post("/tools/python_executor/execute").json(&body)).await;
        assert_eq!(code(&reply), "tool_error", "{reply}");
    }
    assert_eq!(app.metric("sessions_open").await, 2.0);
}

#[tokio::test]
async fn a_session_works_with_data_figures_and_its_own_input() {
    let app = PythonApp::start().await;
    let begin = "import pandas as pd\nimport matplotlib.pyplot as plt\ndf = pd.read_csv('sales.csv')\ndf['amount'].plot()\nNone";
    let file = |text: &str| json!([{"path": "sales.csv", "text": text}]);
    let mut sent = arguments("a", begin);
    sent["files"] = file("amount\n1\n2\n");
    assert_eq!(app.run_with(sent).await["images"].as_array().unwrap().len(), 1);
    let mut sent = arguments("a", "import sys\n[df['amount'].sum(), sys.stdin.read()]");
    sent["stdin"] = "first".into();
    let output = app.run_with(sent).await;
    assert_eq!((&output["result"], &output["images"]), (&json!([3, "first"]), &json!([])));
    // Another content replaces the file, and the program's copy.
    let mut sent =
        arguments("a", "[pd.read_csv('sales.csv')['amount'].sum(), open('/input/sales.csv').read(), input()]");
    (sent["files"], sent["stdin"]) = (file("amount\n7\n"), "second".into());
    assert_eq!(app.run_with(sent).await["result"], json!([7, "amount\n7\n", "second"]));
    let random = "import random\nrandom.seed(1)\na = random.random()\na";
    let first = app.result("a", random).await;
    let next = app.result("a", "random.random()").await;
    let both = app.result("b", "import random\nrandom.seed(1)\n[random.random(), random.random()]").await;
    assert_eq!(json!([first, next]), both, "random numbers go on");
    assert_ne!(
        app.result("c", "import random\nrandom.random()").await,
        app.result("d", "import random\nrandom.random()").await
    );
}

#[tokio::test]
async fn exceptions_and_exits_leave_the_session_as_it_is() {
    let app = PythonApp::start().await;
    app.turn("a", "x = 1\n\ndef divide():\n    return 1 / 0").await;
    let reply = app.turn("a", "x += 1\ndivide()").await;
    let error = reply["error"].as_str().unwrap();
    assert!(
        code(&reply) == "tool_error" && error.contains("<code 1>\", line 4") && !error.contains("session"),
        "{error}"
    );
    assert_eq!(reply["error_info"]["details"][0]["rule"], "ZeroDivisionError");
    assert_eq!(app.turn("a", "import sys\nsys.exit(3)").await["output"]["exit_code"], 3);
    assert_eq!(app.result("a", "x").await, 2);
    // Where something else is at the path of a file that is sent.
    app.turn("a", "import os\nos.mkdir('data')").await;
    let mut sent = arguments("a", "x");
    sent["files"] = json!([{"path": "data", "text": ""}]);
    let (_, reply) = app.call(sent).await;
    assert!(code(&reply) == "tool_error" && reply["error"].as_str().unwrap().contains("cannot be placed"), "{reply}");
    assert_eq!(app.result("a", "x").await, 2);
}

/// Also of one with much data, which was read from a file that is still open.
#[tokio::test]
async fn a_program_that_exceeds_a_limit_changes_nothing_in_the_session() {
    let app = PythonApp::with("memory_limit_mb: 128", "max_file_bytes: 1048576").await;
    let load = "x = list(range(500_000))\nf = open('/tmp/kept', 'w+')\n_ = f.write('one')";
    app.result("a", load).await;
    for (expected, program) in [
        ("sandbox_timeout", "while True: pass"),
        ("sandbox_memory", "y = bytearray(1 << 30)"),
        ("sandbox_output", "import os\nwhile True: os.urandom(1 << 16)"),
    ] {
        let mut sent = arguments("a", &format!("x.clear()\nf.write(' two')\nz = 1\n{program}"));
        sent["timeout_seconds"] = 1.into();
        sent["files"] = json!([{"path": "data", "text": "sent"}]);
        let (_, reply) = app.call(sent).await;
        let interpreter = &reply["receipt"]["interpreter"];
        assert_eq!((code(&reply), &interpreter["not_stored"]), (expected, &json!("stopped")), "{reply}");
        let note = reply["output"]["session"]["note"].as_str().unwrap();
        assert!(note.contains("is undone") && reply["error"].as_str().unwrap().contains(note), "{reply}");
        let look = "import os\n[len(x), sum(x), f.seek(0), f.read(), 'z' in globals(), os.path.exists('/input/data')]";
        let kept = app.result("a", look).await;
        assert_eq!(kept, json!([500_000, 124_999_750_000_u64, 0, "one", false, false]));
    }
    assert_eq!(app.metric("sessions_open").await, 1.0);
}

/// The next call begins anew, and says why. A limit ends the session where its first program exceeds it.
#[tokio::test]
async fn a_trap_or_the_end_of_the_process_ends_the_session() {
    let app = PythonApp::with("memory_limit_mb: 128", "max_file_bytes: 1048576").await;
    let cases = [
        ("timeout", "sandbox_timeout", "while True: pass"),
        ("trap", "sandbox_trap", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()"),
        ("exited", "", "import os\nos._exit(4)"),
    ];
    for (number, (end, expected, program)) in cases.into_iter().enumerate() {
        if end != "timeout" {
            app.turn("a", "x = 1").await;
        }
        let mut sent = arguments("a", program);
        sent["timeout_seconds"] = 1.into();
        let (_, reply) = app.call(sent).await;
        let told = reply["error_info"]["code"].as_str().unwrap_or_default();
        assert_eq!((told, &reply["receipt"]["interpreter"]["end"]), (expected, &json!(end)), "{reply}");
        let note = reply["output"]["session"]["note"].as_str().unwrap();
        assert!(note.contains("has ended") && (end == "exited" || reply["error"].as_str().unwrap().contains(note)));
        let reply = app.turn("a", "x").await;
        assert_eq!(code(&reply), "tool_error");
        assert!(reply["error"].as_str().unwrap().contains("began anew with this call"), "{reply}");
        let interpreter = &reply["receipt"]["interpreter"];
        assert_eq!((&interpreter["previous_end"], &interpreter["generation"]), (&json!(end), &json!(number + 2)));
        assert_eq!(app.metric(&format!("sessions_ended_total{{reason=\"{end}\"}}")).await, 1.0);
    }
}

#[tokio::test]
async fn a_session_belongs_to_its_caller() {
    let app = PythonApp::start().await;
    assert_eq!(app.turn_of("ann", "a", "secret = 7\nsecret").await["output"]["result"], 7);
    assert_eq!(app.turn_of("ann", "a", "secret").await["output"]["result"], 7);
    for reply in [app.turn_of("bob", "a", "secret").await, app.turn("a", "secret").await] {
        assert_eq!((code(&reply), &reply["receipt"]["interpreter"]["is_new"]), ("tool_error", &json!(true)));
    }
    app.turn_of("ann", "hers", "secret = 7").await;
    assert_eq!((app.show("hers").await.0, app.delete("hers").await), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    assert_eq!(app.turn_of("ann", "hers", "secret").await["output"]["result"], 7);
}

/// What a call leaves behind does not run with the rights of another one.
#[tokio::test]
async fn a_call_with_other_rights_is_denied_the_session() {
    let app = PythonApp::start().await;
    app.turn_of("ann", "a", "x = 1").await;
    let caller = Arc::new(Caller::new("ann", "tenant", vec!["admin".to_owned()]));
    let call = CallContext::new("python_executor", caller, Via::Rest);
    let arguments = arguments("a", "x").as_object().cloned().unwrap();
    let reply = serde_json::to_value(&*app.app.gateway.pipeline.call(call, arguments).await.reply).unwrap();
    assert!(code(&reply) == "denied" && reply["error"].as_str().unwrap().contains("another name"), "{reply}");
    assert_eq!(app.turn_of("ann", "a", "x").await["output"]["result"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_calls_at_once_take_turns() {
    let app = PythonApp::start().await;
    app.turn("a", "order = []\nimport time").await;
    let first = app.result("a", "order.append('begun')\ntime.sleep(0.5)\norder.append('ended')\nlen(order)");
    let others = async {
        while app.metric("runs_live").await < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (_, shown) = app.show("a").await;
        assert_eq!((&shown["is_used"], &shown["variables"]), (&json!(true), &Value::Null), "{shown}");
        app.result("a", "order.append('next')\norder").await
    };
    let (first, order) = join(first, others).await;
    assert_eq!((first, order), (json!(2), json!(["begun", "ended", "next"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_ends_the_session() {
    let app = PythonApp::start().await;
    app.turn("a", "x = 1").await;
    let call = app.turn("a", "while True: pass");
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    app.idle().await;
    let reply = app.turn("a", "1").await;
    assert_eq!(reply["receipt"]["interpreter"]["previous_end"], "cancelled", "{reply}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_ends_its_sessions_and_others_go_on_with_another() {
    let app = PythonApp::with("", "workers: 1").await;
    app.turn("a", "x = 1").await;
    kill(workers()[0]);
    let begun = tokio::time::Instant::now();
    let reply = loop {
        let reply = app.turn("a", "1").await;
        if reply["receipt"]["interpreter"]["is_new"] == true && reply["success"] == true {
            break reply;
        }
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "{reply}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(reply["receipt"]["interpreter"]["previous_end"], "worker_died", "{reply}");
    assert_eq!(app.result("a", "2").await, 2);
}

#[tokio::test]
async fn without_images_the_least_recently_used_session_makes_space_and_idle_ones_end() {
    let sessions = "sessions: {max: 4, max_per_caller: 2, idle_seconds: 1, max_image_bytes: 0}";
    let app = PythonApp::with("", sessions).await;
    for session in ["a", "b", "a", "c"] {
        app.turn(session, "x = 1").await;
    }
    let (_, listed) = answer(app.app.get("/sessions")).await;
    let names: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|one| &one["session"]).collect();
    assert!(
        names == ["a", "c"] || names.len() < 2,
        "those that were used last, unless they are idle already: {listed}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reply = app.turn("c", "1").await;
    assert_eq!(reply["receipt"]["interpreter"]["previous_end"], "idle", "{reply}");
    let ended = app.metric("sessions_ended_total{reason=\"evicted\"}").await
        + app.metric("sessions_ended_total{reason=\"idle\"}").await;
    assert!(ended >= 2.0, "{ended}");
}

#[tokio::test]
async fn a_session_is_listed_shown_and_deleted_and_its_calls_are_in_the_trail() {
    let app = PythonApp::start().await;
    let begin = "class Secret:\n    def __repr__(self): raise SystemExit\n    __sizeof__ = __repr__\n\
                 import numpy as np\nhidden, array, text = Secret(), np.zeros(1000), 'abc'";
    app.turn("a", begin).await;
    let (status, shown) = app.show("a").await;
    assert_eq!(
        (status, &shown["session"], &shown["calls"], &shown["is_used"]),
        (StatusCode::OK, &json!("a"), &json!(1), &json!(false))
    );
    assert!(shown["memory_bytes"].as_u64().unwrap() > 1 << 16, "{shown}");
    let left = shown["ends_in_seconds"].as_u64().unwrap();
    assert!((901..=3_600).contains(&left), "it is stored when it is idle: {shown}");
    let variables = shown["variables"].as_array().unwrap();
    let of =
        |name: &str| variables.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {shown}"));
    assert_eq!(
        (&of("hidden")["type"], &of("np")["type"], &of("text")["type"]),
        (&json!("Secret"), &json!("module"), &json!("str"))
    );
    assert!(of("array")["type"] == "ndarray" && of("array")["size_bytes"].as_u64().unwrap() > 8_000, "{shown}");
    assert_eq!(app.result("a", "text").await, "abc", "being shown changes nothing");
    let sekisho = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sekisho"));
        let directory = app.app.directory.path();
        command
            .env_clear()
            .envs(cache())
            .current_dir(directory)
            .args(["--server", &app.app.url, "sessions"])
            .args(words);
        tokio::task::spawn_blocking(move || text(&command.output().unwrap()))
    };
    assert!(sekisho(&[]).await.unwrap().contains(" MiB"));
    assert!(sekisho(&["show", "a"]).await.unwrap().contains("ndarray"));
    assert!(sekisho(&["delete", "a"]).await.unwrap().contains("the session a has ended"));
    assert_eq!((app.show("a").await.0, app.delete("a").await), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    let reply = app.turn("a", "1").await;
    assert_eq!(reply["receipt"]["interpreter"]["previous_end"], "deleted");
    let PythonApp { app, _alone } = app;
    let lines = lines(app.stop().await.path());
    let calls: Vec<_> = lines.iter().map(|line| &line["interpreter"]).filter(|session| session.is_object()).collect();
    assert_eq!(calls[0], &json!({"name": "a", "generation": 1, "is_new": true}));
    assert_eq!(calls.last().unwrap()["generation"], 2);
    let deleted: Vec<_> = lines.iter().filter(|line| line["event"] == "interpreter_session_deleted").collect();
    assert_eq!((deleted.len(), &deleted[0]["subject"], &deleted[0]["success"]), (2, &json!("a"), &json!(true)));
}

/// One more than is kept at once, with all that they hold.
#[tokio::test]
async fn sessions_hold_memory_of_their_own_and_give_it_back() {
    let app = PythonApp::with("", "sessions: {max_memory_mb: 160}").await;
    app.turn("small", "x = 1").await;
    let held = app.metric("session_memory_bytes").await;
    assert!(held > f64::from(1 << 16) && held < f64::from(64 << 20), "{held}: what it does not share");
    let reply = app.turn("large", "x = bytearray(b'x') * (200 << 20)\nlen(x)").await;
    assert_eq!(
        (&reply["output"]["result"], &reply["receipt"]["interpreter"]["end"]),
        (&json!(200 << 20), &json!("evicted"))
    );
    assert_eq!(app.result("small", "x").await, 1, "it takes nothing from others");
    assert_eq!(app.delete("small").await, StatusCode::NO_CONTENT);
    assert_eq!((app.metric("session_memory_bytes").await, app.metric("sessions_open").await), (0.0, 0.0));
    app.idle().await;
}
