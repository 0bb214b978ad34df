//! The lock file: JSON with one block for each tool, sorted by name and by key, so that version control shows changes
//! well. Invisible characters are written as `\uXXXX`.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{Lock, Pin, SERVER};
use crate::tool::{InvalidToolName, ToolName};
use sekisho_core::json;
use sekisho_core::visible_text::is_hidden;

const VERSION: u64 = 1;

const NOTE: &str = "What was approved of every tool. `sekisho lock diff` shows what differs, \
                    `sekisho lock approve` takes it over; not to be edited by hand.";

/// Maximum size of a lock file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a text is not a valid lock. No part of it is used.
#[derive(Debug, Error)]
pub enum DamagedLock {
    #[error(transparent)]
    Json(#[from] json::InvalidJson),
    #[error("it must be an object with `version` {VERSION}, `note` and `tools`, and nothing else")]
    Form,
    #[error("it has version {0}, this program reads version {VERSION}")]
    Version(u64),
    #[error("{name:?} is not a tool name: {problem}")]
    Name { name: String, problem: InvalidToolName },
    #[error("{0}: its block must be an object with a `hash` and an `origin`")]
    Block(String),
    #[error("{0}: its hash does not match its block, which was changed by hand or in a merge")]
    Hash(String),
}

/// Why a lock file cannot be used.
#[derive(Debug, Error)]
pub enum UnreadableLock {
    #[error("it is damaged: {0}; restore the file, or remove it and pin all tools again with `sekisho lock`")]
    Damaged(#[from] DamagedLock),
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it has more than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge,
}

impl Lock {
    /// Reads a lock file; `None` when the file does not exist.
    /// Errors: [`UnreadableLock`] when the file exists but cannot be used. It is never treated as missing.
    pub fn read(file: &Path) -> Result<Option<Self>, UnreadableLock> {
        let size = match fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?.len(),
        };
        if size > MAX_FILE_BYTES {
            return Err(UnreadableLock::TooLarge);
        }
        Ok(Some(Self::parse(&fs::read(file)?)?))
    }

    /// Errors: [`DamagedLock`], with the position.
    pub fn parse(text: &[u8]) -> Result<Self, DamagedLock> {
        let Value::Object(mut document) = json::parse(text)? else { return Err(DamagedLock::Form) };
        match document.remove("version").as_ref().and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return Err(DamagedLock::Version(other)),
            None => return Err(DamagedLock::Form),
        }
        let (note, tools) = (document.remove("note"), document.remove("tools"));
        let (Some(Value::String(_)) | None, Some(Value::Object(tools))) = (note, tools) else {
            return Err(DamagedLock::Form);
        };
        if !document.is_empty() {
            return Err(DamagedLock::Form);
        }
        tools.into_iter().map(|(name, block)| read_block(&name, block).map(|pin| (name, pin))).collect()
    }

    /// The whole text of the file.
    pub fn to_text(&self) -> String {
        let tools: Map<_, _> = self.pins.iter().map(|(name, pin)| (name.clone(), block(pin))).collect();
        let mut text = format!("{:#}\n", json!({"version": VERSION, "note": NOTE, "tools": tools}));
        if text.contains(is_shown_as_number) {
            text = with_numbers(&text);
        }
        text
    }

    /// Writes the lock file atomically.
    /// Errors of the file system. The file is unchanged then.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        // A symbolic link is followed, not replaced.
        let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let beside = file.with_added_extension(format!("{}.new", std::process::id()));
        let write = || {
            let mut new = fs::File::create(&beside)?;
            new.write_all(self.to_text().as_bytes())?;
            new.sync_all()?;
            fs::rename(&beside, &file)
        };
        write().inspect_err(|_| {
            // If this fails too, the temporary file stays; nothing more can be done.
            let _ = fs::remove_file(&beside);
        })
    }
}

fn read_block(name: &str, block: Value) -> Result<Pin, DamagedLock> {
    // The texts of a server are pinned under the name of its source.
    if let Err(problem) = ToolName::parse(name.strip_prefix(SERVER).unwrap_or(name)) {
        return Err(DamagedLock::Name { name: name.chars().take(80).collect(), problem });
    }
    let Value::Object(mut content) = block else { return Err(DamagedLock::Block(name.to_owned())) };
    let (Some(Value::String(hash)), Some(Value::String(_))) = (content.remove("hash"), content.get("origin")) else {
        return Err(DamagedLock::Block(name.to_owned()));
    };
    let pin = Pin::new(name, content);
    if pin.hash() == hash { Ok(pin) } else { Err(DamagedLock::Hash(name.to_owned())) }
}

/// The hash first, then the origin, then the other members.
fn block(pin: &Pin) -> Value {
    let mut block = Map::new();
    block.insert("hash".to_owned(), pin.hash().into());
    block.insert("origin".to_owned(), pin.origin().into());
    block.insert("description".to_owned(), pin.description().into());
    for (key, value) in pin.content() {
        block.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Value::Object(block)
}

/// `serde_json` escapes control characters below U+0020 itself; line breaks between blocks are kept.
fn is_shown_as_number(character: char) -> bool {
    is_hidden(character) && character >= '\x7f'
}

/// Outside strings JSON has no such characters.
fn with_numbers(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        if is_shown_as_number(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}
