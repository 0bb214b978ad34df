use super::*;

/// The lowered schema, its definitions, and the report on it.
fn lowered(version: Version, direction: Direction, document: &Value) -> (Value, Map<String, Value>, Vec<Note>) {
    let references = References::new(document);
    let mut lowering = Lowering::new(version);
    let lowered = lowering.lower(&document["schema"], Site { references: &references, direction, place: "here" });
    let Lowered { definitions, notes, .. } = lowering.finish(&references);
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
        (
            V3_0,
            json!({"type": "object", "nullable": true, "allOf": [{"type": "object"}], "description": "D."}),
            json!({"description": "D.", "anyOf": [{"type": "object", "allOf": [{"type": "object"}]}, {"type": "null"}]}),
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
fn null_removes_any_member_of_a_merge_patch() {
    let document = json!({
        "schema": {"$ref": "#/pet"},
        "pet": {"type": "object", "properties": {
            "name": {"type": "string", "enum": ["a"]}, "size": {"type": ["integer", "string"]}, "kind": {"const": "cat"},
            "home": {"$ref": "#/home"}, "tags": {"type": "array", "items": {"$ref": "#/home"}},
            "homes": {"type": "object", "unevaluatedProperties": {"$ref": "#/home"}}}},
        "home": {"type": "object", "properties": {"street": {"type": "string"}},
            "additionalProperties": {"type": "string"}, "patternProperties": {"^x": {"type": "number"}}},
    });
    let (mut schema, definitions, _) = lowered(Version::V3_1, Direction::MergePatch, &document);
    assert_eq!(schema["$ref"], "#/$defs/pet-Patch");
    schema["$defs"] = definitions.into();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for member in ["name", "size", "kind", "home", "tags"] {
        assert!(validator.is_valid(&json!({member: null})), "{member}");
    }
    assert!(validator.is_valid(&json!({"home": {"street": null, "further": null, "x": null}})));
    assert!(validator.is_valid(&json!({"homes": {"first": null, "second": {"street": null}}})));
    // A list is replaced as a whole.
    assert!(!validator.is_valid(&json!({"tags": [{"street": null}]})));
    assert!(!validator.is_valid(&json!(null)) && !validator.is_valid(&json!({"name": 1})));
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

/// Only the lowered schema, checked against values.
fn accepts(document: &Value, fitting: &[Value], other: &[Value]) {
    let version = if document.get("definitions").is_some() { Version::Swagger2 } else { Version::V3_0 };
    let (mut schema, definitions, _) = lowered(version, Direction::Request, document);
    schema["$defs"] = definitions.into();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for value in fitting {
        assert!(validator.is_valid(value), "{value} does not fit {schema:#}");
    }
    for value in other {
        assert!(!validator.is_valid(value), "{value} fits {schema:#}");
    }
}

#[test]
fn alternatives_that_contain_each_other_accept_a_value_of_both_and_are_reported() {
    for (alternatives, value, overlap) in [
        (json!([{"type": "integer"}, {"type": "number"}]), json!(1), true),
        (json!([{"type": "string", "enum": ["a"]}, {"type": "string"}]), json!("a"), true),
        (json!([{"$ref": "#/narrow"}, {"$ref": "#/wide"}]), json!({"a": 1, "b": 1}), true),
        (json!([{"type": "array", "items": {"type": "integer"}}, {"items": {"type": "number"}}]), json!([1]), true),
        (json!([{"properties": {"a": {}}}, {"properties": {"b": {}}}]), json!({"a": 1}), true),
        (
            json!([{"allOf": [{"$ref": "#/wide"}, {"properties": {"c": {}}}]}, {"allOf": [{"$ref": "#/wide"}, {"properties": {"d": {}}}]}]),
            json!({"a": 1, "c": 1}),
            true,
        ),
        (json!([{"required": ["a"]}, {"required": ["b"]}]), json!({"a": 1}), false),
        (json!([{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]), json!("a"), false),
        (json!([{"enum": ["a"]}, {"enum": ["b"]}, {"type": "integer"}]), json!("b"), false),
    ] {
        let document = json!({"schema": {"oneOf": alternatives},
            "wide": {"type": "object", "required": ["a"], "properties": {"a": {"type": "number"}}},
            "narrow": {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "integer"}, "b": {}}}});
        let (schema, _, notes) = lowered(Version::V3_0, Direction::Request, &document);
        assert_eq!(schema.get("anyOf").is_some(), overlap, "{alternatives}");
        assert_eq!(notes.iter().filter(|note| note.reason.contains("overlap")).count(), usize::from(overlap));
        accepts(&document, &[value], &[]);
    }
}

#[test]
fn the_values_of_a_discriminators_mapping_select_their_alternatives() {
    let document = json!({
        "schema": {"oneOf": [{"$ref": "#/components/schemas/Card"}, {"$ref": "#/components/schemas/Bank"}, {"$ref": "#/components/schemas/Cash"}],
            "discriminator": {"propertyName": "method", "mapping": {
                "card": "#/components/schemas/Card", "credit": "Card", "wrong": "#/components/schemas/Cash", "bank": "Bank"}}},
        "components": {"schemas": {
            "Card": {"type": "object", "required": ["number"], "properties": {"method": {"type": "string"}, "number": {}}},
            "Bank": {"type": "object", "properties": {"method": {"type": "string"}}, "required": ["iban"]},
            "Cash": {"type": "object", "properties": {"method": {"enum": ["cash"]}}, "required": ["method"]},
        }},
    });
    let (schema, ..) = lowered(Version::V3_0, Direction::Request, &document);
    assert_eq!(schema["description"], "`method` selects the alternative: card, credit, bank.");
    let fitting = [
        json!({"method": "card", "number": 1}),
        json!({"method": "credit", "number": 1}),
        json!({"method": "bank", "iban": "x"}),
        // The mapping contradicts the alternative, which has precedence.
        json!({"method": "cash"}),
    ];
    accepts(&document, &fitting, &[json!({"method": "plain", "number": 1}), json!({"method": "card", "iban": "x"})]);
}

#[test]
fn schemas_that_inherit_are_offered_with_their_values() {
    let schemas = |prefix: &str, mapping: Value| {
        let parent = json!({"$ref": format!("{prefix}Pet")});
        json!({
            "Pet": {"type": "object", "description": "Any.", "discriminator": mapping, "required": ["petType"],
                "properties": {"petType": {"type": "string"}, "friend": parent}},
            "Cat": {"allOf": [parent, {"type": "object", "required": ["skill"], "properties": {"skill": {"type": "string"}}}]},
            "Kitten": {"allOf": [{"$ref": format!("{prefix}Cat")}, {"properties": {"age": {"type": "integer"}}}], "x-ms-discriminator-value": "kitty"},
        })
    };
    let old =
        json!({"schema": {"$ref": "#/definitions/Pet"}, "definitions": schemas("#/definitions/", json!("petType"))});
    let (_, definitions, notes) = lowered(Version::Swagger2, Direction::Request, &old);
    assert_eq!(notes, []);
    let pet = &definitions["Pet"];
    assert_eq!(pet["description"], "Any.\n`petType` selects the alternative: Cat, kitty.");
    assert_eq!(
        pet["anyOf"][1],
        json!({"allOf": [{"$ref": "#/$defs/Cat"}, {"properties": {"petType": {"enum": ["Cat"]}}}]})
    );
    assert_eq!(definitions["Cat"]["allOf"][0], json!({"$ref": "#/$defs/Pet-Base"}));
    accepts(
        &old,
        &[json!({"petType": "Cat", "skill": "hunt"}), json!({"petType": "x", "friend": {"petType": "Cat"}})],
        &[json!({})],
    );

    let mapping =
        json!({"propertyName": "petType", "mapping": {"cat": "#/components/schemas/Cat", "kitten": "Kitten"}});
    let new = json!({"schema": {"$ref": "#/components/schemas/Pet"}, "components": {"schemas": schemas("#/components/schemas/", mapping)}});
    let fitting = [
        json!({"petType": "cat", "skill": "hunt"}),
        json!({"petType": "kitten", "skill": "", "age": 1}),
        json!({"petType": "Pet"}),
    ];
    accepts(
        &new,
        &fitting,
        &[json!({"petType": "cat"}), json!({"petType": "dog"}), json!({"petType": "kitten", "skill": "", "age": "x"})],
    );
    let (got, definitions, _) = lowered(Version::V3_0, Direction::Response, &new);
    assert_eq!((got, definitions["Pet-Output"].get("anyOf")), (json!({"$ref": "#/$defs/Pet-Output"}), None));
}

#[test]
fn what_one_part_of_a_composition_marks_as_read_only_no_other_requires() {
    let document = json!({
        "schema": {"allOf": [{"$ref": "#/named"}, {"required": ["id", "name"]}, {"properties": {"id": {"readOnly": true}}}], "required": ["id"]},
        "named": {"type": "object", "required": ["id"], "properties": {"name": {"type": "string"}}},
    });
    accepts(&document, &[json!({"name": "Rex"})], &[json!({}), json!({"name": 1})]);
    let (_, definitions, _) = lowered(Version::V3_0, Direction::Response, &document);
    assert_eq!(definitions["named-Output"]["required"], json!(["id"]));
}
