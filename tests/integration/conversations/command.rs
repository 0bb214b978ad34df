//! `sekisho conversations`, against the gateway of the state directory.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};

const TALK: &str = "turns: [{text: [one]}, {text: [two]}]";

#[test]
fn conversations_are_run_and_kept_on_the_command_line() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("talk.yaml");
    std::fs::write(&script, TALK).unwrap();
    let yaml = format!(
        "agent: {{default_profile: talk, profiles: {{talk: {{provider: replay, model: '{}'}}}}}}",
        script.display()
    );
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let run = |arguments: &[&str]| -> Output {
        let all = [&["--config", "sekisho.yaml", "conversations"], arguments].concat();
        sekisho(&directory).args(all).output().unwrap()
    };
    let without = run(&[]);
    assert_eq!(without.status.code(), Some(5), "{}", text(&without));
    let _serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let id = text(&run(&["create", "--title", "Greetings"])).trim().to_owned();
    let said = run(&["run", &id, "Hello."]);
    assert_eq!((said.status.code(), text(&said).trim()), (Some(0), "one"));
    let shown = text(&run(&["show", &id]));
    assert!(
        shown.contains("Greetings (talk, active)")
            && shown.contains("user: Hello.")
            && shown.contains("assistant: one"),
        "{shown}"
    );
    let fork = text(&run(&["fork", &id])).trim().to_owned();
    assert_eq!(text(&run(&["run", &fork, "Again.", "--interrupt"])).trim(), "two");
    let list = text(&run(&[]));
    assert!(list.contains(&id) && list.contains(&fork) && list.contains("Greetings"), "{list}");
    let used_up = run(&["run", &fork, "Once more."]);
    assert_eq!(used_up.status.code(), Some(3), "{}", text(&used_up));
    // Another caller has none of them.
    let other = run(&["--as", "bob", "show", &id]);
    assert_eq!(other.status.code(), Some(3), "{}", text(&other));
    for id in [&id, &fork] {
        assert_eq!(run(&["delete", id]).status.code(), Some(0));
    }
    let listed: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(listed, Value::Array(Vec::new()));
}
