//! The memory of plans with a provider of embeddings: what the planner gets, and what becomes of failures.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::charges::served;

/// Speaks OpenAI's chat and embeddings.
#[derive(Clone, Default)]
struct Provider {
    /// Bodies of the requests for embeddings.
    embedded: Arc<Mutex<Vec<Value>>>,
    /// What the planner was asked when it made a plan anew.
    replanned: Arc<Mutex<String>>,
    /// How it answers requests for embeddings.
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone, Copy, Default)]
enum Answer {
    #[default]
    Vectors,
    /// Of so many dimensions from the second request on.
    OtherDimensions,
    Refused,
    Nonsense,
}

/// Many words that have no meaning here.
const FILLER: &str =
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore";

/// The results of the steps. The one about footwear shares no word with the goal.
const RESULTS: [&str; 6] = [
    "sandals and boots are in the third aisle",
    "the weather is fine and the wind is weak",
    "a train leaves in the morning at eight",
    "the museum is closed for a week",
    "the lake is frozen and people skate",
    "Error: the till does not answer",
];

impl Provider {
    async fn serve(answer: Answer) -> (Self, String) {
        let provider = Self { answer: Arc::new(Mutex::new(answer)), ..Self::default() };
        let router = Router::new()
            .route("/v1/embeddings", post(embeddings))
            .route("/v1/chat/completions", post(chat))
            .with_state(provider.clone());
        (provider, served(router).await)
    }
}

/// Footwear in one direction, all else in another.
async fn embeddings(State(provider): State<Provider>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    assert_eq!(headers["authorization"], "Bearer e-key");
    let mut embedded = provider.embedded.lock().unwrap();
    embedded.push(body.clone());
    let is_later = embedded.len() > 1;
    let answer = *provider.answer.lock().unwrap();
    let vector = |text: &str| {
        let is_footwear = ["shoes", "boots"].iter().any(|word| text.contains(word));
        let vector = if is_footwear { vec![1.0, 0.1] } else { vec![0.1, 1.0] };
        if is_later && matches!(answer, Answer::OtherDimensions) { [vector, vec![0.0]].concat() } else { vector }
    };
    let texts = body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    let items = texts.enumerate().map(|(index, text)| json!({"index": index, "embedding": vector(text)}));
    match answer {
        Answer::Refused => (StatusCode::UNAUTHORIZED, "the key e-key is not one of ours").into_response(),
        Answer::Nonsense => Json(json!({"data": "none"})).into_response(),
        Answer::Vectors | Answer::OtherDimensions => {
            // In another order than the texts.
            let data: Vec<_> = items.rev().collect();
            Json(json!({"data": data, "usage": {"prompt_tokens": 1_000}})).into_response()
        }
    }
}

/// Plans six steps, each of which gives a result; the last one fails, and what remains is planned anew.
async fn chat(State(provider): State<Provider>, Json(body): Json<Value>) -> Response {
    let messages = body["messages"].to_string();
    let steps = |names: &[&str]| json!({"steps": names, "success_criteria": "bought"}).to_string();
    let step = RESULTS.iter().enumerate().position(|(number, _)| messages.contains(&format!("Step:\\nstep-{number}")));
    let text = if let Some(step) = step {
        format!("{} {FILLER}", RESULTS[step])
    } else if messages.contains("Why the plan must change") {
        *provider.replanned.lock().unwrap() = messages;
        steps(&["step-0"])
    } else if messages.contains("You plan how a goal is reached") {
        steps(&["step-0", "step-1", "step-2", "step-3", "step-4", "step-5"])
    } else {
        "Bought.".to_owned()
    };
    let chunks = [
        json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ];
    let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
    ([("content-type", "text/event-stream")], body).into_response()
}

/// What the planner remembered when it planned anew, and the plan at its end.
async fn planned(provider: &Provider, url: &str, more: &str) -> (String, Value) {
    let planner = "{preset: steps, max_steps: 6, max_attempts: 1, memory_tokens: 330}";
    let app = TestApp::with(&format!(
        "agent: {{default_profile: buyer, embeddings: {{model: e, base_url: '{url}/v1', api_key: e-key{more}}}, \
         profiles: {{buyer: {{provider: openai, model: m, base_url: '{url}/v1', api_key: k, planner: {planner}}}}}}}"
    ))
    .await;
    let (status, plan) = answer(app.post("/api/plans").json(&json!({"goal": "Buy shoes"}))).await;
    assert_eq!(status, 201, "{plan}");
    let path = format!("/api/plans/{}", plan["id"].as_str().unwrap());
    let mut plan = plan;
    for _ in 0..1_000 {
        plan = answer(app.get(&path)).await.1;
        if plan["status"] != "running" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(plan["status"], "finished", "{plan}");
    (provider.replanned.lock().unwrap().clone(), plan)
}

#[tokio::test]
async fn a_planner_remembers_what_is_close_in_meaning_and_each_entry_is_embedded_once() {
    let (provider, url) = Provider::serve(Answer::Vectors).await;
    let (remembered, plan) = planned(&provider, &url, ", price_per_million_tokens: 100").await;
    assert!(remembered.contains("sandals and boots"), "{remembered}");
    let requests = provider.embedded.lock().unwrap().clone();
    assert!(!requests.is_empty());
    let texts = requests.iter().flat_map(|body| body["input"].as_array().unwrap().clone());
    let entries: Vec<_> = texts.filter(|text| !text.as_str().unwrap().starts_with("Buy shoes")).collect();
    let mut once = entries.clone();
    once.sort_by_key(Value::to_string);
    once.dedup();
    assert_eq!(once.len(), entries.len());
    assert_eq!(requests[0]["encoding_format"], "float");
    let cost: f64 = plan["usage"]["cost_usd"].to_string().trim_matches('"').parse().unwrap();
    let expected = 0.1 * requests.len() as f64;
    assert!((cost - expected).abs() < 1e-9, "{cost} in place of {expected}");
}

#[tokio::test]
async fn without_embeddings_that_can_be_used_the_memory_is_searched_by_its_words() {
    for answer in [Answer::Refused, Answer::Nonsense] {
        let (provider, url) = Provider::serve(answer).await;
        let (remembered, _) = planned(&provider, &url, "").await;
        assert!(remembered.contains("What happened so far"), "{remembered}");
        assert!(!remembered.contains("sandals and boots"), "no word of it is in the goal: {remembered}");
        assert!(!provider.embedded.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn vectors_of_other_dimensions_are_not_compared() {
    let (provider, url) = Provider::serve(Answer::OtherDimensions).await;
    let (remembered, _) = planned(&provider, &url, "").await;
    assert!(remembered.contains("What happened so far"), "the plan goes on: {remembered}");
}
