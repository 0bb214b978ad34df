//! Tools that a client describes and runs itself.

use std::sync::Arc;

use serde_json::{Value, json};

use sekisho_agent::Message;
use sekisho_agent::message::{AssistantTurn, RequestedCall};
use sekisho_agent::toolbox::ToolDescription;
use sekisho_calls::tool::schema::accepted_by_models;
use sekisho_core::error::CallError;

/// Maximum number of tools of a client.
const MAX_TOOLS: usize = 128;

/// Maximum bytes of a tool's name; models accept no longer one.
const MAX_NAME: usize = 64;

/// A tool as a client describes it, or why it is not one that a client can run.
pub(crate) type DescribedTool = Result<(String, Option<String>, Option<Value>), String>;

/// The tools of a request: name, description and schema of the arguments each.
/// Errors: `invalid_request` with the place of the first tool that cannot be offered.
pub fn read(tools: impl ExactSizeIterator<Item = DescribedTool>) -> Result<Vec<ToolDescription>, CallError> {
    if tools.len() > MAX_TOOLS {
        return Err(CallError::invalid(format!("`tools` has {} tools; at most {MAX_TOOLS} are allowed", tools.len())));
    }
    let mut described: Vec<ToolDescription> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.enumerate() {
        let checked = tool.and_then(|(name, description, parameters)| {
            if !is_name(&name) {
                Err("its name must be 1 to 64 letters, digits, `_` or `-`".to_owned())
            } else if described.iter().any(|earlier| earlier.name == name) {
                Err("an earlier tool has the same name".to_owned())
            } else {
                let description = description.unwrap_or_default();
                let parameters = parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
                // The client validates its calls itself.
                let parameters = Arc::new(accepted_by_models(parameters));
                Ok(ToolDescription { name, description, parameters, is_deferred: false })
            }
        });
        described.push(checked.map_err(|problem| CallError::invalid(format!("`tools[{index}]`: {problem}")))?);
    }
    Ok(described)
}

/// Why a tool of this type is not offered.
pub(crate) fn not_of_the_client(kind: &str, expected: &str) -> String {
    let shown: String = kind.chars().take(40).collect();
    format!("its `type` must be {expected}: {shown:?} is not a tool of the client, and the gateway offers its own")
}

/// The call that a result belongs to: the latest with this id.
pub(crate) fn call_of<'a>(earlier: &'a [Message], id: &str) -> Option<&'a RequestedCall> {
    let turns = earlier.iter().rev().filter_map(|message| match message {
        Message::Assistant(turn) => Some(turn),
        Message::System(_) | Message::User(_) | Message::Tool(_) => None,
    });
    turns.flat_map(AssistantTurn::calls).find(|call| call.id == id)
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_model_apis_refuse_is_offered_in_a_form_that_they_accept() {
        let branch =
            |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
        for (schema, properties) in [
            (
                json!({"oneOf": [branch("path"), branch("url")]}),
                json!({"path": {"type": "string"}, "url": {"type": "string"}}),
            ),
            (branch("path"), json!({"path": {"type": "string"}})),
        ] {
            let tool = Ok(("open".to_owned(), None, Some(schema)));
            let offered = read([tool].into_iter()).unwrap();
            let parameters = &offered[0].parameters;
            assert_eq!(
                (&parameters["type"], &parameters["properties"]),
                (&json!("object"), &properties),
                "{parameters}"
            );
            assert!(parameters.get("oneOf").is_none(), "{parameters}");
        }
    }
}
