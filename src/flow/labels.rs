//! The labels of a tool: how far its results are trusted, and the effects of its calls.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::rules::{RULES, words_of};

/// Whether strangers can write a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Trust {
    Trusted,
    Untrusted,
}

/// The effect of a call outside of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SinkKind {
    /// Sends a message or a file to somebody.
    Send,
    Pay,
    Delete,
    /// Shows something to others, or gives others access.
    Publish,
    /// Requests a URL that is an argument.
    Fetch,
    /// Any other change.
    Write,
}

/// The labels of a tool's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    pub trust: Trust,
    /// Its texts are files of the machine: a line `key: value` in one, and a short one as a whole, is a field.
    #[serde(default)]
    pub has_lines: bool,
    /// The names of the secrets that its results are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrecy: BTreeSet<String>,
    /// Parts of its results that strangers write, beside those that the default rules name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authored: Vec<JsonPath>,
    /// Parts of its results that the server asserts, whatever the default rules say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asserted: Vec<JsonPath>,
}

/// Which arguments of a sink are destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationPlaces {
    /// Those that the default rules know, by the name of the member and by its value.
    ByName,
    /// Those that the configuration lists.
    Paths(Vec<JsonPath>),
}

/// A tool whose calls have effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    pub kind: SinkKind,
    pub destinations: DestinationPlaces,
    /// Arguments that the schema limits to constants, as JSON pointers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub constants: BTreeSet<String>,
}

/// The labels of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLabels {
    pub returns: Returned,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Sink>,
    /// Why, one sentence for each decision, for `sekisho flow show`.
    pub why: Vec<String>,
}

/// The facts about a tool by which it is labelled.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolFacts<'a> {
    pub name: &'a str,
    pub description: &'a str,
    /// The annotations of MCP.
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub open_world: Option<bool>,
    /// Of an operation of OpenAPI.
    pub http_method: Option<&'a str>,
    pub tags: &'a [String],
    pub input_schema: Option<&'a Value>,
}

/// `labels` as the configuration has them: a label that is set here is not inferred.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsOverlay {
    #[serde(default)]
    pub trust: Option<Trust>,
    #[serde(default)]
    pub secrecy: BTreeSet<String>,
    #[serde(default)]
    pub authored: Vec<JsonPath>,
    #[serde(default)]
    pub asserted: Vec<JsonPath>,
    #[serde(default)]
    pub sink: Option<SinkOverlay>,
}

/// `labels.sink` as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum SinkOverlay {
    /// `sink: false`: its calls have no effect that matters.
    None(bool),
    Kind {
        kind: SinkKind,
        /// Where it is empty, the default rules find the destinations.
        #[serde(default)]
        destination: Vec<JsonPath>,
    },
}

impl ToolLabels {
    /// The same labels, of a result that strangers wrote.
    #[must_use]
    pub fn of_strangers(&self) -> Self {
        let mut labels = self.clone();
        labels.returns.trust = Trust::Untrusted;
        labels
    }

    /// The labels of a tool, by the overlay and else by the default rules.
    pub fn infer(facts: &ToolFacts<'_>, overlay: Option<&LabelsOverlay>) -> Self {
        let mut why = Vec::new();
        let (overlay, none) = (overlay, LabelsOverlay::default());
        let overlay = overlay.unwrap_or(&none);
        let trust = match overlay.trust {
            Some(trust) => {
                why.push("trust: the configuration says so".to_owned());
                trust
            }
            None => trust(facts, &mut why),
        };
        let sink = match &overlay.sink {
            Some(sink) => {
                why.push("sink: the configuration says so".to_owned());
                sink.of_configuration(facts)
            }
            None => sink_kind(facts, &mut why).map(|kind| Sink::by_name(kind, facts)),
        };
        let returns = Returned {
            trust,
            has_lines: has_lines(facts),
            secrecy: overlay.secrecy.clone(),
            authored: overlay.authored.clone(),
            asserted: overlay.asserted.clone(),
        };
        Self { returns, sink, why }
    }
}

impl SinkOverlay {
    fn of_configuration(&self, facts: &ToolFacts<'_>) -> Option<Sink> {
        match self {
            Self::None(false) => None,
            Self::None(true) => {
                Some(Sink::by_name(sink_kind(facts, &mut Vec::new()).unwrap_or(SinkKind::Write), facts))
            }
            Self::Kind { kind, destination } if destination.is_empty() => Some(Sink::by_name(*kind, facts)),
            Self::Kind { kind, destination } => {
                let destinations = DestinationPlaces::Paths(destination.clone());
                Some(Sink { destinations, ..Sink::by_name(*kind, facts) })
            }
        }
    }
}

impl Sink {
    fn by_name(kind: SinkKind, facts: &ToolFacts<'_>) -> Self {
        Self { kind, destinations: DestinationPlaces::ByName, constants: constants(facts.input_schema) }
    }
}

/// Whether strangers write a tool's results.
fn trust(facts: &ToolFacts<'_>, why: &mut Vec<String>) -> Trust {
    if facts.open_world == Some(true) {
        why.push("trust: untrusted, since the annotation openWorldHint is true".to_owned());
        return Trust::Untrusted;
    }
    let words = words_of(facts.name).into_iter().chain(facts.tags.iter().flat_map(|tag| words_of(tag)));
    for word in words {
        if RULES.strangers.contains(&word) {
            why.push(format!("trust: untrusted, since strangers write what the word `{word}` names"));
            return Trust::Untrusted;
        }
    }
    why.push("trust: trusted, since no word of its name says that strangers write it".to_owned());
    Trust::Trusted
}

/// The effect of a tool's calls; `None` for a read.
fn sink_kind(facts: &ToolFacts<'_>, why: &mut Vec<String>) -> Option<SinkKind> {
    let words = words_of(facts.name);
    let by_name = RULES.kind_of(&words);
    let (kind, reason) = match (by_name, facts.http_method, facts.read_only) {
        // A request of a URL that is an argument tells its host something, whatever else is said of it.
        (Some((Some(SinkKind::Fetch), word)), ..) => (Some(SinkKind::Fetch), format!("its name has the word `{word}`")),
        (Some((None, word)), ..) if requests(facts, &words) => {
            (Some(SinkKind::Fetch), format!("its name has the word `{word}`, and it reads by a URL"))
        }
        (_, Some("GET" | "HEAD" | "OPTIONS"), _) => (None, "its operation only reads".to_owned()),
        (_, _, Some(true)) => (None, "the annotation readOnlyHint is true".to_owned()),
        (_, Some("DELETE"), _) => (Some(SinkKind::Delete), "its operation is DELETE".to_owned()),
        (Some((Some(kind), word)), ..) => (Some(kind), format!("its name has the word `{word}`")),
        (_, Some(method), _) => (Some(SinkKind::Write), format!("its operation is {method}")),
        (_, _, Some(false)) => (Some(SinkKind::Write), "the annotation readOnlyHint is false".to_owned()),
        (Some((None, word)), ..) => (None, format!("its name has the word `{word}`")),
        (None, ..) => (Some(SinkKind::Write), "nothing says that it only reads".to_owned()),
    };
    let kind_name = kind.map_or("none", Into::<&'static str>::into);
    why.push(format!("sink: {kind_name}, since {reason}"));
    kind
}

/// Whether a read requests a URL that is an argument.
fn requests(facts: &ToolFacts<'_>, words: &[String]) -> bool {
    let has_url = |name: &String| words_of(name).iter().any(|word| RULES.members.url.contains(word));
    let properties = facts.input_schema.and_then(|schema| schema.get("properties")?.as_object());
    match properties {
        Some(properties) => properties.keys().any(has_url),
        None => words.iter().any(|word| RULES.requests.contains(word)),
    }
}

/// Arguments that the schema limits to constants and numbers: they identify nothing.
fn constants(schema: Option<&Value>) -> BTreeSet<String> {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let is_constant = |schema: &Value| {
        let kind = schema.get("type").and_then(Value::as_str);
        schema.get("enum").is_some() || schema.get("const").is_some() || kind == Some("boolean")
    };
    let constant = properties.into_iter().flatten().filter(|(_, schema)| is_constant(schema));
    constant.map(|(name, _)| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Whether a tool's results are files of the machine, and not of the web.
fn has_lines(facts: &ToolFacts<'_>) -> bool {
    let words = words_of(facts.name);
    words.iter().any(|word| RULES.local.contains(word)) && !requests(facts, &words)
}

#[cfg(test)]
mod tests;
