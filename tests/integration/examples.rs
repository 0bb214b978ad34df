//! The files in `examples/` work as they are.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::checkout::checkout;
use crate::cli::{Serving, cache, text};

#[path = "../../examples/embed.rs"]
#[expect(dead_code, reason = "the test takes the place of its `main`")]
mod embed;

const KEY: &str = "key-of-the-test";

fn folder(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(checkout().join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs sekisho in the project's root, with a state directory of its own.
fn sekisho(arguments: &[&str]) -> Output {
    let state = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    command.env_clear().env("SEKISHO_STATE_DIRECTORY", state.path().join("state")).current_dir(checkout());
    command.envs(cache()).args(arguments).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_gateway_in_another_program_runs_its_tools() {
    let directory = TempDir::new().unwrap();
    let reply = embed::count_words(&directory.path().join("state"), "the quick brown fox").await.unwrap();
    assert_eq!((&reply["success"], &reply["output"]), (&true.into(), &json!({"words": 4})), "{reply}");
    assert!(reply["receipt"]["call_id"].is_string(), "{reply}");
    let refused = embed::count_words(&directory.path().join("state"), "").await.unwrap();
    assert_eq!(refused["error_info"]["code"], "invalid_arguments", "{refused}");
}

#[test]
fn the_agent_has_its_sub_agent_calculate() {
    let answered = sekisho(&["chat", "--config", "examples/agents/sekisho.yaml", "How warm is 21.5 °C?"]);
    let printed = text(&answered);
    assert!(answered.status.success() && printed.contains("70.7 °F"), "{printed}");
    let checked = sekisho(&["check", "--config", "examples/agents/sekisho.yaml"]);
    let printed = text(&checked);
    assert!(checked.status.success() && printed.contains("skills release-notes; sub-agents calculator"), "{printed}");
}

#[test]
fn two_agents_are_scored_by_the_cases() {
    let eval = ["eval", "--config", "examples/eval/sekisho.yaml"];
    let recorded = sekisho(&[&eval[..], &["examples/eval/cases"]].concat());
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded));
    let both = ["examples/eval/cases/refund.yaml", "--profile", "careful", "--profile", "hasty"];
    let compared = sekisho(&[&eval[..], &both].concat());
    let printed = text(&compared).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(compared.status.code(), Some(1), "{printed}");
    for part in ["4/4", "1 of 1 cases passed", "0/3", "0 of 1 cases passed", "made: orders__refundOrder"] {
        assert!(printed.contains(part), "no {part} in {printed}");
    }
}

/// What each collection offers, with the operations that need a role.
const COLLECTIONS: [(&str, &[&str], &[&str]); 3] = [
    ("insight", &["insight__query"], &[]),
    ("orders", &["orders__listOrders", "orders__refundOrder"], &["orders__refundOrder"]),
    (
        "petstore",
        &[
            "petstore__addPet",
            "petstore__deletePet",
            "petstore__get",
            "petstore__search",
            "petstore__updatePet",
            "petstore__updatePetWithForm",
        ],
        &["petstore__deletePet", "petstore__updatePet"],
    ),
];

#[test]
fn the_collections_offer_the_documented_tools() {
    let mut seen = 0;
    for (name, offered, dangerous) in COLLECTIONS {
        let config = format!("examples/openapi/{name}.yaml");
        let checked = sekisho(&["check", "--config", &config]);
        let printed = text(&checked);
        // The examples have no lock.
        let has_warning =
            printed.lines().any(|line| line.contains("WARNING") && !line.contains("tools are not pinned"));
        assert!(checked.status.success() && !has_warning, "{printed}");
        let tools = json_of(&sekisho(&["--json", "tools", "--config", &config]));
        let tools: Vec<_> =
            tools.as_array().unwrap().iter().filter(|tool| tool["source"] == format!("openapi:{name}")).collect();
        let mut names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, offered, "{name}");
        let mut closed: Vec<_> =
            tools.iter().filter(|tool| tool["dangerous"] == true).map(|tool| tool["name"].as_str().unwrap()).collect();
        closed.sort_unstable();
        assert_eq!(closed, dangerous, "{name}");
        seen += 1;
    }
    let files = folder("examples/openapi").into_iter().filter(|file| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.matches('.').count() == 1
    });
    assert_eq!(files.count(), seen, "a collection that no test looks at");
}

#[test]
fn a_refund_needs_both_of_its_roles() {
    let arguments = r#"{"id": "20260101", "reason": "broken"}"#;
    let explain = |roles: &[&str]| {
        let asked =
            ["explain", "orders__refundOrder", arguments, "--as", "ann", "--config", "examples/openapi/orders.yaml"];
        let roles = roles.iter().flat_map(|role| ["--role", *role]);
        sekisho(&asked.into_iter().chain(roles).collect::<Vec<_>>()).status.code()
    };
    assert_eq!(explain(&[]), Some(3));
    assert_eq!(explain(&["support"]), Some(3), "it is dangerous");
    assert_eq!(explain(&["finance"]), Some(0));
}

#[test]
fn the_policies_pass_their_cases() {
    let checked = json_of(&sekisho(&["--json", "check", "--config", "examples/policies/sekisho.yaml"]));
    let says = |part: &str| {
        checked.as_array().unwrap().iter().find(|finding| finding["part"] == part).unwrap()["says"].clone()
    };
    let cases = std::fs::read_to_string(checkout().join("examples/policies/cases/tools.yaml")).unwrap();
    let count = cases.lines().filter(|line| line.starts_with("- name:")).count();
    assert!(count >= 10, "{count}");
    assert_eq!(says("policy cases"), format!("{count} pass"));
    // Each rule denies in a case.
    let rules = std::fs::read_to_string(checkout().join("examples/policies/tools.rego")).unwrap();
    for reason in rules.lines().filter_map(|line| line.strip_prefix("deny contains \"")?.split('"').next()) {
        assert!(cases.contains(reason), "no case for: {reason}");
    }
}

/// README starts a gateway, connects an editor, and shows a refusal with its rule.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_minute_is_as_the_readme_shows_it() {
    const README: &str = include_str!("../../README.md");
    const CONFIG: &str = "examples/first-rule/sekisho.yaml";
    let block = |language: &str| {
        let (_, rest) = README.split_once(&format!("```{language}\n")).unwrap();
        rest.split("```").next().unwrap()
    };
    assert!(block("sh").contains(CONFIG), "another example is started");
    let directory = TempDir::new().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    program.env_clear().env("SEKISHO_STATE_DIRECTORY", directory.path().join("state")).envs(cache());
    program.current_dir(checkout());
    let serving = Serving::run(program, &["--config", CONFIG]);
    let here = |text: &str| text.replace("http://localhost:8080", &serving.url);

    let editor: Value = serde_json::from_str(&here(block("json"))).unwrap();
    let url = editor["mcpServers"]["sekisho"]["url"].as_str().unwrap();
    let answer = over_http(url, &json!({})).await;
    assert_eq!(answer["result"]["serverInfo"]["name"], "sekisho", "{answer}");

    let (command, printed) = block("console").strip_prefix("$ ").unwrap().split_once('\n').unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_sekisho")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &here(command)]).env_clear().env("PATH", path).current_dir(directory.path());
    let refused = shell.output().unwrap();
    assert_eq!((refused.status.code(), &*text(&refused)), (Some(3), printed));

    let rules = std::fs::read_to_string(checkout().join("examples/first-rule/tools.rego")).unwrap();
    assert!(rules.contains(block("rego")), "README shows another rule");
    let cases = json_of(&sekisho(&["--json", "check", "--config", CONFIG]));
    let cases = cases.as_array().unwrap().iter().find(|finding| finding["part"] == "policy cases").unwrap();
    assert_eq!(cases["says"], "4 pass");
}

/// Those of other programs (docker, helm, systemctl) cannot run here; `deploy.rs` checks the files they name.
#[test]
fn the_commands_that_the_pages_show_run() {
    let pages = [include_str!("../../docs/deployment.md"), include_str!("../../examples/README.md")];
    let blocks =
        pages.iter().flat_map(|page| page.split("```sh\n").skip(1)).map(|rest| rest.split("```").next().unwrap());
    let mut run = 0;
    for line in blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("sekisho ")) {
        let output = sekisho(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "sekisho {line}: {}", text(&output));
        run += 1;
    }
    assert!(run >= 4, "only {run} commands were found");
}

/// The first message of an MCP client.
fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

/// A gateway with one key, which a client must send.
fn gateway(directory: &TempDir) -> Serving {
    let config = directory.path().join("sekisho.yaml");
    std::fs::write(&config, format!("auth: {{anonymous: never, api_keys: [{{id: ann, key: {KEY}}}]}}")).unwrap();
    Serving::start_with(directory, &["--config", config.to_str().unwrap()])
}

/// A file with what a client fills in: the key, and where the gateway of the test listens.
fn filled_in(file: &Path, url: &str) -> Value {
    let mut text = std::fs::read_to_string(file).unwrap();
    for placeholder in ["${env:SEKISHO_API_KEY}", "${input:sekisho-key}", "your key"] {
        text = text.replace(placeholder, KEY);
    }
    serde_json::from_str(&text.replace("http://localhost:8080", url)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_clients_reach_the_gateway_as_they_are_configured() {
    let directory = TempDir::new().unwrap();
    let gateway = gateway(&directory);
    let files = folder("examples/mcp-clients");
    assert_eq!(files.len(), 4);
    for file in files {
        let document = filled_in(&file, &gateway.url);
        let servers = document.get("mcpServers").or(document.get("servers")).unwrap();
        let server = &servers["sekisho"];
        let answer = match server["url"].as_str() {
            Some(url) => over_http(url, &server["headers"]).await,
            None => over_stdio(server),
        };
        assert_eq!(answer["result"]["serverInfo"]["name"], "sekisho", "{}: {answer}", file.display());
    }
}

async fn over_http(url: &str, headers: &Value) -> Value {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(url).header("accept", "application/json, text/event-stream").json(&initialize());
    for (name, value) in headers.as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    let text = request.send().await.unwrap().text().await.unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("data: ").filter(|data| data.starts_with('{')));
    serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"))
}

fn over_stdio(server: &Value) -> Value {
    assert_eq!(server["command"], "sekisho");
    let directory = TempDir::new().unwrap();
    let arguments = server["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let mut command = crate::cli::sekisho(&directory);
    for (name, value) in server["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", initialize()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // It ends with its input.
    drop(input);
    child.wait().unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("{server}: {line}"))
}

#[test]
fn a_conversation_with_a_scripted_agent_needs_no_key() {
    let state = TempDir::new().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    program.env_clear().env("SEKISHO_STATE_DIRECTORY", state.path().join("state")).envs(cache());
    program.current_dir(checkout());
    let serving = Serving::run(program, &["--config", "examples/conversations/sekisho.yaml"]);
    let talk = checkout().join("examples/conversations/talk.sh");
    let shown = Command::new("sh").arg(talk).arg(&serving.url).output().unwrap();
    let printed = text(&shown);
    assert!(shown.status.success(), "{printed}");
    for part in ["event: tool_use", "which is 70.7 °F.", "event: result", "\"messages\":", "input_tokens"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}
