//! Sessions with MCP servers: each client of each caller has its own, and nothing of one reaches another.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config};
use crate::mcp::client::{McpClient, News};
use crate::mcp::{NEWER, OLDER, stdio};
use crate::mcp_programs::running;
use crate::mcp_servers::{ready, yaml};
use crate::stateful::{HttpServer, Server, program};

/// Two callers of one tenant, and one of another.
const CALLERS: &str = "
auth:
  api_keys:
    - {id: alice, key: key-of-alice, tenant: one}
    - {id: carol, key: key-of-carol, tenant: one}
    - {id: bob, key: key-of-bob, tenant: two}
outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}
";

fn config_of(settings: String) -> String {
    format!("{CALLERS}{}", yaml(&[("st", settings)]))
}

async fn app_of(settings: String) -> TestApp {
    let app = TestApp::with(&config_of(settings)).await;
    ready(&app).await;
    app
}

/// The caller.
enum Client {
    Mcp(McpClient),
    Rest(&'static str, Option<&'static str>),
}

impl Client {
    async fn mcp(app: &TestApp, revision: &'static str, who: &str) -> Self {
        Self::Mcp(McpClient::connect_as(app, revision, Some(&format!("key-of-{who}"))).await)
    }

    /// The text that a tool answers, or the error's code.
    async fn call(&self, app: &TestApp, tool: &str, arguments: Value) -> String {
        match self {
            Self::Mcp(client) => {
                let params = json!({"name": format!("st__{tool}"), "arguments": arguments});
                let result = client.result("tools/call", params, "CallToolResult").await;
                let failed = result["structuredContent"]["error_info"]["code"].as_str();
                failed.or(result["content"][0]["text"].as_str()).unwrap().to_owned()
            }
            Self::Rest(who, session) => {
                let body = json!({"arguments": arguments, "session_id": session});
                let request = app.post(&format!("/tools/st__{tool}/execute")).json(&body);
                let (_, reply) = answer(request.bearer_auth(format!("key-of-{who}"))).await;
                if reply["success"] == true {
                    reply["text"].as_str().unwrap().to_owned()
                } else {
                    code(&reply).to_owned()
                }
            }
        }
    }
}

/// Waits until it is so.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("an end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_client_of_a_server_stores_no_other_finds() {
    for server in Server::both_kinds("stores").await {
        let app = app_of(server.settings("")).await;
        let clients = [
            Client::mcp(&app, OLDER, "alice").await,
            Client::mcp(&app, OLDER, "alice").await,
            Client::mcp(&app, NEWER, "alice").await,
            Client::mcp(&app, OLDER, "carol").await,
            Client::mcp(&app, OLDER, "bob").await,
            Client::mcp(&app, NEWER, "bob").await,
            Client::Rest("alice", None),
            Client::Rest("alice", Some("one")),
            Client::Rest("alice", Some("two")),
            Client::Rest("bob", None),
            Client::Rest("bob", Some("one")),
        ];
        for (n, client) in clients.iter().enumerate() {
            let note = client.call(&app, "note_set", json!({"text": format!("note of {n}")})).await;
            assert_eq!(note, "noted", "{n}");
        }
        for (n, client) in clients.iter().enumerate() {
            let note = format!("note of {n}");
            assert_eq!(client.call(&app, "note_get", json!({})).await, note);
            if let Client::Mcp(client) = client {
                let read =
                    client.result("resources/read", json!({"uri": "st+note://mine"}), "ReadResourceResult").await;
                assert_eq!(read["contents"][0]["text"], note);
            }
        }
        assert_eq!(server.sessions(), clients.len());
        app.stop().await;
        until("all have ended with the gateway", async || server.sessions() == 0).await;
    }
}

/// How a call ends before its server asks its question.
#[derive(Debug, Clone, Copy)]
enum End {
    Cancelled,
    TimedOut,
}

/// Has `client` begin a call whose question comes 1.3 s later, when the call is over.
async fn ask_late(client: &McpClient, end: End) {
    let params = json!({"name": "st__ask", "arguments": {"text": "PIN of alice?", "ms": 1_300}});
    let call = client.send("tools/call", params);
    match end {
        End::TimedOut => {
            let (_, reply) = call.await;
            assert_eq!(reply["result"]["structuredContent"]["error_info"]["code"], "timeout", "{reply}");
        }
        End::Cancelled => {
            let id = client.last_id() + 1;
            let cancel = async {
                tokio::time::sleep(Duration::from_millis(700)).await;
                client.notify("notifications/cancelled", json!({"requestId": id})).await;
            };
            tokio::join!(call, cancel);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_question_of_a_call_that_is_over_reaches_no_other_client() {
    for server in Server::both_kinds("late").await {
        let app = app_of(server.settings("timeout_seconds: 1")).await;
        for end in [End::Cancelled, End::TimedOut] {
            let asker = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
            let mut others = Vec::new();
            for who in ["alice", "carol", "bob"] {
                others.push(McpClient::connect_as(&app, OLDER, Some(&format!("key-of-{who}"))).await);
            }
            // Their sessions have begun.
            for client in &others {
                Client::Mcp(client.clone()).call(&app, "whoami", json!({})).await;
            }
            ask_late(&asker, end).await;
            let conversations = others.iter().map(|client| async {
                let params = json!({"name": "st__ask", "arguments": {"text": "mine", "ms": 800}});
                let messages = client.converse("tools/call", params, |question| {
                    assert_eq!(question["params"]["message"], "mine", "{end:?}: another's question: {question}");
                    json!({"action": "accept", "content": {"a": "own answer"}})
                });
                let messages = messages.await;
                assert_eq!(
                    messages.last().unwrap()["result"]["content"][0]["text"],
                    "own answer",
                    "{end:?} {messages:?}"
                );
            });
            in_time(join_all(conversations)).await;
        }
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_sessions_gets_only_its_own_questions() {
    let app = app_of(program("sessionless", false, "timeout_seconds: 1")).await;
    let client = McpClient::connect_as(&app, NEWER, Some("key-of-alice")).await;
    let params = json!({"name": "st__ask", "arguments": {"text": "mine", "ms": 300}});
    let asked = client.result("tools/call", params.clone(), "InputRequiredResult").await;
    let mut again = params.clone();
    again["requestState"] = asked["requestState"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    again["inputResponses"] = json!({key: {"action": "accept", "content": {"a": "own answer"}}});
    let result = client.result("tools/call", again, "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "own answer", "{result}");

    ask_late(&client, End::TimedOut).await;
    // The question may belong to the call before, so it is not sent.
    let params = json!({"name": "st__ask", "arguments": {"text": "mine", "ms": 800}});
    let result = client.result("tools/call", params, "CallToolResult").await;
    assert!(result["content"][0]["text"].as_str().unwrap().contains("cannot be assigned to a client"), "{result}");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_calls_of_one_session_send_questions_concurrently() {
    for server in Server::both_kinds("several").await {
        let app = app_of(server.settings("timeout_seconds: 2")).await;
        let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
        let mut news = client.listen(json!({})).await;
        let texts = ["one", "two", "three"];
        let calls = texts.map(|text| {
            let client = client.clone();
            tokio::spawn(async move {
                let params = json!({"name": "st__ask", "arguments": {"text": text, "ms": 500}});
                let accept =
                    |question: &Value| json!({"action": "accept", "content": {"a": question["params"]["message"]}});
                client.converse("tools/call", params, accept).await.pop().unwrap()
            })
        });
        if let Server::Program(_) = server {
            // Questions that name no call come on the standing stream; the tools' time stands still meanwhile.
            let mut questions = Vec::new();
            for _ in texts {
                questions.push(in_time(news.next_of("elicitation/create")).await);
            }
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            for question in questions {
                let text = &question["params"]["message"];
                client.answer(&question, json!({"action": "accept", "content": {"a": text}})).await;
            }
        }
        for (call, text) in calls.into_iter().zip(texts) {
            let reply = in_time(call).await.unwrap();
            assert_eq!(reply["result"]["content"][0]["text"], text, "{reply}");
        }
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_levels_and_progress_are_each_clients_own() {
    for server in Server::both_kinds("logs").await {
        let app = app_of(server.settings("")).await;
        let mut clients = Vec::new();
        for (who, level) in [("alice", "warning"), ("alice", "warning"), ("bob", "warning"), ("carol", "error")] {
            let client = McpClient::connect_as(&app, OLDER, Some(&format!("key-of-{who}"))).await;
            client.result("logging/setLevel", json!({"level": level}), "EmptyResult").await;
            let news = client.listen(json!({})).await;
            clients.push((client, news, level));
        }
        // A line comes with its call, if it can be assigned to one, else on the session's own stream.
        let lines = async |client: &McpClient, news: &mut News, line: Value, is_wanted: bool| {
            let params = json!({"name": "st__say", "arguments": line});
            let mut messages = client.converse("tools/call", params, |_| unreachable!()).await;
            let with_call = messages.iter().any(|message| message["method"] == "notifications/message");
            if is_wanted && !with_call {
                messages.push(in_time(news.next_of("notifications/message")).await);
            }
            let lines = messages.iter().filter(|message| message["method"] == "notifications/message");
            lines.map(|line| line["params"]["data"].clone()).collect::<Vec<_>>()
        };
        for (n, (client, news, level)) in clients.iter_mut().enumerate() {
            let (text, is_wanted) = (format!("line of {n}"), *level == "warning");
            let expected: &[&str] = if is_wanted { &[&text] } else { &[] };
            assert_eq!(lines(client, news, json!({"text": text}), is_wanted).await, expected);
        }
        // A client that wants only errors gets nothing else, whatever the others want.
        let (quiet, news, _) = clients.last_mut().unwrap();
        assert_eq!(lines(quiet, news, json!({"text": "the first", "level": "error"}), true).await, ["the first"]);

        let steps = clients.iter().enumerate().map(|(n, (client, ..))| async move {
            let text = format!("step of {n}");
            let params = json!({"name": "st__steps", "arguments": {"text": text}, "_meta": {"progressToken": "same"}});
            let messages = client.converse("tools/call", params, |_| unreachable!()).await;
            let reported = messages.iter().filter(|message| message["method"] == "notifications/progress");
            let reported: Vec<_> = reported.map(|message| message["params"]["message"].clone()).collect();
            assert_eq!(reported, [text.as_str()], "{messages:?}");
        });
        in_time(join_all(steps)).await;
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_level_reaches_the_server_in_its_own_clients_session_only() {
    for server in Server::both_kinds("levels").await {
        let app = app_of(server.settings("")).await;
        let mut clients = Vec::new();
        for who in ["alice", "alice", "bob"] {
            clients.push(McpClient::connect_as(&app, OLDER, Some(&format!("key-of-{who}"))).await);
        }
        let level = async |client: &McpClient| Client::Mcp(client.clone()).call(&app, "level", json!({})).await;
        assert_eq!(level(&clients[0]).await, "none", "the server chooses until the client does");
        for expected in ["debug", "error"] {
            clients[0].result("logging/setLevel", json!({"level": expected}), "EmptyResult").await;
            assert_eq!(level(&clients[0]).await, expected);
        }
        for other in &clients[1..] {
            assert_eq!(level(other).await, "none");
        }
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_taken_back_in_its_own_session() {
    for server in Server::both_kinds("taken-back").await {
        let app = app_of(server.settings("")).await;
        let mut clients = Vec::new();
        for who in ["alice", "alice", "bob"] {
            clients.push(McpClient::connect_as(&app, OLDER, Some(&format!("key-of-{who}"))).await);
        }
        let first = &clients[0];
        let id = first.last_id() + 1;
        let call = first.send("tools/call", json!({"name": "st__hang", "arguments": {}}));
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            first.notify("notifications/cancelled", json!({"requestId": id})).await;
        };
        in_time(async { tokio::join!(call, cancel) }).await;
        let reported = async |client: &McpClient| Client::Mcp(client.clone()).call(&app, "cancelled", json!({})).await;
        until("its own server is told", async || reported(first).await == "1").await;
        for other in &clients[1..] {
            assert_eq!(reported(other).await, "0");
        }
        app.stop().await;
    }
}

/// Otherwise it would have its place, and keep its session, for ever: nobody knows of it who could end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_whose_request_is_cancelled_is_ended() {
    for server in Server::both_kinds("unsubscribes").await {
        let app = app_of(server.settings("")).await;
        let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
        let touched = async || Client::Mcp(client.clone()).call(&app, "touch", json!({})).await;
        let id = client.last_id() + 1;
        let subscribing = client.send("resources/subscribe", json!({"uri": "st+note://never-answered"}));
        let cancelling = async {
            until("its server has the request", async || touched().await == "1").await;
            client.notify("notifications/cancelled", json!({"requestId": id})).await;
        };
        in_time(async { tokio::join!(subscribing, cancelling) }).await;
        until("its server is told", async || touched().await == "0").await;
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_subscribed_session_is_notified_of_a_resource() {
    for server in Server::both_kinds("subscribes").await {
        let app = app_of(server.settings("")).await;
        let mut clients = Vec::new();
        for who in ["alice", "alice", "bob"] {
            let client = McpClient::connect_as(&app, OLDER, Some(&format!("key-of-{who}"))).await;
            let news = client.listen(json!({})).await;
            client.result("resources/subscribe", json!({"uri": "st+note://mine"}), "EmptyResult").await;
            clients.push((client, news));
        }
        let touch = async |client: &McpClient| Client::Mcp(client.clone()).call(&app, "touch", json!({})).await;
        assert_eq!(touch(&clients[0].0).await, "1");
        let reported = in_time(clients[0].1.next_of("notifications/resources/updated")).await;
        assert_eq!(reported["params"]["uri"], "st+note://mine");
        // One that no longer listens takes nothing from the others.
        clients[0].0.result("resources/unsubscribe", json!({"uri": "st+note://mine"}), "EmptyResult").await;
        assert_eq!((touch(&clients[0].0).await, touch(&clients[1].0).await), ("0".into(), "1".into()));
        in_time(clients[1].1.next_of("notifications/resources/updated")).await;
        // Each was notified of its own resource only.
        for (client, mut news) in clients {
            client.end().await;
            let mut updates = 0;
            while let Some(message) = in_time(news.next()).await {
                updates += usize::from(message["method"] == "notifications/resources/updated");
            }
            assert_eq!(updates, 0);
        }
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_a_server_are_bounded_and_no_caller_takes_the_places_of_another() {
    for server in Server::both_kinds("bounded").await {
        let app = app_of(server.settings("max_sessions: 4")).await;
        let bob = Client::Rest("bob", None);
        let alice = |session| Client::Rest("alice", Some(session));
        let note = json!({"text": "kept"});
        for client in [&bob, &alice("one"), &alice("two")] {
            assert_eq!(client.call(&app, "note_set", note.clone()).await, "noted");
        }
        assert_eq!(alice("one").call(&app, "note_get", json!({})).await, "kept");
        // The one that was used the longest time ago gives way, of the caller's own.
        assert_eq!(alice("three").call(&app, "note_get", json!({})).await, "nothing");
        assert_eq!(alice("one").call(&app, "note_get", json!({})).await, "kept");
        assert_eq!(alice("two").call(&app, "note_get", json!({})).await, "nothing");
        for session in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(alice(session).call(&app, "note_get", json!({})).await, "nothing");
        }
        assert_eq!(bob.call(&app, "note_get", json!({})).await, "kept");
        until("only so many go on", async || server.sessions() <= 3).await;

        // None is ended that a call is using.
        let app = Arc::new(app);
        let hang = |session| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { Client::Rest("alice", Some(session)).call(&app, "hang", json!({})).await })
        };
        let hanging = ["x", "y"].map(hang);
        until("both are on their way", async || app.gateway.pipeline.limits.in_flight() == 2).await;
        until("there is no place", async || alice("z").call(&app, "whoami", json!({})).await == "overloaded").await;
        assert_eq!(bob.call(&app, "note_get", json!({})).await, "kept");
        assert_eq!(Client::Rest("carol", None).call(&app, "note_get", json!({})).await, "nothing");
        hanging.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_a_session_only_if_configured() {
    for server in Server::both_kinds("shares").await {
        for (share, of_tenant, of_all) in [("never", false, false), ("tenant", true, false), ("all", true, true)] {
            let app = app_of(server.settings(&format!("share: {share}"))).await;
            let before = server.sessions();
            let alice = Client::mcp(&app, OLDER, "alice").await;
            assert_eq!(alice.call(&app, "note_set", json!({"text": "said by alice"})).await, "noted");
            for (client, may_find) in [(Client::Rest("carol", None), of_tenant), (Client::Rest("bob", None), of_all)] {
                let expected = if may_find { "said by alice" } else { "nothing" };
                assert_eq!(client.call(&app, "note_get", json!({})).await, expected, "{share}");
            }
            let expected = if of_all {
                0
            } else if of_tenant {
                2
            } else {
                3
            };
            assert_eq!(server.sessions() - before, expected, "{share}");
            app.stop().await;
            until("all have ended", async || server.sessions() == 0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_clients_and_when_it_is_idle_and_when_its_server_is_removed() {
    for server in Server::both_kinds("ends").await {
        let app = app_of(server.settings("")).await;
        let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
        Client::Mcp(client.clone()).call(&app, "whoami", json!({})).await;
        assert_eq!(server.sessions(), 1);
        client.end().await;
        until("it has ended with its client's", async || server.sessions() == 0).await;

        // Also during a call, which does not count as a failure.
        for _ in 0..6 {
            let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
            let call = client.send("tools/call", json!({"name": "st__hang", "arguments": {}}));
            let end = async {
                until("it has begun", async || server.sessions() == 1).await;
                client.end().await;
            };
            in_time(async { tokio::join!(call, end) }).await;
            until("it has ended", async || server.sessions() == 0).await;
        }
        assert_ne!(Client::Rest("bob", None).call(&app, "whoami", json!({})).await, "circuit_open");

        let next = config(&app.directory, &config_of(server.settings("session_idle_seconds: 1")));
        app.gateway.reload(next).await;
        ready(&app).await;
        until("those before have ended", async || server.sessions() == 0).await;
        Client::Rest("bob", None).call(&app, "whoami", json!({})).await;
        assert_eq!(server.sessions(), 1);
        until("it was idle", async || server.sessions() == 0).await;

        Client::Rest("bob", None).call(&app, "whoami", json!({})).await;
        app.gateway.reload(config(&app.directory, CALLERS)).await;
        until("its server was removed", async || server.sessions() == 0).await;
        app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_caller_and_its_server_speak_the_same_era() {
    let server = HttpServer::start(true).await;
    let app = app_of(server.settings("")).await;
    for who in ["alice", "bob"] {
        assert_eq!(Client::mcp(&app, NEWER, who).await.call(&app, "whoami", json!({})).await, "");
        assert_eq!(Client::Rest("alice", None).call(&app, "whoami", json!({})).await, "");
    }
    // A protocol without sessions needs none.
    let count = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::SeqCst);
    assert_eq!((count(&server.seen.begun), count(&server.seen.discovered)), (0, 1));

    // Only in the older one a server can ask while a call runs.
    let older = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
    let params = json!({"name": "st__ask", "arguments": {"text": "mine"}});
    let messages = older.converse("tools/call", params, |question| {
        assert_eq!(question["params"]["message"], "mine");
        json!({"action": "accept", "content": {"a": "own answer"}})
    });
    let messages = in_time(messages).await;
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "own answer", "{messages:?}");
    assert_eq!(count(&server.seen.begun), 1);
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_revision_is_spoken_for_clients_of_all_revisions() {
    for (revision, begins, discovers) in [("2025-06-18", true, false), (NEWER, false, true)] {
        let server = HttpServer::start(true).await;
        let app = app_of(server.settings(&format!("revision: {revision}"))).await;
        for client in [Client::mcp(&app, NEWER, "alice").await, Client::mcp(&app, OLDER, "bob").await] {
            assert_eq!(client.call(&app, "note_set", json!({"text": "kept"})).await, "noted");
        }
        let count = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::SeqCst) > 0;
        assert_eq!((count(&server.seen.begun), count(&server.seen.discovered)), (begins, discovers), "{revision}");
        let introductions = server.seen.introductions.lock().unwrap().clone();
        assert!(introductions.iter().all(|introduction| introduction["protocolVersion"] == revision));
        app.stop().await;
    }
    // It answers another revision.
    let server = HttpServer::start(true).await;
    let app = app_of(server.settings("revision: 2025-03-26")).await;
    let (_, ready) = answer(app.get("/readyz").bearer_auth("key-of-alice")).await;
    let reason = ready["degraded"]["mcp:st"].as_str().unwrap_or_default();
    assert!(reason.contains("speaks revision 2025-06-18, not 2025-03-26"), "{ready}");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_told_what_the_client_of_its_session_can_answer() {
    let server = HttpServer::start(false).await;
    let app = app_of(server.settings("")).await;
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
    Client::Mcp(client.clone()).call(&app, "whoami", json!({})).await;
    Client::Rest("bob", None).call(&app, "whoami", json!({})).await;
    let introductions = server.seen.introductions.lock().unwrap().clone();
    let [of_gateway, of_client, of_rest] = &introductions[..] else { panic!("{introductions:?}") };
    let apps = json!({"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}});
    let all = json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}, "extensions": apps,
    });
    assert_eq!((&of_gateway["capabilities"], &of_rest["capabilities"]), (&all, &all));
    let own = crate::mcp::client::initialize(OLDER)["capabilities"].clone();
    for name in ["elicitation", "sampling"] {
        assert_eq!(of_client["capabilities"][name], own[name], "{name}");
    }
    assert_eq!(of_client["capabilities"].get("extensions"), None, "it shows no apps");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_of_both_handshakes_keeps_separate_state_for_each_client() {
    let app = app_of(program("both-eras", true, "")).await;
    let clients = [
        Client::mcp(&app, NEWER, "alice").await,
        Client::mcp(&app, NEWER, "bob").await,
        Client::mcp(&app, OLDER, "alice").await,
        Client::Rest("alice", None),
    ];
    for (n, client) in clients.iter().enumerate() {
        assert_eq!(client.call(&app, "note_get", json!({})).await, "nothing", "{n}");
        assert_eq!(client.call(&app, "note_set", json!({"text": n.to_string()})).await, "noted", "{n}");
    }
    for (n, client) in clients.iter().enumerate() {
        assert_eq!(client.call(&app, "note_get", json!({})).await, n.to_string());
    }
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_of_a_session_is_not_counted_as_the_tools_own_time() {
    let settings =
        program("slow-start", false, "timeout_seconds: 1").replace("\"MOOD\"", "\"START_MS\": \"2000\", \"MOOD\"");
    let app = app_of(settings).await;
    assert_ne!(Client::Rest("alice", None).call(&app, "whoami", json!({})).await, "timeout");
    assert_eq!(Client::Rest("alice", None).call(&app, "hang", json!({})).await, "timeout", "its own time is bounded");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_call_is_cancelled_while_it_begins_is_ended() {
    let server = HttpServer::start(false).await;
    let app = app_of(server.settings("")).await;
    server.seen.hold.store(true, Ordering::SeqCst);
    let request = app.post("/tools/st__whoami/execute").bearer_auth("key-of-alice").json(&json!({"arguments": {}}));
    let call = tokio::spawn(request.send());
    until("it has begun", async || server.open() == 2).await;
    call.abort();
    let cancelled = "tool_executions_total{status=\"cancelled\",tool_name=\"st__whoami\"} 1";
    until("the call is cancelled", async || app.metrics().await.contains(cancelled)).await;
    server.seen.release.notify_one();
    until("it has ended", async || server.open() == 1).await;
    app.stop().await;
}

#[test]
fn at_standard_input_and_output_a_session_ends_with_its_client_and_all_with_the_gateway() {
    for (revision, mark) in [(OLDER, "one-client-older"), (NEWER, "one-client-newer")] {
        let mut server = stdio::Server::start(&yaml(&[("st", program(mark, false, ""))]));
        server.begin(revision);
        let call = |tool: &str, arguments: Value| json!({"name": format!("st__{tool}"), "arguments": arguments});
        for id in 10.. {
            let listed = server.ask(revision, id, "tools/list", json!({}));
            if listed.to_string().contains("st__whoami") {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        server.ask(revision, 5_000, "tools/call", call("note_set", json!({"text": "kept"})));
        let result = server.ask(revision, 5_001, "tools/call", call("note_get", json!({})));
        assert_eq!(result["content"][0]["text"], "kept", "{revision}: {result}");
        assert_eq!(running(mark), 2, "{revision}");
        assert!(server.end().success(), "{revision}");
        let eventually = |programs: usize| {
            let until = std::time::Instant::now() + Duration::from_secs(10);
            while running(mark) > programs && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(running(mark), programs, "{revision}: programs outlive their client");
        };
        // The gateway's own stays, over which it reads the lists; and without sessions, that of the caller's clients.
        if revision == OLDER {
            eventually(1);
        }
        server.end_gateway();
        eventually(0);
    }
}
