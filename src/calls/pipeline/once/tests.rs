//! The life of a call that needs approval, through every stage.

mod effects;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;
use crate::approval::Judgement;
use crate::pipeline::Answered;
use crate::pipeline::tests::{Checkpoint, HandsOver, Scripted, call};
use crate::tool::Metadata;
use sekisho_config::{ApprovalRule, BudgetConfig, Config, PolicyConfig};
use sekisho_core::approval::{ApprovalScope, ApprovalState};
use sekisho_core::call::{CallOrigin, CallResumption, Caller, ToolOutput, Via};
use sekisho_core::until::until;
use sekisho_store::Store;
use sekisho_store::test_support::{age_approval, test_store};

fn always() -> Metadata {
    Metadata { approval: ApprovalRule::Always, ..Metadata::default() }
}

/// Answers with the number of the run.
fn counting() -> Scripted {
    Scripted::answering(|run| Ok(ToolOutput::from(json!(run))))
}

fn boss() -> Caller {
    Caller::new("boss", "acme", vec!["approver".to_owned()])
}

fn yes(scope: ApprovalScope, minutes: Option<u32>) -> Judgement {
    let (reason, arguments, arguments_sha256) = (String::new(), None, None);
    Judgement { approved: true, reason, scope, minutes, arguments, strike: Vec::new(), sent: None, arguments_sha256 }
}

fn arguments(n: impl Into<Value>) -> Arguments {
    Arguments::from_iter([("n".to_owned(), n.into())])
}

/// A call that names this approval.
fn with_approval(approval: Option<&Arc<str>>) -> CallContext {
    let resumption = CallResumption { approval: approval.cloned(), ..CallResumption::default() };
    CallContext { resumption, ..call() }
}

async fn send(checkpoint: &Checkpoint, approval: Option<&Arc<str>>, arguments: Arguments) -> Answered {
    checkpoint.pipeline.call(with_approval(approval), arguments).await
}

/// The output, or the error's code.
fn outcome(answered: &Answered) -> Result<Value, ErrorCode> {
    answered.reply.outcome.as_ref().map(|answer| answer.output.clone()).map_err(CallError::code)
}

/// The id of the approval that a call asks for.
async fn asked(checkpoint: &Checkpoint, arguments: Arguments) -> Arc<str> {
    let answered = send(checkpoint, None, arguments).await;
    assert_eq!(outcome(&answered), Err(ErrorCode::ApprovalRequired));
    Arc::clone(&answered.needed_approval().unwrap().id)
}

async fn approve(checkpoint: &Checkpoint, id: &str) {
    checkpoint.pipeline.approvals.decide(id, &boss(), &yes(ApprovalScope::Once, None)).await.unwrap();
}

async fn state_of(checkpoint: &Checkpoint, id: &str) -> ApprovalState {
    checkpoint.pipeline.approvals.find(id).await.unwrap().state
}

async fn on_disk() -> (TempDir, Store) {
    let folder = TempDir::new().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    (folder, store)
}

fn key() -> Config {
    let secrets = sekisho_config::SecretsConfig {
        key: Some(sekisho_config::Secret::new("0a".repeat(32))),
        ..sekisho_config::SecretsConfig::default()
    };
    Config { secrets, ..Config::default() }
}

#[tokio::test]
async fn a_call_that_needs_approval_gives_everything_back_and_runs_once_when_it_is_approved() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let id = asked(&checkpoint, arguments(3)).await;
    let Pipeline { limits, budget, .. } = &*checkpoint.pipeline;
    assert_eq!((limits.in_flight(), budget.held().cost_usd.is_zero()), (0, true));
    assert_eq!(asked(&checkpoint, arguments("3")).await, id, "the same call, as it is coerced");
    assert_ne!(asked(&checkpoint, arguments(4)).await, id);
    let early = send(&checkpoint, Some(&id), arguments(3)).await;
    assert_eq!(
        (outcome(&early), early.needed_approval().map(|needed| &needed.id)),
        (Err(ErrorCode::ApprovalRequired), Some(&id))
    );
    approve(&checkpoint, &id).await;
    let without = send(&checkpoint, None, arguments(3)).await;
    let error = without.reply.outcome.as_ref().unwrap_err();
    assert!(
        error
            .message()
            .contains(&format!("it is approved: send the same call again with the header `X-Approval-Id: {id}`"))
    );
    let first = send(&checkpoint, Some(&id), arguments("3")).await;
    assert_eq!((outcome(&first), first.replayed), (Ok(json!(1)), false));
    assert_eq!(state_of(&checkpoint, &id).await, ApprovalState::Done);
    let again = send(&checkpoint, Some(&id), arguments(3)).await;
    assert_eq!((outcome(&again), again.replayed, checkpoint.runs()), (Ok(json!(1)), true, 1));
    assert_ne!(asked(&checkpoint, arguments(3)).await, id, "another call needs another approval");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_retries_of_fifty_approvals_run_each_once() {
    let checkpoint = Checkpoint::with(&Config::default(), Metadata { rate_limit: 1_000_000, ..always() }, counting());
    let mut ids = Vec::new();
    for n in 0..50 {
        let id = asked(&checkpoint, arguments(n)).await;
        approve(&checkpoint, &id).await;
        ids.push(id);
    }
    let calls = (0..100).flat_map(|_| ids.iter().zip(0..50)).map(|(id, n)| {
        let (pipeline, id) = (Arc::clone(&checkpoint.pipeline), Arc::clone(id));
        tokio::spawn(async move { pipeline.call(with_approval(Some(&id)), arguments(n)).await })
    });
    let answers = join_all(calls).await;
    assert_eq!(checkpoint.runs(), 50);
    let outputs: Vec<_> = answers.iter().map(|answered| outcome(answered.as_ref().unwrap())).collect();
    let first = &outputs[..50];
    assert!(first.iter().all(Result::is_ok), "{first:?}");
    assert!(outputs.chunks(50).all(|outputs| outputs == first), "each gets the reply of its approval");
}

#[tokio::test]
async fn each_refusal_has_its_name_and_says_what_to_do() {
    let store = test_store().await;
    let checkpoint = Checkpoint::of_tool_on(&store, &key(), always(), counting()).await;
    let denied = asked(&checkpoint, arguments(1)).await;
    let no = Judgement { approved: false, reason: "not today".into(), ..yes(ApprovalScope::Once, None) };
    checkpoint.pipeline.approvals.decide(&denied, &boss(), &no).await.unwrap();
    let expired = asked(&checkpoint, arguments(2)).await;
    age_approval(&store, &expired, Duration::from_secs(3_601)).await;
    let late = asked(&checkpoint, arguments(3)).await;
    approve(&checkpoint, &late).await;
    age_approval(&store, &late, Duration::from_secs(3_601)).await;
    let approved = asked(&checkpoint, arguments(4)).await;
    approve(&checkpoint, &approved).await;
    for (id, n, code, says) in [
        (&denied, 1, ErrorCode::ApprovalDenied, "not today"),
        (&expired, 2, ErrorCode::ApprovalExpired, "expired"),
        (&late, 3, ErrorCode::ApprovalExpired, "expired"),
        (&approved, 5, ErrorCode::ApprovalMismatch, "other arguments"),
        (&Arc::from("none"), 4, ErrorCode::NotFound, "no such approval"),
    ] {
        let answered = send(&checkpoint, Some(id), arguments(n)).await;
        let error = answered.reply.outcome.as_ref().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(says), "{error}");
        assert!(error.message().contains("without `X-Approval-Id` to ask again"), "{error}");
    }
    let other =
        CallContext { caller: Arc::new(Caller::new("eve", "acme", Vec::new())), ..with_approval(Some(&approved)) };
    assert_eq!(outcome(&checkpoint.pipeline.call(other, arguments(4)).await), Err(ErrorCode::NotFound));
    // Another place to call from: an endpoint, or a key with a part of the tools.
    let narrowed = call().caller.tools.narrowed(vec!["*".to_owned()]);
    let caller = Arc::new(Caller { tools: narrowed, ..Caller::clone(&call().caller) });
    let elsewhere = CallContext { caller, ..with_approval(Some(&approved)) };
    let refused = checkpoint.pipeline.call(elsewhere, arguments(4)).await;
    assert_eq!(outcome(&refused), Err(ErrorCode::ApprovalMismatch));
    // The tool has changed since.
    let changed = Metadata { version: "2.0.0".into(), ..always() };
    let changed = Checkpoint::of_tool_on(&store, &key(), changed, counting()).await;
    assert_eq!(outcome(&send(&changed, Some(&approved), arguments(4)).await), Err(ErrorCode::ApprovalMismatch));
    assert_eq!((checkpoint.runs(), changed.runs()), (0, 0));
    assert_eq!(outcome(&send(&checkpoint, Some(&approved), arguments(4)).await), Ok(json!(1)));
}

fn policies(folder: &TempDir, rules: &str) -> PolicyConfig {
    std::fs::write(folder.path().join("tools.rego"), format!("package tools\n{rules}\n")).unwrap();
    PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() }
}

#[tokio::test]
async fn an_approval_satisfies_what_the_approver_was_shown_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let one = "deny[\"no\"] { false }\nrequire_approval[\"one\"] { true }";
    let config = Config {
        policy: policies(&folder, one),
        budget: BudgetConfig { max_cost_per_caller_per_day: Some("0.25".parse().unwrap()), ..BudgetConfig::default() },
        ..Config::default()
    };
    let checkpoint = Checkpoint::with(&config, Metadata::default(), counting());
    let policy = &checkpoint.pipeline.policy;
    let id = asked(&checkpoint, arguments(1)).await;
    approve(&checkpoint, &id).await;
    policy.reload(&policies(&folder, "deny[\"no\"] { true }\nrequire_approval[\"one\"] { true }")).unwrap();
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Err(ErrorCode::Denied));
    policy.reload(&policies(&folder, &format!("{one}\nrequire_approval[\"two\"] {{ true }}"))).unwrap();
    let again = send(&checkpoint, Some(&id), arguments(1)).await;
    assert_eq!(outcome(&again), Err(ErrorCode::ApprovalRequired));
    let second = Arc::clone(&again.needed_approval().unwrap().id);
    assert_ne!(second, id, "a reason that the approver was not shown asks again");
    let shown = checkpoint.pipeline.approvals.find(&second).await.unwrap().details;
    assert_eq!(shown.reasons, ["one", "two"]);
    // The approver may have been shown more than the call asks now.
    approve(&checkpoint, &second).await;
    policy.reload(&policies(&folder, "deny[\"no\"] { false }\nrequire_approval[\"two\"] { true }")).unwrap();
    assert_eq!(outcome(&send(&checkpoint, Some(&second), arguments(1)).await), Ok(json!(1)));
    // The budget of the moment counts: the first one still holds, and there is money for one call more.
    policy.reload(&policies(&folder, one)).unwrap();
    let third = asked(&checkpoint, arguments(3)).await;
    approve(&checkpoint, &third).await;
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(2)));
    assert_eq!(outcome(&send(&checkpoint, Some(&third), arguments(3)).await), Err(ErrorCode::BudgetExceeded));
    assert_eq!(state_of(&checkpoint, &third).await, ApprovalState::Approved, "it was not used");
}

#[tokio::test]
async fn what_the_policies_permit_by_now_uses_the_approval_up_all_the_same() {
    let folder = TempDir::new().unwrap();
    let config = Config {
        policy: policies(&folder, "deny[\"no\"] { false }\nrequire_approval[\"one\"] { true }"),
        ..Config::default()
    };
    let checkpoint = Checkpoint::with(&config, Metadata::default(), counting());
    let id = asked(&checkpoint, arguments(1)).await;
    approve(&checkpoint, &id).await;
    checkpoint.pipeline.policy.reload(&policies(&folder, "deny[\"no\"] { false }")).unwrap();
    for _ in 0..2 {
        assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(1)));
    }
    assert_eq!(state_of(&checkpoint, &id).await, ApprovalState::Done);
}

#[tokio::test]
async fn a_dry_run_asks_nobody() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let dry = checkpoint.pipeline.call(CallContext { dry_run: true, ..call() }, arguments(1)).await;
    assert_eq!((outcome(&dry), dry.needed_approval()), (Err(ErrorCode::ApprovalRequired), None));
    let error = dry.reply.outcome.as_ref().unwrap_err();
    assert!(error.message().contains("without `dry_run`"), "{error}");
}

#[tokio::test]
async fn arguments_have_a_bound() {
    let metadata = || Metadata { approval: ApprovalRule::Always, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&Config::default(), metadata(), counting());
    let large = Arguments::from_iter([("text".to_owned(), json!("x".repeat(256 << 10)))]);
    assert_eq!(outcome(&send(&checkpoint, None, large).await), Err(ErrorCode::TooLarge));
}

#[tokio::test]
async fn the_first_use_by_a_caller_is_approved_and_later_ones_pass() {
    let metadata = Metadata { approval: ApprovalRule::FirstUse, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&Config::default(), metadata, counting());
    let id = asked(&checkpoint, arguments(1)).await;
    approve(&checkpoint, &id).await;
    assert_eq!(asked(&checkpoint, arguments(2)).await.len(), 36, "approved is not used");
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(1)));
    assert_eq!(outcome(&send(&checkpoint, None, arguments(2)).await), Ok(json!(2)));
    let bob = CallContext { caller: Arc::new(Caller::new("bob", "acme", Vec::new())), ..call() };
    assert_eq!(outcome(&checkpoint.pipeline.call(bob, arguments(2)).await), Err(ErrorCode::ApprovalRequired));
}

#[tokio::test]
async fn an_approval_of_several_calls_needs_no_header_and_ends() {
    let store = test_store().await;
    let checkpoint = Checkpoint::of_tool_on(&store, &key(), always(), counting()).await;
    let id = asked(&checkpoint, arguments(1)).await;
    let approvals = &checkpoint.pipeline.approvals;
    approvals.decide(&id, &boss(), &yes(ApprovalScope::Minutes, Some(5))).await.unwrap();
    for run in 1..=3 {
        assert_eq!(outcome(&send(&checkpoint, None, arguments(1)).await), Ok(json!(run)));
    }
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(4)));
    assert_eq!(approvals.find(&id).await.unwrap().uses, 4);
    assert_ne!(asked(&checkpoint, arguments(2)).await, id, "exactly this call");
    age_approval(&store, &id, Duration::from_secs(301)).await;
    assert_ne!(asked(&checkpoint, arguments(1)).await, id);
}

#[tokio::test]
async fn an_approval_of_a_session_is_for_its_tool_there_until_it_is_taken_back() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let pipeline = &checkpoint.pipeline;
    let within = |session: &str| {
        let session = pipeline.sessions.prepare(&call().caller, session).unwrap();
        CallContext { origin: CallOrigin { session: Some(session), ..CallOrigin::default() }, ..call() }
    };
    let asked = pipeline.call(within("s"), arguments(1)).await;
    let id = Arc::clone(&asked.needed_approval().unwrap().id);
    pipeline.approvals.decide(&id, &boss(), &yes(ApprovalScope::Session, None)).await.unwrap();
    for n in 1..=2 {
        assert_eq!(outcome(&pipeline.call(within("s"), arguments(n)).await), Ok(json!(n)));
    }
    for other in [within("t"), call()] {
        assert_eq!(outcome(&pipeline.call(other, arguments(1)).await), Err(ErrorCode::ApprovalRequired));
    }
    let no = Judgement { approved: false, ..yes(ApprovalScope::Once, None) };
    pipeline.approvals.decide(&id, &boss(), &no).await.unwrap();
    assert_eq!(outcome(&pipeline.call(within("s"), arguments(2)).await), Err(ErrorCode::ApprovalRequired));
}

#[tokio::test]
async fn a_call_that_was_not_sent_may_be_made_again() {
    let script = Scripted {
        hands_over: HandsOver::Later,
        ..Scripted::answering(|run| match run {
            1 => Err(CallError::new(ErrorCode::UpstreamError, "no connection")),
            run => Ok(ToolOutput::from(json!(run))),
        })
    };
    let checkpoint = Checkpoint::with(&Config::default(), always(), script);
    let id = asked(&checkpoint, arguments(1)).await;
    approve(&checkpoint, &id).await;
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Err(ErrorCode::UpstreamError));
    assert_eq!(state_of(&checkpoint, &id).await, ApprovalState::Approved);
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(2)));
}

#[tokio::test]
async fn a_call_whose_arguments_an_approver_changed_runs_with_those_alone() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let of_agent = async |approval: Option<&Arc<str>>, n: i64| {
        let call = CallContext { via: Via::Agent, ..with_approval(approval) };
        checkpoint.pipeline.call(call, arguments(n)).await
    };
    let id = Arc::clone(&of_agent(None, 1).await.needed_approval().unwrap().id);
    let change = Judgement { arguments: Some(arguments(2)), ..yes(ApprovalScope::Once, None) };
    checkpoint.pipeline.approvals.decide(&id, &boss(), &change).await.unwrap();
    // A caller that sends its own arguments asks for itself.
    assert_ne!(asked(&checkpoint, arguments(1)).await, id);
    let other = of_agent(Some(&id), 1).await;
    let error = other.reply.outcome.as_ref().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ApprovalMismatch);
    assert!(error.message().contains("the arguments that an approver wrote"), "{error}");
    assert_eq!(outcome(&of_agent(Some(&id), 3).await), Err(ErrorCode::ApprovalMismatch));
    for _ in 0..2 {
        assert_eq!(outcome(&of_agent(Some(&id), 2).await), Ok(json!(1)));
    }
    assert_eq!((checkpoint.runs(), state_of(&checkpoint, &id).await), (1, ApprovalState::Done));
}

/// As if the call were sent again while an approver decides: its arguments were compared, and are changed before it may run.
#[tokio::test]
async fn arguments_that_were_changed_after_they_were_compared_are_not_those_that_may_run() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let of_agent = || CallContext { via: Via::Agent, ..call() };
    let (approvals, again) = (&checkpoint.pipeline.approvals, of_agent());
    let tool = checkpoint.pipeline.registry.find_for(&again).unwrap();
    let asked = checkpoint.pipeline.call(of_agent(), arguments(1)).await;
    let id = Arc::clone(&asked.needed_approval().unwrap().id);
    let [one, two] = [1, 2].map(|n| tool.input.validate(arguments(n)).unwrap());
    approvals.check_binding(&id, &again, &tool, &one).await.unwrap();
    let change = Judgement { arguments: Some(arguments(2)), ..yes(ApprovalScope::Once, None) };
    approvals.decide(&id, &boss(), &change).await.unwrap();
    let refused = approvals.standing(&id, &again, &tool, &one).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ApprovalMismatch, "{refused}");
    let approved = approvals.standing(&id, &again, &tool, &two).await.unwrap();
    assert!(matches!(approved, Standing::Once(_)), "{approved:?}");
}

/// As after `kill -9`, before and after the call is about to be sent.
#[tokio::test]
async fn after_a_crash_an_approved_call_runs_and_a_started_one_never_again() {
    let (_folder, store) = on_disk().await;
    let gate = Arc::new(Semaphore::new(0));
    let gated = Scripted { gate: Some(Arc::clone(&gate)), ..counting() };
    let before = Checkpoint::of_tool_on(&store, &key(), always(), gated).await;
    let (started, approved) = (asked(&before, arguments(1)).await, asked(&before, arguments(2)).await);
    approve(&before, &started).await;
    approve(&before, &approved).await;
    let abandoned = send(&before, Some(&started), arguments(1));
    tokio::select! {
        answered = abandoned => panic!("{answered:?}"),
        () = until("the tool runs", async || before.runs() == 1) => {}
    }
    assert_eq!(state_of(&before, &started).await, ApprovalState::Executing);
    let after = Checkpoint::of_tool_on(&store, &key(), always(), counting()).await;
    let again = send(&after, Some(&started), arguments(1)).await;
    assert_eq!((outcome(&again), after.runs()), (Err(ErrorCode::UnknownOutcome), 0));
    after.pipeline.approvals.sweep().await.unwrap();
    assert_eq!(state_of(&after, &started).await, ApprovalState::Unknown);
    assert_eq!(outcome(&send(&after, Some(&started), arguments(1)).await), Err(ErrorCode::UnknownOutcome));
    assert_eq!(outcome(&send(&after, Some(&approved), arguments(2)).await), Ok(json!(1)));
}

#[tokio::test]
async fn a_key_and_an_approval_go_together() {
    let checkpoint = Checkpoint::with(&Config::default(), always(), counting());
    let keyed = |approval: Option<&Arc<str>>| CallContext {
        resumption: CallResumption {
            idempotency_key: Some("k".into()),
            approval: approval.cloned(),
            ..CallResumption::default()
        },
        ..call()
    };
    let refused = checkpoint.pipeline.call(keyed(None), arguments(1)).await;
    let id = Arc::clone(&refused.needed_approval().unwrap().id);
    approve(&checkpoint, &id).await;
    for approval in [Some(&id), Some(&id), None] {
        let answered = checkpoint.pipeline.call(keyed(approval), arguments(1)).await;
        assert_eq!(outcome(&answered), Ok(json!(1)), "{approval:?}");
    }
    assert_eq!(outcome(&send(&checkpoint, Some(&id), arguments(1)).await), Ok(json!(1)));
    assert_eq!(checkpoint.runs(), 1);
}
