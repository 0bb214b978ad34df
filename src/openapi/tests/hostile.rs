//! Documents meant to hang, to crash or to fill the memory: an error or a line of the report, soon.

use std::time::Instant;

use super::*;
use sekisho_calls::tool::InputSchema;
use sekisho_core::slack::slack;

/// A debug build on a busy machine; an unbounded expansion does not end.
const SOON: Duration = Duration::from_secs(60);

fn hostile(name: &str) -> String {
    String::from_utf8(public_document(&format!("hostile/{name}"))).unwrap()
}

fn with_schemas(schemas: &Value) -> String {
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}});
    json!({
        "openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "servers": [{"url": "https://a.example"}],
        "paths": {"/a": {"post": {"operationId": "a", "requestBody": body, "responses": {"200": body}}},
            "/fine": {"get": {"operationId": "fine", "responses": {}}}},
        "components": {"schemas": schemas},
    })
    .to_string()
}

/// A schema for each number up to `count`, and the schemas made of them.
fn schemas(count: usize, schema: impl Fn(usize) -> Value) -> Value {
    Value::Object((0..count).map(|at| (format!("S{at}"), schema(at))).collect())
}

#[tokio::test]
async fn a_hostile_document_is_refused_or_its_operation_is_and_soon() {
    let next = |at: usize| json!({"$ref": format!("#/components/schemas/S{}", at + 1)});
    let deep = |levels| format!("{}{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let bomb = |at| if at == 19 { json!({"type": "string"}) } else { json!({"allOf": vec![next(at); 10]}) };
    let cases = [
        ("a $ref bomb", hostile("openapi-ref-bomb.json"), "", 0),
        ("a $ref bomb of our own", with_schemas(&schemas(20, bomb)), "", 1),
        ("an alias bomb", hostile("openapi-alias-bomb.yaml"), "limit", 0),
        ("billion laughs", hostile("yaml-billion-laughs.yaml"), "limit", 0),
        ("10 000 levels", deep(10_000), "is it an OpenAPI document", 0),
        ("100 000 levels", deep(100_000), "nested brackets", 0),
        ("10 000 levels of YAML", "- ".repeat(10_000), "", 0),
        ("60 MB", " ".repeat(60_000_000), "split it", 0),
        (
            "a circle of two",
            with_schemas(
                &json!({"S0": {"$ref": "#/components/schemas/S1"}, "S1": {"$ref": "#/components/schemas/S0"}}),
            ),
            "",
            2,
        ),
        ("a chain of references", with_schemas(&schemas(20_000, next)), "", 2),
        (
            "a chain of properties",
            with_schemas(&schemas(20_000, |at| json!({"properties": {"next": next(at)}}))),
            "",
            2,
        ),
        ("20 000 alternatives", with_schemas(&json!({"S0": {"anyOf": vec![json!({"minLength": 1}); 20_000]}})), "", 1),
    ];
    for (what, text, refused, least) in cases {
        let begun = Instant::now();
        let outcome = tokio::time::timeout(SOON, load(text)).await.unwrap_or_else(|_| panic!("{what} hangs"));
        assert!(begun.elapsed() < slack(SOON), "{what} took {:?}", begun.elapsed());
        match outcome {
            Ok(collection) => {
                let reported = collection.report.lost.len() + collection.report.approximated.len();
                assert!(
                    refused.is_empty() && collection.tools.len() >= least && reported > 0,
                    "{what}: {collection:?}"
                );
            }
            Err(error) => assert!(least == 0 && error.to_string().contains(refused), "{what}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_flaw_of_one_operation_costs_that_one() {
    let deep = format!("{}1{}", "{\"properties\":{\"a\":".repeat(100), "}}".repeat(100));
    let text = format!(
        r#"{{"openapi": "3.0.0", "info": {{"title": "t", "title": "u", "version": "1"}}, "servers": [{{"url": "https://a.example"}}], "paths": {{
            "/twice": {{"get": {{"operationId": "twice", "responses": {{}}, "responses": {{}}}}, "put": {{"operationId": "put"}}}},
            "/deep": {{"post": {{"requestBody": {{"content": {{"application/json": {{"schema": {deep}}}}}}}}}}},
            "/path": {{"get": {{}}}}, "/path": {{"get": {{}}}}, "/methods": {{"get": {{}}, "get": {{}}, "post": {{}}}}}}}}"#
    );
    let collection = load(text).await.unwrap();
    let mut lost: Vec<_> = collection.report.lost.iter().map(|note| note.operation.as_str()).collect();
    lost.sort_unstable();
    assert_eq!(lost, ["/path", "GET /methods", "POST /deep", "twice"]);
    let names: Vec<_> = collection.tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
    assert_eq!(names, ["a__put", "a__post_methods"]);
    assert_eq!(collection.report.operations, 6);
    let approximated = &collection.report.approximated;
    assert!(approximated.iter().any(|note| note.operation == "/info/title"), "{approximated:?}");
}

#[tokio::test]
async fn a_schema_that_is_approximated_is_so_for_the_operations_that_use_it() {
    let body = |name: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        json!({"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {"a": schema}}}}})
    };
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": {
        "/odd": {"post": {"operationId": "odd", "requestBody": body("Odd")}},
        "/fine": {"post": {"operationId": "fine", "requestBody": body("Fine")}}},
        "components": {"schemas": {"Odd": {"properties": {"b": {"pattern": "("}}}, "Fine": {"type": "string"}}}});
    let report = load(text.to_string()).await.unwrap().report;
    let works: Vec<_> = report.works.iter().map(|works| works.operation.as_str()).collect();
    assert_eq!(works, ["fine"]);
    assert!(report.approximated.iter().any(|note| note.operation == "odd"), "{report:?}");
}

#[tokio::test]
async fn a_pattern_that_backtracks_for_ever_fails_and_does_not_hang() {
    let text = hostile("openapi-redos-pattern.json")
        .replace("\"paths\"", "\"servers\": [{\"url\": \"https://a.example\"}], \"paths\"");
    let collection = load(text).await.unwrap();
    let schema = InputSchema::compile("a__a", collection.tools[0].parameters.clone(), false).unwrap();
    let arguments = json!({"q": format!("{}!", "a".repeat(50_000))});
    let begun = Instant::now();
    assert!(schema.validate(arguments.as_object().unwrap().clone()).is_err());
    assert!(begun.elapsed() < slack(SOON));
}

#[tokio::test]
async fn duplicate_ids_and_excess_operations_are_reported_and_the_rest_is_offered() {
    let operation = |id: usize| json!({"get": {"operationId": format!("same{}", id / 2), "responses": {}}});
    let paths: Map<_, _> = (0..10_010).map(|at| (format!("/p{at}"), operation(at))).collect();
    let document = json!({"openapi": "3.0.0", "info": {}, "servers": [{"url": "https://a.example"}], "paths": paths});
    let collection = load(document.to_string()).await.unwrap();
    assert_eq!(collection.tools.len(), 10_000);
    assert!(collection.report.lost[0].reason.contains("first 10000"), "{:?}", collection.report.lost);
}

const DOCUMENTS: [&[u8]; 3] = [
    br##"{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://a.example/{v}", "variables": {"v": {"default": "b"}}}],
        "paths": {"/c/{d}": {"parameters": [{"name": "d", "in": "path", "required": true, "schema": {"type": "string"}}],
            "post": {"operationId": "e", "parameters": [{"$ref": "#/components/parameters/f"}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/g"}}}},
                "responses": {"200": {"description": "h", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/g"}}}}}}}},
        "components": {"parameters": {"f": {"name": "i", "in": "query", "style": "deepObject", "schema": {"type": "object"}}},
            "schemas": {"g": {"type": "object", "required": ["j"], "properties": {"j": {"oneOf": [{"$ref": "#/components/schemas/g"}, {"type": "null"}]}}}}}}"##,
    b"openapi: 3.0.3\ninfo: {title: t, version: '1'}\nservers: [{url: https://a.example}]\npaths:\n  /b:\n    get:\n      operationId: c\n      parameters:\n        - {name: d, in: header, schema: {type: array, items: {type: integer, nullable: true}}}\n      responses: {default: {description: e}}\n",
    br##"{"swagger": "2.0", "info": {"title": "t", "version": "1"}, "host": "a.example", "basePath": "/b", "schemes": ["https"], "consumes": ["application/json"],
        "paths": {"/c": {"put": {"parameters": [{"name": "d", "in": "body", "schema": {"$ref": "#/definitions/e"}}, {"name": "f", "in": "formData", "type": "file"}],
            "responses": {"200": {"description": "g"}}}}}, "definitions": {"e": {"allOf": [{"type": "object"}]}}}"##,
];

#[test]
fn hostile_bytes_as_a_document() {
    let access = access();
    sekisho_core::fuzz::feed(&DOCUMENTS, |bytes| {
        let Ok(document) = crate::load::document::parse(bytes) else { return };
        let Ok(api) = crate::read::read(&document, None) else { return };
        if let Ok((tools, report)) = definitions("x", &api, &CollectionSettings::default(), &access) {
            assert_eq!(tools.len(), report.tools);
            for tool in tools {
                InputSchema::compile(&tool.metadata.name, tool.parameters, true).unwrap();
            }
        }
    });
}

#[test]
fn hostile_bytes_as_an_overlay() {
    let seeds: [&[u8]; 2] = [
        br#"{"overlay": "1.0.0", "info": {"title": "t", "version": "1"}, "actions": [{"target": "$.paths[?@.get].*", "update": {"deprecated": true}}, {"target": "$..e", "remove": true}]}"#,
        b"overlay: 1.0.0\ninfo: {title: t, version: '1'}\nactions:\n  - {target: $.info, update: {title: u, list: [1]}}\n",
    ];
    let document = crate::load::document::parse(DOCUMENTS[0]).unwrap();
    sekisho_core::fuzz::feed(&seeds, |bytes| {
        let Ok(overlay) = crate::load::document::parse(bytes) else { return };
        let mut changed = document.clone();
        if crate::load::overlay::apply(&mut changed, &overlay).is_err() {
            assert_eq!(changed, document, "all actions or none");
        }
    });
}
