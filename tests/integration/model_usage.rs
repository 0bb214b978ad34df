//! What agents use of models: in the budgets of a day and in the record of the days.

use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, check_markup};
use crate::console_agents::page_with;
use crate::lock::until;

/// A model that reports 5000 tokens of input and 10 of output for each turn.
const SCRIPT: &str = "turns: [{text: [Yes.], usage: {prompt_tokens: 5000, completion_tokens: 10}}]";

async fn app(budget: &str) -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("script.yaml");
    std::fs::write(&file, SCRIPT).unwrap();
    let profile =
        format!("{{provider: replay, model: {}, max_tokens: 100, tools: {{exclude: ['*']}}}}", file.display());
    let yaml = format!("{budget}\nagent:\n  default_profile: main\n  profiles: {{main: {profile}}}\n");
    TestApp::in_directory(directory, &yaml).await
}

async fn ask(app: &TestApp) -> (u16, Value) {
    let body = json!({"model": "main", "messages": [{"role": "user", "content": "Is it warm?"}]});
    let (status, completion) = answer(app.post("/v1/chat/completions").json(&body)).await;
    (status.as_u16(), completion)
}

/// The record of the days, once it has so many tokens: it is some milliseconds behind.
async fn usage(app: &TestApp, tokens: u64) -> Vec<Value> {
    until(async || {
        let (_, list) = answer(app.get("/admin/usage?days=2")).await;
        let items = list["items"].as_array()?.clone();
        let of_callers = items.iter().filter(|item| !item["caller"].is_null());
        let all: u64 = of_callers.filter_map(|item| item["tokens"].as_u64()).sum();
        (all == tokens).then_some(items)
    })
    .await
}

#[tokio::test]
async fn the_tokens_of_models_end_at_the_budget_of_a_day() {
    let app = app("budget: {max_tokens_per_caller_per_day: 10060}").await;
    for _ in 0..2 {
        assert_eq!(ask(&app).await.0, 200);
    }
    // 40 are left of the day, and an answer may have 100.
    let (status, refused) = ask(&app).await;
    assert_ne!(status, 200, "{refused}");
    assert!(refused.to_string().contains("max_tokens_per_caller_per_day"), "{refused}");
    assert_eq!(app.gateway.pipeline.budget.held().tokens, 0);
}

#[tokio::test]
async fn what_models_used_is_listed_by_day_agent_provider_and_model() {
    let app = app("").await;
    for _ in 0..2 {
        assert_eq!(ask(&app).await.0, 200);
    }
    let items = usage(&app, 10_020).await;
    assert!(!items.is_empty());
    for item in items {
        let turns: u64 = item["models"].as_array().unwrap().iter().map(|model| model["turns"].as_u64().unwrap()).sum();
        let model = &item["models"][0];
        assert_eq!((&model["agent"], &model["provider"]), (&json!("main"), &json!("replay")), "{item}");
        assert!(model["model"].as_str().unwrap().ends_with("script.yaml"), "{item}");
        let counts =
            ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"].map(|name| model[name].as_u64());
        // At midnight in UTC the turns are of two days.
        assert_eq!(counts, [Some(5_000 * turns), Some(10 * turns), Some(0), Some(0)], "{item}");
        assert_eq!((&item["tokens"], &model["cost_usd"]), (&json!(5_010 * turns), &json!("0")), "{item}");
    }
}

#[tokio::test]
async fn the_page_of_a_model_has_its_exact_cost_of_each_day() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("script.yaml");
    std::fs::write(&file, SCRIPT).unwrap();
    let prices = "price_per_million_prompt_tokens: '1', price_per_million_completion_tokens: '1'";
    let yaml = format!(
        "auth: {{anonymous: never, api_keys: [{{id: root, key: key-of-root, roles: [admin]}}]}}\n\
         console: {{roles: {{admin: [admin]}}}}\n\
         agent:\n  default_profile: main\n  models: {{priced: {{profile: main}}, other: {{model: none}}}}\n  \
         profiles: {{main: {{provider: replay, model: {}, max_tokens: 100, tools: {{exclude: ['*']}}, {prices}}}}}\n",
        file.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let body = json!({"model": "main", "messages": [{"role": "user", "content": "Is it warm?"}]});
    let (status, reply) = answer(app.post("/v1/chat/completions").bearer_auth("key-of-root").json(&body)).await;
    assert_eq!(status.as_u16(), 200, "{reply}");
    let root = Browser::signed_in(&app, "key-of-root").await;
    // The store is some hundred milliseconds behind.
    let page = page_with(&root, "/console/models/priced", "$0.00501</title>").await;
    check_markup(&page);
    let other = root.page("/console/models/other").await;
    assert!(!other.contains("class=\"plot\""), "{other}");
}
