//! Names in the configuration that match nothing: each would switch off in silence what its setting was written for.

use std::process::Output;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, config, degraded};
use crate::cli::{sekisho, text};
use crate::lock::until;
use crate::mcp_programs::server;
use crate::mcp_servers::{ready, yaml};

const MISSPELLED: &str = "tools:\n  overrides:\n    calculater: {approval: always}\n";

fn run(directory: &TempDir, yaml: &str, arguments: &[&str]) -> Output {
    std::fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    sekisho(directory).args(arguments).args(["--config", "sekisho.yaml"]).output().unwrap()
}

/// Without the notes about the files that the process may open, and about the lock that no test here has.
async fn notes(app: &TestApp) -> Value {
    let mut notes = answer(app.get("/readyz")).await.1["notes"].as_object().cloned().unwrap_or_default();
    notes.remove("server.max_connections");
    notes.remove("tools.lock");
    // The program of the tests is no helper of sandboxes.
    notes.retain(|setting, _| !setting.ends_with(".sandbox"));
    notes.into()
}

/// What the program says, or the gateway, of a guard whose name is nearly that of a tool.
fn assert_named(said: &str, place: &str, meant: &str) {
    assert!(said.contains(place) && said.contains(&format!("did you mean `{meant}`?")), "{said}");
}

#[test]
fn a_guard_with_the_misspelled_name_of_a_tool_stops_check_and_start() {
    let directory = TempDir::new().unwrap();
    let rule = "limits:\n  rules:\n  - {name: few, per: tool, rate: 1, match: {tools: [web_fetchs]}}\n";
    for (yaml, place, meant) in [(MISSPELLED, "sekisho.yaml:3:", "calculator"), (rule, "sekisho.yaml:3:", "web_fetch")]
    {
        let checked = run(&directory, yaml, &["check"]);
        assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
        assert_named(&text(&checked), place, meant);
        let started = run(&directory, &format!("{yaml}server: {{listen: '127.0.0.1:0'}}\n"), &["serve"]);
        assert_eq!(started.status.code(), Some(4), "{}", text(&started));
        assert_named(&text(&started), place, meant);
    }
}

#[tokio::test]
async fn a_reload_with_a_misspelled_guard_is_refused_whole() {
    let app = TestApp::with("tools: {overrides: {calculator: {hidden: true}}}").await;
    app.gateway.reload(config(&app.directory, "tools: {overrides: {ecko: {hidden: true}}}")).await;
    let reason = degraded(&app).await["configuration"].as_str().unwrap().to_owned();
    assert_named(&reason, "tools.overrides.ecko", "echo");
    assert_eq!(
        app.call("calculator", json!({"expression": "1"})).await.0,
        StatusCode::NOT_FOUND,
        "the one before holds"
    );
    app.gateway.reload(config(&app.directory, "tools: {overrides: {echo: {hidden: true}}}")).await;
    assert_eq!(degraded(&app).await.get("configuration"), None);
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::NOT_FOUND);
}

/// They stop nothing: what they are for may come later.
#[tokio::test]
async fn other_names_that_match_nothing_are_noted_where_operators_look() {
    let yaml = "
auth: {api_keys: [{id: root, key: root-6fe1b2c09a7d4485, roles: [admin]}, {id: ann, key: ann-03d7e58bc19f4a26, tenant: acme, roles: [auditor]}]}
tenants: {acmee: {max_cost_per_day: '1', models: [anthropics]}, acme: {}}
limits: {rules: [{name: few, per: caller, rate: 1000, match: {tools: [ec*], callers: [ann], roles: [auditer], tenants: [acme]}}]}
mcp: {endpoints: {sums: {tools: [calculator, calcu1ator_*]}}}
tools: {overrides: {zzz: {approval: always}}, transform: {results: [{name: mail, tools: [crm__*], detect: [emails]}]}}
";
    let app = TestApp::with(yaml).await;
    let noted = notes(&app).await;
    let expected = [
        ("limits.rules[0].match.roles[0]", "there is no role of any caller \"auditer\"; did you mean `auditor`?"),
        ("mcp.endpoints.sums.tools[1]", "no tool has a name like \"calcu1ator_*\""),
        ("tenants.acmee", "there is no tenant of any caller \"acmee\"; did you mean `acme`?"),
        ("tenants.acmee.models[0]", "there is no model or profile \"anthropics\"; did you mean `anthropic`?"),
        ("tools.overrides.zzz", "there is no tool \"zzz\""),
        ("tools.transform.results[0].tools[0]", "no tool has a name like \"crm__*\""),
    ];
    let expected: Value = expected.into_iter().map(|(setting, note)| (setting.to_owned(), json!(note))).collect();
    assert_eq!(noted, expected);
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK);

    let check = async |text: &str| {
        let request = app.post("/admin/configuration/check").bearer_auth("root-6fe1b2c09a7d4485");
        answer(request.json(&json!({"text": text}))).await.1
    };
    let checked = check(yaml).await;
    assert_eq!((&checked["valid"], &checked["notes"]), (&json!(true), &expected), "{checked}");
    let checked = check(MISSPELLED).await;
    assert_eq!(checked["valid"], false, "{checked}");
    assert_named(&checked["problems"].to_string(), "sekisho.yaml:3:", "calculator");
    // A key that is created later may have the role.
    app.gateway.reload(config(&app.directory, "")).await;
    assert_eq!(notes(&app).await, json!({}));
}

#[test]
fn the_check_says_the_same() {
    let directory = TempDir::new().unwrap();
    let yaml = "python_tools: {directory: tools, settings: {wether: {}}}\n\
                tools: {transform: {arguments: [{name: mail, tools: [nowhere__*], detect: [emails]}]}}\n";
    std::fs::create_dir(directory.path().join("tools")).unwrap();
    std::fs::write(
        directory.path().join("tools/weather.py"),
        "def now() -> str:\n    \"\"\"Now.\"\"\"\n    return 'x'\n",
    )
    .unwrap();
    let checked = run(&directory, yaml, &["--json", "check"]);
    let findings: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
    let says = |part: &str| {
        let found = findings.iter().find(|finding| finding["part"] == part);
        found.map(|finding| (finding["warning"].clone(), finding["says"].clone()))
    };
    let file = "there is no file of Python functions \"wether\"; did you mean `weather`?";
    assert_eq!(says("python_tools.settings.wether"), Some((json!(true), json!(file))), "{findings:#?}");
    let tool = "no tool has a name like \"nowhere__*\"";
    assert_eq!(says("tools.transform.arguments[0].tools[0]"), Some((json!(true), json!(tool))), "{findings:#?}");
}

/// A server connects later than the gateway starts, or never.
#[tokio::test]
async fn names_of_a_source_are_judged_once_it_has_loaded() {
    let servers = yaml(&[
        ("m", server("fine", "exclude: ['delete_*', 'ech*'], timeout_seconds: 20")),
        ("gone", "{command: /nowhere/at-all, connect_timeout_seconds: 1}".to_owned()),
    ]);
    let rest = "  endpoints: {one: {tools: [m__*, m__zzz, gone__*, gone__zzz, later__zzz]}}\n\
                tools: {overrides: {m__fial: {approval: always}, gone__zzz: {approval: always}}}\n";
    let yaml = format!("{servers}{rest}");
    let app = TestApp::with(&yaml).await;
    ready(&app).await;
    let noted =
        until(async || Some(notes(&app).await).filter(|noted| noted["tools.overrides.m__fial"].is_string())).await;
    let settings: Vec<_> = noted.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "mcp.endpoints.one.tools[1]",
        "mcp.endpoints.one.tools[4]",
        "mcp.servers.m.exclude[0]",
        "tools.overrides.m__fial",
    ];
    assert_eq!(settings, expected, "{noted}");
    assert_named(&noted.to_string(), "m__fial", "m__fail");
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_named(degraded(&app).await["configuration"].as_str().unwrap(), "m__fial", "m__fail");
}

/// The names of a document are compared with what is in it.
#[tokio::test]
async fn names_of_operations_are_those_of_the_document() {
    let directory = TempDir::new().unwrap();
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://api.example.com"}],
        "paths": {"/pets": {
            "get": {"operationId": "listPets", "tags": ["pets"], "responses": {}},
            "post": {"operationId": "createPet", "tags": ["pets"], "responses": {}},
        }},
    });
    std::fs::write(directory.path().join("pets.json"), document.to_string()).unwrap();
    let yaml = format!(
        "outbound: {{openapi_allowed_domains: [api.example.com]}}\nopenapi:\n  collections:\n    pets:\n      spec_file: '{}'\n      \
         dangerous: {{operations: [createPets, 'GET /pets'], tags: [pest], methods: [DELETE, pots]}}\n      \
         renames: {{listPet: all}}\n      credentials: {{bearer: {{token: x}}}}\n      vendor_adapter: acme\n",
        directory.path().join("pets.json").display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let at = |key: &str| format!("openapi.collections.pets.{key}");
    let expected = [
        ("credentials.bearer", "there is no security scheme in the document \"bearer\""),
        ("dangerous.methods[1]", "there is no method of an operation \"pots\""),
        ("dangerous.operations[0]", "there is no operation in the document \"createPets\"; did you mean `createPet`?"),
        ("dangerous.tags[0]", "there is no tag in the document \"pest\"; did you mean `pets`?"),
        ("renames.listPet", "there is no operation in the document \"listPet\"; did you mean `listPets`?"),
        ("vendor_adapter", "there is no adapter \"acme\""),
    ];
    let expected: Value = expected.into_iter().map(|(key, note)| (at(key), json!(note))).collect();
    assert_eq!(notes(&app).await, expected);
}

/// What a source calls a tool, `tools.overrides` names; what callers call it, everything else does.
#[tokio::test]
async fn a_renamed_tool_has_one_name_for_overrides_and_another_for_limits() {
    let yaml = "
tools: {overrides: {calculator: {rename: sums}, sums: {rate_limit: 1}, echo: {hidden: true}}}
limits: {rules: [{name: few, per: tool, rate: 9, match: {tools: [sums, calculator, echo]}}]}
";
    let noted = notes(&TestApp::with(yaml).await).await;
    let settings: Vec<_> = noted.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(settings, ["limits.rules[0].match.tools[1]", "tools.overrides.sums"], "{noted}");
}
