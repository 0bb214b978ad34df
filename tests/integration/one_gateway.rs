//! One gateway for each state directory: commands and MCP clients use the one that runs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};

/// Of an MCP server, by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

const SUM: &str = r#"{"expression": "6*7"}"#;

fn run(directory: &TempDir, arguments: &[&str]) -> Output {
    sekisho(directory).args(arguments).output().unwrap()
}

fn audit_lines(directory: &TempDir) -> usize {
    std::fs::read_to_string(directory.path().join("state/audit.jsonl")).map_or(0, |text| text.lines().count())
}

/// Repeats until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("state/gateway.sock")
}

/// What a program gets from the socket.
fn curl(socket: &Path, path: &str, options: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-s", "--max-time", "5", "--unix-socket"]).arg(socket).args(options);
    curl.arg(format!("http://localhost{path}")).output().unwrap()
}

fn status(directory: &TempDir) -> Option<Value> {
    serde_json::from_slice(&curl(&socket(directory), "/gateway", &[]).stdout).ok()
}

/// An MCP client that starts `sekisho mcp serve`.
pub(crate) struct Client {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Client {
    fn start(directory: &TempDir, arguments: &[&str]) -> Self {
        let mut command = sekisho(directory);
        command.args(["mcp", "serve"]).args(arguments);
        Self::of(command)
    }

    /// The client of this program.
    pub(crate) fn of(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(crate) fn ask(&mut self, id: u64, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"))
    }

    fn sum(&mut self, id: u64) -> Value {
        let call = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
        self.ask(id, "tools/call", call)["result"]["content"][0]["text"].clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn commands_use_the_gateway_that_runs_and_write_nothing_of_their_own() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let called = run(&directory, &["call", "calculator", SUM]);
    assert_eq!((called.status.code(), text(&called).trim()), (Some(0), "42"));
    eventually("the gateway wrote the line of the call", || audit_lines(&directory) == 1);
    // Callers: nobody by default, anybody by name.
    let write = ["call", "file_write", r#"{"path": "a", "content": "b"}"#, "--session", "s"];
    assert_eq!(run(&directory, &write).status.code(), Some(3));
    let named = ["--as", "ada", "--role", "operator", "--role", "admin"];
    assert_eq!(run(&directory, &[&write[..], &named].concat()).status.code(), Some(0));
    eventually("each call has a line", || audit_lines(&directory) == 3);
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    assert!(trail.lines().last().unwrap().contains("\"ada\""), "{trail}");
    // Over TCP the header names nobody.
    let header = ["-H", r#"x-sekisho-caller: {"user": "eve", "roles": ["admin", "operator"]}"#];
    let call = ["-H", "content-type: application/json", "-d", r#"{"arguments": {"path": "a", "content": "b"}}"#];
    let mut over_tcp = Command::new("curl");
    over_tcp.args(["-s", &format!("{}/tools/file_write/execute", serving.url)]).args(header).args(call);
    let over_tcp: Value = serde_json::from_slice(&over_tcp.output().unwrap().stdout).unwrap();
    assert_eq!(over_tcp["success"], false, "{over_tcp}");

    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(directory.path().join("state"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            // The head and the checkpoint of the trail are replaced; its keys are there after the first signature.
            .filter(|name| {
                let name = name.to_string_lossy();
                !["new", "checkpoint", "key", "pub", "id"].iter().any(|ending| name.ends_with(&format!(".{ending}")))
            })
            .collect();
        names.sort();
        names
    };
    let before = files();
    let reading: [&[&str]; 6] =
        [&["explain", "calculator", SUM], &["tools"], &["check"], &["check", "--remote"], &["lock"], &["lock", "diff"]];
    for arguments in reading {
        let ran = run(&directory, arguments);
        assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {}", text(&ran));
    }
    // `sekisho lock` has written its file: without a configuration file it is in the state directory.
    let mut with_lock = before.iter().cloned().chain(["tools.lock".into()]).collect::<Vec<_>>();
    with_lock.sort();
    assert_eq!((files(), audit_lines(&directory)), (with_lock, 4));
}

#[test]
fn commands_with_the_same_file_find_the_gateway_whose_changes_count_over_it() {
    let directory = TempDir::new().unwrap();
    let _serving = Serving::start(&directory);
    let administrator = ["-H", r#"x-sekisho-caller: {"user": "root", "roles": ["admin"]}"#];
    let post = |path: &str, body: &str| -> Value {
        let options = [&administrator[..], &["-H", "content-type: application/json", "-d", body]].concat();
        let answer = curl(&socket(&directory), path, &options);
        serde_json::from_slice(&answer.stdout).unwrap_or_else(|_| panic!("{}", text(&answer)))
    };
    let proposed = post("/admin/changes", r#"{"patch": {"limits": {"max_queued": 5}}}"#);
    let id = proposed["id"].as_str().unwrap_or_else(|| panic!("{proposed}"));
    let applied = post(&format!("/admin/changes/{id}/apply"), r#"{"opens": []}"#);
    assert_eq!(applied["state"], "applied", "{applied}");
    let called = run(&directory, &["call", "calculator", SUM]);
    assert_eq!((called.status.code(), text(&called).trim()), (Some(0), "42"));
}

#[test]
fn an_empty_list_says_how_an_entry_comes_into_it() {
    let directory = TempDir::new().unwrap();
    let _serving = Serving::start(&directory);
    for (arguments, expected) in [
        (&["keys", "list"][..], "`sekisho keys create` makes one"),
        (&["results"], "too large for a model"),
        (&["approvals"], "a call that a person must approve"),
        (&["sessions"], "`session` begins one"),
        (&["runs"], "waits for an approval"),
        (&["sign-ins"], "`sekisho sign-ins start` begins one"),
        (&["catalogue"], "`catalogue.sources` of the configuration"),
        (&["conversations", "list"], "`sekisho conversations create` begins one"),
        (&["tenants"], "`sekisho tenants add` adds one"),
    ] {
        let listed = run(&directory, arguments);
        assert_eq!(listed.status.code(), Some(0), "{arguments:?}: {}", text(&listed));
        assert!(text(&listed).contains(expected), "{arguments:?}: {}", text(&listed));
    }
}

/// A server that takes long to start delays only calls of its own tools.
#[test]
fn a_slow_server_delays_neither_an_editor_nor_calls_of_other_tools() {
    let directory = TempDir::new().unwrap();
    let added = run(&directory, &["mcp", "add", "slow", "--", "sleep", "600"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added));
    let started = Instant::now();
    let called = run(&directory, &["call", "calculator", SUM]);
    assert_eq!((called.status.code(), text(&called).trim()), (Some(0), "42"));
    let mut client = Client::start(&directory, &[]);
    let listed = client.ask(1, "tools/list", json!({}));
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{listed}");
    assert_eq!(client.sum(2), "42");
    let refused = client.ask(3, "tools/call", json!({"name": "slow__now", "arguments": {}}));
    let refused = refused["result"].to_string();
    assert!(refused.contains("the MCP server slow is still connecting"), "{refused}");
    assert!(started.elapsed() < CONNECT_TIMEOUT, "nobody waited for the server: {:?}", started.elapsed());
}

#[test]
fn commands_without_a_gateway_take_turns() {
    let directory = TempDir::new().unwrap();
    let start = || sekisho(&directory).args(["call", "calculator", SUM]).stdout(Stdio::piped()).spawn().unwrap();
    let running: Vec<_> = (0..4).map(|_| start()).collect();
    for called in running {
        let called = called.wait_with_output().unwrap();
        assert_eq!((called.status.code(), text(&called).trim()), (Some(0), "42"));
    }
    assert_eq!(audit_lines(&directory), 4);
    assert!(!socket(&directory).exists());
}

#[test]
fn editors_share_a_gateway_in_the_background_and_a_service_takes_its_place() {
    let directory = TempDir::new().unwrap();
    let mut clients = [Client::start(&directory, &[]), Client::start(&directory, &[])];
    let calls: Vec<_> = (0..4)
        .map(|_| sekisho(&directory).args(["call", "calculator", SUM]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    for client in &mut clients {
        assert_eq!(client.sum(1), "42");
    }
    for called in calls {
        assert_eq!(text(&called.wait_with_output().unwrap()).trim(), "42");
    }
    let background = status(&directory).unwrap();
    assert_eq!(background["on_demand"], true, "{background}");

    // A killed one is started again by the next command.
    let id = background["process_id"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
    let mut third = Client::start(&directory, &[]);
    assert_eq!(third.sum(1), "42");
    let another = status(&directory).unwrap();
    assert!(another["on_demand"] == true && another["process_id"] != background["process_id"], "{another}");
    // Clients of the killed one go on.
    assert_eq!(clients[0].sum(2), "42");

    let serving = Serving::start(&directory);
    assert_eq!(status(&directory).unwrap()["on_demand"], false);
    let health = Command::new("curl").args(["-s", &format!("{}/healthz", serving.url)]).output().unwrap();
    assert!(text(&health).contains("ok"));
    assert_eq!(third.sum(2), "42");
    // A second service is refused, and so is a command that asks this one to end.
    let second = run(&directory, &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(4), "{}", text(&second));
    assert!(text(&second).contains("a gateway is running: process"), "{}", text(&second));
    let stop = curl(&socket(&directory), "/gateway/stop", &["-X", "POST"]);
    assert!(text(&stop).contains("not started on demand"), "{}", text(&stop));
}

/// A client may list the tools once, as its first request.
#[test]
fn the_first_list_has_the_tools_of_mcp_servers() {
    let first_list = || {
        let directory = TempDir::new().unwrap();
        let servers = crate::mcp_servers::yaml(&[("m", crate::mcp_programs::server("fine", ""))]);
        std::fs::write(directory.path().join("sekisho.yaml"), servers).unwrap();
        Client::start(&directory, &["--config", "sekisho.yaml"]).ask(1, "tools/list", json!({}))
    };
    let has_tool = |listed: &Value| {
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().any(|tool| tool["name"] == "m__echo")
    };
    // A busy machine may start a server later than a list waits for it.
    let lists: Vec<_> = (0..3).map(|_| first_list()).collect();
    assert!(lists.iter().any(has_tool), "{lists:?}");
}

#[test]
fn a_gateway_in_the_background_ends_with_its_socket() {
    let directory = TempDir::new().unwrap();
    let mut client = Client::start(&directory, &["--as", "ada"]);
    assert_eq!(client.sum(1), "42");
    let id = status(&directory).unwrap()["process_id"].as_u64().unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["0", "0", "bytes"], "its memory has secrets");
    drop(client);
    std::fs::remove_file(socket(&directory)).unwrap();
    let ended = |process: u64| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    eventually("it ends", || ended(id));
}

#[test]
fn a_background_gateway_that_cannot_start_says_why() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("state")).unwrap();
    std::fs::write(directory.path().join("state/sekisho.db"), "no database, ".repeat(500)).unwrap();
    let refused = run(&directory, &["mcp", "serve"]);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(text(&refused).contains("gateway.log says") && text(&refused).contains("is damaged"), "{}", text(&refused));
}

#[test]
fn a_command_with_another_configuration_says_so() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("sekisho.yaml");
    std::fs::write(&file, "budget: {max_cost_per_request: 2}\n").unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    assert_eq!(run(&directory, &["--config", "sekisho.yaml", "call", "calculator", SUM]).status.code(), Some(0));
    let others = [&["call", "calculator", SUM][..], &["mcp", "serve"], &["chat", "--model", "replay:x", "hi"]];
    let start = |arguments: &[&str]| {
        sekisho(&directory).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for (arguments, refused) in others.map(|arguments| (arguments, start(arguments))) {
        let refused = refused.wait_with_output().unwrap();
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(4), "{arguments:?}: {said}");
        assert!(said.contains("Different: budget.") && said.contains("sekisho.yaml"), "{said}");
    }
    // The command waits until the gateway has read the change.
    std::fs::write(&file, "budget: {max_cost_per_request: 1}\n").unwrap();
    assert_eq!(run(&directory, &["--config", "sekisho.yaml", "call", "calculator", SUM]).status.code(), Some(0));
    drop(serving);
}

#[test]
fn a_stale_socket_is_replaced_and_a_long_path_moves() {
    let directory = TempDir::new().unwrap();
    drop(Serving::start(&directory));
    assert!(socket(&directory).exists(), "it was killed");
    assert_eq!(text(&run(&directory, &["call", "calculator", SUM])).trim(), "42");
    let serving = Serving::start(&directory);
    assert!(status(&directory).is_some());
    drop(serving);

    let (state, runtime) = (directory.path().join("x".repeat(100)), directory.path().join("run"));
    std::fs::create_dir(&runtime).unwrap();
    let at = |arguments: &[&str], runtime: Option<&Path>| {
        let mut command = sekisho(&directory);
        command.env("SEKISHO_STATE_DIRECTORY", &state).args(arguments);
        command.envs(runtime.map(|runtime| ("XDG_RUNTIME_DIR", runtime)));
        command
    };
    let serving = Serving::run(at(&[], Some(&runtime)), &[]);
    let name = std::fs::read_dir(&runtime).unwrap().next().unwrap().unwrap().file_name();
    assert!(name.to_str().unwrap().starts_with("sekisho-"), "{name:?}");
    let called = at(&["call", "calculator", SUM], Some(&runtime)).output().unwrap();
    assert_eq!(text(&called).trim(), "42");
    drop(serving);
    // Without a place for the socket there is no gateway to share, but calls work.
    assert_eq!(text(&at(&["call", "calculator", SUM], None).output().unwrap()).trim(), "42");
    let refused = at(&["mcp", "serve"], None).output().unwrap();
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused).contains("XDG_RUNTIME_DIR"), "{}", text(&refused));
}

/// As root only: another user cannot be played otherwise.
#[test]
fn another_user_gets_no_answer() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let socket = socket(&directory);
    let answered = |user: &str| {
        let mut curl = Command::new("setpriv");
        curl.args([
            "--reuid",
            user,
            "--regid",
            user,
            "--clear-groups",
            "curl",
            "-s",
            "--max-time",
            "5",
            "--unix-socket",
        ]);
        curl.arg(&socket).arg("http://localhost/healthz").output().unwrap()
    };
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    assert!(text(&answered("0")).contains("ok"));
    // The folders and the file are open by mistake: the user is checked all the same.
    for path in [directory.path(), socket.parent().unwrap(), &socket] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let refused = answered("65534");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", text(&refused));
    drop(serving);
}
