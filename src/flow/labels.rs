//! What a tool counts as: how far its results are trusted, and what its calls do outside.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json_path::JsonPath;

/// Whether strangers can write what a tool returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Trust {
    Trusted,
    Untrusted,
}

/// What a call does outside of its session.
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

/// What a tool returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    pub trust: Trust,
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
}

/// What a tool counts as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLabels {
    pub returns: Returned,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Sink>,
    /// Why, one sentence for each decision, for `sekisho flow show`.
    pub why: Vec<String>,
}

/// What is known of a tool before it is labelled.
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

/// `labels` as the configuration has them: what is set here is not inferred.
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
    /// What a tool counts as, by the overlay and else by the default rules.
    pub fn infer(facts: &ToolFacts<'_>, overlay: Option<&LabelsOverlay>) -> Self {
        let _ = (facts, overlay);
        let returns =
            Returned { trust: Trust::Untrusted, secrecy: BTreeSet::new(), authored: Vec::new(), asserted: Vec::new() };
        Self { returns, sink: None, why: Vec::new() }
    }
}
