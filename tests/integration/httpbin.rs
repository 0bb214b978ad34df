//! A real server, described by its document only: every operation of httpbin is called.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::app::TestApp;
use crate::child_server::ChildServer;
use crate::public_documents::{fixture, offer, schemas};

/// What the arguments of httpbin's operations have to be so that it answers soon.
fn argument(tool: &str, name: &str, server: &str) -> Option<Value> {
    Some(match name {
        "value" if tool.contains("cache") => json!(60),
        "delay" | "duration" | "offset" => json!(0),
        "n" | "numbytes" => json!(3),
        "code" => json!(200),
        "status_code" => json!(302),
        "codes" => json!("204"),
        "url" => json!(format!("{server}/get")),
        "user" => json!("u"),
        "passwd" => json!("p"),
        "qop" => json!("auth"),
        "algorithm" => json!("MD5"),
        "stale_after" => json!("never"),
        "value" => json!("aGVsbG8="),
        "anything" => json!("a b"),
        "name" | "etag" => json!("x"),
        "freeform" => json!({"flavour": "sweet & sour"}),
        _ => return None,
    })
}

/// Operations that fail, with the code they fail with; all others succeed.
const FAILING: [(&str, &str); 9] = [
    // Basic credentials are configured, and these operations require others.
    ("api__get_bearer", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd_algorithm", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd_algorithm_stale_after", "tool_error"),
    // A redirect of a method that writes is not followed.
    ("api__post_redirect_to", "tool_error"),
    ("api__put_redirect_to", "tool_error"),
    // Their document does not require the address parameter, without which they redirect to an invalid address.
    ("api__delete_redirect_to", "tool_error"),
    ("api__patch_redirect_to", "tool_error"),
    ("api__trace_redirect_to", "tool_error"),
];

#[tokio::test]
#[ignore = "needs gunicorn with httpbin, named by the variable GUNICORN"]
async fn httpbin_answers_every_operation() {
    let program = std::env::var("GUNICORN").expect("GUNICORN names the program");
    let arguments = ["--bind", "127.0.0.1:PORT", "--threads", "8", "httpbin:app"];
    let server = ChildServer::start(&program, &arguments, Duration::from_secs(30)).await;
    let url = server.url.clone();
    let further = json!({
        "auth_type": "basic",
        "auth_config": {"username": "u", "password": "p", "extra_headers": {"Cookie": "theme=dark", "X-Given": "yes"}},
    });
    let (app, _) = offer(&fixture("httpbin-swagger2.json"), &url, &further).await;
    let mut surprises = Vec::new();
    let mut outputs = BTreeMap::new();
    let tools = schemas(&app).await;
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        let properties = tool["parameters"]["properties"].as_object().unwrap();
        let made = properties.keys().filter_map(|key| Some((key.clone(), argument(name, key, &url)?)));
        let (_, reply) = app.call(name, Value::Object(made.collect::<Map<_, _>>())).await;
        let code = reply["error_info"]["code"].as_str().unwrap_or_default();
        let expected = FAILING.iter().find(|(failing, _)| *failing == name).map_or("", |(_, code)| code);
        if code != expected {
            surprises.push(format!("{name}: {} instead of {expected:?}", reply["error"]));
        }
        outputs.insert(name.to_owned(), reply);
    }
    assert_eq!((tools.len(), surprises), (78, Vec::<String>::new()));
    let output = |name: &str| &outputs[&format!("api__{name}")]["output"];
    for (name, flag) in [("get_gzip", "gzipped"), ("get_brotli", "brotli"), ("get_deflate", "deflated")] {
        assert_eq!(output(name)[flag], true, "{name} is unpacked");
    }
    for (name, media_type, begins) in [
        ("get_image_png", "image/png", "iVBORw0KGgo"),
        ("get_image_jpeg", "image/jpeg", "/9j/"),
        ("get_image_webp", "image/webp", "UklGR"),
        // Chosen by the `Accept` header: the document names no schema, only the produced types.
        ("get_image", "image/webp", "UklGR"),
        ("get_bytes_n", "application/octet-stream", ""),
    ] {
        let image = output(name);
        assert_eq!(image["media_type"], media_type);
        assert!(image["content_base64"].as_str().unwrap().starts_with(begins), "{name}");
    }
    assert_eq!(output("get_basic_auth_user_passwd"), &json!({"authenticated": true, "user": "u"}));
    assert_eq!(output("get_hidden_basic_auth_user_passwd")["authenticated"], true);
    assert_eq!(output("get_cookies")["cookies"]["theme"], "dark");
    assert_eq!(output("get_headers")["headers"]["X-Given"], "yes");
    assert_eq!(output("get_response_headers")["flavour"], "sweet & sour");
    assert_eq!(output("get_redirect_n")["url"], format!("{url}/get"));
    assert_eq!(output("get_redirect_to")["url"], format!("{url}/get"));
    assert_eq!(output("get_anything_anything")["url"], format!("{url}/anything/a%20b"));
    assert!(output("get_xml").as_str().unwrap().starts_with("<?xml"));
    assert_eq!(output("get_stream_n").as_array().map(Vec::len), Some(3), "{}", output("get_stream_n"));
    statuses(&app).await;
    Box::pin(credentials(&url)).await;
    digest(&url).await;
}

/// Digest authentication in all forms of the server but SHA-512, which RFC 7616 does not have.
async fn digest(url: &str) {
    let mut document: Value = serde_json::from_slice(&fixture("httpbin-swagger2.json")).unwrap();
    // Version 2.0 of OpenAPI has no name for it.
    document["securityDefinitions"] = json!({"given": {"type": "http", "scheme": "digest"}});
    document["security"] = json!([{"given": []}]);
    let auth = json!({"auth_config": {"username": "u", "password": "p"}});
    let (app, _) = offer(&document.to_string().into_bytes(), url, &auth).await;
    for (qop, algorithm) in [("auth", "MD5"), ("auth-int", "MD5"), ("auth", "SHA-256"), ("auth-int", "SHA-256")] {
        let arguments = json!({"qop": qop, "user": "u", "passwd": "p", "algorithm": algorithm});
        let (_, reply) = app.call("api__get_digest_auth_qop_user_passwd_algorithm", arguments).await;
        assert_eq!(reply["output"], json!({"authenticated": true, "user": "u"}), "{qop} {algorithm}: {reply}");
    }
    let arguments = json!({"qop": "auth", "user": "u", "passwd": "other", "algorithm": "MD5"});
    let (_, reply) = app.call("api__get_digest_auth_qop_user_passwd_algorithm", arguments).await;
    assert_eq!(reply["error_info"]["code"], "tool_error", "{reply}");
    _ = app.stop().await;
}

/// Each kind of credential that the document or the settings require, as the server receives it. (Basic is above.)
async fn credentials(url: &str) {
    let with = |scheme: Value| {
        let mut document: Value = serde_json::from_slice(&fixture("httpbin-swagger2.json")).unwrap();
        document["securityDefinitions"] = json!({"given": scheme});
        document["security"] = json!([{"given": []}]);
        document.to_string().into_bytes()
    };
    let plain = fixture("httpbin-swagger2.json");
    for (document, auth_type, auth_config, tool, seen, expected) in [
        (plain.clone(), "bearer", json!({"token": "t-1"}), "get_bearer", "/token", "t-1"),
        (plain, "api_key", json!({"api_key": "k-1", "api_key_name": "X-Key"}), "get_headers", "/headers/X-Key", "k-1"),
        (
            with(json!({"type": "apiKey", "in": "header", "name": "X-Own"})),
            "none",
            json!({"api_key": "k-2"}),
            "get_headers",
            "/headers/X-Own",
            "k-2",
        ),
        (
            with(json!({"type": "apiKey", "in": "query", "name": "key"})),
            "none",
            json!({"api_key": "k 3"}),
            "get_get",
            "/args/key",
            "k 3",
        ),
        (
            with(json!({"type": "apiKey", "in": "cookie", "name": "session"})),
            "none",
            json!({"api_key": "k-4"}),
            "get_cookies",
            "/cookies/session",
            "k-4",
        ),
    ] {
        let (app, _) = offer(&document, url, &json!({"auth_type": auth_type, "auth_config": auth_config})).await;
        let (_, reply) = app.call(&format!("api__{tool}"), json!({})).await;
        assert_eq!(reply["output"].pointer(seen).and_then(Value::as_str), Some(expected), "{reply}");
        _ = app.stop().await;
    }
}

/// Every status is what it should be, and none of 4xx is an outage.
async fn statuses(app: &TestApp) {
    for (status, expected) in [
        ("200", ""),
        ("204", ""),
        ("304", "tool_error"),
        ("400", "tool_error"),
        ("401", "tool_error"),
        ("404", "tool_error"),
        ("418", "tool_error"),
        ("429", "upstream_error"),
        ("500", "upstream_error"),
        ("503", "upstream_error"),
    ] {
        let (_, reply) = app.call("api__post_status_codes", json!({"codes": status})).await;
        assert_eq!(reply["error_info"]["code"].as_str().unwrap_or_default(), expected, "{status}: {reply}");
    }
}
