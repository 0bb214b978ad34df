//! Third-party clients and model servers with the agents. Ignored by default: `scripts/compat`
//! installs what they need and names the folder in the variable CLIENTS.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};
use crate::approvals;
use crate::checkout::checkout;

const CLICKER: &str = r#"
turns:
  - calls: [{id: theirs, tool: click, arguments: '{}'}]
  - text: ["Clicked."]
"#;

/// Gives its answer to a function of the client's, as pydantic-ai asks for.
const FINAL: &str = r#"
turns:
  - calls: [{id: theirs, tool: final_result, arguments: '{"fahrenheit": 70.7}'}]
"#;

const TYPED: &str = r#"turns: [{text: ['{"fahrenheit": 70.7}']}]"#;

fn clients() -> PathBuf {
    std::env::var("CLIENTS").expect("CLIENTS names the folder with node_modules and python").into()
}

/// Runs a client of `tests/clients` against a gateway, for a minute at most.
async fn client(program: &str, script: &str) {
    let app = with_scripts(&[("clicker", CLICKER), ("final", FINAL), ("typed", TYPED)]).await;
    let mut command = Command::new("timeout");
    command.args(["60", program, &format!("{}/tests/clients/{script}", checkout().display())]);
    command.env("BASE_URL", format!("{}/v1", app.url)).env("CLIENTS", clients());
    succeeds(command).await;
}

/// A program's output; it must succeed.
async fn succeeds(mut command: Command) -> String {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let reported = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", reported(&output.stdout), reported(&output.stderr));
    reported(&output.stdout)
}

fn python() -> String {
    clients().join("python/bin/python").to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the package openai for Python, in the folder named by the variable CLIENTS"]
async fn clients_openai_for_python() {
    client(&python(), "openai_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the package openai for Node, in the folder named by the variable CLIENTS"]
async fn clients_openai_for_javascript() {
    client("node", "openai_client.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the package openai for Python, in the folder named by the variable CLIENTS"]
async fn clients_openai_for_python_with_responses() {
    client(&python(), "openai_responses_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs openai-agents, in the folder named by the variable CLIENTS"]
async fn clients_openai_agents() {
    client(&python(), "openai_agents_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the package anthropic for Python, in the folder named by the variable CLIENTS"]
async fn clients_anthropic_for_python() {
    client(&python(), "anthropic_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the packages openai and anthropic for Python, in the folder named by the variable CLIENTS"]
async fn clients_of_runs_that_pause() {
    let app = approvals::runs::agent().await;
    let mut command = Command::new("timeout");
    command.args(["60", &python()]).arg(checkout().join("tests/clients/paused_run_client.py"));
    command.env("GATEWAY", &app.url);
    succeeds(command).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pydantic-ai, in the folder named by the variable CLIENTS"]
async fn clients_pydantic_ai() {
    client(&python(), "pydantic_ai_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the packages ai and @ai-sdk/openai for Node, in the folder named by the variable CLIENTS"]
async fn clients_ai_sdk() {
    client("node", "ai_sdk_client.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs langchain-openai, in the folder named by the variable CLIENTS"]
async fn clients_langchain() {
    client(&python(), "langchain_client.py").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs llm, in the folder named by the variable CLIENTS"]
async fn clients_llm_on_the_command_line() {
    let app = with_scripts(&[]).await;
    let home = tempfile::TempDir::new().unwrap();
    let models = format!("- model_id: weather\n  model_name: weather\n  api_base: {}/v1\n", app.url);
    std::fs::write(home.path().join("extra-openai-models.yaml"), models).unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").arg(clients().join("python/bin/llm")).args(["-m", "weather", "Is 21.5 °C warm?"]);
    command.env("LLM_USER_PATH", home.path()).env("OPENAI_API_KEY", "none");
    let reported = succeeds(command).await;
    assert!(reported.trim_end().ends_with("70.7 °F."), "{reported}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs llm, in the folder named by the variable CLIENTS"]
async fn clients_llm_with_a_schema() {
    let app = with_scripts(&[("typed", TYPED)]).await;
    let home = tempfile::TempDir::new().unwrap();
    let models =
        format!("- model_id: typed\n  model_name: typed\n  api_base: {}/v1\n  supports_schema: true\n", app.url);
    std::fs::write(home.path().join("extra-openai-models.yaml"), models).unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").arg(clients().join("python/bin/llm"));
    command.args(["-m", "typed", "--schema", "fahrenheit float", "Is 21.5 °C warm?"]);
    command.env("LLM_USER_PATH", home.path()).env("OPENAI_API_KEY", "none");
    let answer: serde_json::Value = serde_json::from_str(&succeeds(command).await).unwrap();
    assert_eq!(answer, json!({"fahrenheit": 70.7}));
}

/// Edits a file by an answer in its own form. Its prompt has turns of the assistant as examples, which a script counts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs aider-chat, in the folder named by the variable CLIENTS"]
async fn clients_aider() {
    let edit = r#"{text: ["Here it is.\n\nhello.py\n```\nprint(\"hello\")\n```\n"]}"#;
    let app = with_scripts(&[("editor", &format!("turns: [{}]", [edit; 9].join(", ")))]).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("hello.py");
    std::fs::write(&file, "print('bye')\n").unwrap();
    let mut command = Command::new("timeout");
    command.arg("100").arg(clients().join("aider/bin/aider")).args(["--model", "openai/editor"]);
    command.args(["--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--analytics-disable"]);
    command.args(["--message", "Print hello instead.", "hello.py"]).current_dir(folder.path()).stdin(Stdio::null());
    command.env("HOME", folder.path()).env("OPENAI_API_BASE", format!("{}/v1", app.url)).env("OPENAI_API_KEY", "none");
    let reported = succeeds(command).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "print(\"hello\")\n", "{reported}");
}

/// Runs a tool of its own, in a turn with one of the gateway's, and one in a namespace is offered.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs @openai/codex, in the folder named by the variable CLIENTS"]
async fn clients_codex() {
    let script = r#"
turns:
  - text: ["I calculate it."]
    calls:
      - {id: own, tool: calculator, arguments: '{"expression": "6*7"}'}
      - {id: theirs, tool: exec_command, arguments: '{"cmd": "echo 42 > answer.txt"}'}
  - text: ["It is 42."]
"#;
    let app = with_scripts(&[("coder", script)]).await;
    let folder = tempfile::TempDir::new().unwrap();
    let provider =
        format!("{{name='sekisho', base_url='{}/v1', wire_api='responses', env_key='SEKISHO_API_KEY'}}", app.url);
    let mut command = Command::new("timeout");
    command.arg("100").arg(clients().join("node_modules/.bin/codex")).args(["exec", "--skip-git-repo-check"]);
    command.args(["-s", "danger-full-access", "-c", "web_search=disabled", "-c", "model_provider=sekisho"]);
    command.args(["-c", &format!("model_providers.sekisho={provider}"), "-m", "coder", "What is six times seven?"]);
    command.current_dir(folder.path()).stdin(Stdio::null());
    command.env("CODEX_HOME", folder.path()).env("SEKISHO_API_KEY", "none");
    let reported = succeeds(command).await;
    assert!(reported.contains("It is 42."), "{reported}");
    assert_eq!(std::fs::read_to_string(folder.path().join("answer.txt")).unwrap(), "42\n", "{reported}");
}

/// The model server, ended when dropped.
struct ModelServer {
    child: Child,
    port: u16,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _waited = self.child.wait();
    }
}

impl ModelServer {
    async fn start(directory: &std::path::Path) -> Self {
        let fixtures = directory.join("fixtures.json");
        let failure = |message: &str, kind: &str, status: u16| json!({"match": {"userMessage": message}, "response": {"error": {"message": kind, "type": kind}, "status": status}});
        let calls = json!([{"id": "call_1", "name": "calculator", "arguments": "{\"expression\": \"6*7\"}"}]);
        let reported = json!({"content": "This answer is never told to its very end."});
        let fixtures_json = json!({"fixtures": [
            {"match": {"toolCallId": "call_1"}, "response": {"content": "It is 42."}, "chunkSize": 4, "latency": 20},
            {"match": {"userMessage": "six times seven"}, "response": {"toolCalls": calls}, "chunkSize": 3},
            failure("overloaded", "overloaded_error", 529),
            failure("broken", "server_error", 500),
            failure("limited", "rate_limit_error", 429),
            {"match": {"userMessage": "malformed"}, "response": reported, "chaos": {"malformedRate": 1}},
            {"match": {"userMessage": "hang up"}, "response": reported, "chaos": {"disconnectRate": 1}},
            {"match": {"userMessage": "in the middle"}, "response": reported, "chunkSize": 5, "latency": 100, "disconnectAfterMs": 350},
        ]});
        std::fs::write(&fixtures, fixtures_json.to_string()).unwrap();
        Self::with(&["-f", &fixtures.to_string_lossy()]).await
    }

    async fn with(arguments: &[&str]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut node = Command::new("node");
        node.arg(clients().join("node_modules/@copilotkit/aimock/dist/cli.js"));
        node.args(["-p", &port.to_string()]).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: node.spawn().unwrap(), port };
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the model server does not listen");
    }
}

/// The protocols as a third-party server implements them, including its errors.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs @copilotkit/aimock, in the folder named by the variable CLIENTS"]
async fn clients_of_model_servers() {
    let directory = tempfile::TempDir::new().unwrap();
    let server = ModelServer::start(directory.path()).await;
    let profile = |provider: &str, path: &str| {
        format!(
            "{{provider: {provider}, model: m, base_url: 'http://127.0.0.1:{}{path}', api_key: k, retries: 0}}",
            server.port
        )
    };
    let yaml = format!(
        "agent:\n  profiles:\n    openai: {}\n    anthropic: {}\n    bedrock: {}\n",
        profile("openai", "/v1"),
        profile("anthropic", "/v1"),
        profile("bedrock", ""),
    );
    let app = TestApp::with(&yaml).await;
    let ask = async |model: &str, message: &str| {
        answer(app.post("/api/chat").json(&json!({"model": model, "message": message}))).await
    };
    for model in ["openai", "anthropic", "bedrock"] {
        let (status, reply) = ask(model, "What is six times seven?").await;
        assert_eq!((status.as_u16(), &reply["reply"]), (200, &json!("It is 42.")), "{model}: {reply}");
        assert_eq!(reply["tool_calls"][0]["text"], "42", "{model}: {reply}");
        for failing in ["broken", "limited", "malformed", "hang up", "in the middle"] {
            let (status, reply) = ask(model, failing).await;
            assert_eq!((status.as_u16(), code(&reply)), (502, "upstream_error"), "{model}, {failing}: {reply}");
            let reported = reply["output"].as_str().unwrap_or_default();
            assert_eq!(reported.starts_with("This"), failing == "in the middle", "{model}, {failing}: {reply}");
        }
    }
    let (status, reply) = ask("anthropic", "overloaded").await;
    assert_eq!((status.as_u16(), code(&reply)), (503, "overloaded"), "{reply}");
}

/// A conversation with a tool, first from a script through a server that records it, then from the recording.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs @copilotkit/aimock, in the folder named by the variable CLIENTS"]
async fn clients_record_and_replay() {
    let directory = tempfile::TempDir::new().unwrap();
    let (fixtures, recorded) = (directory.path().join("fixtures"), directory.path().join("fixtures/recorded"));
    std::fs::create_dir(&fixtures).unwrap();
    let ask = async |server: &ModelServer| {
        let profile = format!(
            "{{provider: openai, model: weather, base_url: 'http://127.0.0.1:{}/v1', api_key: k, retries: 0}}",
            server.port
        );
        let app = TestApp::with(&format!("agent: {{profiles: {{recorded: {profile}}}}}")).await;
        let body = json!({"model": "recorded", "message": "Is 21.5 °C warm?"});
        let (status, mut reply) = answer(app.post("/api/chat").json(&body)).await;
        assert_eq!(status, 200, "{reply}");
        let reported = ["reply", "tool_calls"].map(|field| reply[field].take());
        assert_eq!(reported[1][0]["text"], "70.7", "our own tool ran: {reported:?}");
        reported
    };
    // The tools that we send are the client's to it, so that the script's call comes back to us.
    let source = with_scripts(&[]).await;
    let recording =
        ModelServer::with(&["-f", &fixtures.to_string_lossy(), "--record", "--provider-openai", &source.url]).await;
    let reported = ask(&recording).await;
    drop(recording);
    source.stop().await;
    assert_eq!(std::fs::read_dir(&recorded).unwrap().count(), 2, "a file for each turn");
    let playing = ModelServer::with(&["-f", &recorded.to_string_lossy()]).await;
    assert_eq!(ask(&playing).await, reported);
}
