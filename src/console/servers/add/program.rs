//! Adds a program: it is run once in its sandbox, shown with the smallest profile that it needed, and then added with that profile.
//!
//! A program is started by the gateway's user. So only a visitor who followed a link of `sekisho console`, which that user can open, may add
//! one: no key and no role gives this right, as over HTTP.

use std::path::Path;
use std::sync::Arc;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::{Added, Control, Field, Outcome, inputs};
use crate::submitted::Submitted;
use crate::visit::{TOKEN_FIELD, Visit};
use crate::{Console, format};
use sekisho_api::record_change;
use sekisho_audit::EventKind;
use sekisho_config::{Config, Environment, McpSandbox, McpServerSettings, mcp_file};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_mcp_client::{ObservedCall, ObservedRun};

/// The kind of the form.
pub(super) const KIND: &str = "program";

const PROGRAM: [Field; 5] = [
    Field { name: "name", label: "server-name", placeholder: "time", control: Control::Required },
    Field { name: "command", label: "add-command", placeholder: "uvx", control: Control::Required },
    Field { name: "args", label: "add-arguments", placeholder: "mcp-server-time", control: Control::Text },
    Field { name: "env", label: "add-variables", placeholder: "API_KEY=${API_KEY}", control: Control::Text },
    Field { name: "calls", label: "add-calls", placeholder: "read {\"path\": \"a\"}", control: Control::Text },
];

/// Runs the program, or adds it.
/// Errors: `denied`: the visitor is not this machine's user. `invalid_request`: the form, or the entry that it makes.
pub(super) async fn submit(console: &Console, submitted: &Submitted, adds: bool) -> Result<Added, CallError> {
    if !submitted.visit.is_local_user(console) {
        let message = "programs are added by this machine's user: run `sekisho console`, or `sekisho mcp add`, on it";
        return Err(CallError::new(ErrorCode::Denied, message));
    }
    submitted.shared_administrator()?;
    let config = Arc::clone(&*console.gateway.configuration().current());
    let (name, mut entry) = (submitted.field("name"), entry_of(submitted)?);
    if console.gateway.mcp_servers().added(name).is_some() {
        return Err(known(name));
    }
    if adds {
        entry.insert("sandbox".to_owned(), observed_sandbox(submitted)?);
    }
    // Also of an entry that is added: with an invalid profile the gateway would not read the file any more.
    let settings = settings_of(&config, name, &entry)?;
    if adds {
        return add(console, submitted, &config, entry).await.map(Ok);
    }
    let calls = submitted.field("calls").lines().map(str::trim).filter(|line| !line.is_empty());
    let calls = calls.map(call_of).collect::<Result<Vec<_>, _>>()?;
    let run = Box::pin(console.gateway.mcp_servers().observe(name, settings, &config, calls)).await;
    Ok(Err(Outcome::Observed(Box::new(run))))
}

fn known(name: &str) -> CallError {
    CallError::invalid(format!("there is a server {name:?}; remove it first"))
}

/// The entry of a file of servers. No value of a variable is in an error.
fn entry_of(submitted: &Submitted) -> Result<Map<String, Value>, CallError> {
    let lines = |name: &str| submitted.field(name).lines().map(str::trim).filter(|line| !line.is_empty());
    let mut variables = Map::new();
    for line in lines("env") {
        let (name, value) =
            line.split_once('=').ok_or_else(|| CallError::invalid("a variable is written `NAME=value`"))?;
        variables.insert(name.trim().to_owned(), value.trim().into());
    }
    let command = submitted.text("command").ok_or_else(|| CallError::invalid("name a program"))?;
    let args: Vec<_> = lines("args").collect();
    let mut entry = Map::from_iter([("command".to_owned(), json!(command)), ("args".to_owned(), json!(args))]);
    if !variables.is_empty() {
        entry.insert("env".to_owned(), variables.into());
    }
    Ok(entry)
}

/// As a file with this entry would be read, beside the other servers.
fn settings_of(config: &Config, name: &str, entry: &Map<String, Value>) -> Result<McpServerSettings, CallError> {
    if config.mcp.servers.contains_key(name) {
        return Err(known(name));
    }
    let environment =
        Environment::of_process(config.file.as_deref()).map_err(|error| CallError::invalid(error.to_string()))?;
    let text = json!({"mcpServers": {name: entry}}).to_string();
    let mut servers = mcp_file::parse(text.as_bytes(), &environment).map_err(CallError::invalid)?;
    let settings = servers.remove(name);
    let settings = settings.ok_or_else(|| CallError::invalid("a name has at most 48 letters, digits, `_` and `-`"))?;
    let mut with_it = config.clone();
    with_it.mcp.servers.insert(name.to_owned(), settings.clone());
    match with_it.check().first() {
        Some(error) => Err(CallError::invalid(error.to_string())),
        None => Ok(settings),
    }
}

/// `TOOL {"argument": "value"}`; without the second, there are no arguments.
fn call_of(line: &str) -> Result<ObservedCall, CallError> {
    let (tool, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, "{}"));
    let arguments = serde_json::from_str(arguments).map_err(|error| {
        CallError::invalid(format!(
            "a call is written `TOOL {{\"argument\": \"value\"}}`; the arguments of {tool} are invalid: {error}"
        ))
    })?;
    Ok(ObservedCall { tool: tool.to_owned(), arguments })
}

/// The profile of the run.
fn observed_sandbox(submitted: &Submitted) -> Result<Value, CallError> {
    let sent = submitted.text("sandbox").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let is_on = |sandbox: &Value| matches!(serde_json::from_value(sandbox.clone()), Ok(McpSandbox::On(_)));
    sent.filter(is_on).ok_or_else(|| CallError::invalid("run the program once before it is added"))
}

/// Adds the entry to the first file of servers, from which the gateway reads it.
async fn add(
    console: &Console,
    submitted: &Submitted,
    config: &Config,
    entry: Map<String, Value>,
) -> Result<String, CallError> {
    let file = config.mcp_files().into_iter().next().ok_or_else(|| CallError::invalid("`mcp.files` names no file"))?;
    let name = submitted.field("name").to_owned();
    let event = submitted.event(EventKind::McpServerRegistered, &name);
    let change = async move { write(&file, &name, entry) };
    record_change(&console.gateway, event, change).await?;
    Ok("/console/servers".to_owned())
}

fn write(file: &Path, name: &str, entry: Map<String, Value>) -> Result<(), CallError> {
    let mut servers = mcp_file::entries::read(file).map_err(CallError::invalid)?;
    if servers.contains_key(name) {
        return Err(known(name));
    }
    servers.insert(name.to_owned(), entry.into());
    mcp_file::entries::write(file, &servers).map_err(CallError::invalid)
}

/// The form of a program, which runs it.
pub(super) fn form(visit: &Visit, sent: Option<&Submitted>) -> Markup {
    let texts = visit.texts();
    html! {
        form.stack method="post" action="/console/servers/add" {
            (inputs(visit, KIND, &PROGRAM, sent))
            p.help { (texts.get("add-program-help")) }
            div.buttons { button.main name="mode" value="test" { (texts.get("add-observe")) } }
        }
    }
}

/// The profile that a run needed, with the form that adds the program as it ran.
pub(super) fn result(visit: &Visit, submitted: Option<&Submitted>, run: &ObservedRun) -> Markup {
    let texts = visit.texts();
    html! {
        @match &run.problem {
            Some(problem) => {
                div.notice.bad #problems tabindex="-1" role="alert" { p { "✕ " (format::text(problem)) } }
            },
            None => { p.notice role="status" { "✓ " (texts.get("add-program-works")) } },
        }
        @if let Some(profile) = &run.profile {
            pre tabindex="0" { code { (format::text(&profile.to_string())) } }
            @if let Some(ran) = submitted.filter(|_| run.problem.is_none()) {
                form method="post" action="/console/servers/add" {
                    input type="hidden" name=(TOKEN_FIELD) value=(visit.form_token().unwrap_or_default());
                    input type="hidden" name="kind" value=(KIND);
                    @for Field { name, .. } in &PROGRAM { input type="hidden" name=(name) value=(ran.field(name)); }
                    input type="hidden" name="sandbox" value=(profile.entry().to_string());
                    button.main name="mode" value="add" { (texts.get("add-add")) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_tool_with_its_arguments() {
        for (line, expected) in [
            ("read", Some(("read", json!({})))),
            ("read {\"path\": \"a b\"}", Some(("read", json!({"path": "a b"})))),
            ("read [1]", None),
            ("read {", None),
        ] {
            let call = call_of(line).ok().map(|call| (call.tool, Value::Object(call.arguments)));
            assert_eq!(call, expected.map(|(tool, arguments)| (tool.to_owned(), arguments)), "{line}");
        }
    }

    #[test]
    fn an_entry_is_read_as_in_a_file_and_its_name_is_free() {
        let mut config = Config::default();
        config.mcp.servers.insert("taken".to_owned(), McpServerSettings::default());
        let entry = Map::from_iter([("command".to_owned(), json!("uvx")), ("args".to_owned(), json!(["a"]))]);
        let refused = |name: &str| settings_of(&config, name, &entry).unwrap_err().message().to_owned();
        assert!(refused("taken").contains("there is a server"), "{}", refused("taken"));
        assert!(refused("a name").contains("letters"), "{}", refused("a name"));
        let config = Config::default();
        let settings = settings_of(&config, "free", &entry).unwrap();
        assert_eq!((settings.command.as_deref(), &*settings.args), (Some("uvx"), &["a".to_owned()][..]));
    }
}
