//! Files of editors in a temporary home folder: connected, connected again, and undone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use url::Url;

use super::change::{Change, ChangeKind, EditorFile};
use super::document::{Document, Format};
use super::editors::{EDITORS, Editor, Folders, GATEWAY};
use super::entry::GatewayEntry;
use crate::cli::gateway_servers::GatewayServers;
use sekisho_config::{Config, Environment, OutboundConfig};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    editor: String,
    file: String,
    moves: BTreeMap<String, Value>,
    #[serde(default)]
    stays: BTreeMap<String, String>,
    #[serde(default)]
    has: Vec<String>,
    program: Value,
    address: Option<Value>,
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(include_str!("cases.yaml")).unwrap()
}

fn editor(name: &str) -> &'static Editor {
    EDITORS.iter().find(|editor| editor.name == name).unwrap()
}

fn environment(home: &Path) -> Environment {
    [("HOME", home.to_str().unwrap())].into_iter().collect()
}

fn folders(home: &Path) -> Folders {
    Folders::of(&environment(home)).unwrap()
}

fn program() -> GatewayEntry {
    let arguments = ["mcp", "serve"].map(str::to_owned).to_vec();
    GatewayEntry::Program { command: "/opt/sekisho".to_owned(), arguments, environment: Map::new() }
}

fn write(editor: &Editor, home: &Path, text: &str) {
    let path = editor.file(&folders(home));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text_of(editor: &Editor, home: &Path) -> String {
    fs::read_to_string(editor.file(&folders(home))).unwrap()
}

fn servers_of(editor: &Editor, home: &Path) -> Map<String, Value> {
    Document::parse(&text_of(editor, home), editor.format, editor.list).unwrap().servers().unwrap()
}

/// The servers of the gateway's own file.
fn servers_of_gateway(home: &Path) -> BTreeMap<String, Value> {
    let text = fs::read(home.join("state/mcp.json")).unwrap();
    let mut document: Value = serde_json::from_slice(&text).unwrap();
    serde_json::from_value(document["mcpServers"].take()).unwrap()
}

fn read(editor: &Editor, home: &Path) -> EditorFile {
    EditorFile::read(&editor.file(&folders(home))).unwrap()
}

fn try_connect(editor: &'static Editor, home: &Path) -> Result<Change, String> {
    let config = Config {
        state_directory: Some(home.join("state")),
        outbound: OutboundConfig {
            mcp_allowed_domains: vec!["allowed.example".to_owned()],
            ..OutboundConfig::default()
        },
        ..Config::default()
    };
    let mut servers = GatewayServers::read(config, environment(home))?;
    let change = Change::connect(editor, read(editor, home), &mut servers, &program())?;
    servers.write()?;
    if change.changes_file() {
        change.make()?;
    }
    Ok(change)
}

fn connect(editor: &'static Editor, home: &Path) -> Change {
    try_connect(editor, home).unwrap()
}

fn undo(editor: &'static Editor, home: &Path) {
    Change::undo(editor, read(editor, home)).unwrap().unwrap().make().unwrap();
}

fn notes(change: &Change, kind: ChangeKind) -> BTreeMap<String, Option<String>> {
    let servers = change.servers.iter().filter(|server| server.change == kind);
    servers.map(|server| (server.name.clone(), server.note.clone())).collect()
}

#[test]
fn each_editor_is_connected_once_and_gets_its_file_back() {
    for case in cases() {
        let (editor, home) = (editor(&case.editor), TempDir::new().unwrap());
        let home = home.path();
        write(editor, home, &case.file);
        assert!(editor.is_found(&folders(home)), "{}", case.editor);
        let change = connect(editor, home);

        let moved = notes(&change, ChangeKind::Moved);
        assert_eq!(moved.keys().collect::<Vec<_>>(), case.moves.keys().collect::<Vec<_>>(), "{}", case.editor);
        let stays = notes(&change, ChangeKind::Stays);
        assert_eq!(stays.keys().collect::<Vec<_>>(), case.stays.keys().collect::<Vec<_>>(), "{}", case.editor);
        for (name, reason) in stays {
            let reason = reason.unwrap();
            assert!(reason.contains(&case.stays[&name]), "{} {name}: {reason}", case.editor);
        }
        assert_eq!(servers_of_gateway(home), case.moves, "{}", case.editor);
        let servers = servers_of(editor, home);
        let names: BTreeSet<_> = servers.keys().map(String::as_str).collect();
        let expected: BTreeSet<_> = case.stays.keys().map(String::as_str).chain([GATEWAY]).collect();
        assert_eq!(names, expected, "{}", case.editor);
        assert_eq!(servers[GATEWAY], case.program, "{}", case.editor);
        let text = text_of(editor, home);
        let missing = case.has.iter().find(|part| !text.contains(&***part));
        assert_eq!(missing, None, "{}: {text}", case.editor);

        let again = connect(editor, home);
        assert!(!again.changes_file() && text_of(editor, home) == text, "{}", case.editor);
        undo(editor, home);
        assert_eq!(text_of(editor, home), case.file, "{}", case.editor);
        assert!(!read(editor, home).backup_path().exists());
        assert!(Change::undo(editor, read(editor, home)).unwrap().is_none());
    }
}

#[test]
fn the_gateway_at_an_address_has_the_form_of_the_editor() {
    let at = |needs_key| GatewayEntry::Address { url: "http://localhost:8080/mcp".to_owned(), needs_key };
    for Case { editor: name, address, .. } in cases() {
        let editor = editor(&name);
        match address {
            Some(address) => assert_eq!(at(true).entry(editor), Ok(address), "{name}"),
            None => assert!(at(true).entry(editor).unwrap_err().contains("without --http"), "{name}"),
        }
        let without_key = at(false).entry(editor);
        let is_said = without_key.as_ref().is_ok_and(|entry| entry.to_string().contains("SEKISHO_API_KEY"));
        assert!(!is_said && without_key.is_ok() == (name != "claude-desktop"), "{name}: {without_key:?}");
    }
}

#[test]
fn every_editor_has_a_case() {
    let names: Vec<_> = cases().into_iter().map(|case| case.editor).collect();
    assert_eq!(names, EDITORS.iter().map(|editor| editor.name).collect::<Vec<_>>());
}

/// As an editor that writes its whole file anew.
#[test]
fn a_server_that_is_added_later_moves_too_and_comes_back_with_the_others() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    write(editor, home, r#"{"mcpServers": {"a": {"command": "run-a"}}, "other": 1}"#);
    connect(editor, home);
    let mut servers = servers_of(editor, home);
    servers.insert("b".to_owned(), json!({"command": "run-b"}));
    write(editor, home, &json!({"mcpServers": servers, "other": 2}).to_string());
    let change = connect(editor, home);
    assert_eq!(notes(&change, ChangeKind::Moved), [("b".to_owned(), None)].into());
    assert_eq!(servers_of(editor, home).keys().collect::<Vec<_>>(), [GATEWAY]);
    undo(editor, home);
    let text: Value = serde_json::from_str(&text_of(editor, home)).unwrap();
    let expected = json!({"mcpServers": {"a": {"command": "run-a"}, "b": {"command": "run-b"}}, "other": 2});
    assert_eq!(text, expected);
}

#[test]
fn a_name_that_another_server_has_gets_the_editors_as_a_suffix() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    for (name, text, moved) in [
        (
            "cursor",
            r#"{"mcpServers": {"git": {"command": "run"}, "my tool": {"command": "x"}}}"#,
            [None, Some("my-tool")],
        ),
        (
            "windsurf",
            r#"{"mcpServers": {"git": {"command": "run"}, "my tool": {"command": "y"}}}"#,
            [None, Some("my-tool-windsurf")],
        ),
    ] {
        let editor = editor(name);
        write(editor, home, text);
        let change = connect(editor, home);
        let moved = moved.map(|moved| moved.map(str::to_owned));
        assert_eq!(notes(&change, ChangeKind::Moved).into_values().collect::<Vec<_>>(), moved, "{name}");
    }
    let names: Vec<_> = servers_of_gateway(home).into_keys().collect();
    assert_eq!(names, ["git", "my-tool", "my-tool-windsurf"]);
}

#[test]
fn a_gateway_is_not_moved_behind_the_gateway() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    for entry in [
        json!({"command": "/usr/bin/sekisho", "args": ["mcp", "serve"]}),
        json!({"command": "uvx", "args": ["sekisho", "--server", "http://localhost:8080", "mcp", "serve"]}),
    ] {
        write(editor, home, &json!({"mcpServers": {"mine": entry}}).to_string());
        let stays = notes(&connect(editor, home), ChangeKind::Stays);
        assert_eq!(stays["mine"].as_deref(), Some("it is a gateway"));
    }
}

#[test]
fn a_file_that_the_gateway_reads_itself_stays() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    let text = r#"{"mcpServers": {"a": {"command": "run-a"}}, "other": 1}"#;
    write(editor, home, text);
    let mut config = Config { state_directory: Some(home.join("state")), ..Config::default() };
    config.mcp.files = vec![editor.file(&folders(home))];
    let mut servers = GatewayServers::read(config, environment(home)).unwrap();
    let problem = Change::connect(editor, read(editor, home), &mut servers, &program()).err().unwrap();
    assert!(problem.contains("reads") && problem.contains("mcp.files"), "{problem}");
    assert_eq!(text_of(editor, home), text);
}

/// It would keep the gateway from starting in an editor without the variable.
#[test]
fn a_server_whose_program_or_address_is_a_variable_stays() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    let text = r#"{"mcpServers": {"a": {"command": "${env:HOME}"}, "b": {"command": "${env:HOME}/run"}}}"#;
    write(editor, home, text);
    let change = connect(editor, home);
    let stays = notes(&change, ChangeKind::Stays);
    assert!(stays["a"].as_deref().unwrap().contains("a variable of it is not set"), "{stays:?}");
    assert_eq!(notes(&change, ChangeKind::Moved), [("b".to_owned(), None)].into());
}

#[test]
fn servers_come_back_also_where_the_gateway_was_removed_by_hand() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    write(editor, home, r#"{"mcpServers": {"a": {"command": "run-a", "timeout": 5}}}"#);
    connect(editor, home);
    write(editor, home, r#"{"mcpServers": {}, "other": 1}"#);
    connect(editor, home);
    undo(editor, home);
    let text: Value = serde_json::from_str(&text_of(editor, home)).unwrap();
    assert_eq!(text, json!({"mcpServers": {"a": {"command": "run-a", "timeout": 5}}, "other": 1}));
}

#[test]
fn a_missing_file_is_made_and_removed() {
    for editor in &EDITORS {
        let home = TempDir::new().unwrap();
        let home = home.path();
        connect(editor, home);
        assert_eq!(servers_of(editor, home).keys().collect::<Vec<_>>(), [GATEWAY], "{}", editor.name);
        undo(editor, home);
        assert!(!editor.file(&folders(home)).exists(), "{}", editor.name);
    }
}

#[test]
fn a_linked_file_stays_linked_with_its_permissions() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    write(editor, home, "{}");
    let (path, real) = (editor.file(&folders(home)), home.join("dotfiles.json"));
    fs::rename(&path, &real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    connect(editor, home);
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains(GATEWAY));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_file_that_changed_meanwhile_is_not_overwritten() {
    let (editor, home) = (editor("cursor"), TempDir::new().unwrap());
    let home = home.path();
    write(editor, home, "{}");
    connect(editor, home);
    let change = Change::undo(editor, read(editor, home)).unwrap().unwrap();
    write(editor, home, r#"{"mcpServers": {"new": {"command": "x"}}}"#);
    assert!(change.make().unwrap_err().contains("meanwhile"));
    assert!(text_of(editor, home).contains("new"));
}

#[test]
fn a_file_of_another_form_is_refused_without_its_values_and_stays() {
    for (name, text, expected) in [
        ("cursor", "[]", "is not a JSON object"),
        ("cursor", r#"{"mcpServers": ["hunter2"]}"#, "`mcpServers` that is not an object"),
        ("cursor", r#"{"mcpServers": {}, "mcpServers": {}}"#, "`mcpServers` twice"),
        ("cursor", r#"{"mcpServers": {"a": {}, "a": {}}}"#, "the server \"a\" twice"),
        ("cursor", "{\n  \"key\": hunter2}", "is not JSON"),
        ("cursor", "{'mcpServers': {}}", "is not JSON"),
        ("codex", "a = 1\nkey = hunter2\n", "is not TOML"),
        ("codex", "mcp_servers = 'hunter2'", "`mcp_servers` that is not an object"),
    ] {
        let (editor, home) = (editor(name), TempDir::new().unwrap());
        write(editor, home.path(), text);
        let problem = try_connect(editor, home.path()).err().unwrap();
        assert!(problem.contains(expected) && !problem.contains("hunter2"), "{text}: {problem}");
        assert!(problem.ends_with("; correct the file, or move it away"), "{text}: {problem}");
        assert_eq!(text_of(editor, home.path()), text);
    }
}

#[test]
fn an_entry_of_toml_is_written_and_read() {
    let mut document = Document::parse("a = 1 # Mine.\n", Format::Toml, "mcp_servers").unwrap();
    let entry = json!({"command": "x", "args": ["a", "b c"], "env": {"A": "1"}, "n": 3, "f": 1.5, "t": true});
    document.set("a.b", &entry);
    let text = document.text();
    assert!(text.starts_with("a = 1 # Mine.\n") && text.contains("[mcp_servers.\"a.b\"]\ncommand = \"x\"\n"), "{text}");
    let read = Document::parse(&text, Format::Toml, "mcp_servers").unwrap().servers().unwrap();
    assert_eq!(read["a.b"], entry);
}

#[test]
fn the_address_is_the_configured_or_the_given_one() {
    let at = |given: Option<&str>, config: &Config| {
        let given = given.map(|text| Url::parse(text).unwrap());
        match super::gateway_at(given.as_ref(), config).unwrap() {
            GatewayEntry::Address { url, needs_key } => (url, needs_key),
            GatewayEntry::Program { .. } => panic!("a program"),
        }
    };
    let mut config = Config::default();
    assert_eq!(at(None, &config), ("http://127.0.0.1:8080/mcp".to_owned(), false));
    config.server.listen = ([0, 0, 0, 0], 81).into();
    assert_eq!(at(None, &config), ("http://localhost:81/mcp".to_owned(), true));
    for (given, expected, needs_key) in [
        ("https://gateway.example.com", "https://gateway.example.com/mcp", true),
        ("http://localhost:8080/mcp/team", "http://localhost:8080/mcp/team", false),
    ] {
        assert_eq!(at(Some(given), &config), (expected.to_owned(), needs_key));
    }
}
