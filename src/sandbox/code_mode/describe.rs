//! The answers to a program's questions about tools: the tools that its caller may use, and nothing about others.

use serde_json::{Value, json};

use super::ProgramTools;
use super::for_models::python_function;
use sekisho_calls::policy::CallerTools;
use sekisho_calls::registry::{nearest_names, shown_name};
use sekisho_calls::tool::Tool;
use sekisho_core::error::{CallError, ErrorCode};

/// Maximum hits of a search.
const MAX_HITS: usize = 50;

/// Maximum bytes of the line about a hit.
const MAX_LINE: usize = 300;

impl ProgramTools<'_> {
    /// A tool by its name.
    /// Errors of a call of it, as far as they do not depend on the arguments.
    pub(super) fn describe(&self, name: &str) -> Result<Value, CallError> {
        let tools = self.tools();
        self.described(&tools, name)
    }

    /// The tool whose name becomes an identifier of Python.
    /// Errors: as [`describe`](Self::describe); `unknown_tool` if there are several.
    pub(super) fn describe_identifier(&self, identifier: &str) -> Result<Value, CallError> {
        let tools = self.tools();
        let mut names = self.names_of(identifier, &tools);
        match (names.next(), names.next()) {
            (Some(one), Some(other)) => Err(ambiguous(identifier, one, other)),
            (one, _) => self.described(&tools, one.unwrap_or(identifier)),
        }
    }

    /// The tools that fit a task best.
    pub(super) fn search(&self, query: &str, limit: u32) -> Value {
        let tools = self.tools();
        let limit = usize::try_from(limit).unwrap_or(MAX_HITS).min(MAX_HITS);
        let found = tools.search(query, usize::MAX).into_iter().map(|(tool, _)| tool);
        let hits = found.filter(|tool| self.may_name(tool.name())).take(limit).map(|tool| {
            let is_ambiguous = self.names_of(&identifier_of(tool.name()), &tools).nth(1).is_some();
            json!({"name": tool.name(), "description": first_line(tool), "ambiguous": is_ambiguous})
        });
        hits.collect::<Vec<_>>().into()
    }

    fn tools(&self) -> CallerTools {
        self.pipeline.tools_for(&self.call.caller)
    }

    fn described(&self, tools: &CallerTools, name: &str) -> Result<Value, CallError> {
        if !self.may_name(name) {
            return Err(self.unknown(tools, name));
        }
        let tool = tools.find(name).map_err(|error| match error.code() {
            ErrorCode::UnknownTool => self.unknown(tools, name),
            _ => error,
        })?;
        let mut description = json!({
            "name": tool.name(),
            "description": tool.metadata.description,
            "inputSchema": tool.input.document(),
        });
        if let Some(output) = &tool.output {
            description["outputSchema"] = output.value_document().into_owned();
        }
        Ok(description)
    }

    /// The names of tools that become this identifier.
    fn names_of<'t>(&'t self, identifier: &'t str, tools: &'t CallerTools) -> impl Iterator<Item = &'t str> {
        let names = tools.visible().map(|(tool, _)| tool.name());
        names.filter(move |name| name.bytes().map(as_identifier).eq(identifier.bytes()) && self.may_name(name))
    }

    fn unknown(&self, tools: &CallerTools, name: &str) -> CallError {
        let names = tools.visible().map(|(tool, _)| tool.name()).filter(|name| self.may_name(name));
        let nearest = nearest_names(name, names);
        let meant: Vec<_> = nearest.iter().map(|name| python_function(name)).collect();
        let meant = if meant.is_empty() { String::new() } else { format!("did you mean {}? ", meant.join(" or ")) };
        let message =
            format!("there is no tool {:?} for this program; {meant}tools.search(\"…\") finds tools", shown_name(name));
        CallError::new(ErrorCode::UnknownTool, message).with_alternatives(nearest)
    }

    fn may_name(&self, name: &str) -> bool {
        self.nested_scope.admits(name)
    }
}

/// Names of tools have letters, digits, `_` and `-`.
fn as_identifier(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte }
}

fn identifier_of(name: &str) -> String {
    name.replace('-', "_")
}

fn first_line(tool: &Tool) -> &str {
    let line = tool.metadata.description.trim().lines().next().unwrap_or_default();
    &line[..line.floor_char_boundary(MAX_LINE)]
}

fn ambiguous(identifier: &str, one: &str, other: &str) -> CallError {
    let message = format!("several tools have the identifier `{identifier}`: write tools[{one:?}] or tools[{other:?}]");
    CallError::new(ErrorCode::UnknownTool, message).with_alternatives(vec![one.to_owned(), other.to_owned()])
}
