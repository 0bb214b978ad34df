//! Which files a shared workspace has, as its row names them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::builtin::workspace::folder::Workspace;
use crate::builtin::workspace::{Kind, WorkspacePath};
use sekisho_core::error::CallError;
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

/// Most entries of a folder that are looked at: other programs than the file tools may have filled it.
const MAX_VISITED: usize = 20_000;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedFile {
    #[serde(flatten)]
    pub(super) content: FileContent,
    /// The key of its object; an empty file has none.
    pub(super) object: Option<String>,
}

/// The values by which two files are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileContent {
    /// In hex.
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

/// By path.
pub(super) type Files = BTreeMap<String, SharedFile>;

/// The files of a row.
pub(super) fn parse(text: &str) -> Result<Files, CallError> {
    serde_json::from_str(text).map_err(CallError::internal)
}

impl SharedFile {
    /// Its object; `None` for an empty file.
    pub(super) fn stored(&self) -> Result<Option<StoredBlob>, CallError> {
        let Some(object) = &self.object else { return Ok(None) };
        let key = BlobKey::parse(object).ok_or_else(|| CallError::internal(format!("`{object}` is no object")))?;
        let FileContent { sha256, bytes } = self.content.clone();
        Ok(Some(StoredBlob { key, sha256, bytes }))
    }
}

/// The files in a folder, by path.
/// Errors: `tool_error` when they are too many, as when another program has filled the folder; errors of the file
/// system.
pub(super) fn contents_of(workspace: &Workspace) -> Result<BTreeMap<String, FileContent>, CallError> {
    let (entries, more) = workspace.list(None, true, MAX_VISITED)?;
    if more {
        return Err(CallError::tool("the session's workspace has too many files; use another session"));
    }
    let mut found = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| entry.kind == Kind::File) {
        // Names that the file tools do not accept were made by another program.
        let Ok(path) = WorkspacePath::parse(&entry.path) else { continue };
        let content = workspace.read(&path, 0, u64::MAX)?.bytes;
        let content = FileContent { sha256: hex::encode(Sha256::digest(&content)), bytes: content.len() as u64 };
        found.insert(entry.path, content);
    }
    Ok(found)
}
