//! The console's pages of operation, and the routes that they show: overview, servers, lock, policies, limits, configuration,
//! older calls.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::authorization_server::Provider;
use crate::console::{Browser, KEYS, check_markup, markup};
use crate::document_host::DocumentHost;
use crate::mcp_programs::server_of;

/// Pages that each role of the console sees.
const OF_VIEWERS: [&str; 18] = [
    "/console",
    "/console/calls",
    "/console/failures",
    "/console/approvals",
    "/console/inbox",
    "/console/search",
    "/console/search?q=calc",
    "/console/program-runs",
    "/console/results",
    "/console/sessions",
    "/console/calls/history",
    "/console/events",
    "/console/servers",
    "/console/map",
    "/console/policies",
    "/console/limits",
    "/console/catalogue",
    "/console/sign-ins",
];
const OF_ADMINISTRATORS: [&str; 6] = [
    "/console/servers/add",
    "/console/servers/lock",
    "/console/keys",
    "/console/flow",
    "/console/configuration",
    "/console/configuration/changes",
];

async fn call(app: &TestApp, key: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
    let request = app.post(&format!("/tools/{tool}/execute")).bearer_auth(key);
    answer(request.json(&json!({"arguments": arguments}))).await
}

async fn status(request: reqwest::RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

/// A folder with an API of one operation, whose tools a lock approves none of.
fn place(description: &str) -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://pets.example/v1"}],
        "paths": {
            "/pets": {"get": {"operationId": "pets", "summary": description, "responses": {"200": {"description": "ok"}}}},
            "/loose": {"get": {"operationId": "loose", "parameters": [{"$ref": "#/none"}], "responses": {}}},
        },
    });
    std::fs::write(directory.path().join("pets.json"), document.to_string()).unwrap();
    std::fs::write(directory.path().join("tools.lock"), r#"{"version": 1, "tools": {}}"#).unwrap();
    let path = |file: &str| directory.path().join(file).display().to_string();
    let yaml = format!(
        "{KEYS}tools: {{lock: '{}'}}\noutbound: {{openapi_allowed_domains: [pets.example, 127.0.0.1], allow_networks: [127.0.0.0/8]}}\n\
         openapi: {{collections: {{zoo: {{spec_file: '{}'}}}}}}\n",
        path("tools.lock"),
        path("pets.json")
    );
    (directory, yaml)
}

#[tokio::test]
async fn each_page_of_operation_is_open_to_its_roles_alone() {
    let app = TestApp::with(KEYS).await;
    for (key, sees_all) in [("key-of-vic", false), ("key-of-ann", false), ("key-of-root", true)] {
        let browser = Browser::signed_in(&app, key).await;
        for path in OF_VIEWERS {
            check_markup(&browser.page(path).await);
        }
        for path in OF_ADMINISTRATORS {
            let expected = if sees_all { StatusCode::OK } else { StatusCode::FORBIDDEN };
            let response = browser.get(path).send().await.unwrap();
            assert_eq!(response.status(), expected, "{key} {path}");
            check_markup(&response.text().await.unwrap());
        }
    }
    let local = TestApp::start().await;
    let anonymous = Browser::new(&local);
    for path in OF_VIEWERS.into_iter().take(10) {
        check_markup(&anonymous.page(path).await);
    }
    for path in OF_VIEWERS.into_iter().skip(10).chain(OF_ADMINISTRATORS) {
        assert_eq!(status(anonymous.get(path)).await, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn the_overview_has_what_the_calls_of_the_tenant_came_to() {
    let hidden = "tools: {overrides: {flaky: {roles: [nobody-of-acme]}}}";
    let app = TestApp::with(&format!("{KEYS}budget: {{max_cost_per_tenant_per_day: 10}}\n{hidden}\n")).await;
    for _ in 0..3 {
        assert_eq!(call(&app, "key-of-ann", "paid", json!({})).await.0, StatusCode::OK);
    }
    for unknown in ["none-of-acme", "flaky"] {
        assert_eq!(call(&app, "key-of-ann", unknown, json!({})).await.0, StatusCode::NOT_FOUND);
    }
    _ = call(&app, "key-of-eve", "echo", json!({})).await;
    let overview = async |key: &str| answer(app.get("/admin/overview").bearer_auth(key)).await.1;
    let acme = overview("key-of-vic").await;
    assert_eq!((acme["totals"]["calls"].clone(), acme["totals"]["refused"].clone()), (json!(5), json!(2)), "{acme}");
    assert_eq!(acme["codes"], json!({"unknown_tool": 2}));
    assert_eq!(acme["tools"].as_array().unwrap().len(), 1, "neither a text of a caller nor a hidden tool: {acme}");
    assert!(acme["tools"][0]["tool"] == "paid" && acme["tools"][0]["p95_us"].as_f64().unwrap() > 0.0, "{acme}");
    assert!(acme["totals"]["cost_usd"].as_f64().unwrap() > 0.0);
    assert_eq!(acme["calls_per_second"].as_array().unwrap().len(), 60);
    assert_eq!(acme["minutes"].as_array().unwrap().len(), 60);
    let budget = |body: &Value| body["budgets"].as_array().unwrap().iter().find(|day| day["caller"].is_null()).cloned();
    let tenant = budget(&acme).unwrap();
    assert!(tenant["tenant"] == "acme" && tenant["limit_usd"] == 10.0 && tenant["spent_usd"].as_f64().unwrap() > 0.0);
    assert!(!acme.to_string().contains("other"), "{acme}");
    assert_eq!(overview("key-of-root").await["totals"]["calls"], 6);
    let own = overview("key-of-nobody").await;
    assert_eq!((own["totals"]["calls"].clone(), own["budgets"].clone()), (json!(0), json!([])), "{own}");

    let page = Browser::signed_in(&app, "key-of-vic").await.page("/console").await;
    assert!(page.contains("2 of 5 calls were refused") && page.contains("unknown_tool"), "{page}");
    check_markup(&page);
}

#[tokio::test]
async fn charts_and_uses_of_tools_survive_a_restart_and_are_of_the_callers_tenant() {
    let yaml = format!("{KEYS}tools: {{overrides: {{echo: {{cost_per_use: '0.000000000001'}}}}}}\n");
    let app = TestApp::with(&yaml).await;
    for key in ["key-of-ann", "key-of-ann", "key-of-eve"] {
        assert_eq!(call(&app, key, "echo", json!({})).await.0, StatusCode::OK);
    }
    _ = call(&app, "key-of-ann", "none-of-acme", json!({})).await;
    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    let (vic, root) = (Browser::signed_in(&app, "key-of-vic").await, Browser::signed_in(&app, "key-of-root").await);
    let calls = async |browser: &Browser<'_>, query: &str| {
        let file = browser.page(&format!("/console/figures?{query}&format=json")).await;
        let parts: Vec<Value> = serde_json::from_str(&file).unwrap();
        let sum = |name: &str| parts.iter().map(|part| part[name].as_u64().unwrap()).sum::<u64>();
        (parts.len(), sum("success"), sum("refused"))
    };
    for (range, parts) in [("15m", 15), ("1h", 30), ("6h", 24), ("24h", 24), ("7d", 28), ("30d", 30)] {
        assert_eq!(calls(&vic, &format!("range={range}")).await, (parts, 2, 1), "{range}");
    }
    for (query, of_vic, of_root) in [
        ("", (2, 1), (3, 1)),
        ("tool=echo", (2, 0), (3, 0)),
        // A text of a caller is no tool.
        ("tool=none-of-acme", (0, 0), (0, 0)),
        ("caller=ann", (2, 1), (2, 1)),
        ("caller=eve", (0, 0), (1, 0)),
        ("tenant=acme", (2, 1), (2, 1)),
        ("tenant=other", (0, 0), (1, 0)),
        ("caller=eve&tenant=other", (0, 0), (1, 0)),
        ("key=none", (0, 0), (0, 0)),
    ] {
        for (browser, (success, refused)) in [(&vic, of_vic), (&root, of_root)] {
            assert_eq!(calls(browser, query).await, (24, success, refused), "{query}");
        }
    }
    for path in
        ["/console", "/console/tools/echo", "/console/figures?caller=ann&range=7d&before=day", "/console/costs?by=tool"]
    {
        let page = vic.page(path).await;
        check_markup(&page);
        assert!(page.contains("$0.000000000002"), "{path}: {page}");
        assert_eq!(page.contains("class=\"plot\""), !path.contains("costs"), "{path}: {page}");
    }
    assert!(vic.page("/console").await.contains("/console/calls?since="), "a bar leads to its calls");
    let uses = async |key: &str| {
        let (_, list) = answer(app.get("/admin/usage/tools").bearer_auth(key)).await;
        let uses = list["items"].as_array().unwrap().iter();
        uses.map(|used| {
            format!("{} {} {} {} {}", used["tenant"], used["caller"], used["tool"], used["calls"], used["cost_usd"])
        })
        .collect::<Vec<_>>()
    };
    let of_acme = r#""acme" "ann" "echo" 2 "0.000000000002""#;
    assert_eq!(uses("key-of-vic").await, [of_acme]);
    assert_eq!(uses("key-of-root").await, [of_acme, r#""other" "eve" "echo" 1 "0.000000000001""#]);
    assert_eq!(uses("key-of-nobody").await, [""; 0]);
    let (status, _) = answer(app.get("/admin/usage/tools?days=91").bearer_auth("key-of-vic")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_map_has_the_traffic_of_the_tenant_and_the_state_of_its_servers() {
    let (directory, yaml) = place("Pets.");
    let unlocked: Vec<_> = yaml.lines().filter(|line| !line.starts_with("tools: {lock")).collect();
    let app = TestApp::with(&unlocked.join("\n")).await;
    for key in ["key-of-ann", "key-of-ann", "key-of-eve"] {
        assert_eq!(call(&app, key, "echo", json!({})).await.0, StatusCode::OK);
    }
    assert_eq!(call(&app, "key-of-ann", "fail", json!({})).await.0, StatusCode::OK);
    let (vic, root) = (Browser::signed_in(&app, "key-of-vic").await, Browser::signed_in(&app, "key-of-root").await);
    let (own, all) = (vic.page("/console/map").await, root.page("/console/map").await);
    let (ann, eve) = ("/console/calls?caller=ann&amp;tenant=acme", "/console/calls?caller=eve&amp;tenant=other");
    assert!(own.contains(ann) && own.contains("3 calls in the last five minutes, 1 failed"), "{own}");
    assert!(!own.contains(eve), "no calls of others: {own}");
    assert!(all.contains(ann) && all.contains(eve) && all.contains("/console/servers/openapi/zoo"), "{all}");
    assert!(all.contains("ann (acme)") && all.contains("4 calls in the last five minutes"), "{all}");
    let response = vic.get("/console/map/live").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let first = response.bytes_stream().next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("[[\"state\","), "{first:?}");
    drop(directory);
}

#[tokio::test]
async fn the_open_overview_is_sent_what_has_changed() {
    let app = TestApp::with(KEYS).await;
    let vic = Browser::signed_in(&app, "key-of-vic").await;
    let response = vic.get("/console/live").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut events, mut text) = (response.bytes_stream(), String::new());
    let mut next = async || {
        while !text.contains("\n\n") {
            text.push_str(std::str::from_utf8(&events.next().await.unwrap().unwrap()).unwrap());
        }
        let (event, rest) = text.split_once("\n\n").unwrap();
        let parts: Option<Vec<(String, String)>> =
            event.split_once("data: ").map(|(_, data)| serde_json::from_str(data).unwrap());
        text = rest.to_owned();
        parts.unwrap_or_default()
    };
    let first = next().await;
    assert_eq!(first.len(), 9, "all parts at first: {first:?}");
    _ = call(&app, "key-of-eve", "echo", json!({})).await;
    _ = call(&app, "key-of-ann", "none-of-acme", json!({})).await;
    let mut refusals = None;
    for _ in 0..20 {
        let parts = next().await;
        refusals = parts.into_iter().find(|(id, _)| id == "refusals");
        if refusals.is_some() {
            break;
        }
    }
    let (_, refusals) = refusals.expect("the refusals have changed");
    assert!(refusals.contains("unknown_tool"), "{refusals}");
}

#[tokio::test]
async fn a_server_shows_its_state_and_is_connected_again_by_an_administrator() {
    let (directory, yaml) = place("Pets.");
    std::fs::write(
        directory.path().join("list.json"),
        json!([{"name": "now", "inputSchema": {"type": "object"}}]).to_string(),
    )
    .unwrap();
    let servers = format!(
        "mcp: {{servers: {{clock: {}, off: {{url: 'https://127.0.0.1/mcp', disabled: true}}}}}}\n",
        server_of(&directory.path().join("list.json"))
    );
    let app = TestApp::with_tools_of(directory, &format!("{yaml}{servers}"), Vec::new()).await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    let (_, list) = answer(app.get("/admin/servers").bearer_auth("key-of-root")).await;
    let names: Vec<_> =
        list["servers"].as_array().unwrap().iter().map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!((names, &list["next"]), (vec!["clock", "off", "zoo"], &Value::Null));
    for (query, name, next) in [
        ("limit=1", "clock", json!("mcp:clock")),
        ("limit=1&after=mcp:clock", "off", json!("mcp:off")),
        ("limit=1&after=mcp:off", "zoo", Value::Null),
    ] {
        let (_, page) = answer(app.get(&format!("/admin/servers?{query}")).bearer_auth("key-of-root")).await;
        assert_eq!((&page["servers"][0]["name"], &page["next"]), (&json!(name), &next), "{query}: {page}");
        assert_eq!(page["servers"].as_array().unwrap().len(), 1, "{query}");
    }
    for wrong in ["limit=0", "limit=501", "after=clock"] {
        let (status, _) = answer(app.get(&format!("/admin/servers?{wrong}")).bearer_auth("key-of-root")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let (clock, zoo) = (&list["servers"][0], &list["servers"][2]);
    assert_eq!(
        (clock["state"].clone(), clock["quarantined"].clone()),
        (json!("works"), json!(["clock__now"])),
        "{list}"
    );
    assert!(clock["since"].is_string() && list["servers"][1]["state"] == "disabled", "{list}");
    assert_eq!(zoo["fidelity"]["approximated"][0]["operation"], "loose", "{list}");
    let (_, of_ann) = answer(app.get("/admin/servers").bearer_auth("key-of-ann")).await;
    assert_eq!(of_ann, json!({"items": [], "servers": [], "next": null}), "none has a tool for them");

    let root = Browser::signed_in(&app, "key-of-root").await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let page = root.page("/console/servers").await;
    assert!(page.contains("/console/servers/mcp/clock") && page.contains("1 quarantined"), "{page}");
    check_markup(&page);
    check_markup(&root.page("/console/servers/openapi/zoo").await);
    let path = "/console/servers/mcp/clock";
    let (token, token_of_ann) = (root.token().await, ann.token().await);
    let act = |token| [("token", token), ("act", "reconnect")];
    for refused in [
        root.post(path, &[("act", "reconnect")]),
        root.post_from(path, &act(&token)),
        root.post(path, &act(&token_of_ann)),
        ann.post(path, &act(&token_of_ann)),
    ] {
        assert_eq!(status(refused).await, StatusCode::FORBIDDEN);
    }
    let reconnect = app.post("/admin/servers/mcp/clock/reconnect");
    assert_eq!(status(reconnect.bearer_auth("key-of-ann")).await, StatusCode::FORBIDDEN);
    let before = clock["since"].clone();
    let response = root.post(path, &act(&token)).send().await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["location"]),
        (StatusCode::SEE_OTHER, &format!("{path}?done=reconnect").parse().unwrap())
    );
    let since = async || answer(app.get("/admin/servers/mcp/clock").bearer_auth("key-of-root")).await.1;
    let connected_again = async {
        loop {
            let now = since().await;
            if now["since"] != before && now["state"] == "works" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), connected_again).await.expect("it is connected again");
}

#[tokio::test]
async fn an_administrator_signs_in_to_a_server_from_its_page() {
    let provider = Provider::start().await;
    let reached = "outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}";
    let app =
        TestApp::with(&format!("{KEYS}{reached}\nmcp: {{servers: {{far: {{url: '{}/mcp'}}}}}}\n", provider.url)).await;
    tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
    let root = Browser::signed_in(&app, "key-of-root").await;
    let path = "/console/servers/mcp/far";
    let page = root.page(path).await;
    assert!(page.contains("needs a sign-in") && page.contains("value=\"sign_in\""), "{page}");
    let form = [("token", &*root.token().await), ("act", "sign_in")];
    let page = root.post(path, &form).send().await.unwrap().text().await.unwrap();
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let address = links.map(|link| link.replace("&amp;", "&")).find(|link| link.starts_with("http")).expect("a link");
    assert_eq!(status(app.client.get(address)).await, StatusCode::OK);
    let works = async {
        while answer(app.get("/admin/servers/mcp/far").bearer_auth("key-of-root")).await.1["state"] != "works" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), works).await.expect("it works after the sign-in");
    assert!(!root.page(path).await.contains("value=\"sign_in\""));
    app.stop().await;
}

#[tokio::test]
async fn a_document_is_tested_and_then_added_by_a_form() {
    let (directory, yaml) = place("Pets.");
    std::fs::remove_file(directory.path().join("tools.lock")).unwrap();
    let yaml: String =
        yaml.lines().filter(|line| !line.starts_with("tools:")).map(|line| format!("{line}\n")).collect();
    let app = TestApp::in_directory(directory, &yaml).await;
    let host = DocumentHost::start().await;
    let operation = json!({"operationId": "find", "responses": {"200": {"description": "ok"}}});
    let document = host.put("/api.json", json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": host.url}],
        "paths": {"/find": {"get": operation}, "/loose": {"get": {"operationId": "loose", "parameters": [{"$ref": "#/none"}], "responses": {}}}},
    }));
    let root = Browser::signed_in(&app, "key-of-root").await;
    let token = root.token().await;
    let form =
        |mode| [("token", &*token), ("kind", "openapi"), ("name", "found"), ("spec_url", &*document), ("mode", mode)];
    let page = root.post("/console/servers/add", &form("test")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("Nothing was added yet") && page.contains("<code>loose</code>"), "{page}");
    check_markup(&page);
    let list = async || answer(app.get("/admin/servers").bearer_auth("key-of-root")).await.1["servers"].clone();
    assert_eq!(list().await.as_array().unwrap().len(), 1, "a test offers nothing");
    let added = root.post("/console/servers/add", &form("add")).send().await.unwrap();
    assert_eq!(added.headers()["location"], "/console/servers/openapi/found");
    let servers = list().await;
    assert!(servers[0]["name"] == "found" && servers[0]["registered"] == true, "{servers}");
    assert_eq!(servers[0]["tools"], json!(["found__find", "found__loose"]));
    for markup in markup() {
        let form = [
            ("token", &*token),
            ("kind", "mcp"),
            ("name", &*markup),
            ("url", &*markup),
            ("headers", &*markup),
            ("mode", "test"),
        ];
        let page = root.post("/console/servers/add", &form).send().await.unwrap().text().await.unwrap();
        assert!(page.contains("role=\"alert\""), "{page}");
        check_markup(&page);
    }
    let body = json!({"openapi": {"name": "again", "spec_url": document}});
    let (status, tested) = answer(app.post("/admin/servers/test").bearer_auth("key-of-root").json(&body)).await;
    assert_eq!((status, tested["fidelity"]["tools"].clone()), (StatusCode::OK, json!(2)), "{tested}");
    let (status, _) = answer(app.post("/admin/servers/test").bearer_auth("key-of-ann").json(&body)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_difference_from_the_lock_is_approved_as_it_was_seen() {
    let hostile = "Pets. <script>alert(1)</script> \u{202e}neddih";
    let (directory, yaml) = place(hostile);
    let app = TestApp::in_directory(directory, &yaml).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    assert_eq!(call(&app, "key-of-root", "zoo__pets", json!({})).await.1["error_info"]["code"], "tool_changed");
    let page = root.page("/console/servers/lock").await;
    check_markup(&page);
    assert!(page.contains("zoo__pets") && !page.contains('\u{202e}'), "{page}");
    let (_, review) = answer(app.get("/admin/lock").bearer_auth("key-of-root")).await;
    let of_zoo = |review: &Value| {
        let found = review["differences"].as_array().unwrap().iter().find(|found| found["tool"] == "zoo__pets");
        found.map(|found| found["hash"].as_str().unwrap().to_owned())
    };
    let hash = of_zoo(&review).expect("a difference");
    let token = root.token().await;
    let (other, seen) = (format!("sha256:{} zoo__pets", "0".repeat(64)), format!("{hash} zoo__pets"));
    let stale = root.post("/console/servers/lock", &[("token", &*token), ("approved", &*other)]).send().await.unwrap();
    assert_eq!(stale.status(), StatusCode::BAD_REQUEST);
    assert!(stale.text().await.unwrap().contains("has changed since it was seen"));
    let approved =
        root.post("/console/servers/lock", &[("token", &*token), ("approved", &*seen)]).send().await.unwrap();
    assert_eq!(approved.headers()["location"], "/console/servers/lock?done=approved");
    let (_, review) = answer(app.get("/admin/lock").bearer_auth("key-of-root")).await;
    assert_eq!(of_zoo(&review), None, "{review}");
    let lock = std::fs::read_to_string(app.directory.path().join("tools.lock")).unwrap();
    assert!(lock.contains(&hash), "{lock}");
    let (_, tools) = answer(app.get("/tools/list").bearer_auth("key-of-root")).await;
    assert!(tools.to_string().contains("zoo__pets"), "{tools}");
    assert_eq!(status(app.get("/admin/lock").bearer_auth("key-of-ann")).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_call_is_explained_stage_by_stage() {
    let app = TestApp::with(&format!("{KEYS}tools: {{overrides: {{echo: {{dangerous: true}}}}}}\n")).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let question = |caller: &str, roles: &str| {
        format!("/console/policies?tool=echo&arguments=%7B%7D&caller={caller}&roles={roles}")
    };
    let page = ann.page(&question("bob", "")).await;
    assert!(page.contains("It would be stopped at policy"), "{page}");
    check_markup(&page);
    assert!(ann.page(&question("bob", "operator")).await.contains("Every stage would let it through"));
    assert!(ann.page("/console/policies?tool=echo&arguments=%5B1%5D").await.contains("must be a JSON object"));
    let result = |text: &str| format!("{}&result={text}", question("bob", "operator"));
    assert!(ann.page(&result("%7B")).await.contains("must be JSON"));
    let page = ann.page(&result("%7B%7D")).await;
    assert!(page.contains("output schema"), "{page}");
    let other = ann.page(&format!("{}&tenant=other", question("eve", ""))).await;
    assert!(other.contains("of another tenant"), "{other}");
    let vic = Browser::signed_in(&app, "key-of-vic").await;
    assert!(!vic.page(&question("bob", "")).await.contains("would be stopped"), "a viewer explains nothing");
    let body = json!({"tool": "echo", "caller": {"id": "bob", "tenant": "acme"}});
    let explain = |key: &str| answer(app.post("/admin/explain").bearer_auth(key).json(&body));
    let (_, verdicts) = explain("key-of-ann").await;
    let policy = verdicts["stages"].as_array().unwrap().iter().find(|verdict| verdict["stage"] == "policy").unwrap();
    assert_eq!(policy["passes"], false, "{verdicts}");
    assert_eq!(explain("key-of-vic").await.0, StatusCode::FORBIDDEN);
    for text in markup() {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(["tool", "arguments", "caller", "tenant", "roles", "result"].map(|name| (name, &*text)))
            .finish();
        check_markup(&ann.page(&format!("/console/policies?{query}")).await);
    }
}

#[tokio::test]
async fn the_rules_in_force_and_their_decisions_are_shown() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let rule = "package tools\n\ndeny[\"no echo today\"] {\n    input.tool == \"echo\"\n}\n";
    std::fs::write(policies.join("today.rego"), rule).unwrap();
    let yaml = format!("{KEYS}policy: {{directory: '{}'}}\n", policies.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    _ = call(&app, "key-of-ann", "echo", json!({})).await;
    _ = call(&app, "key-of-ann", "paid", json!({})).await;
    let (_, body) = answer(app.get("/admin/policies").bearer_auth("key-of-vic")).await;
    assert_eq!(body["rules"], json!([{"name": "deny", "file": "today.rego", "line": 3}]), "{body}");
    let decisions = body["decisions"].as_array().unwrap();
    assert!(decisions.contains(&json!({"decision": "denied", "reason": "no echo today", "calls": 1})), "{body}");
    assert!(decisions.contains(&json!({"decision": "allow", "reason": null, "calls": 1})), "{body}");
    let page = Browser::signed_in(&app, "key-of-vic").await.page("/console/policies").await;
    assert!(page.contains("no echo today") && page.contains("today.rego"), "{page}");
}

#[tokio::test]
async fn what_is_left_of_a_limit_is_shown_to_its_tenant() {
    let app = TestApp::with(&format!(
        "{KEYS}limits: {{caller_rate_limit: 10}}\ntools: {{overrides: {{echo: {{rate_limit: 5}}}}}}\n"
    ))
    .await;
    for key in ["key-of-ann", "key-of-ann", "key-of-eve"] {
        _ = call(&app, key, "echo", json!({})).await;
    }
    let (_, body) = answer(app.get("/admin/limits").bearer_auth("key-of-vic")).await;
    let rates = body["rates"].as_array().unwrap();
    let ann = rates.iter().find(|rate| rate["tool"].is_null()).unwrap();
    assert_eq!(
        (ann["caller"].clone(), ann["limit"].clone(), ann["remaining"].clone()),
        (json!("ann"), json!(10), json!(8)),
        "{body}"
    );
    assert!(rates.iter().any(|rate| rate["tool"] == "echo") && !body.to_string().contains("eve"), "{body}");
    let (_, of_tool) = answer(app.get("/admin/limits?tool=echo").bearer_auth("key-of-root")).await;
    assert!(of_tool["rates"].as_array().unwrap().iter().all(|rate| rate["tool"] == "echo"), "{of_tool}");
    let page = Browser::signed_in(&app, "key-of-vic").await.page("/console/limits?tenant=acme").await;
    assert!(page.contains("8 / 10"), "{page}");
    check_markup(&page);
}

#[tokio::test]
async fn the_page_of_limits_has_what_is_left_of_the_rules_as_its_route() {
    let rules = "limits:\n  rules:\n    \
                 - {name: calls, match: {tools: [paid, echo]}, per: caller, rate: 5, cost_per_day: '10', tokens_per_day: 1000}\n    \
                 - {name: together, match: {tools: [echo]}, per: tool, max_concurrent: 3}\n";
    let app = TestApp::with(&format!("{KEYS}{rules}")).await;
    assert_eq!(call(&app, "key-of-ann", "echo", json!({})).await.0, StatusCode::OK);
    assert_eq!(call(&app, "key-of-eve", "echo", json!({})).await.0, StatusCode::OK);
    let vic = Browser::signed_in(&app, "key-of-vic").await;
    let page = vic.page("/console/limits").await;
    check_markup(&page);
    assert!(page.contains("4 / 5") && page.contains("$10.00 / $10.00"), "{page}");
    let table = "rule,per,subject,tenant,calls_left,rate,full_in_seconds,running,max_concurrent,cost_left_usd,\
                 cost_per_day_usd,tokens_left,tokens_per_day\r\n";
    let (_, left) = answer(app.get("/limits").bearer_auth("key-of-vic")).await;
    for (query, rows) in [("", left["rules"].as_array().unwrap().len()), ("&caller=ann", 1), ("&caller=eve", 0)] {
        let csv = vic.page(&format!("/console/limits?table=rules{query}&format=csv")).await;
        assert!(csv.starts_with(table) && csv.lines().count() == rows + 1, "{query}: {csv}");
        assert!(!csv.contains("eve"), "{csv}");
    }
    let csv = vic.page("/console/limits?table=rules&format=csv").await;
    assert!(csv.contains("\"calls\",\"caller\",\"ann\",\"acme\",4,5,"), "{csv}");
}

#[tokio::test]
async fn the_configuration_is_shown_without_secrets_and_a_change_is_checked() {
    let app = TestApp::with(&format!("{KEYS}limits: {{max_queued: 77}}\n")).await;
    let (_, body) = answer(app.get("/admin/configuration").bearer_auth("key-of-root")).await;
    let of = |key: &str| {
        let found = body["settings"].as_array().unwrap().iter().find(|setting| setting["key"] == key);
        found.cloned().unwrap_or_else(|| panic!("{key} in {body}"))
    };
    assert_eq!(
        (of("limits.max_queued")["value"].clone(), of("limits.max_queued")["source"].clone()),
        (json!("77"), json!("file"))
    );
    assert_eq!(of("limits.max_concurrent")["source"], "default");
    assert!(!body.to_string().contains("key-of-"), "{body}");
    assert_eq!(status(app.get("/admin/configuration").bearer_auth("key-of-ann")).await, StatusCode::FORBIDDEN);

    let root = Browser::signed_in(&app, "key-of-root").await;
    let page = root.page("/console/configuration?q=max_queued").await;
    assert!(page.contains("77") && !page.contains("key-of-"), "{page}");
    let token = root.token().await;
    let changed = format!("{KEYS}limits: {{max_queued: 78}}\n");
    let check = async |text: &str| {
        let response = root.post("/console/configuration", &[("token", &*token), ("text", text)]).send().await.unwrap();
        let page = response.text().await.unwrap();
        check_markup(&page);
        page
    };
    let page = check(&changed).await;
    assert!(page.contains("changes one setting") && page.contains("78"), "{page}");
    assert!(page.contains("would wait for SIGHUP") && page.contains("limits.max_queued"), "{page}");
    let page = check(&format!("{KEYS}limits: {{max_queued: 76}}\n")).await;
    assert!(page.contains("changes one setting") && !page.contains("SIGHUP"), "it opens nothing: {page}");
    let misspelled = check(&format!("{KEYS}tools: {{overrides: {{ecko: {{approval: always}}}}}}\n")).await;
    assert!(
        misspelled.contains("would not be taken over") && misspelled.contains("did you mean `echo`?"),
        "{misspelled}"
    );
    let noted = check(&format!("{KEYS}tools: {{overrides: {{zzz: {{approval: always}}}}}}\n")).await;
    assert!(noted.contains("tools.overrides.zzz") && noted.contains("there is no tool"), "{noted}");
    assert!(check("limits: {max_queued: many}\n").await.contains("would not be taken over"));
    for text in markup() {
        check(&text).await;
    }
    assert_eq!(of("limits.max_queued")["value"], "77", "a check takes nothing over");
    let (_, checked) =
        answer(app.post("/admin/configuration/check").bearer_auth("key-of-root").json(&json!({"text": changed}))).await;
    assert!(checked["valid"] == true && checked["changes"][0]["after"]["value"] == "78", "{checked}");
    let opening = json!({"setting": "limits.max_queued", "before": "77", "after": "78"});
    assert_eq!(checked["opens"], json!([opening]), "{checked}");
    assert!(check("# nothing\n").await.contains("is empty"), "as a file it would be refused");
    // Found in the file, it waits for a person.
    app.gateway.reload_found(crate::app::config(&app.directory, &changed)).await;
    let (_, body) = answer(app.get("/admin/configuration").bearer_auth("key-of-root")).await;
    assert_eq!(body["waiting"], json!([opening]), "{body}");
    let page = root.page("/console/configuration").await;
    check_markup(&page);
    assert!(page.contains("id=\"waiting\"") && page.contains("waits for SIGHUP"), "{page}");
    // A text from elsewhere gets no value of this machine.
    let text = format!("{KEYS}telemetry: {{metrics_namespace: '${{PATH}}'}}\npolicy: {{directory: '${{PATH}}'}}\n");
    let (_, checked) =
        answer(app.post("/admin/configuration/check").bearer_auth("key-of-root").json(&json!({"text": text}))).await;
    assert_eq!(checked["valid"], true, "{checked}");
    assert!(!checked.to_string().contains(&std::env::var("PATH").unwrap()), "{checked}");
}

#[tokio::test]
async fn older_calls_are_found_in_the_audit_trail() {
    let app = TestApp::with(KEYS).await;
    let mut ids = Vec::new();
    for tool in ["echo", "none-of-acme", "echo"] {
        ids.push(call(&app, "key-of-ann", tool, json!({})).await.1["receipt"]["call_id"].as_str().unwrap().to_owned());
    }
    let of_eve = call(&app, "key-of-eve", "echo", json!({})).await.1["receipt"]["call_id"].as_str().unwrap().to_owned();
    let directory = app.stop().await;
    // The next start has none of them in the index.
    for suffix in ["", "-wal", "-shm"] {
        _ = std::fs::remove_file(directory.path().join(format!("state/sekisho.calls.db{suffix}")));
    }
    let app = TestApp::in_directory(directory, KEYS).await;
    let history = async |key: &str, query: &str| {
        answer(app.get(&format!("/admin/calls/history{query}")).bearer_auth(key)).await.1
    };
    let found = |page: &Value| -> Vec<String> {
        page["calls"].as_array().unwrap().iter().map(|call| call["call_id"].as_str().unwrap().to_owned()).collect()
    };
    let newest_first: Vec<_> = ids.iter().rev().cloned().collect();
    assert_eq!(found(&history("key-of-vic", "").await), newest_first);
    assert_eq!(found(&history("key-of-root", "").await).len(), 4);
    let page = history("key-of-vic", "?limit=1").await;
    let next = page["next"].as_str().unwrap();
    assert_eq!(found(&history("key-of-vic", &format!("?limit=1&before={next}")).await), [ids[1].clone()]);
    assert_eq!(found(&history("key-of-vic", "?code=unknown_tool").await), [ids[1].clone()]);
    assert_eq!(found(&history("key-of-vic", &format!("?call_id={}", ids[0])).await), [ids[0].clone()]);
    assert_eq!(found(&history("key-of-vic", "?until=2020-01-01T00:00:00Z").await), Vec::<String>::new());
    assert_eq!(status(app.get("/admin/calls/history").bearer_auth("key-of-nobody")).await, StatusCode::FORBIDDEN);
    assert_eq!(
        status(app.get("/admin/calls/history?since=x").bearer_auth("key-of-vic")).await,
        StatusCode::BAD_REQUEST
    );

    let vic = Browser::signed_in(&app, "key-of-vic").await;
    let page = vic.page("/console/calls/history?tool=echo").await;
    check_markup(&page);
    assert!(page.contains(&ids[2]) && !page.contains(&ids[1]) && !page.contains(&of_eve), "{page}");
    let one = vic.page(&format!("/console/calls/{}", ids[0])).await;
    check_markup(&one);
    assert!(one.contains("neither the times of the stages"), "{one}");
    assert_eq!(status(vic.get(&format!("/console/calls/{of_eve}"))).await, StatusCode::NOT_FOUND);
}
