//! The change of one editor's file: shown first, then made.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::document::Document;
use super::editors::{Editor, GATEWAY};
use super::entry::{self, GatewayEntry};
use crate::cli::gateway_servers::GatewayServers;
use sekisho_config::mcp_file::entries::write_text;

/// The end of the name of a file's copy.
const BACKUP: &str = ".before-sekisho";

/// Permissions of a file that did not exist: it may have credentials.
const NEW_FILE_MODE: u32 = 0o600;

/// The file of an editor, as it was read.
pub(super) struct EditorFile {
    /// Without links, which stay when the file is replaced.
    path: PathBuf,
    /// Empty if there is no file.
    text: String,
}

/// A change of an editor's file, and of each server in it.
pub(super) struct Change {
    pub(super) editor: &'static Editor,
    pub(super) file: EditorFile,
    pub(super) servers: Vec<ServerChange>,
    /// The text of the file after it.
    pub(super) text: String,
    /// The text without the gateway, which is kept beside the file while the editor is connected.
    backup: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ServerChange {
    pub(super) name: String,
    pub(super) change: ChangeKind,
    /// Why a server stays, or the gateway's name for one that moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChangeKind {
    /// The gateway's entry is written.
    Added,
    /// The server moves behind the gateway.
    Moved,
    /// The server stays with the editor.
    Stays,
    /// The gateway's entry is removed.
    Removed,
    /// The server comes back from the copy.
    Restored,
}

impl ServerChange {
    fn new(name: &str, change: ChangeKind, note: Option<String>) -> Self {
        Self { name: name.to_owned(), change, note }
    }
}

impl Change {
    /// Moves the servers of the file behind the gateway, and writes the gateway's entry.
    /// Errors: the file cannot be read or has another form, or the editor cannot have such an entry.
    pub(super) fn connect(
        editor: &'static Editor,
        file: EditorFile,
        servers: &mut GatewayServers,
        gateway: &GatewayEntry,
    ) -> Result<Self, String> {
        if servers.reads(&file.path) {
            return Err(format!(
                "the gateway reads {} itself (`mcp.files`, SEKISHO_MCP_CONFIG): remove it there, and run the command again",
                file.path.display()
            ));
        }
        let own = gateway.entry(editor)?;
        let mut document = file.document(editor)?;
        let found = document.servers().map_err(|problem| file.problem(&problem))?;
        // An earlier copy may have servers that are nowhere else in this form, also where the gateway was removed by hand.
        let without_gateway = match file.backup()? {
            Some(backup) => file.without_gateway(editor, &backup)?,
            None => file.text.clone(),
        };
        let mut changes = Vec::new();
        for (name, entry) in found.iter().filter(|(name, _)| *name != GATEWAY) {
            let taken = entry::for_gateway(entry, editor).and_then(|entry| servers.take(name, editor.name, entry));
            changes.push(match taken {
                Ok(taken) => {
                    document.remove(name);
                    ServerChange::new(name, ChangeKind::Moved, Some(taken).filter(|taken| taken != name))
                }
                Err(reason) => ServerChange::new(name, ChangeKind::Stays, Some(reason)),
            });
        }
        if found.get(GATEWAY) != Some(&own) {
            document.set(GATEWAY, &own);
            changes.insert(0, ServerChange::new(GATEWAY, ChangeKind::Added, None));
        }
        Ok(Self { editor, text: document.text(), file, servers: changes, backup: Some(without_gateway) })
    }

    /// Puts back the servers that the file had, and removes the gateway's entry; `None` if it has none.
    /// Errors: the file or its copy cannot be read, or has another form.
    pub(super) fn undo(editor: &'static Editor, file: EditorFile) -> Result<Option<Self>, String> {
        let found = file.document(editor)?.servers().map_err(|problem| file.problem(&problem))?;
        if !found.contains_key(GATEWAY) {
            return Ok(None);
        }
        let text = file.without_gateway(editor, &file.backup()?.unwrap_or_default())?;
        let after = parse(&text, editor).and_then(|document| document.servers());
        let after = after.map_err(|problem| file.problem(&problem))?;
        let restored = after.keys().filter(|name| *name == GATEWAY || !found.contains_key(*name));
        let restored = restored.map(|name| ServerChange::new(name, ChangeKind::Restored, None));
        let removed = ServerChange::new(GATEWAY, ChangeKind::Removed, None);
        let servers = std::iter::once(removed).chain(restored).collect();
        Ok(Some(Self { editor, file, servers, text, backup: None }))
    }

    pub(super) fn changes_file(&self) -> bool {
        self.text != self.file.text
    }

    /// Errors: the file was changed since it was read, or cannot be written.
    pub(super) fn make(&self) -> Result<(), String> {
        let EditorFile { path, text } = &self.file;
        if EditorFile::read(path)?.text != *text {
            return Err(format!("{} was changed by another program meanwhile; try again", path.display()));
        }
        let mode = fs::metadata(path).map_or(NEW_FILE_MODE, |found| found.permissions().mode() & 0o7777);
        let copy = backup_path(path);
        if let Some(backup) = &self.backup {
            write_text(&copy, backup, mode)?;
        }
        match self.text.is_empty() {
            // There was none before.
            true => fs::remove_file(path).map_err(|error| format!("{} cannot be removed: {error}", path.display()))?,
            false => write_text(path, &self.text, mode)?,
        }
        if self.backup.is_none() {
            // All of it is in the file again.
            let _missing = fs::remove_file(&copy);
        }
        Ok(())
    }
}

impl EditorFile {
    /// Errors: it exists and cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let text = read_if_exists(&path)?.unwrap_or_default();
        Ok(Self { path, text })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The copy without the gateway.
    pub(super) fn backup_path(&self) -> PathBuf {
        backup_path(&self.path)
    }

    fn backup(&self) -> Result<Option<String>, String> {
        read_if_exists(&self.backup_path())
    }

    fn document(&self, editor: &Editor) -> Result<Document, String> {
        parse(&self.text, editor).map_err(|problem| self.problem(&problem))
    }

    fn problem(&self, problem: &str) -> String {
        format!("{} {problem}; correct the file, or move it away", self.path.display())
    }

    /// The text with the servers of `backup` and without the gateway. Later changes of the editor and its user stay.
    fn without_gateway(&self, editor: &Editor, backup: &str) -> Result<String, String> {
        let text = without_gateway(&self.text, backup, editor);
        text.map_err(|problem| format!("{} or {BACKUP} beside it {problem}; correct the file", self.path.display()))
    }
}

fn without_gateway(text: &str, backup: &str, editor: &Editor) -> Result<String, String> {
    let (mut now, mut before) = (parse(text, editor)?, parse(backup, editor)?);
    let (servers_now, servers_before) = (now.servers()?, before.servers()?);
    let missing: Vec<_> = servers_before.iter().filter(|(name, _)| !servers_now.contains_key(*name)).collect();
    // As it was when the copy was made, byte for byte, if nothing else was changed since.
    for (name, _) in &missing {
        before.remove(name);
    }
    if let Some(gateway) = servers_now.get(GATEWAY) {
        before.set(GATEWAY, gateway);
    }
    if before.text() == text {
        return Ok(backup.to_owned());
    }
    match servers_before.get(GATEWAY) {
        Some(gateway) => now.set(GATEWAY, gateway),
        None => now.remove(GATEWAY),
    }
    for (name, entry) in missing {
        now.set(name, entry);
    }
    Ok(now.text())
}

fn parse(text: &str, editor: &Editor) -> Result<Document, String> {
    Document::parse(text, editor.format, editor.list)
}

fn backup_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BACKUP);
    name.into()
}

fn read_if_exists(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}; check the path and its permissions", path.display())),
    }
}

/// The change as JSON, for scripts.
pub(super) fn as_json(change: &Change) -> Value {
    serde_json::json!({
        "editor": change.editor.name,
        "file": change.file.path,
        "changes_file": change.changes_file(),
        "servers": change.servers,
    })
}
