use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::pipeline::tests::{Checkpoint, Scripted, call, upstream};
use crate::tool::Metadata;
use sekisho_config::Config;
use sekisho_core::call::ToolOutput;
use sekisho_core::source_access::OnRequest;

fn checkpoint(metadata: Metadata) -> Checkpoint {
    let mut config = Config::default();
    config.breaker.consecutive_failures = 1;
    Checkpoint::with(&config, metadata, Scripted::answering(|_| Ok(ToolOutput::default())))
}

fn arguments(value: &serde_json::Value) -> Arguments {
    value.as_object().unwrap().clone()
}

/// Whether each stage passes, in order.
async fn verdicts(checkpoint: &Checkpoint, value: &serde_json::Value) -> Vec<(Stage, Option<bool>)> {
    let verdicts = checkpoint.pipeline.explain(&call(), arguments(value), None).await;
    assert!(verdicts.iter().all(|verdict| !verdict.because.is_empty()));
    verdicts.iter().map(|verdict| (verdict.stage, verdict.passes)).collect()
}

fn expected(validate: bool, policy: Option<bool>, breaker: bool) -> Vec<(Stage, Option<bool>)> {
    vec![
        (Stage::Find, Some(true)),
        (Stage::Limits, Some(true)),
        (Stage::Validate, Some(validate)),
        (Stage::Policy, policy),
        (Stage::Budget, Some(true)),
        (Stage::Breaker, Some(breaker)),
    ]
}

#[tokio::test]
async fn every_stage_is_checked_and_nothing_is_spent() {
    let checkpoint = checkpoint(Metadata::default());
    for _ in 0..1_000 {
        assert_eq!(verdicts(&checkpoint, &json!({"n": "3"})).await, expected(true, Some(true), true));
    }
    let Pipeline { budget, limits, breakers, .. } = &*checkpoint.pipeline;
    assert_eq!((budget.held().tokens, limits.in_flight(), checkpoint.runs()), (0, 0, 0));
    assert!(breakers.admit(Some(upstream()), "acme").is_ok());
    assert!(
        limits.admit(&call(), &checkpoint.tool()).await.is_ok(),
        "explaining more than sixty calls does not use up the rate limit"
    );
}

#[tokio::test]
async fn a_missing_tool_ends_the_explanation() {
    let unknown = sekisho_core::call::CallContext { tool: "nothing".into(), ..call() };
    let verdicts = checkpoint(Metadata::default()).pipeline.explain(&unknown, Arguments::new(), None).await;
    assert_eq!((verdicts.len(), verdicts[0].passes), (1, Some(false)));
    assert!(verdicts[0].because.starts_with("unknown_tool: "), "{}", verdicts[0].because);
}

#[tokio::test]
async fn policies_are_not_evaluated_for_invalid_arguments() {
    let checkpoint = checkpoint(Metadata::default());
    assert_eq!(verdicts(&checkpoint, &json!({"n": []})).await, expected(false, None, true));
}

#[tokio::test]
async fn a_denial_has_its_reason_and_the_later_stages_are_still_checked() {
    let checkpoint = checkpoint(Metadata { dangerous: true, ..Metadata::default() });
    let verdicts = checkpoint.pipeline.explain(&call(), Arguments::new(), None).await;
    assert_eq!((verdicts[3].passes, verdicts.len()), (Some(false), 6));
    let because = &verdicts[3].because;
    for part in ["denied: ", "the caller needs the role operator", "the tool's own `dangerous`", "permits it"] {
        assert!(because.contains(part), "{part}: {because}");
    }
}

#[tokio::test]
async fn a_tool_hidden_from_the_caller_is_still_explained() {
    let roles = vec!["admin".to_owned()];
    let checkpoint = checkpoint(Metadata { roles, requires_auth: true, ..Metadata::default() });
    let verdicts = checkpoint.pipeline.explain(&call(), Arguments::new(), None).await;
    assert_eq!((verdicts[0].passes, verdicts[3].passes, verdicts.len()), (Some(false), Some(false), 6));
    let because = &verdicts[0].because;
    assert!(
        because.starts_with("unknown_tool: ") && because.contains("`roles`") && because.contains("admin"),
        "{because}"
    );
    assert!(verdicts[3].because.contains("the tool's own `roles`"), "{}", verdicts[3].because);
}

#[tokio::test]
async fn a_tool_of_a_source_that_is_off_is_explained_as_unknown() {
    let on_request = Some(OnRequest(Arc::default()));
    let checkpoint = checkpoint(Metadata { on_request, source: "mcp:git".into(), ..Metadata::default() });
    let verdicts = checkpoint.pipeline.explain(&call(), Arguments::new(), None).await;
    assert_eq!((verdicts[0].passes, verdicts[3].passes), (Some(false), Some(false)));
    let because = &verdicts[0].because;
    assert!(because.starts_with("unknown_tool: mcp:git") && because.contains("not switched on"), "{because}");
}

#[tokio::test]
async fn an_open_circuit_is_reported() {
    let checkpoint = checkpoint(Metadata::default());
    checkpoint.fail_upstream();
    assert_eq!(verdicts(&checkpoint, &json!({})).await, expected(true, Some(true), false));
}
