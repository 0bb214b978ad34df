//! A server's resources, prompts and completion. Each is registered like a tool, under the name used in policies and
//! overrides, so that its calls pass the same stages.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Server;
use super::catalogue::source;
use sekisho_calls::registry::unknown_target;
use sekisho_calls::tool::{Attempt, Destination, Execution, Executor, ToolDefinition};
use sekisho_calls::tool::{FlowMetadata, Metadata, qualified_name};
use sekisho_config::McpServerSettings;
use sekisho_core::call::{Arguments, CallContext, CallKind, Caller, Stage, ToolOutput, Upstream};
use sekisho_core::error::{CallError, ErrorCode};

/// An argument of a call that asks for a resource's changes instead of its contents. Clients do not write it.
pub(crate) const SUBSCRIBE: &str = "subscribe";

/// A server's resources, prompts or completion.
#[derive(Debug)]
struct Operation {
    server: Arc<Server>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Get,
    Complete,
}

/// The operations of a server that are not tools.
pub(crate) fn of(server: &Arc<Server>) -> Vec<ToolDefinition> {
    let [read, get, complete] = NAMES;
    [
        (CallKind::Resource, read, Kind::Read),
        (CallKind::Prompt, get, Kind::Get),
        (CallKind::Completion, complete, Kind::Complete),
    ]
    .map(|(target, name, kind)| {
        definition(server, target, name, Arc::new(Operation { server: Arc::clone(server), kind }))
    })
    .into()
}

/// The names of the operations, behind the prefix of the server's tools.
const NAMES: [&str; 3] = ["resources_read", "prompts_get", "complete"];

/// Whether the caller's key and endpoint leave an operation of the server to the caller.
pub(crate) fn are_some_left_to(caller: &Caller, server: &Server, settings: &McpServerSettings) -> bool {
    NAMES.iter().any(|name| caller.tools.admits(&name_of(server, settings, name)))
}

fn name_of(server: &Server, settings: &McpServerSettings, name: &str) -> String {
    // The prefix of its tools' names, where there is one.
    let prefix = settings.alias.as_deref().unwrap_or(server.name());
    qualified_name(prefix, name).to_string()
}

fn definition(server: &Server, kind: CallKind, name: &str, executor: Arc<dyn Executor>) -> ToolDefinition {
    let settings = server.settings();
    let metadata = Metadata {
        kind,
        name: name_of(server, settings, name),
        category: settings.category.clone(),
        author: server.name().to_owned(),
        source: source(server.name()),
        labels: settings.labels.0.names.clone().unwrap_or_default(),
        flow: FlowMetadata::of_source(&settings.labels.0),
        timeout_seconds: settings.timeout_seconds,
        rate_limit: settings.rate_limit.unwrap_or(server.rate_limit),
        roles: settings.roles.clone(),
        owner: settings.owner.clone(),
        // No text is made of it for a model, and `max_message_bytes` has bounded it already.
        max_text_tokens: 0,
        max_output_bytes: usize::MAX,
        ..Metadata::default()
    };
    ToolDefinition { metadata, parameters: json!({"type": "object"}).into(), output_schema: None, executor }
}

impl Executor for Operation {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        match self.kind {
            Kind::Read => Box::pin(self.read(attempt, arguments)),
            Kind::Get => Box::pin(self.get(attempt, arguments)),
            Kind::Complete => Box::pin(self.complete(attempt, arguments)),
        }
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn upstream(&self, _arguments: &Arguments) -> Option<Upstream> {
        Some(self.server.upstream.clone())
    }

    fn destination<'a>(&'a self, call: &'a CallContext, arguments: &'a Arguments) -> Option<Destination<'a>> {
        let method = match self.kind {
            Kind::Read if arguments.contains_key(SUBSCRIBE) => "resources/subscribe",
            Kind::Read => "resources/read",
            Kind::Get => "prompts/get",
            Kind::Complete => "completion/complete",
        };
        Some(self.server.destination(call, method, ""))
    }

    fn identity(&self) -> Option<String> {
        Some(self.server.connector.identity())
    }
}

impl Operation {
    async fn read(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let Attempt { call, deadline, .. } = attempt;
        let Self { server, .. } = self;
        let uri = text(arguments, "uri");
        let own = own_uri(server, uri).ok_or_else(|| unknown_target(CallKind::Resource, uri))?;
        if arguments.contains_key(SUBSCRIBE) {
            server.subscribe(call, deadline, &own).await?;
            return Ok(result(Value::Object(Map::new())));
        }
        let params = Map::from_iter([("uri".to_owned(), own.into_owned().into())]);
        let mut read = server.ask(call, deadline, "resources/read", params).await?;
        for content in read.get_mut("contents").and_then(Value::as_array_mut).into_iter().flatten() {
            server.names().adopt_uri(content);
            server.names().adopt_app(content);
        }
        server.names().adopt_app(&mut read);
        Ok(result(read))
    }

    async fn get(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let Self { server, .. } = self;
        let own = own_prompt(server, text(arguments, "name"))?;
        let mut params = arguments.clone();
        params.insert("name".to_owned(), own.into());
        let mut got = server.ask(attempt.call, attempt.deadline, "prompts/get", params).await?;
        for message in got.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(content) = message.get_mut("content") {
                server.names().adopt(content);
            }
        }
        Ok(result(got))
    }

    async fn complete(&self, attempt: Attempt<'_>, arguments: &Arguments) -> Result<ToolOutput, CallError> {
        let Self { server, .. } = self;
        let mut params = arguments.clone();
        if let Some(Value::Object(reference)) = params.get_mut("ref") {
            let (member, own) = if is_prompt(reference) {
                ("name", own_prompt(server, text(reference, "name"))?)
            } else {
                let uri = text(reference, "uri");
                let own = own_uri(server, uri).ok_or_else(|| unknown_target(CallKind::Resource, uri))?;
                ("uri", own.into_owned())
            };
            reference.insert(member.to_owned(), own.into());
        }
        let completed = server.ask(attempt.call, attempt.deadline, "completion/complete", params).await;
        completed.map(result)
    }
}

/// Whether the `ref` of a completion names a prompt; otherwise it names a resource.
pub(crate) fn is_prompt(reference: &Map<String, Value>) -> bool {
    text(reference, "type") == "ref/prompt"
}

pub(crate) fn text<'a>(members: &'a Map<String, Value>, name: &str) -> &'a str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn own_uri<'a>(server: &Server, uri: &'a str) -> Option<Cow<'a, str>> {
    server.names().own_uri(uri)
}

/// The server's own name of a prompt that it lists, unless the lock objects to the server's current texts for models.
fn own_prompt(server: &Server, name: &str) -> Result<String, CallError> {
    let own = server.catalogue.load().prompt_names.get(name).cloned();
    let own = own.ok_or_else(|| unknown_target(CallKind::Prompt, name))?;
    match server.lock_violation() {
        None => Ok(own),
        Some(violation) => {
            let what = format!("the text of the MCP server {} (instructions and prompts)", server.name());
            let message =
                format!("{what} is quarantined: {violation}; an operator can review it with `sekisho lock diff`");
            Err(CallError::new(ErrorCode::ToolChanged, message).at_stage(Stage::Find))
        }
    }
}

/// A result of the protocol. A model does not get it as text.
fn result(value: Value) -> ToolOutput {
    ToolOutput { value, text: Some(String::new()), ..ToolOutput::default() }
}
