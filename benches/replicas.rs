//! What replicas on a PostgreSQL database cost: statements, time and processor time of calls, a start with many tools, and how long
//! a registration takes to reach another replica.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::console::processor_millis;

/// The rate of [`Database::statements`]: above it, calls cost less of what is done each second.
const CALLS_A_SECOND: u64 = 500;
const SECONDS: u64 = 10;
/// Of [`Database::processor_micros`], all replicas together.
const MANY_CALLS_A_SECOND: u64 = 1_500;
/// Calls to each of two gateways in turn.
const BLOCKS: usize = 60;
const CALLS_OF_A_BLOCK: usize = 200;
const REGISTRATIONS: usize = 5;

/// A PostgreSQL database, behind a proxy that counts statements.
pub(crate) struct Database {
    runtime: Runtime,
    url: url::Url,
    proxy: SocketAddr,
    counted: Arc<AtomicU64>,
}

/// Microseconds that leases add to a call.
pub(crate) struct Added {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Database {
    /// That of `TEST_DATABASE_URL`, if it is set.
    pub(crate) fn of_environment() -> Option<Self> {
        let url: url::Url = std::env::var("TEST_DATABASE_URL").ok()?.parse().unwrap();
        let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let (runtime, counted) = (Runtime::new().unwrap(), Arc::<AtomicU64>::default());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let proxy = listener.local_addr().unwrap();
        runtime.spawn(pass_on(listener, server, Arc::clone(&counted)));
        Some(Self { runtime, url, proxy, counted })
    }

    /// The configuration of a gateway on this database, as a replica or alone.
    pub(crate) fn config(&self, is_replica: bool, is_counted: bool) -> String {
        let mut url = self.url.clone();
        if is_counted {
            url.set_port(Some(self.proxy.port())).unwrap();
        }
        url.set_query(Some("sslmode=disable"));
        format!("store: {{url: '{url}'}}\ncluster: {{enabled: {is_replica}}}\n")
    }

    /// The same, with a tool whose rate and budget are counted at each call.
    pub(crate) fn config_of_calls(&self, is_replica: bool, is_counted: bool) -> String {
        let calls = "limits: {max_concurrent: 100000, max_concurrent_per_tool: 100000, max_queued: 100000}\n\
                     budget: {max_cost_per_caller_per_day: 1000000}\n\
                     tools: {overrides: {calculator: {rate_limit: 1000000, cost_per_use: 0.001}}}\n";
        self.config(is_replica, is_counted) + calls
    }

    /// Statements for 1 000 calls of one tool by one caller, at [`CALLS_A_SECOND`].
    pub(crate) fn statements(&self, url: &str) -> f64 {
        self.runtime.block_on(async {
            // The first calls ask for the first slices.
            paced(url, CALLS_A_SECOND, 3).await;
            let before = self.counted.load(Ordering::Relaxed);
            let calls = paced(url, CALLS_A_SECOND, SECONDS).await;
            let statements = self.counted.load(Ordering::Relaxed) - before;
            statements as f64 * 1_000.0 / calls as f64
        })
    }

    /// Statements a second without a call.
    pub(crate) fn idle_statements(&self) -> f64 {
        self.runtime.block_on(async {
            // What was leased is given back, and buckets are full.
            tokio::time::sleep(Duration::from_secs(12)).await;
            let before = self.counted.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(SECONDS)).await;
            (self.counted.load(Ordering::Relaxed) - before) as f64 / SECONDS as f64
        })
    }

    /// How much longer calls to a replica take than those to a gateway alone.
    pub(crate) fn added(&self, replica: &str, alone: &str) -> Added {
        let client = client();
        let (mut of_replica, mut of_gateway) = (Vec::new(), Vec::new());
        self.runtime.block_on(async {
            for block in 0..=BLOCKS {
                for (url, took) in [(replica, &mut of_replica), (alone, &mut of_gateway)] {
                    let mut times = Vec::with_capacity(CALLS_OF_A_BLOCK);
                    for _ in 0..CALLS_OF_A_BLOCK {
                        let begun = Instant::now();
                        call(&client, url).await;
                        times.push(begun.elapsed().as_secs_f64() * 1e6);
                    }
                    // The first block opens connections and leases.
                    if block > 0 {
                        took.append(&mut times);
                    }
                }
            }
        });
        for times in [&mut of_replica, &mut of_gateway] {
            times.sort_by(f64::total_cmp);
        }
        let added = |hundredths: usize| {
            let at = of_gateway.len() * hundredths / 100;
            of_replica[at] - of_gateway[at]
        };
        Added { p50: added(50), p99: added(99) }
    }

    /// Microseconds of the processor that these replicas together use for a call, at [`MANY_CALLS_A_SECOND`].
    pub(crate) fn processor_micros(&self, replicas: &[(&str, u32)]) -> f64 {
        let each = MANY_CALLS_A_SECOND / replicas.len() as u64;
        let used = || replicas.iter().map(|(_, process)| processor_millis(*process)).sum::<f64>();
        self.runtime.block_on(async {
            join_all(replicas.iter().map(|(url, _)| paced(url, each, 2))).await;
            let before = used();
            let calls = join_all(replicas.iter().map(|(url, _)| paced(url, each, SECONDS))).await;
            (used() - before) * 1_000.0 / calls.iter().sum::<u64>() as f64
        })
    }

    /// Waits for the first call that succeeds, of a tool of the many.
    pub(crate) fn first_call(&self, url: &str) {
        self.runtime.block_on(async {
            let client = client();
            let ask = || {
                let asked = client.post(format!("{url}/tools/api__t0/execute")).bearer_auth("key-of-root");
                asked.json(&json!({"arguments": {}})).send()
            };
            let until = Instant::now() + Duration::from_secs(30);
            while !ask().await.is_ok_and(|answer| answer.status().is_success()) {
                assert!(Instant::now() < until, "no call succeeds");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }

    /// The longest time that a registration at one replica took until another had its tool, in seconds.
    pub(crate) fn propagation(&self, at: &str, to: &str) -> f64 {
        self.runtime.block_on(async {
            let client = client();
            let mut slowest = 0.0_f64;
            for number in 0..REGISTRATIONS {
                let (name, begun) = (format!("bench{number}"), Instant::now());
                register(&client, at, &name).await;
                while !has_tool(&client, to, &format!("{name}__ping")).await {
                    assert!(begun.elapsed().as_secs() < 30, "the other replica does not have {name}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                slowest = slowest.max(begun.elapsed().as_secs_f64());
                // At another moment of the second in which replicas look.
                tokio::time::sleep(Duration::from_millis(170)).await;
            }
            slowest
        })
    }
}

async fn register(client: &Client, url: &str, name: &str) {
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Ping", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/ping": {"get": {"operationId": "ping", "responses": {"200": {"description": "pong"}}}}},
    });
    let body = json!({"name": name, "spec_inline": document.to_string()});
    let asked = client.post(format!("{url}/tools/openapi/register")).bearer_auth("key-of-root").json(&body);
    let answer = asked.send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

async fn has_tool(client: &Client, url: &str, name: &str) -> bool {
    let asked = client.get(format!("{url}/tools/{name}/schema")).bearer_auth("key-of-root").send();
    asked.await.unwrap().status().is_success()
}

/// Calls the tool at a rate, and counts the calls.
async fn paced(url: &str, a_second: u64, seconds: u64) -> u64 {
    let client = client();
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / a_second));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut calls = 0;
    while Instant::now() < until {
        tick.tick().await;
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
        let (client, url) = (client.clone(), url.to_owned());
        running.spawn(async move { call(&client, &url).await });
        calls += 1;
    }
    running.join_all().await;
    calls
}

async fn call(client: &Client, url: &str) {
    let asked = client.post(format!("{url}/tools/calculator/execute"));
    let answer = asked.json(&json!({"arguments": {"expression": "(2+3)*7"}})).send().await.unwrap();
    let status = answer.status();
    let reply: Value = answer.json().await.unwrap();
    assert!(status.is_success(), "a call was refused: {reply}");
}

fn client() -> Client {
    Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap()
}

async fn pass_on(listener: TcpListener, server: String, counted: Arc<AtomicU64>) {
    loop {
        let (gateway, _) = listener.accept().await.unwrap();
        let database = TcpStream::connect(&server).await.unwrap();
        for stream in [&gateway, &database] {
            stream.set_nodelay(true).unwrap();
        }
        let ((from_gateway, to_gateway), (from_database, to_database)) = (gateway.into_split(), database.into_split());
        let statements = Statements::default();
        tokio::spawn(copy(from_gateway, to_database, Some((statements, Arc::clone(&counted)))));
        tokio::spawn(copy(from_database, to_gateway, None));
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut count: Option<(Statements, Arc<AtomicU64>)>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if let Some((statements, counted)) = &mut count {
            counted.fetch_add(statements.count(&buffer[..read]), Ordering::Relaxed);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// The messages that a client sends to PostgreSQL
/// (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).
#[derive(Default)]
struct Statements {
    unread: Vec<u8>,
    has_begun: bool,
}

impl Statements {
    /// How many messages that run a statement are complete now.
    fn count(&mut self, bytes: &[u8]) -> u64 {
        const PROTOCOL: u32 = 3 << 16;
        self.unread.extend_from_slice(bytes);
        let mut count = 0;
        loop {
            // The first messages of a connection have no type.
            let kind_bytes = usize::from(self.has_begun);
            let number = |at: usize| Some(u32::from_be_bytes(self.unread.get(at..at + 4)?.try_into().ok()?));
            let Some(length) = number(kind_bytes) else { return count };
            let end = kind_bytes + length as usize;
            if self.unread.len() < end {
                return count;
            }
            if self.has_begun {
                // Execute, and a simple query.
                count += u64::from(matches!(self.unread[0], b'E' | b'Q'));
            } else {
                self.has_begun = number(4) == Some(PROTOCOL);
            }
            self.unread.drain(..end);
        }
    }
}
