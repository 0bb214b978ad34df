//! What operators and agents browse.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

async fn get(app: &TestApp, path: &str) -> Value {
    let (status, body) = answer(app.get(path)).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

#[tokio::test]
async fn the_list_gives_names_and_with_detail_objects() {
    let app = TestApp::start().await;
    let names = get(&app, "/tools/list").await;
    let names: Vec<_> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for built_in in ["calculator", "current_time", "file_list", "file_read", "json_query", "web_fetch"] {
        assert!(names.contains(&built_in), "{built_in} is missing from {names:?}");
    }
    assert!(!names.contains(&"web_search"), "no provider is configured");
    let full = get(&app, "/tools/list?detail=full").await;
    let calculator = full.as_array().unwrap().iter().find(|tool| tool["name"] == "calculator").unwrap();
    insta::assert_json_snapshot!(calculator);
    assert!(!names.contains(&"file_write"), "it is an administrator's");
}

#[tokio::test]
async fn a_category_narrows_the_list() {
    let app = TestApp::start().await;
    let categories = get(&app, "/tools/categories").await;
    for category in categories.as_array().unwrap() {
        let names = get(&app, &format!("/tools/list?category={}", category.as_str().unwrap())).await;
        assert!(!names.as_array().unwrap().is_empty());
    }
    assert_eq!(get(&app, "/tools/list?category=none").await, json!([]));
}

#[tokio::test]
async fn schema_and_metadata_keep_their_shapes() {
    let app = TestApp::start().await;
    insta::assert_json_snapshot!("calculator_schema", get(&app, "/tools/calculator/schema").await);
    insta::assert_json_snapshot!("calculator_metadata", get(&app, "/tools/calculator/metadata").await);
    let schemas = get(&app, "/tools/schemas?exclude_dangerous=true").await;
    assert!(schemas.as_array().unwrap().iter().all(|schema| schema["parameters"]["type"] == "object"));
    let (status, reply) = answer(app.get("/tools/calculater/schema")).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"));
    assert_eq!(reply["error_info"]["alternatives"], json!(["calculator"]));
}

#[tokio::test]
async fn the_public_face_leaves_dangerous_tools_out() {
    let app = TestApp::with("tools: {overrides: {echo: {dangerous: true}}}").await;
    assert!(get(&app, "/tools/list").await.as_array().unwrap().contains(&json!("echo")));
    for path in ["/api/v1/tools", "/tools/list?detail=full&exclude_dangerous=true"] {
        let tools = get(&app, path).await;
        assert!(tools.as_array().unwrap().iter().all(|tool| tool["name"] != "echo"), "{path}");
    }
    let mut calculator = get(&app, "/api/v1/tools/calculator").await;
    calculator["parameters"].take();
    insta::assert_json_snapshot!("public_calculator", calculator);
}

#[tokio::test]
async fn a_search_finds_the_tool_meant() {
    let app = TestApp::start().await;
    for (query, expected) in
        [("what time is it", "current_time"), ("arithmetic expression", "calculator"), ("read%20file", "file_read")]
    {
        let hits = get(&app, &format!("/tools/search?q={query}")).await;
        assert_eq!(hits[0]["name"], expected, "{query}: {hits}");
    }
}

#[tokio::test]
async fn overrides_rename_describe_hide_and_price() {
    let app = TestApp::with(
        "tools: {overrides: {calculator: {rename: sums, description: Adds., cost_per_use: '0.01'}, echo: {hidden: true}}}",
    )
    .await;
    let metadata = get(&app, "/tools/sums/metadata").await;
    assert_eq!((&metadata["description"], &metadata["cost_per_use"]), (&json!("Adds."), &json!(0.01)));
    for gone in ["calculator", "echo"] {
        assert_eq!(app.call(gone, json!({})).await.0, StatusCode::NOT_FOUND);
    }
}
