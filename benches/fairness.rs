//! One caller floods a tool; how long do the calls of another take? Every call waits [`UPSTREAM_TIME`] at its upstream,
//! so that the tool's slots are what is short, and not the processor.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use reqwest::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// How long the upstream takes for an answer.
const UPSTREAM_TIME: Duration = Duration::from_millis(20);
/// Slots of the tool.
const SLOTS: usize = 32;
/// Calls that the flooding caller has under way.
const FLOOD: usize = 256;
/// Calls of the other caller for each figure, one after the other.
const CALLS: usize = 300;

/// The slowest of a hundred calls of the other caller.
pub(crate) struct Fairness {
    pub(crate) alone: Duration,
    pub(crate) beside_flood: Duration,
}

/// The upstream, an API with one operation.
pub(crate) struct Upstream {
    runtime: Runtime,
    address: SocketAddr,
}

impl Upstream {
    pub(crate) fn serve() -> Self {
        let runtime = Runtime::new().unwrap();
        let answer = get(async || {
            tokio::time::sleep(UPSTREAM_TIME).await;
            axum::Json(json!({"found": 1}))
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, Router::new().route("/search", answer)).await });
        Self { runtime, address }
    }

    /// Writes the API's document into this folder, and gives the configuration.
    pub(crate) fn config(&self, folder: &Path) -> String {
        let document = folder.join("search.json");
        let answer = json!({"200": {"description": "found", "content": {"application/json": {}}}});
        let api = json!({
            "openapi": "3.1.0",
            "info": {"title": "Search", "version": "1"},
            "servers": [{"url": format!("http://{}", self.address)}],
            "paths": {"/search": {"get": {"operationId": "search", "responses": answer}}},
        });
        std::fs::write(&document, api.to_string()).unwrap();
        format!(
            "auth: {{api_keys: [{{id: flooding, key: key-of-flooding}}, {{id: other, key: key-of-other}}]}}\n\
             limits: {{max_concurrent_per_tool: {SLOTS}, max_queued: {FLOOD}}}\n\
             outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\n\
             openapi: {{collections: {{api: {{spec_file: {}, rate_limit: 1000000000}}}}}}\n",
            document.display()
        )
    }

    /// Measures the other caller alone, and beside the flood.
    pub(crate) fn measure(&self, url: &str) -> Fairness {
        let call = format!("{url}/tools/api__search/execute");
        self.runtime.block_on(async {
            let alone = slowest_of_a_hundred(&call).await;
            let flood: Vec<_> = (0..FLOOD).map(|_| tokio::spawn(flood(call.clone()))).collect();
            // The queue is full.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let beside_flood = slowest_of_a_hundred(&call).await;
            for caller in flood {
                assert!(!caller.is_finished(), "the flood has ended");
                caller.abort();
            }
            Fairness { alone, beside_flood }
        })
    }
}

async fn flood(url: String) {
    let client = client();
    loop {
        // A refusal is an answer, too.
        send(&client, &url, "key-of-flooding").await;
    }
}

async fn slowest_of_a_hundred(url: &str) -> Duration {
    let client = client();
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        let status = send(&client, url, "key-of-other").await;
        took.push(started.elapsed());
        assert!(status.is_success(), "the other caller's call was refused: {status}");
    }
    took.sort_unstable();
    took[CALLS * 99 / 100]
}

async fn send(client: &Client, url: &str, key: &str) -> reqwest::StatusCode {
    let request = client.post(url).bearer_auth(key).json(&json!({"arguments": {}}));
    let response = request.send().await.unwrap();
    let status = response.status();
    response.bytes().await.unwrap();
    status
}

fn client() -> Client {
    Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap()
}
