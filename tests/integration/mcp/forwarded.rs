//! Sessions of clients over replicas: each is at one replica, and requests of it that come to another are forwarded there.

use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::client::{McpClient, initialize};
use super::tools::ConversingTools;
use super::{NEWER, OLDER};
use crate::app::{TestApp, answer, code};
use crate::cli::Serving;
use crate::openapi::document;
use crate::slack::slack;
use crate::store_database::TestDatabase;

pub(super) const SECRET: &str = "a secret of the replicas of a test";

const CALLERS: &str = "
auth:
  api_keys:
    - {id: ann, key: key-of-ann}
    - {id: bob, key: key-of-bob}
    - {id: ada, key: key-of-ada, roles: [admin]}
outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}
";

/// An address of loopback that no other test has.
pub(super) fn address() -> String {
    let [a, b, c, ..] = *uuid::Uuid::new_v4().as_bytes();
    format!("127.{}.{}.{}:8790", a.max(1), b, c.clamp(1, 254))
}

pub(super) fn settings(database: &TestDatabase, address: &str) -> String {
    settings_with(database, address, &format!("secret: {SECRET}"))
}

/// With these settings of the cluster's secrets.
pub(super) fn settings_with(database: &TestDatabase, address: &str, secrets: &str) -> String {
    let cluster = format!("cluster: {{enabled: true, address: '{address}', {secrets}}}");
    database.settings(&format!("{cluster}\n{CALLERS}"))
}

async fn replica(database: &TestDatabase) -> (TestApp, String) {
    let address = address();
    let tools: Vec<Box<dyn sekisho::Source>> = vec![Box::new(ConversingTools)];
    (TestApp::with_tools_of(TempDir::new().unwrap(), &settings(database, &address), tools).await, address)
}

pub(super) async fn replicas<const N: usize>(database: &TestDatabase) -> [TestApp; N] {
    let mut started = Vec::new();
    for _ in 0..N {
        started.push(replica(database).await.0);
    }
    started.try_into().unwrap_or_else(|_| unreachable!())
}

pub(super) async fn ann_at(app: &TestApp) -> McpClient {
    McpClient::connect_as(app, OLDER, Some("key-of-ann")).await
}

pub(super) fn calculation() -> Value {
    json!({"name": "calculator", "arguments": {"expression": "6*7"}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_session_is_used_at_any_replica() {
    let database = TestDatabase::new().await;
    let [one, other] = replicas(&database).await;
    let client = ann_at(&one).await;
    let there = client.clone().at(&other.url);
    let session = client.session.clone().unwrap();
    assert!(session.starts_with(one.gateway.cluster().replica_id().unwrap()), "{session}");
    assert!(session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    assert_eq!(there.result("tools/list", json!({}), "ListToolsResult").await, listed);
    // The question comes while the call runs, and its answer is sent to the other replica too.
    let call = json!({"name": "ask_name", "_meta": {"progressToken": "p"}});
    let name = json!({"action": "accept", "content": {"name": "Ann"}});
    let messages = there.converse("tools/call", call, |_| name.clone()).await;
    let methods: Vec<_> = messages.iter().filter_map(|message| message["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/progress", "elicitation/create"], "{messages:?}");
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "Hello, Ann!");
    let called = r#"shannon_tool_executions_total{status="success",tool_name="ask_name"}"#;
    let counted = async |app: &TestApp| {
        let text = app.get("/metrics").bearer_auth("key-of-ada").send().await.unwrap().text().await.unwrap();
        text.lines().any(|line| line.starts_with(called))
    };
    assert!(counted(&one).await && !counted(&other).await, "the replica that has the session ran the call");
    // What a call has that broke off is at the replica of the session.
    let asking = there.first_event_id("tools/call", json!({"name": "ask_name"})).await;
    client.notify("notifications/cancelled", json!({"requestId": client.last_id()})).await;
    assert!(there.resume(&asking).await.iter().all(|message| message.get("result").is_none()));
    there.end().await;
    for client in [&client, &there] {
        let (status, reply) = client.send("tools/list", json!({})).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_session"), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_changed_list_reaches_clients_at_every_replica() {
    let database = TestDatabase::new().await;
    let [one, two, three] = replicas(&database).await;
    let upstream = TestApp::start().await;
    // The last two are not at the replicas where their sessions are.
    let clients =
        [ann_at(&one).await, ann_at(&two).await, ann_at(&two).await.at(&one.url), ann_at(&one).await.at(&three.url)];
    let mut streams = Vec::new();
    for client in &clients {
        streams.push(client.listen(json!({})).await);
    }
    let registration = json!({"name": "itself", "spec_inline": document(&upstream.url).to_string()});
    let request = one.post("/tools/openapi/register").bearer_auth("key-of-ada").json(&registration);
    let (status, reply) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    for (client, mut news) in clients.iter().zip(streams) {
        news.next_of("notifications/tools/list_changed").await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        assert!(listed.to_string().contains("itself__tool"), "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_session_is_of_its_caller_at_every_replica() {
    let database = TestDatabase::new().await;
    let [one, other] = replicas(&database).await;
    let client = ann_at(&one).await;
    let there = client.clone().at(&other.url);
    let refused = async |client: McpClient| {
        let (status, reply) = client.send("tools/call", calculation()).await;
        (status, code(&reply).to_owned())
    };
    let unknown = (StatusCode::NOT_FOUND, "unknown_session".to_owned());
    assert_eq!(refused(there.with_key("key-of-bob")).await, unknown);
    assert_eq!(refused(there.with_key("key-of-nobody")).await.0, StatusCode::UNAUTHORIZED);
    // On loopback callers without a key are let in, and whoever is forwarded is of another machine.
    let anonymous = McpClient::connect(&one, OLDER).await;
    let response = anonymous.clone().at(&other.url).response("tools/call", calculation()).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(
        response.headers().contains_key("www-authenticate") && !response.headers().contains_key("x-sekisho-forwarded")
    );
    assert_eq!(anonymous.send("tools/call", calculation()).await.0, StatusCode::OK);
    // A page of another site finds nothing, wherever the session is.
    let (status, reply) = there.send_with("tools/list", json!({}), &[("origin", "https://evil.example")]).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(
        there.send_with("tools/list", json!({}), &[("origin", "http://localhost:5173")]).await.0,
        StatusCode::OK
    );
    let forged = |changed: fn(&mut String)| {
        let mut forged = there.clone();
        changed(forged.session.as_mut().unwrap());
        forged
    };
    let last_digit = |id: &mut String| {
        let last = id.pop().unwrap();
        id.push(if last == '0' { '1' } else { '0' });
    };
    assert_eq!(refused(forged(last_digit)).await, unknown);
    assert_eq!(refused(forged(|id| id.truncate(69))).await, unknown);
    assert_eq!(refused(forged(|id| *id = id.replace('.', "-"))).await, unknown);
    assert_eq!(there.send("tools/call", calculation()).await.0, StatusCode::OK);
}

/// What a replica sends with a request that it forwards, computed from the description in `docs/replicas.md`.
struct Hop<'a> {
    secret: &'a str,
    method: &'a str,
    path: &'a str,
    body: &'a str,
    to: &'a str,
    /// In seconds, from now.
    time: i64,
}

impl Hop<'_> {
    fn header(&self) -> String {
        let tag = |key: &[u8], fields: &[&[u8]]| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
            for field in fields {
                mac.update(&(field.len() as u64).to_be_bytes());
                mac.update(field);
            }
            mac.finalize().into_bytes().to_vec()
        };
        let key = tag(self.secret.as_bytes(), &[b"sekisho: forwarded requests"]);
        let time = (jiff::Timestamp::now().as_microsecond() + self.time * 1_000_000).to_string();
        let (client, digest) = ("192.0.2.7", Sha256::digest(self.body));
        let fields = [time.as_bytes(), self.method.as_bytes(), self.path.as_bytes(), self.to.as_bytes()];
        let tag = tag(&key, &[&fields[..], &[client.as_bytes(), &digest[..]]].concat());
        format!("{time} {} {client} {} {}", self.to, hex::encode(digest), hex::encode(tag))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_the_address_for_replicas_takes_only_what_a_replica_forwards_to_it() {
    let database = TestDatabase::new().await;
    let ((one, address), (other, _)) = (replica(&database).await, replica(&database).await);
    let (client, elsewhere) = (ann_at(&one).await, ann_at(&other).await);
    let (id, id_of_other) =
        (one.gateway.cluster().replica_id().unwrap(), other.gateway.cluster().replica_id().unwrap());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": calculation()}).to_string();
    let session = client.session.clone().unwrap();
    let send = async |header: Option<String>, path: &str, session: &str, key: &str, body: &str| {
        let request = one.client.post(format!("http://{address}{path}")).header("mcp-session-id", session);
        let request = request.header("accept", "application/json, text/event-stream").header("x-api-key", key);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let request: RequestBuilder =
            header.into_iter().fold(request, |request, header| request.header("x-sekisho-forwarded", header));
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let genuine = || Hop { secret: SECRET, method: "POST", path: "/mcp", body: &body, to: id, time: 0 };
    let (status, reply) = send(Some(genuine().header()), "/mcp", &session, "key-of-ann", &body).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(reply.contains("42"), "{reply}");
    // It grants no right: the caller is authenticated, and the session is the caller's own.
    assert_eq!(send(Some(genuine().header()), "/mcp", &session, "none", &body).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(send(Some(genuine().header()), "/mcp", &session, "key-of-bob", &body).await.0, StatusCode::NOT_FOUND);
    // What was forwarded is not forwarded again, and what was meant for another replica is not answered.
    let (status, reply) =
        send(Some(genuine().header()), "/mcp", elsewhere.session.as_ref().unwrap(), "key-of-ann", &body).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{reply}");
    let to_other = Hop { to: id_of_other, ..genuine() }.header();
    assert_eq!(send(Some(to_other), "/mcp", &session, "key-of-ann", &body).await.0, StatusCode::NOT_FOUND);
    let altered = body.replace("6*7", "6*8");
    for (what, header, path, body) in [
        ("no header", None, "/mcp", &body),
        ("another secret", Some(Hop { secret: "another secret of thirty-two letters", ..genuine() }), "/mcp", &body),
        ("another method", Some(Hop { method: "GET", ..genuine() }), "/mcp", &body),
        ("another path", Some(Hop { path: "/mcp?x=1", ..genuine() }), "/mcp", &body),
        ("another path", Some(genuine()), "/mcp?x=1", &body),
        ("a signed path of another route", Some(Hop { path: "/tools/list", ..genuine() }), "/tools/list", &body),
        ("another body", Some(genuine()), "/mcp", &altered),
        ("long ago", Some(Hop { time: -40, ..genuine() }), "/mcp", &body),
        ("of the future", Some(Hop { time: 40, ..genuine() }), "/mcp", &body),
        ("the path of a probe", None, "/healthz", &body),
    ] {
        let header = header.map(|hop| hop.header());
        let (status, reply) = send(header, path, &session, "key-of-ann", body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{what}: {reply}");
    }
    let within = Hop { time: -20, ..genuine() }.header();
    assert_eq!(send(Some(within.clone()), "/mcp", &session, "key-of-ann", &body).await.0, StatusCode::OK);
    let changed_client = within.replace("192.0.2.7", "192.0.2.8");
    assert_eq!(send(Some(changed_client), "/mcp", &session, "key-of-ann", &body).await.0, StatusCode::FORBIDDEN);
    // At the address for clients the header means nothing.
    let forwarded = client.send_with("tools/call", calculation(), &[("x-sekisho-forwarded", "none")]).await;
    assert_eq!(forwarded.0, StatusCode::OK);
    let there = client.clone().at(&other.url);
    assert_eq!(
        there.send_with("tools/call", calculation(), &[("x-sekisho-forwarded", &within)]).await.0,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_clients_of_many_sessions_go_from_replica_to_replica() {
    let database = TestDatabase::new().await;
    let apps = replicas::<3>(&database).await;
    let working = (0..12).map(|number| {
        let apps = &apps;
        async move {
            let client = ann_at(&apps[number % 3]).await;
            for round in 0..15 {
                let there = client.clone().at(&apps[(number + round) % 3].url);
                let call = json!({"name": "calculator", "arguments": {"expression": format!("{number}*100+{round}")}});
                let called = there.result("tools/call", call, "CallToolResult").await;
                assert_eq!(called["content"][0]["text"], (number * 100 + round).to_string());
            }
            client.clone().at(&apps[(number + 1) % 3].url).end().await;
        }
    });
    futures_util::future::join_all(working).await;
    // Clients without sessions need no forwarding.
    let client = McpClient::connect_as(&apps[0], NEWER, Some("key-of-ann")).await;
    for app in &apps {
        assert_eq!(client.clone().at(&app.url).send("tools/call", calculation()).await.0, StatusCode::OK);
    }
}

/// A replica that is a program of its own.
struct Program {
    directory: TempDir,
    serving: Serving,
}

impl Program {
    fn start(database: &TestDatabase) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("sekisho.yaml"), settings(database, &address())).unwrap();
        let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
        Self { directory, serving }
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.serving.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.serving.wait().success());
    }
}

/// The statuses of requests, one after the other, until the session is unknown.
async fn until_unknown(client: &McpClient) -> Vec<StatusCode> {
    let (until, mut statuses) = (Instant::now() + slack(Duration::from_secs(40)), Vec::new());
    loop {
        let (status, reply) = client.send("tools/call", calculation()).await;
        statuses.push(status);
        match status {
            StatusCode::NOT_FOUND => return statuses,
            StatusCode::SERVICE_UNAVAILABLE => assert_eq!(code(&reply), "overloaded"),
            _ => assert_eq!(status, StatusCode::BAD_GATEWAY, "{reply}"),
        }
        assert!(Instant::now() < until, "{statuses:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_client_of_a_dead_replica_begins_anew() {
    let database = TestDatabase::new().await;
    let (app, _) = replica(&database).await;
    for is_killed in [false, true] {
        let mut program = Program::start(&database);
        let begun = McpClient::new(&app, OLDER, Some("key-of-ann")).at(&program.serving.url);
        let client = begun.introduced().await.at(&app.url);
        assert_eq!(client.send("tools/call", calculation()).await.0, StatusCode::OK);
        let mut news = client.listen(json!({})).await;
        if is_killed {
            // As by `kill -9`: it is not known to be dead before it is lost, after 12 s.
            drop(program.serving);
        } else {
            program.stop();
        }
        assert!(news.end().await, "the stream ends with the replica");
        let statuses = until_unknown(&client).await;
        if !is_killed {
            assert_eq!(statuses, [StatusCode::NOT_FOUND], "one that stops says so before");
        }
        drop(program.directory);
        let anew = McpClient::new(&app, OLDER, Some("key-of-ann")).introduced().await;
        assert_eq!(anew.send("tools/call", calculation()).await.0, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_list_their_addresses() {
    let database = TestDatabase::new().await;
    let (one, address) = replica(&database).await;
    let (_, listed) = answer(one.get("/admin/cluster").bearer_auth("key-of-ada")).await;
    assert_eq!(listed["replicas"][0]["address"], address, "{listed}");
    let began = one.post("/mcp").bearer_auth("key-of-ada").header("accept", "application/json, text/event-stream");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize(OLDER)});
    let began = began.json(&message).send().await.unwrap();
    assert!(began.headers()["mcp-session-id"].len() <= 134);
    one.stop().await;
}
