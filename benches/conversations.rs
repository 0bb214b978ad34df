//! Stored conversations under load, through the real server. The model server and the clients run in this process, so that one
//! clock measures when a piece is sent and when it is received.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures_util::{Stream, StreamExt};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// What the user says first, so that the conversation is this large from its first run on.
const CONVERSATION_BYTES: usize = 200_000;
/// How long a model takes until its first piece.
const THINKING: Duration = Duration::from_secs(1);
/// Pieces of an answer, and the interval between them.
const PIECES: usize = 10;
const APART: Duration = Duration::from_millis(50);
/// Timeout of a run.
const MAX_RUN: Duration = Duration::from_secs(60);
/// Rows of a run: what the user said, the calls, an answer for each, the answer.
const MESSAGES: usize = 5;
const SUB_AGENTS: usize = 2;

/// How large the load is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) conversations: usize,
    pub(crate) time: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// From a model's first piece to the client's first event of it, in ascending order.
    firsts: Vec<Duration>,
    pub(crate) runs: usize,
    /// Conversations whose rows are not those of their runs.
    pub(crate) inconsistent: Vec<String>,
}

impl Measured {
    pub(crate) fn first(&self, of_a_hundred: usize) -> Duration {
        self.firsts[((self.firsts.len() - 1) * of_a_hundred) / 100]
    }
}

/// When the first piece for each conversation was sent last, by its number.
type Sent = Arc<Mutex<HashMap<usize, Instant>>>;

/// A model server, and the clients of the conversations.
pub(crate) struct Talks {
    runtime: Runtime,
    address: std::net::SocketAddr,
    sent: Sent,
}

impl Talks {
    pub(crate) fn serve() -> Self {
        let (runtime, sent) = (Runtime::new().unwrap(), Sent::default());
        let router = Router::new()
            .route(
                "/main/chat/completions",
                post(async |State(sent): State<Sent>, body: Bytes| main_agent(&sent, &body)),
            )
            .route("/helper/chat/completions", post(async || stream(answer(None))))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&sent));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { runtime, address, sent }
    }

    /// The agents' part of a configuration.
    pub(crate) fn agents(&self) -> String {
        let profile = |name: &str, more: &str| {
            format!(
                "    {name}: {{provider: openai, model: m, base_url: 'http://{}/{name}', api_key: k, \
                 context_tokens: 1000000, {more}}}\n",
                self.address
            )
        };
        format!(
            "agent:\n  default_profile: main\n  subagents:\n    types:\n      helper: {{description: Helps., prompt: You \
             help., model: helper}}\n  profiles:\n{}{}",
            profile("main", "subagents: [helper]"),
            profile("helper", "")
        )
    }

    /// Runs all conversations at once for that time, each run after the one before, and compares what is stored.
    pub(crate) fn measure(&self, url: &str, load: Load) -> Measured {
        let client = Client::builder().no_proxy().timeout(MAX_RUN).build().unwrap();
        self.runtime.block_on(async {
            let until = Instant::now() + load.time;
            let talk = |number| {
                let talk = Talk { client: client.clone(), url: url.to_owned(), number, sent: Arc::clone(&self.sent) };
                tokio::spawn(talk.go_on(until))
            };
            let mut measured = Measured::default();
            for talked in (0..load.conversations).map(talk).collect::<Vec<_>>() {
                let (firsts, problem) = talked.await.unwrap();
                measured.runs += firsts.len();
                measured.firsts.extend(firsts);
                measured.inconsistent.extend(problem);
            }
            measured.firsts.sort_unstable();
            measured
        })
    }
}

/// One conversation.
struct Talk {
    client: Client,
    url: String,
    number: usize,
    sent: Sent,
}

impl Talk {
    /// The time to the first event of each run, and what is wrong with the rows.
    async fn go_on(self, until: Instant) -> (Vec<Duration>, Option<String>) {
        let created = self.client.post(format!("{}/api/conversations", self.url)).json(&json!({"title": "A load"}));
        let created: Value = created.send().await.unwrap().json().await.unwrap();
        let path = format!("/api/conversations/{}", created["id"].as_str().unwrap());
        let mut firsts = Vec::new();
        while Instant::now() < until {
            let filling = if firsts.is_empty() { "word ".repeat(CONVERSATION_BYTES / 5) } else { String::new() };
            firsts.push(self.run(&path, &format!("{filling}conversation-{};", self.number)).await);
        }
        let problem = self.compare(&path, firsts.len()).await.err();
        (firsts, problem)
    }

    async fn run(&self, path: &str, input: &str) -> Duration {
        let request = self.client.post(format!("{}{path}/execute", self.url));
        let response = request.json(&json!({"user_input": input, "stream": true})).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let mut chunks = response.bytes_stream();
        let (mut first, mut last) = (None, Vec::new());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.unwrap();
            if first.is_none() && contains(&chunk, "event: text_delta") {
                let sent = self.sent.lock().unwrap()[&self.number];
                first = Some(sent.elapsed());
            }
            last.extend_from_slice(&chunk);
        }
        assert!(contains(&last, r#""is_error":false"#), "{}", String::from_utf8_lossy(&last));
        first.expect("no piece came")
    }

    /// # Errors
    /// The first difference between the rows of the conversation and its runs.
    async fn compare(&self, path: &str, runs: usize) -> Result<(), String> {
        let stored = self.rows(&format!("{path}/runs"), "runs").await;
        let succeeded = stored.iter().filter(|run| run["status"] == "succeeded").count();
        let messages = self.rows(&format!("{path}/messages"), "messages").await.len();
        let id = path.rsplit('/').next().unwrap_or_default();
        let of_log = |log: &str| format!("/api/logs/{log}?conversation_id={id}");
        let usage = self.rows(&of_log("usage"), "rows").await.len();
        let calls = self.rows(&of_log("tool_executions"), "rows").await;
        let answered = calls.iter().filter(|call| call["content"].is_string()).count();
        let found = (succeeded, messages, usage, answered);
        let expected = (runs, runs * MESSAGES, runs * 2, runs * SUB_AGENTS);
        if found == expected { Ok(()) } else { Err(format!("{path}: {found:?} in place of {expected:?}")) }
    }

    /// All entries of a list. Those of a run are few enough for pages of 500.
    async fn rows(&self, path: &str, field: &str) -> Vec<Value> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = self.client.get(format!("{}{path}{separator}limit=500", self.url)).send().await.unwrap();
        let page: Value = page.json().await.unwrap();
        page[field].as_array().unwrap_or_else(|| panic!("{path}: {page}")).clone()
    }
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

/// First it says something and starts its sub-agents, then it answers.
fn main_agent(sent: &Sent, body: &[u8]) -> Response {
    let body = std::str::from_utf8(body).unwrap();
    let said = body.rfind("conversation-").unwrap();
    if body[said..].contains(r#""role":"tool""#) {
        return stream(answer(None));
    }
    let number = body[said + "conversation-".len()..].split_once(';').unwrap().0.parse().unwrap();
    stream(answer(Some((Arc::clone(sent), number))))
}

/// The pieces of a turn, which starts sub-agents if it is the first one of its run.
fn answer(first_of: Option<(Sent, usize)>) -> impl Stream<Item = String> + Send {
    async_stream::stream! {
        tokio::time::sleep(THINKING).await;
        if let Some((sent, number)) = &first_of {
            sent.lock().unwrap().insert(*number, Instant::now());
        }
        for _ in 0..PIECES {
            yield piece(&json!({"content": "word "}), None);
            tokio::time::sleep(APART).await;
        }
        let end = match first_of {
            None => "stop",
            Some(_) => {
                let arguments = json!({"description": "help", "prompt": "Help.", "subagent_type": "helper"}).to_string();
                let call = |index| {
                    json!({"index": index, "id": format!("call_{index}"), "type": "function",
                           "function": {"name": "Task", "arguments": arguments}})
                };
                yield piece(&json!({"tool_calls": (0..SUB_AGENTS).map(call).collect::<Vec<_>>()}), None);
                "tool_calls"
            }
        };
        yield piece(&json!({}), Some(end));
        let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
        yield format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}));
    }
}

fn piece(delta: &Value, finish_reason: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
    format!("data: {}\n\n", json!({"choices": [choice]}))
}

fn stream(text: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(text.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from(text))));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}
