//! `tools.lock`: what was approved of every tool. A tool from outside that is another by now, or new, is not
//! offered ([`super::lock::quarantine`]) until somebody has looked at it and approved it.
//!
//! The lock pins what a source says of a tool, before the configuration has its say: settings of the
//! configuration are reviewed where they stand.

mod difference;
mod file;
pub(crate) mod injection_scan;
mod pin;
pub(crate) mod quarantine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use self::difference::{Change, Difference, Edit, differences};
pub use self::file::{DamagedLock, UnreadableLock};
pub(super) use self::injection_scan::scan_for_injection;
pub use self::injection_scan::{escape_hidden, injection_findings};
pub use self::pin::Pin;
pub use self::quarantine::Quarantined;

use super::{Snapshot, offered_name};
use crate::config::ToolsConfig;
use crate::core::call::CallKind;
use crate::tool::BUILTIN;
use crate::tool::ToolDefinition;

/// What the name of an MCP server's source begins with.
const SERVER: &str = "mcp:";

/// The pins of all tools, by the names they are offered by; those of what MCP servers say beside their tools
/// ([`Pin::of_words`]), by `mcp:SERVER`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    pins: BTreeMap<String, Pin>,
}

/// Why a tool is not the one that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockViolation {
    /// Nobody has approved anything of that name.
    New,
    /// Members of its pin that differ: `description`, `parameters`, ….
    Changed(Vec<String>),
}

impl Lock {
    pub fn get(&self, name: &str) -> Option<&Pin> {
        self.pins.get(name)
    }

    pub fn pins(&self) -> &BTreeMap<String, Pin> {
        &self.pins
    }

    /// How much is pinned, in words.
    pub fn count(&self) -> String {
        let (servers, tools): (Vec<_>, Vec<_>) = self.pins.keys().partition(|name| name.starts_with(SERVER));
        match servers.len() {
            0 => format!("{} tools", tools.len()),
            servers => format!("{} tools and the words of {servers} MCP servers", tools.len()),
        }
    }

    /// Takes a tool over as it is now; `None` forgets it.
    pub fn approve(&mut self, name: &str, pin: Option<Pin>) {
        match pin {
            Some(pin) => self.pins.insert(name.to_owned(), pin),
            None => self.pins.remove(name),
        };
    }

    /// What stands against offering what is pinned as `pin` now.
    pub fn objection(&self, name: &str, pin: &Pin) -> Option<LockViolation> {
        match self.get(name) {
            None => Some(LockViolation::New),
            Some(approved) if approved.hash() == pin.hash() => None,
            Some(approved) => Some(LockViolation::Changed(approved.members_unlike(pin))),
        }
    }
}

impl FromIterator<(String, Pin)> for Lock {
    fn from_iter<I: IntoIterator<Item = (String, Pin)>>(pins: I) -> Self {
        Self { pins: pins.into_iter().collect() }
    }
}

/// The pins of the tools of a snapshot that was built without a lock, made of the definitions it was built of.
pub fn pins<'a>(
    definitions: impl IntoIterator<Item = &'a ToolDefinition>,
    config: &ToolsConfig,
    snapshot: &Snapshot,
) -> BTreeMap<String, Pin> {
    let mut pins = BTreeMap::new();
    let tools = definitions.into_iter().filter(|definition| definition.metadata.kind == CallKind::Tool);
    for definition in tools {
        let name = offered_name(config, definition);
        let held = snapshot.get(name).is_some_and(|tool| tool.metadata.source == definition.metadata.source);
        if held {
            pins.entry(name.to_owned()).or_insert_with(|| Pin::of(name, definition));
        }
    }
    pins
}

/// Whether tools of a source come with the program itself: those are pinned, and never quarantined.
pub(super) fn is_ours(source: &str) -> bool {
    source == BUILTIN
}

impl fmt::Display for LockViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => formatter.write_str("it is new, and nobody has approved it"),
            Self::Changed(members) => write!(formatter, "not as it was approved: {} changed", members.join(", ")),
        }
    }
}
