//! The program as a person or a script runs it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::checkout::checkout;

pub(crate) fn sekisho(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sekisho"));
    command.env_clear().env("SEKISHO_STATE_DIRECTORY", directory.path().join("state")).current_dir(directory.path());
    command.envs(cache());
    command
}

/// The interpreter's cache: the only environment variable that a test passes on.
pub(crate) fn cache() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    ["HOME", "XDG_CACHE_HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

fn run(directory: &TempDir, arguments: &[&str]) -> Output {
    sekisho(directory).args(arguments).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_call_prints_its_text_and_for_scripts_the_whole_reply() {
    let directory = TempDir::new().unwrap();
    let called = run(&directory, &["call", "calculator", r#"{"expression": "(2+3)*7"}"#]);
    assert_eq!((called.status.code(), text(&called).trim()), (Some(0), "35"));
    let called = run(&directory, &["--json", "call", "calculator", r#"{"expression": "(2+3)*7"}"#]);
    let reply: Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(reply["output"], 35);
}

#[test]
fn an_agent_answers_on_the_terminal_and_for_scripts_in_events() {
    let directory = TempDir::new().unwrap();
    let model = format!("replay:{}", checkout().join("config/examples/weather.yaml").display());
    let model = model.as_str();
    let asked = run(&directory, &["chat", "--model", model, "Is 21.5 °C warm?"]);
    let answer = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked));
    assert!(answer.trim_end().ends_with("which is 70.7 °F.") && !answer.contains("calculator"), "{answer}");
    assert!(
        text(&asked).contains("→ calculator") && text(&asked).contains("2 turns, 1 tool call,"),
        "{}",
        text(&asked)
    );
    let asked = run(&directory, &["--json", "chat", "--model", model, "Is 21.5 °C warm?"]);
    let events: Vec<Value> =
        String::from_utf8_lossy(&asked.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(kinds.contains(&"tool_result") && kinds.ends_with(&["finished", "usage"]), "{kinds:?}");
    let refused = run(&directory, &["chat", "--model", "nobody", "hi"]);
    assert!(text(&refused).contains("the profiles are "), "{}", text(&refused));
    for arguments in
        [&["chat", "--model", "replay:missing.yaml", "hi"][..], &["chat", "--model", "nobody", "hi"], &["chat", " "]]
    {
        let refused = run(&directory, arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", text(&refused));
    }
}

#[test]
fn the_version_says_what_was_built() {
    let directory = TempDir::new().unwrap();
    let version = concat!("sekisho ", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&run(&directory, &["-V"])).trim(), version);
    let long = text(&run(&directory, &["--version"]));
    let described = long.trim().strip_prefix(version).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
    // With its commit in a release only: a build for tests would begin anew with each commit.
    assert!(described.is_some_and(|text| text.contains("commit") && text.contains(std::env::consts::ARCH)), "{long}");
}

#[test]
fn exit_codes_show_the_result() {
    let directory = TempDir::new().unwrap();
    for (arguments, code) in [
        (&["call", "calculator", r#"{"expression": "1/0"}"#][..], 1),
        (&["no-such-command"], 2),
        (&["call", "calculator", r#"{"expression": "6*7"}"#], 0),
        (&["call", "calculator", "not json"], 2),
        (&["call", "calculator", "[1]"], 2),
        (&["explain", "calculator", "{bad"], 2),
        (&["explain", "calculator", "--result", "{bad"], 2),
        (&["explain", "calculator", r#"{"expression": "1"}"#, "--result", "1"], 0),
        (&["explain", "calculator", r#"{"expression": "1"}"#, "--result", "[]"], 3),
        (&["call", "calculator", "{}"], 3),
        (&["call", "calculater", "{}"], 3),
        (&["call", "file_read", r#"{"path": "a"}"#], 3),
        (&["call", "web_fetch", r#"{"url": "http://127.0.0.1/"}"#], 3),
        (&["--config", "missing.yaml", "tools"], 4),
        (&["--server", "http://127.0.0.1:1", "tools"], 5),
        (&["--server", "http://127.0.0.1:1", "check", "--remote"], 5),
        (&["--server", "http://127.0.0.1:1", "mcp", "serve"], 0),
        (&["--server", "http://127.0.0.1:1", "check"], 2),
        (&["--server", "http://127.0.0.1:1", "lock"], 2),
        (&["--server", "http://127.0.0.1:1", "serve"], 2),
        (&["--server", "http://127.0.0.1:1", "audit", "verify"], 2),
        (&["--server", "http://127.0.0.1:1", "sandbox", "list"], 2),
        (&["--server", "http://127.0.0.1:1", "explain", "calculator"], 2),
        (&["check", "--remote"], 5),
        (&["mcp", "login", "far"], 5),
    ] {
        let output = run(&directory, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn an_invalid_configuration_is_reported_with_its_place_and_a_suggestion() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("bad.yaml"), "limits:\n  max_concurent: 5\n").unwrap();
    let checked = run(&directory, &["check", "--config", "bad.yaml"]);
    assert_eq!(checked.status.code(), Some(1));
    let reported = text(&checked);
    assert!(reported.contains("bad.yaml:2") && reported.contains("max_concurrent"), "{reported}");
}

#[test]
fn a_model_without_a_price_is_named_by_the_check_and_stops_nothing() {
    let directory = TempDir::new().unwrap();
    for (budget, reported) in [
        ("{max_cost_per_caller_per_day: 5}", "are refused, since `budget.max_cost_per_caller_per_day` is set"),
        ("{max_cost_per_request: 0.1}", "counts as 0"),
    ] {
        let profile = "{provider: openai, model: nobody-knows, base_url: 'http://127.0.0.1:1/v1'}";
        let yaml = format!("budget: {budget}\nagent: {{profiles: {{local: {profile}}}}}\n");
        std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
        let checked = run(&directory, &["check", "--json", "--config", "sekisho.yaml"]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
        for part in [reported, "`agent.profiles.local`", "nobody-knows", "price_per_million_prompt_tokens"] {
            assert!(text(&checked).contains(part), "{part}: {}", text(&checked));
        }
    }
}

#[test]
fn the_defaults_pass_the_check_which_reports_why_web_search_is_not_offered() {
    let directory = TempDir::new().unwrap();
    let checked = run(&directory, &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).contains("web_search"));
}

#[test]
fn the_check_lists_the_tools_that_require_a_role_or_a_sign_in() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir_all(policies.join("cases")).unwrap();
    std::fs::write(policies.join("tools.rego"), "package tools\ndeny[\"no\"] { false }\n").unwrap();
    // Regardless of the rules.
    let cases = "- {name: anybody writes, input: {tool: file_write}, expect: allow}\n";
    std::fs::write(policies.join("cases/all.yaml"), cases).unwrap();
    let yaml = "policy: {directory: policies, dangerous_roles: [sre]}\n\
                tools: {overrides: {calculator: {requires_auth: true}}}\n";
    std::fs::write(directory.path().join("own.yaml"), yaml).unwrap();
    let checked = run(&directory, &["--json", "check", "--config", "own.yaml"]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let findings: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let says = |part: &str| {
        findings.as_array().unwrap().iter().find(|finding| finding["part"] == part).unwrap()["says"].clone()
    };
    assert_eq!(
        says("checks"),
        "dangerous (the role sre): file_write\nrequires_auth (a signed-in caller): calculator\n\
         roles (hidden from others): file_write"
    );
    assert!(says("policy cases").as_str().unwrap().contains("file_write is dangerous: the caller needs the role sre"));
}

#[test]
fn explain_shows_which_stage_would_stop_a_call() {
    let directory = TempDir::new().unwrap();
    let arguments = r#"{"path": "a", "content": "b"}"#;
    let explained =
        run(&directory, &["--json", "explain", "file_write", arguments, "--as", "bob", "--role", "operator"]);
    assert_eq!(explained.status.code(), Some(3));
    let verdicts: Value = serde_json::from_slice(&explained.stdout).unwrap();
    let stopped: Vec<_> = verdicts.as_array().unwrap().iter().filter(|verdict| verdict["passes"] == false).collect();
    let stages: Vec<_> = stopped.iter().map(|verdict| &verdict["stage"]).collect();
    assert_eq!(stages, ["find", "policy"]);
    assert!(stopped.iter().all(|verdict| verdict["because"].as_str().unwrap().contains("`roles`")), "{stopped:?}");
    let admin =
        run(&directory, &["explain", "file_write", arguments, "--as", "ada", "--role", "operator", "--role", "admin"]);
    assert_eq!(admin.status.code(), Some(0), "{}", text(&admin));
}

#[test]
fn explain_supports_resources_prompts_and_completions() {
    let directory = TempDir::new().unwrap();
    let servers = crate::mcp_servers::yaml(&[("m", crate::mcp_programs::server("fine", ""))]);
    std::fs::write(directory.path().join("sekisho.yaml"), format!("policy: {{directory: policies}}\n{servers}"))
        .unwrap();
    std::fs::create_dir(directory.path().join("policies")).unwrap();
    let rego = "package tools\ndeny[\"no secrets\"] { input.kind != \"tool\"; contains(input.target, \"secret\") }\n";
    std::fs::write(directory.path().join("policies/tools.rego"), rego).unwrap();
    let complete =
        r#"{"ref": {"type": "ref/resource", "uri": "m+demo://secret"}, "argument": {"name": "n", "value": ""}}"#;
    for (method, params, expected) in [
        ("resources/read", r#"{"uri": "m+demo://one"}"#, None),
        ("resources/read", r#"{"uri": "m+demo://secret"}"#, Some("policy")),
        ("resources/read", r#"{"uri": "demo://one"}"#, Some("find")),
        ("prompts/get", r#"{"name": "m__greet"}"#, None),
        ("prompts/get", r#"{"name": "greet"}"#, Some("find")),
        ("completion/complete", complete, Some("policy")),
    ] {
        let explained = run(&directory, &["--config", "sekisho.yaml", "--json", "explain", method, params]);
        let verdicts: Value =
            serde_json::from_slice(&explained.stdout).unwrap_or_else(|_| panic!("{}", text(&explained)));
        let stopped = verdicts.as_array().unwrap().iter().find(|verdict| verdict["passes"] == false);
        assert_eq!(
            stopped.map(|verdict| verdict["stage"].as_str().unwrap()),
            expected,
            "{method} {params}: {verdicts}"
        );
    }
}

/// A gateway of the real program, stopped when dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
}

impl Serving {
    pub(crate) fn start(directory: &TempDir) -> Self {
        Self::start_with(directory, &[])
    }

    pub(crate) fn start_with(directory: &TempDir, options: &[&str]) -> Self {
        Self::run(sekisho(directory), options)
    }

    pub(crate) fn run(mut program: Command, options: &[&str]) -> Self {
        let serve = program.args(["serve", "--listen", "127.0.0.1:0"]).args(options).stderr(Stdio::piped());
        let mut child = serve.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            // Lines about refused connections of servers name an address, too.
            let is_listening = line["message"].as_str()?.contains("is listening");
            is_listening.then(|| line["address"].as_str().unwrap().to_owned())
        });
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: format!("http://{}", address.expect("the log tells the address")) }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn commands_query_a_running_gateway_over_http() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let ask = |arguments: &[&str]| run(&directory, &[&["--server", &serving.url], arguments].concat());
    assert_eq!(text(&ask(&["call", "calculator", r#"{"expression": "6*7"}"#])).trim(), "42");
    assert!(text(&ask(&["tools"])).contains("calculator"));
    assert!(text(&ask(&["tools", "search", "arithmetic"])).contains("calculator"));
    let tokens: Value = serde_json::from_slice(&ask(&["--json", "tools", "--tokens"]).stdout).unwrap();
    assert!(tokens["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calculator"), "{tokens}");
    assert!(tokens["short_tokens"].as_u64() <= tokens["tokens"].as_u64() && tokens["short_tokens"] != 0, "{tokens}");
    assert!(text(&ask(&["tools", "show", "calculator"])).contains("expression"));
    assert_eq!(ask(&["call", "calculator", "{}"]).status.code(), Some(3));
}

/// MCP servers are asked, and tools take one line each.
#[test]
fn tools_and_check_know_mcp_servers_and_say_which_cannot_be_reached() {
    let directory = TempDir::new().unwrap();
    let servers = crate::mcp_servers::yaml(&[("m", crate::mcp_programs::server("fine", ""))]);
    std::fs::write(directory.path().join("sekisho.yaml"), &servers).unwrap();
    let ask = |arguments: &[&str]| run(&directory, &[&["--config", "sekisho.yaml"], arguments].concat());
    let listed = sekisho(&directory).args(["--config", "sekisho.yaml", "tools"]).env("COLUMNS", "80").output().unwrap();
    let lines: Vec<_> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    assert!(
        lines.iter().any(|line| line.starts_with("m__echo ")) && lines.iter().any(|line| line.contains("calculator"))
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    let snapshot: Vec<Value> = serde_json::from_slice(&ask(&["--json", "tools"]).stdout).unwrap();
    assert_eq!(lines.len(), snapshot.len(), "one line a tool");
    assert!(text(&ask(&["tools", "search", "echo"])).contains("m__echo"));
    let tokens: Value = serde_json::from_slice(&ask(&["--json", "tools", "--tokens"]).stdout).unwrap();
    let of = |name: &str| tokens[name].as_u64().unwrap();
    assert_eq!(of("auto_tokens") + of("saved_tokens"), of("tokens"), "{tokens}");
    assert!(text(&ask(&["tools", "--tokens"])).contains("m__echo"));
    assert_eq!(ask(&["tools", "--tokens", "search", "echo"]).status.code(), Some(2));
    let checked = ask(&["check"]);
    assert!(checked.status.success() && text(&checked).contains("m__echo"), "{}", text(&checked));

    let broken = "mcp: {servers: {gone: {command: /does/not/exist}}}";
    std::fs::write(directory.path().join("sekisho.yaml"), broken).unwrap();
    let checked = ask(&["check"]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    for said in [text(&checked), text(&ask(&["tools"]))] {
        assert!(said.contains("mcp:gone") && said.contains("/does/not/exist cannot be started"), "{said}");
    }
}

#[test]
fn a_variable_that_names_a_gateway_is_no_more_ignored_than_the_command_line() {
    let directory = TempDir::new().unwrap();
    let with = |arguments: &[&str], server: &str| {
        sekisho(&directory).env("SEKISHO_SERVER", server).args(arguments).output().unwrap()
    };
    for arguments in [&["check"][..], &["lock"], &["audit", "verify"], &["sandbox", "list"]] {
        let refused = with(arguments, "http://127.0.0.1:1");
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", text(&refused));
        assert!(text(&refused).contains("SEKISHO_SERVER"), "{}", text(&refused));
    }
    assert_eq!(with(&["tools"], "http://127.0.0.1:1").status.code(), Some(5));
    assert_eq!(with(&["tools"], "").status.code(), Some(0), "an empty variable is none");
    assert_eq!(with(&["completions", "bash"], "http://127.0.0.1:1").status.code(), Some(0));
}

#[test]
fn a_key_that_can_be_guessed_is_named_and_not_shown() {
    let directory = TempDir::new().unwrap();
    let long = "4f6c1d0a9b8e7f3c2d1e5a6b";
    let yaml = format!("auth: {{api_keys: [{{id: ann, key: hunter2}}, {{id: bob, key: '{long}'}}]}}\n");
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let checked = run(&directory, &["--json", "check", "--config", "sekisho.yaml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let findings: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
    let warnings: Vec<_> = findings.iter().filter(|finding| finding["warning"] == true).collect();
    assert_eq!((warnings.len(), &warnings[0]["part"]), (1, &json!("auth.api_keys[0].key")), "{findings:#?}");
    assert!(warnings[0]["says"].as_str().unwrap().contains("\"ann\""), "{findings:#?}");
    assert!(!text(&checked).contains("hunter2"));
}

/// `/readyz` and `check` name what is open to everything, and policies that name what nobody has.
#[test]
fn status_commands_query_a_gateway_and_list_what_needs_attention() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir_all(policies.join("cases")).unwrap();
    let rules = "package tools\ndeny[msg] { input.tool == \"calculater\"; msg := \"no\" }\n";
    std::fs::write(policies.join("tools.rego"), rules).unwrap();
    let case = "- {name: a boss may, input: {tool: calculator, user: {roles: [boss]}}, expect: allow}\n";
    std::fs::write(policies.join("cases/all.yaml"), case).unwrap();
    let yaml = "policy: {directory: policies}\noutbound: {mcp_allowed_domains: ['*']}\n";
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();

    let checked = run(&directory, &["--json", "check", "--config", "sekisho.yaml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let findings: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
    let warnings: Vec<_> = findings.iter().filter(|finding| finding["warning"] == true).collect();
    assert_eq!(warnings.len(), 2, "{findings:#?}");
    assert_eq!(warnings[0]["part"], "outbound.mcp_allowed_domains");
    let names = warnings[1]["says"].as_str().unwrap();
    assert!(names.contains("tools.rego:2: there is no tool \"calculater\""), "{names}");
    assert!(names.contains("a boss may: there is no role \"boss\""), "{names}");

    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let asked = run(&directory, &["--json", "--server", &serving.url, "check", "--remote"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked));
    let findings: Vec<Value> = serde_json::from_slice(&asked.stdout).unwrap();
    let of = |part: &str| findings.iter().find(|finding| finding["part"] == part).unwrap();
    assert_eq!(of("gateway")["says"], "ready");
    assert_eq!(of("outbound.mcp_allowed_domains")["warning"], true);
    assert!(of("tools")["says"].as_str().unwrap().contains("calculator"));
}

#[test]
fn a_gateway_that_is_degraded_fails_the_check() {
    let directory = TempDir::new().unwrap();
    let yaml = "openapi: {collections: {gone: {spec_file: /nowhere.json}}}\n";
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let asked = run(&directory, &["--server", &serving.url, "check", "--remote"]);
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked));
    assert!(text(&asked).contains("openapi:gone") && text(&asked).contains("/nowhere.json"), "{}", text(&asked));
}

/// A changed file is applied; an invalid one, here signalled by SIGHUP, leaves the running configuration.
#[test]
fn a_changed_file_is_taken_over_while_it_runs() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("sekisho.yaml");
    std::fs::write(&file, "tools: {overrides: {json_query: {hidden: false}}}").unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let until = |path: &str, wanted: &dyn Fn(&str) -> bool| {
        let started = std::time::Instant::now();
        while started.elapsed().as_secs() < 20 {
            let reported = Command::new("curl").args(["-s", &format!("{}{path}", serving.url)]).output().unwrap();
            if wanted(&String::from_utf8_lossy(&reported.stdout)) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    };
    assert!(until("/tools/list", &|names| names.contains("json_query")));
    std::fs::write(&file, "tools: {overrides: {json_query: {hidden: true}}}").unwrap();
    assert!(until("/tools/list", &|names| !names.contains("json_query")), "the change went unnoticed");
    std::fs::write(&file, "tools: {no_such_key: 1}").unwrap();
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    assert!(until("/readyz", &|ready| ready.contains("no_such_key")), "the broken file went unnoticed");
    assert!(until("/tools/list", &|names| names.starts_with('[') && !names.contains("json_query")));
}

/// A file that becomes empty, and one that opens the gateway, are not applied by themselves; SIGHUP applies the latter alone.
#[test]
fn a_file_that_lost_its_guards_waits_and_an_empty_one_never_counts() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("sekisho.yaml");
    let guarded = "auth: {anonymous: never, api_keys: [{id: ann, key: k}]}\n";
    std::fs::write(&file, guarded).unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let ask = |path: &str, header: &str| {
        let url = format!("{}{path}", serving.url);
        text(&Command::new("curl").args(["-s", "-H", header, &url]).output().unwrap())
    };
    let eventually = |path: &str, header: &str, wanted: &str| {
        let started = std::time::Instant::now();
        while !ask(path, header).contains(wanted) {
            assert!(started.elapsed().as_secs() < 20, "{wanted}: {}", ask(path, header));
            std::thread::yield_now();
        }
    };
    let (with_key, anonymous) = ("X-API-Key: k", "Accept: */*");
    let hang_up = || {
        let pid = serving.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    };
    let is_guarded = || assert!(ask("/tools/list", anonymous).contains("unauthenticated"));
    for empty in ["", "\n\n", "# nothing\n", "---\n"] {
        std::fs::write(&file, empty).unwrap();
        eventually("/readyz", with_key, "is empty");
        is_guarded();
        // Another error, so that the next one is seen.
        std::fs::write(&file, "no_such_key: 1\n").unwrap();
        eventually("/readyz", with_key, "no_such_key");
    }
    // Also where a person asks for it, and at a start.
    std::fs::write(&file, "").unwrap();
    hang_up();
    eventually("/readyz", with_key, "is empty");
    is_guarded();
    for command in ["check", "serve"] {
        let refused = sekisho(&directory).args(["--config", "sekisho.yaml", command]).output().unwrap();
        assert!(!refused.status.success() && text(&refused).contains("is empty"), "{command}: {}", text(&refused));
    }

    std::fs::write(&file, "limits: {max_queued: 9}\n").unwrap();
    eventually("/readyz", with_key, "auth.anonymous: never → loopback");
    is_guarded();
    hang_up();
    eventually("/tools/list", anonymous, "calculator");
}

#[test]
fn a_rotated_key_in_the_env_file_and_a_setting_for_the_next_start_are_noticed() {
    let directory = TempDir::new().unwrap();
    let (file, variables) = (directory.path().join("sekisho.yaml"), directory.path().join(".env"));
    let yaml = "auth: {anonymous: never, api_keys: [{id: ann, key: \"${ANN_KEY}\"}]}\n";
    std::fs::write(&file, yaml).unwrap();
    std::fs::write(&variables, "ANN_KEY=key-of-yesterday\n").unwrap();
    let serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let ask = |path: &str, key: &str| {
        let bearer = format!("Authorization: Bearer {key}");
        text(&Command::new("curl").args(["-s", "-H", &bearer, &format!("{}{path}", serving.url)]).output().unwrap())
    };
    let eventually = |path: &str, key: &str, wanted: &str| {
        let started = std::time::Instant::now();
        while !ask(path, key).contains(wanted) {
            assert!(started.elapsed().as_secs() < 20, "{path}: {}", ask(path, key));
            std::thread::yield_now();
        }
    };
    eventually("/tools/list", "key-of-yesterday", "calculator");
    std::fs::write(&variables, "ANN_KEY=key-of-today\n").unwrap();
    eventually("/tools/list", "key-of-today", "calculator");
    eventually("/tools/list", "key-of-yesterday", "unauthenticated");

    let later = "it was changed; the change takes effect at the next start";
    assert!(!ask("/readyz", "key-of-today").contains(later));
    std::fs::write(&file, format!("{yaml}server: {{max_body_bytes: 1000}}\n")).unwrap();
    eventually("/readyz", "key-of-today", &format!("\"server\":\"{later}\""));
    std::fs::write(&file, format!("{yaml}limits: {{max_concurrent: 9}}\nserver: {{max_body_bytes: 1000}}\n")).unwrap();
    eventually("/readyz", "key-of-today", later);
}

/// As root only: other users have no home folder that a test may write to.
#[test]
fn a_user_without_a_home_is_told_to_name_the_state_directory() {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("sekisho");
    std::fs::copy(env!("CARGO_BIN_EXE_sekisho"), &program).unwrap();
    for path in [directory.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let as_user = |user: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(directory.path());
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(&program).args(arguments);
        command.output().unwrap()
    };
    let call = ["call", "calculator", r#"{"expression": "6*7"}"#];
    // Nobody's home folder does not exist, and a user that is not in passwd has none.
    for (user, reason) in [("65534", "/nonexistent/.local/state/sekisho cannot be used"), ("54321", "no home folder")] {
        let refused = as_user(user, &call);
        assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
        let said = text(&refused);
        assert!(said.contains(reason) && said.contains("SEKISHO_STATE_DIRECTORY"), "{said}");
    }
}

/// SIGTERM: calls in flight are answered, the audit trail is whole, and then it goes.
#[test]
fn a_shutdown_finishes_running_calls() {
    let directory = TempDir::new().unwrap();
    let mut serving = Serving::start(&directory);
    let url = serving.url.clone();
    let call = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = client.post(format!("{url}/tools/calculator/execute"));
            request.json(&json!({"arguments": {"expression": "6*7"}})).send().await.unwrap().status()
        })
    });
    assert_eq!(call.join().unwrap(), 200);
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(serving.child.wait().unwrap().success());
    assert_eq!(sekisho::testing::verify_audit(&directory.path().join("state/audit.jsonl")).unwrap().lines, 1);
}

/// From SIGTERM on the gateway is not ready, and still answers for the delay; SIGINT ends it.
#[test]
fn a_load_balancer_learns_of_a_shutdown_before_the_listener_closes() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("sekisho.yaml"), "server: {shutdown_delay_seconds: 600}").unwrap();
    let mut serving = Serving::start_with(&directory, &["--config", "sekisho.yaml"]);
    let get = |path: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let answer = client.get(format!("{}{path}", serving.url)).send().await.unwrap();
            (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
        })
    };
    assert_eq!(get("/readyz").1["status"], "ready");
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (status, ready) = (0..500)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            get("/readyz")
        })
        .find(|(status, _)| *status != 200)
        .expect("it is not ready");
    assert_eq!((status, &ready["status"]), (503, &json!("unavailable")), "{ready}");
    assert!(ready["degraded"]["shutdown"].is_string(), "{ready}");
    assert_eq!(get("/tools/list").0, 200);
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(serving.child.wait().unwrap().success());
}

/// The memory of the service has keys and tokens.
#[test]
fn the_service_writes_no_core_dump_whatever_the_limit_was() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.id())).unwrap();
    let of_dumps = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let values: Vec<_> = of_dumps.split_whitespace().skip(4).take(2).collect();
    assert_eq!(values, ["0", "0"], "{of_dumps}");
}

#[test]
fn the_audit_trail_is_verified_from_the_terminal() {
    let directory = TempDir::new().unwrap();
    run(&directory, &["call", "calculator", r#"{"expression": "1"}"#]);
    run(&directory, &["call", "calculator", r#"{"expression": "2"}"#]);
    let verified = run(&directory, &["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let file = directory.path().join("state/audit.jsonl");
    let trail = std::fs::read_to_string(&file).unwrap().replacen("success", "refused", 1);
    std::fs::write(&file, trail).unwrap();
    let verified = run(&directory, &["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified).contains("line 1"), "{}", text(&verified));
}

#[test]
fn trails_of_several_gateways_are_verified_each_and_exported_in_the_order_of_time() {
    let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for directory in [&a, &b, &a, &a, &b] {
        assert!(run(directory, &["call", "calculator", r#"{"expression": "1"}"#]).status.success());
    }
    let files = [&a, &b].map(|directory| directory.path().join("state/audit.jsonl").display().to_string());
    let exported = run(&a, &["audit", "export", "--file", &files[0], "--file", &files[1]]);
    let times: Vec<_> = text(&exported)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time"].as_str().unwrap().to_owned())
        .collect();
    assert!(times.len() >= 5 && times.is_sorted(), "{times:?}");
    let calls = run(&a, &["audit", "search", "--tool", "calculator", "--file", &files[0], "--file", &files[1]]);
    assert_eq!(text(&calls).lines().count(), 5, "{}", text(&calls));

    let verify = ["--json", "audit", "verify", &files[0], &files[1]];
    assert_eq!(run(&a, &verify).status.code(), Some(0));
    let trail = std::fs::read_to_string(&files[0]).unwrap().replacen("success", "refused", 1);
    std::fs::write(&files[0], trail).unwrap();
    let verified = run(&a, &verify);
    let whole: Vec<_> = text(&verified)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["file"].as_str().unwrap().to_owned(), line["whole"].as_bool().unwrap()))
        .collect();
    assert_eq!(whole, [(files[0].clone(), false), (files[1].clone(), true)]);
    assert_eq!(verified.status.code(), Some(1));
}

/// Both ends of a pipe that nobody reads any more.
fn closed_pipe() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

#[test]
fn readers_that_have_gone_are_no_reason_to_panic() {
    let directory = TempDir::new().unwrap();
    for (arguments, exit) in [(&["completions", "bash"][..], 0), (&["tools"], 0), (&["call", "nothing"], 3)] {
        let status = sekisho(&directory).args(arguments).stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
        assert_eq!(status.code(), Some(exit), "{arguments:?}");
    }
}
