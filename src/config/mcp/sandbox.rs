//! The sandbox of a server that is a program.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What happens where this machine lacks a layer of the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpSandboxMode {
    /// The missing layer is named, and the others are applied.
    #[default]
    On,
    /// The program is not started.
    Required,
}

/// The sandbox of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpSandbox {
    /// None: the program has all rights of the gateway's user.
    Off,
    On(McpSandboxSettings),
}

/// Grants of a program beside its own files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpSandboxSettings {
    /// Folders and files that it may read. Those that its `args`, `cwd` and `env` name are granted without being listed.
    pub folders: Vec<McpSandboxFolder>,
    /// Addresses that it may reach.
    pub network: McpSandboxNetwork,
    pub home: McpSandboxHome,
}

/// A folder or file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpSandboxFolder {
    pub path: PathBuf,
    /// It may write there.
    #[serde(default)]
    pub write: bool,
}

/// Addresses that a program may reach: `none`, `public`, or a list of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum McpSandboxNetwork {
    None,
    /// Public addresses, and the addresses in `outbound.allow_networks`.
    #[default]
    Public,
    Hosts(Vec<String>),
}

/// The home of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpSandboxHome {
    /// One folder for all processes of the server, kept in the state directory with the downloads of the program.
    #[default]
    Keep,
    /// Each process has its own, in memory.
    Discard,
}

impl Default for McpSandbox {
    fn default() -> Self {
        Self::On(McpSandboxSettings::default())
    }
}

impl McpSandbox {
    /// Whether `after` has something that this does not have.
    pub(crate) fn opens(&self, after: &Self) -> bool {
        match (self, after) {
            (Self::Off, _) => false,
            (Self::On(_), Self::Off) => true,
            (Self::On(before), Self::On(after)) => {
                let has = |folder: &McpSandboxFolder| {
                    before.folders.iter().any(|had| had.path == folder.path && (had.write || !folder.write))
                };
                !after.folders.iter().all(has) || before.network.opens(&after.network)
            }
        }
    }
}

impl McpSandboxNetwork {
    fn opens(&self, after: &Self) -> bool {
        match (self, after) {
            (_, Self::None) | (Self::Public, _) => false,
            (Self::Hosts(before), Self::Hosts(after)) => after.iter().any(|host| !before.contains(host)),
            (Self::None, Self::Hosts(after)) => !after.is_empty(),
            (Self::None | Self::Hosts(_), Self::Public) => true,
        }
    }
}

impl<'de> Deserialize<'de> for McpSandbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SandboxVisitor)
    }
}

struct SandboxVisitor;

impl<'de> Visitor<'de> for SandboxVisitor {
    type Value = McpSandbox;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`on`, `off` or a mapping")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "on" => Ok(McpSandbox::default()),
            "off" => Ok(McpSandbox::Off),
            other => Err(E::unknown_variant(other, &["on", "off"])),
        }
    }

    /// As YAML before 1.2 reads `on` and `off`.
    fn visit_bool<E: Error>(self, is_on: bool) -> Result<Self::Value, E> {
        Ok(if is_on { McpSandbox::default() } else { McpSandbox::Off })
    }

    /// All keys of the mapping are commented out.
    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(McpSandbox::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        McpSandboxSettings::deserialize(MapAccessDeserializer::new(entries)).map(McpSandbox::On)
    }
}

impl<'de> Deserialize<'de> for McpSandboxNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl<'de> Visitor<'de> for NetworkVisitor {
    type Value = McpSandboxNetwork;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`none`, `public` or a list of hosts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "none" => Ok(McpSandboxNetwork::None),
            "public" => Ok(McpSandboxNetwork::Public),
            other => Err(E::unknown_variant(other, &["none", "public"])),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut hosts = Vec::new();
        while let Some(host) = list.next_element()? {
            hosts.push(host);
        }
        Ok(McpSandboxNetwork::Hosts(hosts))
    }
}

impl JsonSchema for McpSandbox {
    fn schema_name() -> Cow<'static, str> {
        "McpSandbox".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let settings = generator.subschema_for::<McpSandboxSettings>();
        json_schema!({
            "description": "The sandbox of one program.",
            "anyOf": [{"enum": ["on", "off", true, false]}, settings],
        })
    }
}

impl JsonSchema for McpSandboxNetwork {
    fn schema_name() -> Cow<'static, str> {
        "McpSandboxNetwork".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Addresses that a program may reach: `none`, `public`, or a list of hosts.",
            "anyOf": [{"enum": ["none", "public"]}, {"type": "array", "items": {"type": "string"}}],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<McpSandbox, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    fn hosts(hosts: &[&str]) -> McpSandboxNetwork {
        McpSandboxNetwork::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect())
    }

    #[test]
    fn a_sandbox_is_a_word_or_a_mapping() {
        let with_network = |network| McpSandbox::On(McpSandboxSettings { network, ..McpSandboxSettings::default() });
        for (json, expected) in [
            ("\"off\"", McpSandbox::Off),
            ("false", McpSandbox::Off),
            ("\"on\"", McpSandbox::default()),
            ("null", McpSandbox::default()),
            ("{}", McpSandbox::default()),
            (r#"{"network": "none"}"#, with_network(McpSandboxNetwork::None)),
            (r#"{"network": ["example.com"]}"#, with_network(hosts(&["example.com"]))),
        ] {
            assert_eq!(read(json), Ok(expected), "{json}");
        }
        for json in ["\"of\"", "1", r#"{"folder": []}"#, r#"{"network": "all"}"#, r#"{"folders": [{"write": true}]}"#] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    /// Narrow and wide: the change opens, and the way back does not.
    #[test]
    fn more_folders_more_hosts_and_no_sandbox_are_open() {
        for (narrow, wide) in [
            ("{}", "\"off\""),
            (r#"{"network": "none"}"#, r#"{"network": ["a.example"]}"#),
            (r#"{"network": ["a.example"]}"#, r#"{"network": ["a.example", "b.example"]}"#),
            (r#"{"network": ["a.example"]}"#, "{}"),
            ("{}", r#"{"folders": [{"path": "/srv"}]}"#),
            (r#"{"folders": [{"path": "/srv"}]}"#, r#"{"folders": [{"path": "/srv", "write": true}]}"#),
        ] {
            let (before, after) = (read(narrow).unwrap(), read(wide).unwrap());
            assert!(before.opens(&after) && !after.opens(&before), "{narrow} {wide}");
        }
    }
}
