//! Changes of the configuration over HTTP: proposed, tried on calls, applied, exported and undone.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config};
use crate::console::{Browser, check_markup};

const KEYS: &str = "auth:\n  anonymous: never\n  api_keys:\n    - {id: ann, key: key-of-ann, tenant: acme}\n    \
                    - {id: ada, key: key-of-ada, tenant: acme, roles: [admin]}\n    \
                    - {id: root, key: key-of-root, roles: [admin]}\n    - {id: rita, key: key-of-rita, roles: [admin]}\n\
                    limits: {max_queued: 8}\n";

async fn post(app: &TestApp, path: &str, by: &str, body: Value) -> (StatusCode, Value) {
    answer(app.post(path).bearer_auth(format!("key-of-{by}")).json(&body)).await
}

async fn get(app: &TestApp, path: &str) -> Value {
    answer(app.get(path).bearer_auth("key-of-root")).await.1
}

/// The answer to a proposal of Root, and its id.
async fn propose(app: &TestApp, patch: Value) -> (Value, String) {
    let (status, proposed) = post(app, "/admin/changes", "root", json!({"patch": patch, "comment": "why"})).await;
    assert_eq!((status, &proposed["state"]), (StatusCode::OK, &json!("proposed")), "{proposed}");
    let id = proposed["id"].as_str().unwrap().to_owned();
    (proposed, id)
}

async fn settle(app: &TestApp, by: &str, id: &str, act: &str, opens: &[&str]) -> (StatusCode, Value) {
    post(app, &format!("/admin/changes/{id}/{act}"), by, json!({"opens": opens})).await
}

async fn echo(app: &TestApp) -> (StatusCode, Value) {
    post(app, "/tools/echo/execute", "ann", json!({"arguments": {}})).await
}

async fn export(app: &TestApp) -> String {
    app.get("/admin/changes/export").bearer_auth("key-of-root").send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_change_is_tried_on_calls_applied_over_the_file_exported_and_undone() {
    let app = TestApp::with(KEYS).await;
    for _ in 0..3 {
        assert_eq!(echo(&app).await.0, StatusCode::OK);
    }
    let hide = json!({"tools": {"overrides": {"echo": {"hidden": true}}}});
    let (proposed, id) = propose(&app, hide.clone()).await;
    let tried = &proposed["trial"]["refused"][0];
    let expected = json!({"setting": "tools.overrides.echo.hidden", "tool": "echo", "tenant": "acme", "caller": "ann", "calls": 3});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&tried[name], value, "{proposed}");
    }
    assert_eq!((&proposed["effect"]["opens"], &proposed["trial"]["not_known"]), (&json!([]), &json!([])), "{proposed}");
    let changes = proposed["effect"]["changes"].as_array().unwrap();
    let setting = changes.iter().map(|change| &change["after"]).find(|after| after["source"] == "change").unwrap();
    assert_eq!(setting["key"], "tools.overrides.echo.hidden", "{proposed}");
    assert_eq!((echo(&app).await.0, export(&app).await), (StatusCode::OK, "{}\n".to_owned()), "nothing is applied");

    let (status, applied) = settle(&app, "root", &id, "apply", &[]).await;
    assert_eq!(
        (status, &applied["state"], &applied["decided_by"]),
        (StatusCode::OK, &json!("applied"), &json!("root"))
    );
    assert_eq!(echo(&app).await.0, StatusCode::NOT_FOUND);
    assert!(export(&app).await.contains("hidden: true"));
    let (status, again) = settle(&app, "root", &id, "apply", &[]).await;
    assert_eq!((status, code(&again)), (StatusCode::BAD_REQUEST, "invalid_request"), "{again}");
    app.gateway.reload_found(config(&app.directory, &KEYS.replace("max_queued: 8", "max_queued: 7"))).await;
    assert_eq!(echo(&app).await.0, StatusCode::NOT_FOUND, "a changed file does not take it back");

    let (status, refused) = settle(&app, "root", &id, "undo", &[]).await;
    let message = refused["error"].as_str().unwrap_or_default();
    assert!(status == StatusCode::BAD_REQUEST && message.contains("tools.overrides.echo.hidden"), "{refused}");
    let preview = get(&app, &format!("/admin/changes/{id}")).await;
    let opens: Vec<_> =
        preview["effect"]["opens"].as_array().unwrap().iter().map(|one| one["setting"].as_str().unwrap()).collect();
    assert_eq!(settle(&app, "rita", &id, "undo", &opens).await.0, StatusCode::OK);
    assert_eq!(echo(&app).await.0, StatusCode::OK);
    assert_eq!(get(&app, "/admin/changes").await["items"][0]["state"], "undone");
    let events = get(&app, "/admin/events?event=configuration_change_undone").await;
    let done: Vec<_> = events["items"].as_array().unwrap().iter().map(|event| event["success"].clone()).collect();
    assert_eq!(done, [json!(true), json!(false)], "{events}");
}

#[tokio::test]
async fn a_change_survives_a_restart_and_a_file_that_forbids_changes_counts_alone() {
    let app = TestApp::with(KEYS).await;
    let (_, id) = propose(&app, json!({"limits": {"max_queued": 5, "caller_rate_limit": 3}})).await;
    assert_eq!(settle(&app, "root", &id, "apply", &[]).await.0, StatusCode::OK);
    let directory = app.stop().await;
    let app = TestApp::in_directory(directory, KEYS).await;
    let limits = |app: &TestApp| {
        let config = app.gateway.configuration().current();
        (config.limits.max_queued, config.limits.caller_rate_limit)
    };
    assert_eq!(limits(&app), (5, Some(3)));
    let directory = app.stop().await;
    let app = TestApp::in_directory(directory, &format!("{KEYS}config: {{changes: read_only}}\n")).await;
    assert_eq!(limits(&app), (8, None));
    let (status, refused) = post(&app, "/admin/changes", "root", json!({"patch": {"limits": {"max_queued": 4}}})).await;
    assert_eq!((status, code(&refused)), (StatusCode::FORBIDDEN, "denied"), "{refused}");
    assert_eq!(settle(&app, "root", &id, "undo", &[]).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn with_four_eyes_another_administrator_applies_and_nobody_opens_something_by_an_undo() {
    let app = TestApp::with(&format!("{KEYS}config: {{changes: four_eyes}}\n")).await;
    let (_, id) = propose(&app, json!({"limits": {"max_queued": 5}})).await;
    let (status, refused) = settle(&app, "root", &id, "apply", &[]).await;
    assert_eq!((status, code(&refused)), (StatusCode::FORBIDDEN, "denied"), "{refused}");
    assert_eq!(settle(&app, "rita", &id, "apply", &[]).await.0, StatusCode::OK);
    for by in ["root", "rita"] {
        let (status, refused) = settle(&app, by, &id, "undo", &["limits.max_queued"]).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{by}: {refused}");
    }
    assert_eq!(app.gateway.configuration().current().limits.max_queued, 5);
}

#[tokio::test]
async fn what_would_not_be_taken_over_is_refused_with_its_setting() {
    let app = TestApp::with(KEYS).await;
    for (patch, expected) in [
        (json!({"server": {"listen": "0.0.0.0:1"}}), "`server` cannot be changed here"),
        (json!({"mcp": {"secrets": {"token": "x"}}}), "`mcp.secrets` cannot be changed here"),
        (json!({"tenants": {"acme": {"prompt": "${PATH}"}}}), "`tenants.acme.prompt` refers to a value"),
        (json!({"limits": {"max_queued": "many"}}), "limits.max_queued: "),
        (json!({"limits": {"max_concurrent": 0}}), "limits.max_concurrent: "),
        (json!({"tools": {"overrides": {"ecko": {"approval": "always"}}}}), "did you mean `echo`?"),
        (json!({"limits": {"max_queued": 8}}), "it changes nothing"),
    ] {
        let (status, refused) = post(&app, "/admin/changes", "root", json!({"patch": patch})).await;
        let message = refused["error"].as_str().unwrap_or_default();
        assert!(status == StatusCode::BAD_REQUEST && message.contains(expected), "{patch}: {refused}");
    }
    assert_eq!(get(&app, "/admin/changes").await["items"], json!([]));
    let (status, _) = post(&app, "/admin/changes", "ada", json!({"patch": {"limits": {"max_queued": 4}}})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "the administrator of a tenant");
}

#[tokio::test]
async fn the_console_proposes_shows_and_applies_a_change_once_each_opened_setting_is_confirmed() {
    let app = TestApp::with(KEYS).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    let token = root.token().await;
    let post = async |path: &str, fields: &[(&str, &str)]| {
        let fields = [&[("token", &*token)][..], fields].concat();
        root.post(path, &fields).send().await.unwrap().status()
    };
    let path = "/console/configuration/changes";
    assert_eq!(post(path, &[("patch", "limits: 1")]).await, StatusCode::BAD_REQUEST);
    // A refused change is in its form again.
    let refused = [("token", &*token), ("patch", "limits: 1"), ("comment", "why")];
    let page = root.post(path, &refused).send().await.unwrap().text().await.unwrap();
    check_markup(&page);
    assert!(page.contains("the change is no JSON") && page.contains("limits: 1</textarea>"), "{page}");
    assert!(page.contains("value=\"why\""), "{page}");
    let patch = r#"{"limits": {"max_queued": 9}}"#;
    assert_eq!(post(path, &[("patch", patch), ("comment", "<b>more</b>")]).await, StatusCode::SEE_OTHER);
    let id = get(&app, "/admin/changes").await["items"][0]["id"].as_str().unwrap().to_owned();
    let page = root.page(&format!("{path}/{id}")).await;
    check_markup(&page);
    assert!(page.contains("limits.max_queued") && page.contains("type=\"checkbox\""), "{page}");
    assert!(page.contains("&lt;b&gt;more&lt;/b&gt;"), "{page}");
    let one = format!("{path}/{id}");
    assert_eq!(post(&one, &[("act", "apply")]).await, StatusCode::BAD_REQUEST, "nothing is confirmed");
    assert_eq!(app.gateway.configuration().current().limits.max_queued, 8);
    post(&one, &[("act", "apply"), ("opens", "limits.max_queued")]).await;
    assert_eq!(app.gateway.configuration().current().limits.max_queued, 9);
    let list = root.page(path).await;
    check_markup(&list);
    assert!(list.contains(&id) && list.contains("applied"), "{list}");
    post(&one, &[("act", "undo")]).await;
    assert_eq!(app.gateway.configuration().current().limits.max_queued, 8);
}
