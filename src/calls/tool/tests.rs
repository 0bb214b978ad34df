use serde_json::{Value, json};

use super::*;
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_observe::metrics::Metrics;

/// Answers with nothing.
pub(crate) struct Silent;

impl Executor for Silent {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async { Ok(ToolOutput::default()) })
    }
}

/// A tool that was never registered.
pub(crate) fn tool_with(metadata: Metadata, parameters: Value, output_schema: Option<Value>) -> Tool {
    let input = InputSchema::compile(&metadata.name, parameters, true).unwrap();
    let output = output_schema.map(|schema| OutputSchema::compile(schema).unwrap());
    let metrics = Metrics::new("test").unwrap().for_tool(&metadata.name);
    Tool::new(metadata, input, output, Vec::new(), metrics, Arc::new(Silent))
}

/// A tool without a schema of its own.
pub(crate) fn tool_run_by(executor: Arc<dyn Executor>, metadata: Metadata) -> Tool {
    let Tool { metadata, input, output, flags, metrics, .. } = tool_with(metadata, json!({}), None);
    Tool::new(metadata, input, output, flags, metrics, executor)
}

fn tool(metadata: Metadata) -> Tool {
    tool_with(metadata, json!({}), None)
}

#[test]
fn sandboxed_is_set_from_the_executor() {
    let claims = Metadata { sandboxed: true, ..Metadata::default() };
    assert!(!tool(claims).metadata.sandboxed);
}

#[test]
fn every_tool_has_a_unique_id() {
    assert_ne!(tool(Metadata::default()).id, tool(Metadata::default()).id);
}

/// E10–E17.
#[test]
fn a_tool_has_the_defaults_of_the_specification() {
    let metadata = Metadata::default();
    assert_eq!((metadata.timeout_seconds, metadata.memory_limit_mb, metadata.rate_limit), (30, 128, 60));
    assert!(metadata.cost_per_use.is_zero());
    let flags = [metadata.dangerous, metadata.requires_auth, metadata.sandboxed, metadata.session_aware];
    assert_eq!(flags, [false; 4]);
}
