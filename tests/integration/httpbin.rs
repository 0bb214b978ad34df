//! A real server, which sekisho knows by its document only: every operation of httpbin is called.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

use crate::app::TestApp;
use crate::public_documents::{fixture, offer, schemas};

/// What the arguments of httpbin's operations have to be so that it answers soon.
fn argument(name: &str, server: &str) -> Option<Value> {
    Some(match name {
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
    // Basic credentials are given, and these ask for others.
    ("api__get_bearer", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd_algorithm", "tool_error"),
    ("api__get_digest_auth_qop_user_passwd_algorithm_stale_after", "tool_error"),
    // A redirect of a method that writes is not followed.
    ("api__post_redirect_to", "tool_error"),
    ("api__put_redirect_to", "tool_error"),
    // Their document does not say that they need an address, and without one they break.
    ("api__delete_redirect_to", "upstream_error"),
    ("api__patch_redirect_to", "upstream_error"),
    ("api__trace_redirect_to", "upstream_error"),
];

#[tokio::test]
#[ignore = "needs gunicorn with httpbin, named by the variable GUNICORN"]
async fn httpbin_answers_every_operation() {
    let (_server, url) = start().await;
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
        let made = properties.keys().filter_map(|key| Some((key.clone(), argument(key, &url)?)));
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
    assert_eq!(output("get_anything_anything")["url"], format!("{url}/anything/a b"));
    assert!(output("get_xml").as_str().unwrap().starts_with("<?xml"));
    assert_eq!(output("get_stream_n").as_array().map(Vec::len), Some(3), "{}", output("get_stream_n"));
    statuses(&app).await;
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

/// Killed when the test ends.
async fn start() -> (Child, String) {
    let program = std::env::var("GUNICORN").expect("GUNICORN names the program");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new(program)
        .args(["--bind", &format!("127.0.0.1:{port}"), "--worker-class", "gevent", "httpbin:app"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let listens = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), listens).await.expect("gunicorn starts");
    (child, format!("http://127.0.0.1:{port}"))
}
