use serde_json::json;

use super::*;
use crate::audit;
use crate::call::ToolOutput;
use crate::pipeline::tests::{Checkpoint, Scripted, call, cents};

fn checkpoint() -> Checkpoint {
    Checkpoint::around(Scripted::answering(|_| Ok(ToolOutput::from(json!("fine")))))
}

/// What the stages have come to when the tool has answered.
fn accepted(checkpoint: &Checkpoint) -> Accepted {
    let tool = checkpoint.tool();
    let hold = checkpoint.pipeline.budget.reserve(&call(), &tool).unwrap();
    tool.accept(json!("fine").into(), hold).unwrap()
}

#[tokio::test]
async fn a_dropped_entry_is_settled_as_cancelled_once() {
    let checkpoint = checkpoint();
    let call = call();
    let mut entry = checkpoint.pipeline.settlement.open(&call, &Arguments::new()).unwrap();
    entry.at(Stage::Find, checkpoint.pipeline.registry.find("scripted")).unwrap();
    drop(entry);
    let metrics = checkpoint.pipeline.settlement.metrics.render();
    assert!(metrics.contains(r#"test_tool_executions_total{status="cancelled",tool_name="scripted"} 1"#), "{metrics}");
    assert!(metrics.contains("test_calls_in_flight 0"));
    let lines = checkpoint.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["status"], &lines[0]["code"]), (&json!("cancelled"), &json!("cancelled")));
}

#[tokio::test]
async fn a_settled_entry_is_not_settled_again_by_its_drop() {
    let checkpoint = checkpoint();
    let call = call();
    let entry = checkpoint.pipeline.settlement.open(&call, &Arguments::new()).unwrap();
    let reply = entry.settle(Ok(accepted(&checkpoint))).await;
    assert_eq!((reply.cost_usd, reply.outcome.unwrap().output), (cents(10), json!("fine")));
    let lines = checkpoint.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["status"], "success");
}

/// The tool has run, so that the reply must say so: with an idempotency key it would run twice.
#[tokio::test]
async fn under_strict_durability_a_full_disk_fails_the_call_that_ran() {
    let checkpoint = checkpoint();
    let metrics = Arc::clone(&checkpoint.pipeline.settlement.metrics);
    let call = call();
    for (outcome, ran) in [
        (Ok(accepted(&checkpoint)), true),
        (Err(CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy)), false),
    ] {
        let settlement = Settlement { metrics: Arc::clone(&metrics), audit: audit::tests::strict_on_a_full_disk() };
        let reply = settlement.open(&call, &Arguments::new()).unwrap().settle(outcome).await;
        assert_eq!(reply.outcome.as_ref().unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(reply.was_executed(), ran);
    }
}
