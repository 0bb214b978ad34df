use super::*;

/// The lowered schema, its definitions, and the report on it.
fn lowered(version: Version, direction: Direction, document: &Value) -> (Value, Map<String, Value>, Vec<Note>) {
    let references = References::new(document);
    let mut lowering = Lowering::new(version);
    let lowered = lowering.lower(&document["schema"], Site { references: &references, direction, place: "here" });
    let (definitions, notes) = lowering.finish(&references);
    (lowered, definitions, notes)
}

#[test]
fn schemas_of_each_version_become_2020_12() {
    use Version::{Swagger2, V3_0, V3_1};
    for (version, schema, expected) in [
        (V3_0, json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (
            V3_0,
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (
            V3_0,
            json!({"nullable": true, "allOf": [{"type": "string"}]}),
            json!({"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
        ),
        (Swagger2, json!({"type": "integer", "x-nullable": true}), json!({"type": ["integer", "null"]})),
        (V3_1, json!({"type": ["string", "null"]}), json!({"type": ["string", "null"]})),
        (V3_0, json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1})),
        (V3_0, json!({"maximum": 1, "exclusiveMaximum": false}), json!({"maximum": 1})),
        (V3_1, json!({"exclusiveMinimum": 1}), json!({"exclusiveMinimum": 1})),
        (V3_0, json!({"type": "string", "enum": [1, true]}), json!({"type": "string", "enum": ["1", "true"]})),
        (V3_0, json!({"example": 1, "xml": {}, "x-y": 1, "required": true}), json!({"examples": [1]})),
        (Swagger2, json!({"type": "file"}), json!({"type": "string"})),
        (Swagger2, json!({"type": "int"}), json!({"type": "integer"})),
        (V3_0, json!({"type": "String"}), json!({"type": "string"})),
        (V3_0, json!({"items": [{"type": "string"}]}), json!({"prefixItems": [{"type": "string"}]})),
    ] {
        let (lowered, _, notes) = lowered(version, Direction::Request, &json!({"schema": schema}));
        assert_eq!(lowered, expected, "{schema}");
        assert_eq!(notes, [], "{schema}");
    }
}

#[test]
fn an_invalid_keyword_value_is_left_out_and_reported() {
    for schema in [
        json!({"type": "anything"}),
        json!({"pattern": "("}),
        // Such a one takes megabytes when compiled; the operation is offered without it.
        json!({"pattern": "^.{1,16000}$"}),
        json!({"minLength": -1}),
        json!({"minimum": "0"}),
        json!({"multipleOf": 0}),
        json!({"properties": []}),
        json!({"enum": []}),
        json!({"patternProperties": {"(": {}}}),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": "#/schema"}),
    ] {
        let (lowered, _, notes) = lowered(Version::V3_1, Direction::Request, &json!({"schema": schema}));
        assert_eq!((lowered, notes.len()), (json!({}), 1), "{schema}");
    }
}

#[test]
fn properties_go_only_the_way_they_are_meant_to() {
    let document = json!({
        "schema": {"$ref": "#/a"},
        "a": {"required": ["id", "secret"], "properties": {
            "id": {"$ref": "#/id"}, "secret": {"type": "string", "writeOnly": true}}},
        "id": {"type": "integer", "readOnly": true},
    });
    let (sent, definitions, _) = lowered(Version::V3_0, Direction::Request, &document);
    assert_eq!(sent, json!({"$ref": "#/$defs/a"}));
    assert_eq!(definitions["a"], json!({"required": ["secret"], "properties": {"secret": {"type": "string"}}}));
    let (got, definitions, _) = lowered(Version::V3_0, Direction::Response, &document);
    assert_eq!(got, json!({"$ref": "#/$defs/a-Output"}));
    assert_eq!(definitions["a-Output"]["required"], json!(["id"]));
}

#[test]
fn recursion_into_the_value_stays_and_a_circle_about_it_is_opened() {
    let document = json!({
        "schema": {"$ref": "#/tree"},
        "tree": {"properties": {"left": {"$ref": "#/tree"}}, "allOf": [{"$ref": "#/loop"}]},
        "loop": {"anyOf": [{"$ref": "#/tree"}, {"type": "object"}]},
    });
    let (_, definitions, notes) = lowered(Version::V3_1, Direction::Request, &document);
    assert_eq!(definitions["tree"]["properties"]["left"], json!({"$ref": "#/$defs/tree"}));
    assert_eq!(definitions["loop"], json!({"anyOf": [{}, {"type": "object"}]}));
    assert_eq!(notes.len(), 1, "{notes:?}");
}
