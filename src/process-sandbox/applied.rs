//! The layers of a sandbox, and which of them a program has.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A layer of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Files, processes, IPC and host name of its own.
    Namespaces,
    /// A `/proc` of its own.
    Processes,
    /// A network of its own.
    Network,
    /// Its connections are made by the gateway.
    Connections,
    Landlock,
    Seccomp,
    ProcessLimit,
    /// Of each process.
    MemoryLimit,
    /// Of all processes together. Only where a cgroup is delegated to the gateway: elsewhere it is not missing.
    MemoryOfAll,
}

impl Layer {
    /// Its name in messages and in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Processes => "own /proc",
            Self::Network => "own network",
            Self::Connections => "supervised connections",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::ProcessLimit => "limit of processes",
            Self::MemoryLimit => "limit of memory",
            Self::MemoryOfAll => "limit of memory of all processes",
        }
    }
}

/// A layer that could not be applied, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Missing {
    pub layer: Layer,
    pub reason: String,
}

/// The layers that a program has, and those that it lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub layers: Vec<Layer>,
    pub missing: Vec<Missing>,
}

impl Applied {
    pub(crate) fn record(&mut self, layer: Layer, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.layers.push(layer),
            Err(reason) => self.missing.push(Missing { layer, reason }),
        }
    }

    /// The missing layers with their reasons, for a message.
    pub fn missing_text(&self) -> String {
        self.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.layer.name(), self.reason)
    }
}
