//! Sessions that are stored and resumed, checkpoints that survive `kill -9`, and copies.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::arguments;
use crate::app::{TestApp, answer, code};
use crate::cli::{Serving, sekisho};
use crate::sandbox::load::kill;
use crate::sandbox::{ALONE, PythonApp, workers};
use crate::slack::slack;
use crate::store_database::TestDatabase;

const IDLE: &str = "sessions: {idle_seconds: 1}";

/// A session with something of all that is stored.
const BEGIN: &str = "import random, time\nimport numpy as np\nimport pandas as pd\n\
                     random.seed(1)\nfirst = random.random()\nbegun = time.monotonic()\n\
                     df = pd.DataFrame({'n': range(10_000), 's': [str(n) for n in range(10_000)]})\n\
                     def add(n):\n    global x\n    x += n\n    return x\n\
                     x = 41\nopen('/tmp/kept', 'w').write('tmp')\nf = open('log.txt', 'w')\nf.write('one')\nf.flush()";

const GO_ON: &str = "f.write(' two')\nf.flush()\n\
                     [add(1), int(df['n'].sum()), open('/tmp/kept').read(), open('log.txt').read(),\n \
                     time.monotonic() >= begun, random.random()]";

impl PythonApp {
    async fn fork(&self, session: &str, count: u32) -> (StatusCode, Value) {
        answer(self.app.post(&format!("/sessions/{session}/fork")).json(&json!({"count": count}))).await
    }

    /// Waits until a session is stored.
    async fn is_stored(&self, session: &str) -> Value {
        let begun = Instant::now();
        loop {
            let (_, shown) = self.show(session).await;
            if shown["place"] == "stored" {
                return shown;
            }
            assert!(begun.elapsed() < slack(Duration::from_secs(30)), "{shown}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The same gateway after it was stopped.
    async fn restarted(self, sandbox: &str) -> Self {
        let Self { app, _alone } = self;
        let directory = app.stop().await;
        drop(_alone);
        let yaml =
            format!("{{tools: {{overrides: {{python_executor: {{rate_limit: 1000000}}}}}}, sandbox: {{{sandbox}}}}}");
        Self::in_directory(directory, &yaml).await
    }

    /// The stored images.
    fn images(&self) -> Vec<PathBuf> {
        let folder = self.app.directory.path().join("state/session-images/interpreter_sessions");
        let tenants = std::fs::read_dir(folder).unwrap().map(|tenant| tenant.unwrap().path());
        tenants.flat_map(|tenant| std::fs::read_dir(tenant).unwrap()).map(|image| image.unwrap().path()).collect()
    }
}

/// What the second program answers: random numbers go on where the first one left them.
async fn expected(app: &PythonApp) -> Value {
    let second = app.result("plain", "import random\nrandom.seed(1)\nrandom.random()\nrandom.random()").await;
    json!([42, 49_995_000, "tmp", "one two", true, second])
}

#[tokio::test]
async fn an_idle_session_is_stored_and_goes_on_with_the_next_call() {
    let app = PythonApp::with("", IDLE).await;
    let expected = expected(&app).await;
    app.result("a", BEGIN).await;
    let shown = app.is_stored("a").await;
    let bytes = shown["stored_bytes"].as_u64().unwrap();
    assert!((1_000..2 << 20).contains(&bytes) && shown["memory_bytes"] == 0 && shown["variables"].is_null(), "{shown}");
    app.is_stored("plain").await;
    assert_eq!((app.metric("session_memory_bytes").await, app.metric("sessions_open").await), (0.0, 0.0));
    let output = app.run_with(arguments("a", GO_ON)).await;
    assert_eq!(output["result"], expected);
    assert_eq!(output["session"], json!({"name": "a", "generation": 1, "is_new": false, "is_resumed": true}));
    let reply = app.turn("a", "add(1)").await;
    let is_resumed = &reply["receipt"]["interpreter"]["is_resumed"];
    assert_eq!((&reply["output"]["result"], is_resumed), (&json!(43), &Value::Null));
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart() {
    let app = PythonApp::start().await;
    let expected = expected(&app).await;
    app.result("a", BEGIN).await;
    let app = app.restarted("").await;
    let (_, listed) = answer(app.app.get("/sessions")).await;
    let places: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|one| &one["place"]).collect();
    assert_eq!(places, ["stored", "stored"], "{listed}");
    assert_eq!(app.result("a", GO_ON).await, expected);
    // Deleted while it is stored.
    assert_eq!(app.delete("plain").await, StatusCode::NO_CONTENT);
    let reply = app.turn("plain", "1").await;
    let interpreter = &reply["receipt"]["interpreter"];
    assert_eq!((&interpreter["previous_end"], &interpreter["generation"]), (&json!("deleted"), &json!(2)));
}

#[tokio::test]
async fn an_image_that_was_changed_is_lost_and_the_session_begins_anew() {
    let app = PythonApp::start().await;
    app.turn("a", "x = 1").await;
    let app = app.restarted("").await;
    let image = app.images().remove(0);
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    let (status, reply) = app.call(arguments("a", "x")).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "session_lost"), "{reply}");
    assert_eq!(app.metric("sessions_ended_total{reason=\"lost\"}").await, 1.0);
    let reply = app.turn("a", "1").await;
    let interpreter = &reply["receipt"]["interpreter"];
    assert_eq!((&interpreter["previous_end"], &interpreter["is_new"]), (&json!("lost"), &json!(true)), "{reply}");
}

#[tokio::test]
async fn a_session_that_is_too_large_ends_when_it_is_idle_and_says_so() {
    let app = PythonApp::with("", "sessions: {idle_seconds: 1, max_image_bytes: 20000}").await;
    app.turn("a", "import os\nx = os.urandom(1 << 20)").await;
    let begun = Instant::now();
    while app.show("a").await.0 == StatusCode::OK {
        assert!(begun.elapsed() < slack(Duration::from_secs(30)));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let reply = app.turn("a", "1").await;
    let interpreter = &reply["receipt"]["interpreter"];
    assert_eq!((&interpreter["previous_end"], &interpreter["not_stored"]), (&json!("idle"), &json!("too_large")));
    let note = reply["output"]["session"]["note"].as_str().unwrap();
    assert!(note.contains("could not be stored, because its image would be larger"), "{note}");
}

#[tokio::test]
async fn the_least_recently_used_session_is_stored_for_a_new_one() {
    let app = PythonApp::with("", "sessions: {max: 4, max_per_caller: 2}").await;
    for (value, session) in ["a", "b", "c"].into_iter().enumerate() {
        app.turn(session, &format!("x = {value}")).await;
    }
    for (value, session) in ["a", "b", "c", "a"].into_iter().enumerate() {
        let output = app.run_with(arguments(session, "x")).await;
        assert_eq!((&output["result"], &output["session"]["is_new"]), (&json!(value % 3), &json!(false)), "{session}");
    }
    assert_eq!(app.metric("sessions_open").await, 2.0);
    assert_eq!(app.metric("sessions_ended_total{reason=\"evicted\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_checkpoints_outlives_its_worker() {
    let app = PythonApp::with("", "workers: 1").await;
    let mut sent = arguments("a", "x = [1]");
    sent["checkpoint"] = "every_call".into();
    let output = app.run_with(sent).await;
    assert_eq!(output["session"]["is_checkpointed"], true, "{output}");
    app.result("a", "x.append(2)").await;
    kill(workers()[0]);
    let begun = Instant::now();
    let reply = loop {
        let reply = app.turn("a", "x").await;
        if reply["success"] == true {
            break reply;
        }
        assert!(begun.elapsed() < slack(Duration::from_secs(20)), "{reply}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let generation = &reply["receipt"]["interpreter"]["generation"];
    assert_eq!((&reply["output"]["result"], generation), (&json!([1, 2]), &json!(1)));
}

#[tokio::test]
async fn a_session_with_checkpoints_goes_on_from_the_call_before_a_program_that_is_stopped() {
    let app = PythonApp::start().await;
    let mut sent = arguments("a", "x = [1]");
    sent["checkpoint"] = "every_call".into();
    app.run_with(sent).await;
    for (code_of_end, program) in [
        ("sandbox_timeout", "x.append(2)\nwhile True: pass"),
        ("sandbox_memory", "x.append(3)\ny = [bytearray(1 << 30) for _ in range(99)]"),
    ] {
        let mut sent = arguments("a", program);
        sent["timeout_seconds"] = 3.into();
        let (_, reply) = app.call(sent).await;
        let (session, interpreter) = (&reply["output"]["session"], &reply["receipt"]["interpreter"]);
        assert_eq!((code(&reply), &interpreter["not_stored"]), (code_of_end, &json!("stopped")), "{reply}");
        assert!(session["note"].as_str().unwrap().contains("goes on from the last one"), "{reply}");
        assert_eq!(app.result("a", "x").await, json!([1]));
    }
}

/// Each call that was answered is in the session after `kill -9` of the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_checkpoints_survives_a_gateway_that_is_killed() {
    let _alone = ALONE.lock().await;
    let directory = TempDir::new().unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let turn = async |serving: &Serving, session: &str, program: &str, more: Value| {
        let mut body = json!({"arguments": {"session": session, "code": program}});
        body["arguments"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer(client.post(format!("{}/tools/python_executor/execute", serving.url)).json(&body)).await
    };
    let start = async || {
        let program = sekisho(&directory);
        let serving = tokio::task::spawn_blocking(|| Serving::run(program, &[])).await.unwrap();
        let begun = Instant::now();
        while turn(&serving, "ready", "1", json!({})).await.0 != StatusCode::OK {
            assert!(begun.elapsed() < slack(Duration::from_secs(30)), "it can run programs");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        serving
    };
    let mut serving = start().await;
    let (_, reply) = turn(&serving, "a", "kept = []", json!({"checkpoint": "every_call"})).await;
    assert_eq!(reply["output"]["session"]["is_checkpointed"], true, "{reply}");
    turn(&serving, "plain", "x = 1", json!({})).await;
    for number in 0..3 {
        let (_, reply) = turn(&serving, "a", &format!("kept.append({number})\nlen(kept)"), json!({})).await;
        assert_eq!(reply["output"]["result"], number + 1, "{reply}");
        // Dropped, it is killed.
        drop(serving);
        serving = start().await;
        let (_, reply) = turn(&serving, "a", "kept", json!({})).await;
        let kept: Vec<_> = (0..=number).collect();
        assert_eq!(reply["output"]["result"], json!(kept), "{reply}");
        assert_eq!(reply["output"]["session"]["generation"], 1, "{reply}");
    }
    let (_, reply) = turn(&serving, "plain", "1", json!({})).await;
    assert_eq!(reply["receipt"]["interpreter"]["previous_end"], "worker_died", "{reply}");
}

#[tokio::test]
async fn copies_have_what_the_session_had_and_go_ways_of_their_own() {
    let app = PythonApp::start().await;
    app.turn("a", "import random\nimport numpy as np\nx = [1]\nopen('/tmp/f', 'w').write('f')").await;
    let (status, body) = app.fork("a", 2).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let copies: Vec<_> =
        body["sessions"].as_array().unwrap().iter().map(|copy| copy["session"].as_str().unwrap().to_owned()).collect();
    assert_eq!(copies.len(), 2);
    let mut numbers = Vec::new();
    for session in ["a", &copies[0], &copies[1]] {
        let program = format!("x.append({session:?})\n[x, open('/tmp/f').read(), random.random(), np.random.random()]");
        let output = app.run_with(arguments(session, &program)).await;
        let result = output["result"].as_array().unwrap();
        assert_eq!((&result[0], &result[1]), (&json!([1, session]), &json!("f")));
        assert_eq!(output["session"]["is_new"], false);
        numbers.extend([result[2].to_string(), result[3].to_string()]);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 6, "no two have the same random numbers: {numbers:?}");
    for (session, count, expected) in
        [("a", 0, StatusCode::BAD_REQUEST), ("a", 1_000, StatusCode::BAD_REQUEST), ("none", 1, StatusCode::NOT_FOUND)]
    {
        assert_eq!(app.fork(session, count).await.0, expected, "{session} {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_session_goes_on_at_another_replica() {
    let _alone = ALONE.lock().await;
    let (database, shared) = (TestDatabase::new().await, TempDir::new().unwrap());
    let yaml = database.settings(&format!(
        "cluster: {{enabled: true, blobs: {{url: 'file://{}'}}}}\nsecrets: {{key: '{}'}}\n",
        shared.path().display(),
        "1f".repeat(32)
    ));
    let (one, other) = (TestApp::with(&yaml).await, TestApp::with(&yaml).await);
    let turn = async |app: &TestApp, program: &str| {
        let begun = Instant::now();
        loop {
            let (status, reply) = app.call("python_executor", arguments("a", program)).await;
            if status == StatusCode::OK {
                return reply;
            }
            assert!(begun.elapsed() < slack(Duration::from_secs(60)), "{reply}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    turn(&one, "x = []").await;
    for (number, app) in [&other, &one, &other].into_iter().enumerate() {
        let reply = turn(app, &format!("x.append({number})\nx")).await;
        let expected: Vec<_> = (0..=number).collect();
        assert_eq!(reply["output"]["result"], json!(expected), "{reply}");
        assert_eq!(reply["receipt"]["interpreter"]["is_resumed"], true, "{reply}");
    }
    let (_, listed) = answer(one.get("/sessions")).await;
    assert_eq!(listed["sessions"][0]["place"], "elsewhere", "{listed}");
    one.stop().await;
    other.stop().await;
}
