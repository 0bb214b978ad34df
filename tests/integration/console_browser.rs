//! The console in a real browser, with tools and agents whose texts are hostile: the scripts of `tests/console`.

use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::checkout::checkout;
use crate::console::HostileTools;
use crate::console_agents::{Nested, TALK, configuration, hostile_talk};
use crate::console_runs::SLOW;

/// A page must show these as text.
const HOSTILE: [&str; 4] = [
    "<script>alert('a text is a script')</script>",
    "\"><img src=x onerror=alert(1)>",
    "'-alert(1)-'</textarea></title><svg/onload=alert(1)>",
    "javascript:alert(1) \u{202e}gnp.exe {{7*7}}",
];

#[tokio::test]
#[ignore = "needs playwright-core and axe-core in the folder named by CONSOLE_BROWSER, and Chromium"]
async fn console_pages_in_chromium() {
    let overrides = ["echo", "sleep", "fail", "paid"].into_iter().zip(HOSTILE);
    let overrides: serde_json::Map<_, _> =
        overrides.map(|(tool, text)| (tool.to_owned(), json!({"description": text, "labels": [text]}))).collect();
    let directory = TempDir::new().unwrap();
    let path = |file: &str| directory.path().join(file).display().to_string();
    let operation = |id: &str| json!({"operationId": id, "summary": HOSTILE[0], "description": HOSTILE[1], "responses": {"200": {"description": "ok"}}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://zoo.example"}],
        "paths": {"/pets": {"get": operation("pets")}, "/keepers": {"get": operation("a_long_name_of_an_operation_that_no_column_can_hold_in_one_line")},
            "/lost": {"get": {"operationId": "lost", "parameters": [{"$ref": "#/none"}], "responses": {}}}},
    });
    std::fs::write(path("zoo.json"), document.to_string()).unwrap();
    // Two thousand tools.
    let many: serde_json::Map<_, _> = (0..2_000)
        .map(|n| (format!("/things/{n}"), json!({"get": operation(&format!("read_the_thing_with_the_number_{n:04}"))})))
        .collect();
    let many = json!({"openapi": "3.1.0", "info": {"title": "m", "version": "1"},
        "servers": [{"url": "https://zoo.example"}], "paths": many});
    std::fs::write(path("many.json"), many.to_string()).unwrap();
    std::fs::write(path("tools.lock"), r#"{"version": 1, "tools": {}}"#).unwrap();
    // An API that each caller signs in to.
    let login = json!({"type": "oauth2", "flows": {"authorizationCode": {
        "authorizationUrl": "https://zoo.example/authorize", "tokenUrl": "https://zoo.example/token", "scopes": {}}}});
    let personal = json!({
        "openapi": "3.1.0", "info": {"title": "p", "version": "1"}, "servers": [{"url": "https://zoo.example"}],
        "components": {"securitySchemes": {"login": login}}, "security": [{"login": []}],
        "paths": {"/me": {"get": operation("me")}},
    });
    std::fs::write(path("personal.json"), personal.to_string()).unwrap();
    let credentials = json!({"login": {"client_id": "sekisho", "client_secret": "x"}});
    let yaml = json!({
        "mcp": {"servers": {"gone": {"command": "/does-not-exist/<script>alert(1)</script>"}}},
        "openapi": {"collections": {"zoo": {"spec_file": path("zoo.json")}, "many": {"spec_file": path("many.json")},
            "personal": {"spec_file": path("personal.json"), "identity": "per_user", "credentials": credentials}}},
        "outbound": {"openapi_allowed_domains": ["zoo.example"]},
        "budget": {"max_cost_per_caller_per_day": 1, "max_tokens_per_caller_per_day": 100_000},
        "limits": {"caller_rate_limit": 10_000},
        "auth": {"api_keys": [{"id": "ann", "key": "key-of-ann", "roles": ["admin", "operator"]}]},
        "tools": {"overrides": overrides, "lock": path("tools.lock")},
    });
    let app = TestApp::in_directory(directory, &yaml.to_string()).await;
    // What is not the document's is as it was approved.
    let (_, review) = answer(app.get("/admin/lock").bearer_auth("key-of-ann")).await;
    let differences = review["differences"].as_array().unwrap().iter();
    let own: Vec<_> = differences
        .filter(|found| !found["tool"].as_str().unwrap().starts_with("zoo__"))
        .map(|found| json!({"tool": found["tool"], "hash": found["hash"]}))
        .collect();
    let approve = app.post("/admin/lock/approve").bearer_auth("key-of-ann").json(&json!({"approvals": own}));
    assert!(approve.send().await.unwrap().status().is_success());
    for text in HOSTILE {
        for tool in ["echo", "fail", text] {
            let path = format!("/tools/{}/execute", percent_encoding(tool));
            let call = app.post(&path).bearer_auth("key-of-ann").json(&json!({"arguments": {"text": text}}));
            _ = call.send().await.unwrap();
        }
    }
    in_chromium(
        "pages.mjs",
        &[&app.url, "key-of-ann", "SCREENSHOTS", "calculator", "python_executor", "echo", "fail", "file_write"],
    )
    .await;
}

#[tokio::test]
#[ignore = "needs playwright-core and axe-core in the folder named by CONSOLE_BROWSER, and Chromium"]
async fn console_agents_in_chromium() {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, TALK);
    let app = TestApp::with_tools_of(directory, &yaml, vec![Box::new(Nested)]).await;
    in_chromium("agents.mjs", &[&app.url, "key-of-root", "SCREENSHOTS"]).await;
}

#[tokio::test]
#[ignore = "needs playwright-core and axe-core in the folder named by CONSOLE_BROWSER, and Chromium"]
async fn console_decision_in_chromium() {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, SLOW);
    let app = TestApp::in_directory(directory, &yaml).await;
    in_chromium("decision.mjs", &[&app.url, "key-of-ann", "SCREENSHOTS"]).await;
}

#[tokio::test]
#[ignore = "needs playwright-core and axe-core in the folder named by CONSOLE_BROWSER, and Chromium"]
async fn console_security_in_chromium() {
    let directory = TempDir::new().unwrap();
    let yaml = configuration(&directory, &hostile_talk());
    let app = TestApp::with_tools_of(directory, &yaml, vec![Box::new(HostileTools)]).await;
    let texts = checkout().join("tests/fixtures/console/markup.json").display().to_string();
    in_chromium("security.mjs", &[&app.url, "key-of-root", "key-of-vic", &texts, "SCREENSHOTS"]).await;
}

/// Runs a script of `tests/console`, with the folder of the screenshots in place of `SCREENSHOTS`.
async fn in_chromium(script: &str, arguments: &[&str]) {
    let packages = std::env::var("CONSOLE_BROWSER").expect("CONSOLE_BROWSER names the folder of playwright-core");
    let screenshots = std::env::var("CONSOLE_SCREENSHOTS").unwrap_or_else(|_| format!("{packages}/screenshots"));
    let arguments = arguments.iter().map(|argument| argument.replace("SCREENSHOTS", &screenshots));
    let run = tokio::process::Command::new(format!("{packages}/node_modules/.bin/node"))
        .arg(checkout().join("tests/console").join(script))
        .args(arguments)
        .env("NODE_PATH", format!("{packages}/node_modules"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{printed}");
}

fn percent_encoding(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
