//! Which settings are in force, and where each of them was set. A secret is never shown, and neither is a value whose kind
//! the schema does not tell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::check::Finding;
use super::environment::Environment;
use super::overrides::Overrides;
use super::schema::json_schema;
use super::yaml::document::{Content, Document, Node};
use super::yaml::error::{ConfigError, ConfigLocation};

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Setting {
    /// `topic.key`, `topic.list[0].key`.
    pub key: String,
    /// Absent for a secret, and for a default that depends on the machine.
    pub value: Option<String>,
    pub is_secret: bool,
    pub source: SettingSource,
    /// The environment variable that set it.
    pub variable: Option<String>,
    /// Its line in the file.
    pub line: Option<usize>,
}

/// Where a setting was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SettingSource {
    Default,
    File,
    Environment,
    /// A change that was applied while the gateway ran.
    Change,
}

/// The values that the file and the environment set, as they were read. It may contain secrets.
#[derive(Clone, Default)]
pub struct SetValues(Arc<Read>);

#[derive(Default)]
struct Read {
    document: Option<Document>,
    /// Setting → the variable that set it, and its value.
    variables: BTreeMap<String, (&'static str, String)>,
    /// The variables of the environment; `None` for a configuration that was built in code.
    environment: Option<Environment>,
    /// The same without the changes that were merged into the document.
    unchanged: Option<SetValues>,
}

/// Steps below which every text may be a secret: options of programs.
const PRIVATE: [&str; 3] = ["args", "env", "key_sha256"];

sekisho_core::as_str!(SettingSource);

/// Where settings were set is no setting itself.
impl PartialEq for SetValues {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for SetValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SetValues")
    }
}

impl SetValues {
    pub(super) fn of(document: Option<Document>, overrides: &Overrides<'_>, environment: &Environment) -> Self {
        let value = |variable: &str| environment.get(variable).unwrap_or_default().to_owned();
        let variables = overrides.origins.iter().map(|(key, variable)| (key.clone(), (*variable, value(variable))));
        let environment = Some(environment.clone());
        Self(Arc::new(Read { document, variables: variables.collect(), environment, unchanged: None }))
    }

    /// The file and the environment, without changes.
    pub(super) fn without_changes(&self) -> &Self {
        self.0.unchanged.as_ref().unwrap_or(self)
    }

    /// These values, with a document into which changes were merged.
    pub(super) fn with_document(&self, document: Document) -> Self {
        let Read { variables, environment, .. } = &*self.0;
        let (variables, environment) = (variables.clone(), environment.clone());
        Self(Arc::new(Read { document: Some(document), variables, environment, unchanged: Some(self.clone()) }))
    }

    pub(super) fn document(&self) -> Option<&Document> {
        self.0.document.as_ref()
    }

    pub(super) fn environment(&self) -> Option<&Environment> {
        self.0.environment.as_ref()
    }

    /// Whether the text of a setting may be shown: no variable, file or program gave a part of it, which may be a secret.
    pub(super) fn may_show(&self, setting: &str, text: &str) -> bool {
        let Some(document) = &self.0.document else { return true };
        // A server of another file: the secrets there are not known here.
        let server = setting.strip_prefix("mcp.servers.").and_then(|rest| rest.split('.').next());
        let is_here = |name: &str| document.find(&format!("mcp.servers.{name}")).is_some_and(|(_, is_exact)| is_exact);
        if server.is_some_and(|name| !is_here(name)) {
            return false;
        }
        match document.find(setting) {
            Some((node, true)) => node.first_reference().is_none(),
            // An entry that is named in place of its index, or a default.
            Some((node, false)) => !repeats_reference(node, text.trim_end_matches('…')),
            None => true,
        }
    }

    /// Whether a file was read that sets nothing: it is empty, or has only comments.
    pub(super) fn is_empty_file(&self) -> bool {
        self.0.document.as_ref().is_some_and(|document| matches!(document.root.content, Content::Null))
    }

    /// Whether a value of a topic is not known: the value of a variable, a file or a program, in a text that is only
    /// checked.
    pub fn has_unread(&self, topic: &str) -> bool {
        let found = self.0.document.as_ref().and_then(|document| document.find(topic));
        found.is_some_and(|(node, is_exact)| is_exact && node.has_unread())
    }

    /// Whether the value of a setting is known: it does not stand for the value of a variable, a file or a program, in
    /// a text that is only checked.
    pub(super) fn is_read(&self, setting: &str) -> bool {
        let found = self.0.document.as_ref().and_then(|document| document.find(setting));
        found.is_none_or(|(node, _)| !matches!(node.content, Content::Unread(_)))
    }

    /// Whether a finding is about known values: not about a value that was not read, or the lack of a setting beside
    /// one.
    pub(super) fn is_known(&self, finding: &Finding) -> bool {
        match self.0.document.as_ref().and_then(|document| document.find(&finding.setting)) {
            Some((node, true)) => !node.has_unread(),
            Some((node, false)) => !node.has_unread_member(),
            None => true,
        }
    }

    /// The finding as an error at the place of its setting: the variable that set it, otherwise its line in the file, otherwise its
    /// name.
    pub(super) fn place(&self, finding: Finding) -> ConfigError {
        let place = match self.0.variables.get(&finding.setting) {
            Some((variable, _)) => ConfigLocation::Variable((*variable).to_owned()),
            None => ConfigLocation::Setting(finding.setting.clone()),
        };
        match (&place, &self.0.document) {
            (ConfigLocation::Setting(setting), Some(document)) => match document.find(setting) {
                Some((node, is_exact)) => document.place(node, is_exact && !finding.secret, finding),
                None => finding.into_error(place),
            },
            _ => finding.into_error(place),
        }
    }

    /// All settings, those that were not set with their defaults, sorted by key.
    pub fn with_defaults(&self) -> Vec<Setting> {
        let schema = json_schema();
        let mut set = BTreeMap::new();
        if let Some(document) = &self.0.document {
            collect(&document.root, &mut String::new(), &schema, &mut set);
        }
        for (key, (variable, value)) in &self.0.variables {
            let is_secret = is_secret(&schema, key);
            let value = (!is_secret).then(|| shown(value));
            let variable = Some((*variable).to_owned());
            let source = SettingSource::Environment;
            set.insert(key.clone(), Setting { key: key.clone(), value, is_secret, source, variable, line: None });
        }
        let mut defaults = Vec::new();
        collect_defaults(&schema, &schema, &mut String::new(), &mut defaults);
        for setting in defaults {
            // An entry of a list or a mapping takes the place of the whole.
            let mut after = set.range(setting.key.clone()..).take_while(|(key, _)| key.starts_with(&setting.key));
            let is_set = after.any(|(key, _)| {
                let rest = &key[setting.key.len()..];
                rest.is_empty() || rest.starts_with(['.', '['])
            });
            if !is_set {
                set.insert(setting.key.clone(), setting);
            }
        }
        set.into_values().collect()
    }
}

/// The leaves of the file.
fn collect(node: &Node, key: &mut String, schema: &Value, set: &mut BTreeMap<String, Setting>) {
    let length = key.len();
    match &node.content {
        Content::Mapping(entries) if !entries.is_empty() => {
            for (name, value) in entries {
                if !key.is_empty() {
                    key.push('.');
                }
                key.push_str(&name.name);
                collect(value, key, schema, set);
                key.truncate(length);
            }
        }
        Content::List(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                key.push_str(&format!("[{at}]"));
                collect(item, key, schema, set);
                key.truncate(length);
            }
        }
        content => {
            let is_elsewhere = matches!(content, Content::Text { interpolated: true, .. } | Content::Unread(_));
            let is_secret = is_elsewhere || is_secret(schema, key);
            let value = text_of(content).filter(|_| !is_secret).map(|text| shown(&text));
            let (source, line) = match node.position.is_of_change() {
                true => (SettingSource::Change, None),
                false => (SettingSource::File, Some(node.position.line)),
            };
            let setting = Setting { key: key.clone(), value, is_secret, source, variable: None, line };
            set.insert(key.clone(), setting);
        }
    }
}

/// Whether a text may have something of a value that is not in the file itself.
fn repeats_reference(node: &Node, text: &str) -> bool {
    match &node.content {
        Content::Text { value, interpolated: true } if !value.is_empty() => {
            let address = shown(value);
            // A short text is in many others.
            text.contains(value) || text.contains(&address) || (text.len() >= 8 && value.contains(text))
        }
        Content::List(items) => items.iter().any(|item| repeats_reference(item, text)),
        Content::Mapping(entries) => entries.iter().any(|(_, value)| repeats_reference(value, text)),
        _ => false,
    }
}

fn text_of(content: &Content) -> Option<String> {
    match content {
        Content::Null => Some("null".to_owned()),
        Content::Bool(value) => Some(value.to_string()),
        Content::Unsigned(value) => Some(value.to_string()),
        Content::Signed(value) => Some(value.to_string()),
        Content::Float(value) => Some(value.to_string()),
        Content::Text { value, .. } | Content::Unread(value) => Some(value.clone()),
        Content::List(_) => Some("[]".to_owned()),
        Content::Mapping(_) => Some("{}".to_owned()),
        Content::InvalidValue => None,
    }
}

/// An address without the parts that often are secret.
pub(super) fn shown(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Whether the value of a key must not be shown.
fn is_secret(schema: &Value, key: &str) -> bool {
    let mut steps = key.split(['.', '[', ']']).filter(|step| !step.is_empty());
    // Fail closed: a setting that the schema does not know is not shown.
    steps.try_fold(schema, |at, step| public_step(schema, at, step)).is_none_or(names_secret)
}

/// The schema of a member or an item; `None` for one that is unknown, or may be a secret by its name.
pub(super) fn public_step<'a>(whole: &'a Value, schema: &'a Value, step: &str) -> Option<&'a Value> {
    step_into(whole, schema, step).filter(|_| !PRIVATE.contains(&step))
}

pub(super) fn names_secret(schema: &Value) -> bool {
    let is = |schema: &Value| schema["$ref"] == "#/$defs/Secret";
    is(schema) || alternatives(schema).any(is)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|kind| schema[kind].as_array()).flatten()
}

/// The schema of a member or an item.
fn step_into<'a>(whole: &'a Value, schema: &'a Value, step: &str) -> Option<&'a Value> {
    let schema = resolved(whole, schema);
    let member = || schema.get("additionalProperties").filter(|more| more.is_object());
    let item = || schema.get("items").filter(|_| step.parse::<usize>().is_ok());
    let own = schema["properties"].get(step).or_else(member).or_else(item);
    own.or_else(|| alternatives(schema).find_map(|one| step_into(whole, one, step)))
}

fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let target = |reference: &str| whole.pointer(reference.strip_prefix('#')?);
    schema["$ref"].as_str().and_then(target).unwrap_or(schema)
}

/// The defaults of all settings that have a name of their own.
fn collect_defaults(whole: &Value, schema: &Value, key: &mut String, found: &mut Vec<Setting>) {
    let schema = resolved(whole, schema);
    let length = key.len();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        if !key.is_empty() {
            key.push('.');
        }
        key.push_str(name);
        match resolved(whole, member)["properties"].is_object() {
            true => collect_defaults(whole, member, key, found),
            false => {
                let value = member.get("default").map(|default| match default {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                let (is_secret, source) = (names_secret(member), SettingSource::Default);
                let setting = Setting { key: key.clone(), value, is_secret, source, variable: None, line: None };
                found.push(setting);
            }
        }
        key.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn settings(yaml: &str, variables: &[(&'static str, &'static str)]) -> BTreeMap<String, Setting> {
        let environment = variables.iter().copied().chain([("HOME", "/home/ann"), ("KEY", "s3cret")]).collect();
        let document = Document::parse(std::path::Path::new("sekisho.yaml"), yaml.to_owned()).unwrap();
        let config = Config::from_document(Some(document), &environment, None).unwrap();
        config.set.with_defaults().into_iter().map(|setting| (setting.key.clone(), setting)).collect()
    }

    #[test]
    fn each_setting_says_where_it_was_set() {
        let yaml = "limits:\n  max_concurrent: 7\n  caller_rate_limit: 9\nauth:\n  api_keys:\n    - {id: ann, key: plain-secret}\n";
        let found = settings(yaml, &[("RATE_LIMIT_DEFAULT", "5"), ("MCP_RATE_LIMIT_DEFAULT", "11")]);
        let of = |key: &str| (found[key].value.as_deref(), found[key].source, found[key].line);
        assert_eq!(of("limits.max_concurrent"), (Some("7"), SettingSource::File, Some(2)));
        assert_eq!(of("limits.max_queued"), (Some("1024"), SettingSource::Default, None));
        assert_eq!(of("limits.mcp_tool_rate_limit"), (Some("11"), SettingSource::Environment, None));
        assert_eq!(found["limits.mcp_tool_rate_limit"].variable.as_deref(), Some("MCP_RATE_LIMIT_DEFAULT"));
        assert_eq!(of("auth.api_keys[0].id"), (Some("ann"), SettingSource::File, Some(6)));
        assert!(!found.contains_key("auth.api_keys"), "its entries are listed instead");
    }

    #[test]
    fn no_secret_is_among_the_settings() {
        let yaml = r#"
auth: {api_keys: [{id: ann, key: plain-secret}, {id: bob, key: "${KEY}"}]}
store: {url: "postgres://user:plain-secret@db/x"}
mcp:
  servers:
    web: {url: "https://user:plain-secret@mcp.example/mcp?key=plain-secret", headers: {x-key: plain-secret}}
    run: {command: run, args: [--token, plain-secret], env: {TOKEN: plain-secret}}
outbound: {mcp_allowed_domains: ["*"]}
telemetry: {metrics_namespace: "${KEY}"}
"#;
        let found = settings(yaml, &[]);
        for (key, setting) in &found {
            let text = format!("{:?}", setting.value);
            assert!(!text.contains("plain-secret") && !text.contains("s3cret"), "{key}: {text}");
        }
        assert!(found["auth.api_keys[0].key"].is_secret && found["mcp.servers.run.env.TOKEN"].is_secret);
        assert!(found["store.url"].is_secret);
        assert_eq!(found["mcp.servers.web.url"].value.as_deref(), Some("https://mcp.example/mcp"));
    }
}
