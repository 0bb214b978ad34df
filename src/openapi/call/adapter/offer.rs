//! The arguments offered to a model for an operation with an adapter: the document's own names and values, and
//! those that the adapter maps to them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Adapter;

impl Adapter {
    /// Widens the schema of an operation's arguments: fields that the adapter fills in are not required, fields that it
    /// renames are offered by the adapter's name, and the values that it maps are allowed as well.
    pub fn widen(&self, operation_id: &str, schema: &mut Value) {
        let Value::Object(schema) = schema else { return };
        if !self.applies_to(operation_id) {
            return;
        }
        let config = &self.config;
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            let is_filled = |name: &str| config.inject.contains_key(name) || config.defaults.contains_key(name);
            required.retain(|name| !name.as_str().is_some_and(is_filled));
        }
        for (field, aliases) in &config.values {
            widen(schema, field, &aliased(aliases));
        }
        for (field, members) in &config.time_ranges {
            widen(schema, field, &renamed(members));
        }
        for (name, vendors) in &config.keys {
            offer_as(schema, vendors, name);
        }
        if schema.get("required") == Some(&json!([])) {
            schema.shift_remove("required");
        }
    }
}

/// Allows a property to match `further` too.
fn widen(schema: &mut Map<String, Value>, field: &str, further: &Value) {
    let Some(property) = schema.get_mut("properties").and_then(|properties| properties.get_mut(field)) else { return };
    let description = property.get("description").cloned();
    let mut widened = json!({"anyOf": [property.take(), further]});
    if let Some(description) = description {
        widened["description"] = description;
    }
    *property = widened;
}

/// A string or a list of strings, some of which the adapter maps.
fn aliased(aliases: &BTreeMap<String, String>) -> Value {
    let text = json!({"type": "string", "examples": aliases.keys().collect::<Vec<_>>()});
    json!({"anyOf": [text, {"type": "array", "items": text}]})
}

/// An object with these members and any others.
fn renamed(members: &BTreeMap<String, String>) -> Value {
    let properties: Map<_, _> = members.keys().map(|member| (member.clone(), Value::Bool(true))).collect();
    json!({"type": "object", "properties": properties})
}

/// Renames the property `vendors` to `name`, unless there is one of that name already.
fn offer_as(schema: &mut Map<String, Value>, vendors: &str, name: &str) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    if properties.contains_key(name) || !properties.contains_key(vendors) {
        return;
    }
    let renamed = std::mem::take(properties);
    let rename = |key: String| if key == vendors { name.to_owned() } else { key };
    *properties = renamed.into_iter().map(|(key, property)| (rename(key), property)).collect();
    for required in schema.get_mut("required").and_then(Value::as_array_mut).into_iter().flatten() {
        if required == vendors {
            *required = name.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widened(declared: Value, mut schema: Value) -> Value {
        Adapter::compile(serde_json::from_value(declared).unwrap()).unwrap().widen("query", &mut schema);
        schema
    }

    #[test]
    fn arguments_that_the_adapter_fills_in_are_not_offered() {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]});
        let both = json!({"inject": {"a": "x"}, "defaults": {"b": 1}});
        assert_eq!(widened(both, schema.clone()), json!({"properties": {"a": {}, "b": {}}}));
        assert_eq!(widened(json!({"operations": ["other"], "inject": {"a": "x"}}), schema.clone()), schema);
    }

    #[test]
    fn aliases_are_allowed_beside_the_documents_own_values() {
        let metrics = json!({"type": "array", "items": {"enum": ["di:unique_users"]}, "description": "What to count."});
        let schema = widened(
            json!({"values": {"metrics": {"users": "di:unique_users"}}, "time_ranges": {"range": {"start": "startTime"}}}),
            json!({"type": "object", "properties": {"metrics": metrics, "range": {"required": ["startTime"]}}}),
        );
        let validator = jsonschema::validator_for(&schema).unwrap();
        for fits in [
            json!({"metrics": ["users"], "range": {"start": "a"}}),
            json!({"metrics": ["di:unique_users"], "range": {"startTime": "a"}}),
        ] {
            assert!(validator.is_valid(&fits), "{fits}");
        }
        assert!(!validator.is_valid(&json!({"metrics": 3})));
        assert_eq!(schema["properties"]["metrics"]["description"], "What to count.");
    }

    #[test]
    fn a_renamed_argument_is_offered_by_its_new_name() {
        let schema = json!({"properties": {"startTime": {}, "b": {}}, "required": ["startTime"]});
        let expected = json!({"properties": {"from": {}, "b": {}}, "required": ["from"]});
        assert_eq!(widened(json!({"keys": {"from": "startTime"}}), schema), expected);
        // The document's own `from` is renamed in the request, and keeps its schema here.
        let schema = json!({"properties": {"from": {}, "startTime": {}}});
        assert_eq!(widened(json!({"keys": {"from": "startTime"}}), schema.clone()), schema);
    }
}
