//! The target of a call that is not for a tool.

/// The kind of target. Part of the policy input contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CallKind {
    Tool,
    /// The contents of a resource, or notifications of its changes.
    Resource,
    Prompt,
    /// Completions for an argument of a prompt or of a resource template.
    Completion,
    /// The effects that a program proposes.
    Effects,
}

crate::as_str!(CallKind);

/// A resource, a prompt, or the subject of a completion, as requested by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub kind: CallKind,
    /// The source of the target (`mcp:SERVER`); `None` where no source that the caller may use has it.
    pub source: Option<String>,
    /// The resource's URI in the gateway, or the name of the prompt. Part of the policy input contract.
    pub name: String,
}
