//! `sekisho runs branch`, `sekisho runs save` and `sekisho eval`: a stored run is asked again, with the answers of its tools.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};
use crate::model_server::ModelServer;

const WEATHER: &str = include_str!("../../config/examples/weather.yaml");

/// The same calls, and another answer.
const HASTY: &str = "turns: [{text: [It is warm.]}]";

fn configured() -> TempDir {
    let directory = TempDir::new().unwrap();
    let mut yaml = "agent:\n  default_profile: weather\n  profiles:\n".to_owned();
    for (name, script) in [("weather", WEATHER), ("hasty", HASTY)] {
        let file = directory.path().join(format!("{name}.script"));
        std::fs::write(&file, script).unwrap();
        yaml += &format!("    {name}: {{provider: replay, model: '{}'}}\n", file.display());
    }
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    directory
}

fn run(directory: &TempDir, arguments: &[&str]) -> Output {
    sekisho(directory).args(["--config", "sekisho.yaml"]).args(arguments).output().unwrap()
}

/// Saves the run of a question about the weather as `case.yaml`, and its branch's as `branch.yaml`; returns the conversation of that.
fn saved(directory: &TempDir) -> String {
    let _serving = Serving::start_with(directory, &["--config", "sekisho.yaml"]);
    let id = text(&run(directory, &["conversations", "create"])).trim().to_owned();
    let reply = run(directory, &["--json", "conversations", "run", &id, "Is 21.5 °C warm?"]);
    let reply: Value = serde_json::from_slice(&reply.stdout).unwrap();
    let run_id = reply["run_id"].as_str().unwrap();
    let saved = run(directory, &["runs", "save", run_id, "--as", "case.yaml"]);
    assert_eq!(saved.status.code(), Some(0), "{}", text(&saved));
    let again = run(directory, &["runs", "save", run_id, "--as", "case.yaml"]);
    assert!(again.status.code() == Some(1) && text(&again).contains("name a new file"), "{}", text(&again));
    std::fs::write(directory.path().join("prompt.md"), "Be brief.").unwrap();
    let branch = ["runs", "branch", run_id, "--profile", "hasty", "--prompt", "prompt.md", "--title", "Again"];
    let branched = run(directory, &branch);
    assert_eq!(branched.status.code(), Some(0), "{}", text(&branched));
    let branch = text(&branched).trim().to_owned();
    let shown = run(directory, &["--json", "conversations", "show", &branch]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["agent"], &shown["title"], &shown["branch"]["run_id"]),
        (&json!("hasty"), &json!("Again"), &json!(run_id))
    );
    assert_eq!(shown["branch"]["prompt"]["replace"], "Be brief.");
    branch
}

fn scored(directory: &TempDir, arguments: &[&str], code: i32) -> Value {
    let output = run(directory, &[&["--json", "eval"], arguments].concat());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Adds to the expectations of a case.
fn expect(file: &Path, name: &str, value: &Value) {
    let mut case: Value = yaml_serde::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    case["case"]["expect"][name] = value.clone();
    std::fs::write(file, case.to_string()).unwrap();
}

#[test]
fn a_stored_run_is_a_case_that_profiles_are_scored_by() {
    let directory = configured();
    saved(&directory);
    let file = directory.path().join("case.yaml");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("name: calculator") && written.contains("21.5 * 9 / 5 + 32"), "{written}");
    // Its own script, and no gateway.
    let recorded = scored(&directory, &["case.yaml"], 0);
    assert_eq!(recorded["profiles"][0]["profile"], "recorded", "{recorded}");
    assert_eq!((&recorded["profiles"][0]["checks"], &recorded["profiles"][0]["passed_checks"]), (&json!(2), &json!(2)));
    let script = format!("replay:{}", file.display());
    let chatted = run(&directory, &["chat", "--model", &script, "Is 21.5 °C warm?"]);
    assert!(chatted.status.success() && text(&chatted).contains("70.7 °F"), "{}", text(&chatted));
    expect(&file, "text_contains", &json!(["70.7"]));
    expect(&file, "judge", &json!("Does it say that it is warm?"));
    let profiles = ["case.yaml", "--profile", "weather", "--profile", "hasty", "--jobs", "2"];
    let both = scored(&directory, &[&profiles[..], &["--junit", "results.xml"]].concat(), 1);
    let passed = |profile: usize| both["profiles"][profile]["passed_checks"].as_u64().unwrap();
    assert_eq!((passed(0), passed(1)), (3, 0), "{both}");
    assert_eq!(
        (&both["profiles"][0]["usage"]["turns"], &both["profiles"][1]["usage"]["turns"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(both["profiles"][0]["usage"]["prompt_tokens"], 290);
    let xml = std::fs::read_to_string(directory.path().join("results.xml")).unwrap();
    assert_eq!(xml.matches("<testsuite name=").count(), 2, "{xml}");
    assert_eq!(xml.matches("<failure type=").count(), 2, "{xml}");
    let table = text(&run(&directory, &["eval", "case.yaml", "--profile", "weather", "--profile", "hasty"]));
    for part in ["3/3", "0/2", "expected calls: calculator; made: none", "1 of 1 cases passed"] {
        assert!(table.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "no {part} in {table}");
    }
    std::fs::write(directory.path().join("yes.script"), "turns: [{text: ['Yes.']}]").unwrap();
    let judged = scored(&directory, &["case.yaml", "--judge", "replay:yes.script"], 0);
    assert_eq!(judged["profiles"][0]["passed_checks"], 4, "{judged}");
}

/// The model calls the tool with an argument for which the file has an answer that the tool itself would never give.
#[tokio::test]
async fn the_tools_of_a_case_answer_from_its_file() {
    let model = ModelServer::start().await;
    let directory = TempDir::new().unwrap();
    let yaml = format!(
        "outbound: {{allow_networks: [127.0.0.0/8]}}\nagent: {{default_profile: main, profiles: {{main: {{{}}}}}}}",
        model.profile
    );
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let parameters = json!({"type": "object", "properties": {"expression": {"type": "string"}}});
    let case = json!({"case": {
        "input": "talk-a: call calculator {\"expression\": \"1+1\"}",
        "tools": [{"name": "calculator", "description": "Calculates.", "parameters": parameters}],
        "answers": [{"tool": "calculator", "arguments": {"expression": "1+1"}, "text": "eleven"}],
        "expect": {"calls": [{"tool": "calculator", "arguments": {"expression": "1+1"}}]},
    }});
    std::fs::write(directory.path().join("case.yaml"), case.to_string()).unwrap();
    let evaluated = tokio::task::spawn_blocking(move || {
        let mut command = sekisho(&directory);
        let output = command.args(["--config", "sekisho.yaml", "eval", "case.yaml", "--profile", "main"]);
        (output.output().unwrap(), directory)
    });
    let (output, _directory) = evaluated.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let requests = model.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[1]["messages"].to_string().contains("eleven"), "{requests:?}");
    let offered = requests[0]["tools"].as_array().unwrap();
    assert_eq!((offered.len(), &offered[0]["name"]), (1, &json!("calculator")));
}
