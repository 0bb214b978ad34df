//! Signing in to the console at an issuer: what strangers, other pages and the issuer's own metadata cannot do.

use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::{Response, StatusCode};
use serde_json::json;
use url::Url;

use crate::app::TestApp;
use crate::console_open_id::Browser;
use crate::issuers::{CLIENT, Issuer};

/// More than were kept when each of them took memory.
const KNOCKS: usize = 1_100;

async fn app(issuer: &Issuer) -> TestApp {
    let url = &issuer.url;
    let yaml = format!(
        "auth: {{anonymous: never, jwt: {{issuer: '{url}', audience: sekisho}}, oidc: {{client_id: {CLIENT}}}}}"
    );
    TestApp::with(&yaml).await
}

/// Begins a sign-in, and gives the address by which the issuer sends the browser back.
async fn begin(browser: &mut Browser, app: &TestApp, to: &str) -> Url {
    let response = browser.send(&format!("{}/console/sign-in/provider?to={to}", app.url), None).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{}", response.text().await.unwrap());
    let at_issuer = Url::parse(location(&response)).unwrap();
    let of = |name: &str| at_issuer.query_pairs().find(|(known, _)| known == name).unwrap().1.into_owned();
    let mut back = Url::parse(&of("redirect_uri")).unwrap();
    // The code of this issuer is the nonce.
    back.query_pairs_mut().append_pair("code", &of("nonce")).append_pair("state", &of("state"));
    back
}

fn location(response: &Response) -> &str {
    response.headers()[LOCATION].to_str().unwrap()
}

#[tokio::test]
async fn strangers_who_begin_sign_ins_push_nobody_out_and_do_not_ask_the_issuer_each_time() {
    let issuer = Issuer::with_open_id().await;
    let app = app(&issuer).await;
    let mut ann = Browser::new();
    let back = begin(&mut ann, &app, "/console/calls").await;
    let mut stranger = Browser::new();
    for _ in 0..KNOCKS {
        stranger.cookies.clear();
        let response = stranger.send(&format!("{}/console/sign-in/provider", app.url), None).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
    }
    let response = ann.send(back.as_str(), None).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{}", response.text().await.unwrap());
    assert_eq!(location(&response), "/console/calls");
    let page = ann.send(&format!("{}/console/calls", app.url), None).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(issuer.said().published, 1, "its metadata is kept");
}

#[tokio::test]
async fn a_reply_of_another_sign_in_ends_none_and_a_sign_in_ends_once() {
    let issuer = Issuer::with_open_id().await;
    let app = app(&issuer).await;
    let mut ann = Browser::new();
    let back = begin(&mut ann, &app, "/console").await;
    let under_way = ann.cookies.clone();
    let mut other = Browser::new();
    let of_other = begin(&mut other, &app, "/console").await;
    let callback = format!("{}/console/sign-in/callback", app.url);
    for forged in [format!("{callback}?state=x"), format!("{callback}?state=x&error=no"), callback, of_other.into()] {
        let response = ann.send(&forged, None).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{forged}");
        assert!(!response.headers().contains_key(SET_COOKIE), "{forged}: {:?}", response.headers());
    }
    assert_eq!(ann.send(back.as_str(), None).await.status(), StatusCode::SEE_OTHER);
    let mut again = Browser::new();
    again.cookies = under_way;
    let response = again.send(back.as_str(), None).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "used once, also with a cookie that was kept");
    let mut elsewhere = Browser::new();
    assert_eq!(elsewhere.send(back.as_str(), None).await.status(), StatusCode::UNAUTHORIZED, "in another browser");
}

#[tokio::test]
async fn a_sign_in_leads_to_a_page_of_the_console_as_browsers_read_addresses() {
    let issuer = Issuer::with_open_id().await;
    let app = app(&issuer).await;
    for (to, page) in [
        ("/console/tools?q=a", "/console/tools?q=a"),
        ("/console/%2e%2e/api/chat/stream?message=x", "/console"),
        ("/console/%2E./mcp", "/console"),
        ("/console/..%2fapi", "/console"),
        ("/\\evil.example", "/console"),
        ("//evil.example", "/console"),
        ("/console/\t../mcp", "/console"),
    ] {
        let mut browser = Browser::new();
        let to = url::form_urlencoded::byte_serialize(to.as_bytes()).collect::<String>();
        let back = begin(&mut browser, &app, &to).await;
        let response = browser.send(back.as_str(), None).await;
        assert_eq!((response.status(), location(&response)), (StatusCode::SEE_OTHER, page), "{to}");
    }
}

#[tokio::test]
async fn a_browser_is_not_sent_to_an_address_that_runs_a_script_or_opens_a_file() {
    for endpoint in ["javascript:alert(1)", "file:///etc/passwd", "http://login.example/authorize"] {
        let issuer = Issuer::with_open_id().await;
        issuer.said().authorization_endpoint = Some(endpoint.to_owned());
        let app = app(&issuer).await;
        let response = Browser::new().send(&format!("{}/console/sign-in/provider", app.url), None).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{endpoint}");
        assert!(!response.headers().contains_key(LOCATION), "{endpoint}: {:?}", response.headers());
        // Its tokens are accepted all the same.
        let request = app.get("/tools/list").bearer_auth(issuer.token("ada", &json!({})));
        assert_eq!(request.send().await.unwrap().status(), StatusCode::OK, "{endpoint}");
    }
}
