//! Components as their tools make them: of JavaScript and of Python.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use serde_json::json;
use tempfile::TempDir;

use super::{OwnComponents, folder};
use crate::app::code;
use crate::checkout::checkout;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// With componentize-js and componentize-py of this folder.
fn build(tools: &Path, directory: &TempDir) {
    std::fs::create_dir(folder(directory)).unwrap();
    let sources = checkout().join("tests/components/real");
    let (source, output) = (|name: &str| sources.join(name), |name: &str| folder(directory).join(name));
    let mut node = Command::new("node");
    node.env("NODE_MODULES", tools.join("node_modules"));
    run(node.args([source("build.mjs"), source("tools.wit"), source("tools.js")]).arg(output("js.wasm")));
    let mut python = Command::new(tools.join("python/bin/componentize-py"));
    python.arg("-d").arg(source("tools.wit")).args(["-w", "greeter", "componentize", "app", "-p"]).arg(&sources);
    run(python.arg("-o").arg(output("py.wasm")));
    for name in ["js.wit", "py.wit"] {
        std::fs::copy(source("tools.wit"), output(name)).unwrap();
    }
}

/// A server that gives back the key that it was sent.
async fn server() -> (String, Arc<Mutex<Vec<String>>>) {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let (listener, seen) = (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::clone(&keys));
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = move |headers: HeaderMap| async move {
        seen.lock().unwrap().push(headers["x-api-key"].to_str().unwrap().to_owned());
        "the page"
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/page", get(answer))).await });
    (url, keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs componentize-js and componentize-py, in the folder COMPONENT_TOOLS"]
async fn real_components_are_called_and_may_do_only_what_they_are_granted() {
    let tools = std::path::PathBuf::from(std::env::var("COMPONENT_TOOLS").unwrap());
    let directory = TempDir::new().unwrap();
    build(&tools, &directory);
    let (url, keys) = server().await;
    let host = url.trim_start_matches("http://");
    let grants = format!(
        ", grants: {{js: {{clocks: true, random: true, http: ['{host}'], allow_networks: [127.0.0.1/32]}}, \
        py: {{clocks: true, random: true}}}}, credentials: {{js: {{'{url}': {{X-Api-Key: of the gateway}}}}}}"
    );
    let own = OwnComponents::start(directory, &grants).await;
    assert_eq!(own.output("js__shout", json!({"text": "bern"})).await, "BERN!");
    let (_, reply) = own.app.call("js__shout", json!({"text": ""})).await;
    assert_eq!((code(&reply), &reply["error"]), ("tool_error", &json!("nothing to shout")), "{reply}");
    assert_eq!(own.output("js__read_page", json!({"url": format!("{url}/page")})).await, "the page");
    assert_eq!(*keys.lock().unwrap(), ["of the gateway"], "the component has no part in it");
    let (_, reply) = own.app.call("js__read_page", json!({"url": "http://other.example/page"})).await;
    assert!(code(&reply) == "tool_error" && reply["error"].as_str().unwrap().contains("no page"), "{reply}");

    let client = McpClient::connect(&own.app, NEWER).await;
    let call = json!({"name": "py__greet", "arguments": {"who": {"name": "Ann"}}});
    let called = client.result("tools/call", call, "CallToolResult").await;
    assert!(called.to_string().contains("Hello, Ann, of any age!"), "{called}");
    assert_eq!(own.output("py__greet", json!({"who": {"name": "Ann", "age": 7}})).await, "Hello, Ann, 7!");
    let (_, reply) = own.app.call("py__greet", json!({"who": {"name": ""}})).await;
    assert_eq!(reply["error"], "nobody is there", "{reply}");
    assert_eq!(own.output("py__try_everything", json!({})).await, json!([]));
}
