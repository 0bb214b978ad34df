//! The console's pages of managed keys.

use reqwest::StatusCode;
use reqwest::header::ORIGIN;
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup, markup};
use crate::console_agents::{submit, submitted};

const PATH: &str = "/console/keys";

async fn keys(app: &TestApp) -> Vec<Value> {
    let (_, list) = answer(app.get("/admin/keys").bearer_auth("key-of-root")).await;
    list["items"].as_array().unwrap_or_else(|| panic!("{list}")).clone()
}

/// The token in a page.
fn token_in(page: &str) -> &str {
    let (_, rest) = page.split_once("<code>sk_").unwrap_or_else(|| panic!("{page}"));
    let end = rest.find('<').unwrap();
    let start = page.len() - rest.len() - "sk_".len();
    &page[start..page.len() - rest.len() + end]
}

async fn status_with(app: &TestApp, token: &str) -> StatusCode {
    let call = app.post("/tools/echo/execute").bearer_auth(token).json(&json!({"arguments": {}}));
    answer(call).await.0
}

#[tokio::test]
async fn a_key_is_created_rotated_and_revoked_and_its_token_is_shown_once() {
    let app = TestApp::with(KEYS).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    assert!(root.page(PATH).await.contains("There is no managed key."));
    let fields = [
        ("person", "carol"),
        ("description", "nightly <report>"),
        ("roles", "admin, "),
        ("tools", "echo, calc*"),
        ("tenant", "acme"),
        ("expires_in_days", "30"),
    ];
    // A page that is loaded again makes no other key.
    let path = submitted(&root, PATH, &fields).await;
    // Another session of the same administrator does not get the token.
    assert!(!Browser::signed_in(&app, "key-of-root").await.page(&path).await.contains("<code>sk_"));
    let response = root.get(&path).send().await.unwrap();
    assert_eq!(response.headers()["cache-control"], "no-store");
    let page = response.text().await.unwrap();
    check_markup(&page);
    let token = token_in(&page).to_owned();
    assert_eq!(page.matches(&token).count(), 1, "{page}");
    let created = keys(&app).await.remove(0);
    let id = created["id"].as_str().unwrap();
    assert!(token.starts_with(&format!("sk_{id}_")), "{token}");
    for (field, value) in [
        ("person", json!("carol")),
        ("description", json!("nightly <report>")),
        ("roles", json!(["admin"])),
        ("tools", json!(["echo", "calc*"])),
        ("tenant", json!("acme")),
        ("status", json!("active")),
    ] {
        assert_eq!(created[field], value, "{field}: {created}");
    }
    assert!(created["expires_at"].is_string(), "{created}");
    assert_eq!(status_with(&app, &token).await, StatusCode::OK);

    // No other page has it.
    assert_eq!(path, format!("{PATH}/{id}"));
    let secret = token.rsplit('_').next().unwrap();
    for address in [PATH.to_owned(), path.clone(), format!("{PATH}?format=csv"), format!("{PATH}?format=json")] {
        let page = root.page(&address).await;
        assert!(page.contains(id) && !page.contains(secret), "{address}: {page}");
    }
    let page = root.page(&path).await;
    check_markup(&page);
    assert!(page.contains("echo, calc*") && page.contains("in 30 d") && page.contains("default/root"), "{page}");

    assert_eq!(submitted(&root, &path, &[("act", "rotate"), ("overlap_seconds", "600")]).await, path);
    let page = root.page(&path).await;
    check_markup(&page);
    let next = token_in(&page).to_owned();
    assert!(next != token && page.contains("Token before accepted until"), "{page}");
    for token in [&token, &next] {
        assert_eq!(status_with(&app, token).await, StatusCode::OK);
    }
    for fields in [&[("act", "rotate"), ("overlap_seconds", "soon")][..], &[("act", "revoke")], &[("act", "none")], &[]]
    {
        assert_eq!(submit(&root, &path, fields).await.status(), StatusCode::BAD_REQUEST, "{fields:?}");
    }
    assert_eq!(submitted(&root, &path, &[("act", "revoke"), ("confirmed", id)]).await, path);
    for token in [&token, &next] {
        assert_eq!(status_with(&app, token).await, StatusCode::UNAUTHORIZED);
    }
    let page = root.page(&path).await;
    assert!(page.contains("✕ revoked") && !page.contains("name=\"act\""), "{page}");
}

#[tokio::test]
async fn what_is_refused_is_said_beside_what_was_filled_in() {
    let app = TestApp::with(KEYS).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    for (field, value, says) in [
        ("roles", "on-call", "on-call"),
        ("expires_in_days", "0", "1 to 3660 days"),
        ("expires_in_days", "soon", "1 to 3660 days"),
        ("tools", "a*b", "no pattern of tools"),
    ] {
        let response = submit(&root, PATH, &[("person", "carol"), (field, value)]).await;
        let page = response.text().await.unwrap();
        check_markup(&page);
        let (_, notice) = page.split_once("<div class=\"notice bad\"").unwrap_or_else(|| panic!("{page}"));
        assert!(notice.split("</div>").next().unwrap().contains(says), "{page}");
        assert!(page.contains(&format!("name=\"{field}\" value=\"{value}\"")), "{page}");
        assert!(page.contains("name=\"person\" value=\"carol\""), "{page}");
    }
    assert_eq!(keys(&app).await, Vec::<Value>::new());
}

#[tokio::test]
async fn nobody_but_an_administrator_in_a_page_of_the_console_manages_keys() {
    let app = TestApp::with(KEYS).await;
    let (root, ann) = (Browser::signed_in(&app, "key-of-root").await, Browser::signed_in(&app, "key-of-ann").await);
    submitted(&root, PATH, &[("person", "carol")]).await;
    let path = format!("{PATH}/{}", keys(&app).await[0]["id"].as_str().unwrap());
    let token = root.token().await;
    for (address, fields) in [
        (PATH, &[("person", "mallory")][..]),
        (&path, &[("act", "rotate"), ("overlap_seconds", "0")]),
        (&path, &[("act", "revoke"), ("confirmed", path.rsplit('/').next().unwrap())]),
    ] {
        let with_token: Vec<_> = fields.iter().copied().chain([("token", token.as_str())]).collect();
        for forged in [
            root.post(address, fields),
            root.post_from(address, &with_token),
            root.post_from(address, &with_token).header(ORIGIN, "http://evil.example"),
            root.post(address, &with_token).header("sec-fetch-site", "cross-site"),
        ] {
            assert_eq!(forged.send().await.unwrap().status(), StatusCode::FORBIDDEN, "{address}");
        }
        assert_eq!(submit(&ann, address, fields).await.status(), StatusCode::FORBIDDEN, "{address}");
        assert_eq!(ann.get(address).send().await.unwrap().status(), StatusCode::FORBIDDEN, "{address}");
    }
    let left = keys(&app).await;
    assert_eq!((left.len(), &left[0]["status"]), (1, &json!("active")), "{left:?}");
    assert!(left[0].get("previous_token_until").is_none(), "{left:?}");
    assert!(!ann.page("/console").await.contains("/console/keys"));
}

/// The role `admin` of the console alone is not enough, as over HTTP.
#[tokio::test]
async fn a_role_of_the_console_alone_gives_no_keys() {
    let yaml = "
auth: {api_keys: [{id: op, key: key-of-op, roles: [chief]}]}
console: {roles: {admin: [chief]}}
";
    let app = TestApp::with(yaml).await;
    let op = Browser::signed_in(&app, "key-of-op").await;
    assert_eq!(op.get(PATH).send().await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(submit(&op, PATH, &[("person", "x")]).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn no_text_of_a_key_becomes_markup() {
    let app = TestApp::with(KEYS).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    for text in markup().iter().take(60) {
        let fields = ["person", "description", "roles", "tools", "tenant"].map(|name| (name, &**text));
        for fields in [&fields[..], &[("description", &**text)]] {
            let response = submit(&root, PATH, fields).await;
            let page = match response.headers().get("location") {
                Some(place) => root.page(place.to_str().unwrap()).await,
                None => response.text().await.unwrap(),
            };
            check_markup(&page);
        }
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("after", text).finish();
        check_markup(&root.page(&format!("{PATH}?{query}")).await);
    }
    let keys = keys(&app).await;
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        check_markup(&root.page(&format!("{PATH}/{}", key["id"].as_str().unwrap())).await);
    }
}
