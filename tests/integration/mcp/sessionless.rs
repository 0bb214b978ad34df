//! Clients of 2026-07-28 over replicas: a task and a call that waits for an answer are at one replica, and requests about
//! them may come to any. And the change of the secret by which replicas know what they signed.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::client::McpClient;
use super::forwarded::{SECRET, address, ann_at, calculation, replicas, settings, settings_with};
use super::{NEWER, OLDER};
use crate::app::{TestApp, code, config};
use crate::store_database::TestDatabase;

const TASKS: &str = "io.modelcontextprotocol/tasks";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_the_answer_to_a_question_may_come_to_any_replica() {
    let database = TestDatabase::new().await;
    let [one, other] = replicas(&database).await;
    let client = McpClient::connect_as(&one, NEWER, Some("key-of-ann")).await;
    let there = client.clone().at(&other.url);
    let answered = |asked: &Value, answers: Value| {
        json!({
            "name": "ask_name", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers,
        })
    };
    let name = json!({"name": {"action": "accept", "content": {"name": "Ann"}}});
    let mut asked = Value::Null;
    for (asking, answering) in [(&there, &client), (&client, &there)] {
        let call = json!({"name": "ask_name", "arguments": {}});
        asked = asking.result("tools/call", call, "InputRequiredResult").await;
        // It is of the same caller and request at every replica.
        let of_bob = answering.with_key("key-of-bob").reply("tools/call", answered(&asked, name.clone())).await;
        assert_eq!(of_bob["error"]["code"], -32602, "{of_bob}");
        let mut of_another = answered(&asked, name.clone());
        of_another["arguments"] = json!({"other": true});
        assert_eq!(answering.reply("tools/call", of_another).await["error"]["code"], -32602);
        // Without its answer the question is asked again.
        let again = answering.result("tools/call", answered(&asked, json!({})), "InputRequiredResult").await;
        assert_eq!(again["inputRequests"], asked["inputRequests"]);
        let reported = answering.result("tools/call", answered(&again, name.clone()), "CallToolResult").await;
        assert_eq!(reported["content"][0]["text"], "Hello, Ann!", "{reported}");
    }
    one.stop().await;
    let gone = there.reply("tools/call", answered(&asked, name)).await;
    assert_eq!(gone["error"]["data"]["reason"], "unknown_request_state", "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_task_is_found_from_any_replica() {
    let database = TestDatabase::new().await;
    let one = TestApp::with(&settings(&database, &address())).await;
    let other = TestApp::with(&settings(&database, &address())).await;
    let client = McpClient::connect_with(&one, NEWER, json!({"extensions": {TASKS: {}}})).await.with_key("key-of-ann");
    let there = client.clone().at(&other.url);
    let created = async |milliseconds: u64| {
        let call = json!({"name": "sleep", "arguments": {"ms": milliseconds}});
        let task = client.reply("tools/call", call).await["result"].clone();
        assert_eq!(task["resultType"], "task", "{task}");
        json!({"taskId": task["taskId"]})
    };
    let task = created(1_500).await;
    assert!(task["taskId"].as_str().unwrap().starts_with(one.gateway.cluster().replica_id().unwrap()), "{task}");
    let (mut news, acknowledged) = there.listen_to(json!({"taskIds": [task["taskId"]]})).await;
    assert_eq!(acknowledged["params"]["notifications"]["taskIds"], json!([task["taskId"]]), "{acknowledged}");
    while news.next_of("notifications/tasks").await["params"]["status"] != "completed" {}
    drop(news);
    let shown = there.reply("tasks/get", task.clone()).await["result"].clone();
    assert_eq!((&shown["status"], &shown["result"]["content"][0]["text"]), (&json!("completed"), &json!("1500")));
    let endless = created(60_000).await;
    let cancelled = there.reply("tasks/cancel", endless.clone()).await;
    assert_eq!(cancelled["result"], json!({"resultType": "complete"}), "{cancelled}");
    assert_eq!(client.reply("tasks/get", endless).await["result"]["status"], "cancelled");
    // For another caller it does not exist, and when its replica has stopped for nobody.
    let unknown = there.reply("tasks/get", json!({"taskId": "unknown"})).await["error"].clone();
    assert_eq!(unknown["code"], -32602, "{unknown}");
    assert_eq!(there.with_key("key-of-bob").reply("tasks/get", task.clone()).await["error"], unknown);
    let forged = task["taskId"].as_str().unwrap().replace('.', "-");
    assert_eq!(there.reply("tasks/get", json!({"taskId": forged})).await["error"], unknown);
    one.stop().await;
    assert_eq!(there.reply("tasks/get", task).await["error"], unknown);
}

/// The steps of `docs/replicas.md`: whatever began before or in between is used at both replicas at each moment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_the_secret_of_replicas_is_changed_without_an_end_of_sessions() {
    const NEXT: &str = "the next secret of the replicas of a test";
    let database = TestDatabase::new().await;
    let addresses = [address(), address()];
    let one = TestApp::with(&settings(&database, &addresses[0])).await;
    let other = TestApp::with(&settings(&database, &addresses[1])).await;
    let apps = [&one, &other];
    let reload = async |at: usize, secrets: &str| {
        let yaml = settings_with(&database, &addresses[at], secrets);
        apps[at].gateway.reload(config(&apps[at].directory, &yaml)).await;
    };
    let mut clients = Vec::new();
    for step in
        [format!("secret: {SECRET}, accepted_secret: {NEXT}"), format!("secret: {NEXT}, accepted_secret: {SECRET}")]
    {
        for at in [0, 1] {
            for (begun, elsewhere) in [(&one, &other), (&other, &one)] {
                clients.push(ann_at(begun).await.at(&elsewhere.url));
            }
            reload(at, &step).await;
            for client in &clients {
                assert_eq!(client.send("tools/call", calculation()).await.0, StatusCode::OK, "{step} at {at}");
            }
        }
    }
    let last = ann_at(&one).await;
    for at in [0, 1] {
        reload(at, &format!("secret: {NEXT}")).await;
    }
    assert_eq!(last.clone().at(&other.url).send("tools/call", calculation()).await.0, StatusCode::OK);
    // What the secret before has signed counts nowhere else any more.
    let (status, reply) = clients[0].send("tools/call", calculation()).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_session"), "{reply}");
    assert_eq!(clients[0].clone().at(&one.url).send("tools/call", calculation()).await.0, StatusCode::OK);
    let anew = McpClient::connect_as(&other, OLDER, Some("key-of-ann")).await.at(&one.url);
    assert_eq!(anew.send("tools/call", calculation()).await.0, StatusCode::OK);
}
