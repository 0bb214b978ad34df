//! Operations called as everybody calls them: through the checkpoint, breaker included.

use super::*;
use crate::gateway::Gateway;
use sekisho_calls::tool::{Source, SourceTools};
use sekisho_config::Config;
use sekisho_core::error::ErrorCode;

struct Pets(Api);

impl Source for Pets {
    fn name(&self) -> &str {
        "openapi:pets"
    }

    fn tools(&self) -> SourceTools {
        SourceTools { tools: tools(&self.0, &settings(json!({"rate_limit": 10_000}))), unavailable: Vec::new() }
    }
}

/// The code of the failure that each of so many calls ends with.
async fn codes(gateway: &Gateway, calls: usize) -> Vec<ErrorCode> {
    let mut codes = Vec::new();
    for _ in 0..calls {
        let call = CallContext::new("pets__create", Arc::new(Caller::anonymous()), Via::Rest);
        let answered = gateway.pipeline.call(call, Map::new()).await;
        codes.push(answered.reply.outcome.as_ref().unwrap_err().code());
    }
    codes
}

/// Fault 2: 4xx replies counted as outages.
#[tokio::test]
async fn a_404_never_opens_the_circuit_of_an_api_and_a_500_does() {
    let upstream = Upstream::start().await;
    let directory = tempfile::TempDir::new().unwrap();
    let config = Config { state_directory: Some(directory.path().join("state")), ..Config::default() };
    let source = Pets(upstream.api(vec![operation("create", Method::POST, "/pets")]));
    let gateway = Gateway::with_sources(config, vec![Box::new(source)]).await.unwrap();
    for _ in 0..30 {
        upstream.answers(404, "application/json", &json!({"message": "no such pet"}));
    }
    assert_eq!(codes(&gateway, 30).await, [ErrorCode::ToolError; 30]);
    for _ in 0..5 {
        upstream.answers(500, "application/json", "{}");
    }
    assert_eq!(codes(&gateway, 5).await, [ErrorCode::UpstreamError; 5]);
    assert_eq!(codes(&gateway, 1).await, [ErrorCode::CircuitOpen]);
    assert_eq!(upstream.requests().len(), 35, "an open circuit sends no requests");
    gateway.close().await;
}
