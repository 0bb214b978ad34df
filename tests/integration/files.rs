//! Sessions and their workspaces.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

const KEYS: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada, roles: [operator, admin]}
    - {id: bob, key: key-of-bob, roles: [operator, admin]}
    - {id: ada, key: key-of-other-ada, tenant: other, roles: [operator, admin]}
";

async fn as_caller(app: &TestApp, key: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
    let body = json!({"arguments": arguments, "session_id": "shared-name"});
    answer(app.post(&format!("/tools/{tool}/execute")).bearer_auth(key).json(&body)).await
}

/// Fault 11: a session that opens by guessing its id.
#[tokio::test]
async fn a_session_id_opens_nothing_of_another_caller_or_tenant() {
    let app = TestApp::with(KEYS).await;
    let written = as_caller(&app, "key-of-ada", "file_write", json!({"path": "secret.txt", "content": "of ada"})).await;
    assert_eq!(written.0, StatusCode::OK, "{}", written.1);
    let (_, read) = as_caller(&app, "key-of-ada", "file_read", json!({"path": "secret.txt"})).await;
    assert_eq!(read["output"]["content"], "of ada");
    for other in ["key-of-bob", "key-of-other-ada"] {
        let (_, reply) = as_caller(&app, other, "file_read", json!({"path": "secret.txt"})).await;
        assert_eq!(code(&reply), "tool_error");
        let (_, reply) = as_caller(&app, other, "file_list", json!({})).await;
        assert_eq!(reply["output"]["entries"], json!([]));
    }
}

#[tokio::test]
async fn there_is_no_way_out_of_a_workspace() {
    let app = TestApp::with(KEYS).await;
    for path in ["../x", "/etc/passwd", "a/../../x", "..", "", "\0", "a\\..\\..\\x"] {
        let (status, reply) = as_caller(&app, "key-of-ada", "file_read", json!({"path": path})).await;
        assert!(matches!(code(&reply), "tool_error" | "invalid_arguments"), "{path:?}: {status} {reply}");
    }
}

/// An upload is a call of `file_write`: the same roles, and a file of the caller's session.
#[tokio::test]
async fn a_file_is_uploaded_to_the_workspace_of_a_session() {
    let app = TestApp::with(KEYS).await;
    let content = vec![b'x'; 5_000_000];
    let upload = async |path: &str, content: Vec<u8>| {
        let route = format!("{}/sessions/shared-name/files/{path}", app.url);
        answer(reqwest::Client::new().put(route).bearer_auth("key-of-ada").body(content)).await
    };
    let (status, reply) = upload("data%2Ftable.csv", content).await;
    assert_eq!((status, &reply["output"]["size"]), (StatusCode::OK, &json!(5_000_000)), "{reply}");
    let (_, read) = as_caller(&app, "key-of-ada", "file_read", json!({"path": "data/table.csv", "length": 3})).await;
    assert_eq!(read["output"]["content"], "xxx");
    let folder = app.directory.path().join("state/workspaces");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "the workspace alone");
    let forged = json!({"path": "x", "content": hex::encode([0; 32]), "encoding": "upload"});
    assert_eq!(
        code(&as_caller(&app, "key-of-ada", "file_write", forged).await.1),
        "tool_error",
        "no file came with it"
    );
    assert_eq!(code(&upload("..%2Fx", Vec::new()).await.1), "tool_error");
    assert_eq!(upload("large", vec![0; 9 << 20]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let anonymous = reqwest::Client::new().put(format!("{}/sessions/s/files/x", app.url)).body("x");
    assert_eq!(code(&answer(anonymous).await.1), "unknown_tool", "it needs the role of file_write");
}
