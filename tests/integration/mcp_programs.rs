//! The MCP servers that tests start as programs (`tests/fixtures/mcp/test_servers`): their settings and their processes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The entry of a server with this mood in an `mcpServers` file. A mood with a file is in no sandbox: the file is beside the state
/// directory, and is replaced.
pub(crate) fn entry(mood: &str) -> Value {
    let mut entry = program("moody", &json!({"MOOD": mood}));
    if mood.contains('/') {
        entry["sandbox"] = json!("off");
    }
    entry
}

/// The same for the configuration, in one line of YAML, with `more` settings.
pub(crate) fn server(mood: &str, more: &str) -> String {
    settings(&entry(mood), more)
}

/// The settings of a server of this kind, with an environment and `more` settings.
pub(crate) fn started(kind: &str, environment: &Value, more: &str) -> String {
    settings(&program(kind, environment), more)
}

fn settings(entry: &Value, more: &str) -> String {
    let entry = entry.to_string();
    format!("{}, {more}}}", entry.strip_suffix('}').unwrap())
}

fn program(kind: &str, environment: &Value) -> Value {
    json!({
        "command": env!("CARGO_BIN_EXE_mcp-test-server"),
        "args": [kind],
        "env": environment,
    })
}

/// A server that offers what a file says (JSON, a list of tools, or `tools` and `prompts`), and sends a
/// notification when the file has changed.
pub(crate) fn server_of(file: &Path) -> String {
    server_of_with(file, "")
}

/// The same with `more` settings.
pub(crate) fn server_of_with(file: &Path, more: &str) -> String {
    server(&format!("listed-{}", file.display()), more)
}

/// Programs with this mood that run now. Moods that are counted are each one test's own.
pub(crate) fn running(mood: &str) -> usize {
    processes(mood).len()
}

/// The ids of such programs.
pub(crate) fn processes(mood: &str) -> Vec<String> {
    let wanted = format!("MOOD={mood}\0");
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let has_mood = |environment: Vec<u8>| environment.windows(wanted.len()).any(|found| found == wanted.as_bytes());
    let with_mood = processes.filter(|process| fs::read(process.path().join("environ")).is_ok_and(has_mood));
    with_mood.map(|process| process.file_name().into_string().unwrap()).collect()
}

/// The settings of a server of one revision that validates every message, with `more` settings.
pub(crate) fn strict(revision: &str, more: &str) -> String {
    started("strict", &json!({"REVISION": revision}), more)
}
