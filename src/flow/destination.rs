//! Where a call's effects go: mail addresses, hosts, accounts, paths and the like, each in one spelling, so that they can be
//! compared and learnt.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::labels::ToolLabels;

/// What a destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DestinationKind {
    Mail,
    Host,
    Account,
    Phone,
    Path,
    Key,
    Number,
    /// The name of a thing, such as a repository or a user.
    Name,
}

/// Where a call's effects go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Destination {
    pub kind: DestinationKind,
    /// The argument it stands in, without the indexes of lists: `/recipients` for `/recipients/0`.
    pub member: String,
    /// In the one spelling: a mail address or host in lower case, an account without spaces.
    pub identity: String,
}

/// What is stored of a destination: its tool, member and identity can be compared, but not read from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DestinationHash(String);

impl DestinationHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Destination {
    /// By which this destination of this tool is learnt and known.
    pub fn hash(&self, tool: &str) -> DestinationHash {
        let kind: &'static str = self.kind.into();
        let mut hasher = Sha256::new();
        for part in [tool, kind, &self.member, &self.identity] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        DestinationHash(hex::encode(&hasher.finalize()[..16]))
    }
}

/// What the tenant's own past says.
pub trait KnownDestinations {
    /// Whether an approved or undisputed call of this tool went to this destination.
    fn knows(&self, tool: &str, destination: &Destination) -> bool;
    /// Whether there was an approved or undisputed call of this tool.
    fn knows_tool(&self, tool: &str) -> bool;
}

/// A tenant without a past.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingKnown;

impl KnownDestinations for NothingKnown {
    fn knows(&self, _tool: &str, _destination: &Destination) -> bool {
        false
    }

    fn knows_tool(&self, _tool: &str) -> bool {
        false
    }
}

/// All destinations of a call: what is learnt from it, unless it was asked about and not approved. None for a tool that is no
/// sink.
pub fn destinations(labels: &ToolLabels, arguments: &Value) -> Vec<Destination> {
    let _ = (labels, arguments);
    Vec::new()
}
