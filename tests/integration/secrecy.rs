//! The key of a model's provider is nowhere but where it is sent: not in what the running program logs, answers,
//! traces, measures or keeps, whatever the provider does with it.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::cli::sekisho;

const KEY: &str = "sk-canary-5d41402abc4b2a76";

/// The forms in which it would be disclosed, whole or in part.
const MARK: &str = "canary";

/// What the provider does, by the agent's name; each repeats the key in one way or another.
const MOODS: [&str; 8] = ["answers", "refuses", "fails", "limits", "garbles", "breaks", "redirects", "mistypes"];

type Received = Arc<Mutex<Vec<u8>>>;

fn events(events: &[Value]) -> Response {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    ([("content-type", "text/event-stream")], body + "data: [DONE]\n\n").into_response()
}

fn reported(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

/// Plays one of the moods.
async fn respond(Path(mood): Path<String>, headers: HeaderMap, asked: Bytes) -> Response {
    let key = headers["authorization"].to_str().unwrap().to_owned();
    assert!(key.contains(KEY), "the key comes where it is meant for");
    let error = json!({"error": {"message": key, "type": key, "code": key}});
    let head = |status: StatusCode| (status, [("x-echo", key.clone()), ("retry-after", "0".into())], error.to_string());
    match mood.as_str() {
        // A tool call first, then what it came to.
        "answers" if !String::from_utf8_lossy(&asked).contains("\"tool\"") => {
            let function = json!({"name": "calculator", "arguments": "{\"expression\": \"6*7\"}"});
            events(&[
                reported(&json!({"tool_calls": [{"index": 0, "id": "a", "function": function}]})),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ])
        }
        "answers" => events(&[
            reported(&json!({"content": "It is 42."})),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ]),
        "refuses" => head(StatusCode::UNAUTHORIZED).into_response(),
        "fails" => head(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        "limits" => head(StatusCode::TOO_MANY_REQUESTS).into_response(),
        "garbles" => ([("content-type", "text/event-stream")], format!("data: {{{key}\n\n")).into_response(),
        "breaks" => events(&[reported(&json!({"content": "It is"})), error]),
        "redirects" => (StatusCode::FOUND, [("location", format!("http://127.0.0.1:1/?key={key}"))]).into_response(),
        _ => ([("content-type", format!("application/{key}"))], error.to_string()).into_response(),
    }
}

/// A provider in all its moods, and a collector of traces.
async fn surroundings(received: &Received) -> std::net::SocketAddr {
    let kept = Arc::clone(received);
    let collect = async move |body: Bytes| kept.lock().unwrap().extend_from_slice(&body);
    let router = Router::new().route("/v1/traces", post(collect)).route("/{mood}/chat/completions", post(respond));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// The program, as loud as it gets.
struct Loud {
    child: Child,
    log: Received,
}

impl Loud {
    fn start(directory: &TempDir, around: std::net::SocketAddr) -> Self {
        let agent = |mood: &str| {
            format!(
                "    {mood}: {{provider: openai, model: m, base_url: 'http://{around}/{mood}', api_key: {KEY}, retries: 1}}\n"
            )
        };
        let agents: String = MOODS.map(agent).concat();
        let yaml = format!("agent:\n  default_profile: answers\n  profiles:\n{agents}");
        std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
        let mut child = sekisho(directory)
            .args(["serve", "--listen", "127.0.0.1:0", "--config", "sekisho.yaml"])
            .env("RUST_LOG", "trace")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{around}"))
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Received::default();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut output in outputs {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                let mut bytes = [0; 8_192];
                while let Ok(read @ 1..) = output.read(&mut bytes) {
                    log.lock().unwrap().extend_from_slice(&bytes[..read]);
                }
            });
        }
        Self { child, log }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    async fn address(&self) -> String {
        for _ in 0..300 {
            let address = self.log().lines().find_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                Some(line["address"].as_str()?.to_owned())
            });
            if let Some(address) = address {
                return format!("http://{address}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the log tells no address: {}", self.log());
    }

    /// Ends it as an operator would, so that everything is written.
    async fn stop(&mut self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        for _ in 0..300 {
            if self.child.try_wait().unwrap().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it goes on");
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Everything in a folder, as text as far as it is.
pub(crate) fn contents(folder: &std::path::Path) -> String {
    let (mut open, mut found) = (vec![folder.to_owned()], String::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            found += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_provider_is_in_no_log_reply_trace_or_file() {
    let (directory, traces) = (TempDir::new().unwrap(), Received::default());
    let around = surroundings(&traces).await;
    let mut program = Loud::start(&directory, around);
    let url = program.address().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut replies = String::new();
    for mood in MOODS {
        for stream in [true, false] {
            let body = json!({"model": mood, "stream": stream, "messages": [{"role": "user", "content": "6*7?"}]});
            let asked = client.post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
            replies += &asked.body(body.to_string()).send().await.unwrap().text().await.unwrap();
        }
        let asked = client.post(format!("{url}/api/chat")).header("content-type", "application/json");
        let body = json!({"model": mood, "message": "6*7?"}).to_string();
        replies += &asked.body(body).send().await.unwrap().text().await.unwrap();
    }
    for path in ["/metrics", "/readyz", "/v1/models", "/openapi.json"] {
        replies += &client.get(format!("{url}{path}")).send().await.unwrap().text().await.unwrap();
    }
    program.stop().await;
    let traces = String::from_utf8_lossy(&traces.lock().unwrap()).into_owned();
    let (log, files) = (program.log(), contents(&directory.path().join("state")));
    for (what, text, expected) in [
        ("the log", &log, &["the request to the model is retried", "a tool call ended"][..]),
        ("replies", &replies, &["It is 42.", "check the profile's api_key", "a redirect", "HTTP 500"]),
        ("traces", &traces, &["invoke_agent", "chat m", "upstream_error", "gen_ai.usage.input_tokens"]),
        ("files", &files, &["agent_runs", "calculator"]),
    ] {
        for expected in expected {
            assert!(
                text.contains(expected),
                "{what}: {expected:?} is not there, so that nothing is shown by it: {text}"
            );
        }
        let at = text.find(MARK);
        assert_eq!(at, None, "{what}: {:?}", at.and_then(|at| text.get(at.saturating_sub(200)..at + 60)));
    }
}
