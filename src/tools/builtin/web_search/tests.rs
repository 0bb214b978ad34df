//! Each provider's protocol, with a server on loopback that responds in the provider's format.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use sekisho_config::OutboundConfig;
use sekisho_core::call::{CallContext, Caller, Deadline, Via};
use sekisho_outbound::test_server;

/// A provider's received request, and the response it sends.
#[derive(Clone)]
struct Provider {
    received: Arc<Mutex<Option<Received>>>,
    answer: (StatusCode, Value),
}

#[derive(Clone)]
struct Received {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Provider {
    async fn serve(answer: (StatusCode, Value)) -> (Self, Url) {
        async fn take(
            State(provider): State<Provider>,
            method: Method,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> (StatusCode, axum::Json<Value>) {
            *provider.received.lock() = Some(Received { method, uri, headers, body });
            (provider.answer.0, axum::Json(provider.answer.1))
        }
        let provider = Self { received: Arc::default(), answer };
        let router = Router::new().fallback(take).with_state(provider.clone());
        let address = test_server::serve(router).await;
        (provider, Url::parse(&format!("http://{address}/")).unwrap())
    }

    fn received(&self) -> Received {
        self.received.lock().clone().expect("the provider received a request")
    }
}

fn config(provider: SearchProvider, base_url: Option<Url>) -> WebSearchConfig {
    WebSearchConfig { provider: Some(provider), api_key: Some(Secret::new("the-key")), base_url }
}

async fn search(config: &WebSearchConfig, arguments: Value) -> Result<ToolOutput, CallError> {
    // The default guard: the operator's own address is reached although it is on loopback.
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let tool = definition(config, &outbound).unwrap();
    let call = CallContext::new("web_search", Arc::new(Caller::anonymous()), Via::Rest);
    let attempt = Attempt {
        call: &call,
        deadline: Deadline::after(Duration::from_secs(20)),
        memory_limit_bytes: 128 << 20,
        max_output_bytes: 1 << 20,
    };
    let arguments = arguments.as_object().unwrap();
    assert!(jsonschema::validator_for(tool.parameters.document()).unwrap().is_valid(&Value::Object(arguments.clone())));
    let output = tool.executor.execute(attempt, arguments).await?;
    let schema = jsonschema::validator_for(&tool.output_schema.unwrap()).unwrap();
    assert!(schema.is_valid(&output.value), "{:#}", output.value);
    Ok(output)
}

fn found(provider: &str, published: &str) -> Value {
    json!({
        "query": "rust & go",
        "provider": provider,
        "results": [
            {"title": "One", "url": "https://one.example/", "snippet": "first", "published": published},
            {"title": "Two", "url": "https://two.example/", "snippet": ""},
        ],
    })
}

#[tokio::test]
async fn searxng_gets_a_json_request_below_its_base_address() {
    let (provider, mut base) = Provider::serve((
        StatusCode::OK,
        json!({"query": "rust & go", "number_of_results": 0, "answers": [], "results": [
            {"url": "https://one.example/", "title": "One", "content": "first", "engine": "duckduckgo",
             "publishedDate": "2024-05-01T00:00:00", "score": 4.0, "category": "general"},
            {"url": "https://two.example/", "title": "Two", "content": null, "publishedDate": null},
            {"answer": "of another form"},
            {"url": "https://three.example/", "title": "Three", "content": "beyond the requested number"},
        ]}),
    ))
    .await;
    base.set_path("/searxng");
    let config = config(SearchProvider::Searxng, Some(base));
    let output = search(&config, json!({"query": "rust & go", "max_results": 2})).await.unwrap();
    assert_eq!(output.value, found("searxng", "2024-05-01T00:00:00"));
    let received = provider.received();
    assert_eq!(
        (received.method, received.uri.to_string()),
        (Method::GET, "/searxng/search?q=rust+%26+go&format=json".into())
    );
    assert!(!received.headers.values().any(|value| value.as_bytes().ends_with(b"the-key")), "it needs no key");
}

#[tokio::test]
async fn brave_gets_its_subscription_token() {
    let (provider, base) = Provider::serve((
        StatusCode::OK,
        json!({"type": "search", "query": {"original": "rust & go"}, "web": {"type": "search", "results": [
            {"title": "One", "url": "https://one.example/", "description": "first", "page_age": "2024-05-01T00:00:00",
             "age": "May 1, 2024", "profile": {"name": "one"}},
            {"title": "Two", "url": "https://two.example/"},
        ]}}),
    ))
    .await;
    let output = search(&config(SearchProvider::Brave, Some(base)), json!({"query": "rust & go"})).await.unwrap();
    assert_eq!(output.value, found("brave", "2024-05-01T00:00:00"));
    assert_eq!(
        output.text.unwrap(),
        "[1] One (2024-05-01T00:00:00)\nhttps://one.example/\nfirst\n\n[2] Two\nhttps://two.example/\n\n"
    );
    let received = provider.received();
    assert_eq!(received.method, Method::GET);
    assert_eq!(received.uri, "/res/v1/web/search?q=rust+%26+go&count=5&text_decorations=false");
    assert_eq!(received.headers["x-subscription-token"], "the-key");
    assert_eq!(received.headers["accept"], "application/json");
}

#[tokio::test]
async fn tavily_gets_a_bearer_token() {
    let (provider, base) = Provider::serve((
        StatusCode::OK,
        json!({"query": "rust & go", "follow_up_questions": null, "answer": null, "images": [], "results": [
            {"title": "One", "url": "https://one.example/", "content": "first", "score": 0.9,
             "published_date": "Wed, 01 May 2024 00:00:00 GMT", "raw_content": null},
            {"title": "Two", "url": "https://two.example/", "content": ""},
        ], "response_time": 1.2}),
    ))
    .await;
    let config = config(SearchProvider::Tavily, Some(base));
    let output = search(&config, json!({"query": "rust & go", "max_results": 20})).await.unwrap();
    assert_eq!(output.value, found("tavily", "Wed, 01 May 2024 00:00:00 GMT"));
    let received = provider.received();
    assert_eq!((received.method, received.uri.path()), (Method::POST, "/search"));
    assert_eq!(received.headers["authorization"], "Bearer the-key");
    assert_eq!(received.headers["content-type"], "application/json");
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body, json!({"query": "rust & go", "max_results": 20}));
}

#[tokio::test]
async fn serper_gets_its_key_header() {
    let (provider, base) = Provider::serve((
        StatusCode::OK,
        json!({"searchParameters": {"q": "rust & go", "type": "search", "engine": "google"}, "credits": 1, "organic": [
            {"title": "One", "link": "https://one.example/", "snippet": "first", "date": "May 1, 2024", "position": 1},
            {"title": "Two", "link": "https://two.example/", "position": 2},
        ]}),
    ))
    .await;
    let output = search(&config(SearchProvider::Serper, Some(base)), json!({"query": "rust & go"})).await.unwrap();
    assert_eq!(output.value, found("serper", "May 1, 2024"));
    let received = provider.received();
    assert_eq!((received.method, received.uri.path()), (Method::POST, "/search"));
    assert_eq!(received.headers["x-api-key"], "the-key");
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body, json!({"q": "rust & go", "num": 5}));
}

#[tokio::test]
async fn a_search_without_hits_is_an_empty_list() {
    for (provider, answer) in [
        (SearchProvider::Searxng, json!({"results": []})),
        (SearchProvider::Brave, json!({"type": "search"})),
        (SearchProvider::Tavily, json!({"results": []})),
        (SearchProvider::Serper, json!({"searchParameters": {}})),
    ] {
        let (_, base) = Provider::serve((StatusCode::OK, answer)).await;
        let output = search(&config(provider, Some(base)), json!({"query": "x"})).await.unwrap();
        assert_eq!((&output.value["results"], output.text.as_deref()), (&json!([]), Some("No results.")));
    }
}

#[tokio::test]
async fn failures_blame_whom_they_should_and_never_show_the_key() {
    for (status, answer, code, blame) in [
        (StatusCode::UNAUTHORIZED, json!({"message": "bad key"}), ErrorCode::ToolError, Blame::Call),
        (StatusCode::TOO_MANY_REQUESTS, json!({}), ErrorCode::UpstreamError, Blame::Call),
        (StatusCode::BAD_GATEWAY, json!({}), ErrorCode::UpstreamError, Blame::Upstream),
        (StatusCode::OK, json!(["another form"]), ErrorCode::UpstreamError, Blame::Upstream),
        (StatusCode::OK, json!({"results": "none", "web": 1, "organic": 2}), ErrorCode::UpstreamError, Blame::Upstream),
    ] {
        for provider in [SearchProvider::Searxng, SearchProvider::Brave, SearchProvider::Tavily, SearchProvider::Serper]
        {
            let (_, base) = Provider::serve((status, answer.clone())).await;
            let error = search(&config(provider, Some(base)), json!({"query": "x"})).await.unwrap_err();
            assert_eq!((error.code(), error.blame()), (code, blame), "{provider:?} {status} {answer}");
            assert!(!format!("{error:?}").contains("the-key"));
        }
    }
}

#[test]
fn without_its_settings_the_tool_is_not_offered_with_a_remedy() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let keyless = |provider| WebSearchConfig { api_key: None, ..config(provider, None) };
    for (config, says) in [
        (WebSearchConfig::default(), "add tools.web_search.provider"),
        (config(SearchProvider::Searxng, None), "add tools.web_search.base_url"),
        (config(SearchProvider::Searxng, Url::parse("ftp://x/").ok()), "must start with http"),
        (keyless(SearchProvider::Brave), "add tools.web_search.api_key"),
        (keyless(SearchProvider::Tavily), "add tools.web_search.api_key"),
        (WebSearchConfig { api_key: Some(Secret::new("a\nb")), ..keyless(SearchProvider::Serper) }, "characters"),
    ] {
        let unavailable = definition(&config, &outbound).unwrap_err();
        assert_eq!(unavailable.name, "web_search");
        assert!(unavailable.reason.contains(says), "{}", unavailable.reason);
    }
    for (provider, upstream) in [
        (SearchProvider::Brave, "https://api.search.brave.com:443"),
        (SearchProvider::Tavily, "https://api.tavily.com:443"),
        (SearchProvider::Serper, "https://google.serper.dev:443"),
    ] {
        let tool = definition(&config(provider, None), &outbound).unwrap();
        assert_eq!(&*tool.executor.upstream(&Arguments::new()).unwrap().name, upstream);
        assert_eq!((tool.metadata.rate_limit, tool.metadata.cost_per_use.to_string()), (120, "0.001".into()));
    }
}

/// E13 and E47.
#[test]
fn its_rate_and_its_price_are_those_of_the_specification() {
    let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
    let metadata = definition(&config(SearchProvider::Brave, None), &outbound).unwrap().metadata;
    assert_eq!((metadata.rate_limit, metadata.cost_per_use.to_string()), (120, "0.001".to_owned()));
}
