//! `examples/code-mode`: one program over an API, an MCP server and a built-in tool, and `examples/propose`: one that proposes its
//! effects, as docs/code-mode.md shows them.

use std::net::TcpListener;
use std::process::Command;

use tempfile::TempDir;

use super::ALONE;
use crate::checkout::checkout;
use crate::cli::{Serving, cache, text};

const PAGE: &str = include_str!("../../../docs/code-mode.md");
const PROGRAM: &str = include_str!("../../../examples/code-mode/program.py");
const PROPOSES: &str = include_str!("../../../examples/propose/program.py");

/// Runs the example of a folder as the page says, but with free ports. `None` without python3.
#[expect(clippy::print_stderr, reason = "it says what to install")]
fn run_example(folder: &str) -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("not run: python3 is missing. Install it with: sudo apt-get install python3");
        return None;
    }
    let state = TempDir::new().unwrap();
    // Free again once it is known.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    program.env_clear().env("SEKISHO_STATE_DIRECTORY", state.path().join("state")).envs(cache());
    program.env("PATH", path).env("SHOP_PORT", &port).current_dir(checkout());
    let serving = Serving::run(program, &["--config", &format!("examples/{folder}/sekisho.yaml")]);
    let mut run = Command::new("python3");
    run.args(["-B", &format!("examples/{folder}/run.py"), &serving.url, &port]).current_dir(checkout());
    let run = run.output().unwrap();
    assert!(run.status.success(), "{}", text(&run));
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_program_makes_the_thirty_calls_of_the_example() {
    assert!(PAGE.contains(PROGRAM.trim()), "the page shows the program");
    for command in ["sekisho serve --config examples/code-mode/sekisho.yaml", "python3 examples/code-mode/run.py"] {
        assert!(PAGE.contains(command), "{command}");
    }
    let _alone = ALONE.lock().await;
    let run = tokio::task::spawn_blocking(|| run_example("code-mode"));
    let Some(printed) = run.await.unwrap() else { return };
    let calls: Vec<_> = printed.lines().filter(|line| line.starts_with(['├', '└'])).collect();
    let count = |tool: &str| calls.iter().filter(|line| line.contains(tool) && line.contains(" ok ")).count();
    let counts = ["shop__list_orders", "shop__get_order", "rates__rate", "calculator"].map(count);
    assert_eq!((calls.len(), counts), (30, [3, 9, 9, 9]), "{printed}");
    // In both ways the totals are the same, or the script fails. A model reads less than a tenth.
    let read = |row: &str| -> f64 {
        let line = printed.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{printed}"));
        let words: Vec<_> = line[row.len()..].split_whitespace().collect();
        assert_eq!((words.len(), words[4]), (7, "B"), "{line}");
        words[3].parse().unwrap()
    };
    assert!(read("one program") * 10.0 < read("one after the other"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_approval_is_for_all_effects_of_the_example() {
    assert!(PAGE.contains(PROPOSES.trim()), "the page shows the program");
    for command in ["sekisho serve --config examples/propose/sekisho.yaml", "python3 examples/propose/run.py"] {
        assert!(PAGE.contains(command), "{command}");
    }
    let _alone = ALONE.lock().await;
    let run = tokio::task::spawn_blocking(|| run_example("propose"));
    let Some(printed) = run.await.unwrap() else { return };
    assert!(printed.contains("asked, and 0 calls have reached"), "{printed}");
    let made: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("made: ")).collect();
    let expected = [
        r#"POST /orders {"article": "tea", "quantity": 2, "price": 3.5}"#,
        r#"POST /payments {"order": 1, "note": "for order 1"}"#,
    ];
    let parts = |line: &str| {
        let (request, body) = line.split_at(line.find('{').unwrap());
        (request.to_owned(), serde_json::from_str::<serde_json::Value>(body).unwrap())
    };
    assert_eq!(made.into_iter().map(parts).collect::<Vec<_>>(), expected.map(parts), "{printed}");
}
