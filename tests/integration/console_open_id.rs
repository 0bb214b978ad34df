//! Signing in to the console at an OpenID provider of the field (npm `oidc-provider`).

use std::path::Path;
use std::time::Duration;

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};

use crate::app::TestApp;
use crate::child_server::ChildServer;

const CLIENT: &str = "console";
const SECRET: &str = "a secret of the client";

/// A browser that keeps cookies by host, and follows no redirect by itself.
pub(crate) struct Browser {
    client: Client,
    pub(crate) cookies: Vec<(String, String, String)>,
    /// The name under which it knows a server whose proxy it asks.
    pub(crate) host: Option<String>,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { client, cookies: Vec::new(), host: None }
    }

    pub(crate) async fn send(&mut self, url: &str, form: Option<&str>) -> Response {
        let own = url.split('/').take(3).collect::<Vec<_>>().join("/");
        self.send_from(&own, url, form).await
    }

    /// As a page of another origin makes it send.
    pub(crate) async fn send_from(&mut self, page: &str, url: &str, form: Option<&str>) -> Response {
        let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
        let cookies = self.cookies.iter().filter(|(of, ..)| *of == origin);
        let cookies: Vec<_> = cookies.map(|(_, name, value)| format!("{name}={value}")).collect();
        let request = match form {
            Some(form) => {
                let request = self.client.post(url).header("content-type", "application/x-www-form-urlencoded");
                request.header(ORIGIN, page).body(form.to_owned())
            }
            None => self.client.get(url),
        };
        let request = match &self.host {
            Some(host) => request.header(HOST, host),
            None => request,
        };
        let response = request.header(COOKIE, cookies.join("; ")).send().await.unwrap();
        for set in response.headers().get_all(SET_COOKIE) {
            let (name, rest) = set.to_str().unwrap().split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            self.cookies.retain(|(of, known, _)| *of != origin || known != name);
            if !rest.contains("Max-Age=0") && !value.is_empty() {
                self.cookies.push((origin.clone(), name.to_owned(), value.to_owned()));
            }
        }
        response
    }

    /// Signs in at the provider under this name, and gives the address that the provider sends the browser back to.
    async fn through_provider(&mut self, app: &TestApp, name: &str) -> String {
        let start = format!("{}/console/sign-in/provider?to=%2Fconsole%2Fcalls", app.url);
        let response = self.send(&start, None).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{}", response.text().await.unwrap());
        let url = location(&response, &start);
        assert!(url.contains("code_challenge_method=S256") && url.contains("nonce="), "{url}");
        self.follow(&url, &app.url, name).await
    }

    /// Follows an address through a provider, under this name where it asks for one, until it leads to `end`.
    pub(crate) async fn follow(&mut self, address: &str, end: &str, name: &str) -> String {
        let mut url = address.to_owned();
        for _ in 0..12 {
            if url.starts_with(end) {
                return url;
            }
            let response = self.send(&url, None).await;
            if response.headers().contains_key(LOCATION) {
                url = location(&response, &url);
                continue;
            }
            // A form: first of the sign-in, then of the consent.
            let page = response.text().await.unwrap();
            let prompt = if page.contains("value=\"login\"") { "login" } else { "consent" };
            let (_, action) = page.split_once("action=\"").unwrap_or_else(|| panic!("{page}"));
            let action = action.split('"').next().unwrap().to_owned();
            let form = format!("prompt={prompt}&login={name}&password=x");
            let response = self.send(&action, Some(&form)).await;
            url = location(&response, &action);
        }
        panic!("the provider does not come back: {url}")
    }
}

fn location(response: &Response, from: &str) -> String {
    let location = response.headers()[LOCATION].to_str().unwrap();
    url::Url::parse(from).unwrap().join(location).unwrap().into()
}

#[tokio::test]
#[ignore = "needs oidc-provider and node, in the folder named by the variable OAUTH"]
async fn console_sign_in_at_a_real_provider() {
    let folder = std::env::var("OAUTH").expect("OAUTH names the folder");
    // Node resolves modules relative to the script.
    let script = Path::new(&folder).join("open_id.mjs");
    std::fs::copy("tests/console/open_id.mjs", &script).unwrap();
    let node = Path::new(&folder).join("node_modules/.bin/node");
    let arguments = [script.to_str().unwrap(), "PORT", CLIENT, SECRET];
    let server = ChildServer::start(node.to_str().unwrap(), &arguments, Duration::from_secs(60)).await;
    let issuer = &server.url;
    let app = TestApp::with(&format!(
        "auth:\n  anonymous: never\n  jwt: {{issuer: '{issuer}', audience: other, jwks_url: '{issuer}/jwks'}}\n  \
         oidc: {{client_id: {CLIENT}, client_secret: {SECRET}}}\nconsole: {{roles: {{viewer: [support]}}}}\n"
    ))
    .await;
    let mut ann = Browser::new();
    let page = ann.send(&format!("{}/console/sign-in?to=/console/calls", app.url), None).await.text().await.unwrap();
    assert!(page.contains("href=\"/console/sign-in/provider?to=%2Fconsole%2Fcalls\""), "{page}");

    let back = ann.through_provider(&app, "ann").await;
    // The end of a sign-in counts in the browser in which it began, with its state, and once.
    let mut other = Browser::new();
    assert_eq!(other.send(&back, None).await.status(), StatusCode::UNAUTHORIZED);
    let response = ann.send(&back, None).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{}", response.text().await.unwrap());
    assert_eq!(response.headers()[LOCATION], "/console/calls");
    let session = response.headers().get_all(SET_COOKIE).iter().find(|set| {
        let set = set.to_str().unwrap();
        set.starts_with("__Host-sekisho-console=") && set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax")
    });
    assert!(session.is_some(), "{:?}", response.headers());
    let page = ann.send(&format!("{}/console/calls", app.url), None).await.text().await.unwrap();
    assert!(page.contains("<strong>ann</strong>") && page.contains("acme · viewer"), "{page}");
    assert_eq!(ann.send(&back, None).await.status(), StatusCode::UNAUTHORIZED, "a code is used once");

    let mut forged = Browser::new();
    let back = forged.through_provider(&app, "ann").await;
    let with_other_state = url::Url::parse(&back).unwrap();
    let code = with_other_state.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    let address = format!("{}/console/sign-in/callback?code={code}&state=x&iss={issuer}", app.url);
    assert_eq!(forged.send(&address, None).await.status(), StatusCode::UNAUTHORIZED);

    // Who has no role in the console gets no session.
    let mut nobody = Browser::new();
    let back = nobody.through_provider(&app, "nobody").await;
    let response = nobody.send(&back, None).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(response.headers().get_all(SET_COOKIE).iter().all(|set| set.to_str().unwrap().contains("Max-Age=0")));
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    assert_eq!(trail.matches("console_signed_in").count(), 2, "{trail}");
    assert!(!trail.contains(SECRET) && !trail.contains(&code), "{trail}");
}
