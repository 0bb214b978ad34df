//! The encoding of arguments, and the conversion of responses.

use super::*;
use sekisho_core::error::{Blame, ErrorCode};

#[tokio::test]
async fn every_argument_arrives_in_its_place() {
    let upstream = Upstream::start().await;
    let mut put = operation("put_pet", Method::PUT, "/pets/{id}");
    put.parameters = vec![
        parameter("id", Location::Path, json!({"type": "string"})),
        parameter("tag", Location::Query, json!({"type": "array", "items": {"type": "string"}})),
        parameter("X-Trace", Location::Header, json!({"type": "string"})),
        parameter("session", Location::Cookie, json!({"type": "string"})),
    ];
    put.body = body(
        "application/json",
        json!({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}),
    );
    upstream.answers(200, "application/json", &json!({"id": 7}));
    let tool = tool(&upstream.api(vec![put]));
    let arguments = json!({
        "id": "a/b c", "tag": ["x", "y&z"], "X-Trace": "here", "session": "s1", "body_id": 7, "name": "Rex"
    });
    let output = call(&tool, arguments).await.unwrap();
    assert_eq!(output.value, json!({"id": 7}));
    assert_eq!(output.metadata["status"], 200);
    let request = upstream.last();
    assert_eq!(
        (request.method.as_str(), request.uri.to_string().as_str()),
        ("PUT", "/v1/pets/a%2Fb%20c?tag=x&tag=y%26z")
    );
    assert_eq!(request.header("cookie"), Some("session=s1"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(serde_json::from_slice::<Value>(&request.body).unwrap(), json!({"id": 7, "name": "Rex"}));
    assert!(tool.metadata.idempotent);
}

/// Fault 8: header parameters that are dropped.
#[tokio::test]
async fn a_header_parameter_is_sent() {
    let upstream = Upstream::start().await;
    let mut get = operation("get_pet", Method::GET, "/pets");
    get.parameters = vec![
        parameter("X-Account", Location::Header, json!({"type": "string"})),
        parameter("X-List", Location::Header, json!({"type": "array", "items": {"type": "integer"}})),
    ];
    let tool = tool(&upstream.api(vec![get]));
    call(&tool, json!({"X-Account": "acme", "X-List": [1, 2]})).await.unwrap();
    assert_eq!(upstream.last().header("x-account"), Some("acme"));
    assert_eq!(upstream.last().header("x-list"), Some("1,2"));
}

#[tokio::test]
async fn each_status_blames_whom_it_should() {
    let upstream = Upstream::start().await;
    let tool = tool(&upstream.api(vec![operation("get_pet", Method::GET, "/pets")]));
    for (status, code, blame) in [
        (404, ErrorCode::ToolError, Blame::Call),
        (422, ErrorCode::ToolError, Blame::Call),
        (429, ErrorCode::UpstreamError, Blame::Call),
        (503, ErrorCode::UpstreamError, Blame::Upstream),
    ] {
        upstream.answers(status, "application/json", &json!({"message": "no such pet"}));
        let error = call(&tool, json!({})).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (code, blame), "{status}");
        assert!(error.message().ends_with(": no such pet"), "{}", error.message());
    }
    // A success of any form is none of the upstream's failures.
    upstream.answers(200, "application/json", "deleted");
    let output = call(&tool, json!({})).await.unwrap();
    assert_eq!((output.value, &output.metadata["status"]), (json!("deleted"), &json!(200)));
}

#[tokio::test]
async fn a_path_argument_cannot_lead_to_another_operation() {
    let upstream = Upstream::start().await;
    let mut delete = operation("delete_file", Method::DELETE, "/pets/{id}/files");
    delete.parameters = vec![parameter("id", Location::Path, json!({"type": ["string", "null"]}))];
    let tool = tool(&upstream.api(vec![delete]));
    for id in [json!(".."), json!("."), json!(""), json!(null)] {
        let error = call(&tool, json!({"id": id})).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArguments, "{id}");
    }
    for (id, path) in [
        ("../..", "/v1/pets/..%2F../files"),
        ("a?b#c", "/v1/pets/a%3Fb%23c/files"),
        ("%2e%2e", "/v1/pets/%252e%252e/files"),
        ("a\\..\\b", "/v1/pets/a%5C..%5Cb/files"),
    ] {
        call(&tool, json!({"id": id})).await.unwrap();
        assert_eq!(upstream.last().uri.path(), path);
    }
}

#[tokio::test]
async fn a_value_cannot_add_a_header_or_a_cookie() {
    let upstream = Upstream::start().await;
    let mut get = operation("get_pet", Method::GET, "/pets");
    let mut cookie = parameter("session", Location::Cookie, json!({"type": "string"}));
    cookie.encoding =
        ParameterEncoding::Styled { style: Style::Cookie, explode: true, allow_reserved: false, allow_empty: false };
    get.parameters = vec![parameter("X-Note", Location::Header, json!({"type": "string"})), cookie];
    let tool = tool(&upstream.api(vec![get]));
    for arguments in [json!({"X-Note": "a\r\nX-Admin: yes"}), json!({"session": "a; admin=yes"})] {
        assert_eq!(call(&tool, arguments).await.unwrap_err().code(), ErrorCode::InvalidArguments);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn forms_are_written_in_the_style_of_each_member() {
    let upstream = Upstream::start().await;
    let mut post = operation("create", Method::POST, "/charges");
    let schema = json!({
        "type": "object",
        "properties": {
            "amount": {"type": "integer"},
            "expand": {"type": "array", "items": {"type": "string"}},
            "card": {"type": "object"},
            "address": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "range": {"type": "object"},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
        },
        "required": ["amount"]
    });
    let mut content = media_type("application/x-www-form-urlencoded", schema);
    let nested = |style| crate::read::operation::PropertyEncoding {
        style: Some(style),
        explode: Some(true),
        ..Default::default()
    };
    content.encoding.insert("card".into(), nested(Style::DeepObject));
    content.encoding.insert("expand".into(), nested(Style::DeepObject));
    content.encoding.insert("range".into(), nested(Style::Form));
    let mut in_lists = nested(Style::Form);
    in_lists.item_separator = Some('|');
    content.encoding.insert("grid".into(), in_lists);
    post.body = Some(RequestBody { required: true, description: String::new(), content: vec![content] });
    let tool = tool(&upstream.api(vec![post]));
    let arguments = json!({"amount": 5, "expand": ["a b"], "card": {"owner": {"name": "Ann & Co"}}});
    call(&tool, arguments).await.unwrap();
    let request = upstream.last();
    assert_eq!(request.text(), "amount=5&expand[0]=a%20b&card[owner][name]=Ann%20%26%20Co");
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert!(!tool.metadata.idempotent);
    // Without an encoding the content type decides, which for an object is JSON.
    for (member, value, expected) in [
        ("address", json!({"city": "Ulm"}), "%7B%22city%22%3A%22Ulm%22%7D"),
        ("address", json!({}), "%7B%7D"),
        ("tags", json!(["a", "b"]), "a&tags=b"),
        ("grid", json!([[1, 2], [3]]), "1%7C2&grid=3"),
    ] {
        call(&tool, json!({"amount": 5, member: value})).await.unwrap();
        assert_eq!(upstream.last().text(), format!("amount=5&{member}={expected}"));
    }
    call(&tool, json!({"amount": 5, "range": {"from": 1, "to": 2}})).await.unwrap();
    assert_eq!(upstream.last().text(), "amount=5&from=1&to=2");
}

#[test]
fn an_id_without_a_character_that_names_can_have_gives_way_to_method_and_path() {
    let operations = vec![
        operation("検索", Method::GET, "/pets/{id}"),
        operation("名前を付ける", Method::PUT, "/pets/{id}"),
        operation("get_ペット", Method::GET, "/pets"),
    ];
    let api = api("https://api.example", operations);
    let (tools, report) = definitions("uni", &api, &settings(json!({})), &access()).unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
    assert_eq!(names[..2], ["uni__get_pets_id", "uni__put_pets_id"]);
    assert!(names[2].starts_with("uni__get_") && report.lost.is_empty(), "{names:?}");
}

#[tokio::test]
async fn of_several_media_types_json_is_sent_and_the_choice_is_reported() {
    let upstream = Upstream::start().await;
    let schema = || json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for (offered, sent, text) in [
        (
            &["application/xml", "application/x-www-form-urlencoded", "application/json"][..],
            "application/json",
            r#"{"name":"a b"}"#,
        ),
        (
            &["multipart/form-data", "application/x-www-form-urlencoded"],
            "application/x-www-form-urlencoded",
            "name=a%20b",
        ),
    ] {
        let mut post = operation("create", Method::POST, "/pets");
        let content = offered.iter().map(|name| media_type(name, schema())).collect();
        post.body = Some(RequestBody { required: true, description: String::new(), content });
        let api = upstream.api(vec![post]);
        let (tools, report) = definitions("pets", &api, &CollectionSettings::default(), &access()).unwrap();
        call(&tools[0], json!({"name": "a b"})).await.unwrap();
        assert_eq!((upstream.last().header("content-type"), upstream.last().text()), (Some(sent), text));
        assert!(report.approximated[0].reason.contains(&format!("always sent as {sent}")), "{report:?}");
    }
}

#[tokio::test]
async fn files_travel_in_multipart_and_octet_bodies() {
    let upstream = Upstream::start().await;
    let mut upload = operation("upload", Method::POST, "/files");
    upload.body = body(
        "multipart/form-data",
        json!({
            "type": "object",
            "properties": {
                "file": {"type": "string", "format": "binary"},
                "about": {"type": "object"},
                "title": {"type": "string"}
            },
            "required": ["file"]
        }),
    );
    let mut raw = operation("raw", Method::PUT, "/raw");
    raw.body = body("application/octet-stream", json!({"type": "string", "format": "binary"}));
    let tools = tools(&upstream.api(vec![upload, raw]), &CollectionSettings::default());
    let file = json!({"filename": "a\"b.bin", "content_base64": "AAH/", "content_type": "image/png"});
    call(&tools[0], json!({"file": file, "about": {"a": 1}, "title": "T"})).await.unwrap();
    let request = upstream.last();
    let content_type = request.header("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
    let mut expected = Vec::new();
    expected.extend_from_slice(format!("--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a%22b.bin\"\r\nContent-Type: image/png\r\n\r\n").as_bytes());
    expected.extend_from_slice(&[0, 1, 255]);
    expected.extend_from_slice(format!("\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"about\"\r\nContent-Type: application/json\r\n\r\n{{\"a\":1}}\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nT\r\n--{boundary}--\r\n").as_bytes());
    assert_eq!(request.body, expected);
    call(&tools[1], json!({"body": {"content_base64": "AAH/"}})).await.unwrap();
    assert_eq!(upstream.last().body[..], [0, 1, 255]);
    assert_eq!(upstream.last().header("content-type"), Some("application/octet-stream"));
    let error = call(&tools[1], json!({"body": {"content_base64": "no base64!"}})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArguments);
}

#[tokio::test]
async fn a_redirect_elsewhere_is_followed_by_reading_methods_only() {
    let upstream = Upstream::start().await;
    let router = axum::Router::new().fallback({
        let target = format!("{}pets?key=k", upstream.url);
        move || async move { (StatusCode::TEMPORARY_REDIRECT, [(http::header::LOCATION, target)]) }
    });
    let address = test_server::serve(router).await;
    let operations = [Method::GET, Method::POST].map(|method| operation(method.clone().as_str(), method, "/pets"));
    let tools = tools(&api(&format!("http://{address}"), operations.into()), &CollectionSettings::default());
    call(&tools[0], json!({})).await.unwrap();
    assert_eq!(upstream.requests().len(), 1);
    let error = call(&tools[1], json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ToolError);
    let named = format!("a redirect to {}pets, which is not followed", upstream.url);
    assert!(error.message().contains(&named), "{}", error.message());
    assert_eq!(upstream.requests().len(), 1);
}

/// FastAPI answers so where a path lacks its final slash.
#[tokio::test]
async fn a_redirect_within_the_origin_that_keeps_the_method_is_followed() {
    let router =
        axum::Router::new().fallback(async |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            match (method, uri.path()) {
                (Method::POST, "/pets/") => {
                    let key = headers["x-key"].to_str().unwrap().to_owned();
                    (StatusCode::OK, axum::Json(json!([key, String::from_utf8_lossy(&body)]))).into_response()
                }
                (_, "/pets") => (StatusCode::TEMPORARY_REDIRECT, [(http::header::LOCATION, "/pets/")]).into_response(),
                (_, "/see") => (StatusCode::SEE_OTHER, [(http::header::LOCATION, "/pets/")]).into_response(),
                (_, path) => {
                    (StatusCode::PERMANENT_REDIRECT, [(http::header::LOCATION, path.to_owned())]).into_response()
                }
            }
        });
    let address = test_server::serve(router).await;
    let mut operations = ["/pets", "/see", "/loop"].map(|path| operation(&path[1..], Method::POST, path));
    operations[0].body =
        body("application/json", json!({"type": "object", "properties": {"name": {"type": "string"}}}));
    let settings = settings(json!({"auth_config": {"extra_headers": {"X-Key": "s1"}}}));
    let tools = tools(&api(&format!("http://{address}"), operations.into()), &settings);
    let output = call(&tools[0], json!({"name": "Rex"})).await.unwrap();
    assert_eq!(output.value, json!(["s1", r#"{"name":"Rex"}"#]));
    for (tool, status) in [(&tools[1], "303 See Other"), (&tools[2], "308 Permanent Redirect")] {
        let error = call(tool, json!({})).await.unwrap_err();
        assert!(error.message().contains(status), "{}", error.message());
    }
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_what_came_until_the_limit() {
    let router = axum::Router::new().fallback(async |uri: Uri| {
        let (media_type, line, pause) = match uri.path() {
            "/events" => ("text/event-stream", "data: 1\n\n", true),
            _ => ("application/x-ndjson", "{\"n\": 1}\n", false),
        };
        let lines = futures_util::stream::unfold(0, move |sent| async move {
            if pause && sent > 0 {
                std::future::pending::<()>().await;
            }
            Some((Ok::<_, std::convert::Infallible>(line), sent + 1))
        });
        ([(http::header::CONTENT_TYPE, media_type)], axum::body::Body::from_stream(lines))
    });
    let address = test_server::serve(router).await;
    let operations = ["/events", "/lines"].map(|path| operation(&path[1..], Method::GET, path));
    let tools = tools(&api(&format!("http://{address}"), operations.into()), &CollectionSettings::default());
    let context = CallContext::new("pets", Arc::new(Caller::anonymous()), Via::Rest);
    for (tool, expected) in [(&tools[0], json!("data: 1\n\n")), (&tools[1], json!({"n": 1}))] {
        let attempt = Attempt {
            call: &context,
            deadline: Deadline::after(Duration::from_secs(2)),
            memory_limit_bytes: 128 << 20,
            max_output_bytes: 1 << 20,
        };
        let output = tool.executor.execute(attempt, &Map::new()).await.unwrap();
        assert_eq!(output.metadata["truncated"], true);
        assert_eq!(output.value.get(0).unwrap_or(&output.value), &expected);
    }
}

#[tokio::test]
async fn an_answer_has_a_limit() {
    let upstream = Upstream::start().await;
    upstream.answers(200, "text/plain", &"x".repeat((1 << 20) + 1));
    let tool = tool(&upstream.api(vec![operation("get_pet", Method::GET, "/pets")]));
    assert_eq!(call(&tool, json!({})).await.unwrap_err().code(), ErrorCode::OutputTooLarge);
}
