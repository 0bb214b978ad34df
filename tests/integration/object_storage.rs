//! What replicas share as bytes: large replies, files of sessions and segments of the audit trail. In a folder, and in a
//! server that speaks S3, whose address is in `OBJECT_STORAGE`; `scripts/with-object-storage` starts one.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code, degraded};
use crate::cli::{sekisho, text};
use crate::store_database::TestDatabase;

const SETTINGS: &str = "
auth: {api_keys: [{id: ada, key: key-of-ada, roles: [operator, admin]}]}
server: {max_body_bytes: 16000000}
tools: {overrides: {echo: {max_output_bytes: 16000000}}}
audit: {durability: strict}
";

/// The configuration of a replica.
fn settings(database: &TestDatabase, blobs: &str) -> String {
    database.settings(&format!("cluster: {{enabled: true, blobs: {blobs}}}\n{SETTINGS}"))
}

fn folder(shared: &TempDir) -> String {
    format!("{{url: 'file://{}'}}", shared.path().display())
}

/// A prefix of its own in the bucket of the server.
fn bucket() -> String {
    let endpoint = std::env::var("OBJECT_STORAGE").unwrap();
    let prefix = uuid::Uuid::new_v4();
    format!(
        "{{url: 's3://sekisho/{prefix}', endpoint: '{endpoint}', region: us-east-1, access_key_id: testing, secret_access_key: testing}}"
    )
}

async fn send(app: &TestApp, tool: &str, arguments: &Value, key: Option<&str>) -> (StatusCode, Value, bool) {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth("key-of-ada");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    let response = request.json(&json!({"arguments": arguments, "session_id": "s"})).send().await.unwrap();
    let (status, replayed) = (response.status(), response.headers().contains_key("idempotency-replayed"));
    (status, response.json().await.unwrap(), replayed)
}

async fn replicas_share(database: &TestDatabase, blobs: &str) {
    let yaml = settings(database, blobs);
    let (one, other) = (TestApp::with(&yaml).await, TestApp::with(&yaml).await);
    // A large reply is replayed at the other replica.
    let large = json!({"text": "x".repeat(6 << 20)});
    let (status, first, replayed) = send(&one, "echo", &large, Some("once")).await;
    assert!(status == StatusCode::OK && !replayed && first["output"]["echo"] == large, "{status}");
    let (status, again, replayed) = send(&other, "echo", &large, Some("once")).await;
    assert!(status == StatusCode::OK && replayed && again == first, "{status} {}", again["error"]);

    // The files of a session are at both.
    for (app, content) in [(&one, "first"), (&other, "second")] {
        let (status, reply, _) = send(app, "file_write", &json!({"path": "a.txt", "content": content}), None).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    for app in [&one, &other] {
        let (_, read, _) = send(app, "file_read", &json!({"path": "a.txt"}), None).await;
        assert_eq!(read["output"]["content"], "second", "{read}");
    }
    assert_eq!(degraded(&one).await, Value::Null);

    // Closed segments of both trails, by the command of either.
    for app in [&one, &other] {
        app.gateway.pipeline.settlement.audit.start_segment();
    }
    let began = std::time::Instant::now();
    loop {
        let arguments = ["--config", "sekisho.yaml", "--json", "audit", "verify", "--stored"];
        let output = sekisho(&one.directory).args(arguments).output().unwrap();
        let lines = String::from_utf8(output.stdout.clone()).unwrap();
        let trails: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if trails.len() == 2 {
            assert!(output.status.success() && trails.iter().all(|trail| trail["whole"] == true), "{trails:?}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{}", text(&output));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let check = sekisho(&one.directory).args(["--config", "sekisho.yaml", "check"]).output().unwrap();
    assert!(text(&check).contains("could be written, read and removed"), "{}", text(&check));
    one.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_share_a_folder() {
    let shared = TempDir::new().unwrap();
    replicas_share(&TestDatabase::new().await, &folder(&shared)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL and a server that speaks S3: scripts/with-object-storage scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_s3"]
async fn on_s3_replicas_share_a_bucket() {
    replicas_share(&TestDatabase::new().await, &bucket()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_gateway_without_its_object_storage_serves_and_says_so() {
    let database = TestDatabase::new().await;
    let away = "{url: 's3://bucket', endpoint: 'http://127.0.0.1:1', access_key_id: a, secret_access_key: hunter2}";
    let app = TestApp::with(&settings(&database, away)).await;
    let (status, _, _) = send(&app, "echo", &json!({}), Some("small")).await;
    assert_eq!(status, StatusCode::OK);
    let reason = loop {
        match degraded(&app).await["object_storage"].take() {
            Value::String(reason) => break reason,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(reason.contains("s3://bucket") && !reason.contains("hunter2"), "{reason}");
    assert_eq!(answer(app.get("/readyz")).await.0, StatusCode::OK);
    // It ran once, and its reply reached its caller.
    let large = json!({"text": "x".repeat(6 << 20)});
    assert_eq!(send(&app, "echo", &large, Some("large")).await.0, StatusCode::OK);
    let (status, reply, _) = send(&app, "echo", &large, Some("large")).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
    let (status, reply, _) = send(&app, "file_write", &json!({"path": "a", "content": "b"}), None).await;
    assert_eq!((status, code(&reply)), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
    let check = sekisho(&app.directory).args(["--config", "sekisho.yaml", "check"]).output().unwrap();
    assert!(!check.status.success() && text(&check).contains("BROKEN"), "{}", text(&check));
    app.stop().await;
}
