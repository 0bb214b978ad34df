use super::*;
use crate::tool::InputSchema;

fn definitions(value: Value) -> Map<String, Value> {
    let Value::Object(definitions) = value else { panic!("no object") };
    definitions
}

#[test]
fn only_reached_definitions_are_added_and_recursion_is_kept() {
    let all = definitions(json!({
        "Pet": {"type": "object", "properties": {"friend": {"$ref": "#/$defs/Pet"}, "tag": {"$ref": "#/$defs/Tag"}}},
        "Tag": {"type": "string"},
        "Other": {"type": "integer"},
    }));
    let mut schema = json!({"type": "object", "properties": {"pet": {"$ref": "#/$defs/Pet"}}});
    assert_eq!(attach(&mut schema, &all, 10_000), Fit::Whole);
    let reached: Vec<_> = schema["$defs"].as_object().unwrap().keys().collect();
    assert_eq!(reached, ["Pet", "Tag"]);
    InputSchema::compile("t", schema, false).unwrap();
}

#[test]
fn a_schema_that_is_too_large_loses_texts_first_and_then_distant_definitions() {
    let wordy = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}});
    let all = definitions(json!({"A": {"type": "string", "description": "x".repeat(5_000), "maxLength": 3}}));
    let mut schema = wordy;
    assert_eq!(attach(&mut schema, &all, 1_000), Fit::Shortened);
    assert_eq!(schema["$defs"]["A"]["maxLength"], 3);

    let chain: Map<String, Value> = (0..2_000)
        .map(|n| (format!("D{n}"), json!({"properties": {"next": {"$ref": format!("#/$defs/D{}", n + 1)}}})))
        .chain([("D2000".to_owned(), json!({"type": "string"}))])
        .collect();
    let mut schema = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/D0"}}});
    assert_eq!(attach(&mut schema, &chain, 4_000), Fit::Opened);
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 2);
    InputSchema::compile("t", schema, false).unwrap();
}

/// `not: anything` would refuse everything, and "exactly one" fails when all alternatives match.
#[test]
fn an_opened_schema_refuses_nothing_that_the_whole_one_takes() {
    let deep = (0..120).fold(json!({"const": 1}), |inner, _| json!({"properties": {"x": inner}}));
    let mut schema = json!({"type": "object", "not": deep, "oneOf": [deep, {"required": ["y"]}]});
    assert_eq!(attach(&mut schema, &Map::new(), 100_000), Fit::Opened);
    assert_eq!(schema.get("not"), None);
    assert_eq!(schema.get("oneOf"), None);
    assert_eq!(schema["anyOf"][1], json!({"required": ["y"]}));
    InputSchema::compile("t", schema, false).unwrap();
}

#[test]
fn a_schema_that_is_too_large_at_any_detail_allows_anything_of_its_type() {
    let names: Map<String, Value> = (0..500).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let mut schema = json!({"type": "array", "properties": names});
    assert_eq!(attach(&mut schema, &Map::new(), 1_000), Fit::Opened);
    assert_eq!(schema, json!({"type": "array"}));
    let mut schema = json!({"$ref": "#/$defs/nowhere"});
    assert_eq!(attach(&mut schema, &Map::new(), 1_000), Fit::Opened);
    assert_eq!(schema, json!({}));
}
