//! `sekisho console`: a link that opens the console for this machine's user, once.

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use crate::app::TestApp;
use crate::cli::{Serving, sekisho, text};
use crate::console::{Browser, KEYS, check_markup};
use crate::mcp_cli::listed;

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

/// The value of the first input with this name.
fn value_of(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {page}"));
    rest.split('"').next().unwrap().replace("&quot;", "\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_machines_user_adds_a_program_with_the_profile_that_it_needed() {
    let directory = TempDir::new().unwrap();
    let serving = Serving::start(&directory);
    let printed = sekisho(&directory).args(["console", "--json"]).output().unwrap();
    let reply: Value = serde_json::from_slice(&printed.stdout).unwrap_or_else(|_| panic!("{}", text(&printed)));
    let browser = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let opened = browser.get(reply["url"].as_str().unwrap()).send().await.unwrap();
    let session = opened.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let address = format!("{}/console/servers/add", serving.url);
    let page = browser.get(&address).header(COOKIE, &session).send().await.unwrap().text().await.unwrap();
    check_markup(&page);
    let token = value_of(&page, "token");
    let fields = [
        ("token", &*token),
        ("kind", "program"),
        ("name", "boxed"),
        ("command", env!("CARGO_BIN_EXE_mcp-test-server")),
        ("args", "moody"),
        ("env", "MOOD=fine"),
        ("calls", "echo {\"a\": 1}"),
    ];
    let submit = async |more: &[(&str, &str)]| {
        let body =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields.iter().chain(more)).finish();
        let request = browser.post(&address).header(COOKIE, &session).header(ORIGIN, &serving.url);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        request.send().await.unwrap()
    };
    let early = submit(&[("mode", "add"), ("sandbox", "\"off\"")]).await.text().await.unwrap();
    assert!(early.contains("run the program once"), "{early}");
    let ran = submit(&[("mode", "test")]).await.text().await.unwrap();
    check_markup(&ran);
    assert!(ran.contains("Nothing was added yet") && ran.contains("network: none"), "{ran}");
    let names: Vec<String> = reqwest::get(format!("{}/tools/list", serving.url)).await.unwrap().json().await.unwrap();
    assert!(!names.iter().any(|name| name.starts_with("boxed")), "a run offers nothing: {names:?}");
    let sandbox = value_of(&ran, "sandbox");
    let added = submit(&[("mode", "add"), ("sandbox", &*sandbox)]).await;
    assert_eq!(
        (added.status(), &added.headers()[LOCATION]),
        (StatusCode::SEE_OTHER, &"/console/servers".parse().unwrap())
    );
    listed(&serving.url, "boxed__echo").await;
    let again = submit(&[("mode", "test")]).await.text().await.unwrap();
    assert!(again.contains("remove it first"), "{again}");
}

/// A key, whatever its roles, is no proof that somebody may start programs on the machine.
#[tokio::test]
async fn no_key_adds_a_program() {
    let app = TestApp::with(KEYS).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    let page = root.page("/console/servers/add").await;
    assert!(!page.contains("value=\"program\"") && page.contains("sekisho console"), "{page}");
    let token = root.token().await;
    for mode in ["test", "add"] {
        let form = [
            ("token", &*token),
            ("kind", "program"),
            ("name", "boxed"),
            ("command", "true"),
            ("mode", mode),
            ("sandbox", "{}"),
        ];
        let page = root.post("/console/servers/add", &form).send().await.unwrap().text().await.unwrap();
        check_markup(&page);
        assert!(page.contains("role=\"alert\"") && page.contains("programs are added by this machine"), "{page}");
    }
}
