//! What viewers of the console's overview cost while the gateway has many tools and many calls: the processor time of its
//! process, beside that without a viewer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

/// Tools of the API.
const TOOLS: usize = 2_000;
/// Calls a second, of each tool in turn.
const CALLS_A_SECOND: u64 = 1_000;
/// How long each number of viewers is measured, and how often.
const SECONDS: u64 = 5;
const ROUNDS: usize = 3;

/// Milliseconds of the processor in a second that viewers cost.
pub(crate) struct Viewers {
    pub(crate) one: f64,
    pub(crate) ten: f64,
}

/// An API with many operations.
pub(crate) struct Api {
    runtime: Runtime,
    address: SocketAddr,
}

impl Api {
    pub(crate) fn serve() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/{operation}", get(async || axum::Json(json!({"found": 1}))));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { runtime, address }
    }

    /// Writes the API's document into this folder, and gives the configuration.
    pub(crate) fn config(&self, folder: &Path) -> String {
        let document = folder.join("many.json");
        let answer = json!({"200": {"description": "found", "content": {"application/json": {}}}});
        let operation = |n: usize| {
            (
                format!("/t{n}"),
                json!({"get": {"operationId": format!("t{n}"), "summary": "Find one.", "responses": answer}}),
            )
        };
        let api = json!({
            "openapi": "3.1.0",
            "info": {"title": "Many", "version": "1"},
            "servers": [{"url": format!("http://{}", self.address)}],
            "paths": (0..TOOLS).map(operation).collect::<serde_json::Map<_, _>>(),
        });
        std::fs::write(&document, api.to_string()).unwrap();
        format!(
            "auth: {{api_keys: [{{id: root, key: key-of-root, roles: [admin]}}]}}\n\
             limits: {{max_concurrent: 100000, max_concurrent_per_tool: 100000, max_queued: 100000}}\n\
             outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
             openapi: {{collections: {{api: {{spec_file: {}, rate_limit: 1000000000}}}}}}\n",
            document.display()
        )
    }

    /// Measures a gateway with that configuration; `process` is its id.
    pub(crate) fn measure(&self, url: &str, process: u32) -> Viewers {
        self.runtime.block_on(async {
            let calls = tokio::spawn(calls(url.to_owned()));
            // Every tool is called once, and its connection is open.
            tokio::time::sleep(Duration::from_secs(2 + TOOLS as u64 / CALLS_A_SECOND)).await;
            let (mut one, mut ten) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let none = with_viewers(url, process, 0).await;
                one.push(with_viewers(url, process, 1).await - none);
                ten.push(with_viewers(url, process, 10).await - none);
            }
            assert!(!calls.is_finished(), "the calls have ended");
            calls.abort();
            Viewers { one: crate::median(one), ten: crate::median(ten) }
        })
    }
}

/// Milliseconds of the processor in a second, while there are so many viewers.
async fn with_viewers(url: &str, process: u32, count: u64) -> f64 {
    let (mut viewers, received) = (Vec::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..count {
        viewers.push(viewer(url, Arc::clone(&received)).await);
    }
    let before = processor_millis(process);
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let used = processor_millis(process) - before;
    viewers.iter().for_each(JoinHandle::abort);
    let events = received.load(Ordering::Relaxed);
    assert!(events >= count * (SECONDS - 1), "{count} viewers received {events} updates in {SECONDS} s");
    used / SECONDS as f64
}

/// Signs in, and reads the live overview until it is aborted.
async fn viewer(url: &str, received: Arc<AtomicU64>) -> JoinHandle<()> {
    let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let form = client.post(format!("{url}/console/sign-in")).header(ORIGIN, url);
    let form = form.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body("key=key-of-root");
    let signed_in = form.send().await.unwrap();
    let cookie = signed_in.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let live = client.get(format!("{url}/console/live")).header(COOKIE, cookie).send().await.unwrap();
    assert!(live.status().is_success(), "{}", live.status());
    tokio::spawn(read(live, received))
}

async fn read(live: Response, received: Arc<AtomicU64>) {
    let mut stream = live.bytes_stream();
    while let Some(Ok(_)) = stream.next().await {
        received.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls each tool in turn, at the rate, without end.
async fn calls(url: String) {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / CALLS_A_SECOND));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    // With this task, those under way end too.
    let mut running = JoinSet::new();
    for n in (0..TOOLS).cycle() {
        tick.tick().await;
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
        let call = client.post(format!("{url}/tools/api__t{n}/execute")).bearer_auth("key-of-root");
        let call = call.json(&json!({"arguments": {}})).send();
        running.spawn(async move {
            let response = call.await.unwrap();
            assert!(response.status().is_success(), "a call was refused: {}", response.status());
            response.bytes().await.unwrap();
        });
    }
}

/// What the process has used of the processor (proc(5): clock ticks, of which a second has 100).
pub(crate) fn processor_millis(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    // The 14th and 15th of all: in user and in system mode.
    let ticks: f64 = [fields[11], fields[12]].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks * 10.0
}
