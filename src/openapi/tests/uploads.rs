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

/// OpenAPI 3.1 writes binary content without a type, and an encoding says it of a text.
#[tokio::test]
async fn a_member_without_a_type_or_with_an_encoding_of_bytes_is_a_file() {
    let upstream = Upstream::start().await;
    let encoded = |content_type: &str, schema: Value| {
        let encoding = json!({"file": {"contentType": content_type}});
        json!({"required": true, "content": {"multipart/form-data": {
            "schema": {"type": "object", "properties": {"file": schema}}, "encoding": encoding}}})
    };
    let plain = |schema: Value| multipart(&json!({"type": "object", "properties": {"file": schema}}));
    let file = || json!({"content_base64": "AP8=", "filename": "a.png", "content_type": "image/png"});
    let sent = ("file".to_owned(), Some("a.png".to_owned()), Some("image/png".to_owned()), vec![0, 255]);
    for (what, body, value, count) in [
        ("no type", plain(json!({})), file(), 1),
        ("a description only", plain(json!({"description": "The picture."})), file(), 1),
        ("a reference", plain(json!({"$ref": "#/components/schemas/Any"})), file(), 1),
        ("a list", plain(json!({"type": "array", "items": {}})), json!([file(), file()]), 2),
        ("or null", plain(json!({"anyOf": [{}, {"type": "null"}]})), file(), 1),
        ("an encoding", encoded("image/png", json!({})), file(), 1),
        ("several encodings", encoded("image/png, image/jpeg", json!({"type": "string"})), file(), 1),
        ("a range", encoded("image/*", json!({"type": ["string", "null"]})), file(), 1),
        (
            "a list with an encoding",
            encoded("image/png", json!({"type": "array", "items": {"type": "string"}})),
            json!([file()]),
            1,
        ),
    ] {
        let mut document = upload(&upstream.url, &body);
        document["components"]["schemas"]["Any"] = json!({"title": "Any"});
        let tool = tool(&read_api(&document));
        call(&tool, json!({"file": value})).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(parts(&upstream), vec![sent.clone(); count], "{what}");
    }
    for (what, body, value, expected) in [
        ("a text without a type", plain(json!({})), json!("words"), &b"words"[..]),
        ("an encoding of text", encoded("text/plain", json!({"type": "string"})), json!("words"), b"words"),
        (
            "an encoding of JSON",
            encoded("application/json", json!({})),
            json!({"text": "words"}),
            br#"{"text":"words"}"#,
        ),
        (
            "a member of a member",
            plain(json!({"type": "object", "properties": {"any": {}}})),
            json!({"any": {"text": "words"}}),
            br#"{"any":{"text":"words"}}"#,
        ),
        ("a part without a type", plain(json!({"allOf": [{"type": "object"}, {}]})), json!({"a": 1}), br#"{"a":1}"#),
    ] {
        let tool = tool(&read_api(&upload(&upstream.url, &body)));
        call(&tool, json!({"file": value})).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let found: Vec<_> = parts(&upstream).into_iter().map(|(_, filename, _, content)| (filename, content)).collect();
        assert_eq!(found, [(None, expected.to_vec())], "{what}");
    }
    let tool = tool(&read_api(&upload(&upstream.url, &plain(json!({})))));
    assert!(!fits(&tool, &json!({"file": {"content_base64": "AA==", "more": 1}})), "no object there is sent as JSON");
}

#[tokio::test]
async fn files_of_a_multipart_body_that_is_not_described_are_files() {
    let upstream = Upstream::start().await;
    let body = json!({"required": true, "content": {"multipart/form-data": {}}});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    call(&tool, json!({"body": {"file": {"text": "F"}, "about": {"a": 1}}})).await.unwrap();
    let found: Vec<_> = parts(&upstream).into_iter().map(|(name, file, _, content)| (name, file, content)).collect();
    let file = ("file".to_owned(), Some("file".to_owned()), b"F".to_vec());
    assert_eq!(found, [file, ("about".to_owned(), None, br#"{"a":1}"#.to_vec())]);
}

/// Where JSON is offered for the same body, a member without a type is any JSON.
#[tokio::test]
async fn a_member_without_a_type_stays_json_where_json_is_offered() {
    let upstream = Upstream::start().await;
    let content = json!({"schema": {"type": "object", "properties": {"settings": {}}}});
    let body = json!({"required": true, "content": {"application/json": content, "multipart/form-data": content}});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    call(&tool, json!({"settings": {"text": "words"}})).await.unwrap();
    assert_eq!(upstream.last().text(), r#"{"settings":{"text":"words"}}"#);
}

#[tokio::test]
async fn a_body_of_any_media_type_is_a_file_unless_its_schema_is_one_of_json() {
    let upstream = Upstream::start().await;
    let body = |schema: Value| json!({"required": true, "content": {"*/*": {"schema": schema}}});
    for schema in [
        json!({}),
        json!({"type": "string", "format": "binary"}),
        json!({"type": ["string", "null"]}),
        json!({"contentMediaType": "*/*"}),
    ] {
        let tool = tool(&read_api(&upload(&upstream.url, &body(schema.clone()))));
        let file = json!({"content_base64": "AP8=", "content_type": "image/png"});
        call(&tool, json!({"body": file})).await.unwrap();
        assert_eq!(
            (upstream.last().header("content-type"), &upstream.last().body[..]),
            (Some("image/png"), &[0, 255][..]),
            "{schema}"
        );
        call(&tool, json!({"body": {"text": "T"}})).await.unwrap();
        assert_eq!(upstream.last().header("content-type"), Some("application/octet-stream"), "{schema}");
    }
    for (schema, value) in [
        (json!({"type": "array", "items": {"type": "integer"}}), json!([1])),
        (json!({"type": "number"}), json!(1.5)),
        (json!({"oneOf": [{"type": "object"}, {"type": "array"}]}), json!({"a": 1})),
    ] {
        let tool = tool(&read_api(&upload(&upstream.url, &body(schema.clone()))));
        call(&tool, json!({"body": value})).await.unwrap();
        assert_eq!(upstream.last().header("content-type"), Some("application/json"), "{schema}");
        assert_eq!(upstream.last().text(), value.to_string(), "{schema}");
    }
}

#[tokio::test]
async fn an_xml_body_is_a_text_with_an_example() {
    let upstream = Upstream::start().await;
    let schema = json!({"type": "object", "xml": {"name": "pet"}, "properties": {"name": {"type": "string"}}});
    let content = json!({"application/xml": {"schema": schema}});
    let body = json!({"required": true, "description": "The pet", "content": content});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    let expected = "XML, such as <pet><name>string</name></pet>. The pet";
    assert_eq!(tool.parameters.document()["properties"]["body"], json!({"type": "string", "description": expected}));
    call(&tool, json!({"body": "<pet><name>Rex</name></pet>"})).await.unwrap();
    assert_eq!(upstream.last().header("content-type"), Some("application/xml"));
    assert_eq!(upstream.last().text(), "<pet><name>Rex</name></pet>");
}

#[tokio::test]
async fn a_file_says_its_media_type_within_those_of_the_document() {
    let upstream = Upstream::start().await;
    let binary = json!({"schema": {"type": "string", "format": "binary"}});
    let tool_of = |media_types: &[&str], settings: Value| {
        let content: serde_json::Map<_, _> =
            media_types.iter().map(|name| ((*name).to_owned(), binary.clone())).collect();
        let document = upload(&upstream.url, &json!({"required": true, "content": content}));
        tools(&read_api(&document), &super::settings(settings)).remove(0)
    };
    let file = |media_type: &str| json!({"body": {"text": "T", "content_type": media_type}});
    for (media_types, wanted, usual, allowed) in [
        (&["application/octet-stream"][..], "application/zip", "application/octet-stream", true),
        (&["image/png", "image/jpeg"], "image/jpeg", "image/png", true),
        (&["image/png", "image/jpeg"], "image/gif", "image/png", false),
        (&["image/png"], "image/png", "image/png", true),
        (&["image/png", "image/*"], "image/gif", "image/png", true),
    ] {
        let tool = tool_of(media_types, json!({}));
        call(&tool, json!({"body": {"text": "T"}})).await.unwrap();
        assert_eq!(upstream.last().header("content-type"), Some(usual), "{media_types:?}");
        assert_eq!(fits(&tool, &file(wanted)), allowed, "{media_types:?} {wanted}");
        if allowed {
            call(&tool, file(wanted)).await.unwrap();
            assert_eq!(upstream.last().header("content-type"), Some(wanted), "{media_types:?}");
        }
    }
    let tool = tool_of(&["image/png", "image/jpeg"], json!({"media_types": {"upload": "image/jpeg"}}));
    assert!(!fits(&tool, &file("image/png")), "the settings have chosen");
    call(&tool, file("image/jpeg")).await.unwrap();
}

#[tokio::test]
async fn null_removes_a_member_by_a_merge_patch() {
    let upstream = Upstream::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    let patch = json!({"required": true, "content": {"application/merge-patch+json": {"schema": schema}}});
    let tool = tool(&read_api(&upload(&upstream.url, &patch)));
    call(&tool, json!({"a": null})).await.unwrap();
    assert_eq!(upstream.last().text(), r#"{"a":null}"#);
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
async fn a_list_of_json_lines_is_sent_as_lines() {
    let upstream = Upstream::start().await;
    let list = json!({"type": "array", "items": {"type": "object"}});
    let body = json!({"content": {"application/x-ndjson": {"schema": list}}});
    let tool = tool(&read_api(&upload(&upstream.url, &body)));
    call(&tool, json!({"body": [{"a": 1}, {"a": "two\nlines"}]})).await.unwrap();
    assert_eq!(upstream.last().text(), "{\"a\":1}\n{\"a\":\"two\\nlines\"}\n");
    assert_eq!(upstream.last().header("content-type"), Some("application/x-ndjson"));
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
