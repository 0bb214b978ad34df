//! `sekisho console`: a link that opens the console for this machine's user, once.

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Serving, sekisho, text};

#[tokio::test]
async fn a_link_opens_the_console_once_for_this_machines_user() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let printed = sekisho(&directory).args(["console", "--json"]).output().unwrap();
    let reply: Value = serde_json::from_slice(&printed.stdout).unwrap_or_else(|_| panic!("{}", text(&printed)));
    let link = reply["url"].as_str().unwrap();
    assert!(link.starts_with(&serving.url) && reply["expires_in"] == 30, "{reply}");

    let browser = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let opened = browser.get(link).send().await.unwrap();
    assert_eq!((opened.status(), &opened.headers()[LOCATION]), (StatusCode::SEE_OTHER, &"/console".parse().unwrap()));
    let cookie = opened.headers()[SET_COOKIE].to_str().unwrap();
    for attribute in ["__Host-sekisho-console=", "HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let session = cookie.split(';').next().unwrap();
    let page = browser.get(format!("{}/console/tools", serving.url)).header(COOKIE, session).send().await.unwrap();
    assert!(page.status().is_success());
    let page = page.text().await.unwrap();
    assert!(page.contains("local") && page.contains("admin"), "{page}");

    let again = browser.get(link).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    assert!(again.headers().get(SET_COOKIE).is_none());
}

#[tokio::test]
async fn a_link_is_made_over_the_unix_socket_alone() {
    let directory = TempDir::new().unwrap();
    let nobody = sekisho(&directory).arg("console").output().unwrap();
    assert_eq!(nobody.status.code(), Some(5), "{}", text(&nobody));
    let serving = Serving::start(&directory);
    let client = Client::builder().no_proxy().build().unwrap();
    let caller = r#"{"user": "local", "roles": ["admin"]}"#;
    let asked = client.post(format!("{}/console/link", serving.url)).header("x-sekisho-caller", caller);
    let refused = asked.send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let wrong = client.get(format!("{}/console/open?code={}", serving.url, "0".repeat(64))).send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
}
