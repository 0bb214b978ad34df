//! The call by which a program's effects are approved: an operation, which is no tool. Its arguments are the list, it needs approval
//! each time, and it does nothing itself: the run of the program makes the effects.

use std::sync::Arc;

use serde_json::{Value, json};

use sekisho_calls::tool::{Attempt, Execution, Executor, Metadata, PROGRAM_EFFECTS, ToolDefinition};
use sekisho_core::call::{Arguments, CallKind, ToolOutput};

pub(super) fn definition() -> ToolDefinition {
    let list = |description: &str| json!({"type": "array", "items": {"type": "object"}, "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    let properties = json!({
        "run": text("The id of the run that makes them."),
        "program": text("The SHA-256 of the program."),
        "policy_version": text("The version of the policies in force."),
        "reads": list("What the program has read, with the SHA-256 of each answer."),
        "effects": list("The calls that change something, in their order."),
    });
    ToolDefinition {
        metadata: Metadata {
            kind: CallKind::Effects,
            name: PROGRAM_EFFECTS.into(),
            description: "Asks for the approval of all effects that a program proposes.".into(),
            category: "code".into(),
            rate_limit: 600,
            timeout_seconds: 30,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": ["run", "program", "policy_version", "reads", "effects"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({"type": "object"})),
        executor: Arc::new(Approved),
    }
}

/// Answers a call that has passed all stages, its approval among them.
struct Approved;

impl Executor for Approved {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        let output = ToolOutput { value: Value::Object(Arguments::new()), ..ToolOutput::default() };
        Box::pin(std::future::ready(Ok(output)))
    }
}
