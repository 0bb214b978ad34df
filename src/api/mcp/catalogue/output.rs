//! Output schemas as MCP clients see them.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use sekisho_calls::tool::{Metadata, OutputSchema, Tool};
use sekisho_config::OutputCheck;

/// Maximum references followed to the root's type.
const MAX_REFERENCES: usize = 16;

pub(super) fn listed(tool: &Tool) -> Option<Arc<JsonObject>> {
    let document = tool.output.as_ref()?.document().as_object()?;
    Some(Arc::new(shown(document, admits_others(&tool.metadata))))
}

/// Whether the tool lists an output schema of objects, the only ones of revisions before 2026-07-28.
pub(in crate::mcp) fn lists_object(tool: &Tool) -> bool {
    tool.output.as_ref().map(OutputSchema::document).and_then(Value::as_object).is_some_and(is_object)
}

/// Few APIs follow their document exactly, and clients refuse an answer that does not fit the schema.
fn admits_others(metadata: &Metadata) -> bool {
    metadata.source.starts_with("openapi:") && metadata.output_check != OutputCheck::Enforce
}

/// The schema with its type at the root, where clients of older revisions look for it.
fn shown(document: &JsonObject, admits_others: bool) -> JsonObject {
    let mut schema = document.clone();
    if admits_others {
        let (definitions, shape): (Map<_, _>, Map<_, _>) = schema.into_iter().partition(|(key, _)| key == "$defs");
        schema = Map::from_iter([("anyOf".to_owned(), json!([shape, {}]))]);
        schema.extend(definitions);
    }
    if is_object(document) {
        schema.shift_insert(0, "type".to_owned(), json!("object"));
    }
    schema
}

/// Whether all values are objects: by the root's own type, behind references, or by all parts of its union.
fn is_object(document: &JsonObject) -> bool {
    let root = Value::Object(document.clone());
    let resolved = resolved(&root, &root);
    let parts = |keyword: &str| resolved.get(keyword).and_then(Value::as_array).filter(|parts| !parts.is_empty());
    let has_type = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "object");
    let is_of_objects = |part: &Value| has_type(self::resolved(part, &root));
    has_type(resolved)
        || parts("allOf").is_some_and(|parts| parts.iter().any(is_of_objects))
        || ["anyOf", "oneOf"].iter().any(|keyword| parts(keyword).is_some_and(|parts| parts.iter().all(is_of_objects)))
}

/// The schema, or the target of its references.
fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    let mut found = schema;
    for _ in 0..MAX_REFERENCES {
        let reference = found.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match reference.and_then(|pointer| root.pointer(pointer)) {
            Some(target) if found.get("type").is_none() => found = target,
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn a_root_of_objects_says_so() {
        let definitions =
            json!({"a": {"$ref": "#/$defs/b"}, "b": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}});
        for (root, is_of_objects) in [
            (json!({"type": "object"}), true),
            (json!({"$ref": "#/$defs/a"}), true),
            (json!({"allOf": [{"description": "d"}, {"$ref": "#/$defs/a"}]}), true),
            (json!({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}), true),
            (json!({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}), false),
            (json!({"type": ["object", "null"]}), false),
            (json!({"type": "array"}), false),
            (json!({"$ref": "#/$defs/loop"}), false),
            (json!({"$ref": "#/$defs/none"}), false),
            (json!({}), false),
        ] {
            let mut document = object(&root);
            document.insert("$defs".into(), definitions.clone());
            assert_eq!(is_object(&document), is_of_objects, "{root}");
            for admits_others in [false, true] {
                let listed = shown(&document, admits_others);
                assert_eq!(listed.get("type") == Some(&json!("object")), is_of_objects, "{root}");
                assert_eq!(listed["$defs"], definitions, "{root}");
            }
        }
    }

    #[test]
    fn the_schema_of_an_api_shows_the_shape_and_refuses_no_object() {
        let document = object(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "required": ["id"]}}}));
        let listed = shown(&document, true);
        let expected = json!({"type": "object", "anyOf": [{"$ref": "#/$defs/a"}, {}], "$defs": document["$defs"]});
        assert_eq!(Value::Object(listed), expected);
    }
}
