//! Changes that administrators apply while the gateway runs: JSON merge patches (RFC 7396) over the configuration's file.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::overrides::Overrides;
use super::schema::json_schema;
use super::settings::{names_secret, public_step};
use super::yaml::document::Document;
use super::yaml::error::{ConfigError, ConfigLocation};
use super::{ChangesMode, Config, GuardsConfig, McpConfig, ToolsConfig, yaml};
use sekisho_core::record::shortened;

/// The settings that a change may have: a reload takes them over, and none names a file, a program or a destination.
const CHANGEABLE: [&str; 10] = [
    "breaker",
    "budget",
    "console.roles",
    "execution",
    "limits",
    "mcp.endpoints",
    "tenants",
    "tools.guards.rules",
    "tools.overrides",
    "tools.transform",
];

/// Maximum bytes of a change, as JSON.
const MAX_BYTES: usize = 64 << 10;

/// Maximum levels, as of a file.
const MAX_DEPTH: usize = 16;

/// Maximum problems that are named.
const MAX_PROBLEMS: usize = 20;

/// By which a credential is known.
static SCHEMA: LazyLock<Value> = LazyLock::new(json_schema);

/// A change: a JSON merge patch of settings that may be changed. No credential is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigPatch(Value);

impl ConfigPatch {
    /// Errors: the members that a change may not have, each as a sentence.
    pub fn new(patch: Value) -> Result<Self, Vec<String>> {
        let Value::Object(members) = &patch else {
            return Err(vec!["a change is an object, such as {\"limits\": {\"max_queued\": 64}}".to_owned()]);
        };
        if patch.to_string().len() > MAX_BYTES {
            return Err(vec![format!("a change has at most {MAX_BYTES} bytes: propose it in parts")]);
        }
        let mut problems = Vec::new();
        refuse_fixed(members, "", &mut problems);
        if problems.is_empty() {
            refuse_values(&patch, &mut String::new(), 0, Some(&SCHEMA), &mut problems);
        }
        problems.truncate(MAX_PROBLEMS);
        if problems.is_empty() { Ok(Self(patch)) } else { Err(problems) }
    }

    /// As JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }
}

/// Adds a problem for each member that is not in [`CHANGEABLE`].
fn refuse_fixed(members: &Map<String, Value>, at: &str, problems: &mut Vec<String>) {
    for (name, member) in members {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let is_above = |known: &&str| known.strip_prefix(&*path).is_some_and(|rest| rest.starts_with('.'));
        match member {
            _ if CHANGEABLE.contains(&&*path) => {}
            Value::Object(members) if CHANGEABLE.iter().any(is_above) => refuse_fixed(members, &path, problems),
            _ => problems.push(format!(
                "`{}` cannot be changed here: set it in the configuration's file. A change may have {}",
                shortened(&path),
                CHANGEABLE.join(", ")
            )),
        }
    }
}

/// Adds a problem for each value that refers to a variable, a file or a program, or may be a credential.
fn refuse_values(
    value: &Value,
    at: &mut String,
    depth: usize,
    schema: Option<&'static Value>,
    problems: &mut Vec<String>,
) {
    let length = at.len();
    let below = |step: &str| public_step(&SCHEMA, schema?, step);
    match value {
        _ if problems.len() >= MAX_PROBLEMS => {}
        _ if depth > MAX_DEPTH => problems.push(format!("`{}` has more than {MAX_DEPTH} levels", shortened(at))),
        Value::Object(members) => {
            for (name, member) in members {
                at.push_str(if at.is_empty() { "" } else { "." });
                at.push_str(name);
                refuse_values(member, at, depth + 1, below(name), problems);
                at.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                at.push_str(&format!("[{index}]"));
                refuse_values(item, at, depth + 1, below("0"), problems);
                at.truncate(length);
            }
        }
        Value::String(text) if text.contains("${") => problems.push(format!(
            "`{}` refers to a value outside of the change, as only the configuration's file may",
            shortened(at)
        )),
        Value::Null => {}
        _ if schema.is_none_or(names_secret) => problems.push(format!(
            "`{}` is unknown, or its value may be a credential: only the configuration's file may have it",
            shortened(at)
        )),
        _ => {}
    }
}

impl Config {
    /// The configuration of the same file and environment, with these changes over it in their order, in place of those that it has.
    /// With `config.changes: read_only`, none counts.
    /// Errors: as of a file; a value that a change set has its setting as the place.
    pub fn with_changes(&self, patches: &[ConfigPatch]) -> Result<Self, Vec<ConfigError>> {
        let patches: &[ConfigPatch] = if self.config.changes == ChangesMode::ReadOnly { &[] } else { patches };
        let unchanged = self.set.without_changes();
        if patches.is_empty() && std::ptr::eq(unchanged, &self.set) {
            return Ok(self.clone());
        }
        let Some(environment) = unchanged.environment() else {
            let place = ConfigLocation::Setting("config.changes".to_owned());
            let error = ConfigError::new(place, "a configuration that was built in code takes no changes");
            return Err(vec![error.advise("load it from a file")]);
        };
        let mut document = unchanged.document().cloned().unwrap_or_else(Document::empty);
        let mut places = 0;
        patches.iter().for_each(|patch| document.merge(&patch.0, &mut places));
        let mut read = yaml::reader::read::<Self>(&document)?;
        read.override_from(&mut Overrides::new(environment));
        let set = if patches.is_empty() { unchanged.clone() } else { unchanged.with_document(document) };
        let changed = Self { set, ..self.with_changeable(read) };
        let findings = changed.findings().into_iter().filter(|finding| changed.set.is_known(finding));
        let errors: Vec<_> = findings.map(|finding| changed.set.place(finding)).collect();
        if errors.is_empty() { Ok(changed) } else { Err(errors) }
    }

    /// Itself with the settings of [`CHANGEABLE`] of another one.
    fn with_changeable(&self, other: Self) -> Self {
        let Self { breaker, budget, console, execution, limits, mcp, tenants, tools, .. } = other;
        let ToolsConfig { guards, overrides, transform, .. } = tools;
        let guards = GuardsConfig { rules: guards.rules, ..self.tools.guards.clone() };
        let tools = ToolsConfig { guards, overrides, transform, ..self.tools.clone() };
        let mcp = McpConfig { endpoints: mcp.endpoints, ..self.mcp.clone() };
        Self { breaker, budget, console, execution, limits, mcp, tenants, tools, ..self.clone() }
    }

    /// The changes that it has over its file, as one merge patch.
    pub fn changes(&self) -> Value {
        match self.set.document() {
            Some(document) => document.difference(self.set.without_changes().document()),
            None => Value::Object(Map::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::{Environment, SettingSource};

    fn loaded(yaml: &str) -> Config {
        let environment = Environment::from_iter([("MCP_RATE_LIMIT_DEFAULT", "11"), ("KEY", "s3cret")]);
        Config::load_text(Path::new("sekisho.yaml"), yaml.to_owned(), &environment, &[]).unwrap()
    }

    fn patch(value: Value) -> ConfigPatch {
        ConfigPatch::new(value).unwrap()
    }

    #[test]
    fn a_change_has_only_settings_that_a_reload_takes_over_and_no_credential() {
        for (value, expected) in [
            (json!([]), "is an object"),
            (json!({"server": {"listen": "0.0.0.0:1"}}), "`server` cannot be changed here"),
            (json!({"tools": null}), "`tools` cannot be changed here"),
            (json!({"tools": {"lock": "/x"}}), "`tools.lock` cannot be changed here"),
            (json!({"mcp": {"servers": {"a": {"command": "sh"}}}}), "`mcp.servers` cannot be changed here"),
            (json!({"config": {"changes": "single"}}), "`config` cannot be changed here"),
            (json!({"tools": {"guards": {"services": {}}}}), "`tools.guards.services` cannot be changed here"),
            (json!({"tenants": {"a": {"prompt": "${KEY}"}}}), "`tenants.a.prompt` refers to a value outside"),
            (
                json!({"tools": {"overrides": {"a": {"fix": {"token": "x"}}}}}),
                "`tools.overrides.a.fix.token` is unknown",
            ),
            (json!({"limits": {"max_quued": 1}}), "`limits.max_quued` is unknown"),
            (json!({"tenants": {"a": {"prompt": "x".repeat(MAX_BYTES)}}}), "at most 65536 bytes"),
        ] {
            let problems = ConfigPatch::new(value.clone()).unwrap_err().join("\n");
            assert!(problems.contains(expected), "{value}: {problems}");
        }
        // A step is a name, whatever is in it.
        let named = json!({"tenants": {"acme.example": {"prompt": "x"}, "42": {"prompt": "y"}}});
        assert_eq!(ConfigPatch::new(named.clone()).unwrap().value(), &named);
        let deep = (0..MAX_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        assert!(ConfigPatch::new(json!({"limits": {"rules": deep}})).is_err());
    }

    #[test]
    fn changes_are_merged_over_the_file_and_taken_back_one_by_one() {
        let file = loaded(
            "limits: {max_queued: 8, caller_rate_limit: 5}\nauth: {api_keys: [{id: a, key: k}]}\n\
             tools: {overrides: {calculator: {hidden: true, roles: [a]}}}\n",
        );
        let one = patch(json!({"limits": {"max_queued": 9, "caller_rate_limit": null, "mcp_tool_rate_limit": 4}}));
        let two = patch(json!({"tools": {"overrides": {"calculator": null, "web_fetch": {"hidden": true}}}}));
        let both = file.with_changes(&[one.clone(), two.clone()]).unwrap();
        assert_eq!((both.limits.max_queued, both.limits.caller_rate_limit), (9, None));
        assert_eq!(both.limits.mcp_tool_rate_limit, 11, "the environment overrides a change too");
        assert_eq!(both.tools.overrides.keys().collect::<Vec<_>>(), ["web_fetch"]);
        assert_eq!(both.auth, file.auth);
        assert_eq!(both.fingerprint(), file.fingerprint(), "a command with the same file finds its gateway");
        let found = both.set.with_defaults();
        let setting = found.iter().find(|setting| setting.key == "limits.max_queued").unwrap();
        assert_eq!((setting.value.as_deref(), setting.source, setting.line), (Some("9"), SettingSource::Change, None));
        let again = json!({"tools": {"overrides": {"calculator": {"roles": ["b"]}}}});
        let three = file.with_changes(&[one.clone(), two.clone(), patch(again)]).unwrap();
        assert_eq!(three.tools.overrides["calculator"].hidden, None, "it was removed before");
        for changed in [&both, &three] {
            let exported = patch(changed.changes());
            assert_eq!(file.with_changes(&[exported]).unwrap(), *changed, "{}", changed.changes());
        }
        let second = both.with_changes(&[two]).unwrap();
        assert_eq!((second.limits.max_queued, second.tools.overrides.len()), (8, 1));
        let none = both.with_changes(&[]).unwrap();
        assert_eq!((none == file, none.changes()), (true, json!({})));
        let read_only = loaded("config: {changes: read_only}\n").with_changes(std::slice::from_ref(&one)).unwrap();
        assert_eq!(read_only.limits.max_queued, 1_024);
        assert!(Config::default().with_changes(&[one]).is_err());
    }

    #[test]
    fn a_wrong_value_is_named_by_its_setting() {
        let errors = |value| {
            let errors = loaded("limits: {max_queued: 8}\n").with_changes(&[patch(value)]).unwrap_err();
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        for (value, expected) in [
            (json!({"limits": {"max_queued": "many"}}), "limits.max_queued: "),
            (json!({"limits": {"max_concurrent": 0}}), "limits.max_concurrent: "),
            (json!({"limits": {"rules": [{"name": "a", "per": "caller", "rate": 0}]}}), "limits.rules[0]"),
        ] {
            let found = errors(value);
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
