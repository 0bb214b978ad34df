use serde_json::json;

use super::super::tests::public_document;
use super::*;
use crate::load::document::parse;
use crate::read::operation::{Location, ParameterEncoding, SecurityScheme, StatusRange, Style, UserFlow};

fn fixture(name: &str) -> Api {
    api(&parse(&public_document(name)).unwrap())
}

fn api(document: &Value) -> Api {
    read(document, Some(&Url::parse("https://docs.example/spec/api.json").unwrap())).unwrap()
}

#[test]
fn every_operation_of_the_public_documents_is_read() {
    for (name, operations) in [
        ("petstore3.yaml", 19),
        ("figma.yaml", 47),
        ("httpbin-swagger2.json", 78),
        ("twilio-api-v2010.json.gz", 197),
        ("stripe-2022-04-12.spec3.json.gz", 417),
        ("github-api.min.json.gz", 1223),
    ] {
        let api = fixture(name);
        assert_eq!(api.operations.len(), operations, "{name}");
        assert_eq!(api.report.operations, operations, "{name}");
        assert_eq!(api.report.lost, [], "{name}");
    }
}

#[test]
fn one_broken_operation_is_a_line_of_the_report_and_the_others_are_offered() {
    let api = api(&json!({"openapi": "3.1.0", "webhooks": {"w": {}}, "paths": {
        "/a": {"get": 7, "post": {"operationId": "p", "requestBody": {"$ref": "#/nowhere"}, "responses": {"200": {}}}},
        "/b": 3, "/c": {"$ref": "other.yaml#/c"}, "x-d": {}, "/e/{id}": {"get": {"parameters": [{"$ref": "#/no"}, 1]}},
    }}));
    let lost: Vec<_> = api.report.lost.iter().map(|note| note.operation.as_str()).collect();
    assert_eq!(lost, ["GET /a", "/b", "/c"]);
    let read: Vec<_> = api.operations.iter().map(|operation| operation.path.as_str()).collect();
    assert_eq!(read, ["/a", "/e/{id}"]);
    assert_eq!(api.operations[1].parameters[0].name, "id");
    let reported = |text: &str| api.report.approximated.iter().any(|note| note.reason.contains(text));
    assert!(reported("webhooks") && reported("points at nothing") && reported("taken as text"), "{:?}", api.report);
}

#[test]
fn parameters_of_the_path_hold_unless_the_operation_has_its_own() {
    let api = api(&json!({"openapi": "3.0.0", "paths": {"/a": {
        "parameters": [{"name": "q", "in": "query", "schema": {}}, {"name": "X-H", "in": "header", "schema": {}}],
        "get": {"parameters": [{"name": "q", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
            {"name": "Authorization", "in": "header"}, {"name": "c", "in": "cookie", "content": {"a/b": {}}}]},
    }}}));
    let read: Vec<_> = api.operations[0].parameters.iter().map(|p| (p.name.as_str(), p.location)).collect();
    assert_eq!(read, [("q", Location::Query), ("X-H", Location::Header), ("c", Location::Cookie)]);
    let styled =
        |style, explode| ParameterEncoding::Styled { style, explode, allow_reserved: false, allow_empty: false };
    let encodings: Vec<_> = api.operations[0].parameters.iter().map(|p| p.encoding.clone()).collect();
    let expected =
        [styled(Style::DeepObject, true), styled(Style::Simple, false), ParameterEncoding::Content("a/b".into())];
    assert_eq!(encodings, expected);
}

#[test]
fn servers_are_filled_in_and_made_absolute() {
    let api = api(&json!({"openapi": "3.0.0", "paths": {}, "servers": [
        {"url": "https://{env}.x.example/{v}", "variables": {"env": {"default": "eu"}, "v": {"enum": ["v2"]}}},
        {"url": "../v3"}, {"url": "ftp://x.example"}, {"url": "https://{open}.example"}]}));
    let read: Vec<_> = api.servers.iter().map(|server| server.url.as_str()).collect();
    assert_eq!(read, ["https://eu.x.example/v2", "https://docs.example/v3"]);
    assert_eq!(api.report.approximated.len(), 2);
}

#[test]
fn swagger_2_reads_as_its_successors_do() {
    let api = api(&json!({
        "swagger": "2.0", "host": "x.example", "basePath": "/v1", "schemes": ["http", "https"], "produces": ["text/plain"],
        "securityDefinitions": {"o": {"type": "oauth2", "flow": "application", "tokenUrl": "/token", "scopes": {"s": ""}}},
        "paths": {"/a": {"post": {
            "parameters": [{"name": "f", "in": "formData", "type": "file", "required": true},
                {"name": "grid", "in": "formData", "type": "array", "collectionFormat": "multi",
                    "items": {"type": "array", "collectionFormat": "pipes", "items": {"type": "integer"}}},
                {"name": "t", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "tsv"}],
            "responses": {"200": {"schema": {"type": "string"}}, "404": {"schema": {}}}}}},
    }));
    assert_eq!(api.servers[0].url.as_str(), "https://x.example/v1");
    let token_url = Url::parse("https://docs.example/token").unwrap();
    let expected = SecurityScheme::OAuth2 { token_url: Some(token_url), user_flow: None };
    assert_eq!(api.security_schemes["o"], expected);
    let operation = &api.operations[0];
    let body = operation.body.as_ref().unwrap();
    assert_eq!((body.required, body.content[0].name.as_str()), (true, "multipart/form-data"));
    assert_eq!(body.content[0].schema["properties"]["f"]["format"], "binary");
    assert_eq!(body.content[0].encoding["grid"].item_separator, Some('|'));
    assert_eq!(operation.parameters.len(), 1);
    let encoding = &operation.parameters[0].encoding;
    assert!(matches!(encoding, ParameterEncoding::Styled { style: Style::TabDelimited, explode: false, .. }));
    assert_eq!(operation.responses.len(), 1);
    assert_eq!(operation.responses[0].status, StatusRange::Exactly(200));
    assert_eq!(operation.responses[0].content[0].name, "text/plain");
}

#[test]
fn microsofts_word_for_reserved_characters_is_read_in_both_versions() {
    let word = "x-ms-skip-url-encoding";
    let parameter = json!({"name": "scope", "in": "path", "required": true, "type": "string", word: true});
    let paths = json!({"/{scope}/locks": {"get": {"parameters": [parameter]}}});
    for (version, number) in [("swagger", "2.0"), ("openapi", "3.0.0")] {
        let api = api(&json!({version: number, "paths": paths}));
        let encoding = &api.operations[0].parameters[0].encoding;
        assert!(matches!(encoding, ParameterEncoding::Styled { allow_reserved: true, .. }), "{version}: {encoding:?}");
    }
}

#[test]
fn each_security_scheme_is_read() {
    let url = |path: &str| Some(Url::parse(&format!("https://docs.example{path}")).unwrap());
    let flows = |flow: &str| json!({"type": "oauth2", "flows": {flow: {"tokenUrl": "/token", "scopes": {}}}});
    for (written, expected) in [
        (json!({"type": "http", "scheme": "Bearer"}), SecurityScheme::Bearer),
        (json!({"type": "http", "scheme": "Token"}), SecurityScheme::Http("Token".into())),
        (json!({"type": "http", "scheme": "Digest"}), SecurityScheme::Digest),
        (json!({"type": "http", "scheme": "hoba"}), SecurityScheme::Challenge("hoba".into())),
        (json!({"type": "mutualTLS"}), SecurityScheme::MutualTls),
        (flows("clientCredentials"), SecurityScheme::OAuth2 { token_url: url("/token"), user_flow: None }),
        (flows("authorizationCode"), SecurityScheme::OAuth2 { token_url: url("/token"), user_flow: None }),
        (
            json!({"type": "oauth2", "flows": {"authorizationCode": {"authorizationUrl": "/authorize", "tokenUrl": "/token"}}}),
            SecurityScheme::OAuth2 {
                token_url: url("/token"),
                user_flow: url("/authorize")
                    .zip(url("/token"))
                    .map(|(authorization_url, token_url)| UserFlow { authorization_url, token_url }),
            },
        ),
        (flows("implicit"), SecurityScheme::OAuth2 { token_url: None, user_flow: None }),
        (
            json!({"type": "openIdConnect", "openIdConnectUrl": "https://docs.example/oidc"}),
            SecurityScheme::OpenIdConnect { discovery_url: url("/oidc") },
        ),
        (json!({"type": "custom"}), SecurityScheme::Other("the type \"custom\"".into())),
    ] {
        let api = api(&json!({"openapi": "3.1.0", "paths": {}, "components": {"securitySchemes": {"s": written}}}));
        assert_eq!(api.security_schemes["s"], expected);
    }
}

#[test]
fn content_and_media_types_may_be_references() {
    let api = api(&json!({"openapi": "3.2.0", "paths": {"/a": {"post": {
        "requestBody": {"content": {"application/json": {"$ref": "#/components/mediaTypes/Pet"}}},
        "responses": {"200": {"content": {"$ref": "#/x-content"}}}}}},
        "x-content": {"text/csv": {"schema": {"type": "string"}}},
        "components": {"mediaTypes": {"Pet": {"schema": {"type": "object", "required": ["name"]}}}}}));
    let operation = &api.operations[0];
    let body = &operation.body.as_ref().unwrap().content[0];
    assert_eq!((body.name.as_str(), &body.schema["required"]), ("application/json", &json!(["name"])));
    assert_eq!(operation.responses[0].content[0].name, "text/csv");
}

#[test]
fn what_no_call_can_send_is_lost_or_left_out_and_reported() {
    let header = json!([{"name": "no header", "in": "header", "required": true}]);
    let api = api(&json!({"openapi": "3.0.0", "paths": {
        "/{}": {"get": {}}, "/a{b": {"get": {}}, "/c": {"get": {"parameters": header}}}}));
    let lost: Vec<_> = api.report.lost.iter().map(|note| note.operation.as_str()).collect();
    assert_eq!(lost, ["GET /{}", "GET /a{b"]);
    assert!(api.report.approximated[0].reason.contains("not a valid name of a header"), "{:?}", api.report);
    assert!(
        super::read(&json!({"openapi": "3.0.0", "paths": []}), None).unwrap().report.lost[0].reason.contains("paths")
    );
}

#[test]
fn collection_formats_of_swagger_2_hold_for_lists_within_lists() {
    let list = json!({"name": "p", "in": "path", "required": true, "type": "array", "collectionFormat": "pipes",
        "items": {"type": "array", "collectionFormat": "ssv", "items": {"type": "integer"}}});
    let api = api(&json!({"swagger": "2.0", "host": "a.example", "paths": {"/{p}": {"get": {"parameters": [list]}}}}));
    let parameter = &api.operations[0].parameters[0];
    assert_eq!(parameter.item_separator, Some(' '));
    assert!(matches!(parameter.encoding, ParameterEncoding::Styled { style: Style::PipeDelimited, .. }));
}
