//! Operations of sources that are not tools (resources, prompts, completion). They run like tools, but are not listed
//! as tools.

use std::sync::Arc;

use super::build::Building;
use super::{RegistryError, Snapshot};
use crate::tool::Tool;
use crate::tool::ToolDefinition;
use sekisho_core::call::CallKind;
use sekisho_core::error::{CallError, ErrorCode};

impl Snapshot {
    /// The operation that reads a source's resources, gets its prompts or completes arguments.
    pub fn operation(&self, source: &str, kind: CallKind) -> Option<&Arc<Tool>> {
        self.operations.get(source)?.iter().find(|operation| operation.metadata.kind == kind)
    }

    /// All operations that are not tools; policies and overrides may refer to them.
    pub fn operations(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.operations.values().flatten()
    }
}

impl Building<'_> {
    pub(super) fn add_operation(&mut self, definition: ToolDefinition) -> Result<(), RegistryError> {
        let (source, kind) = (definition.metadata.source.clone(), definition.metadata.kind);
        let operation = self.known_or_compiled(self.before.operation(&source, kind), definition, None, None, None)?;
        self.operations.entry(source).or_default().push(operation);
        Ok(())
    }
}

/// `unknown_tool`, for an operation that is not a tool.
pub fn unknown_target(kind: CallKind, name: &str) -> CallError {
    let what = match kind {
        CallKind::Tool => "tool",
        CallKind::Resource => "resource",
        CallKind::Prompt => "prompt",
        CallKind::Completion => "prompt or resource",
        CallKind::Effects => "program with effects",
    };
    CallError::new(ErrorCode::UnknownTool, format!("there is no {what} {name:?}"))
}
