//! `file_read`: reads a file of the session's workspace, whole or in parts.

use std::str;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::read_arguments;
use super::workspace::{FileRequest, FileTool, Part, Reach, Workspace, WorkspacePath, Workspaces};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::ToolDefinition;
use sekisho_core::call::ToolOutput;
use sekisho_core::error::CallError;

pub(super) fn definition(workspaces: &Workspaces) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "file_read".into(),
            description: "Reads a file from this session's private workspace. Long files come in parts: go on at \
                          `next_offset` while `truncated` is true."
                .into(),
            category: "files".into(),
            session_aware: true,
            idempotent: true,
            ..Metadata::default()
        },
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "description": "Path in the workspace, as file_list gives it."
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                    "description": "First byte to read."
                },
                "length": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "Most bytes to read; default as many as one result can hold."
                },
                "encoding": {
                    "enum": ["utf8", "base64"],
                    "default": "utf8",
                    "description": "\"base64\" for files that are not text."
                }
            },
            "required": ["path"],
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "content": {"type": "string"},
                "size": {"type": "integer", "minimum": 0, "description": "Bytes of the whole file."},
                "truncated": {"type": "boolean", "description": "Whether the file continues after this part."},
                "next_offset": {"type": "integer", "description": "The offset of the next part."},
                "encoding": {"enum": ["utf8", "base64"]}
            },
            "required": ["path", "content", "size", "truncated", "encoding"],
            "additionalProperties": false
        })),
        executor: Arc::new(FileTool { workspaces: workspaces.clone(), reach: Reach::Read, job: read }),
    }
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    path: &'a str,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
    #[serde(default)]
    encoding: Encoding,
}

/// The share of the output limit for content: JSON escapes and base64 make it longer.
const CONTENT_SHARE: usize = 2;

/// The encoding of a file's bytes in the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    #[default]
    Utf8,
    Base64,
}

pub(super) fn read(workspace: &Workspace, request: &FileRequest) -> Result<ToolOutput, CallError> {
    let input: Input<'_> = read_arguments(&request.arguments)?;
    let path = WorkspacePath::parse(input.path)?;
    let most = (request.max_output_bytes / CONTENT_SHARE) as u64;
    let length = input.length.map_or(most, |length| length.min(most));
    let Part { mut bytes, size } = workspace.read(&path, input.offset, length)?;
    let more_follows = input.offset.saturating_add(bytes.len() as u64) < size;
    if input.encoding == Encoding::Utf8 {
        let whole = whole_characters(&bytes, more_follows);
        bytes.truncate(whole.ok_or_else(|| CallError::tool(not_text(&path, input.offset)))?);
    }
    let next = input.offset.saturating_add(bytes.len() as u64);
    let (content, encoding) = match input.encoding {
        Encoding::Base64 => (STANDARD.encode(&bytes), "base64"),
        Encoding::Utf8 => (String::from_utf8(bytes).map_err(CallError::internal)?, "utf8"),
    };
    let truncated = next < size;
    let mut value = json!({
        "path": path.to_string(), "content": content, "size": size, "truncated": truncated, "encoding": encoding
    });
    let mut text = content;
    if truncated {
        value["next_offset"] = next.into();
        text = format!("{text}\n[bytes {} to {next} of {size}; continue with offset {next}]", input.offset);
    }
    Ok(ToolOutput { value, text: Some(text), ..ToolOutput::default() })
}

/// How many of the bytes are complete characters; `None` when they are not UTF-8.
/// An incomplete character at the end is left for the next part, if there is one.
fn whole_characters(bytes: &[u8], more_follows: bool) -> Option<usize> {
    match str::from_utf8(bytes) {
        Ok(_) => Some(bytes.len()),
        Err(error) if error.error_len().is_none() && more_follows && error.valid_up_to() > 0 => {
            Some(error.valid_up_to())
        }
        Err(_) => None,
    }
}

fn not_text(path: &WorkspacePath, offset: u64) -> String {
    let inside = if offset > 0 { format!(", or byte {offset} is inside a character") } else { String::new() };
    format!("{path} is not UTF-8 text{inside}; read it with encoding \"base64\"")
}
