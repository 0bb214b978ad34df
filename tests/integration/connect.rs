//! `sekisho connect` as a newcomer runs it: an editor's server moves behind the gateway, which the editor then starts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{cache, sekisho, text};
use crate::mcp_programs::entry;
use crate::one_gateway::{Client, eventually};

const FILE: &str = "home/.cursor/mcp.json";

fn connect(directory: &TempDir, arguments: &[&str]) -> Output {
    let home = directory.path().join("home");
    let mut command = sekisho(directory);
    // The prepared interpreter is in the cache of the real home folder.
    let cache = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    if let Some(cache) = cache.filter(|_| std::env::var_os("XDG_CACHE_HOME").is_none()) {
        command.env("XDG_CACHE_HOME", cache);
    }
    command.env("HOME", home).env("USER", "ada").arg("connect").args(arguments).output().unwrap()
}

/// The program that the editor starts, as its file says, with few variables of its own.
fn started_by_editor(file: &Path) -> Command {
    let text = fs::read_to_string(file).unwrap();
    let json: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let document: Value = serde_json::from_str(&json).unwrap();
    let entry = &document["mcpServers"]["sekisho"];
    let arguments = entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let variables = entry["env"].as_object().unwrap().iter().map(|(name, value)| (name, value.as_str().unwrap()));
    let mut command = Command::new(entry["command"].as_str().unwrap());
    command.args(arguments).env_clear().envs(cache()).envs(variables).current_dir("/");
    command
}

#[test]
fn an_editor_starts_the_gateway_and_has_the_tools_of_the_servers_that_moved() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join(FILE);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let before = format!("{{\n  // Mine.\n  \"mcpServers\": {{\"moody\": {}}}\n}}\n", entry("fine"));
    fs::write(&file, &before).unwrap();

    // Nobody was asked.
    let shown = connect(&directory, &["cursor"]);
    assert_eq!(shown.status.code(), Some(2), "{}", text(&shown));
    assert!(
        text(&shown).contains("moody moves behind the gateway") && text(&shown).contains("--yes"),
        "{}",
        text(&shown)
    );
    let shown = connect(&directory, &["cursor", "--dry-run"]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);

    // The editor is found.
    let connected = connect(&directory, &["--yes"]);
    assert_eq!(connected.status.code(), Some(0), "{}", text(&connected));
    assert!(text(&connected).contains("Cursor is connected") && text(&connected).contains("tools are offered"));
    let servers = sekisho(&directory).args(["mcp", "list"]).output().unwrap();
    assert!(text(&servers).contains("moody"), "{}", text(&servers));
    let mut editor = Client::of(started_by_editor(&file));
    let listed = editor.ask(1, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "moody__echo"), "{listed}");
    let called = editor.ask(2, "tools/call", json!({"name": "moody__echo", "arguments": {"a": 1}}));
    assert_eq!(called["result"]["content"][0]["text"], r#"{"a":1}"#, "{called}");
    let trail = directory.path().join("state/audit.jsonl");
    eventually("the call of the user has a line", || {
        fs::read_to_string(&trail).is_ok_and(|text| text.contains("moody__echo") && text.contains("\"ada\""))
    });

    let undone = connect(&directory, &["cursor", "--undo", "--yes"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let again = connect(&directory, &["cursor", "--undo", "--yes"]);
    assert!(again.status.success() && text(&again).contains("Cursor is not connected"), "{}", text(&again));
}

#[test]
fn without_an_editor_the_names_are_shown() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("home")).unwrap();
    let refused = connect(&directory, &[]);
    assert!(!refused.status.success() && text(&refused).contains("claude-code, claude-desktop, cursor"));
    let refused = connect(&directory, &["claude-desktop", "--http", "--yes"]);
    assert!(!refused.status.success() && text(&refused).contains("without --http"), "{}", text(&refused));
}

#[test]
fn one_verb_adds_tools_of_each_kind_or_says_what_is_missing() {
    let directory = TempDir::new().unwrap();
    let add = |arguments: &[&str]| {
        let added = sekisho(&directory).env("MOOD", "fine").arg("add").args(arguments).output().unwrap();
        (added.status.code(), text(&added))
    };
    let program = ["--name", "m", "--key-env", "MOOD", env!("CARGO_BIN_EXE_mcp-test-server"), "moody"];
    let (code, shown) = add(&program);
    assert!(code == Some(0) && shown.contains("m__echo"), "{shown}");
    assert!(shown.contains("1 prompt (m__greet) and 2 resources"), "{shown}");
    let servers = fs::read_to_string(directory.path().join("state/mcp.json")).unwrap();
    assert!(servers.contains("${MOOD:-}"), "{servers}");
    // Started without the variable, the gateway says which key is missing.
    let checked = text(&sekisho(&directory).arg("check").output().unwrap());
    assert!(checked.contains("variables that are not set: `MOOD` (`env.MOOD`)"), "{checked}");
    fs::write(directory.path().join("weather.py"), "def cold(celsius: float) -> bool:\n    return celsius < 0\n")
        .unwrap();
    let orders = crate::checkout::checkout().join("examples/openapi/orders.openapi.yaml");
    let orders = orders.to_str().unwrap();
    for (arguments, code, expected) in [
        (&program[..], 1, "has a server \"m\" already"),
        (&["https://mcp.example.com/mcp"], 1, "mcp.example.com is not in `outbound.mcp_allowed_domains`"),
        (&["--key-env", "UNSET", "uvx", "mcp-server-time"], 1, "UNSET is not set"),
        (&["https://example.com/"], 2, "--kind mcp or --kind openapi"),
        (&["./weather.py"], 1, "python_tools: {directory: "),
        (&["--kind", "python", "./weather.py", "more"], 2, "only a program has arguments"),
        (&[orders, "--key-env", "KEY"], 0, "auth_config: {api_key: \"${KEY}\", token: \"${KEY}\"}"),
    ] {
        let (exit, shown) = add(arguments);
        assert!(exit == Some(code) && shown.contains(expected), "{arguments:?}: {exit:?} {shown}");
    }
}
