//! The judgement of a call: where each argument came from, and the questions about it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::labels::Trust;

/// The judgement of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// By JSON pointer: `input.argument_labels`. Arguments of no known origin are there, too.
    pub argument_labels: BTreeMap<String, ArgumentLabels>,
    /// The destinations of a sink, which are learnt if the call is undisputed or approved.
    pub destinations: Vec<Destination>,
    /// The questions to a person, none where the call may run.
    pub questions: Vec<Question>,
    /// Secrets that may not go to this tool: the call is refused.
    pub forbidden: Vec<ForbiddenSecret>,
}

impl Judgement {
    /// Whether an argument came from untrusted text: a stranger then selected the call's result.
    pub fn is_steered(&self) -> bool {
        self.argument_labels.values().any(|labels| labels.state == ArgumentState::Untrusted)
    }
}

/// Where an argument came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentLabels {
    pub state: ArgumentState,
    pub origins: Vec<ValueOrigin>,
}

/// The origin of an argument, by the best of the places that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ArgumentState {
    /// The user or the operator wrote it.
    User,
    /// A trusted result has it.
    Trusted,
    /// A server asserts it: it is a whole field of a result, not text that a stranger wrote.
    Asserted,
    /// Nothing in it identifies anything.
    Plain,
    /// It stands in text that a stranger can write.
    Untrusted,
    /// It stands in nothing that went into the session.
    Unknown,
}

/// A place that a value stands in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueOrigin {
    /// The id of the call whose result it is; empty for the text of the user.
    pub call: String,
    /// Empty for the text of the user.
    pub tool: String,
    /// The place in the result, as a JSON pointer; empty for the whole of a text.
    pub path: String,
    pub trust: Trust,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrecy: BTreeSet<String>,
}

impl ValueOrigin {
    /// The text of the user.
    pub(crate) fn of_user() -> Self {
        Self {
            call: String::new(),
            tool: String::new(),
            path: String::new(),
            trust: Trust::Trusted,
            secrecy: BTreeSet::new(),
        }
    }
}

/// A question to a person about one argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The argument, as a JSON pointer; empty for the call as a whole.
    pub pointer: String,
    /// The argument's value, cut where it is long.
    pub value: String,
    pub destination: Destination,
    pub state: ArgumentState,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ValueOrigin>,
    /// The sentence of the result that has it, cut where it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// Why it is new, as a sentence.
    pub new: String,
}

/// A secret that may not go where the call would send it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForbiddenSecret {
    pub pointer: String,
    /// The names of secrets that the tool's own labels do not have.
    pub secrecy: BTreeSet<String>,
    pub origin: ValueOrigin,
}
