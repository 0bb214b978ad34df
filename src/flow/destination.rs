//! Where a call's effects go: mail addresses, hosts, accounts, paths and the like, each in one spelling, so that they can be
//! compared and learnt.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::labels::{DestinationPlaces, SinkKind, ToolLabels};
use crate::normal;
use crate::rules::{RULES, words_of};
use crate::tokens::{MAX_TOKENS, hosts, is_moment, tokens};
use crate::values::cut;

/// Arguments of a call that are judged.
pub(crate) const MAX_LEAVES: usize = 256;
/// The length of a value that is read as a destination. A longer one is a destination of its own, which nobody knows.
const MAX_VALUE: usize = 4 << 10;
/// The length of an identity, at most. A longer one is kept as its digest.
const MAX_IDENTITY: usize = 256;
/// The length of content that is looked through for links.
pub(crate) const MAX_CONTENT: usize = 64 << 10;
/// Lists and objects within one another that are read.
const MAX_DEPTH: usize = 32;

/// The kind of a destination.
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

/// A destination as it is stored: its tool, member and identity can be compared, but not read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DestinationHash(String);

impl DestinationHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Destination {
    /// By which this destination of this tool is learnt and known. A host is the same for all tools.
    pub fn hash(&self, tool: &str) -> DestinationHash {
        match self.kind {
            DestinationKind::Host => self.hash_as(&[]),
            _ => self.hash_as(&[tool, &self.member]),
        }
    }

    /// By which it is approved for the rest of a session: what deletes or pays on its own, all other tools together.
    pub(crate) fn hash_of_approval(&self, tool: &str) -> DestinationHash {
        let words = words_of(tool);
        match RULES.kind_of(&words) {
            Some((Some(SinkKind::Delete | SinkKind::Pay), _)) => self.hash_as(&[tool]),
            _ => self.hash_as(&["session"]),
        }
    }

    fn hash_as(&self, scope: &[&str]) -> DestinationHash {
        let kind: &'static str = self.kind.into();
        let mut hasher = Sha256::new();
        for part in scope.iter().copied().chain([kind, &self.identity]) {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        DestinationHash(hex::encode(&hasher.finalize()[..16]))
    }
}

/// The past of a tenant.
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

/// All destinations of a call. They are learnt from it, unless it was asked about and not approved. A tool that is no sink has
/// none.
pub fn destinations(labels: &ToolLabels, arguments: &Value) -> Vec<Destination> {
    if labels.sink.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for leaf in leaves(arguments) {
        match role_of(labels, arguments, &leaf) {
            Role::Destination => found.extend(Destination::of_value(&leaf.member, &leaf.text)),
            Role::Content | Role::Plain => {}
        }
    }
    found.dedup();
    found
}

impl Destination {
    /// The destinations that a value names: each that it says, else itself.
    pub(crate) fn of_value(member: &str, text: &str) -> Vec<Self> {
        let is_long = text.len() > MAX_VALUE;
        let mut found: Vec<Self> = Vec::new();
        for spelling in normal::spellings(cut(text, MAX_VALUE)) {
            for token in tokens(&spelling) {
                let destination = Self { kind: token.kind, member: member.to_owned(), identity: token.identity };
                if !found.contains(&destination) {
                    found.push(destination);
                }
            }
        }
        // Where not all of it was read, the whole is one more destination.
        if found.is_empty() || is_long || found.len() >= MAX_TOKENS {
            found.push(Self::of_content(member, text));
        }
        found.retain(|destination| !destination.identity.is_empty());
        found
    }

    /// The hosts that a text has links to, or `None` where there may be more than are read.
    pub(crate) fn hosts(member: &str, text: &str) -> Option<Vec<Self>> {
        let mut texts = normal::spellings(cut(text, MAX_VALUE));
        if text.len() > MAX_VALUE {
            texts.push(normal::stored_up_to(text, MAX_CONTENT));
        }
        let mut found: Vec<Self> = Vec::new();
        for identity in texts.iter().flat_map(|text| hosts(text)) {
            let host = Self { kind: DestinationKind::Host, member: member.to_owned(), identity };
            if !found.contains(&host) {
                found.push(host);
            }
            if found.len() > MAX_TOKENS {
                return None;
            }
        }
        (text.len() <= MAX_CONTENT).then_some(found)
    }

    /// A text by its name.
    pub(crate) fn of_content(member: &str, text: &str) -> Self {
        let stored = normal::stored(cut(text, MAX_VALUE)).to_ascii_lowercase();
        let identity = if stored.len() > MAX_IDENTITY || text.len() > MAX_VALUE {
            hex::encode(Sha256::digest(text))
        } else {
            stored
        };
        Self { kind: DestinationKind::Name, member: member.to_owned(), identity }
    }
}

/// A scalar among the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) pointer: String,
    /// The pointer without indexes.
    pub(crate) member: String,
    pub(crate) text: String,
    pub(crate) is_text: bool,
}

/// The scalars of the arguments, in order, at most [`MAX_LEAVES`].
pub(crate) fn leaves(arguments: &Value) -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(arguments, "", "", 0, &mut found);
    found
}

fn collect(value: &Value, pointer: &str, member: &str, depth: usize, found: &mut Vec<Leaf>) {
    if found.len() >= MAX_LEAVES {
        return;
    }
    let mut leaf = |text: String, is_text| {
        found.push(Leaf { pointer: pointer.to_owned(), member: member.to_owned(), text, is_text });
    };
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => leaf(number.to_string(), false),
        Value::String(text) => leaf(text.clone(), true),
        _ if depth >= MAX_DEPTH => leaf(value.to_string(), true),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{pointer}/{index}"), member, depth + 1, found);
            }
        }
        Value::Object(members) => {
            for (name, item) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                let (pointer, member) = (format!("{pointer}/{name}"), format!("{member}/{name}"));
                collect(item, &pointer, &member, depth + 1, found);
            }
        }
    }
}

/// The role of an argument in its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Destination,
    Content,
    /// It identifies nothing: an amount, a date, a state.
    Plain,
}

/// The role of an argument, by the configuration, or by its name and its value.
pub(crate) fn role_of(labels: &ToolLabels, arguments: &Value, leaf: &Leaf) -> Role {
    if let Some(sink) = &labels.sink
        && let DestinationPlaces::Paths(paths) = &sink.destinations
    {
        let is_named = |path: &serde_json_path::JsonPath| {
            path.query_located(arguments).locations().any(|place| place.to_json_pointer() == leaf.pointer)
        };
        return if paths.iter().any(is_named) { Role::Destination } else { Role::Content };
    }
    if labels.sink.as_ref().is_some_and(|sink| sink.constants.contains(&leaf.member)) {
        return Role::Plain;
    }
    let name = leaf.member.rsplit('/').next().unwrap_or_default();
    let words = words_of(name);
    let members = &RULES.members;
    let ends_with = |of: &HashSet<String>| words.last().is_some_and(|word| of.contains(word)) || of.contains(name);
    let deletes = labels.sink.as_ref().is_some_and(|sink| sink.kind == SinkKind::Delete);
    let is_source = words_of(&leaf.member).iter().any(|word| members.source.contains(word)) && !deletes;
    if ends_with(&members.plain) || is_source || is_small(&leaf.text) {
        return Role::Plain;
    }
    if ends_with(&members.content) {
        return Role::Content;
    }
    Role::Destination
}

/// Too little to identify anything: a small number, a letter, a moment.
pub(crate) fn is_small(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b".,-+ ".contains(&byte));
    let is_constant = ["true", "false", "null", "none"].iter().any(|word| text.eq_ignore_ascii_case(word));
    is_constant || is_number && digits < 5 || text.chars().count() < 2 || is_moment(text.trim())
}
