//! The tables of the console as files.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS};

const CALLS: &str = "time,tool,status,code,tenant,caller,via,dry_run,duration_seconds,cost_usd,call_id,tokens";

/// The page that links to a file, the rest of the file's address, and its columns.
const TABLES: [(&str, &str, &str); 17] = [
    (
        "/console/figures",
        "?range=24h",
        "from,until,success,error,refused,cancelled,p50_seconds,p95_seconds,p99_seconds,cost_usd,tokens",
    ),
    ("/console/costs", "?days=30&by=tool&page=1", "day,tenant,caller,tool,calls,errors,refused,cost_usd,tokens"),
    ("/console", "?table=tools&range=1h", "tool,success,error,refused,cancelled,p50_seconds,p95_seconds,p99_seconds"),
    ("/console", "?table=codes&range=1h", "code,calls"),
    ("/console/calls", "", CALLS),
    ("/console/calls/history", "", CALLS),
    ("/console/failures", "", "value,code,failed,calls,since,first_call_id,last,last_call_id,last_success,is_constant"),
    ("/console/events", "", "time,event,success,subject,detail,tenant,caller,key,client,request_id,count"),
    ("/console/tools", "?page=1", "name,description,source,category,dangerous,usable,problem"),
    ("/console/servers", "?page=1", "name,kind,state,since,reason,address,registered,tools,quarantined"),
    ("/console/servers/openapi/zoo", "", "operation,outcome,tool,reason"),
    ("/console/servers/lock", "?page=1", "tool,change,quarantined,place,before,after"),
    ("/console/policies", "?table=decisions", "code,reason,calls"),
    ("/console/limits", "?page=1&budgets=1&rules=1&table=rates", "tenant,caller,tool,left,limit,full_in_seconds"),
    (
        "/console/limits",
        "?page=1&budgets=1&rules=1&table=budgets",
        "tenant,caller,spent_usd,held_usd,limit_usd,tokens,token_limit",
    ),
    ("/console/results", "", "handle,tool,content_type,bytes,in_session,created_at,expires_at"),
    ("/console/configuration", "?page=1", "key,value,secret,source,variable,line"),
];

/// With a collection, a lock that has none of its tools, a policy of one rule, and a budget.
async fn app() -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let path = |file: &str| directory.path().join(file).display().to_string();
    let rule = "package tools\nimport rego.v1\ndeny contains \"never\" if input.tool == \"current_time\"\n";
    std::fs::create_dir(directory.path().join("policies")).unwrap();
    std::fs::write(path("policies/own.rego"), rule).unwrap();
    std::fs::write(path("tools.lock"), r#"{"version": 1, "tools": {}}"#).unwrap();
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://pets.example"}],
        "paths": {
            "/pets": {"get": {"operationId": "pets", "responses": {"200": {"description": "ok"}}}},
            "/lost": {"get": {"operationId": "lost", "parameters": [{"$ref": "#/none"}], "responses": {}}},
        },
    });
    std::fs::write(path("pets.json"), document.to_string()).unwrap();
    let yaml = format!(
        "{KEYS}tools: {{lock: '{}'}}\npolicy: {{directory: '{}'}}\nbudget: {{max_cost_per_tenant_per_day: 10}}\nlimits: {{caller_rate_limit: 20}}\n\
         outbound: {{openapi_allowed_domains: [pets.example]}}\nopenapi: {{collections: {{zoo: {{spec_file: '{}'}}}}}}\n",
        path("tools.lock"),
        path("policies"),
        path("pets.json")
    );
    TestApp::in_directory(directory, &yaml).await
}

#[tokio::test]
async fn each_table_is_a_file_of_both_forms_to_which_its_page_leads() {
    let app = app().await;
    // What is no tool from outside needs no approval.
    for (tool, arguments) in
        [("calculator", json!({"expression": "1"})), ("current_time", json!({})), ("none", json!({}))]
    {
        let call = app.post(&format!("/tools/{tool}/execute")).bearer_auth("key-of-root");
        _ = call.json(&json!({"arguments": arguments})).send().await.unwrap();
    }
    let rows = json!({"query": "[].{id: @, name: 'a row of many'}", "data": (0..3_000).collect::<Vec<_>>()});
    let large = app.post("/tools/json_query/execute").bearer_auth("key-of-root").header("prefer", "handle");
    _ = large.json(&json!({"arguments": rows})).send().await.unwrap();
    // The trail is some milliseconds behind.
    while answer(app.get("/admin/calls/history").bearer_auth("key-of-root")).await.1["calls"] == json!([]) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let root = Browser::signed_in(&app, "key-of-root").await;
    let mut files = BTreeMap::new();
    for (page, query, columns) in TABLES {
        let separator = if query.is_empty() { '?' } else { '&' };
        let html = root.page(&format!("{page}{}", if page == "/console/costs" { query } else { "" })).await;
        for format in ["csv", "json"] {
            let address = format!("{page}{query}{separator}format={format}");
            assert!(html.contains(&format!("href=\"{}\"", address.replace('&', "&amp;"))), "{address}: {html}");
            let response = root.get(&address).send().await.unwrap();
            let disposition = response.headers()["content-disposition"].to_str().unwrap().to_owned();
            assert!(disposition.starts_with("attachment; filename=\"sekisho-"), "{address}: {disposition}");
            files.insert(address, response.text().await.unwrap());
        }
        let csv = &files[&format!("{page}{query}{separator}format=csv")];
        assert_eq!(csv.lines().next(), Some(columns), "{page}{query}");
        let json: Vec<Value> = serde_json::from_str(&files[&format!("{page}{query}{separator}format=json")]).unwrap();
        assert!(!json.is_empty(), "{page}{query}");
        let mut named: Vec<_> = json[0].as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected: Vec<_> = columns.split(',').collect();
        named.sort_unstable();
        expected.sort_unstable();
        assert_eq!(named, expected, "{page}{query}");
    }
    let has = |address: &str, line: &str| assert!(files[address].contains(line), "{address}: {}", files[address]);
    has("/console?table=codes&range=1h&format=csv", "\r\n\"unknown_tool\",1\r\n");
    has("/console?table=tools&range=1h&format=csv", "\"calculator\",");
    has("/console/servers/openapi/zoo?format=csv", "\r\n\"lost\",\"approximated\",,\"");
    has("/console/servers/lock?page=1&format=csv", "\"zoo__pets\",\"added\",true,\"\",,");
    has("/console/policies?table=decisions&format=csv", "\"denied\",");
    // No secret is in a file.
    let (_, settings) = answer(app.get("/admin/configuration").bearer_auth("key-of-root")).await;
    assert!(settings.to_string().contains("auth.api_keys"));
    assert!(!files["/console/configuration?page=1&format=csv"].contains("key-of-"));
    let rules = root.page("/console/policies?table=rules&format=csv").await;
    assert!(rules.starts_with("rule,file,line\r\n") && rules.contains("own.rego"), "{rules}");
}

#[tokio::test]
async fn files_are_for_those_who_may_see_the_page() {
    let app = app().await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    for path in ["/console/configuration?format=csv", "/console/servers/lock?format=json"] {
        assert_eq!(ann.get(path).send().await.unwrap().status(), 403, "{path}");
    }
    let local = TestApp::start().await;
    let anonymous = Browser::new(&local);
    for path in ["servers", "policies", "limits", "calls/history", "configuration"] {
        let response = anonymous.get(&format!("/console/{path}?format=csv")).send().await.unwrap();
        assert_eq!(response.status(), 403, "{path}");
    }
}
