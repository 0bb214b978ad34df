//! Callers who sign in to an upstream on their own (`identity: per_user`).

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::WWW_AUTHENTICATE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code};
use crate::child_server::ChildServer;
use crate::cli::{sekisho, text};
use crate::console_open_id::Browser;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::user_upstream::Upstream;

const SECRET: &str = "the secret of the client";

/// Ann and Bob, who may see the console, and an administrator.
pub(crate) fn yaml(upstream: &Upstream) -> String {
    let url = &upstream.url;
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Me", "version": "1"}, "servers": [{"url": url}],
        "components": {"securitySchemes": {"user": {"type": "oauth2", "flows": {"authorizationCode": {
            "authorizationUrl": format!("{url}/authorize"), "tokenUrl": format!("{url}/token"), "scopes": {"read": ""}}}}}},
        "security": [{"user": ["read"]}],
        "paths": {"/me": {"get": {"operationId": "me", "responses": {"200": {"description": "who"}}}}},
    });
    let client = format!("{{client_id: sekisho, client_secret: {SECRET}}}");
    format!(
        "auth:\n  api_keys:\n    - {{id: ann, key: key-of-ann, tenant: acme, roles: [support]}}\n    \
         - {{id: bob, key: key-of-bob, tenant: acme, roles: [support]}}\n    \
         - {{id: ada, key: key-of-ada, tenant: acme, roles: [admin]}}\n    \
         - {{id: root, key: key-of-root, roles: [admin]}}\n\
         console: {{roles: {{viewer: [support], admin: [admin]}}}}\n\
         outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1], openapi_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{servers: {{far: {{url: '{url}/mcp', identity: per_user}}}}}}\n\
         openapi: {{collections: {{api: {{spec_inline: '{document}', identity: per_user, credentials: {{user: {client}}}}}}}}}\n"
    )
}

/// A gateway that offers what callers can sign in to.
async fn app_for(upstream: &Upstream) -> TestApp {
    app_with(&yaml(upstream)).await
}

pub(crate) async fn app_with(yaml: &str) -> TestApp {
    let app = TestApp::with(yaml).await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    app
}

async fn call(app: &TestApp, tool: &str, caller: &str) -> (StatusCode, Value) {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth(format!("key-of-{caller}"));
    answer(request.json(&json!({}))).await
}

/// Where the caller of a refused call signs in.
pub(crate) async fn needed(app: &TestApp, tool: &str, caller: &str) -> Value {
    let (status, refused) = call(app, tool, caller).await;
    assert_eq!((status, code(&refused)), (StatusCode::UNAUTHORIZED, "sign_in_required"), "{refused}");
    let needed = refused["error_info"]["sign_in"].clone();
    let one_time = needed["code"].as_str().unwrap();
    assert!(!refused["error"].as_str().unwrap().contains(one_time), "{refused}");
    needed
}

/// The address of the page at the gateway's own port: links name that of the configuration.
pub(crate) fn page(app: &TestApp, needed: &Value) -> String {
    let (_, path) = needed["url"].as_str().unwrap().split_once("/console/").unwrap();
    format!("{}/console/{path}", app.url)
}

/// Gives the proof at the page, and returns the address that the page leads to.
pub(crate) async fn prove(browser: &mut Browser, page: &str, form: &str) -> Result<String, (StatusCode, String)> {
    let response = browser.send(page, Some(form)).await;
    let (status, text) = (response.status(), response.text().await.unwrap());
    let link = text.split("href=\"http").nth(1).and_then(|rest| rest.split('"').next());
    link.map(|rest| format!("http{}", rest.replace("&amp;", "&"))).ok_or((status, text))
}

/// A browser in which this user is signed in at the authorization server.
pub(crate) fn browser_of(upstream: &Upstream, user: &str) -> Browser {
    let mut browser = Browser::new();
    browser.cookies.push((upstream.url.clone(), "user".to_owned(), user.to_owned()));
    browser
}

/// Signs a caller in with the one-time code, as the user of the same name.
pub(crate) async fn sign_in(app: &TestApp, upstream: &Upstream, needed: &Value, user: &str) {
    let mut browser = browser_of(upstream, user);
    let form = format!("code={}", needed["code"].as_str().unwrap());
    let address = prove(&mut browser, &page(app, needed), &form).await.unwrap();
    let back = browser.follow(&address, &app.url, user).await;
    let response = browser.send(&back, None).await;
    assert_eq!(response.status(), StatusCode::OK, "{}", response.text().await.unwrap());
    assert_eq!(browser.send(&back, None).await.status(), StatusCode::NOT_FOUND, "it was used");
}

pub(crate) async fn wait_for_tools(app: &TestApp) {
    let end = Instant::now() + Duration::from_secs(20);
    while answer(app.get("/tools/far__whoami/metadata").bearer_auth("key-of-ann")).await.0 != StatusCode::OK {
        assert!(Instant::now() < end, "its tools appear");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn says(app: &TestApp, tool: &str, caller: &str) -> String {
    let (status, reply) = call(app, tool, caller).await;
    assert_eq!((status, &reply["success"]), (StatusCode::OK, &json!(true)), "{reply}");
    reply["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn two_users_see_their_own_data_of_one_upstream_also_after_a_restart() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let (_, listed) = answer(app.get("/tools/list").bearer_auth("key-of-ann")).await;
    let of_server = listed.as_array().unwrap().iter().filter(|name| name.as_str().unwrap().starts_with("far__"));
    assert_eq!(of_server.collect::<Vec<_>>(), ["far__sign_in"]);
    let of_ann = needed(&app, "far__sign_in", "ann").await;
    sign_in(&app, &upstream, &of_ann, "ann").await;
    wait_for_tools(&app).await;
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"));
    let of_bob = needed(&app, "far__whoami", "bob").await;
    sign_in(&app, &upstream, &of_bob, "bob").await;
    for tool in ["far__whoami", "api__me"] {
        if tool == "api__me" {
            for user in ["ann", "bob"] {
                let needed = needed(&app, tool, user).await;
                sign_in(&app, &upstream, &needed, user).await;
            }
        }
        for (user, other) in [("ann", "bob"), ("bob", "ann")] {
            let said = says(&app, tool, user).await;
            assert!(said.contains(user) && !said.contains(other), "{tool} {user}: {said}");
        }
    }

    let grants = upstream.grants().len();
    let directory = app.stop().await;
    let app = TestApp::in_directory(directory, &yaml(&upstream)).await;
    wait_for_tools(&app).await;
    for tool in ["far__whoami", "api__me"] {
        for (user, other) in [("ann", "bob"), ("bob", "ann")] {
            let said = says(&app, tool, user).await;
            assert!(said.contains(user) && !said.contains(other), "{tool} {user}: {said}");
        }
    }
    assert_eq!(upstream.grants().len(), grants, "nobody signed in again");
    upstream.expire("ann");
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"), "it is renewed");
    assert_eq!(upstream.grants().last().map(String::as_str), Some("refresh_token"));
    let directory = app.stop().await;
    let state = std::fs::read(directory.path().join("state/sekisho.db")).unwrap_or_default();
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    assert!(trail.contains("sign_in_finished") && !trail.contains("token-of-"), "{trail}");
    assert!(!state.windows(9).any(|bytes| bytes == b"token-of-"), "tokens are sealed");
}

#[tokio::test]
async fn a_link_does_not_make_somebody_else_sign_in() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let of_ann = needed(&app, "far__sign_in", "ann").await;
    let page = page(&app, &of_ann);
    let one_time = format!("code={}", of_ann["code"].as_str().unwrap());

    // The victim is signed in to the console, and was even sent the code.
    let mut victim = browser_of(&upstream, "bob");
    let response = victim.send(&format!("{}/console/sign-in", app.url), Some("key=key-of-bob&to=/console")).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let shown = victim.send(&page, None).await.text().await.unwrap();
    assert!(shown.contains("ann") && shown.contains("signed in as bob") && !shown.contains("<form"), "{shown}");
    let (status, _) = prove(&mut victim, &page, &one_time).await.unwrap_err();
    assert_eq!(status, StatusCode::FORBIDDEN);
    // Without a session, the link alone does nothing.
    let mut victim = browser_of(&upstream, "bob");
    let (status, text) = prove(&mut victim, &page, "code=BBBB-BBBB").await.unwrap_err();
    assert!(status == StatusCode::FORBIDDEN && text.contains("acme"), "{text}");
    // A form of another site is not accepted.
    let form = app.client.post(&page).header("origin", "https://evil.example").body(one_time.clone());
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(form.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    // Nor does the address of the authorization server, taken from the attacker's own browser.
    let mut attacker = Browser::new();
    let address = prove(&mut attacker, &page, &one_time).await.unwrap();
    assert!(address.contains("code_challenge_method=S256") && address.contains("state="), "{address}");
    let mut victim = browser_of(&upstream, "bob");
    let back = victim.follow(&address, &app.url, "bob").await;
    assert_eq!(victim.send(&back, None).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(upstream.grants(), [""; 0], "no code was exchanged");
    needed(&app, "far__sign_in", "ann").await;
    app.stop().await;
}

#[tokio::test]
async fn the_session_of_the_console_is_a_proof_and_a_foreign_issuer_ends_a_sign_in() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let mut browser = browser_of(&upstream, "ann");
    browser.send(&format!("{}/console/sign-in", app.url), Some("key=key-of-ann&to=/console")).await;
    let prove_again = async |browser: &mut Browser| {
        let page = page(&app, &needed(&app, "far__sign_in", "ann").await);
        let shown = browser.send(&page, None).await.text().await.unwrap();
        let token = shown.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let (status, _) = prove(browser, &page, "token=forged").await.unwrap_err();
        assert_eq!(status, StatusCode::FORBIDDEN);
        let address = prove(browser, &page, &format!("token={token}")).await.unwrap();
        browser.follow(&address, &app.url, "ann").await
    };
    let back = prove_again(&mut browser).await;
    let mut forged = url::Url::parse(&back).unwrap();
    let pairs: Vec<(String, String)> = forged.query_pairs().into_owned().filter(|(name, _)| name != "iss").collect();
    forged.query_pairs_mut().clear().extend_pairs(pairs).append_pair("iss", "https://evil.example");
    assert_eq!(browser.send(forged.as_str(), None).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(browser.send(&back, None).await.status(), StatusCode::NOT_FOUND, "the sign-in is over");
    assert_eq!(upstream.grants(), [""; 0], "no code was exchanged");
    let back = prove_again(&mut browser).await;
    let made_up = format!("{}/console/upstream-sign-in/callback?state=made-up&code=made-up", app.url);
    assert_eq!(browser.send(&made_up, None).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(browser.send(&back, None).await.status(), StatusCode::OK, "a link of another site does not end it");
    wait_for_tools(&app).await;
    assert!(says(&app, "far__whoami", "ann").await.contains("ann"));
    app.stop().await;
}

#[tokio::test]
async fn a_sign_in_is_listed_and_revoked_by_its_caller_or_an_administrator() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let begun = |caller: &str| answer(app.post("/sign-ins/mcp:far").bearer_auth(format!("key-of-{caller}")));
    for user in ["ann", "bob"] {
        let (status, needed) = begun(user).await;
        assert_eq!(status, StatusCode::OK, "{needed}");
        sign_in(&app, &upstream, &needed, user).await;
    }
    let list = async |caller: &str| {
        let (_, listed) = answer(app.get("/sign-ins").bearer_auth(format!("key-of-{caller}"))).await;
        let mut callers: Vec<_> =
            listed["sign_ins"].as_array().unwrap().iter().map(|one| one["caller"].clone()).collect();
        callers.sort_by_key(ToString::to_string);
        callers
    };
    assert_eq!((list("ann").await, list("ada").await), (vec![json!("ann")], vec![json!("ann"), json!("bob")]));
    let revoke = async |caller: &str, query: &str| {
        let url = format!("{}/sign-ins/mcp:far{query}", app.url);
        app.client.delete(url).bearer_auth(format!("key-of-{caller}")).send().await.unwrap().status()
    };
    assert_eq!(revoke("ann", "?caller=bob").await, StatusCode::FORBIDDEN);
    assert_eq!(revoke("ada", "?caller=").await, StatusCode::BAD_REQUEST, "an empty id is nobody's, not everybody's");
    assert_eq!(revoke("ann", "").await, StatusCode::NO_CONTENT);
    assert_eq!(revoke("ann", "").await, StatusCode::NOT_FOUND);
    wait_for_tools(&app).await;
    needed(&app, "far__whoami", "ann").await;
    assert!(says(&app, "far__whoami", "bob").await.contains("bob"));

    let command = |arguments: &[&str]| {
        let mut command = sekisho(&app.directory);
        command.args(["--server", &app.url, "sign-ins"]).args(arguments).env("SEKISHO_API_KEY", "key-of-ada");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let listed = command(&[]).await.unwrap();
    assert!(text(&listed).contains("bob") && !text(&listed).contains("ann"), "{}", text(&listed));
    let revoked = command(&["revoke", "mcp:far", "--caller", "bob"]).await.unwrap();
    assert_eq!(revoked.status.code(), Some(0), "{}", text(&revoked));
    needed(&app, "far__whoami", "bob").await;
    let started = command(&["start", "mcp:far"]).await.unwrap();
    assert!(text(&started).contains("/console/upstream-sign-in/"), "{}", text(&started));
    let (status, refused) = answer(app.post("/sign-ins/mcp:near").bearer_auth("key-of-ann")).await;
    assert_eq!((status, code(&refused)), (StatusCode::NOT_FOUND, "not_found"));
    let (_, refused) = answer(app.post("/tools/mcp/far/sign_in").bearer_auth("key-of-root")).await;
    assert!(refused["error"].as_str().unwrap().contains("POST /sign-ins/mcp:far"), "{refused}");
    app.stop().await;
}

#[tokio::test]
async fn the_challenge_of_a_refusal_leads_no_client_to_sign_in_to_the_gateway() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let call = app.post("/tools/far__sign_in/execute").bearer_auth("key-of-ann").json(&json!({}));
    let refused = call.send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.headers()[WWW_AUTHENTICATE], "Sekisho-Sign-In source=\"mcp:far\"");
    // Over MCP it is the result of a call.
    let client = McpClient::new(&app, NEWER, Some("key-of-ann"));
    let answered = client.response("tools/call", json!({"name": "far__sign_in", "arguments": {}})).await;
    assert_eq!((answered.status(), answered.headers().get(WWW_AUTHENTICATE)), (StatusCode::OK, None));
    app.stop().await;
}

#[tokio::test]
async fn only_who_has_a_role_for_a_server_signs_in_to_it() {
    let upstream = Upstream::start().await;
    let narrow = yaml(&upstream).replacen("identity: per_user", "identity: per_user, roles: [support]", 1);
    let app = TestApp::with(&narrow).await;
    app.gateway.mcp_servers().settled().await;
    for (caller, expected) in [("ada", StatusCode::NOT_FOUND), ("ann", StatusCode::OK)] {
        let (status, said) = answer(app.post("/sign-ins/mcp:far").bearer_auth(format!("key-of-{caller}"))).await;
        assert_eq!(status, expected, "{caller}: {said}");
    }
    app.stop().await;
}

#[tokio::test]
async fn an_mcp_client_shows_the_page_and_its_call_goes_on() {
    let upstream = Upstream::start().await;
    let app = app_for(&upstream).await;
    let client = McpClient::new(&app, NEWER, Some("key-of-ann")).with_capabilities(json!({"elicitation": {"url": {}}}));
    let call = json!({"name": "far__sign_in", "arguments": {}});
    let asked = client.result("tools/call", call.clone(), "InputRequiredResult").await;
    let params = &asked["inputRequests"]["sign_in"]["params"];
    assert_eq!(params["mode"], "url", "{asked}");
    let mut again = call.clone();
    again["inputResponses"] = json!({"sign_in": {"action": "accept"}});
    again["requestState"] = asked["requestState"].clone();
    let (_, needed) = answer(app.post("/sign-ins/mcp:far").bearer_auth("key-of-ann")).await;
    assert_eq!(needed["url"], params["url"], "it is the same sign-in");
    let (answered, ()) =
        tokio::join!(client.result("tools/call", again, "CallToolResult"), sign_in(&app, &upstream, &needed, "ann"));
    assert_eq!(answered["structuredContent"]["signed_in"], true, "{answered}");
    // A client that opens no pages gets the refusal.
    let plain = McpClient::new(&app, NEWER, Some("key-of-bob"));
    wait_for_tools(&app).await;
    let refused = plain.result("tools/call", json!({"name": "far__whoami", "arguments": {}}), "CallToolResult").await;
    assert_eq!(refused["structuredContent"]["error_info"]["code"], "sign_in_required", "{refused}");
    app.stop().await;
}

#[tokio::test]
#[ignore = "needs oidc-provider and node, in the folder named by the variable OAUTH"]
async fn console_sign_in_of_two_users_to_an_upstream_of_a_real_provider() {
    let folder = std::env::var("OAUTH").expect("OAUTH names the folder");
    // Node resolves modules relative to the script.
    let script = Path::new(&folder).join("user_sign_in.mjs");
    std::fs::copy("tests/openapi/user_sign_in.mjs", &script).unwrap();
    let node = Path::new(&folder).join("node_modules/.bin/node");
    let arguments = [script.to_str().unwrap(), "PORT", "upstream", SECRET];
    let provider = ChildServer::start(node.to_str().unwrap(), &arguments, Duration::from_secs(60)).await;
    let upstream = Upstream::of_provider(&provider.url, "upstream", SECRET).await;
    let with_mcp_alone = |yaml: String| yaml.split("openapi:").next().unwrap().to_owned();
    let mut directory = TempDir::new().unwrap();
    for is_restarted in [false, true] {
        let app = TestApp::in_directory(directory, &with_mcp_alone(yaml(&upstream))).await;
        if !is_restarted {
            for user in ["ann", "bob"] {
                let (_, needed) = answer(app.post("/sign-ins/mcp:far").bearer_auth(format!("key-of-{user}"))).await;
                sign_in(&app, &upstream, &needed, user).await;
            }
        }
        wait_for_tools(&app).await;
        for (user, other) in [("ann", "bob"), ("bob", "ann")] {
            let said = says(&app, "far__whoami", user).await;
            assert!(said.contains(user) && !said.contains(other), "{user}: {said}");
        }
        directory = app.stop().await;
    }
}
