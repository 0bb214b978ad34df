//! Lists of MCP servers in the files of other programs: `mcpServers` (D4) and `.mcp_servers` (A49).
//!
//! They are read unchanged: keys that only concern the other program are ignored, and others that are not read are reported.

pub mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};
use url::Url;

use super::{McpSandbox, McpServerSettings, McpTransport, prepared_server};
use crate::yaml::interpolate::expand_text;
use crate::{ConfigError, Environment, Secret};
use sekisho_core::json;

/// Keys for lists of servers: of most programs, of VS Code, and of A49.
const LISTS: [&str; 3] = ["mcpServers", "servers", "httpStreamableServers"];

/// Members of an entry that are read.
const READ: [&str; 14] = [
    "args",
    "command",
    "cwd",
    "disabled",
    "enabled",
    "env",
    "headers",
    "overlay",
    "requiresAuth",
    "sandbox",
    "serverUrl",
    "transport",
    "type",
    "url",
];

/// Members about how the other program shows its servers or asks its user, which mean nothing here.
const OF_THE_OTHER: [&str; 11] = [
    "alwaysAllow",
    "autoApprove",
    "description",
    "gallery",
    "icon",
    "name",
    "note",
    "tags",
    "title",
    "trust",
    "version",
];

/// Reads the servers of a file, with `${NAME}` replaced from the environment.
/// Errors: a file that cannot be read, is not JSON, contains no servers, or has an invalid entry.
pub fn read(file: &Path, environment: &Environment) -> Result<BTreeMap<String, McpServerSettings>, ConfigError> {
    let text = fs::read(file).map_err(|error| ConfigError::unreadable(file, &error))?;
    parse(&text, environment).map_err(|problem| {
        ConfigError::of_file(file, problem)
            .advise(r#"write it like {"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}"#)
    })
}

/// Like [`read`], for a file's text.
/// Errors: the error, without any value of the file.
pub fn parse(text: &[u8], environment: &Environment) -> Result<BTreeMap<String, McpServerSettings>, String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let document: Map<String, Value> =
        json::parse_as(text).map_err(|problem| format!("is not a JSON object: {problem}{}", about_comments(text)))?;
    let lists = LISTS.iter().filter_map(|list| Some((*list, document.get(*list)?)));
    let mut servers = BTreeMap::new();
    let mut named_any = false;
    for (list, entries) in lists {
        named_any = true;
        let entries = entries.as_object().ok_or_else(|| format!("`{list}` is not an object of servers by name"))?;
        for (name, entry) in entries {
            let settings = server(entry, environment).map_err(|problem| format!("`{list}.{name}` {problem}"))?;
            if servers.insert(as_name(name), settings).is_some() {
                return Err(format!("duplicate server name `{list}.{name}`"));
            }
        }
    }
    if named_any { Ok(servers) } else { Err("has no `mcpServers`".to_owned()) }
}

/// The remedy for a file of an editor that takes more than JSON.
fn about_comments(text: &[u8]) -> &'static str {
    let has_comment = |line: &str| ["//", "/*"].iter().any(|start| line.trim_start().starts_with(start));
    match String::from_utf8_lossy(text).lines().any(has_comment) {
        true => "; JSON has no comments: remove the lines with `//` and `/*`",
        false => "",
    }
}

/// Names of other programs may contain spaces and dots; tools' names may not.
pub fn as_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' }).take(48).collect()
}

fn server(entry: &Value, environment: &Environment) -> Result<McpServerSettings, String> {
    let entry = entry.as_object().ok_or("is not an object")?;
    let text = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expand_text(text, environment).map(Some).map_err(|why| format!("`{key}`: {why}")),
        Some(_) => Err(format!("`{key}` is not a string")),
    };
    let flag = |key: &str| entry.get(key).and_then(Value::as_bool);
    let url = match text("url")?.or(text("serverUrl")?) {
        Some(url) => Some(Url::parse(&url).map_err(|problem| format!("`url` is not a URL: {problem}"))?),
        None => None,
    };
    let transport = match text("type")?.or(text("transport")?).as_deref() {
        Some("sse") => McpTransport::Sse,
        Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => McpTransport::StreamableHttp,
        _ => McpTransport::Auto,
    };
    // Another program may have a member with this name and another content.
    let sandbox = entry.get("sandbox").map(|sandbox| serde_json::from_value::<McpSandbox>(sandbox.clone()));
    let overlay = text("overlay").ok().flatten().filter(|name| prepared_server(name).is_some());
    let is_other = |key: &str| match key {
        "sandbox" => matches!(sandbox, Some(Err(_))),
        "overlay" => overlay.is_none(),
        _ => false,
    };
    let is_unread = |key: &str| !is_known(key) || is_other(key);
    let unread = entry.keys().filter(|key| is_unread(key)).cloned().collect();
    let command = text("command")?;
    if command.is_none() && url.is_none() {
        return Err("has neither `command` nor `url`".to_owned());
    }
    let has_command = command.is_some();
    Ok(McpServerSettings {
        command,
        args: list(entry, "args", environment)?,
        env: texts(entry, "env", environment)?,
        env_references: references(entry, "env"),
        unread,
        variables: ["env", "headers"].into_iter().flat_map(|key| variables(entry, key)).collect(),
        cwd: text("cwd")?.map(Into::into),
        sandbox: sandbox.and_then(Result::ok).filter(|_| has_command).unwrap_or_default(),
        overlay,
        url,
        transport,
        headers: texts(entry, "headers", environment)?,
        requires_auth: flag("requiresAuth").unwrap_or_default(),
        disabled: flag("disabled").unwrap_or_default() || flag("enabled") == Some(false),
        ..McpServerSettings::default()
    })
}

fn is_known(member: &str) -> bool {
    READ.contains(&member) || OF_THE_OTHER.contains(&member) || member.starts_with(['_', '$'])
}

fn list(entry: &Map<String, Value>, key: &str, environment: &Environment) -> Result<Vec<String>, String> {
    let items = match entry.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(format!("`{key}` is not a list")),
    };
    let text = |item: &Value| {
        let text = item.as_str().ok_or_else(|| format!("`{key}` contains an item that is not a string"))?;
        expand_text(text, environment).map_err(|why| format!("`{key}`: {why}"))
    };
    items.iter().map(text).collect()
}

fn texts(entry: &Map<String, Value>, key: &str, environment: &Environment) -> Result<BTreeMap<String, Secret>, String> {
    let members = match entry.get(key) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(format!("`{key}` is not an object of strings")),
    };
    let text = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => expand_text(text, environment).map_err(|why| format!("`{key}.{name}`: {why}"))?,
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            _ => return Err(format!("`{key}.{name}` is not a string")),
        };
        Ok((name.clone(), Secret::new(value)))
    };
    members.iter().map(text).collect()
}

/// The members with a text that names a variable.
fn references(entry: &Map<String, Value>, key: &str) -> BTreeSet<String> {
    let members = entry.get(key).and_then(Value::as_object).into_iter().flatten();
    let named = members.filter(|(_, value)| value.as_str().is_some_and(|text| text.contains("${")));
    named.map(|(name, _)| name.clone()).collect()
}

/// By `key.NAME`, the first variable that a member names.
fn variables(entry: &Map<String, Value>, key: &str) -> Vec<(String, String)> {
    let members = entry.get(key).and_then(Value::as_object).into_iter().flatten();
    let named = members.filter_map(|(name, value)| {
        let (_, reference) = value.as_str()?.split_once("${")?;
        let variable = reference.trim_start_matches("env:").split([':', '}']).next()?;
        Some((format!("{key}.{name}"), variable.to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::McpConfig;

    fn parsed(text: &str) -> Result<BTreeMap<String, McpServerSettings>, String> {
        parse(text.as_bytes(), &Environment::from_iter([("TOKEN", "t0p"), ("HOME", "/home/me")]))
    }

    #[test]
    fn files_of_other_programs_are_read_unchanged() {
        let servers = parsed(
            r#"{"globalShortcut": "x", "mcpServers": {
                "time": {"command": "uvx", "args": ["mcp-server-time", "${HOME}/x"], "env": {"KEY": "${TOKEN}", "N": 1},
                         "autoApprove": ["a"], "disabled": false},
                "my server.v2": {"type": "sse", "url": "https://mcp.example.com/sse", "headers": {"X-Key": "${env:TOKEN}"}},
                "off": {"command": "x", "disabled": true}}}"#,
        )
        .unwrap();
        let time = &servers["time"];
        assert_eq!(time.args, ["mcp-server-time", "/home/me/x"]);
        assert_eq!(time.env["KEY"].expose(), "t0p");
        assert_eq!(time.env["N"].expose(), "1");
        assert_eq!(time.env_references, BTreeSet::from(["KEY".to_owned()]));
        assert!(!time.disabled && servers["off"].disabled);
        let other = &servers["my-server-v2"];
        assert_eq!(other.transport, McpTransport::Sse);
        assert_eq!(other.headers["X-Key"].expose(), "t0p");
    }

    #[test]
    fn members_that_have_no_effect_are_reported() {
        let servers = parsed(
            r#"{"mcpServers": {
                "a": {"command": "x", "options": {"cwd": "/srv", "env": {"K": "hunter2"}}, "disabledTools": ["rm"], "_comment": "z"},
                "b": {"command": "x", "autoApprove": ["a"], "type": "stdio"}}}"#,
        );
        let config = McpConfig { servers: servers.unwrap(), ..McpConfig::default() };
        let notes: Vec<_> = config.notes().collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let (setting, note) = &notes[0];
        assert_eq!(setting, "mcp.servers.a");
        assert!(
            note.contains("`disabledTools`, `options`; write `cwd` and `env` of `options` beside `command`"),
            "{note}"
        );
        assert!(!note.contains("hunter2"), "{note}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let servers = parsed(
            r#"{"mcpServers": {
                "a": {"command": "x", "env": {"KEY": "${A_KEY:-}", "SET": "${TOKEN:-}", "NONE": ""}},
                "b": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${env:B_KEY:-}"}, "other": 1},
                "c": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN:-}"}}}}"#,
        );
        let config = McpConfig { servers: servers.unwrap(), ..McpConfig::default() };
        let notes: Vec<_> = config.notes().collect();
        let unset = "; set them where the gateway is started";
        let unread = "members of its entry in the `mcpServers` file that are not read: `other`";
        assert_eq!(
            notes,
            [
                ("mcp.servers.a".to_owned(), format!("variables that are not set: `A_KEY` (`env.KEY`){unset}")),
                (
                    "mcp.servers.b".to_owned(),
                    format!("{unread}; variables that are not set: `B_KEY` (`headers.Authorization`){unset}")
                ),
            ]
        );
    }

    #[test]
    fn a_file_of_another_program_ends_no_sandbox() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        fs::write(&file, r#"{"mcpServers": {"a": {"command": "x", "sandbox": "off"}}}"#).unwrap();
        let read = |files: &[&Path]| {
            let files = files.iter().map(|file| (*file).to_owned()).collect();
            let mut config = McpConfig { files, ..McpConfig::default() };
            let errors = config.read_files(std::slice::from_ref(&file), &Environment::default());
            assert!(errors.is_empty(), "{errors:?}");
            config
        };
        let named = read(&[&file]);
        assert_eq!(named.servers["a"].sandbox, McpSandbox::default());
        let notes: Vec<_> = named.notes().collect();
        assert!(
            notes.len() == 1 && notes[0].1.contains("not read: `sandbox`; only an entry in `mcp.servers`"),
            "{notes:?}"
        );
        // The gateway's own.
        assert_eq!(read(&[]).servers["a"].sandbox, McpSandbox::Off);
    }

    #[test]
    fn the_list_of_streamable_servers_is_read() {
        let servers = parsed(
            r#"{"httpStreamableServers": {"met-data": {"url": "https://met.example.com/mcp", "requiresAuth": true},
                "mcp-doc-srch": {"url": "https://docs.example.com/mcp", "requiresAuth": false}}}"#,
        )
        .unwrap();
        assert!(servers["met-data"].requires_auth && !servers["mcp-doc-srch"].requires_auth);
        assert_eq!(servers["met-data"].url.as_ref().unwrap().as_str(), "https://met.example.com/mcp");
    }

    #[test]
    fn an_error_names_the_entry_and_shows_no_value() {
        let cases = [
            ("[]", "is not a JSON object"),
            ("{\n// servers\n}", "JSON has no comments"),
            ("{}", "has no `mcpServers`"),
            (r#"{"mcpServers": []}"#, "`mcpServers` is not an object"),
            (r#"{"mcpServers": {"a": {}}}"#, "`mcpServers.a` has neither `command` nor `url`"),
            (r#"{"mcpServers": {"a": {"url": "hunter2"}}}"#, "`mcpServers.a` `url` is not a URL"),
            (r#"{"mcpServers": {"a": {"command": "x", "env": {"K": ["hunter2"]}}}}"#, "`env.K` is not a string"),
            (r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET}"}}}}"#, "NOT_SET"),
            (r#"{"mcpServers": {"a b": {"command": "x"}, "a.b": {"command": "x"}}}"#, "duplicate server name"),
        ];
        for (text, expected) in cases {
            let problem = parsed(text).unwrap_err();
            assert!(problem.contains(expected) && !problem.contains("hunter2"), "{problem}");
        }
    }
}
