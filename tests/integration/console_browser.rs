//! The console in a real browser, with tools whose texts are hostile: `tests/console/pages.mjs`.

use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;

use crate::app::TestApp;

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
    let packages = std::env::var("CONSOLE_BROWSER").expect("CONSOLE_BROWSER names the folder of playwright-core");
    let screenshots = std::env::var("CONSOLE_SCREENSHOTS").unwrap_or_else(|_| format!("{packages}/screenshots"));
    let overrides = ["echo", "sleep", "fail", "paid"].into_iter().zip(HOSTILE);
    let overrides: serde_json::Map<_, _> =
        overrides.map(|(tool, text)| (tool.to_owned(), json!({"description": text, "labels": [text]}))).collect();
    let yaml = json!({
        "auth": {"api_keys": [{"id": "ann", "key": "key-of-ann", "roles": ["admin", "operator"]}]},
        "tools": {"overrides": overrides},
    });
    let app = TestApp::in_directory(TempDir::new().unwrap(), &yaml.to_string()).await;
    for text in HOSTILE {
        for tool in ["echo", "fail", text] {
            let path = format!("/tools/{}/execute", percent_encoding(tool));
            let call = app.post(&path).bearer_auth("key-of-ann").json(&json!({"arguments": {"text": text}}));
            _ = call.send().await.unwrap();
        }
    }
    let run = tokio::process::Command::new(format!("{packages}/node_modules/.bin/node"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/console/pages.mjs"))
        .args([&app.url, "key-of-ann", &screenshots, "calculator", "python_executor", "echo", "fail", "file_write"])
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
