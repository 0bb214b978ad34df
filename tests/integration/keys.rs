//! Keys that administrators manage: who may create them, what they allow, and when they end.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code};
use crate::audit_events::lines;
use crate::cli::{sekisho, text};
use crate::slack::slack;

/// An administrator of all tenants, one of `acme` alone, and somebody without the role.
const AUTH: &str = "auth: {anonymous: never, api_keys: [\
    {id: ada, key: key-of-ada, roles: [admin, operator]}, \
    {id: bob, key: key-of-bob, tenant: acme, roles: [admin, operator]}, \
    {id: eve, key: key-of-eve, tenant: acme, roles: [operator]}]}";

/// A request as the holder of a key.
pub(crate) async fn as_holder(
    app: &TestApp,
    key: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let request = app.client.request(method, format!("{}{path}", app.url)).bearer_auth(key);
    answer(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

async fn create(app: &TestApp, key: &str, body: Value) -> (StatusCode, Value) {
    as_holder(app, key, Method::POST, "/admin/keys", Some(body)).await
}

/// A new key: its token and its id.
async fn created(app: &TestApp, key: &str, body: Value) -> (String, String) {
    let (status, answer) = create(app, key, body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&answer["token"]), text(&answer["key"]["id"]))
}

async fn call(app: &TestApp, token: &str) -> (StatusCode, Value) {
    let body = json!({"arguments": {"expression": "6*7"}});
    as_holder(app, token, Method::POST, "/tools/calculator/execute", Some(body)).await
}

/// The reason of a refusal as unauthenticated.
async fn reason(app: &TestApp, token: &str) -> String {
    let (status, reply) = call(app, token).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{reply}");
    reply["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_is_used_shown_without_its_token_and_revoked_at_once() {
    let app = TestApp::with(AUTH).await;
    let wanted = json!({"person": "carol", "description": "nightly report", "roles": ["operator"], "tenant": "acme"});
    let (token, id) = created(&app, "key-of-ada", wanted).await;
    assert!(token.starts_with(&format!("sk_{id}_")) && token.len() == 3 + 16 + 1 + 64, "{token}");
    assert_eq!(call(&app, &token).await.0, StatusCode::OK);
    let one = format!("/admin/keys/{id}");
    let (status, shown) = as_holder(&app, "key-of-ada", Method::GET, &one, None).await;
    assert_eq!(status, StatusCode::OK);
    for (field, value) in [
        ("tenant", json!("acme")),
        ("person", json!("carol")),
        ("description", json!("nightly report")),
        ("roles", json!(["operator"])),
        ("tools", Value::Null),
        ("status", json!("active")),
        ("created_by", json!("default/ada")),
        ("creators", json!(["ada"])),
    ] {
        assert_eq!(shown[field], value, "{field}: {shown}");
    }
    assert!(shown["last_used_at"].is_string(), "{shown}");
    assert!(!shown.to_string().contains(&token[20..]), "{shown}");

    // The roles and the tenant of the caller are those of the key.
    let (_, calls) = as_holder(&app, "key-of-ada", Method::GET, "/admin/calls?caller=carol", None).await;
    assert_eq!(calls["calls"].as_array().map(Vec::len), Some(1), "{calls}");
    assert_eq!(create(&app, &token, json!({})).await.0, StatusCode::FORBIDDEN);

    let (status, revoked) = as_holder(&app, "key-of-ada", Method::DELETE, &one, None).await;
    assert_eq!((status, &revoked["status"]), (StatusCode::OK, &json!("revoked")));
    assert!(reason(&app, &token).await.contains("was revoked"));
    // Once more changes nothing.
    let again = as_holder(&app, "key-of-ada", Method::DELETE, &one, None).await;
    assert_eq!((again.0, &again.1["revoked_at"]), (StatusCode::OK, &revoked["revoked_at"]));
    let rotate = as_holder(&app, "key-of-ada", Method::POST, &format!("{one}/rotate"), Some(json!({}))).await;
    assert_eq!(rotate.0, StatusCode::BAD_REQUEST, "{}", rotate.1);
    assert_eq!(call(&app, "key-of-eve").await.0, StatusCode::OK, "keys of the configuration work");
}

#[tokio::test]
async fn a_rotated_key_has_two_tokens_for_a_time() {
    let app = TestApp::with(AUTH).await;
    let (first, id) = created(&app, "key-of-ada", json!({})).await;
    let rotate = async |overlap: Option<u64>| {
        let body = overlap.map_or_else(|| json!({}), |seconds| json!({"overlap_seconds": seconds}));
        let path = format!("/admin/keys/{id}/rotate");
        let (status, answer) = as_holder(&app, "key-of-ada", Method::POST, &path, Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    };
    let answer = rotate(None).await;
    let second = answer["token"].as_str().unwrap().to_owned();
    assert!(second != first && second.starts_with(&format!("sk_{id}_")));
    assert!(answer["key"]["previous_token_until"].is_string(), "{answer}");
    for token in [&first, &second] {
        assert_eq!(call(&app, token).await.0, StatusCode::OK);
    }
    let answer = rotate(Some(0)).await;
    assert!(answer["key"].get("previous_token_until").is_none(), "{answer}");
    let third = answer["token"].as_str().unwrap();
    assert_eq!(call(&app, third).await.0, StatusCode::OK);
    assert!(reason(&app, &second).await.contains("was rotated"));
    assert!(reason(&app, &first).await.contains("unknown API key"), "only one token before is known");
    let path = format!("/admin/keys/{id}/rotate");
    let too_long = json!({"overlap_seconds": 30 * 24 * 3_600 + 1});
    let refused = as_holder(&app, "key-of-ada", Method::POST, &path, Some(too_long)).await;
    assert_eq!(refused.0, StatusCode::BAD_REQUEST);
    // All tokens of a key end with it.
    as_holder(&app, "key-of-ada", Method::DELETE, &format!("/admin/keys/{id}"), None).await;
    for token in [second.as_str(), third] {
        assert!(reason(&app, token).await.contains("was revoked"));
    }
}

#[tokio::test]
async fn an_expired_key_is_refused_with_the_reason_and_gets_no_other_token() {
    let app = TestApp::with(AUTH).await;
    let soon = jiff::Timestamp::now() + Duration::from_millis(1_500);
    let (token, id) = created(&app, "key-of-ada", json!({"expires_at": soon.to_string()})).await;
    let until = Instant::now() + slack(Duration::from_secs(10));
    while call(&app, &token).await.0 == StatusCode::OK {
        assert!(Instant::now() < until, "it is accepted for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(jiff::Timestamp::now() >= soon);
    assert!(reason(&app, &token).await.contains("has expired"));
    let (_, shown) = as_holder(&app, "key-of-ada", Method::GET, &format!("/admin/keys/{id}"), None).await;
    assert_eq!(shown["status"], "expired");
    let path = format!("/admin/keys/{id}/rotate");
    assert_eq!(as_holder(&app, "key-of-ada", Method::POST, &path, Some(json!({}))).await.0, StatusCode::BAD_REQUEST);
    let past = create(&app, "key-of-ada", json!({"expires_at": "2020-01-01T00:00:00Z"})).await;
    assert_eq!(past.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn nobody_gives_a_key_more_than_they_have() {
    let app = TestApp::with(AUTH).await;
    for (holder, wanted, status) in [
        // A role that nobody has, another tenant, and the role `admin` itself.
        ("key-of-ada", json!({"roles": ["owner"]}), StatusCode::FORBIDDEN),
        ("key-of-bob", json!({"tenant": "globex"}), StatusCode::FORBIDDEN),
        ("key-of-bob", json!({"tenant": "default"}), StatusCode::FORBIDDEN),
        ("key-of-eve", json!({}), StatusCode::FORBIDDEN),
        ("key-of-ada", json!({"person": "a\u{1f}b"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"person": "\u{202e}ada"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"person": "ada\u{200b}"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"tenant": "acme\u{2060}"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"description": "a\u{202e}b"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"person": "anonymous", "tenant": "public"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"tools": ["a*b"]}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"tools": [""]}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"expires_at": "tomorrow"}), StatusCode::BAD_REQUEST),
        ("key-of-ada", json!({"id": "chosen"}), StatusCode::BAD_REQUEST),
    ] {
        let (found, reply) = create(&app, holder, wanted.clone()).await;
        assert_eq!(found, status, "{holder} {wanted}: {reply}");
    }
    // A key that administers keys, with fewer tools and an end.
    let ends = jiff::Timestamp::now() + Duration::from_secs(3_600);
    let wanted = json!({"roles": ["admin"], "tenant": "acme", "tools": ["calculator", "json_*"], "expires_at": ends.to_string()});
    let (limited, _) = created(&app, "key-of-ada", wanted).await;
    let later = (ends + Duration::from_secs(1)).to_string();
    let within = json!({"tools": ["json_query"], "expires_at": ends.to_string()});
    for (change, status) in [
        (json!({}), StatusCode::CREATED),
        (json!({"tools": ["json_query*"]}), StatusCode::CREATED),
        (json!({"tools": null}), StatusCode::FORBIDDEN),
        (json!({"tools": ["json*"]}), StatusCode::FORBIDDEN),
        (json!({"tools": ["echo"]}), StatusCode::FORBIDDEN),
        (json!({"expires_at": later}), StatusCode::FORBIDDEN),
        (json!({"expires_at": null}), StatusCode::FORBIDDEN),
        (json!({"roles": ["operator"]}), StatusCode::FORBIDDEN),
        (json!({"tenant": "default"}), StatusCode::FORBIDDEN),
    ] {
        let mut wanted = within.clone();
        wanted.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (found, reply) = create(&app, &limited, wanted.clone()).await;
        assert_eq!(found, status, "{wanted}: {reply}");
    }
    // Nor does anybody get a token of a key that is more than their own; revoking it is no gain.
    let (strong, id) = created(&app, "key-of-ada", json!({"tenant": "acme", "roles": ["operator"]})).await;
    let path = format!("/admin/keys/{id}");
    let rotate = as_holder(&app, &limited, Method::POST, &format!("{path}/rotate"), Some(json!({}))).await;
    assert_eq!(rotate.0, StatusCode::FORBIDDEN, "{}", rotate.1);
    assert_eq!(call(&app, &strong).await.0, StatusCode::OK);
    // Keys of other tenants are not seen.
    let (_, other) = created(&app, "key-of-ada", json!({})).await;
    for (method, path) in
        [(Method::GET, format!("/admin/keys/{other}")), (Method::DELETE, format!("/admin/keys/{other}"))]
    {
        assert_eq!(as_holder(&app, "key-of-bob", method, &path, None).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(as_holder(&app, &limited, Method::DELETE, &path, None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_key_sees_and_calls_its_tools_alone() {
    let app = TestApp::with(AUTH).await;
    let (token, _) = created(&app, "key-of-ada", json!({"tools": ["calc*", "echo"]})).await;
    let (_, listed) = as_holder(&app, &token, Method::GET, "/tools/list", None).await;
    assert_eq!(listed, json!(["calculator", "echo"]));
    let (_, found) = as_holder(&app, &token, Method::GET, "/tools/search?q=json", None).await;
    assert!(!found.to_string().contains("json_query"), "{found}");
    assert_eq!(call(&app, &token).await.0, StatusCode::OK);
    let path = "/tools/json_query/execute";
    let (status, refused) = as_holder(&app, &token, Method::POST, path, Some(json!({"arguments": {}}))).await;
    assert_eq!((status, code(&refused)), (StatusCode::NOT_FOUND, "unknown_tool"));
    let (status, unknown) =
        as_holder(&app, &token, Method::POST, "/tools/no_such/execute", Some(json!({"arguments": {}}))).await;
    assert_eq!((status, code(&unknown)), (StatusCode::NOT_FOUND, "unknown_tool"));
    assert_eq!(as_holder(&app, &token, Method::GET, "/tools/json_query/schema", None).await.0, StatusCode::NOT_FOUND);
    // All keys of a person are one caller, also with different tools.
    let (other, _) = created(&app, "key-of-ada", json!({"person": "carol", "tools": ["echo"]})).await;
    let (all, _) = created(&app, "key-of-ada", json!({"person": "carol"})).await;
    assert_eq!(call(&app, &all).await.0, StatusCode::OK);
    assert_eq!(call(&app, &other).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let app = TestApp::with(AUTH).await;
    let mut ids = Vec::new();
    for tenant in ["acme", "acme", "default", "acme"] {
        ids.push((created(&app, "key-of-ada", json!({"tenant": tenant})).await.1, tenant));
    }
    let paged = async |key: &str| {
        let (mut listed, mut path) = (Vec::new(), "/admin/keys?limit=2".to_owned());
        loop {
            let (status, page) = as_holder(&app, key, Method::GET, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 2, "{page}");
            listed.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => path = format!("/admin/keys?limit=2&after={next}"),
                None => return listed,
            }
        }
    };
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(paged("key-of-ada").await, sorted(ids.iter().map(|(id, _)| id.clone()).collect()));
    let of_acme = ids.iter().filter(|(_, tenant)| *tenant == "acme").map(|(id, _)| id.clone()).collect();
    assert_eq!(paged("key-of-bob").await, sorted(of_acme));
    assert_eq!(as_holder(&app, "key-of-eve", Method::GET, "/admin/keys", None).await.0, StatusCode::FORBIDDEN);
    assert_eq!(
        as_holder(&app, "key-of-ada", Method::GET, "/admin/keys?limit=0", None).await.0,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn keys_and_their_last_use_survive_a_restart_and_a_reload() {
    let app = TestApp::with(AUTH).await;
    let (kept, id) = created(&app, "key-of-ada", json!({})).await;
    let (revoked, gone) = created(&app, "key-of-ada", json!({})).await;
    assert_eq!(call(&app, &kept).await.0, StatusCode::OK);
    as_holder(&app, "key-of-ada", Method::DELETE, &format!("/admin/keys/{gone}"), None).await;
    app.gateway.reload(crate::app::config(&app.directory, AUTH)).await;
    assert_eq!(call(&app, &kept).await.0, StatusCode::OK);
    assert!(reason(&app, &revoked).await.contains("was revoked"));
    let path = format!("/admin/keys/{id}");
    let (_, before) = as_holder(&app, "key-of-ada", Method::GET, &path, None).await;

    let again = TestApp::in_directory(app.stop().await, AUTH).await;
    let (_, after) = as_holder(&again, "key-of-ada", Method::GET, &path, None).await;
    assert_eq!(after, before, "its last use included");
    assert_eq!(call(&again, &kept).await.0, StatusCode::OK);
    assert!(reason(&again, &revoked).await.contains("was revoked"));
}

#[tokio::test]
async fn every_change_is_in_the_audit_trail_and_calls_name_their_key() {
    let app = TestApp::with(AUTH).await;
    let (token, id) = created(&app, "key-of-ada", json!({})).await;
    assert_eq!(create(&app, "key-of-bob", json!({"tenant": "globex"})).await.0, StatusCode::FORBIDDEN);
    call(&app, &token).await;
    let path = format!("/admin/keys/{id}");
    let (_, rotated) = as_holder(&app, "key-of-ada", Method::POST, &format!("{path}/rotate"), Some(json!({}))).await;
    as_holder(&app, "key-of-ada", Method::DELETE, &path, None).await;
    let directory = app.stop().await;
    let lines = lines(directory.path());
    let events: Vec<_> =
        lines.iter().filter_map(|line| Some((line["event"].as_str()?, line["success"].as_bool()?))).collect();
    let expected = [("key_created", true), ("key_created", false), ("key_rotated", true), ("key_revoked", true)];
    assert_eq!(events, expected, "{lines:#?}");
    let of_key: Vec<_> = lines.iter().filter(|line| line["subject"] == id.as_str()).collect();
    assert_eq!(of_key.len(), 3);
    assert_eq!(of_key[0]["caller"], "ada");
    let called = lines.iter().find(|line| line["tool"] == "calculator").unwrap();
    assert_eq!((&called["caller"], &called["key"]), (&json!(id), &json!(id)));
    for token in [token.as_str(), rotated["token"].as_str().unwrap()] {
        let secret = token.rsplit('_').next().unwrap();
        assert!(!lines.iter().any(|line| line.to_string().contains(secret)));
    }
}

/// The program with its whole log in a file of the directory.
struct Loud {
    child: Child,
    url: String,
}

impl Loud {
    async fn start(directory: &TempDir) -> Self {
        let log = directory.path().join("log");
        let mut program = sekisho(directory);
        program.args(["serve", "--listen", "127.0.0.1:0"]).env("RUST_LOG", "trace");
        let child = program.stderr(Stdio::from(std::fs::File::create(&log).unwrap())).spawn().unwrap();
        let mut loud = Self { child, url: String::new() };
        let until = Instant::now() + slack(Duration::from_secs(30));
        while loud.url.is_empty() {
            let lines = std::fs::read_to_string(&log).unwrap();
            let found = lines.lines().find_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                Some(format!("http://{}", line["address"].as_str()?))
            });
            loud.url = found.unwrap_or_default();
            assert!(Instant::now() < until, "the log tells no address: {lines}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        loud
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The program as loud as it gets: no token is in what it logs or keeps.
#[tokio::test]
async fn no_token_is_in_the_log_or_in_a_file() {
    let directory = TempDir::new().unwrap();
    let serving = Loud::start(&directory).await;
    let keys = |arguments: &[&str]| {
        let run = sekisho(&directory).arg("keys").args(arguments).output().unwrap();
        assert!(run.status.success(), "{}", text(&run));
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    };
    let token = keys(&["create", "--person", "ann", "--role", "operator", "--tool", "calculator"]);
    let id = token.split('_').nth(1).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = |key: String| {
        let body = json!({"arguments": {"expression": "6*7"}});
        let request = client.post(format!("{}/tools/calculator/execute", serving.url)).bearer_auth(key).json(&body);
        async move { request.send().await.unwrap().status() }
    };
    assert_eq!(call(token.clone()).await, StatusCode::OK);
    let rotated = keys(&["rotate", id, "--overlap", "0"]);
    assert_eq!(call(token.clone()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(call(rotated.clone()).await, StatusCode::OK);
    assert!(keys(&["list"]).contains(id) && keys(&["show", id]).contains("\"person\""));
    assert!(keys(&["revoke", id]).contains(id));
    assert_eq!(call(rotated.clone()).await, StatusCode::UNAUTHORIZED);
    drop(serving);
    let kept = crate::secrecy::contents(directory.path());
    assert!(kept.contains(id), "the store has the key");
    for token in [token, rotated] {
        assert!(!kept.contains(token.rsplit('_').next().unwrap()));
    }
}

/// The first example of the page, as it is written, but for the port.
#[test]
fn the_example_of_the_page_runs_from_a_clean_start() {
    let page = include_str!("../../docs/keys-and-limits.md");
    let script = page.split("```bash\n").nth(1).unwrap().split("```").next().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let directory = TempDir::new().unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_sekisho")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let run = std::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script.replace("8080", &port.to_string())])
        .env_clear()
        .env("PATH", path)
        .env("TMPDIR", directory.path())
        .current_dir(directory.path())
        .output()
        .unwrap();
    let printed = text(&run);
    assert!(run.status.success(), "{printed}");
    assert_eq!(printed.lines().filter(|line| *line == "42").count(), 2, "{printed}");
    for expected in ["calculator", "was revoked", "revoked ", "ann"] {
        assert!(printed.contains(expected), "no {expected:?} in {printed}");
    }
    let shown = String::from_utf8_lossy(&run.stdout);
    assert!(!shown.contains("json_query"), "{shown}");
}
