//! Mistakes that people make, as data: each message says what is wrong, where, and what to do next.

use tempfile::TempDir;

use crate::cli::{sekisho, text};

struct Mistake {
    name: &'static str,
    /// A file in the working directory, and its text.
    file: (&'static str, &'static str),
    arguments: &'static [&'static str],
    exit: i32,
    /// Parts of the message.
    named: &'static [&'static str],
}

const NO_FILE: (&str, &str) = ("unused", "");
const CONFIG: &str = "sekisho.yaml";
const CHECK: &[&str] = &["check", "--config", CONFIG];
const SERVE: &[&str] = &["serve", "--config", CONFIG];
const CHECK_SERVERS: &[&str] = &["check", "--config", "servers.yaml"];

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "the address of another machine",
        file: (CONFIG, "server: {listen: '192.0.2.1:8080'}\nauth: {api_keys: [{id: a, key: ann-03d7e58bc19f4a26}]}\n"),
        arguments: SERVE,
        exit: 4,
        named: &["192.0.2.1:8080", "this machine does not have the address", "127.0.0.1"],
    },
    Mistake {
        name: "a command line in the place of a program",
        file: (CONFIG, "mcp: {servers: {time: {command: 'npx -y mcp-server-time'}}}\n"),
        arguments: CHECK,
        exit: 1,
        named: &["mcp:time", "npx -y mcp-server-time", "put the arguments into `args`"],
    },
    Mistake {
        name: "a misspelled tool in the overrides",
        file: (CONFIG, "tools: {overrides: {calculater: {approval: always}}}\n"),
        arguments: CHECK,
        exit: 1,
        named: &["tools.overrides.calculater", "did you mean `calculator`?"],
    },
    Mistake {
        name: "settings in `options`",
        file: ("state/mcp.json", r#"{"mcpServers": {"m": {"command": "/nowhere", "options": {"cwd": "/"}}}}"#),
        arguments: &["check"],
        exit: 1,
        named: &["mcp.servers.m", "`options`", "beside `command`"],
    },
    Mistake {
        name: "a key beside its topic",
        file: (CONFIG, "api_keys: [{id: ann, key: k}]\n"),
        arguments: CHECK,
        exit: 1,
        named: &["sekisho.yaml:1:1", "`api_keys`", "write it in `auth`"],
    },
    Mistake {
        name: "a number below zero",
        file: (CONFIG, "limits: {max_concurrent: -1}\n"),
        arguments: CHECK,
        exit: 1,
        named: &["limits.max_concurrent", "a whole number"],
    },
    Mistake {
        name: "comments in a file of an editor",
        file: ("state/mcp.json", "{\n// mine\n\"mcpServers\": {}}"),
        arguments: &["check"],
        exit: 1,
        named: &["mcp.json", "JSON has no comments: remove"],
    },
    Mistake {
        name: "a server without a scheme",
        file: NO_FILE,
        arguments: &["--server", "127.0.0.1:21112", "tools"],
        exit: 2,
        named: &["--server", "http://127.0.0.1:8080"],
    },
    Mistake {
        name: "a port at which nothing listens",
        file: NO_FILE,
        arguments: &["--server", "http://127.0.0.1:1", "tools"],
        exit: 5,
        named: &["http://127.0.0.1:1", "nothing listens at that port"],
    },
    Mistake {
        name: "a tool that does not exist",
        file: NO_FILE,
        arguments: &["call", "calculater"],
        exit: 3,
        named: &["\"calculater\"", "`sekisho tools` lists the tools", "perhaps: calculator"],
    },
    Mistake {
        name: "a trail that does not exist",
        file: NO_FILE,
        arguments: &["audit", "verify", "nowhere.jsonl"],
        exit: 1,
        named: &["nowhere.jsonl does not exist; name the trail's file"],
    },
    Mistake {
        name: "a script that does not exist",
        file: NO_FILE,
        arguments: &["chat", "--model", "replay:nowhere.yaml", "hello"],
        exit: 3,
        named: &["invalid_request", "the script \"nowhere.yaml\" does not exist"],
    },
    Mistake {
        name: "a misspelled topic",
        file: (CONFIG, "serve: {listen: '127.0.0.1:0'}\n"),
        arguments: CHECK,
        exit: 1,
        named: &["sekisho.yaml:1:1", "unknown key `serve`", "did you mean `server`?"],
    },
    Mistake {
        name: "a misspelled setting of a tool",
        file: (CONFIG, "tools:\n  overrides:\n    calculator:\n      rate_limt: 5\n"),
        arguments: CHECK,
        exit: 1,
        named: &["sekisho.yaml:4:7", "unknown key `rate_limt`", "did you mean `rate_limit`?"],
    },
    Mistake {
        name: "arguments that are not JSON",
        file: NO_FILE,
        arguments: &["call", "calculator", "{expression: 1}"],
        exit: 2,
        named: &["the arguments are not acceptable JSON"],
    },
    Mistake {
        name: "a missing argument",
        file: NO_FILE,
        arguments: &["call", "calculator"],
        exit: 3,
        named: &["invalid_arguments", "expression"],
    },
    Mistake {
        name: "no gateway",
        file: NO_FILE,
        arguments: &["results"],
        exit: 5,
        named: &["no gateway runs on the state directory", "start it with `sekisho serve`"],
    },
    Mistake {
        name: "no lock to compare with",
        file: NO_FILE,
        arguments: &["lock", "diff"],
        exit: 4,
        named: &["state/tools.lock does not exist", "create it with `sekisho lock`"],
    },
    Mistake {
        name: "a configuration that does not exist",
        file: NO_FILE,
        arguments: CHECK_SERVERS,
        exit: 1,
        named: &["servers.yaml", "cannot be read", "check the path"],
    },
];

#[test]
fn messages_say_what_is_wrong_where_and_what_to_do_next() {
    for Mistake { name, file: (file, content), arguments, exit, named } in MISTAKES {
        let directory = TempDir::new().unwrap();
        let mut program = sekisho(&directory);
        let file = directory.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        let ran = program.args(*arguments).output().unwrap();
        // Cells of tables may have several lines.
        let said = text(&ran).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ran.status.code(), Some(*exit), "{name}: {said}");
        for part in *named {
            assert!(said.contains(part), "{name}: no {part:?} in: {said}");
        }
        assert_eq!(said.matches("GET /").count(), 0, "{name}: {said}");
    }
}
