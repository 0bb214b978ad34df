use proptest::prelude::*;
use serde_json::json;

use super::*;
use sekisho_core::call::Arguments;
use sekisho_core::error::ErrorCode;
use sekisho_core::json;

fn compile(schema: Value) -> InputSchema {
    InputSchema::compile("calculator", schema, true).unwrap()
}

fn map(value: Value) -> Arguments {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is not an object"),
    }
}

/// The details of a refusal: `path rule: message`.
fn refusals(schema: &Value, arguments: Value) -> Vec<String> {
    let error = compile(schema.clone()).validate(map(arguments)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArguments);
    error.details().iter().map(|detail| format!("{} {}: {}", detail.path, detail.rule, detail.message)).collect()
}

/// The arguments after coercion, and the changes as `path rule from to`.
fn coerced(schema: &Value, arguments: Value) -> Option<(Value, Vec<String>)> {
    let valid = compile(schema.clone()).validate(map(arguments)).ok()?;
    let changes =
        valid.coercions().iter().map(|change| format!("{} {} {} {}", change.path, change.rule, change.from, change.to));
    Some((Value::Object(valid.as_map().clone()), changes.collect()))
}

#[test]
fn arguments_that_fit_pass_unchanged() {
    let schema = compile(json!({"type": "object", "properties": {"expression": {"type": "string"}}}));
    let valid = schema.validate(map(json!({"expression": "3", "more": [1.5, null]}))).unwrap();
    assert_eq!(Value::Object(valid.as_map().clone()), json!({"expression": "3", "more": [1.5, null]}));
    assert!(valid.coercions().is_empty());
}

#[test]
fn a_refusal_has_the_path_and_what_to_do() {
    let schema = json!({
        "properties": {
            "expression": {"type": "string", "maxLength": 8, "pattern": "^[0-9+]*$"},
            "count": {"type": "integer", "minimum": 1, "maximum": 10},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "items": {"type": "array", "maxItems": 2, "uniqueItems": true,
                "items": {"type": "object", "properties": {"a/b": {"type": "boolean"}}, "required": ["name"]}},
            "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "status": {"anyOf": [{"type": "string", "enum": ["open", "closed"]}, {"type": "null"}]},
            "sort": {"oneOf": [{"const": "up"}, {"const": "down"}]},
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["radius"]},
                {"type": "string"}]},
            "address": {"$ref": "#/$defs/address"},
        },
        "required": ["expression"],
        "additionalProperties": false,
        "$defs": {"address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    });
    let cases = [
        (json!({}), "/expression required: `expression` is missing: add it (a string)"),
        (json!({"expression": 5}), "/expression type: `expression` must be a string, got 5"),
        (json!({"expression": null}), "/expression type: `expression` must be a string, got null"),
        (
            json!({"expression": "1+1+1+1+1"}),
            "/expression maxLength: `expression` must have at most 8 characters, has 9",
        ),
        (json!({"expression": "x"}), "/expression pattern: `expression` must match the pattern `^[0-9+]*$`, got \"x\""),
        (json!({"expression": "1", "count": 0}), "/count minimum: `count` must be at least 1, got 0"),
        (json!({"expression": "1", "count": "11"}), "/count maximum: `count` must be at most 10, got 11"),
        (json!({"expression": "1", "count": 2.5}), "/count type: `count` must be an integer, got 2.5"),
        (
            json!({"expression": "1", "unit": "Celcius"}),
            "/unit enum: `unit` must be one of \"celsius\", \"fahrenheit\"; did you mean \"celsius\"?",
        ),
        (json!({"expression": "1", "unit": 7}), "/unit enum: `unit` must be one of \"celsius\", \"fahrenheit\", got 7"),
        (json!({"expression": "1", "items": [{}]}), "/items/0/name required: `items[0].name` is missing: add it"),
        (
            json!({"expression": "1", "items": [{"name": 1, "a/b": []}]}),
            "/items/0/a~1b type: `items[0].a/b` must be true or false, got an array of 0 items",
        ),
        (json!({"expression": "1", "who": 3}), "/who anyOf: `who` must be a string or null, got 3"),
        (
            json!({"expression": "1", "status": "pending"}),
            "/status anyOf: `status` must be one of \"open\", \"closed\" or null, got \"pending\"",
        ),
        (
            json!({"expression": "1", "status": 7}),
            "/status anyOf: `status` must be one of \"open\", \"closed\" or null, got 7",
        ),
        (
            json!({"expression": "1", "sort": "dwn"}),
            "/sort oneOf: `sort` must be one of \"up\", \"down\"; did you mean \"down\"?",
        ),
        (
            json!({"expression": "1", "shape": {"kind": "circle"}}),
            "/shape oneOf: `shape` must match one of 2 alternatives; the nearest: `shape.radius` is missing: add it (a number)",
        ),
        (
            json!({"expression": "1", "address": {}}),
            "/address/city required: `address.city` is missing: add it (a string)",
        ),
        (
            json!({"expression": "1", "units": 7}),
            "/units additionalProperties: the arguments may have only the names `expression`, `count`, `unit`, `items`, \
             `who`, `status`, `sort`, `shape`, `address`; `units` is not allowed, did you mean `unit`?",
        ),
        (
            json!({"expression": "1", "city": "Oslo"}),
            "/city additionalProperties: the arguments may have only the names `expression`, `count`, `unit`, `items`, \
             `who`, `status`, `sort`, `shape`, `address`; put `city` into `address`",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(refusals(&schema, arguments.clone()), [expected], "{arguments}");
    }
}

#[test]
fn the_message_is_complete_and_contains_no_value() {
    let schema = compile(
        json!({"properties": {"password": {"type": "string", "pattern": "^x"}}, "additionalProperties": false}),
    );
    let error = schema.validate(map(json!({"password": "hunter2", "sesame": 1}))).unwrap_err();
    let message = "invalid arguments for calculator: `password` must match the pattern `^x` (and 1 more in `details`)";
    assert_eq!(error.message(), message);
    assert!(error.details()[0].message.contains("hunter2"));
}

#[test]
fn refusals_stay_small_however_large_the_arguments() {
    let schema =
        json!({"properties": {"list": {"type": "array", "items": {"type": "string"}}}, "additionalProperties": false});
    assert_eq!(refusals(&schema, json!({"list": vec![0; 100]})).len(), violation::MAX_VIOLATIONS);
    assert_eq!(
        refusals(&schema, json!({"list": vec![0; 200_000]})),
        ["/list/0 type: `list[0]` must be a string, got 0"]
    );
    let long = "y".repeat(1 << 20);
    for arguments in [json!({"list": &long}), Value::Object(Arguments::from_iter([(long, json!(1))]))] {
        let refusals = refusals(&schema, arguments);
        assert!(refusals.len() == 1 && refusals[0].len() < 1_000, "{}", refusals[0].len());
    }
}

/// `jsonschema` would collect four million errors here, which takes gigabytes and seconds.
#[test]
fn the_violations_of_a_widely_branching_schema_are_bounded() {
    let branches = vec![json!({"$ref": "#"}); 4];
    let schema = json!({"type": "object", "properties": {"a": {"allOf": branches}, "z": {"type": "string"}}});
    let arguments = (0..11).fold(json!({"z": 3}), |inner, _| json!({"a": inner}));
    assert_eq!(
        refusals(&schema, arguments),
        [
            " schema: the arguments must match the schema; the value is too large to locate the violation, send a smaller one"
        ]
    );
}

#[test]
fn a_pattern_that_backtracks_without_end_refuses_the_value() {
    let schema = json!({"properties": {"q": {"type": "string", "pattern": "^(?=a)(a|a)*b\\1$"}}});
    let refusals = refusals(&schema, json!({"q": "a".repeat(5_000)}));
    assert!(refusals[0].starts_with("/q pattern: matching `q` "), "{refusals:?}");
}

#[test]
fn invalid_schemas_are_refused_with_the_reason() {
    let cases = [
        (json!(null), "must be an object with `type: object`"),
        (json!({"type": "string"}), "must have `type: object`, not \"string\""),
        (json!({"type": ["object", "null"]}), "must have `type: object`"),
        (json!({"properties": {"a": {"type": "strng"}}}), "not valid at \"/properties/a/type\""),
        (json!({"properties": {"a": {"minimum": "1"}}}), "not valid at \"/properties/a/minimum\""),
        (json!({"properties": {"a": {"pattern": "("}}}), "not valid at \"/properties/a/pattern\""),
        (json!({"properties": {"a": {"pattern": "(".repeat(100_000)}}}), "not valid at"),
        (json!({"properties": {"a": {"pattern": "((a{1000}){1000}){1000}"}}}), "not valid at"),
        (json!({"$ref": "https://example.com/schema.json"}), "must point into the schema itself, as `#/…`"),
        (json!({"$schema": "https://example.com/own"}), "not valid"),
    ];
    for (schema, expected) in cases {
        let InvalidSchema(problem) = InputSchema::compile("t", schema.clone(), true).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
        assert!(problem.chars().count() < 500, "{problem}");
    }
}

#[test]
fn a_root_without_a_type_requires_an_object() {
    assert_eq!(compile(json!({})).document(), &json!({"type": "object"}));
    let one = compile(json!({"type": "object", "title": "t"}));
    assert_eq!(one.hash(), compile(json!({"title": "t"})).hash(), "the hash does not depend on order");
    assert_ne!(one.hash(), compile(json!({"title": "u"})).hash());
    assert_eq!(one.hash().len(), 64);
}

#[test]
fn wrong_json_types_are_coerced_and_reported() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"},
            "maybe": {"type": ["integer", "null"]}, "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            "free": {}, "level": {"enum": [1, 2]}, "list": {"type": "array", "items": {"$ref": "#/$defs/n"}},
            "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
            "in": {"allOf": [{"properties": {"a/b": {"type": "integer"}}}]},
            "node": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]},
        },
        "$defs": {"n": {"type": "integer"}},
    });
    let cases = [
        (json!({"n": "3"}), json!({"n": 3}), "/n string_to_integer \"3\" 3"),
        (json!({"n": "-17"}), json!({"n": -17}), "/n string_to_integer \"-17\" -17"),
        (json!({"x": "2.5"}), json!({"x": 2.5}), "/x string_to_number \"2.5\" 2.5"),
        (json!({"x": "3"}), json!({"x": 3}), "/x string_to_number \"3\" 3"),
        (json!({"b": "true"}), json!({"b": true}), "/b string_to_boolean \"true\" true"),
        (json!({"b": "false"}), json!({"b": false}), "/b string_to_boolean \"false\" false"),
        (json!({"n": 3.0}), json!({"n": 3}), "/n whole_number_to_integer 3.0 3"),
        (json!({"maybe": "4"}), json!({"maybe": 4}), "/maybe string_to_integer \"4\" 4"),
        (json!({"either": "4"}), json!({"either": 4}), "/either string_to_integer \"4\" 4"),
        (json!({"either": "true"}), json!({"either": true}), "/either string_to_boolean \"true\" true"),
        (json!({"level": "2"}), json!({"level": 2}), "/level string_to_integer \"2\" 2"),
        (json!({"list": [1, "2"]}), json!({"list": [1, 2]}), "/list/1 string_to_integer \"2\" 2"),
        (json!({"pair": ["1", "2"]}), json!({"pair": [1, "2"]}), "/pair/0 string_to_integer \"1\" 1"),
        (json!({"in": {"a/b": "1"}}), json!({"in": {"a/b": 1}}), "/in/a~1b string_to_integer \"1\" 1"),
        (json!({"node": {"n": "1"}}), json!({"node": {"n": 1}}), "/node/n string_to_integer \"1\" 1"),
        (
            json!({"calculator": {"n": 1}, "n": "2"}),
            json!({"calculator": {"n": 1}, "n": 2}),
            "/n string_to_integer \"2\" 2",
        ),
    ];
    for (given, expected, change) in cases {
        assert_eq!(coerced(&schema, given), Some((expected, vec![change.to_owned()])));
    }
    for kept in
        [json!({"s": "3"}), json!({"x": 3.0}), json!({"free": "3"}), json!({"free": 3.0}), json!({"maybe": null})]
    {
        assert_eq!(coerced(&schema, kept.clone()), Some((kept, Vec::new())));
    }
}

#[test]
fn other_values_of_the_wrong_type_are_refused() {
    let schema = json!({"properties": {"n": {"type": "integer", "minimum": 1}, "x": {"type": "number"}, "b": {"type": "boolean"},
        "s": {"type": "string"}, "list": {"type": "array"}, "object": {"type": "object"}}});
    let refused = [
        ("n", json!(" 3")),
        ("n", json!("3 ")),
        ("n", json!("+3")),
        ("n", json!("03")),
        ("n", json!("0x3")),
        ("n", json!("3.0")),
        ("n", json!("3e2")),
        ("n", json!("")),
        ("n", json!("３")),
        ("n", json!("99999999999999999999999")),
        ("n", json!(2.5)),
        ("n", json!(true)),
        ("n", json!("0")),
        ("n", json!(["3"])),
        ("x", json!("NaN")),
        ("x", json!("Infinity")),
        ("x", json!("1e400")),
        ("x", json!("1e-400")),
        ("x", json!("123456789012345678901")),
        ("x", json!("9".repeat(400))),
        ("x", json!("1,5")),
        ("x", json!(null)),
        ("b", json!("True")),
        ("b", json!("yes")),
        ("b", json!(1)),
        ("b", json!("1")),
        ("s", json!(3)),
        ("s", json!(true)),
        ("list", json!("[1,2]")),
        ("list", json!("1")),
        ("object", json!("{}")),
    ];
    for (name, value) in refused {
        assert!(coerced(&schema, json!({name: value})).is_none(), "{name} {value}");
    }
}

#[test]
fn arguments_nested_under_the_tools_own_name_are_unwrapped() {
    let schema = json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let (arguments, changes) = coerced(&schema, json!({"calculator": {"n": "3"}})).unwrap();
    assert_eq!(arguments, json!({"n": 3}));
    assert_eq!(changes, [r#" unwrapped "/calculator" """#, r#"/n string_to_integer "3" 3"#]);
    for kept in ["arguments", "parameters", "Calculator"] {
        assert!(coerced(&schema, json!({kept: {"n": 3}})).is_none(), "{kept}");
    }
    let own = json!({"properties": {"calculator": {"type": "object"}, "n": {}}, "required": ["n"]});
    assert!(coerced(&own, json!({"calculator": {"n": 3}})).is_none());
    let open = json!({"properties": {"n": {"type": "integer"}}});
    for nested in [json!({"calculator": {"n": 3}}), json!({"calculator": {"n": 3.0}})] {
        assert_eq!(coerced(&open, nested.clone()), Some((nested, Vec::new())), "it is valid unchanged");
    }
}

#[test]
fn nothing_is_coerced_when_coercion_is_off() {
    let schema = json!({"properties": {"n": {"type": "integer"}}});
    let schema = InputSchema::compile("calculator", schema, false).unwrap();
    assert!(schema.validate(map(json!({"n": "3"}))).is_err());
    assert_eq!(schema.validate(map(json!({"n": 3.0}))).unwrap().as_map()["n"], json!(3.0));
}

#[test]
fn arguments_that_need_too_many_changes_are_refused() {
    let schema = json!({"properties": {"list": {"items": {"type": "integer"}}}});
    assert!(coerced(&schema, json!({"list": vec!["1"; 100]})).is_some());
    assert!(coerced(&schema, json!({"list": vec!["1"; 101]})).is_none());
}

#[test]
fn violations_of_an_output_are_reported_like_those_of_arguments() {
    let schema = OutputSchema::compile(json!({"type": "array", "items": {"type": "integer"}})).unwrap();
    assert!(schema.violations(&json!([1, 2])).is_empty());
    let details = schema.violations(&json!([1, "2"]));
    assert_eq!((details[0].path.as_str(), details[0].rule.as_str()), ("/1", "type"));
    assert_eq!(schema.violations(&json!({}))[0].message, "the output must be an array, got an object of 0 members");
    let forms = json!([{"type": "object", "required": ["a"]}, {"type": "null"}, {"type": "object", "required": ["b"]}]);
    let schema = OutputSchema::compile(json!({"oneOf": forms})).unwrap();
    assert_eq!(schema.violations(&json!(7))[0].message, "the output must be an object or null, got 7");
}

/// Arguments similar to the schema of the property tests below.
fn near_arguments() -> impl Strategy<Value = Value> {
    let scalar = || {
        prop_oneof![
            any::<i8>().prop_map(Value::from),
            any::<i8>().prop_map(|number| Value::from(f64::from(number))),
            any::<f32>()
                .prop_filter_map("finite", |number| serde_json::Number::from_f64(number.into()).map(Value::from)),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(|number| Value::from(number.to_string())),
            prop_oneof![Just("true"), Just("false"), Just("2.5"), Just("1e3"), Just("x"), Just("")]
                .prop_map(Value::from),
            Just(Value::Null),
        ]
    };
    let name =
        || prop_oneof![Just("n"), Just("x"), Just("b"), Just("s"), Just("list"), Just("any"), Just("calculator")];
    let value = prop_oneof![
        4 => scalar(),
        1 => prop::collection::vec(scalar(), 0..4).prop_map(Value::from),
        1 => prop::collection::btree_map(name().prop_map(str::to_owned), scalar(), 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
    ];
    prop::collection::btree_map(name().prop_map(str::to_owned), value, 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn near_schema() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {
        "n": {"type": "integer", "maximum": 100}, "x": {"type": "number"}, "b": {"type": ["boolean", "null"]}, "s": {"type": "string"},
        "list": {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}},
        "any": {"anyOf": [{"type": "object", "properties": {"n": {"type": "integer"}}}, {"type": ["string", "array"]}]}}})
}

/// Equal to JSON Schema: `3.0` is `3`.
fn same(one: &Value, other: &Value) -> bool {
    json::digest(one.as_object().unwrap()) == json::digest(other.as_object().unwrap())
}

proptest! {
    #[test]
    fn coercion_never_changes_valid_arguments(arguments in near_arguments()) {
        let strict = InputSchema::compile("calculator", near_schema(), false).unwrap();
        if strict.validate(map(arguments.clone())).is_ok() {
            let (kept, _) = coerced(&near_schema(), arguments.clone()).unwrap();
            prop_assert!(same(&kept, &arguments), "{} became {}", arguments, kept);
        }
    }

    #[test]
    fn coerced_arguments_are_valid(arguments in near_arguments()) {
        if let Some((mended, _)) = coerced(&near_schema(), arguments) {
            prop_assert_eq!(coerced(&near_schema(), mended.clone()), Some((mended, Vec::new())));
        }
    }

    #[test]
    fn every_violation_is_reported(arguments in near_arguments()) {
        if let Some((mended, changes)) = coerced(&near_schema(), arguments.clone()) {
            prop_assert_eq!(mended == arguments, changes.is_empty());
        }
    }

    #[test]
    fn any_arguments_are_accepted_or_refused(arguments in json::arbitrary::any_json()) {
        let arguments = Arguments::from_iter([("any".to_owned(), arguments)]);
        if let Err(error) = compile(near_schema()).validate(arguments) {
            prop_assert!((1..=violation::MAX_VIOLATIONS).contains(&error.details().len()));
        }
    }
}
