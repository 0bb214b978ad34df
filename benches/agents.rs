//! Streams of agents through the real server. The model server and the clients run in this process, so that one clock
//! measures when a piece is sent and when it is received.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Concurrent streams.
const STREAMS: usize = 500;
/// Pieces of each stream, and the interval between them.
const PIECES: usize = 100;
const APART: Duration = Duration::from_millis(100);
/// Runs that measure the time to the first piece.
const FIRSTS: usize = 300;
/// Timeout of a stream.
const MAX_STREAM: Duration = Duration::from_secs(60);

/// The measurements of the concurrent streams.
pub(crate) struct Crowd {
    /// Intervals between two pieces of any stream, in ascending order.
    waits: Vec<Duration>,
    /// Clients that received all pieces.
    pub(crate) whole: usize,
}

impl Crowd {
    /// A percentile of the intervals.
    pub(crate) fn wait(&self, of_a_hundred: usize) -> Duration {
        self.waits[((self.waits.len() - 1) * of_a_hundred) / 100]
    }
}

/// A model server, and the clients of its streams.
pub(crate) struct Models {
    runtime: Runtime,
    address: std::net::SocketAddr,
    said: Said,
}

/// When the first piece of the latest answer was sent.
type Said = Arc<Mutex<Option<Instant>>>;

impl Models {
    pub(crate) fn serve() -> Self {
        let (runtime, said) = (Runtime::new().unwrap(), Said::default());
        let router = Router::new()
            .route("/prompt/chat/completions", post(async |State(said): State<Said>| sent(once(said))))
            .route("/steady/chat/completions", post(async || sent(steadily())))
            .with_state(Arc::clone(&said));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { runtime, address, said }
    }

    /// The agents' part of a configuration.
    pub(crate) fn agents(&self) -> String {
        let agent = |name: &str| {
            format!(
                "    {name}: {{provider: openai, model: m, base_url: 'http://{}/{name}', api_key: k}}\n",
                self.address
            )
        };
        format!("agent:\n  profiles:\n{}{}", agent("prompt"), agent("steady"))
    }

    /// Milliseconds from the model's first piece to the client's, one run after the other.
    pub(crate) fn first_pieces(&self, url: &str) -> Vec<f64> {
        let client = reqwest::Client::builder().no_proxy().timeout(MAX_STREAM).build().unwrap();
        let time_one = async || {
            let mut received = pieces(&client, url, "prompt").await;
            received.next().await.expect("no piece came");
            let heard_at = Instant::now();
            let said_at = self.said.lock().unwrap().take().unwrap();
            while received.next().await.is_some() {}
            heard_at.duration_since(said_at).as_secs_f64() * 1_000.0
        };
        self.runtime.block_on(async {
            let mut times = Vec::new();
            for _ in 0..FIRSTS {
                times.push(time_one().await);
            }
            times
        })
    }

    /// Runs all streams concurrently.
    pub(crate) fn crowd(&self, url: &str) -> Crowd {
        let client = reqwest::Client::builder().no_proxy().timeout(MAX_STREAM).build().unwrap();
        let listen = |client: reqwest::Client, url: String| async move {
            let mut received = pieces(&client, &url, "steady").await;
            let (mut waits, mut last) = (Vec::with_capacity(PIECES), None::<Instant>);
            while received.next().await.is_some() {
                let now = Instant::now();
                waits.extend(last.replace(now).map(|last| now - last));
            }
            waits
        };
        self.runtime.block_on(async {
            let clients: Vec<_> = (0..STREAMS).map(|_| tokio::spawn(listen(client.clone(), url.to_owned()))).collect();
            let mut crowd = Crowd { waits: Vec::new(), whole: 0 };
            for received in clients {
                let waits = received.await.unwrap();
                crowd.whole += usize::from(waits.len() + 1 == PIECES);
                crowd.waits.extend(waits);
            }
            crowd.waits.sort_unstable();
            crowd
        })
    }
}

/// One item for each piece of text that the client receives.
async fn pieces(client: &reqwest::Client, url: &str, agent: &str) -> impl Stream<Item = ()> + Unpin + use<> {
    let body = json!({"model": agent, "stream": true, "messages": [{"role": "user", "content": "go"}]});
    let request = client.post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    let chunks = response.bytes_stream().map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap());
    chunks.flat_map(|text| futures_util::stream::iter(vec![(); text.matches(r#""content":"word "#).count()]))
}

fn sent(text: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(text.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from(text))));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

fn once(said: Said) -> impl Stream<Item = String> {
    async_stream::stream! {
        *said.lock().unwrap() = Some(Instant::now());
        yield word();
        yield end();
    }
}

fn steadily() -> impl Stream<Item = String> {
    async_stream::stream! {
        let mut ticks = tokio::time::interval(APART);
        for _ in 0..PIECES {
            ticks.tick().await;
            yield word();
        }
        yield end();
    }
}

fn word() -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "word "}}]}))
}

fn end() -> String {
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}});
    format!("data: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}
