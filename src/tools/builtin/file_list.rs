//! `file_list`: lists the session's workspace.

use std::fmt::Write;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::read_arguments;
use super::workspace::{FileRequest, FileTool, Kind, Reach, Workspace, WorkspacePath, Workspaces};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::ToolDefinition;
use sekisho_core::call::ToolOutput;
use sekisho_core::error::CallError;

/// Most entries in one result.
const MAX_ENTRIES: usize = 1_000;

pub(super) fn definition(workspaces: &Workspaces) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "file_list".into(),
            description: "Lists the files and folders in this session's private workspace, with sizes and times."
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
                    "maxLength": 1024,
                    "description": "Folder to list; default the top of the workspace."
                },
                "recursive": {
                    "type": "boolean",
                    "default": false,
                    "description": "List subfolders too."
                }
            },
            "additionalProperties": false
        })
        .into(),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "entries": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "path": {"type": "string"},
                            "kind": {"enum": ["file", "folder", "other"]},
                            "size": {"type": "integer", "minimum": 0},
                            "modified": {"type": "string"}
                        },
                        "required": ["path", "kind", "size", "modified"],
                        "additionalProperties": false
                    }
                },
                "truncated": {"type": "boolean", "description": "Whether there are more entries than are listed."}
            },
            "required": ["entries", "truncated"],
            "additionalProperties": false
        })),
        executor: Arc::new(FileTool { workspaces: workspaces.clone(), reach: Reach::Read, job: list }),
    }
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow, default)]
    path: &'a str,
    #[serde(default)]
    recursive: bool,
}

pub(super) fn list(workspace: &Workspace, request: &FileRequest) -> Result<ToolOutput, CallError> {
    let input: Input<'_> = read_arguments(&request.arguments)?;
    let path = match input.path {
        "" | "." => None,
        path => Some(WorkspacePath::parse(path)?),
    };
    let (entries, truncated) = workspace.list(path.as_ref(), input.recursive, MAX_ENTRIES)?;
    let mut text = String::new();
    for entry in &entries {
        let line = match entry.kind {
            Kind::File => writeln!(text, "{} ({} bytes)", entry.path, entry.size),
            Kind::Folder => writeln!(text, "{}/", entry.path),
            Kind::Other => writeln!(text, "{} (a link or special file)", entry.path),
        };
        line.map_err(CallError::internal)?;
    }
    if entries.is_empty() {
        text.push_str("the workspace is empty");
    } else if truncated {
        text.push_str("… and more; list a subfolder");
    }
    Ok(ToolOutput {
        value: json!({"entries": entries, "truncated": truncated}),
        text: Some(text),
        ..ToolOutput::default()
    })
}
