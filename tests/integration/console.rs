//! The console over HTTP: what a browser gets, and what a hostile page, caller or tool does not get.

use std::sync::Arc;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use sekisho::{
    Arguments, Attempt, CallError, Execution, Executor, Metadata, Source, SourceTools, ToolDefinition, ToolOutput,
};
use serde_json::json;
use tempfile::TempDir;

use crate::app::{TestApp, answer, config};

pub(crate) const KEYS: &str = "
auth:
  anonymous: never
  api_keys:
    - {id: ann, key: key-of-ann, tenant: acme, roles: [on-call]}
    - {id: vic, key: key-of-vic, tenant: acme, roles: [support]}
    - {id: eve, key: key-of-eve, tenant: other, roles: [on-call]}
    - {id: root, key: key-of-root, roles: [admin]}
    - {id: nobody, key: key-of-nobody, tenant: acme, roles: [operator]}
console:
  roles: {viewer: [support], operator: [on-call], admin: [admin]}
";

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'";

/// A browser with one session.
pub(crate) struct Browser<'a> {
    pub(crate) app: &'a TestApp,
    pub(crate) client: Client,
    pub(crate) cookie: String,
}

impl<'a> Browser<'a> {
    pub(crate) fn new(app: &'a TestApp) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { app, client, cookie: String::new() }
    }

    pub(crate) async fn signed_in(app: &'a TestApp, key: &str) -> Self {
        let mut browser = Self::new(app);
        let response = browser.sign_in(key).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{key}");
        browser.cookie = cookie_of(&response);
        browser
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.app.url)).header(COOKIE, &self.cookie)
    }

    /// A form, as a page of the console sends it.
    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        self.post_from(path, fields).header(ORIGIN, &self.app.url)
    }

    /// A form from nowhere.
    pub(crate) fn post_from(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.client.post(format!("{}{path}", self.app.url)).header(COOKIE, &self.cookie);
        request.header("content-type", "application/x-www-form-urlencoded").body(body)
    }

    async fn sign_in(&self, key: &str) -> Response {
        self.post("/console/sign-in", &[("key", key), ("to", "/console/tools")]).send().await.unwrap()
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        let response = self.get(path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    pub(crate) async fn token(&self) -> String {
        let page = self.page("/console").await;
        let (_, rest) = page.split_once("name=\"token\" value=\"").expect("a form with a token");
        rest.split('"').next().unwrap().to_owned()
    }

    /// Tries a tool.
    async fn attempt(&self, tool: &str, mode: &str, json: &str) -> (StatusCode, String) {
        let token = self.token().await;
        let fields = [("token", token.as_str()), ("json", json), ("mode", mode)];
        let response = self.post(&format!("/console/tools/{tool}"), &fields).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }
}

fn cookie_of(response: &Response) -> String {
    let set = response.headers()[SET_COOKIE].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

/// How many calls of a tool ended well.
async fn runs(app: &TestApp, tool: &str) -> usize {
    let request = app.get(&format!("/admin/calls?status=success&tool={tool}")).bearer_auth("key-of-root");
    answer(request).await.1["calls"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_browser_is_sent_to_the_console_and_each_page_is_closed_to_other_sites() {
    let app = TestApp::start().await;
    let browser = Browser::new(&app);
    let response = browser.get("/").header(ACCEPT, "text/html,*/*;q=0.8").send().await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()[LOCATION]),
        (StatusCode::SEE_OTHER, &"/console".parse().unwrap())
    );
    let response = browser.get("/").send().await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"text/plain; charset=utf-8".parse().unwrap())
    );
    _ = app.call("echo", json!({})).await;
    let pages = ["/console", "/console/tools", "/console/tools/echo", "/console/calls", "/console/sign-in"];
    for (path, status) in pages.map(|path| (path, 200)).into_iter().chain([
        ("/console/none", 404),
        ("/console/tools/none", 404),
        ("/console/calls/none", 404),
    ]) {
        let response = browser.get(path).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
        let headers = response.headers().clone();
        for (name, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("content-security-policy", CONTENT_SECURITY_POLICY),
            ("cache-control", "no-store"),
            ("referrer-policy", "same-origin"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path}");
        }
        let page = response.text().await.unwrap();
        check_markup(&page);
        if status == 404 {
            assert!(page.contains(headers["x-request-id"].to_str().unwrap()), "{page}");
        }
    }
}

#[tokio::test]
async fn the_first_page_is_small_and_its_files_are_kept_for_ever() {
    let app = TestApp::start().await;
    let browser = Browser::new(&app);
    let page = browser.page("/console").await;
    let mut size = page.len();
    let files: Vec<_> = page.split('"').filter(|part| part.starts_with("/console/static/")).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        let response = browser.get(file).send().await.unwrap();
        assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable", "{file}");
        size += response.bytes().await.unwrap().len();
    }
    assert!(size <= 66_000, "{size} bytes");
    let other = browser.get("/console/static/console-0000000000000000.css").send().await.unwrap();
    assert_eq!(other.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_sign_in_gives_a_cookie_that_only_the_console_reads() {
    let app = TestApp::with(KEYS).await;
    let mut browser = Browser::new(&app);
    let response = browser.get("/console/tools?q=a").send().await.unwrap();
    assert_eq!(response.headers()[LOCATION], "/console/sign-in?to=%2Fconsole%2Ftools%3Fq%3Da");
    for key in ["key-of-nobody", "other", ""] {
        let response = browser.sign_in(key).await;
        assert!(response.status().is_client_error() && !response.headers().contains_key(SET_COOKIE), "{key}");
    }
    let planted = format!("__Host-sekisho-console={}", "a".repeat(64));
    browser.cookie.clone_from(&planted);
    let response = browser.sign_in("key-of-ann").await;
    assert_eq!(response.headers()[LOCATION], "/console/tools");
    let set = response.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{set}");
    let own = cookie_of(&response);
    assert!(own != planted && own.len() == "__Host-sekisho-console=".len() + 64, "{own}");
    // The planted session is none.
    assert_eq!(browser.get("/console").send().await.unwrap().status(), StatusCode::SEE_OTHER);
    browser.cookie.clone_from(&own);
    for path in ["/console", "/console/tools", "/console/calls", "/console/tools/echo"] {
        let page = browser.page(path).await;
        assert!(!page.contains("key-of-ann") && !page.contains(own.split('=').next_back().unwrap()), "{path}");
    }
    for path in ["/tools/list", "/admin/calls", "/mcp", "/api/conversations"] {
        assert_eq!(browser.get(path).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    // Two cookies are none: one of them was planted.
    let both = browser.client.get(format!("{}/console", app.url)).header(COOKIE, format!("{own}; {planted}"));
    assert_eq!(both.send().await.unwrap().status(), StatusCode::SEE_OTHER);
    let again = browser.sign_in("key-of-ann").await;
    assert_ne!(cookie_of(&again), own);
    assert_eq!(
        browser.get("/console").send().await.unwrap().status(),
        StatusCode::SEE_OTHER,
        "a new sign-in ends the old session"
    );
}

#[tokio::test]
async fn a_session_ends_with_its_key_and_by_signing_out() {
    let app = TestApp::with(KEYS).await;
    let (ann, vic) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-vic").await);
    let token = vic.token().await;
    let forged = vic.post("/console/sign-out", &[("token", "x")]).send().await.unwrap();
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let response = vic.post("/console/sign-out", &[("token", &token)]).send().await.unwrap();
    assert!(response.headers()[SET_COOKIE].to_str().unwrap().ends_with("; Max-Age=0"));
    assert_eq!(vic.get("/console").send().await.unwrap().status(), StatusCode::SEE_OTHER);
    assert_eq!(ann.get("/console").send().await.unwrap().status(), StatusCode::OK);
    let without_ann: String =
        KEYS.lines().filter(|line| !line.contains("key-of-ann")).map(|line| format!("{line}\n")).collect();
    app.gateway.reload(config(&app.directory, &without_ann)).await;
    assert_eq!(ann.get("/console").send().await.unwrap().status(), StatusCode::SEE_OTHER);
    app.gateway.reload(config(&app.directory, KEYS)).await;
    assert_eq!(ann.get("/console").send().await.unwrap().status(), StatusCode::SEE_OTHER, "it does not begin again");
}

#[tokio::test]
async fn a_tool_is_run_by_nobody_but_a_page_of_the_console_for_an_operator() {
    let app = TestApp::with(KEYS).await;
    let (ann, vic) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-vic").await);
    let (token, token_of_vic) = (ann.token().await, vic.token().await);
    let run = |token| [("token", token), ("mode", "run"), ("json", "{}")];
    let path = "/console/tools/echo";
    let refused = [
        ann.post(path, &[("mode", "run"), ("json", "{}")]),
        ann.post(path, &run("0000")),
        ann.post(path, &run(&token_of_vic)),
        ann.post_from(path, &run(&token)),
        ann.post_from(path, &run(&token)).header(ORIGIN, "http://evil.example"),
        ann.post_from(path, &run(&token)).header(ORIGIN, "null"),
        ann.post(path, &run(&token)).header("sec-fetch-site", "cross-site"),
        ann.post(path, &run(&token)).header("sec-fetch-site", "same-site"),
        // A viewer, with a token of the own session.
        vic.post(path, &run(&token_of_vic)),
    ];
    for request in refused {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        check_markup(&response.text().await.unwrap());
    }
    let json = ann.client.post(format!("{}{path}", app.url)).header(COOKIE, &ann.cookie).header(ORIGIN, &app.url);
    let json = json.json(&json!({"token": token, "mode": "run"})).send().await.unwrap();
    assert_eq!(json.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(runs(&app, "echo").await, 0);
    let page = vic.page(path).await;
    assert!(page.contains("requires the console role operator or admin") && !page.contains("value=\"run\""), "{page}");

    let (status, page) = ann.attempt("echo", "run", "{\"n\": 7}").await;
    assert!(status == StatusCode::OK && page.contains("&quot;n&quot;: 7"), "{page}");
    assert_eq!(runs(&app, "echo").await, 1);
    let (_, page) = ann.attempt("echo", "dry", "{\"n\": 7}").await;
    assert!(page.contains("Every check passed; nothing was run"), "{page}");
    let (_, page) = ann.attempt("echo", "run", "{\"n\": 7").await;
    assert!(page.contains("One argument is wrong") && page.contains("href=\"#json\""), "{page}");
    assert_eq!(page.matches("aria-label=\"The path of the call\"").count(), 0);
    let (_, page) = ann.attempt("fail", "run", "{}").await;
    assert!(
        page.contains("it did not work") && page.contains("<li class=\"stopped\"><span class=\"stage\">execute"),
        "{page}"
    );
}

#[tokio::test]
async fn the_anonymous_caller_reads_what_is_its_own_and_changes_nothing() {
    let app = TestApp::start().await;
    let browser = Browser::new(&app);
    _ = app.call("echo", json!({})).await;
    assert!(browser.page("/console/calls").await.contains("echo</code>"));
    let response = browser.post("/console/tools/echo", &[("mode", "run")]).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    // A request through a proxy is not of this machine.
    let proxied = browser.get("/console").header("x-forwarded-for", "192.0.2.1").send().await.unwrap();
    assert_eq!(proxied.status(), StatusCode::SEE_OTHER);
    let sign_in = browser.post("/console/sign-in", &[("key", "x")]).header("x-forwarded-for", "192.0.2.1");
    let page = sign_in.send().await.unwrap().text().await.unwrap();
    assert!(page.contains("only over https"), "{page}");
}

#[tokio::test]
async fn calls_of_another_tenant_are_shown_to_nobody_but_an_administrator_of_all() {
    let app = TestApp::with(KEYS).await;
    let request = app.post("/tools/echo/execute").bearer_auth("key-of-eve").json(&json!({"arguments": {}}));
    let (_, reply) = answer(request).await;
    let id = reply["receipt"]["call_id"].as_str().unwrap();
    let request = app.post("/tools/none-of-acme/execute").bearer_auth("key-of-ann").json(&json!({"arguments": {}}));
    _ = request.send().await.unwrap();
    for (key, sees) in [("key-of-ann", false), ("key-of-vic", false), ("key-of-eve", true), ("key-of-root", true)] {
        let browser = Browser::signed_in(&app, key).await;
        let page = browser.page("/console/calls").await;
        assert_eq!(page.contains(id), sees, "{key}: {page}");
        assert_eq!(page.contains("none-of-acme"), key != "key-of-eve", "{key}");
        assert_eq!(browser.page("/console").await.contains("unknown_tool"), key != "key-of-eve", "{key}");
        let status = if sees { StatusCode::OK } else { StatusCode::NOT_FOUND };
        assert_eq!(browser.get(&format!("/console/calls/{id}")).send().await.unwrap().status(), status, "{key}");
        let one = app.get(&format!("/admin/calls/{id}")).bearer_auth(key);
        assert_eq!(one.send().await.unwrap().status(), status, "{key}");
    }
    // Without a role in the console, a caller sees their own calls.
    let (_, list) = answer(app.get("/admin/calls").bearer_auth("key-of-nobody")).await;
    assert_eq!(list, json!({"items": [], "calls": [], "next": null}));
    let (_, list) = answer(app.get("/admin/calls?status=refused").bearer_auth("key-of-vic")).await;
    assert_eq!(list["calls"][0]["tool"], "none-of-acme", "{list}");
}

#[tokio::test]
async fn new_calls_arrive_while_the_list_is_open() {
    let app = TestApp::with(KEYS).await;
    let vic = Browser::signed_in(&app, "key-of-vic").await;
    let page = vic.page("/console/calls?code=unknown_tool").await;
    let (_, rest) = page.split_once("<live-calls src=\"").unwrap();
    let address = rest.split('"').next().unwrap().replace("&amp;", "&");
    let response = vic.get(&address).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    for (key, tool) in [("key-of-eve", "none-of-other"), ("key-of-ann", "echo"), ("key-of-ann", "none-of-acme")] {
        let call = app.post(&format!("/tools/{tool}/execute")).bearer_auth(key).json(&json!({"arguments": {}}));
        _ = call.send().await.unwrap();
    }
    let (mut events, mut text) = (response.bytes_stream(), String::new());
    while !text.contains("\n\n") {
        text.push_str(std::str::from_utf8(&events.next().await.unwrap().unwrap()).unwrap());
    }
    let lines: Vec<String> = serde_json::from_str(text.split_once("data: ").unwrap().1.trim()).unwrap();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("none-of-acme"), "{text}");
    // It ends with the session.
    let token = vic.token().await;
    _ = vic.post("/console/sign-out", &[("token", &token)]).send().await.unwrap();
    while let Some(more) = events.next().await {
        assert!(!more.unwrap().starts_with(b"event"));
    }
}

#[tokio::test]
async fn the_language_is_the_one_that_the_browser_asks_for() {
    let app = TestApp::start().await;
    let response =
        Browser::new(&app).get("/console/tools").header(ACCEPT_LANGUAGE, "ja,en;q=0.5").send().await.unwrap();
    let page = response.text().await.unwrap();
    assert!(page.contains("<html lang=\"ja\">") && page.contains("<h1>ツール</h1>"), "{page}");
}

/// Texts with markup from a list of naughty strings (minimaxir/big-list-of-naughty-strings, MIT).
pub(crate) fn markup() -> Vec<String> {
    serde_json::from_str(include_str!("../fixtures/console/markup.json")).unwrap()
}

/// A tool whose every text is hostile.
pub(crate) struct HostileTools;

impl Source for HostileTools {
    fn name(&self) -> &str {
        "hostile"
    }

    fn tools(&self) -> SourceTools {
        let all = markup().join("\n");
        let properties = markup().into_iter().take(50).map(|text| {
            let schema = json!({"type": "string", "description": text, "default": text, "enum": [text, "x"]});
            (text, schema)
        });
        let metadata = Metadata {
            name: "hostile".into(),
            description: all.clone(),
            category: all.clone(),
            source: all,
            rate_limit: 1_000_000,
            ..Metadata::default()
        };
        let parameters = json!({"type": "object", "properties": serde_json::Map::from_iter(properties)});
        let tool = ToolDefinition {
            metadata,
            parameters: parameters.into(),
            output_schema: None,
            executor: Arc::new(Hostile),
        };
        SourceTools { tools: vec![tool], unavailable: Vec::new() }
    }
}

struct Hostile;

impl Executor for Hostile {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        let fails = arguments.contains_key("fail");
        Box::pin(async move {
            let all = markup();
            match fails {
                true => Err(CallError::tool(all.join(" ")).with_output(json!(all))),
                false => Ok(ToolOutput { text: Some(all.join("\n")), ..ToolOutput::from(json!({"all": all})) }),
            }
        })
    }
}

#[tokio::test]
async fn no_text_of_a_tool_or_a_caller_becomes_markup() {
    let sources: Vec<Box<dyn Source>> = vec![Box::new(HostileTools)];
    let app = TestApp::with_tools_of(TempDir::new().unwrap(), KEYS, sources).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    for text in markup() {
        let call = json!({"tool_name": text, "parameters": {}, "session_context": {"user_id": text}});
        _ = app.post("/tools/execute").bearer_auth("key-of-ann").json(&call).send().await.unwrap();
    }
    for arguments in [json!({"fail": 1}), json!({"all": markup()}), json!({"all": markup(), "fail": 1})] {
        let (status, page) = ann.attempt("hostile", "run", &arguments.to_string()).await;
        assert_eq!(status, StatusCode::OK);
        check_markup(&page);
    }
    let fields: Vec<_> = markup().into_iter().map(|text| (format!("argument.{text}"), text)).collect();
    let token = ann.token().await;
    let fields: Vec<_> =
        fields.iter().map(|(name, text)| (name.as_str(), text.as_str())).chain([("token", &*token)]).collect();
    check_markup(&ann.post("/console/tools/hostile", &fields).send().await.unwrap().text().await.unwrap());
    for path in ["/console", "/console/tools", "/console/tools/hostile", "/console/calls"] {
        check_markup(&ann.page(path).await);
    }
    for text in markup() {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(["q", "source", "category", "tool", "caller", "code", "to"].map(|name| (name, &*text)))
            .finish();
        for path in ["/console/tools", "/console/calls", "/console/sign-in"] {
            check_markup(&ann.page(&format!("{path}?{query}")).await);
        }
    }
    let (_, list) = answer(app.get("/admin/calls?limit=200").bearer_auth("key-of-ann")).await;
    let calls = list["calls"].as_array().unwrap();
    assert!(calls.iter().any(|call| markup().iter().any(|text| call["tool"] == text.as_str())), "{list}");
    for call in calls.iter().take(40) {
        check_markup(&ann.page(&format!("/console/calls/{}", call["call_id"].as_str().unwrap())).await);
    }
}

/// Reads the page as a browser does, and accepts only what the console itself writes: its elements, attributes without
/// code, and addresses of its own.
pub(crate) fn check_markup(page: &str) {
    const ELEMENTS: &str = "html head meta title link script body a div header nav p strong span form input button main h1 h2 h3 \
        svg path ul ol li section details summary table thead tbody tr th td code pre label select option textarea time dl dt dd \
        rect text polyline live-calls live-run live-page live-parts figure figcaption copy-text template img fieldset legend progress \
        noscript blockquote g inbox-count saved-views !DOCTYPE";
    const ATTRIBUTES: &str = "lang charset name content rel href type src class id tabindex aria-label aria-current aria-hidden \
        aria-labelledby aria-describedby aria-invalid viewBox width height stroke-width focusable d title method action value required \
        autocomplete spellcheck data-search data-new data-live data-lost data-label data-done role for selected scope open rows \
        placeholder inputmode datetime preserveAspectRatio x y points alt html enctype formaction checked max maxlength \
        lang hreflang download data-page data-follows aria-live data-key data-rows min \
        data-go data-palette data-ended data-sign-in data-title data-name data-save data-remove aria-sort disabled";
    const EDITORS: [&str; 2] =
        ["cursor://anysphere.cursor-deeplink/mcp/install?name=sekisho&amp;config=", "vscode:mcp/install?%7B"];
    let (mut rest, mut scripts) = (page, 0);
    while let Some((text, tag)) = rest.split_once('<') {
        assert!(!text.contains('>') || !text.contains("script>"), "{text}");
        let (name, mut inside) = tag.split_at(tag.find(|c: char| c.is_whitespace() || c == '>').unwrap());
        let element = name.trim_start_matches('/');
        assert!(ELEMENTS.split_whitespace().any(|known| known == element), "<{name}");
        scripts += usize::from(name == "script");
        loop {
            inside = inside.trim_start();
            if let Some(after) = inside.strip_prefix('>') {
                rest = after;
                break;
            }
            let end = inside.find(|c: char| c == '=' || c == '>' || c.is_whitespace()).unwrap();
            let (attribute, after) = inside.split_at(end);
            assert!(ATTRIBUTES.split_whitespace().any(|known| known == attribute), "{attribute:?} in <{name}");
            let Some(value) = after.strip_prefix("=\"") else {
                inside = after;
                continue;
            };
            let (value, after) = value.split_once('"').unwrap();
            inside = after;
            if ["href", "src", "action", "formaction"].contains(&attribute) {
                let is_own =
                    value.starts_with("/console") || value.starts_with('#') || value.starts_with("data:image/png;");
                let opens_editor = element == "a" && EDITORS.iter().any(|editor| value.starts_with(editor));
                assert!(
                    (is_own || opens_editor) && (element != "script" || value.starts_with("/console/static/")),
                    "{value}"
                );
            }
        }
    }
    assert_eq!(scripts, 2, "{page}");
}
