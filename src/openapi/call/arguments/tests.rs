use proptest::prelude::*;

use super::*;
use crate::read::operation::{MediaType, ParameterEncoding, RequestBody, Style};

fn parameter(name: &str, location: Location) -> Parameter {
    Parameter {
        name: name.into(),
        location,
        required: false,
        deprecated: false,
        description: String::new(),
        schema: json!({"type": "string"}),
        encoding: ParameterEncoding::Styled {
            style: Style::Form,
            explode: true,
            allow_reserved: false,
            allow_empty: false,
        },
        item_separator: None,
    }
}

fn operation(parameters: Vec<Parameter>) -> Operation {
    Operation {
        id: None,
        method: http::Method::POST,
        path: "/".into(),
        summary: String::new(),
        description: String::new(),
        tags: Vec::new(),
        deprecated: false,
        parameters,
        body: None,
        responses: Vec::new(),
        servers: Vec::new(),
        security: None,
        extensions: Map::new(),
    }
}

fn plan(required: bool, schema: Value, definitions: &Map<String, Value>) -> BodyPlan {
    let content = vec![MediaType { name: "application/json".into(), schema, encoding: BTreeMap::new() }];
    let body = RequestBody { required, description: "What to keep.".into(), content };
    BodyPlan::of(&body, definitions, None).0.unwrap()
}

fn names(list: &ArgumentList) -> Vec<&str> {
    list.arguments.iter().map(|argument| argument.name.as_str()).collect()
}

#[test]
fn a_duplicate_name_gets_its_location_in_any_order() {
    let definitions = Map::new();
    let body = plan(true, json!({"type": "object", "properties": {"id": {}}, "required": ["id"]}), &definitions);
    let mut parameters = vec![parameter("id", Location::Header), parameter("id", Location::Path)];
    let list = ArgumentList::of(&operation(parameters.clone()), Some(&body), &definitions, |_| true);
    assert_eq!(names(&list), ["id", "header_id", "body_id"]);
    assert_eq!(list.arguments[0].place, Place::Parameter(1));
    assert_eq!(list.schema["required"], json!(["id", "body_id"]));
    assert_eq!(list.schema["properties"]["body_id"]["description"], "(`id` in the body)");
    parameters.reverse();
    let reversed = ArgumentList::of(&operation(parameters), Some(&body), &definitions, |_| true);
    assert_eq!((names(&reversed), &reversed.schema), (names(&list), &list.schema));
}

#[test]
fn names_keep_their_comparisons_and_the_documents_names_are_accepted() {
    let written = ["StartTime", "StartTime<", "StartTime>", "size<=", "filter[bundleId]", "名前", "<"];
    let mut parameters: Vec<_> = written.iter().map(|name| parameter(name, Location::Query)).collect();
    parameters.push(parameter("StartTime", Location::Header));
    let definitions = Map::new();
    let body = plan(true, json!({"type": "object", "properties": {"$ref!": {}, "plain": {}}}), &definitions);
    let list = ArgumentList::of(&operation(parameters), Some(&body), &definitions, |_| true);
    let offered = [
        "StartTime",
        "StartTime_lt",
        "StartTime_gt",
        "size_lte",
        "filter_bundleId",
        "argument",
        "argument_lt",
        "header_StartTime",
        "ref",
        "plain",
    ];
    assert_eq!(names(&list), offered);
    let Aliases { names, wrapper, members } = &list.aliases;
    let expected = [
        ("$ref!", "ref"),
        ("<", "argument_lt"),
        ("StartTime<", "StartTime_lt"),
        ("StartTime>", "StartTime_gt"),
        ("filter[bundleId]", "filter_bundleId"),
        ("size<=", "size_lte"),
        ("名前", "argument"),
    ];
    assert_eq!(names.iter().map(|(from, to)| (&**from, &**to)).collect::<Vec<_>>(), expected);
    assert_eq!((wrapper.as_deref(), members.as_slice()), (Some("body"), &["ref".to_owned(), "plain".to_owned()][..]));
    let whole = plan(true, json!({"type": "array"}), &definitions);
    assert_eq!(ArgumentList::of(&operation(Vec::new()), Some(&whole), &definitions, |_| true).aliases.wrapper, None);
}

#[test]
fn a_body_with_more_than_plain_members_is_one_argument() {
    let mut definitions = Map::new();
    definitions.insert("pet".into(), json!({"type": "object", "properties": {"name": {"$ref": "#/$defs/a~1b"}}}));
    definitions.insert("a/b".into(), json!({"type": "string"}));
    definitions.insert("unused".into(), json!({}));
    for (required, schema, expected) in [
        (true, json!({"$ref": "#/$defs/pet"}), vec!["name"]),
        (true, json!({"properties": {"a": {}, "b": {"readOnly": true}}, "additionalProperties": false}), vec!["a"]),
        (true, json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true}), vec!["body"]),
        (true, json!({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}), vec!["body"]),
        (true, json!({"type": "object", "properties": {"a": {}}, "required": ["b"]}), vec!["body"]),
        (true, json!({"type": "array", "items": {"type": "integer"}}), vec!["body"]),
        (false, json!({"type": "object", "properties": {"a": {}}}), vec!["a"]),
        (false, json!({"type": "object", "properties": {}, "additionalProperties": false}), vec![]),
        (false, json!({"type": "object", "properties": {}}), vec!["body"]),
        (false, json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}), vec!["body"]),
    ] {
        let body = plan(required, schema.clone(), &definitions);
        let list = ArgumentList::of(&operation(Vec::new()), Some(&body), &definitions, |_| true);
        assert_eq!(names(&list), expected, "{schema}");
    }
    let body = plan(true, json!({"$ref": "#/$defs/pet"}), &definitions);
    let list = ArgumentList::of(&operation(Vec::new()), Some(&body), &definitions, |_| true);
    assert_eq!(list.schema["$defs"], json!({"a/b": {"type": "string"}}), "what is reached, and nothing else");
}

#[test]
fn a_body_that_the_document_leaves_open_stays_open() {
    let definitions = Map::new();
    for (schema, open) in [
        (json!({"type": "object", "properties": {"a": {}}}), true),
        (json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}), false),
    ] {
        let body = plan(true, schema.clone(), &definitions);
        let list = ArgumentList::of(&operation(Vec::new()), Some(&body), &definitions, |_| true);
        assert_eq!(list.schema.get("additionalProperties"), (!open).then_some(&json!(false)), "{schema}");
    }
    let list = ArgumentList::of(&operation(Vec::new()), None, &definitions, |_| true);
    assert_eq!(list.schema["additionalProperties"], false);
}

#[test]
fn definitions_that_refer_to_each_other_are_added_once() {
    let Value::Object(definitions) = json!({
        "a": {"properties": {"b": {"$ref": "#/$defs/b"}}},
        "b": {"properties": {"a": {"$ref": "#/$defs/a"}}},
        "c": {}
    }) else {
        panic!("an object")
    };
    let mut schema = json!({"items": {"$ref": "#/$defs/a"}});
    add_definitions(&mut schema, &definitions);
    assert_eq!(schema["$defs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
}

proptest! {
    #[test]
    fn names_are_what_model_apis_accept_and_differ(written in prop::collection::vec("\\PC{0,90}", 1..12)) {
        let parameters = written.iter().map(|name| parameter(name, Location::Query)).collect();
        let list = ArgumentList::of(&operation(parameters), None, &Map::new(), |_| true);
        let found: HashSet<_> = names(&list).into_iter().collect();
        prop_assert_eq!(found.len(), written.len());
        for name in found {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
            prop_assert!((1..=64).contains(&name.len()) && name.bytes().all(is_allowed), "{}", name);
        }
    }
}

#[test]
fn an_idempotency_key_is_required_of_nobody_where_one_is_sent_anyway() {
    let key = Parameter { required: true, ..parameter("Idempotency-Key", Location::Header) };
    for (method, is_required) in [(http::Method::POST, false), (http::Method::GET, true)] {
        let operation = Operation { method, ..operation(vec![key.clone()]) };
        let list = ArgumentList::of(&operation, None, &Map::new(), |_| true);
        assert_eq!(list.schema["required"] == json!(["Idempotency-Key"]), is_required, "{}", operation.method);
    }
}
