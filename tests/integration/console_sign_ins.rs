//! The console's page of sign-ins to upstreams that are called as their callers.

use reqwest::StatusCode;
use reqwest::header::{LOCATION, ORIGIN};
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, check_markup, markup};
use crate::console_agents::{submit, submitted};
use crate::user_sign_in::{app_with, browser_of, prove, says, sign_in, wait_for_tools, yaml};
use crate::user_upstream::Upstream;

const PATH: &str = "/console/sign-ins";

/// Besides, an administrator of another tenant.
async fn app_for(upstream: &Upstream) -> TestApp {
    let administrator = "    - {id: eve, key: key-of-eve, tenant: other, roles: [admin]}\nconsole: ";
    app_with(&yaml(upstream).replace("console: ", administrator)).await
}

async fn listed(app: &TestApp, key: &str) -> Value {
    answer(app.get("/sign-ins").bearer_auth(key)).await.1
}

async fn signed_in(app: &TestApp, upstream: &Upstream, user: &str) {
    let (_, needed) = answer(app.post("/sign-ins/mcp:far").bearer_auth(format!("key-of-{user}"))).await;
    sign_in(app, upstream, &needed, user).await;
}

#[tokio::test]
async fn a_caller_begins_what_is_missing_and_revokes_it() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let none = json!({"items": [], "next": null, "sign_ins": [], "available": ["mcp:far", "openapi:api"]});
    assert_eq!(listed(&app, "key-of-ann").await, none);
    let address_of = |path: &str| format!("{}{path}", app.url);
    let mut ann = browser_of(&upstream, "ann");
    ann.send(&address_of("/console/sign-in"), Some("key=key-of-ann&to=/console")).await;
    let page = ann.send(&address_of(PATH), None).await.text().await.unwrap();
    check_markup(&page);
    for text in ["signed in to 2 upstreams", "There is no sign-in yet.", "value=\"mcp:far\"", "value=\"openapi:api\""] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    let token = page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();

    // The page of the sign-in takes the session as the proof.
    let form = format!("token={token}&act=begin&source=mcp%3Afar");
    let begun = ann.send(&address_of(PATH), Some(&form)).await;
    assert_eq!(begun.status(), StatusCode::SEE_OTHER);
    let place = begun.headers()[LOCATION].to_str().unwrap().to_owned();
    assert!(place.starts_with("/console/upstream-sign-in/"), "{place}");
    let address = prove(&mut ann, &address_of(&place), &format!("token={token}")).await.unwrap();
    let back = ann.follow(&address, &app.url, "ann").await;
    let done = ann.send(&back, None).await.text().await.unwrap();
    check_markup(&done);
    assert!(done.contains(&format!("href=\"{PATH}\"")), "{done}");
    wait_for_tools(&app).await;
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"));

    let page = ann.send(&address_of(PATH), None).await.text().await.unwrap();
    check_markup(&page);
    assert!(page.contains("You have not signed in to one upstream") && page.contains("value=\"revoke\""), "{page}");
    let csv = ann.send(&address_of(&format!("{PATH}?format=csv")), None).await.text().await.unwrap();
    assert!(csv.starts_with("source,caller,tenant,scopes,signed_in_at,renewed_at\r\n"), "{csv}");
    assert!(csv.contains("\r\n\"mcp:far\",\"ann\",\"acme\","), "{csv}");
    assert_eq!(listed(&app, "key-of-ann").await["available"], json!(["openapi:api"]));
    assert_eq!(listed(&app, "key-of-bob").await["available"], json!(["mcp:far", "openapi:api"]));

    let form = format!("token={token}&act=revoke&source=mcp%3Afar&caller=ann&tenant=acme");
    let revoked = ann.send(&address_of(PATH), Some(&form)).await;
    assert_eq!(revoked.status(), StatusCode::SEE_OTHER);
    assert_eq!(revoked.headers()[LOCATION], PATH);
    assert_eq!(listed(&app, "key-of-ann").await["sign_ins"], json!([]));
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    for event in ["sign_in_started", "sign_in_revoked"] {
        let line = trail.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("{event}: {trail}"));
        assert!(line.contains("\"ann\"") && line.contains("mcp:far"), "{line}");
    }
}

#[tokio::test]
async fn nobody_but_an_administrator_in_a_page_of_the_console_revokes_the_sign_ins_of_others() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    signed_in(&app, &upstream, "bob").await;
    wait_for_tools(&app).await;
    let (ann, ada) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-ada").await);
    let (eve, root) = (Browser::signed_in(&app, "key-of-eve").await, Browser::signed_in(&app, "key-of-root").await);
    for (browser, sees) in [(&ann, false), (&eve, false), (&ada, true), (&root, true)] {
        let page = browser.page(PATH).await;
        check_markup(&page);
        assert_eq!(page.contains("value=\"bob\""), sees, "{page}");
    }
    let of_bob = [("act", "revoke"), ("source", "mcp:far"), ("caller", "bob"), ("tenant", "acme")];
    let token = ada.token().await;
    let with_token: Vec<_> = of_bob.into_iter().chain([("token", token.as_str())]).collect();
    for forged in [
        ada.post(PATH, &of_bob),
        ada.post_from(PATH, &with_token),
        ada.post_from(PATH, &with_token).header(ORIGIN, "http://evil.example"),
        ada.post(PATH, &with_token).header("sec-fetch-site", "cross-site"),
        ann.post(PATH, &with_token),
    ] {
        assert_eq!(forged.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    }
    for browser in [&ann, &eve] {
        assert_eq!(submit(browser, PATH, &of_bob).await.status(), StatusCode::FORBIDDEN);
    }
    // Another tenant's caller of that name is another caller, and so is the administrator's own name there.
    for (caller, tenant) in [("bob", "other"), ("root", "acme")] {
        let fields = [("act", "revoke"), ("source", "mcp:far"), ("caller", caller), ("tenant", tenant)];
        assert_eq!(submit(&root, PATH, &fields).await.status(), StatusCode::NOT_FOUND, "{caller} {tenant}");
    }
    for (fields, status) in [
        (&[("act", "begin"), ("source", "mcp:near")][..], StatusCode::NOT_FOUND),
        (&[("act", "read"), ("source", "mcp:far")], StatusCode::BAD_REQUEST),
        (&[], StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(submit(&ann, PATH, fields).await.status(), status, "{fields:?}");
    }
    assert!(says(&app, "far__whoami", "bob").await.contains("bob"), "it is still there");
    assert_eq!(submitted(&root, PATH, &of_bob).await, PATH);
    assert!(ada.page(PATH).await.contains("There is no sign-in yet."));
    let ja = ada.get(&format!("{PATH}?lang=ja")).send().await.unwrap().text().await.unwrap();
    assert!(ja.contains("<h1>サインイン</h1>"), "{ja}");
}

#[tokio::test]
async fn no_text_of_a_form_becomes_markup() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    for text in markup().iter().take(20).map(String::as_str) {
        for act in ["begin", "revoke", text] {
            let fields = [("act", act), ("source", text), ("caller", text), ("tenant", text)];
            check_markup(&submit(&ann, PATH, &fields).await.text().await.unwrap());
        }
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("page", text).finish();
        check_markup(&ann.page(&format!("{PATH}?{query}")).await);
    }
}
