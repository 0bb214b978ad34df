use super::*;
use crate::tool::schema::{InputSchema, OutputSchema, Parameters};

fn lowered(mut schema: Value) -> Value {
    lower(&mut schema);
    schema
}

#[test]
fn keywords_that_clients_refuse_are_rewritten() {
    for (schema, expected) in [
        (json!({"type": "array"}), json!({"type": "array", "items": {}})),
        (json!({"type": ["array", "null"]}), json!({"type": ["array", "null"], "items": {}})),
        (json!({"type": "array", "prefixItems": [{}]}), json!({"type": "array", "prefixItems": [{}], "items": {}})),
        (json!({"enum": ["a", "b", "a"]}), json!({"enum": ["a", "b"]})),
        (json!({"minimum": 0, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 0})),
        (json!({"maximum": 9, "exclusiveMaximum": false}), json!({"maximum": 9})),
        (json!({"exclusiveMaximum": true}), json!({})),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false}),
            json!({"prefixItems": [{"type": "string"}], "items": false}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"n": {"minimum": 1, "exclusiveMinimum": true}}}),
            json!({"properties": {"n": {"exclusiveMinimum": 1}}}),
        ),
        (
            json!({"anyOf": [{"type": "array"}], "$defs": {"a": {"additionalProperties": {"enum": [1, 1]}}}}),
            json!({"anyOf": [{"type": "array", "items": {}}], "$defs": {"a": {"additionalProperties": {"enum": [1]}}}}),
        ),
    ] {
        assert_eq!(lowered(schema.clone()), expected, "{schema}");
        assert!(!lower(&mut expected.clone()), "{expected}");
    }
}

#[test]
fn values_and_names_that_look_like_keywords_stay() {
    for schema in [
        json!({"default": {"type": "array", "enum": [1, 1]}, "examples": [{"exclusiveMinimum": true}]}),
        json!({"properties": {"type": {"const": {"type": "array"}}, "enum": {}, "items": {"type": "string"}}}),
        json!({"type": "array", "unevaluatedItems": false}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
    ] {
        assert!(!lower(&mut schema.clone()), "{schema}");
        assert_eq!(lowered(schema.clone()), schema);
    }
}

#[test]
fn a_union_at_the_root_is_offered_as_one_object_and_checked_as_the_union() {
    let schema = json!({
        "type": "object",
        "description": "Finds.",
        "properties": {"limit": {"type": "integer"}},
        "oneOf": [
            {"required": ["id", "kind"], "properties": {"id": {"type": "string"}, "kind": {"const": "a"}}},
            {"allOf": [{"$ref": "#/$defs/named"}], "required": ["kind"], "properties": {"kind": {"const": "b"}}},
        ],
        "$defs": {"named": {"required": ["name"], "properties": {"name": {"type": "string"}, "tags": {"type": "array"}}}},
    });
    let input = InputSchema::compile("find", schema, false).unwrap();
    let expected = json!({
        "type": "object",
        "description": "Finds.\nGive the arguments of one of these lines:\n`id`, `kind`\n`kind`, `name`",
        "properties": {
            "limit": {"type": "integer"}, "id": {"type": "string"}, "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
            "name": {"type": "string"}, "tags": {"type": "array", "items": {}},
        },
        "required": ["kind"],
        "$defs": {"named": {"required": ["name"],
            "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {}}}}},
    });
    assert_eq!((input.document(), &*input.shared_document()), (&expected, &expected));
    let fits = |arguments: Value| input.validate(arguments.as_object().cloned().unwrap()).is_ok();
    assert!(fits(json!({"kind": "a", "id": "1"})) && fits(json!({"kind": "b", "name": "n", "tags": [1]})));
    assert!(!fits(json!({"kind": "a"})) && !fits(json!({"kind": "b", "id": "1"})));
}

#[test]
fn members_that_the_root_excludes_are_not_offered() {
    let schema = json!({
        "type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false,
        "anyOf": [{"required": ["a"]}, {"properties": {"c": {}}}], "not": {"required": ["a", "b"]},
    });
    let expected = json!({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false});
    assert_eq!(without_union(&schema), Some(expected.clone()));
    assert_eq!(without_union(&expected), None);
}

/// The schema of a server that nobody trusts.
#[test]
fn a_union_of_thousands_of_parts_is_flat_and_bounded() {
    let parts: Vec<_> = (0..5_000).map(|n| json!({"properties": {"x": {"not": {"const": n}}}})).collect();
    for (keyword, listed) in [("allOf", "allOf"), ("oneOf", "anyOf")] {
        let offered = without_union(&json!({"type": "object", keyword: parts})).unwrap();
        let all = offered["properties"]["x"][listed].as_array().unwrap();
        assert_eq!((all.len(), &all[4_999]), (5_000, &json!({"not": {"const": 4_999}})), "{keyword}");
    }
    let names: Vec<_> = (0..1_000).map(|n| format!("p{n}")).collect();
    let properties: Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
    for large in [json!({"properties": properties}), json!({"required": names})] {
        let parts = vec![json!({"$ref": "#/$defs/large"}); 1_000];
        assert_eq!(without_union(&json!({"type": "object", "anyOf": parts, "$defs": {"large": large}})), None);
    }
}

/// A lock and approvals are for the schema that the source describes, whatever a version of the gateway makes of it.
#[test]
fn the_described_schema_and_its_hash_stay() {
    let plain = json!({"type": "object", "properties": {"list": {"type": "array"}}, "anyOf": [{"required": ["list"]}]});
    let parameters = Parameters::shared(plain.clone());
    assert_eq!(parameters.described(), &plain);
    assert_eq!(parameters.document()["properties"]["list"]["items"], json!({}));
    let input = InputSchema::compile("tool", parameters, false).unwrap();
    let root = plain.as_object().unwrap();
    assert_eq!(input.hash(), hex::encode(sekisho_core::json::digest(root)));
}

#[test]
fn schemas_of_an_older_dialect_can_be_compiled() {
    let output = OutputSchema::compile(json!({"type": "number", "minimum": 0, "exclusiveMinimum": true})).unwrap();
    assert!(output.violations(&json!(0.5)).is_empty() && !output.violations(&json!(0)).is_empty());
    let schema = json!({"properties": {"page": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}});
    let input = InputSchema::compile("read", schema, false).unwrap();
    let fits = |page: i64| input.validate(json!({"page": page}).as_object().cloned().unwrap()).is_ok();
    assert!(fits(1) && !fits(0));
}
