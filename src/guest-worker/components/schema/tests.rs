use super::*;

fn resolve(types: &str, function: &str) -> (Resolve, Function) {
    let wit = format!("package my:tools;\ninterface all {{\n{types}\n  f: {function};\n}}\n");
    let mut resolve = Resolve::default();
    resolve.push_source("all.wit", &wit).unwrap();
    let (_, interface) = resolve.interfaces.iter().next().unwrap();
    let function = interface.functions["f"].clone();
    (resolve, function)
}

fn schemas(types: &str, function: &str) -> Result<FunctionSchemas, String> {
    let (resolve, function) = resolve(types, function);
    of_function(&resolve, &function)
}

#[test]
fn each_type_has_its_form() {
    for (types, type_, expected) in [
        ("", "bool", json!({"type": "boolean"})),
        ("", "s8", json!({"type": "integer", "minimum": -128, "maximum": 127})),
        ("", "u64", json!({"type": "integer", "minimum": 0, "maximum": u64::MAX})),
        ("", "f32", json!({"type": "number"})),
        ("", "char", json!({"type": "string", "minLength": 1, "maxLength": 1})),
        ("", "list<u8>", json!({"type": "string", "contentEncoding": "base64"})),
        ("", "list<u16>", json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 65_535}})),
        ("", "option<string>", json!({"anyOf": [{"type": "string"}, {"type": "null"}]})),
        (
            "",
            "option<option<bool>>",
            json!({"anyOf": [
                {"type": "object", "properties": {"some": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}},
                    "required": ["some"], "additionalProperties": false},
                {"type": "null"},
            ]}),
        ),
        (
            "",
            "tuple<bool, string>",
            json!({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}],
            "items": false, "minItems": 2, "maxItems": 2}),
        ),
        ("enum unit { celsius, kelvin }", "unit", json!({"type": "string", "enum": ["celsius", "kelvin"]})),
        (
            "flags rights { read, to-write }",
            "rights",
            json!({"type": "array",
            "items": {"type": "string", "enum": ["read", "to-write"]}, "uniqueItems": true}),
        ),
        (
            "variant shape { none, circle(f32) }",
            "shape",
            json!({"oneOf": [
                {"type": "object", "properties": {"tag": {"const": "none"}}, "required": ["tag"],
                    "additionalProperties": false},
                {"type": "object", "properties": {"tag": {"const": "circle"}, "val": {"type": "number"}},
                    "required": ["tag", "val"], "additionalProperties": false},
            ]}),
        ),
        (
            "",
            "list<result<_, string>>",
            json!({"type": "array", "items": {"oneOf": [
                {"type": "object", "properties": {"ok": {"type": "null"}}, "required": ["ok"],
                    "additionalProperties": false},
                {"type": "object", "properties": {"err": {"type": "string"}}, "required": ["err"],
                    "additionalProperties": false},
            ]}}),
        ),
        (
            "/// Where it is.\nrecord place {\n  /// North of the equator.\n  is-north: bool,\n  name: option<string>,\n}",
            "place",
            json!({"type": "object", "properties": {
                "is_north": {"type": "boolean", "description": "North of the equator."},
                "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            }, "required": ["is_north"], "additionalProperties": false, "description": "Where it is."}),
        ),
    ] {
        let FunctionSchemas { parameters, output } =
            schemas(types, &format!("func(the-value: {type_}) -> {type_}")).unwrap();
        assert_eq!(output.unwrap(), expected, "{type_}");
        let is_required = !type_.starts_with("option");
        let required = if is_required { json!(["the_value"]) } else { json!([]) };
        assert_eq!((&parameters["properties"]["the_value"], &parameters["required"]), (&expected, &required));
    }
}

#[test]
fn the_result_of_a_function_is_its_good_value() {
    let output = |function: &str| schemas("", function).unwrap().output;
    assert_eq!(output("func()"), None);
    assert_eq!(output("func() -> result"), None);
    assert_eq!(output("func() -> result<_, string>"), None);
    assert_eq!(output("func() -> result<string, u8>"), Some(json!({"type": "string"})));
    let aliased = schemas("type outcome = result<bool, string>;", "func() -> outcome").unwrap();
    assert_eq!(aliased.output, Some(json!({"type": "boolean"})));
}

#[test]
fn what_has_no_form_is_named() {
    for (types, function, says) in [
        ("resource blob;", "func(b: borrow<blob>)", "a parameter has the resource `blob`"),
        ("resource blob;", "func() -> list<blob>", "the result has the resource `blob`"),
        ("resource blob;", "func() -> result<bool, blob>", "the error has the resource `blob`"),
        ("", "func() -> stream<u8>", "the result has a `stream`"),
        ("", "func() -> future<u8>", "the result has a `future`"),
    ] {
        assert_eq!(schemas(types, function).unwrap_err(), says);
    }
    let mut types = "type t0 = u32;\n".to_owned();
    for n in 1..20 {
        types += &format!("type t{n} = tuple<t{}, t{}>;\n", n - 1, n - 1);
    }
    assert!(schemas(&types, "func() -> t19").unwrap_err().contains("more than 2000 types"));
    assert!(schemas(&types, "func() -> t8").is_ok());
    let many: Vec<_> = (0..2_000).map(|n| format!("c{n}")).collect();
    let problem = schemas(&format!("enum many {{ {} }}", many.join(", ")), "func() -> many").unwrap_err();
    assert!(problem.contains("types and names"), "{problem}");
    let long = "x".repeat(101);
    assert!(schemas("", &format!("func({long}: u32)")).unwrap_err().contains("100 bytes"));
    let deep = format!("{}u32{}", "list<".repeat(70), ">".repeat(70));
    assert!(schemas("", &format!("func() -> {deep}")).unwrap_err().contains("60 inside each other"));
}
