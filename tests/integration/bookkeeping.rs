//! The costs of runs of agents, and keys that are stored nowhere, with a model server in this process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use sekisho::Caller;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::app::{TestApp, answer, code, config, degraded};
use crate::lock::until;
use crate::sent_turns::{SentTurns, append_only};

const CANARY: &str = "sk-canary-5d41402abc4b2a76";

/// Serves what OpenAI's API would stream, or an error that repeats the key it was sent.
async fn model_server(events: Vec<Value>, status: StatusCode) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>() + "data: [DONE]\n\n";
    let respond = move |State(asked): State<Arc<AtomicUsize>>, headers: HeaderMap| async move {
        asked.fetch_add(1, Ordering::SeqCst);
        let key = headers["authorization"].to_str().unwrap().to_owned();
        let body = if status.is_success() { body } else { json!({"error": {"message": key}}).to_string() };
        (status, [("content-type", "text/event-stream")], body)
    };
    let router = append_only(Router::new().fallback(respond).with_state(Arc::clone(&asked)), SentTurns::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, asked)
}

fn reported(text: &str, prompt_tokens: u64, completion_tokens: u64) -> Vec<Value> {
    vec![
        json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}}),
    ]
}

/// One agent, for a dollar a thousand tokens of its answers, and a cent a thousand of what it is sent.
async fn gateway(model: SocketAddr) -> TestApp {
    let profile = format!(
        "{{provider: openai, model: m, base_url: 'http://{model}/v1', api_key: {CANARY}, retries: 0, max_tokens: 100, \
         price_per_million_prompt_tokens: 10, price_per_million_completion_tokens: 1000}}"
    );
    TestApp::with(&format!("agent: {{default_profile: paid, profiles: {{paid: {profile}}}}}")).await
}

fn asked() -> Value {
    json!({"model": "paid", "messages": [{"role": "user", "content": "hi"}]})
}

/// Waits until so many runs have ended with an answer, for that money in all.
async fn ended(app: &TestApp, runs: u32, cost: f64) {
    until(async || {
        let ended = app.metric(r#"shannon_agent_runs_total{agent="paid",reason="stop"}"#).await;
        let spent = app.metric(r#"shannon_agent_run_cost_usd_sum{agent="paid"}"#).await;
        (ended >= f64::from(runs) && (spent - cost).abs() < 1e-9).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_run_is_counted_in_the_metrics() {
    let (model, _) = model_server(reported("hello", 30, 20), StatusCode::OK).await;
    let app = gateway(model).await;
    let (status, reply) = answer(app.post("/v1/chat/completions").json(&asked())).await;
    assert_eq!((status.as_u16(), &reply["usage"]["total_tokens"]), (200, &json!(50)), "{reply}");
    ended(&app, 1, 0.0203).await;
    assert_eq!(app.metric(r#"shannon_agent_turns_total{agent="paid"}"#).await, 1.0);
    for (direction, tokens) in [("input", 30.0), ("output", 20.0)] {
        let line = format!("shannon_agent_tokens_total{{agent=\"paid\",direction=\"{direction}\"}}");
        assert_eq!(app.metric(&line).await, tokens, "{direction}");
    }
}

#[tokio::test]
async fn an_exhausted_request_budget_ends_a_run_before_the_model_request() {
    let (model, asked_times) = model_server(reported("hello", 200, 400), StatusCode::OK).await;
    let app = gateway(model).await;
    let ask = async || answer(app.post("/v1/chat/completions").header("x-request-id", "r").json(&asked())).await;
    assert_eq!(ask().await.0, 200);
    let (status, reply) = ask().await;
    assert_eq!((status.as_u16(), code(&reply)), (402, "budget_exceeded"), "less is left than a turn may cost: {reply}");
    assert_eq!(asked_times.load(Ordering::SeqCst), 1);
    let other = app.post("/v1/chat/completions").json(&asked());
    assert_eq!(answer(other).await.0, 200, "another request has money of its own");
}

/// One agent, whose model may have a price in the list, under these budgets.
fn bounded(model: SocketAddr, name: &str, budget: &str, prices: &str) -> String {
    let profile = format!("{{provider: openai, model: {name}, base_url: 'http://{model}/v1', api_key: k{prices}}}");
    format!("budget: {budget}\nagent: {{default_profile: paid, profiles: {{paid: {profile}}}}}")
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_under_a_daily_budget() {
    let (model, asked_times) = model_server(reported("hello", 30, 20), StatusCode::OK).await;
    for limit in ["max_cost_per_caller_per_day", "max_cost_per_tenant_per_day"] {
        let budget = format!("{{{limit}: 5}}");
        let app = TestApp::with(&bounded(model, "nobody-knows", &budget, "")).await;
        let reported = degraded(&app).await["agent.prices"].as_str().unwrap().to_owned();
        assert!(reported.contains("`agent.profiles.paid`") && reported.contains(limit), "{reported}");
        let mut streamed = asked();
        streamed["stream"] = true.into();
        for request in [
            app.post("/v1/chat/completions").json(&asked()),
            app.post("/v1/chat/completions").json(&streamed),
            app.post("/api/chat").json(&json!({"message": "hi"})),
            app.get("/api/chat/stream?message=hi"),
        ] {
            let (status, reply) = answer(request).await;
            assert_eq!((status.as_u16(), code(&reply)), (402, "budget_exceeded"), "{reply}");
            for key in ["price_per_million_prompt_tokens", "price_per_million_completion_tokens", limit] {
                assert!(reply.to_string().contains(key), "{key}: {reply}");
            }
        }
        let (_, selected) = answer(app.post("/tools/select").json(&json!({"task": "calculate"}))).await;
        assert_eq!(selected["provider_used"], "search", "{selected}");
        assert_eq!(asked_times.load(Ordering::SeqCst), 0);
        // Written out as 0 it is free.
        let prices = ", price_per_million_prompt_tokens: 0, price_per_million_completion_tokens: 0";
        app.gateway.reload(config(&app.directory, &bounded(model, "nobody-knows", &budget, prices))).await;
        assert_eq!(degraded(&app).await.get("agent.prices"), None);
        assert_eq!(answer(app.post("/v1/chat/completions").json(&asked())).await.0, 200);
        // And a reload that takes the price away refuses again.
        app.gateway.reload(config(&app.directory, &bounded(model, "nobody-knows", &budget, ""))).await;
        assert!(degraded(&app).await["agent.prices"].is_string());
        assert_eq!(answer(app.post("/v1/chat/completions").json(&asked())).await.0, 402);
        assert_eq!(asked_times.swap(0, Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_request_bound_alone_refuses_no_model_for_its_price() {
    let (model, _) = model_server(reported("hello", 30, 20), StatusCode::OK).await;
    for budget in ["{}", "{max_cost_per_request: 0.01}"] {
        let app = TestApp::with(&bounded(model, "nobody-knows", budget, "")).await;
        assert_eq!(degraded(&app).await.get("agent.prices"), None);
        let (status, reply) = answer(app.post("/v1/chat/completions").json(&asked())).await;
        assert_eq!(status, 200, "{reply}");
        ended(&app, 1, 0.0).await;
    }
}

#[tokio::test]
async fn a_listed_model_is_charged_whichever_it_is_and_ends_with_the_days_money() {
    for (name, cost) in [("gpt-4.1", 0.08), ("gpt-5-2025-08-07", 0.1), ("claude-opus-4-5-20251101", 0.25)] {
        let (model, asked_times) = model_server(reported("hello", 0, 10_000), StatusCode::OK).await;
        let app = TestApp::with(&bounded(model, name, "{max_cost_per_caller_per_day: 0.3}", "")).await;
        assert_eq!(degraded(&app).await.get("agent.prices"), None);
        let ask = async || answer(app.post("/v1/chat/completions").json(&asked())).await.0.as_u16();
        let mut answers = Vec::new();
        while answers.len() < 10 && answers.last() != Some(&402) {
            answers.push(ask().await);
        }
        assert_eq!(answers.pop(), Some(402), "{name}: {answers:?}");
        assert_eq!(asked_times.load(Ordering::SeqCst), answers.len(), "{name}");
        let runs = u32::try_from(answers.len()).unwrap();
        ended(&app, runs, cost * f64::from(runs)).await;
    }
}

#[tokio::test]
async fn a_key_is_nowhere_but_where_it_is_sent() {
    for status in [StatusCode::OK, StatusCode::UNAUTHORIZED, StatusCode::INTERNAL_SERVER_ERROR] {
        let (model, _) = model_server(reported("hello", 3, 2), status).await;
        let app = gateway(model).await;
        let mut seen = String::new();
        for request in [
            app.post("/v1/chat/completions").json(&asked()),
            app.post("/api/chat").json(&json!({"message": "hi"})),
            app.get("/api/chat/stream?message=hi"),
            app.get("/v1/models"),
            app.get("/metrics"),
            app.get("/readyz"),
        ] {
            seen += &request.send().await.unwrap().text().await.unwrap();
        }
        let expected = if status.is_success() { "hello" } else { "the model's provider" };
        assert!(seen.contains(expected), "{seen}");
        let directory = app.stop().await;
        let mut files = vec![directory.path().join("state")];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                seen += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
            }
        }
        assert!(seen.contains("agent_runs") && !seen.contains("canary"), "{status}");
    }
}

/// Most tools are neither offered nor listed in the prompt.
#[tokio::test]
async fn a_model_with_few_tool_slots_is_offered_the_best_matches() {
    let asked = Arc::<Mutex<Vec<Value>>>::default();
    let kept = Arc::clone(&asked);
    let body: String = reported("42", 3, 2).iter().map(|event| format!("data: {event}\n\n")).collect();
    let respond = async move |request: Bytes| {
        kept.lock().unwrap().push(serde_json::from_slice(&request).unwrap());
        ([("content-type", "text/event-stream")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = listener.local_addr().unwrap();
    let router = append_only(Router::new().fallback(respond), SentTurns::default());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let profile = format!("{{provider: openai, model: m, base_url: 'http://{model}/v1', max_tools: 2}}");
    let app = TestApp::with(&format!("agent: {{default_profile: few, profiles: {{few: {profile}}}}}")).await;
    let question = "Which calculation gives the arithmetic result?";
    let body = json!({"model": "few", "messages": [{"role": "user", "content": question}]});
    assert_eq!(answer(app.post("/v1/chat/completions").json(&body)).await.0, 200);
    let sent = asked.lock().unwrap()[0].clone();
    let offered: Vec<_> =
        sent["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(offered.len() == 2 && offered.contains(&"calculator"), "{offered:?}");
    let prompt = sent["messages"][0]["content"].as_str().unwrap();
    assert_eq!(
        prompt.lines().filter(|line| offered.iter().any(|tool| line.starts_with(&format!("- {tool}:")))).count(),
        2
    );
    assert!(!prompt.contains("- sleep:"), "{prompt}");
    let usable = app.gateway.pipeline.tools_for(&Arc::new(Caller::anonymous())).usable().count();
    assert_eq!(app.metric(r#"shannon_agent_tools_left_out_total{agent="few"}"#).await, (usable - 2) as f64);
}

/// A66.
#[tokio::test]
async fn a_model_that_never_answers_is_a_gateway_timeout_after_three_more_attempts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = listener.local_addr().unwrap();
    let profile = format!("{{provider: openai, model: m, base_url: 'http://{model}/v1', timeout_seconds: 0.2}}");
    let app = TestApp::with(&format!("agent: {{default_profile: mute, profiles: {{mute: {profile}}}}}")).await;
    // All stay open until the reply is there.
    let connections = tokio::spawn(async move {
        let mut open = Vec::new();
        while open.len() < 4 {
            open.push(listener.accept().await.unwrap());
        }
        open
    });
    let body = json!({"model": "mute", "messages": [{"role": "user", "content": "hi"}]});
    let (status, reply) = answer(app.post("/v1/chat/completions").json(&body)).await;
    assert_eq!((status.as_u16(), code(&reply)), (504, "timeout"), "{reply}");
    assert_eq!(connections.await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run_which_counts_as_aborted() {
    let script = "turns: [{text: [slow], delay_seconds: 60}]";
    let app = crate::agents::with_scripts(&[("slow", script)]).await;
    let mut body = asked();
    body["model"] = "slow".into();
    let request = app.post("/v1/chat/completions").json(&body).timeout(Duration::from_millis(300));
    assert!(request.send().await.is_err());
    until(async || {
        let ended = app.metric(r#"shannon_agent_runs_total{agent="slow",reason="aborted"}"#).await;
        let turns = app.metric(r#"shannon_agent_turns_total{agent="slow"}"#).await;
        (ended == 1.0 && turns == 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn tools_are_selected_by_the_model_of_the_default_agent_where_there_is_one() {
    let script = "turns: []\nselection: [{id: a, tool: calculator, arguments: '{\"expression\": \"6*7\"}'}]";
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("select.yaml");
    std::fs::write(&file, script).unwrap();
    let profile = format!("{{provider: replay, model: {}}}", file.display());
    let yaml = format!("agent: {{default_profile: chooser, profiles: {{chooser: {profile}}}}}");
    let app = TestApp::in_directory(directory, &yaml).await;
    let select = async |task: &str| answer(app.post("/tools/select").json(&json!({"task": task}))).await.1;
    let chosen = select("calculate six times seven").await;
    assert_eq!(chosen["provider_used"], "chooser", "{chosen}");
    assert_eq!(chosen["selected_tools"], json!(["calculator"]));
    let call = json!({"tool_name": "calculator", "parameters": {"expression": "6*7"}});
    assert_eq!(chosen["calls"], json!([call]));
    std::fs::write(app.directory.path().join("select.yaml"), "turns: []").unwrap();
    assert_eq!(select("calculate six times seven").await["provider_used"], "search", "a model that does not say");
}
