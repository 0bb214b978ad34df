use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::pipeline::tests::{Checkpoint, HandsOver, Scripted, call, cents, failure};
use crate::tool::Metadata;
use sekisho_audit::faulty_disk::strict_on_a_full_disk;
use sekisho_config::Config;
use sekisho_core::call::{BudgetScopes, CallBody, CallCharging, Caller, Via};
use sekisho_core::coercion::Coercion;
use sekisho_core::error::Blame;

fn checkpoint() -> Checkpoint {
    Checkpoint::around(Scripted::answering(|_| Ok(ToolOutput::from(json!("fine")))))
}

/// The result of the stages after the tool has answered.
fn accepted(checkpoint: &Checkpoint) -> Accepted {
    let tool = checkpoint.tool();
    let hold = checkpoint.pipeline.budget.reserve(&call(), &tool).now_or_never().unwrap().unwrap();
    let checked = check(&call(), &tool, json!("fine").into(), hold.max_text_tokens(), &[]);
    accept(Via::Rest, &tool, checked, hold).unwrap()
}

#[tokio::test]
async fn a_dropped_scope_is_settled_as_cancelled_once() {
    let checkpoint = checkpoint();
    let call = call();
    let mut scope = checkpoint.pipeline.settlement.open(&call, &Arguments::new()).unwrap();
    scope.record(Stage::Find, checkpoint.pipeline.registry.find("scripted", &Caller::anonymous())).unwrap();
    drop(scope);
    let metrics = checkpoint.pipeline.settlement.metrics.render();
    assert!(metrics.contains(r#"test_tool_executions_total{status="cancelled",tool_name="scripted"} 1"#), "{metrics}");
    assert!(metrics.contains("test_calls_in_flight 0"));
    let lines = checkpoint.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["status"], &lines[0]["code"]), (&json!("cancelled"), &json!("cancelled")));
}

#[tokio::test]
async fn a_settled_scope_is_not_settled_again_when_dropped() {
    let checkpoint = checkpoint();
    let call = call();
    let scope = checkpoint.pipeline.settlement.open(&call, &Arguments::new()).unwrap();
    let reply = scope.settle(Ok(accepted(&checkpoint))).await;
    assert_eq!((reply.cost_usd, reply.outcome.unwrap().output), (cents(10), json!("fine")));
    let lines = checkpoint.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["status"], "success");
}

/// The tool has run, and the reply must show it. Otherwise a call with an idempotency key would run twice.
#[tokio::test]
async fn under_strict_durability_a_full_disk_fails_the_call_that_ran() {
    let checkpoint = checkpoint();
    let metrics = Arc::clone(&checkpoint.pipeline.settlement.metrics);
    let call = call();
    for (outcome, ran) in [
        (Ok(accepted(&checkpoint)), true),
        (Err(CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy)), false),
    ] {
        let settlement = Settlement::new(Arc::clone(&metrics), strict_on_a_full_disk(), &ContentConfig::default());
        let reply = settlement.open(&call, &Arguments::new()).unwrap().settle(outcome).await;
        assert_eq!(reply.outcome.as_ref().unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(reply.outcome.unwrap_err().stage() == Some(Stage::Accept), ran);
    }
}

/// How a call without an output ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    CallerLeaves,
    Timeout,
    Upstream,
    Network,
    Tool,
    Panic,
}

#[tokio::test]
async fn corrections_of_a_call_are_in_its_receipt() {
    let checkpoint = checkpoint();
    let corrections = vec![Coercion::of_name("functions.Scripted", "scripted"), Coercion::decoded_twice()];
    let call = CallContext { body: CallBody { corrections, ..CallBody::default() }, ..call() };
    let answered = checkpoint.pipeline.call(call, Arguments::new()).await;
    let receipt = serde_json::to_value(&*answered.reply).unwrap()["receipt"].take();
    let expected = json!([
        {"path": "", "rule": "tool_name", "from": "functions.Scripted", "to": "scripted"},
        {"path": "", "rule": "decoded_twice", "from": "string", "to": "object"},
    ]);
    assert_eq!(receipt["coercions"], expected);
}

/// The rest of a request's budget (cents and tokens), and the cost of the call in the audit trail.
async fn what_is_left(hands_over: HandsOver, end: End) -> (Decimal, u64, serde_json::Value) {
    let answer = move |_| match end {
        End::CallerLeaves | End::Timeout | End::Panic => panic!("the tool does not answer in this case"),
        End::Upstream => Err(failure(Blame::Upstream)),
        End::Network => Err(failure(Blame::Network)),
        End::Tool => Err(CallError::tool("no")),
    };
    let takes = if end == End::Panic { 0 } else { 5 };
    let script = Scripted { takes: Duration::from_secs(takes), hands_over, ..Scripted::answering(answer) };
    let timeout_seconds = if end == End::Timeout { 2 } else { 60 };
    let metadata = Metadata { timeout_seconds, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&Config::default(), metadata, script);
    let scopes = BudgetScopes { request: Some("r".into()), ..BudgetScopes::default() };
    let call =
        || CallContext { charging: CallCharging { scopes: scopes.clone(), ..CallCharging::default() }, ..call() };
    tokio::select! {
        _ = checkpoint.pipeline.call(call(), Arguments::new()) => assert_ne!(end, End::CallerLeaves),
        () = async {
            sleep(Duration::from_secs(1)).await;
            if end != End::CallerLeaves {
                pending::<()>().await;
            }
        } => assert_eq!(end, End::CallerLeaves),
    }
    let budget = &checkpoint.pipeline.budget;
    assert_eq!((budget.held().cost_usd, budget.held().tokens), (Decimal::ZERO, 0), "the hold is released");
    let left = budget.check(&call(), &checkpoint.tool()).unwrap();
    let line = checkpoint.lines().await.remove(0);
    (left.cost_usd, left.tokens, line["cost_usd"].clone())
}

/// A call that was sent is charged however it ends. A call that was not sent, or that an internal error ended, is not.
#[tokio::test(start_paused = true)]
async fn a_call_costs_its_price_from_the_moment_it_was_sent() {
    use End::{CallerLeaves, Network, Panic, Timeout, Tool, Upstream};
    let all = [CallerLeaves, Timeout, Upstream, Network, Tool, Panic];
    let of_our_own = [CallerLeaves, Timeout, Tool];
    for (hands_over, paid) in
        [(HandsOver::Later, &[][..]), (HandsOver::AtOnce, &all[..]), (HandsOver::Nothing, &of_our_own[..])]
    {
        for end in all {
            let (cost, recorded) = if paid.contains(&end) { (10, "0.10") } else { (0, "0") };
            let expected = (cents(50 - cost), 5_000, json!(recorded));
            assert_eq!(what_is_left(hands_over, end).await, expected, "{hands_over:?} {end:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_refusals_of_one_kind_have_one_line() {
    let checkpoint = checkpoint();
    let settlement = &checkpoint.pipeline.settlement;
    let refuse = async |caller: &str, code: ErrorCode| {
        let call = CallContext { caller: Caller::new(caller, "acme", Vec::new()).into(), ..call() };
        let error = CallError::new(code, "no").at_stage(Stage::Limits);
        settlement.open(&call, &Arguments::new()).unwrap().settle(Err(error)).await;
        call.id
    };
    for code in [ErrorCode::Denied, ErrorCode::ApprovalRequired, ErrorCode::BudgetExceeded] {
        for _ in 0..20 {
            refuse("ann", code).await;
        }
    }
    let mut calls = Vec::new();
    for _ in 0..100 {
        calls.push(refuse("ann", ErrorCode::RateLimited).await.to_string());
    }
    refuse("bob", ErrorCode::RateLimited).await;
    refuse("ann", ErrorCode::Overloaded).await;
    settlement.write_refusals();
    sleep(super::super::REFUSALS_WINDOW).await;
    // The next one writes the line of the window before; the lines of this window are written at the end.
    for _ in 0..12 {
        calls.push(refuse("ann", ErrorCode::RateLimited).await.to_string());
    }
    settlement.close().await;
    let lines = checkpoint.lines().await;
    let of = |code: &str| lines.iter().filter(|line| line["code"] == code).collect::<Vec<_>>();
    for code in ["denied", "approval_required", "budget_exceeded"] {
        assert_eq!(of(code).len(), 20, "{code}");
    }
    assert_eq!(of("overloaded").len(), 1);
    let limited = of("rate_limited");
    assert_eq!(limited.len(), 10 + 1 + 1 + 10 + 1);
    let together: Vec<_> = limited.into_iter().filter(|line| line.get("calls").is_some()).collect();
    let counts = together.iter().map(|line| (&line["calls"], &line["call_id"], &line["last_call_id"]));
    let expected = [(json!(90), json!(calls[10]), json!(calls[99])), (json!(2), json!(calls[110]), json!(calls[111]))];
    assert_eq!(
        counts.collect::<Vec<_>>(),
        expected.iter().map(|(n, first, last)| (n, first, last)).collect::<Vec<_>>()
    );
}
