//! `labels` and `sink` of tools: how far their results are trusted, and what their calls do outside.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json_path::JsonPath;

use super::check::Findings;

/// The labels of a tool: a list of names for policies, or a mapping that says where its results come from, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub LabelSettings);

/// The labels of a tool. Members that are not set are inferred from its description.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LabelSettings {
    /// Labels for policies (`input.metadata.labels`).
    pub names: Option<Vec<String>>,
    /// Whether strangers can write its results.
    pub trust: Option<TrustSetting>,
    /// The names of the secrets that its results are. They leave only by a tool with the same names.
    pub secrecy: Vec<String>,
    /// JSONPaths (RFC 9535) of the parts of its results that strangers write.
    pub authored: Vec<String>,
    /// JSONPaths of the parts of its results that its server asserts.
    pub asserted: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrustSetting {
    Trusted,
    Untrusted,
}

/// The effect of a tool's calls outside of their session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkSettings {
    pub kind: SinkKindSetting,
    /// JSONPaths (RFC 9535) of the arguments that are destinations. Empty: found by their names and values.
    #[serde(default)]
    pub destination: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinkKindSetting {
    /// Nothing that matters.
    None,
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

impl Labels {
    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        let LabelSettings { names, trust: _, secrecy, authored, asserted } = &self.0;
        findings.names(setting, names.as_deref().unwrap_or_default());
        findings.names(&format!("{setting}.secrecy"), secrecy);
        check_paths(&format!("{setting}.authored"), authored, findings);
        check_paths(&format!("{setting}.asserted"), asserted, findings);
    }

    /// Whether a change to these labels has fewer guards.
    pub(crate) fn opens(&self, after: &Self) -> bool {
        let LabelSettings { names, trust, secrecy, authored, asserted } = &self.0;
        let lacks = |was: &[String], is: &[String]| was.iter().any(|entry| !is.contains(entry));
        let (names, names_is) = (names.as_deref().unwrap_or_default(), after.0.names.as_deref().unwrap_or_default());
        lacks(names, names_is)
            || how_trusted(after.0.trust) > how_trusted(*trust)
            || lacks(secrecy, &after.0.secrecy)
            || lacks(authored, &after.0.authored)
            || lacks(&after.0.asserted, asserted)
    }
}

fn how_trusted(trust: Option<TrustSetting>) -> u8 {
    match trust {
        Some(TrustSetting::Untrusted) => 0,
        None => 1,
        Some(TrustSetting::Trusted) => 2,
    }
}

impl SinkSettings {
    pub(super) fn check(&self, setting: &str, findings: &mut Findings) {
        check_paths(&format!("{setting}.destination"), &self.destination, findings);
    }
}

fn check_paths(setting: &str, paths: &[String], findings: &mut Findings) {
    for (index, path) in paths.iter().enumerate() {
        if let Err(problem) = JsonPath::parse(path) {
            let advice = "write it like `$.message.to` (RFC 9535)";
            findings.add(format!("{setting}[{index}]"), format!("is no JSONPath: {problem}"), advice);
        }
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of names or a mapping")
    }

    /// All keys of the mapping are commented out.
    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Labels::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            names.push(name);
        }
        Ok(Labels(LabelSettings { names: Some(names), ..LabelSettings::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        LabelSettings::deserialize(MapAccessDeserializer::new(entries)).map(Labels)
    }
}

impl JsonSchema for Labels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let settings = generator.subschema_for::<LabelSettings>();
        json_schema!({
            "description": "The labels of a tool: a list of names for policies, or a mapping.",
            "anyOf": [{"type": "array", "items": {"type": "string"}}, settings],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Labels, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn labels_are_a_list_of_names_or_a_mapping() {
        let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        for (json, expected) in [
            ("null", LabelSettings::default()),
            (r#"["a"]"#, LabelSettings { names: named(&["a"]), ..LabelSettings::default() }),
            (r#"{"names": ["a"]}"#, LabelSettings { names: named(&["a"]), ..LabelSettings::default() }),
            (
                r#"{"trust": "untrusted", "secrecy": ["payroll"]}"#,
                LabelSettings {
                    trust: Some(TrustSetting::Untrusted),
                    secrecy: vec!["payroll".to_owned()],
                    ..LabelSettings::default()
                },
            ),
        ] {
            assert_eq!(read(json), Ok(Labels(expected)), "{json}");
        }
        for json in ["\"a\"", "[1]", r#"{"trust": "yes"}"#, r#"{"secret": []}"#] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    /// Guarded and open: the change opens, and the way back does not.
    #[test]
    fn more_trust_fewer_secrets_and_more_asserted_parts_are_open() {
        for (guarded, open) in [
            (r#"["a", "b"]"#, r#"["a"]"#),
            (r#"{"trust": "untrusted"}"#, "[]"),
            ("[]", r#"{"trust": "trusted"}"#),
            (r#"{"secrecy": ["payroll"]}"#, "[]"),
            (r#"{"authored": ["$.title"]}"#, "[]"),
            ("[]", r#"{"asserted": ["$.title"]}"#),
        ] {
            let (before, after) = (read(guarded).unwrap(), read(open).unwrap());
            assert!(before.opens(&after) && !after.opens(&before), "{guarded} {open}");
        }
    }
}
