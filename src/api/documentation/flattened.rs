//! Schemas of structures with flattened members: one object in place of several.

use serde_json::{Map, Value, json};

/// Merges each `allOf` of objects of which one takes no further properties: no value satisfies them one by one.
pub(super) fn merge(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    merge_within(document, &schemas);
}

fn merge_within(value: &mut Value, schemas: &Value) {
    if let Some(merged) = value.get("allOf").and_then(Value::as_array).and_then(|parts| merged(parts, schemas))
        && let Value::Object(schema) = value
    {
        schema.remove("allOf");
        merged.into_iter().for_each(|(keyword, value)| {
            schema.entry(keyword).or_insert(value);
        });
    }
    match value {
        Value::Object(members) => members.values_mut().for_each(|member| merge_within(member, schemas)),
        Value::Array(items) => items.iter_mut().for_each(|item| merge_within(item, schemas)),
        _ => {}
    }
}

/// The keywords of the one object; `None` if the parts can stay as they are.
fn merged(parts: &[Value], schemas: &Value) -> Option<Map<String, Value>> {
    let parts: Vec<_> = parts.iter().map(|part| resolved(part, schemas)).collect();
    if parts.len() < 2 || !parts.iter().any(|part| part["additionalProperties"] == false) {
        return None;
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in &parts {
        properties.extend(
            part["properties"].as_object().into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone())),
        );
        required.extend(part["required"].as_array().into_iter().flatten().cloned());
    }
    let object =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    object.as_object().cloned()
}

fn resolved<'a>(part: &'a Value, schemas: &'a Value) -> &'a Value {
    let name = part["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
    name.and_then(|name| schemas.get(name)).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_object_and_its_name_become_one_object() {
        let closed =
            json!({"type": "object", "required": ["a"], "properties": {"a": {}}, "additionalProperties": false});
        let named = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
        let open = json!({"allOf": [{"$ref": "#/components/schemas/Open"}, named]});
        let mut document = json!({"components": {"schemas": {
            "Closed": closed, "Open": {"type": "object"}, "Both": open,
            "Named": {"allOf": [{"$ref": "#/components/schemas/Closed"}, named], "description": "d"},
        }}});
        merge(&mut document);
        let schemas = &document["components"]["schemas"];
        let expected = json!({"type": "object", "description": "d", "required": ["a", "name"],
            "properties": {"a": {}, "name": {"type": "string"}}, "additionalProperties": false});
        assert_eq!(schemas["Named"], expected);
        assert_eq!(schemas["Both"], open);
    }
}
