//! `sekisho chat` as a person sees it: on a terminal, which the program `script` plays.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};

const SCRIPT: &str = r#"
turns:
  - text: ["Let me see."]
    calls: [{id: a, tool: calculator, arguments: '{"expression": "6*7"}'}]
    usage: {prompt_tokens: 100, completion_tokens: 10}
  - text: ["It is \u001b[31m42."]
  - text: ["As I said: 42."]
  - text: ["never told"]
    delay_seconds: 60
"#;

/// A program on a terminal of its own; killed when dropped.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(directory: &TempDir, arguments: &str) -> Self {
        // In place of the shell: it would take a ctrl-C for its own.
        Self::start_with(directory, "", arguments)
    }

    /// With settings of environment variables, as a shell takes them.
    fn start_with(directory: &TempDir, environment: &str, arguments: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_sekisho");
        let line = format!("stty cols 120 rows 40; {environment} exec {program} {arguments}");
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("SEKISHO_STATE_DIRECTORY", directory.path().join("state"))
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = out.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, seen: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen has shown something since it was last read.
    fn expect(&mut self, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.seen.contains(wanted) {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{wanted:?} was not shown: {}", self.seen),
            }
        }
        let after = self.seen.find(wanted).unwrap() + wanted.len();
        self.seen.drain(..after);
    }

    fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it goes on: {}", self.seen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// It would hold its port and its state directory, and nobody would see it.
#[test]
fn a_gateway_ends_with_the_terminal_in_which_it_was_started() {
    let directory = TempDir::new().unwrap();
    let mut terminal = Terminal::start(&directory, "serve --listen 127.0.0.1:0");
    terminal.expect("sekisho call calculator");
    let socket = directory.path().join("state/gateway.sock");
    assert!(UnixStream::connect(&socket).is_ok());
    drop(terminal);
    let until = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(&socket).is_ok() {
        assert!(Instant::now() < until, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn scripted() -> TempDir {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("s.yaml"), SCRIPT).unwrap();
    directory
}

#[test]
fn a_conversation_goes_on_until_quit() {
    let directory = scripted();
    let mut terminal = Terminal::start(&directory, "chat --model replay:s.yaml");
    terminal.expect("›");
    terminal.press("how much is 6 * 7?\r");
    terminal.expect("→ calculator {\"expression\":\"6*7\"}");
    terminal.expect("← calculator: 42");
    // A model's text does not control the terminal.
    terminal.expect("It is 42.");
    terminal.expect("2 turns, 1 tool call, 110 tokens");
    terminal.expect("›");
    terminal.press("sure?\r");
    terminal.expect("As I said: 42.");
    terminal.expect("›");
    terminal.press("/tools\r");
    terminal.expect("json_query");
    terminal.expect("›");
    terminal.press("/clear\r");
    terminal.expect("was cleared");
    terminal.expect("›");
    terminal.press("and now?\r");
    terminal.expect("Let me see.");
    terminal.expect("›");
    terminal.press("quit\r");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn messages_have_several_lines_and_the_conversation_is_continued_another_time() {
    let directory = scripted();
    let state = directory.path().join("state");
    let mut terminal = Terminal::start(&directory, "chat --model replay:s.yaml");
    terminal.expect("›");
    terminal.press("how much is\\\r6 * 7?\r");
    terminal.expect("It is");
    terminal.expect("tokens, $");
    terminal.expect("›");
    terminal.press("/cost\r");
    terminal.expect("110 tokens, $0");
    terminal.expect("›");
    terminal.press("/model nobody\r");
    terminal.expect("there is no profile \"nobody\"; the profiles are ");
    terminal.expect("›");
    terminal.press("/save talk.md\r");
    terminal.expect("the conversation is in talk.md");
    terminal.expect("›");
    terminal.press("quit\r");
    assert_eq!(terminal.ended(), Some(0));
    let saved = std::fs::read_to_string(directory.path().join("talk.md")).unwrap();
    assert!(saved.starts_with("## You\n\nhow much is\n6 * 7?\n"), "{saved}");
    for kept in ["chat_history", "chat_conversation.json"] {
        let mode = std::fs::metadata(state.join(kept)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{kept}");
    }
    // The script goes by the turns of the conversation: the third is told only where the first two are remembered.
    let asked = sekisho(&directory).args(["chat", "--resume", "sure?"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "As I said: 42.", "{}", text(&asked));
    let mut terminal = Terminal::start(&directory, "chat --model replay:s.yaml");
    terminal.expect("›");
    terminal.press("\u{1b}[A");
    terminal.expect("6 * 7?");
}

#[test]
fn what_is_piped_in_belongs_to_the_task_and_an_answer_elsewhere_than_on_a_terminal_has_no_styles() {
    let directory = TempDir::new().unwrap();
    let script = "turns: [{text: ['It has **three** lines.']}]";
    std::fs::write(directory.path().join("s.yaml"), script).unwrap();
    let piped = |input: &[u8]| {
        let mut command = sekisho(&directory);
        command.args(["chat", "--model", "replay:s.yaml", "summarise"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that refuses may end before it has read everything.
        let _refused = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    };
    let asked = piped(b"one\ntwo\nthree\n");
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "It has **three** lines.\n", "{}", text(&asked));
    let kept = std::fs::read(directory.path().join("state/chat_conversation.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["messages"][0]["text"], "summarise\n\none\ntwo\nthree\n", "{kept}");
    for (input, reason) in [(vec![b'a'; (1 << 20) + 1], "more than 1 MiB"), (vec![0xff], "no text in UTF-8")] {
        let refused = piped(&input);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused).contains(reason), "{}", text(&refused));
    }
}

#[test]
fn answers_on_a_terminal_are_styled_unless_no_color_is_set() {
    let directory = TempDir::new().unwrap();
    let script = "turns: [{text: ['It is **bo', 'ld** and `code`.']}]";
    std::fs::write(directory.path().join("s.yaml"), script).unwrap();
    let mut terminal = Terminal::start(&directory, "chat --model replay:s.yaml hi");
    terminal.expect("\u{1b}[1m");
    terminal.expect("bold");
    assert_eq!(terminal.ended(), Some(0));
    let mut terminal = Terminal::start_with(&directory, "export NO_COLOR=1;", "chat --model replay:s.yaml hi");
    terminal.expect("It is **bold** and `code`.");
}

#[test]
fn verdicts_of_check_have_colors_on_a_terminal() {
    let directory = TempDir::new().unwrap();
    let mut terminal = Terminal::start(&directory, "check");
    terminal.expect("configuration");
    // Green.
    terminal.expect("\u{1b}[38;5;10m");
    terminal.expect("ok");
    terminal.expect("0 broken");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn ctrl_c_stops_a_turn_and_twice_quits() {
    let directory = scripted();
    let mut terminal = Terminal::start(&directory, "chat --model replay:s.yaml");
    for question in ["one\r", "two\r"] {
        terminal.expect("›");
        terminal.press(question);
        terminal.expect("tokens, $");
    }
    terminal.expect("›");
    terminal.press("three\r");
    terminal.expect("three");
    // The spinner of a run under way.
    terminal.expect("thinking");
    terminal.press("\u{3}");
    terminal.expect("The run was aborted");
    terminal.expect("›");
    terminal.press("\u{3}");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn the_tools_may_be_those_of_another_gateway() {
    let (served, directory) = (TempDir::new().unwrap(), scripted());
    let serving = Serving::start(&served);
    let arguments = ["--json", "--server", &serving.url, "chat", "--model", "replay:s.yaml", "6 * 7?"];
    let asked = sekisho(&directory).args(arguments).output().unwrap();
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked));
    let reported = String::from_utf8_lossy(&asked.stdout).into_owned();
    let result = reported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result = result.filter(|event| event["type"] == "tool_result").map(|event| event["result"].clone());
    assert_eq!(result.collect::<Vec<_>>(), ["42"]);
    // Lines reach the file within some milliseconds.
    let until = Instant::now() + Duration::from_secs(10);
    let audit = || std::fs::read_to_string(served.path().join("state/audit.jsonl")).unwrap();
    while !audit().contains("\"calculator\"") {
        assert!(Instant::now() < until, "the call did not pass the other gateway's checkpoint: {}", audit());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_gateway_out_of_reach_leaves_the_agent_without_tools() {
    let directory = scripted();
    let arguments = ["--json", "--server", "http://127.0.0.1:9", "chat", "--model", "replay:s.yaml", "6 * 7?"];
    let asked = sekisho(&directory).args(arguments).output().unwrap();
    let reported = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(reported.contains("without_tools") && reported.contains("127.0.0.1:9"), "{}", text(&asked));
}
