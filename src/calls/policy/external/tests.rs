use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value as Json, json};

use super::*;
use crate::policy::tests::{call_by, plain_tool};
use sekisho_config::{OutboundConfig, PolicyConfig};
use sekisho_core::error::ErrorCode;
use sekisho_outbound::test_server;

/// A service that answers every question alike, and keeps them.
#[derive(Clone)]
struct Service {
    url: String,
    asked: Arc<Mutex<Vec<Json>>>,
}

impl Service {
    async fn answering(status: StatusCode, answer: &'static str) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        let answer = post(move |body: Bytes| {
            kept.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            async move { (status, answer) }
        });
        let address = test_server::serve(Router::new().route("/v1/data/tools", answer)).await;
        Self { url: format!("http://{address}/v1/data/tools"), asked }
    }

    fn policy(&self, send_arguments: bool) -> Policy {
        let external = ExternalPolicyConfig {
            url: self.url.parse().unwrap(),
            timeout_ms: 10_000,
            send_arguments,
            send_answers: false,
        };
        let policy = Policy::load(&PolicyConfig { external: Some(external), ..PolicyConfig::default() }).unwrap();
        policy.set_outbound(&Outbound::new(&OutboundConfig::default()).unwrap());
        policy
    }
}

async fn ask(policy: &Policy) -> Result<Authorized, CallError> {
    let (call, tool) = (call_by(&["clerk"]), plain_tool("calculator"));
    let arguments = json!({"iban": "DE89"}).as_object().cloned().unwrap();
    let authorized = policy.authorize(&call, &tool, tool.input.validate(arguments).unwrap()).unwrap();
    policy.ask_external(&call, &tool, authorized).await
}

#[tokio::test]
async fn its_reasons_deny_require_approval_or_change_nothing() {
    let service = Service::answering(StatusCode::OK, r#"{"result": {"deny": []}, "decision_id": "1"}"#).await;
    assert!(matches!(ask(&service.policy(false)).await, Ok(Authorized::Permitted(_))));

    let answer = r#"{"result": {"deny": ["closed", "late"], "require_approval": ["ask"], "other": {}}}"#;
    let service = Service::answering(StatusCode::OK, answer).await;
    let refused = ask(&service.policy(false)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (ErrorCode::Denied, "closed; late"));

    let service = Service::answering(StatusCode::OK, r#"{"result": {"deny": [], "require_approval": ["ask"]}}"#).await;
    let policy = service.policy(false);
    assert!(policy.asks_approval());
    let needed = ask(&policy).await.unwrap().without_approval().unwrap_err();
    assert_eq!((needed.code(), needed.message()), (ErrorCode::ApprovalRequired, "ask"));
}

#[tokio::test]
async fn without_a_usable_answer_the_call_is_denied_and_the_caller_does_not_get_the_details() {
    for (status, answer, cause) in [
        (StatusCode::OK, "{}", "no `result`"),
        (StatusCode::OK, r#"{"result": {"tools": {"deny": []}}}"#, "deny"),
        (StatusCode::OK, r#"{"result": {"deny": "all"}}"#, "not `{"),
        (StatusCode::OK, r#"{"result": {"deny": [1]}}"#, "not `{"),
        (StatusCode::OK, r#"{"result": true}"#, "not `{"),
        (StatusCode::OK, "<html>", "not `{"),
        (StatusCode::INTERNAL_SERVER_ERROR, r#"{"code": "internal_error"}"#, "500"),
        (StatusCode::FOUND, "", "302"),
    ] {
        let service = Service::answering(status, answer).await;
        let refused = ask(&service.policy(false)).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (ErrorCode::Denied, UNANSWERED), "{answer}");
        let found = refused.cause().unwrap();
        assert!(found.starts_with("policy.external: ") && found.contains(cause), "{answer}: {found}");
        assert!(service.policy(false).probe_external().await.is_err(), "{answer}");
    }
    let nobody = Service { url: "http://127.0.0.1:9/v1/data/tools".into(), asked: Arc::default() };
    assert_eq!(ask(&nobody.policy(false)).await.unwrap_err().message(), UNANSWERED);
}

#[tokio::test]
async fn it_gets_names_and_the_digest_and_the_arguments_only_if_it_may() {
    for send_arguments in [false, true] {
        let service = Service::answering(StatusCode::OK, r#"{"result": {"deny": []}}"#).await;
        ask(&service.policy(send_arguments)).await.unwrap();
        let asked = service.asked.lock().unwrap();
        let input = &asked[0]["input"];
        assert_eq!((&input["tool"], &input["user"]["roles"]), (&json!("calculator"), &json!(["clerk"])));
        assert_eq!((&input["call"]["dry_run"], &input["session"]), (&json!(false), &Json::Null));
        // SHA-256 of {"iban":"DE89"}.
        let digest = "879500cc4aec1b4e1986a52a6d1ea261d7632a645460a745a6945f6ae708a7bd";
        assert_eq!(input["arguments_sha256"], json!(digest));
        let arguments = send_arguments.then(|| json!({"iban": "DE89"}));
        assert_eq!(input.get("arguments"), arguments.as_ref());
        assert_eq!(asked[0].as_object().unwrap().len(), 1, "{asked:?}");
    }
}

#[tokio::test]
async fn a_gateway_without_one_asks_nobody() {
    let policy = Policy::load(&PolicyConfig::default()).unwrap();
    assert!(!policy.asks_external() && !policy.asks_approval());
    assert!(matches!(ask(&policy).await, Ok(Authorized::Permitted(_))));
    assert_eq!(policy.probe_external().await, Ok(()));
    // And one without a client permits nothing.
    let service = Service { url: "http://127.0.0.1:9/".into(), asked: Arc::default() };
    policy.external.reconfigure(service.policy(false).external.config.load().as_deref());
    assert_eq!(ask(&policy).await.unwrap_err().message(), UNANSWERED);
}
