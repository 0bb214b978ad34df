//! The extensions of the protocol that clients may declare.

use serde_json::Value;

/// Apps of tools, `ui://` resources that a client shows with the results.
pub(super) const APPS: &str = "io.modelcontextprotocol/ui";

/// Tasks: calls whose results clients poll for.
pub(super) const TASKS: &str = rmcp::model::TASKS_EXTENSION_ID;

/// Whether a client with these capabilities declares the extension.
pub(super) fn is_declared(capabilities: &Value, extension: &str) -> bool {
    capabilities.get("extensions").and_then(|extensions| extensions.get(extension)).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_extension_is_declared_with_its_settings() {
        let with = |settings: Value| json!({"extensions": {APPS: settings}});
        for (capabilities, expected) in
            [(with(json!({})), true), (with(Value::Null), false), (json!({"extensions": 1}), false), (json!({}), false)]
        {
            assert_eq!(is_declared(&capabilities, APPS), expected, "{capabilities}");
        }
    }
}
