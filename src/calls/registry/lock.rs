//! `tools.lock`: the approved state of every tool. An external tool that is new or has changed is quarantined
//! ([`super::lock::quarantine`]) until an operator approves it.
//!
//! The lock pins a tool as its source describes it, before the configuration is applied: the configuration is
//! reviewed separately.

mod difference;
mod file;
pub(crate) mod injection_scan;
mod pin;
pub mod quarantine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use self::difference::{Change, Difference, Edit, differences};
pub(super) use self::injection_scan::scan_for_injection;
pub use self::injection_scan::{escape_hidden, injection_findings};
pub use self::pin::Pin;
pub use self::quarantine::Quarantined;

use super::Snapshot;
use super::build::offered_name;
use crate::tool::{BUILTIN, PYTHON_SOURCE, ToolDefinition};
use sekisho_config::ToolsConfig;
use sekisho_core::call::CallKind;

/// Prefix of the source name of an MCP server.
const SERVER: &str = "mcp:";

/// The pins of all tools, by the name under which they are offered, and the pins of the instructions and prompts of
/// MCP servers ([`Pin::of_words`]), by `mcp:SERVER`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    pins: BTreeMap<String, Pin>,
}

/// How a tool differs from the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockViolation {
    /// The lock has no pin of that name.
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

    /// The number of pins, as a text.
    pub fn count(&self) -> String {
        let (servers, tools): (Vec<_>, Vec<_>) = self.pins.keys().partition(|name| name.starts_with(SERVER));
        match servers.len() {
            0 => format!("{} tools", tools.len()),
            servers => format!("{} tools and the texts of {servers} MCP servers", tools.len()),
        }
    }

    /// Approves a tool as it is now; `None` removes it from the lock.
    pub fn approve(&mut self, name: &str, pin: Option<Pin>) {
        match pin {
            Some(pin) => self.pins.insert(name.to_owned(), pin),
            None => self.pins.remove(name),
        };
    }

    /// The difference between `pin`, the current state of a tool, and the approved one.
    pub fn violation(&self, name: &str, pin: &Pin) -> Option<LockViolation> {
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

/// The pins of the tools of a snapshot that was built without a lock, computed from the same definitions.
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

/// Whether the tools of a source are part of the program, or the operator's own files, which are reviewed with the
/// configuration: they are never quarantined. Tools of the program are pinned all the same.
pub(super) fn is_ours(source: &str) -> bool {
    source == BUILTIN || source.starts_with(PYTHON_SOURCE)
}

impl fmt::Display for LockViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => formatter.write_str("new and not approved"),
            Self::Changed(members) => write!(formatter, "changed since it was approved: {}", members.join(", ")),
        }
    }
}
