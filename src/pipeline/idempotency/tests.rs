use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::key::MAX_KEY_LENGTH;
use super::stored::MAX_REPLY_BYTES;
use super::*;
use crate::config::{Config, PolicyConfig};
use crate::core::call::{CallId, SendingState, Stage, ToolOutput};
use crate::core::error::{Blame, ErrorCode};
use crate::core::token_scopes::TokenScopes;
use crate::core::until::until;
use crate::infra::store::test_support::{fill_the_disk, free_disk};
use crate::pipeline::receipt::{Answer, Receipt};
use crate::pipeline::tests::{Checkpoint, HandsOver, Scripted, call, failure};
use crate::pipeline::{Answered, Pipeline};
use crate::tool::Metadata;

/// Answers with the number of the run.
fn counting() -> Scripted {
    Scripted::answering(|run| Ok(ToolOutput::from(json!(run))))
}

/// As [`counting`], but each run waits for a permit.
fn gated() -> (Scripted, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    (Scripted { gate: Some(Arc::clone(&gate)), ..counting() }, gate)
}

fn config(max_idempotency_keys: usize) -> Config {
    let session = SessionConfig { max_idempotency_keys, ..SessionConfig::default() };
    Config { session, ..Config::default() }
}

fn keyed(key: &str) -> CallContext {
    CallContext { idempotency_key: Some(key.into()), ..call() }
}

fn keyed_by(tenant: &str, caller: &str, key: &str) -> CallContext {
    CallContext { caller: Arc::new(Caller::new(caller, tenant, Vec::new())), ..keyed(key) }
}

fn arguments(n: u32) -> Arguments {
    json!({"n": n}).as_object().cloned().unwrap()
}

/// The output, or the error's code, and whether the reply was replayed.
fn outcome_of(answered: &Answered) -> (Result<Value, ErrorCode>, bool) {
    let outcome = answered.reply.outcome.as_ref();
    (outcome.map(|answer| answer.output.clone()).map_err(CallError::code), answered.replayed)
}

async fn send(checkpoint: &Checkpoint, key: &str) -> (Result<Value, ErrorCode>, bool) {
    outcome_of(&checkpoint.pipeline.call(keyed(key), Arguments::new()).await)
}

/// Waits until the tool has begun so many runs.
async fn until_runs(checkpoint: &Checkpoint, runs: usize) {
    until("the tool runs", async || checkpoint.runs() == runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_duplicates_run_once_and_get_the_same_reply() {
    let checkpoint = Checkpoint::around(counting());
    let calls = (0..100).map(|_| {
        let pipeline = Arc::clone(&checkpoint.pipeline);
        tokio::spawn(async move { pipeline.call(keyed("k"), Arguments::new()).await })
    });
    let answers = join_all(calls).await;
    assert_eq!(checkpoint.runs(), 1);
    let answers: Vec<_> = answers.iter().map(|answered| outcome_of(answered.as_ref().unwrap())).collect();
    assert!(answers.iter().all(|(output, _)| *output == Ok(json!(1))), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, replayed)| !replayed).count(), 1);
    assert_eq!(checkpoint.pipeline.replies.len().await, (1, 0));
}

/// The client lost its connection, and sends the call again: while it runs, and after it has ended.
#[tokio::test]
async fn a_call_continues_without_its_client_and_is_answered_when_sent_again() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    for _ in 0..3 {
        // Dropped when the tool runs.
        let sent = checkpoint.pipeline.call(keyed("k"), Arguments::new());
        tokio::select! {
            answered = sent => panic!("{answered:?}"),
            () = until_runs(&checkpoint, 1) => {}
        }
    }
    let Pipeline { limits, settlement, budget, .. } = &*checkpoint.pipeline;
    assert_eq!(limits.in_flight(), 1, "the call holds its slot");
    assert!(settlement.metrics.render().contains("test_calls_in_flight 1"));
    assert!(!budget.held().cost_usd.is_zero(), "the call holds its price");
    gate.add_permits(1);
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), true));
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), true));
    assert_eq!((checkpoint.runs(), limits.in_flight()), (1, 0));
    let lines = checkpoint.lines().await;
    assert_eq!((lines.len(), &lines[0]["status"]), (1, &json!("success")));
}

#[tokio::test]
async fn a_call_without_a_key_ends_with_its_client() {
    let checkpoint = Checkpoint::around(gated().0);
    tokio::select! {
        answered = checkpoint.pipeline.call(call(), Arguments::new()) => panic!("{answered:?}"),
        () = until_runs(&checkpoint, 1) => {}
    }
    assert_eq!(checkpoint.pipeline.limits.in_flight(), 0);
    assert_eq!(checkpoint.lines().await[0]["status"], "cancelled");
}

/// A call that was sent, or began, may have had its effect. Any other call can be sent again.
#[tokio::test]
async fn only_calls_that_began_are_recorded() {
    type Failure = fn() -> CallError;
    let cases: [(HandsOver, Failure, bool); 5] = [
        (HandsOver::AtOnce, || CallError::tool("no"), true),
        (HandsOver::AtOnce, || failure(Blame::Upstream), true),
        (HandsOver::Nothing, || CallError::tool("no"), true),
        (HandsOver::Later, || CallError::tool("the guard says no"), false),
        (HandsOver::Later, || failure(Blame::Upstream), false),
    ];
    for (hands_over, error, is_kept) in cases {
        let script = Scripted { hands_over, ..Scripted::answering(move |_| Err(error())) };
        let checkpoint = Checkpoint::around(script);
        let first = send(&checkpoint, "k").await;
        assert_eq!(send(&checkpoint, "k").await, (first.0, is_kept), "{hands_over:?}");
        assert_eq!(checkpoint.runs(), if is_kept { 1 } else { 2 }, "{hands_over:?}");
        assert_eq!(checkpoint.pipeline.replies.len().await, (is_kept.into(), 0), "{hands_over:?}");
    }
}

#[tokio::test]
async fn refusals_dry_runs_and_calls_to_missing_tools_are_not_recorded() {
    let checkpoint = Checkpoint::around(counting());
    let pipeline = &checkpoint.pipeline;
    let wrong = json!({"n": "many"}).as_object().cloned().unwrap();
    let refused = pipeline.call(keyed("k"), wrong).await;
    assert_eq!(outcome_of(&refused), (Err(ErrorCode::InvalidArguments), false));
    let dry = pipeline.call(CallContext { dry_run: true, ..keyed("k") }, Arguments::new()).await;
    assert_eq!(outcome_of(&dry), (Ok(Value::Null), false));
    let unknown = pipeline.call(CallContext { tool: "nothing".into(), ..keyed("k") }, Arguments::new()).await;
    assert_eq!(outcome_of(&unknown), (Err(ErrorCode::UnknownTool), false));
    assert_eq!(pipeline.replies.len().await, (0, 0));
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), false));
    assert_eq!(checkpoint.lines().await.len(), 4, "each call is settled");
}

#[tokio::test]
async fn another_body_is_a_conflict_while_the_first_call_runs_and_after() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    let pipeline = &checkpoint.pipeline;
    let others = || {
        let dry = CallContext { dry_run: true, ..keyed("k") };
        let parameters = CallContext { tool_parameters: arguments(1), ..keyed("k") };
        [(keyed("k"), arguments(2)), (dry, Arguments::new()), (parameters, Arguments::new())]
    };
    let all_conflict = async || {
        for (call, arguments) in others() {
            let other = pipeline.call(call, arguments).await;
            assert_eq!(outcome_of(&other), (Err(ErrorCode::IdempotencyConflict), false));
        }
    };
    let meanwhile = async {
        until_runs(&checkpoint, 1).await;
        all_conflict().await;
        gate.add_permits(1);
    };
    let (first, ()) = Box::pin(join(send(&checkpoint, "k"), meanwhile)).await;
    assert_eq!(first, (Ok(json!(1)), false));
    all_conflict().await;
    assert_eq!(checkpoint.runs(), 1);
}

#[tokio::test]
async fn a_key_belongs_to_one_tenant_caller_and_tool() {
    let checkpoint = Checkpoint::around(counting());
    for (run, (tenant, caller)) in (1..).zip([("acme", "ann"), ("acme", "bob"), ("rival", "ann")]) {
        let answered = checkpoint.pipeline.call(keyed_by(tenant, caller, "k"), Arguments::new()).await;
        assert_eq!(outcome_of(&answered), (Ok(json!(run)), false));
    }
    let ids = [("ab", "c"), ("a", "bc")].map(|(tool, key)| RecordId::new(&call().caller, tool, key).unwrap());
    assert_ne!(ids[0], ids[1]);
}

/// Several keys and tokens of one person are one caller.
#[tokio::test]
async fn a_caller_with_fewer_rights_gets_no_reply_of_a_call_that_was_made_with_more() {
    let folder = TempDir::new().unwrap();
    let rule = "package tools\ndeny[\"no interns\"] { input.user.roles[_] == \"intern\" }\n";
    std::fs::write(folder.path().join("tools.rego"), rule).unwrap();
    let policy = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
    let metadata = Metadata { dangerous: true, ..Metadata::default() };
    let checkpoint = Checkpoint::with(&Config { policy, ..Config::default() }, metadata, counting());
    let send = async |caller: &Caller| {
        let call = CallContext { caller: Arc::new(caller.clone()), ..keyed("k") };
        outcome_of(&checkpoint.pipeline.call(call, Arguments::new()).await)
    };
    let with_roles = |roles: &[&str]| Caller::new("ann", "acme", roles.iter().map(ToString::to_string).collect());
    let wide = with_roles(&["operator"]);
    assert_eq!(send(&wide).await, (Ok(json!(1)), false));
    let of_key = Caller { tools: wide.tools.narrowed(vec!["other".to_owned()]), ..wide.clone() };
    let needed = BTreeMap::from([("write".to_owned(), vec!["scripted".to_owned()])]);
    let of_token = wide.clone().with_scopes(TokenScopes::new(&needed, &[]));
    for (caller, code) in [
        (of_key, ErrorCode::UnknownTool),
        (of_token, ErrorCode::Denied),
        (with_roles(&[]), ErrorCode::Denied),
        (with_roles(&["operator", "intern"]), ErrorCode::Denied),
    ] {
        assert_eq!(send(&caller).await, (Err(code), false), "{caller:?}");
    }
    assert_eq!(send(&wide).await, (Ok(json!(1)), true));
    assert_eq!(checkpoint.runs(), 1);
    let lines = checkpoint.lines().await;
    assert_eq!((&lines[3]["status"], &lines[3]["stage"]), (&json!("refused"), &json!("policy")), "{lines:?}");
}

#[test]
fn keys_are_visible_ascii() {
    let ann = Caller::new("ann", "acme", Vec::new());
    let (longest, too_long) = ("k".repeat(MAX_KEY_LENGTH), "k".repeat(MAX_KEY_LENGTH + 1));
    for key in ["k", "\"8e03978e-40d5\"", &longest] {
        assert!(RecordId::new(&ann, "calculator", key).is_ok(), "{key}");
    }
    for key in ["", "a b", "tab\t", "é", "nul\0", &too_long] {
        let error = RecordId::new(&ann, "calculator", key).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest, "{key}");
    }
}

/// A store on disk, and its folder.
async fn store_on_disk() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_reply_is_the_same_after_a_restart() {
    let (folder, store) = store_on_disk().await;
    let before = Checkpoint::on(&store, &config(10), counting()).await;
    let first = before.pipeline.call(keyed("k"), arguments(3)).await;
    store.close().await;
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    let after = Checkpoint::on(&store, &config(10), counting()).await;
    let again = after.pipeline.call(keyed("k"), arguments(3)).await;
    assert_eq!((outcome_of(&again), after.runs()), ((Ok(json!(1)), true), 0));
    let text = |answered: &Answered| serde_json::to_string(&*answered.reply).unwrap();
    assert_eq!(text(&again), text(&first));
    let other = after.pipeline.call(keyed("k"), arguments(4)).await;
    assert_eq!(outcome_of(&other), (Err(ErrorCode::IdempotencyConflict), false));
}

/// As after `kill -9`: the process ends after the call is recorded and before its reply is.
#[tokio::test]
async fn a_call_that_was_running_when_its_process_ended_is_not_run_again() {
    let (_folder, store) = store_on_disk().await;
    let (script, _gate) = gated();
    let before = Checkpoint::on(&store, &config(10), script).await;
    let abandoned = before.pipeline.call(keyed("k"), Arguments::new());
    tokio::select! {
        answered = abandoned => panic!("{answered:?}"),
        () = until_runs(&before, 1) => {}
    }
    let after = Checkpoint::on(&store, &config(10), counting()).await;
    let again = after.pipeline.call(keyed("k"), Arguments::new()).await;
    let error = again.reply.outcome.as_ref().unwrap_err();
    assert_eq!((error.code(), after.runs()), (ErrorCode::UnknownOutcome, 0));
    assert!(error.message().contains("outcome is unknown"), "{error}");
}

#[tokio::test]
async fn shutdown_waits_for_running_calls_and_aborts_them_at_its_deadline() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    let abandon = async |key: &str, run| {
        tokio::select! {
            answered = checkpoint.pipeline.call(keyed(key), Arguments::new()) => panic!("{answered:?}"),
            () = until_runs(&checkpoint, run) => {}
        }
    };
    let replies = &checkpoint.pipeline.replies;
    abandon("a", 1).await;
    let an_hour = Instant::now() + Duration::from_secs(3_600);
    let mut finish = std::pin::pin!(replies.finish(an_hour));
    assert!(finish.as_mut().now_or_never().is_none(), "a call is running");
    gate.add_permits(1);
    finish.await;
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), true));
    abandon("b", 2).await;
    replies.finish(Instant::now()).await;
    assert_eq!(checkpoint.pipeline.limits.in_flight(), 0);
    assert_eq!(send(&checkpoint, "b").await, (Err(ErrorCode::UnknownOutcome), false));
    let statuses: Vec<_> = checkpoint.lines().await.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses, [json!("success"), json!("cancelled"), json!("refused")]);
}

#[tokio::test]
async fn a_tenant_evicts_only_its_own_records_and_the_oldest_of_the_largest_owner_first() {
    let (_folder, store) = store_on_disk().await;
    let checkpoint = Checkpoint::on(&store, &config(4), counting()).await;
    let send = async |tenant, caller, key: &str| {
        let answered = checkpoint.pipeline.call(keyed_by(tenant, caller, key), Arguments::new()).await;
        assert!(answered.reply.outcome.is_ok());
        answered.replayed
    };
    for (tenant, caller, key) in [("rival", "eve", "kept"), ("acme", "ann", "kept"), ("acme", "bob", "used")] {
        assert!(!send(tenant, caller, key).await);
    }
    for n in 0..20 {
        assert!(!send("acme", "bob", &n.to_string()).await);
        assert!(send("acme", "bob", "used").await, "a used record stays");
    }
    assert_eq!(checkpoint.pipeline.replies.len().await, (5, 0));
    assert!(send("rival", "eve", "kept").await, "another tenant's");
    assert!(send("acme", "ann", "kept").await, "another caller's");
    assert!(send("acme", "bob", "19").await, "the latest");
    assert!(!send("acme", "bob", "0").await, "the oldest record of the owner with the most");
    // The records in the store still count after a restart.
    let again = Checkpoint::on(&store, &config(4), counting()).await;
    assert_eq!(again.pipeline.replies.len().await, (5, 0));
}

#[tokio::test]
async fn running_calls_are_never_evicted() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::with(&config(2), Metadata::default(), script);
    let meanwhile = async {
        until_runs(&checkpoint, 2).await;
        let refused = send(&checkpoint, "c").await;
        assert_eq!(refused, (Err(ErrorCode::Overloaded), false));
        assert_eq!(checkpoint.runs(), 2);
        gate.add_permits(3);
    };
    let calls = ["a", "b"].map(|key| send(&checkpoint, key));
    let (answers, ()) = join(join_all(calls), meanwhile).await;
    assert!(answers.iter().all(|(output, replayed)| output.is_ok() && !replayed));
    assert_eq!(send(&checkpoint, "c").await, (Ok(json!(3)), false), "other calls have ended");
}

#[tokio::test]
async fn records_expire() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), false));
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), true));
    replies.reconfigure(&SessionConfig { idempotency_seconds: 0, ..SessionConfig::default() });
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(2)), false));
    replies.forget_expired().await.unwrap();
    assert_eq!(replies.len().await, (0, 0));
}

/// A call with a key runs only if it is recorded.
#[tokio::test]
async fn on_a_full_disk_a_call_with_a_key_is_refused_and_costs_nothing() {
    let (_folder, store) = store_on_disk().await;
    let checkpoint = Checkpoint::on(&store, &config(10), counting()).await;
    let long = "x".repeat(100_000);
    let by_long = || keyed_by("acme", &long, "k");
    fill_the_disk(&store).await;
    let refused = checkpoint.pipeline.call(by_long(), Arguments::new()).await;
    assert_eq!(outcome_of(&refused), (Err(ErrorCode::Overloaded), false));
    assert!(
        !refused.reply.outcome.as_ref().unwrap_err().message().contains(".db"),
        "the error does not contain a path"
    );
    assert_eq!((checkpoint.runs(), refused.reply.cost_usd.is_zero()), (0, true));
    assert_eq!(checkpoint.pipeline.budget.held().tokens, 0);
    free_disk(&store).await;
    let answered = checkpoint.pipeline.call(by_long(), Arguments::new()).await;
    assert_eq!(outcome_of(&answered), (Ok(json!(1)), false));
}

/// A reply whose text has at least this many bytes.
pub(super) fn reply_of(bytes: usize) -> Arc<Reply> {
    let answer = Answer { text: "x".repeat(bytes), ..Answer::default() };
    let receipt = Receipt::of(CallId::new());
    let duration = Duration::ZERO;
    Arc::new(Reply { outcome: Ok(answer), duration, tokens: 0, cost_usd: 0.into(), receipt, stored: None })
}

/// Enters with a key and, as the first call, ends with a reply of this size. Returns whether it was the first.
async fn keep(replies: &Arc<Replies>, key: &str, bytes: usize) -> Result<bool, ErrorCode> {
    let deadline = Deadline::after(Duration::from_secs(60));
    match replies.enter(&call(), key, &Arguments::new(), deadline).await.map_err(|error| error.code())? {
        IdempotentOutcome::Answered(_) => Ok(false),
        IdempotentOutcome::First(mut guard) => {
            guard.record(deadline).await.unwrap();
            guard.end(&reply_of(bytes), SendingState::Sent).await;
            Ok(true)
        }
    }
}

#[tokio::test]
async fn a_reply_too_large_to_store_reaches_all_waiting_calls_and_the_call_is_never_run_again() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(mut guard)) = replies.enter(&call(), "k", &Arguments::new(), deadline).await else {
        panic!()
    };
    guard.record(deadline).await.unwrap();
    let waiting = keep(replies, "k", 1);
    let ending = async { guard.end(&reply_of(MAX_REPLY_BYTES + 1), SendingState::Sent).await };
    assert_eq!(join(waiting, ending).await.0, Ok(false), "a waiting call gets the reply");
    assert_eq!(keep(replies, "k", 1).await, Err(ErrorCode::IdempotencyConflict), "a later call does not");
}

#[tokio::test]
async fn the_oldest_replies_of_a_tenant_are_evicted_by_bytes_and_their_records_stay() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let bytes = MAX_REPLY_BYTES - 4_096;
    let fit = usize::try_from(MAX_TENANT_BYTES).unwrap() / (bytes + 1_024);
    for n in 0..fit + 2 {
        assert_eq!(keep(replies, &n.to_string(), bytes).await, Ok(true));
    }
    for n in 0..fit + 2 {
        let expected = if n < 2 { Err(ErrorCode::IdempotencyConflict) } else { Ok(false) };
        assert_eq!(keep(replies, &n.to_string(), 1).await, expected, "{n}");
    }
}

/// When the first call ends without running its tool, a waiting call looks up the key again.
#[tokio::test]
async fn when_the_first_call_is_refused_the_next_waiting_call_is_first() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(guard)) = replies.enter(&call(), "k", &Arguments::new(), deadline).await else {
        panic!()
    };
    let error = CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy);
    let refused = Arc::new(Reply::without_a_run(&call(), error));
    let ending = async { guard.end(&refused, SendingState::Pending).await };
    let (waiting, ()) = join(join(keep(replies, "k", 1), keep(replies, "k", 1)), ending).await;
    assert_eq!([waiting.0, waiting.1].iter().filter(|first| **first == Ok(true)).count(), 1);
}

#[tokio::test]
async fn a_waiting_call_waits_until_its_own_deadline() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(_guard)) = replies.enter(&call(), "k", &Arguments::new(), deadline).await else {
        panic!()
    };
    let soon = Deadline::after(Duration::from_millis(20));
    let error = replies.enter(&call(), "k", &Arguments::new(), soon).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
}
