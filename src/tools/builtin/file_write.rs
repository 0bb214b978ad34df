//! `file_write`: writes text or bytes to a file of the session's workspace.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::read_arguments;
use super::workspace::{Content, FileRequest, FileTool, Reach, Workspace, WorkspacePath, Workspaces};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::ToolDefinition;
use sekisho_core::call::{ToolOutput, Upload};
use sekisho_core::error::CallError;

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
                    "enum": ["utf8", "base64", "upload"],
                    "default": "utf8",
                    "description": "Encoding of `content`: \"base64\" for anything that is not text. \"upload\" is for \
                                    `PUT /sessions/{id}/files/{path}` only: `content` is the SHA-256 of its body."
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
    encoding: ContentEncoding,
    #[serde(default)]
    append: bool,
}

/// How `content` has the bytes that are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContentEncoding {
    #[default]
    Utf8,
    Base64,
    /// It is the SHA-256 of the file that came with the call.
    Upload,
}

pub(super) fn write(workspace: &Workspace, request: &FileRequest) -> Result<ToolOutput, CallError> {
    let input: Input<'_> = read_arguments(&request.arguments)?;
    let path = WorkspacePath::parse(input.path)?;
    let decoded;
    let content = match input.encoding {
        ContentEncoding::Utf8 => Content::Bytes(input.content.as_bytes()),
        ContentEncoding::Base64 => {
            decoded = STANDARD.decode(input.content).map_err(|error| {
                CallError::tool(format!("`content` is not base64 (RFC 4648, with padding): {error}"))
            })?;
            Content::Bytes(&decoded)
        }
        ContentEncoding::Upload => Content::Upload(uploaded(request, input.content)?),
    };
    let size = workspace.write(&path, content, input.append)?;
    let written = content.size();
    Ok(ToolOutput {
        value: json!({"path": path.to_string(), "bytes_written": written, "size": size}),
        text: Some(format!("wrote {written} bytes to {path}, which has {size} bytes now")),
        ..ToolOutput::default()
    })
}

/// The file that came with the call, if it is the one that the arguments name.
fn uploaded<'a>(request: &'a FileRequest, sha256: &str) -> Result<&'a Upload, CallError> {
    request.upload.as_deref().filter(|upload| upload.sha256 == sha256).ok_or_else(|| {
        CallError::tool(
            "no file with this SHA-256 came with the call; send the file as the body of `PUT /sessions/{id}/files/{path}`, or its content \
             as `base64`",
        )
    })
}
