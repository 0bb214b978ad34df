//! The entries of a file of servers, as they are written: for programs that change the file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde_json::{Map, Value};

use super::LISTS;
use sekisho_core::json;

/// The servers of a file; none if the file does not exist.
/// Errors: a file that cannot be read, or is none of servers, with its path.
pub fn read(file: &Path) -> Result<Map<String, Value>, String> {
    if file.exists() { read_existing(file) } else { Ok(Map::new()) }
}

/// The servers of a file.
/// Errors: a file that does not exist, cannot be read, or is none of servers, with its path.
pub fn read_existing(file: &Path) -> Result<Map<String, Value>, String> {
    let mut document = document_of(file)?;
    let list = list_of(&document);
    match document.shift_remove(list) {
        Some(Value::Object(servers)) => Ok(servers),
        _ => Err(format!("{}: `mcpServers` is missing", file.display())),
    }
}

fn document_of(file: &Path) -> Result<Map<String, Value>, String> {
    let at = |problem: &dyn std::fmt::Display| format!("{}: {problem}", file.display());
    let text = fs::read(file).map_err(|error| at(&error))?;
    json::parse_as(&text).map_err(|error| at(&error))
}

/// The member with the servers.
fn list_of(document: &Map<String, Value>) -> &'static str {
    LISTS.into_iter().find(|list| document.contains_key(*list)).unwrap_or("mcpServers")
}

/// Writes the servers of a file, which only this user can read: it may contain credentials.
/// Errors: a file that cannot be read or written, with its path.
pub fn write(file: &Path, servers: &Map<String, Value>) -> Result<(), String> {
    // Other members are of the program whose file it is.
    let mut document = if file.exists() { document_of(file)? } else { Map::new() };
    let list = list_of(&document);
    document.insert(list.to_owned(), Value::Object(servers.clone()));
    let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    write_text(file, &(text + "\n"), 0o600)
}

/// Writes a file atomically, with these permissions.
/// Errors: a file that cannot be written, with its path.
pub fn write_text(file: &Path, text: &str, mode: u32) -> Result<(), String> {
    let at = |error: std::io::Error| format!("{} cannot be written: {error}", file.display());
    if let Some(folder) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(at)?;
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let mut options = fs::OpenOptions::new();
    let mut new = options.write(true).create(true).truncate(true).mode(mode).open(&beside).map_err(at)?;
    // A file of an earlier attempt has its own, and so has the mask of the process.
    new.set_permissions(fs::Permissions::from_mode(mode)).map_err(at)?;
    new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).map_err(at)?;
    fs::rename(&beside, file).map_err(at)
}
