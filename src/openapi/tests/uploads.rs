//! Files, wherever a document has binary content.

use super::*;
use sekisho_core::error::ErrorCode;

fn upload(server: &Url, request_body: &Value) -> Value {
    json!({
        "openapi": "3.1.0", "info": {"title": "Files", "version": "1"}, "servers": [{"url": server}],
        "paths": {"/files": {"post": {"operationId": "upload", "requestBody": request_body, "responses": {"204": {}}}}},
        "components": {"schemas": {
            "Bytes": {"type": "string", "format": "binary", "description": "The picture."},
            "Upload": {"type": "object", "required": ["file"], "properties": {"file": {"$ref": "#/components/schemas/Bytes"}}},
        }},
    })
}

fn multipart(schema: &Value) -> Value {
    json!({"content": {"multipart/form-data": {"schema": schema}}})
}

/// Name, name of the file, media type and content.
type Part = (String, Option<String>, Option<String>, Vec<u8>);

/// The parts of the last request.
fn parts(upstream: &Upstream) -> Vec<Part> {
    let request = upstream.last();
    let boundary = request.header("content-type").unwrap().split_once("boundary=").unwrap().1.to_owned();
    let text: String = request.body.iter().map(|byte| char::from(*byte)).collect();
    let inner = text.strip_suffix(&format!("--{boundary}--\r\n")).unwrap();
    let delimiter = format!("--{boundary}\r\n");
    let sections = inner.split(&delimiter).skip(1);
    let attribute =
        |head: &str, name: &str| Some(head.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.to_owned());
    sections
        .map(|section| {
            let (head, content) = section.strip_suffix("\r\n").unwrap().split_once("\r\n\r\n").unwrap();
            let media_type = head.split_once("Content-Type: ").map(|(_, media_type)| media_type.to_owned());
            let bytes = content.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            (attribute(head, "name").unwrap(), attribute(head, "filename"), media_type, bytes)
        })
        .collect()
}

#[tokio::test]
async fn a_file_is_uploaded_wherever_the_document_has_binary_content() {
    let upstream = Upstream::start().await;
    let binary = || json!({"type": "string", "format": "binary"});
    let with = |schema: Value| json!({"type": "object", "properties": {"file": schema}, "required": ["file"]});
    let file = || json!({"content_base64": "AP8=", "filename": "a.png", "content_type": "image/png"});
    let flat = |value: Value| json!({"file": value});
    let whole = |value: Value| json!({"body": {"file": value}});
    for (what, body, arguments, count) in [
        // OpenAPI's default: a body that is not required.
        ("an optional body", multipart(&with(binary())), whole(file()), 1),
        ("a reference", multipart(&json!({"$ref": "#/components/schemas/Upload"})), whole(file()), 1),
        (
            "allOf",
            multipart(&json!({"allOf": [{"$ref": "#/components/schemas/Upload"}, {"properties": {"t": {}}}]})),
            whole(file()),
            1,
        ),
        ("oneOf", multipart(&json!({"oneOf": [with(binary()), {"required": ["url"]}]})), whole(file()), 1),
        ("anyOf", multipart(&json!({"anyOf": [with(binary()), {"type": "object"}]})), whole(file()), 1),
        ("minProperties", multipart(&json!({"properties": {"file": binary()}, "minProperties": 1})), whole(file()), 1),
        (
            "FastAPI's optional file",
            multipart(&json!({"properties": {"file": {"anyOf": [binary(), {"type": "null"}]}}})),
            flat(file()),
            1,
        ),
        (
            "a nullable file",
            multipart(&json!({"properties": {"file": {"type": ["string", "null"], "format": "binary"}}})),
            flat(file()),
            1,
        ),
        (
            "no file",
            multipart(&json!({"properties": {"file": {"type": ["string", "null"], "format": "binary"}}})),
            flat(json!(null)),
            0,
        ),
        (
            "a member's allOf",
            multipart(
                &json!({"properties": {"file": {"allOf": [{"$ref": "#/components/schemas/Bytes"}], "description": "A."}}}),
            ),
            flat(file()),
            1,
        ),
        (
            "a list",
            multipart(
                &json!({"properties": {"file": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Bytes"}}}}),
            ),
            flat(json!([file(), file()])),
            2,
        ),
        (
            "one or a list",
            multipart(&json!({"properties": {"file": {"oneOf": [binary(), {"type": "array", "items": binary()}]}}})),
            flat(json!([file()])),
            1,
        ),
        (
            "additional members",
            multipart(&json!({"type": "object", "additionalProperties": binary()})),
            whole(file()),
            1,
        ),
        (
            "3.1's media type",
            multipart(&json!({"properties": {"file": {"type": "string", "contentMediaType": "image/png"}}})),
            flat(file()),
            1,
        ),
    ] {
        let document = upload(&upstream.url, &body);
        let tool = tool(&read_api(&document));
        call(&tool, arguments).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        if count == 0 {
            assert!(parts(&upstream).is_empty(), "{what}");
            continue;
        }
        let expected = ("file".to_owned(), Some("a.png".to_owned()), Some("image/png".to_owned()), vec![0, 255]);
        assert_eq!(parts(&upstream), vec![expected; count], "{what}");
    }
}

#[tokio::test]
async fn texts_beside_files_stay_texts() {
    let upstream = Upstream::start().await;
    let properties = json!({
        "file": {"type": "string", "format": "binary"},
        "either": {"anyOf": [{"type": "string", "format": "binary"}, {"type": "string"}]},
        "json": {"type": "string", "contentMediaType": "application/json"},
        "base64": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
        "about": {"type": "object", "properties": {"text": {"type": "string"}}},
    });
    let document = upload(&upstream.url, &multipart(&json!({"type": "object", "properties": properties})));
    let tool = tool(&read_api(&document));
    let arguments = json!({"either": "plain", "json": "{}", "base64": "AP8=", "about": {"text": "words"}});
    call(&tool, arguments).await.unwrap();
    let found: Vec<_> = parts(&upstream).into_iter().map(|(name, file, _, content)| (name, file, content)).collect();
    let text = |name: &str, content: &str| (name.to_owned(), None, content.as_bytes().to_vec());
    let expected =
        [text("either", "plain"), text("json", "{}"), text("base64", "AP8="), text("about", r#"{"text":"words"}"#)];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_file_within_an_object_is_a_part_of_its_own() {
    let upstream = Upstream::start().await;
    let schema = json!({"properties": {"meta": {"type": "object", "properties": {
        "title": {"type": "string"}, "picture": {"$ref": "#/components/schemas/Bytes"}}}}});
    let document = upload(&upstream.url, &multipart(&schema));
    let api = read_api(&document);
    call(&tool(&api), json!({"meta": {"title": "T", "picture": {"text": "P"}}})).await.unwrap();
    let found: Vec<_> = parts(&upstream).into_iter().map(|(name, _, _, content)| (name, content)).collect();
    assert_eq!(found, [("meta".into(), br#"{"title":"T"}"#.to_vec()), ("meta[picture]".into(), b"P".to_vec())]);
    let (_, report) = definitions("pets", &api, &CollectionSettings::default(), &access()).unwrap();
    assert!(report.approximated.iter().any(|note| note.reason.contains("`meta[…]`")), "{report:?}");
}

#[tokio::test]
async fn a_call_chooses_between_json_and_multipart() {
    let upstream = Upstream::start().await;
    let body = json!({"required": true, "content": {
        "application/json": {"schema": {"type": "object", "required": ["image", "prompt"],
            "properties": {"prompt": {"type": "string"}, "image": {"type": "string", "format": "uri"}}}},
        "multipart/form-data": {"schema": {"type": "object", "required": ["image", "prompt"],
            "properties": {"prompt": {"type": "string"}, "image": {"type": "string", "format": "binary"}, "mask": {"type": "string"}}}},
    }});
    let api = read_api(&upload(&upstream.url, &body));
    let tool_of = |settings: Value| tools(&api, &super::settings(settings)).remove(0);
    let tool = tool_of(json!({}));
    assert_eq!(tool.parameters.document()["required"], json!(["prompt", "image"]));
    let by_address = json!({"prompt": "p", "image": "https://a.example/i.png"});
    call(&tool, by_address.clone()).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&upstream.last().body).unwrap(), by_address);
    call(&tool, json!({"prompt": "p", "image": {"text": "P"}})).await.unwrap();
    assert_eq!(parts(&upstream).len(), 2, "only multipart can carry the file");
    call(&tool, json!({"prompt": "p", "image": "i", "content_type": "multipart/form-data"})).await.unwrap();
    assert!(upstream.last().header("content-type").unwrap().starts_with("multipart/form-data"));

    let tool = tool_of(json!({"media_types": {"upload": "multipart/form-data"}}));
    assert_eq!(tool.parameters.document()["properties"].get("content_type"), None);
    let (_, report) =
        definitions("pets", &api, &super::settings(json!({"media_types": {"upload": "text/csv"}})), &access()).unwrap();
    assert!(report.approximated.iter().any(|note| note.reason.contains("text/csv")), "{report:?}");
}

#[tokio::test]
async fn lists_of_files_of_swagger_2_are_files() {
    let upstream = Upstream::start().await;
    let list = json!({"name": "files", "in": "formData", "type": "array", "items": {"type": "file"}, "collectionFormat": "multi"});
    let document = json!({"swagger": "2.0", "host": upstream.url.authority(), "schemes": ["http"], "paths": {"/f": {"post": {
        "operationId": "upload", "parameters": [list], "responses": {}}}}});
    let tool = tool(&read_api(&document));
    assert_eq!(tool.parameters.document()["additionalProperties"], false, "a form has no other fields");
    call(&tool, json!({"files": [{"text": "a"}, {"text": "b"}]})).await.unwrap();
    assert_eq!(parts(&upstream).len(), 2);
    let arguments = json!({"files": [{"content_base64": "?"}]});
    assert_eq!(call(&tool, arguments).await.unwrap_err().code(), ErrorCode::InvalidArguments);
}

#[tokio::test]
async fn an_optional_body_without_members_is_an_empty_object() {
    let upstream = Upstream::start().await;
    let body = json!({"content": {"application/json": {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    call(&tool, json!({})).await.unwrap();
    assert_eq!(upstream.last().text(), "{}");
    call(&tool, json!({"further": 1})).await.unwrap();
    assert_eq!(upstream.last().text(), r#"{"further":1}"#);
}

#[tokio::test]
async fn a_text_body_has_the_schema_of_its_value() {
    let upstream = Upstream::start().await;
    let body = json!({"content": {"text/plain": {"schema": {"type": "integer"}}}});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    assert_eq!(tool.parameters.document()["properties"]["body"]["type"], "integer");
    call(&tool, json!({"body": 7})).await.unwrap();
    assert_eq!(upstream.last().text(), "7");
}

#[tokio::test]
async fn the_query_of_a_server_is_sent() {
    let upstream = Upstream::start().await;
    let server = format!("{}?code=hunter%2F2", upstream.url).parse().unwrap();
    let mut document = upload(&server, &json!({"content": {"text/plain": {}}}));
    document["paths"]["/files"]["post"]["parameters"] = json!([{"name": "q", "in": "query"}]);
    let tool = tool(&read_api(&document));
    call(&tool, json!({"q": "1"})).await.unwrap();
    assert_eq!(upstream.last().uri.to_string(), "/v1/files?code=hunter%2F2&q=1");

    let settings = settings(json!({"base_url": server}));
    let tool = tools(&read_api(&document), &settings).remove(0);
    upstream.answers(403, "text/plain", "no such code: hunter/2");
    let error = call(&tool, json!({})).await.unwrap_err();
    assert!(error.message().ends_with("no such code: [redacted]"), "{}", error.message());
}
