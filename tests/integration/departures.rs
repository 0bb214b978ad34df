//! Clients of agents that leave: nothing of their runs stays, neither here nor at the model's provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::post;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::app::TestApp;
use crate::slack::slack;

/// How long a run may take to be gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(20);

/// One answer under way at the provider.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn one_of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn event(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

/// Begins an answer, keeps its connection open, and counts those that are.
fn unending(begin: Bytes, open: &Arc<AtomicUsize>) -> Response {
    let here = Open::one_of(open);
    let pieces = stream::iter([begin]).chain(stream::pending()).map(move |piece| {
        let _under_way = &here;
        Ok::<_, std::convert::Infallible>(piece)
    });
    Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(pieces)).unwrap()
}

/// Agents by what their models do: send one chunk and stop, send nothing, call a tool that takes a minute.
async fn gateway(open: &Arc<AtomicUsize>) -> TestApp {
    let word = event(&json!({"choices": [{"index": 0, "delta": {"content": "word "}}]}));
    let function = json!({"name": "sleep", "arguments": "{\"ms\": 60000}"});
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": function}]});
    let slow = event(&json!({"choices": [{"index": 0, "delta": call, "finish_reason": "tool_calls"}]}));
    let slow = [slow, Bytes::from_static(b"data: [DONE]\n\n")].concat();
    let (talks, silent) = (Arc::clone(open), Arc::clone(open));
    let router = Router::new()
        .route("/talks/chat/completions", post(async move || unending(word, &talks)))
        .route("/silent/chat/completions", post(async move || unending(Bytes::from_static(b": \n\n"), &silent)))
        .route("/slow/chat/completions", post(async move || ([("content-type", "text/event-stream")], slow)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let agent =
        |name: &str| format!("    {name}: {{provider: openai, model: m, base_url: 'http://{address}/{name}'}}\n");
    let agents: String = ["talks", "silent", "slow"].map(agent).concat();
    TestApp::with(&format!("limits: {{max_concurrent_per_tool: 200}}\nagent:\n  profiles:\n{agents}")).await
}

/// Sends a request, reads the first chunk, and disconnects.
async fn leave(app: &TestApp, agent: &str) {
    let body = json!({"model": agent, "stream": true, "messages": [{"role": "user", "content": "go"}]});
    let asked = app.post("/v1/chat/completions").json(&body).send();
    // A silent model has no reply yet.
    if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_millis(500), asked).await {
        assert!(answer.status().is_success(), "{agent}: {}", answer.status());
        let mut heard = answer.bytes_stream();
        _ = tokio::time::timeout(Duration::from_millis(200), heard.next()).await;
    }
}

async fn leave_a_hundred_times(app: &TestApp) {
    let visits = (0..102).map(|number| leave(app, ["talks", "silent", "slow"][number % 3]));
    stream::iter(visits).buffer_unordered(34).for_each(async |()| {}).await;
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < slack(GONE_TIMEOUT), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_leave_take_their_runs_along() {
    let open = Arc::<AtomicUsize>::default();
    let app = gateway(&open).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let mut before = None;
    // The first round makes what is made once.
    for _ in 0..2 {
        leave_a_hundred_times(&app).await;
        until("connections to the provider are still open", || open.load(Ordering::SeqCst) == 0).await;
        until("tools still run", || app.gateway.pipeline.limits.in_flight() == 0).await;
        // Kept-alive connections of the clients are tasks of the server's, as many as there were at once.
        let most = before.map_or(usize::MAX, |before| before + 40);
        until("tasks go on", || tasks() <= most).await;
        before.get_or_insert_with(tasks);
    }
    let aborted = ["talks", "silent", "slow"]
        .map(|agent| format!("shannon_agent_runs_total{{agent=\"{agent}\",reason=\"aborted\"}}"));
    for line in aborted {
        assert_eq!(app.metric(&line).await, 68.0, "{line}");
    }
}
