//! What a call asks for, where that is no tool.

/// What kind of thing a call asks for. Part of the policy input contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Tool,
    /// The contents of a resource, or to be notified of its changes.
    Resource,
    Prompt,
    /// Completions for an argument of a prompt or of a resource template.
    Completion,
}

impl CallKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Completion => "completion",
        }
    }
}

/// A resource, a prompt, or what is completed, as a call asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub kind: CallKind,
    /// The source of tools that has it (`mcp:SERVER`); `None` where no source that the caller may use has it.
    pub source: Option<String>,
    /// The URI by which the gateway knows the resource, or the name of the prompt. Part of the policy input contract.
    pub name: String,
}
