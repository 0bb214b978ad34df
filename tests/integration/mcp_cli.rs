//! Lists of MCP servers from the terminal: `sekisho mcp add|list|remove|import`, and serving one without any YAML.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};
use crate::mcp_http::Upstream;
use crate::mcp_programs::{entry, processes, server};
use crate::mcp_servers::yaml;

fn file(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

fn read(file: &str) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn a_list_of_servers_is_sanitized_for_the_terminal() {
    let directory = TempDir::new().unwrap();
    let list = file(&directory, "mcp.json");
    let run = |arguments: &[&str]| {
        let (before, after) =
            arguments.split_at(arguments.iter().position(|it| *it == "--").unwrap_or(arguments.len()));
        let output = sekisho(&directory).arg("mcp").args(before).args(["--file", &list]).args(after).output().unwrap();
        (output.status.success(), text(&output))
    };
    fs::write(&list, r#"{"theme": "dark", "mcpServers": {}}"#).unwrap();
    assert!(run(&["add", "time", "--env", "TZ=UTC", "--", "uvx", "mcp-server-time"]).0);
    assert!(run(&["add", "docs", "--url", "https://mcp.example.com/mcp", "--header", "X-Key: ${DOCS_KEY}"]).0);
    let expected = json!({"theme": "dark", "mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}},
        "docs": {"url": "https://mcp.example.com/mcp", "headers": {"X-Key": "${DOCS_KEY}"}},
    }});
    assert_eq!(read(&list), expected);
    let (done, reported) = run(&["add", "time", "--", "other"]);
    assert!(!done && reported.contains("remove it first"), "{reported}");
    let (_, reported) = run(&["list"]);
    assert!(
        reported.contains("uvx") && reported.contains("https://mcp.example.com/mcp") && !reported.contains("DOCS_KEY"),
        "{reported}"
    );

    let others = file(&directory, "others.json");
    fs::write(
        &others,
        json!({"servers": {"docs": {"url": "https://other.example"}, "new": entry("fine")}}).to_string(),
    )
    .unwrap();
    let (done, reported) = run(&["import", &others]);
    assert!(done && reported.contains("added 1"), "{reported}");
    assert_eq!(read(&list)["mcpServers"]["docs"], expected["mcpServers"]["docs"], "what is there stays");
    assert!(run(&["remove", "docs"]).0 && !run(&["remove", "docs"]).0);
    assert_eq!(read(&list)["mcpServers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["time", "new"]);
}

/// The names of the tools, once one is among them.
pub(crate) async fn listed(url: &str, expected: &str) -> Vec<String> {
    let listed = async {
        loop {
            let names: Vec<String> = reqwest::get(format!("{url}/tools/list")).await.unwrap().json().await.unwrap();
            if names.iter().any(|name| name == expected) {
                return names;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listed).await.unwrap_or_else(|_| panic!("{expected} is not listed"))
}

/// As the help says: without a file and without a configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_server_is_offered_at_once_and_by_the_next_gateway() {
    let directory = TempDir::new().unwrap();
    let run = |arguments: &[&str]| sekisho(&directory).arg("mcp").args(arguments).output().unwrap();
    let added = run(&["add", "m", "--env", "MOOD=fine", "--", env!("CARGO_BIN_EXE_mcp-test-server"), "moody"]);
    assert!(added.status.success() && text(&added).contains("state/mcp.json"), "{}", text(&added));
    let serving = Serving::start(&directory);
    listed(&serving.url, "m__echo").await;
    let second = run(&["add", "n", "--env", "MOOD=fine", "--", env!("CARGO_BIN_EXE_mcp-test-server"), "moody"]);
    assert!(second.status.success(), "{}", text(&second));
    listed(&serving.url, "n__echo").await;
    assert!(run(&["remove", "m"]).status.success());
    assert_eq!(read(&file(&directory, "state/mcp.json"))["mcpServers"].as_object().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_another_program_is_served_without_any_yaml() {
    let directory = TempDir::new().unwrap();
    let list = file(&directory, "mcp.json");
    fs::write(
        &list,
        json!({"mcpServers": {"moody": entry("fine"), "gone": {"command": "/nowhere/at/all"}}}).to_string(),
    )
    .unwrap();
    let serving = Serving::start_with(&directory, &["--mcp-config", &list]);
    listed(&serving.url, "moody__echo").await;
    let call = reqwest::Client::new().post(format!("{}/tools/moody__echo/execute", serving.url));
    let reply: Value = call.json(&json!({"arguments": {"a": 1}})).send().await.unwrap().json().await.unwrap();
    assert_eq!(reply["text"], r#"{"a":1}"#, "{reply}");
    drop(serving);
    let serving = Serving::start_with(&directory, &["--mcp-config", &list, "--mcp-prefix", "never"]);
    assert!(!listed(&serving.url, "echo").await.iter().any(|name| name.starts_with("moody__")));
}

/// Another sandbox than that of Python: of a server that is a program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_runs_in_namespaces_of_its_own_unless_its_sandbox_is_off() {
    let directory = TempDir::new().unwrap();
    let servers = [("boxed", server("mood-in-a-sandbox", "")), ("open", server("mood-outside", "sandbox: off"))];
    fs::write(file(&directory, "sekisho.yaml"), yaml(&servers)).unwrap();
    let serving = Serving::start_with(&directory, &["--config", &file(&directory, "sekisho.yaml")]);
    listed(&serving.url, "boxed__echo").await;
    listed(&serving.url, "open__echo").await;
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
    for (mood, is_own) in [("mood-in-a-sandbox", true), ("mood-outside", false)] {
        let running = processes(mood);
        assert!(!running.is_empty(), "{mood}");
        assert!(running.iter().all(|process| (namespace(process) != namespace("self")) == is_own), "{mood}");
    }
    let ready: Value = reqwest::get(format!("{}/readyz", serving.url)).await.unwrap().json().await.unwrap();
    let note = |server: &str| ready["notes"][format!("mcp.servers.{server}.sandbox")].as_str().map(str::to_owned);
    assert!(note("open").is_some_and(|note| note.contains("without a sandbox")), "{ready}");
    assert_eq!(note("boxed"), None, "this machine has all layers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_what_a_program_may_not_reach_and_the_setting_that_allows_it() {
    let directory = TempDir::new().unwrap();
    let script = "(exec 3<>/dev/tcp/10.255.0.1/9); exec \"$0\" moody";
    let args = ["-c", script, env!("CARGO_BIN_EXE_mcp-test-server")];
    let entry = json!({"command": "bash", "args": args, "env": {"MOOD": "fine"}});
    fs::write(file(&directory, "sekisho.yaml"), yaml(&[("boxed", entry.to_string())])).unwrap();
    let serving = Serving::start_with(&directory, &["--config", &file(&directory, "sekisho.yaml")]);
    listed(&serving.url, "boxed__echo").await;
    let inspect = |options: &[&str]| {
        let arguments = ["--config", "sekisho.yaml", "mcp", "inspect", "boxed"];
        text(&sekisho(&directory).args(arguments).args(options).output().unwrap())
    };
    let allows = "`mcp.servers.boxed.allow_networks or outbound.allow_networks: [\"10.255.0.1\"]` allows it";
    let inspected: Value = serde_json::from_str(&inspect(&["--json"])).unwrap();
    let reason = format!("10.255.0.1 is not public; {allows}");
    let expected = json!([{"host": "10.255.0.1", "allowed": 0, "refused": 1, "datagrams": 0, "reason": reason}]);
    assert_eq!(inspected["connections"], expected);
    let layers: Vec<_> = inspected["layers"].as_array().unwrap().iter().map(|layer| layer.as_str().unwrap()).collect();
    assert!(layers.contains(&"seccomp") && layers.contains(&"supervised connections"), "{layers:?}");
    let shown = inspect(&[]);
    assert!(shown.contains("boxed__echo") && shown.contains("10.255.0.1") && shown.contains("seccomp"), "{shown}");
}

#[test]
fn an_observed_server_is_added_with_the_smallest_profile_that_it_needed() {
    let directory = TempDir::new().unwrap();
    let docs = file(&directory, "docs");
    fs::create_dir(&docs).unwrap();
    let script = "ls \"$1\" >&2; (exec 3<>/dev/tcp/10.255.0.1/9); exec \"$0\" moody";
    let program = ["bash", "-c", script, env!("CARGO_BIN_EXE_mcp-test-server"), &*docs];
    let add = |name: &str, call: &str| {
        let options = ["mcp", "add", name, "--env", "MOOD=fine", "--observe", "--call", call, "--"];
        sekisho(&directory).args(options).args(program).output().unwrap()
    };
    let added = add("boxed", "echo {\"a\": 1}");
    let said = text(&added);
    assert!(added.status.success(), "{said}");
    let folder = |write: bool| format!("\n    - path: \"{docs}\"   # in `args`\n      write: {write}\n");
    assert!(said.starts_with("sandbox:\n  network: none\n  home: discard\n  folders:\n"), "{said}");
    assert!(
        said.contains(&folder(false)) && said.contains("# refused: 10.255.0.1 (10.255.0.1 is not public"),
        "{said}"
    );
    let failed = add("other", "nothing");
    assert!(!failed.status.success() && text(&failed).contains("other__nothing"), "{}", text(&failed));
    assert_eq!(read(&file(&directory, "state/mcp.json"))["mcpServers"].as_object().unwrap().len(), 1);

    let profile = |name: &str| text(&sekisho(&directory).args(["mcp", "profile", name]).output().unwrap());
    let granted = profile("boxed");
    assert!(
        granted.starts_with("sandbox:\n  network: public\n  home: keep\n") && granted.contains(&folder(true)),
        "{granted}"
    );
    assert!(profile("other").contains("has no server"));
}

#[test]
fn the_check_lists_grants_and_refuses_programs_that_ask_a_service() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(file(&directory, "docs")).unwrap();
    let granted = format!("{{command: sh, args: ['{}']}}", file(&directory, "docs"));
    let servers = [("files", granted), ("box", "{command: docker, args: [run, image]}".to_owned())];
    fs::write(file(&directory, "sekisho.yaml"), yaml(&servers)).unwrap();
    let checked = sekisho(&directory).args(["--config", "sekisho.yaml", "--json", "check"]).output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
    let finding = |part: &str| findings.iter().find(|finding| finding["part"] == part).unwrap().to_string();
    assert!(finding("sandbox of mcp:files").contains("docs: writable (in `args`)"));
    assert!(finding("sandbox of mcp:box").contains("`sandbox: off`"));
}

/// A49.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_of_servers_in_the_working_directory_is_found_and_starts_no_program() {
    let (directory, upstream) = (TempDir::new().unwrap(), Upstream::start().await);
    let list = file(&directory, ".mcp_servers");
    let url = format!("{}/mcp", upstream.url);
    fs::write(&list, json!({"httpStreamableServers": {"met-data": {"url": url}}}).to_string()).unwrap();
    let variables = "MCP_ALLOWED_DOMAINS=*\nMCP_ALLOWED_DOMAINS=127.0.0.1\nSEKISHO_ALLOW_NETWORKS=127.0.0.1\n";
    fs::write(file(&directory, ".env"), variables).unwrap();
    // Beside no configuration, as in a folder that an editor has opened, it may not allow the host.
    let checked = sekisho(&directory).arg("check").output().unwrap();
    let reported = text(&checked);
    assert!(!checked.status.success() && reported.contains(".env:1:1: MCP_ALLOWED_DOMAINS cannot"), "{reported}");
    fs::write(file(&directory, "sekisho.yaml"), "limits: {max_queued: 9}\n").unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    listed(&serving.url, "met-data__whoami").await;
    drop(serving);
    fs::remove_file(file(&directory, ".env")).unwrap();
    fs::write(&list, json!({"mcpServers": {"m": entry("fine")}}).to_string()).unwrap();
    let checked = sekisho(&directory).arg("check").output().unwrap();
    let reported = text(&checked);
    assert!(!checked.status.success() && reported.contains("starts a program"), "{reported}");
    let named = sekisho(&directory).env("SEKISHO_MCP_CONFIG", &list).arg("check").output().unwrap();
    assert!(!text(&named).contains("starts a program"), "{}", text(&named));
    let headers = json!({"X-Key": "${HOME}"});
    fs::write(&list, json!({"mcpServers": {"m": {"url": url, "headers": headers}}}).to_string()).unwrap();
    let checked = sekisho(&directory).arg("check").output().unwrap();
    assert!(!checked.status.success() && text(&checked).contains("reads variables"), "{}", text(&checked));
}

/// A folder that an editor opens must not add programs.
#[test]
fn a_variable_file_in_the_working_directory_names_no_file_of_servers() {
    let directory = TempDir::new().unwrap();
    fs::write(file(&directory, "evil.json"), json!({"mcpServers": {"m": entry("fine")}}).to_string()).unwrap();
    fs::write(file(&directory, ".env"), "SEKISHO_MCP_CONFIG=evil.json\n").unwrap();
    for arguments in [&["check"][..], &["tools"], &["serve"], &["mcp", "serve"]] {
        let ran = sekisho(&directory).args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = text(&ran);
        assert!(!ran.status.success() && said.contains(".env:1:1: SEKISHO_MCP_CONFIG cannot be set"), "{said}");
    }
    let other = TempDir::new().unwrap();
    fs::write(file(&other, "sekisho.yaml"), "limits: {max_queued: 9}\n").unwrap();
    let ran = sekisho(&directory).args(["check", "--config", &file(&other, "sekisho.yaml")]).output().unwrap();
    assert!(text(&ran).contains("SEKISHO_MCP_CONFIG cannot be set"), "{}", text(&ran));
    fs::write(file(&other, ".env"), "SOMETHING=1\n").unwrap();
    let ran = sekisho(&directory).args(["check", "--config", &file(&other, "sekisho.yaml")]).output().unwrap();
    assert!(!text(&ran).contains("SEKISHO_MCP_CONFIG"), "{}", text(&ran));
}

#[test]
fn a_server_that_never_worked_is_not_reported_as_recovered_at_shutdown() {
    let directory = TempDir::new().unwrap();
    let servers = file(&directory, "mcp.json");
    fs::write(&servers, json!({"mcpServers": {"nowhere": {"command": "/nowhere/at/all"}}}).to_string()).unwrap();
    let mut serving = sekisho(&directory)
        .args(["serve", "--listen", "127.0.0.1:0", "--mcp-config", &servers])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(serving.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut awaited = vec!["mcp:nowhere", "sekisho is listening"];
    while !awaited.is_empty() {
        let line = log.next().expect("the service runs");
        awaited.retain(|wanted| !line.contains(wanted));
    }
    assert!(Command::new("kill").arg(serving.id().to_string()).status().unwrap().success());
    let rest: Vec<_> = log.collect();
    assert!(serving.wait().unwrap().success());
    assert!(!rest.iter().any(|line| line.contains("works again")), "{rest:#?}");
}
