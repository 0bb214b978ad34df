//! `file_write`: writes text or bytes to a file of the session's workspace.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::read_arguments;
use super::workspace::{FileTool, Reach, Workspace, WorkspacePath, Workspaces};
use crate::core::call::{Arguments, ToolOutput};
use crate::core::error::CallError;
use crate::tool::Metadata;
use crate::tool::ToolDefinition;

pub(super) fn definition(workspaces: &Workspaces) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "file_write".into(),
            description:
                "Writes a file in this session's private workspace: creates it, replaces it whole, or appends \
                          to it. Missing folders are made. Nothing outside the workspace can be reached."
                    .into(),
            category: "files".into(),
            dangerous: true,
            roles: vec!["admin".into()],
            session_aware: true,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "description": "Path in the workspace, e.g. \"notes/today.md\"; never absolute, no \"..\"."
                },
                "content": {"type": "string", "description": "What to write; may be empty."},
                "encoding": {
                    "enum": ["utf8", "base64"],
                    "default": "utf8",
                    "description": "Encoding of `content`: \"base64\" for anything that is not text."
                },
                "append": {
                    "type": "boolean",
                    "default": false,
                    "description": "Add to the end of the file instead of replacing it."
                }
            },
            "required": ["path", "content"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "bytes_written": {"type": "integer", "minimum": 0},
                "size": {"type": "integer", "minimum": 0, "description": "Bytes of the whole file now."}
            },
            "required": ["path", "bytes_written", "size"],
            "additionalProperties": false
        })),
        executor: Arc::new(FileTool { workspaces: workspaces.clone(), reach: Reach::Write, job: write }),
    }
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    path: &'a str,
    #[serde(borrow)]
    content: &'a str,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    append: bool,
}

/// The encoding of a file's bytes in a string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

pub(super) fn write(
    workspace: &Workspace,
    arguments: &Arguments,
    _max_output_bytes: usize,
) -> Result<ToolOutput, CallError> {
    let input: Input<'_> = read_arguments(arguments)?;
    let path = WorkspacePath::parse(input.path)?;
    let content = match input.encoding {
        Encoding::Utf8 => Cow::Borrowed(input.content.as_bytes()),
        Encoding::Base64 => STANDARD
            .decode(input.content)
            .map(Cow::Owned)
            .map_err(|error| CallError::tool(format!("`content` is not base64 (RFC 4648, with padding): {error}")))?,
    };
    let size = workspace.write(&path, &content, input.append)?;
    let written = content.len();
    Ok(ToolOutput {
        value: json!({"path": path.to_string(), "bytes_written": written, "size": size}),
        text: Some(format!("wrote {written} bytes to {path}, which has {size} bytes now")),
        ..ToolOutput::default()
    })
}
