//! Calls that lose their answers, around a bank that counts payments and a tool that lists them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::pipeline::Resolution;
use crate::pipeline::tests::{Checkpoint, Scripted, call, failure};
use crate::registry::Snapshot;
use crate::tool::{Attempt, Effects, Execution, Executor, Metadata, ToolDefinition};
use sekisho_config::{Config, SessionConfig};
use sekisho_core::call::ToolOutput;
use sekisho_core::until::until;
use sekisho_observe::metrics::Metrics;
use sekisho_store::Store;
use sekisho_store::test_support::test_store;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    None,
    /// The connection breaks.
    BeforeCommit,
    AfterCommit,
    /// It answers once it has a permit.
    Slow,
}

/// The tool that lists payments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    None,
    /// Found by its name.
    Named,
    Declared,
    /// The tool that pays names itself.
    Itself,
}

struct Bank {
    cut: Mutex<Cut>,
    gate: Semaphore,
    payments: Mutex<Vec<Value>>,
    keys: Mutex<Vec<String>>,
    knows_keys: AtomicBool,
    /// Its gateways, whose folders are removed with them.
    gateways: Mutex<Vec<Checkpoint>>,
}

struct Pay(Arc<Bank>);
struct List(Arc<Bank>);

impl Executor for Pay {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        attempt.call.progress.sending.flag().set();
        let (bank, cut) = (&self.0, *self.0.cut.lock());
        if let Some(key) = &attempt.call.resumption.upstream_key {
            bank.keys.lock().push(key.to_string());
        }
        Box::pin(async move {
            if cut == Cut::BeforeCommit {
                return Err(failure(Blame::Network));
            }
            let payment = json!({"id": bank.payments.lock().len(), "n": arguments.get("n"), "created_at": Timestamp::now().to_string()});
            bank.payments.lock().push(payment.clone());
            match cut {
                Cut::AfterCommit => return Err(failure(Blame::Network)),
                Cut::Slow => bank.gate.acquire().await.unwrap().forget(),
                _ => {}
            }
            Ok(ToolOutput::from(payment))
        })
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn declares_idempotency_key(&self) -> bool {
        self.0.knows_keys.load(Ordering::Relaxed)
    }
}

impl Executor for List {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move { Ok(ToolOutput::from(json!({"items": *self.0.payments.lock()}))) })
    }
}

impl Bank {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            cut: Mutex::new(Cut::None),
            gate: Semaphore::new(0),
            payments: Mutex::default(),
            keys: Mutex::default(),
            knows_keys: AtomicBool::new(false),
            gateways: Mutex::default(),
        })
    }

    fn count(&self) -> usize {
        self.payments.lock().len()
    }

    fn cut(&self, cut: Cut) {
        *self.cut.lock() = cut;
    }

    /// A gateway of this bank.
    async fn gateway(self: &Arc<Self>, store: &Store, lists: Lists) -> Arc<Pipeline> {
        let session = SessionConfig { record_effects: true, ..SessionConfig::default() };
        let config = Config { session, ..Config::default() };
        let checkpoint =
            Checkpoint::on(store, &config, Scripted::answering(|_| Ok(ToolOutput::from(json!(null))))).await;
        let pipeline = Arc::clone(&checkpoint.pipeline);
        self.gateways.lock().push(checkpoint);
        let of_bank = |name: &str| Metadata {
            name: name.into(),
            source: "mcp:bank".into(),
            timeout_seconds: 1,
            ..Metadata::default()
        };
        let effects = Some(Effects { read_only: true, destructive: None, open_world: true });
        let parameters = || json!({"type": "object", "properties": {"n": {"type": "integer"}}}).into();
        let found_by = match lists {
            Lists::Declared => Some("bank__list_payments".to_owned()),
            Lists::Itself => Some("bank__send_payment".to_owned()),
            Lists::None | Lists::Named => None,
        };
        let mut tools = vec![ToolDefinition {
            metadata: Metadata { found_by, ..of_bank("bank__send_payment") },
            parameters: parameters(),
            output_schema: None,
            executor: Arc::new(Pay(Arc::clone(self))),
        }];
        if lists != Lists::None {
            tools.push(ToolDefinition {
                metadata: Metadata { effects, ..of_bank("bank__list_payments") },
                parameters: json!({"type": "object"}).into(),
                output_schema: None,
                executor: Arc::new(List(Arc::clone(self))),
            });
        }
        let metrics = Arc::new(Metrics::new("test").unwrap());
        pipeline.registry.replace(Snapshot::build(tools, Vec::new(), &config.tools, &metrics).unwrap());
        pipeline
    }
}

fn payment(key: Option<&str>) -> CallContext {
    let resumption = CallResumption { idempotency_key: key.map(str::to_owned), ..CallResumption::default() };
    CallContext { tool: "bank__send_payment".into(), resumption, ..call() }
}

async fn pay(pipeline: &Arc<Pipeline>, key: Option<&str>) -> Answered {
    pipeline.call(payment(key), json!({"n": 3}).as_object().cloned().unwrap()).await
}

/// The id of the payment or the code of the error, and `receipt.answered_by`.
fn outcome(answered: &Answered) -> (Result<Value, ErrorCode>, Value) {
    let text = serde_json::to_value(&*answered.reply).unwrap();
    let result = answered.reply.outcome.as_ref().map(|answer| answer.output["id"].clone()).map_err(CallError::code);
    (result, text["receipt"]["answered_by"].clone())
}

async fn until_forgotten(pipeline: &Arc<Pipeline>) {
    until("the record is removed", async || pipeline.replies.len().await == (0, 0)).await;
}

#[tokio::test]
async fn an_effect_whose_answer_was_cut_is_found_and_not_made_again() {
    for (key, lists) in [(None, Lists::Named), (None, Lists::Declared), (Some("k"), Lists::Named)] {
        let (bank, store) = (Bank::new(), test_store().await);
        let pipeline = bank.gateway(&store, lists).await;
        bank.cut(Cut::AfterCommit);
        assert_eq!(outcome(&pay(&pipeline, key).await).0, Err(ErrorCode::UpstreamError));
        bank.cut(Cut::None);
        let again = pay(&pipeline, key).await;
        assert_eq!((outcome(&again), again.replayed), ((Ok(json!(0)), json!("read")), true), "{key:?}");
        assert_eq!(bank.count(), 1, "{key:?}");
        if key.is_some() {
            assert_eq!(outcome(&pay(&pipeline, key).await), (Ok(json!(0)), json!("read")));
        } else {
            until_forgotten(&pipeline).await;
            assert_eq!(outcome(&pay(&pipeline, key).await), (Ok(json!(1)), Value::Null), "its client has the answer");
        }
    }
}

#[tokio::test]
async fn what_was_not_made_is_made_once_its_time_is_over() {
    let (bank, store) = (Bank::new(), test_store().await);
    let pipeline = bank.gateway(&store, Lists::Declared).await;
    bank.cut(Cut::BeforeCommit);
    pay(&pipeline, None).await;
    bank.cut(Cut::None);
    let early = pay(&pipeline, None).await;
    let error = early.reply.outcome.as_ref().unwrap_err();
    assert_eq!((error.code(), bank.count()), (ErrorCode::UnknownOutcome, 0));
    tokio::time::sleep(error.wait().unwrap()).await;
    assert_eq!(outcome(&pay(&pipeline, None).await), (Ok(json!(0)), Value::Null));
    assert_eq!(bank.count(), 1);
}

/// A list that was found by its name may show a part.
#[tokio::test]
async fn only_a_declared_list_shows_that_an_effect_was_not_made() {
    let (bank, store) = (Bank::new(), test_store().await);
    let pipeline = bank.gateway(&store, Lists::Named).await;
    bank.cut(Cut::BeforeCommit);
    pay(&pipeline, None).await;
    bank.cut(Cut::None);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(outcome(&pay(&pipeline, None).await).0, Err(ErrorCode::UnknownOutcome));
    assert_eq!(bank.count(), 0);
}

#[tokio::test]
async fn a_tool_is_not_called_to_find_its_own_effect() {
    let (bank, store) = (Bank::new(), test_store().await);
    let pipeline = bank.gateway(&store, Lists::Itself).await;
    bank.cut(Cut::AfterCommit);
    pay(&pipeline, None).await;
    bank.cut(Cut::None);
    assert_eq!(outcome(&pay(&pipeline, None).await).0, Err(ErrorCode::UnknownOutcome));
    assert_eq!(bank.count(), 1);
}

#[tokio::test]
async fn a_client_that_left_gets_the_reply_of_its_call_while_it_runs_and_later() {
    for ends_before in [false, true] {
        let (bank, store) = (Bank::new(), test_store().await);
        let pipeline = bank.gateway(&store, Lists::Declared).await;
        bank.cut(Cut::Slow);
        tokio::select! {
            answered = pay(&pipeline, None) => panic!("{answered:?}"),
            () = until("it is made", async || bank.count() == 1) => {}
        }
        if ends_before {
            bank.gate.add_permits(1);
            until("it has ended", async || pipeline.limits.in_flight() == 0 && pipeline.replies.len().await == (1, 0))
                .await;
        }
        let (again, ()) = tokio::join!(pay(&pipeline, None), async {
            tokio::task::yield_now().await;
            bank.gate.add_permits(1);
        });
        assert_eq!((outcome(&again), bank.count()), ((Ok(json!(0)), json!("record")), 1), "{ends_before}");
    }
}

/// Two equal calls for which clients wait are two calls.
#[tokio::test]
async fn equal_calls_at_once_are_both_made() {
    let (bank, store) = (Bank::new(), test_store().await);
    let pipeline = bank.gateway(&store, Lists::Declared).await;
    bank.cut(Cut::Slow);
    let both = async { tokio::join!(pay(&pipeline, None), pay(&pipeline, None)) };
    let made = async {
        until("both are made", async || bank.count() == 2).await;
        bank.gate.add_permits(2);
    };
    let ((one, other), ()) = tokio::join!(both, made);
    assert!(!one.replayed && !other.replayed);
    until_forgotten(&pipeline).await;
}

#[tokio::test]
async fn a_person_says_what_became_of_a_call_that_no_tool_finds() {
    for (resolution, made, by) in
        [(Resolution::Made(json!({"id": 7})), json!(7), json!("person")), (Resolution::NotMade, json!(1), Value::Null)]
    {
        let (bank, store) = (Bank::new(), test_store().await);
        let pipeline = bank.gateway(&store, Lists::None).await;
        bank.cut(Cut::AfterCommit);
        pay(&pipeline, None).await;
        bank.cut(Cut::None);
        assert_eq!(outcome(&pay(&pipeline, None).await).0, Err(ErrorCode::UnknownOutcome));
        let caller = &call().caller;
        let effects = pipeline.replies.effects(&caller.tenant, Some(&caller.key)).await.unwrap();
        let [effect] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!((&*effect.tool, effect.state.as_str()), ("bank__send_payment", "unknown"));
        let of_another = pipeline.replies.resolve((&caller.tenant, Some("eve")), &effect.id, Resolution::NotMade).await;
        assert_eq!(of_another.unwrap_err().code(), ErrorCode::NotFound);
        pipeline.replies.resolve((&caller.tenant, None), &effect.id, resolution).await.unwrap();
        let again = pay(&pipeline, None).await;
        assert_eq!(outcome(&again), (Ok(made), by));
        assert_eq!(again.replayed, again.reply.receipt.call_id.to_string() == effect.id);
        assert_eq!(pipeline.replies.effects(&caller.tenant, None).await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_upstream_that_knows_keys_gets_the_same_one_again() {
    for key in [None, Some("k")] {
        let (bank, store) = (Bank::new(), test_store().await);
        bank.knows_keys.store(true, Ordering::Relaxed);
        let pipeline = bank.gateway(&store, Lists::Declared).await;
        bank.cut(Cut::BeforeCommit);
        pay(&pipeline, key).await;
        bank.cut(Cut::None);
        assert_eq!(outcome(&pay(&pipeline, key).await), (Ok(json!(0)), Value::Null));
        let keys = bank.keys.lock().clone();
        assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    }
}

/// As after `kill -9`: another process finds the record of a call that ran.
#[tokio::test]
async fn after_a_crash_the_effect_is_found() {
    let (bank, store) = (Bank::new(), test_store().await);
    let before = bank.gateway(&store, Lists::Declared).await;
    bank.cut(Cut::Slow);
    tokio::select! {
        answered = pay(&before, None) => panic!("{answered:?}"),
        () = until("it is made", async || bank.count() == 1) => {}
    }
    let after = bank.gateway(&store, Lists::Declared).await;
    assert_eq!(outcome(&pay(&after, None).await), (Ok(json!(0)), json!("read")));
    assert_eq!(bank.count(), 1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    bank.gate.add_permits(1);
}
