//! Programs that propose their effects, against a shop that asks for approvals.

use super::*;
use sekisho_calls::journals::Settlement;
use sekisho_calls::pipeline::{Answer, Reply};
use sekisho_calls::tool::PROGRAM_EFFECTS;
use sekisho_config::Config;
use sekisho_core::until::until;
use sekisho_guest_protocol::{Captured, End};
use sekisho_store::test_support::test_store;

/// What an approver was asked for.
#[derive(Debug, Clone, Default)]
struct Asked {
    list: Option<Proposal>,
    left: Option<Proposal>,
    is_approved: bool,
    /// How often somebody was asked.
    times: usize,
}

/// A call: its tool, its arguments, and the reasons that its approver was shown.
type MadeCall = (String, Value, Option<Arc<[String]>>);

/// Has prices, and takes orders and payments. `get` changes nothing, unless that is no longer said of it.
struct Shop {
    policy: Policy,
    price: Mutex<u32>,
    version: Mutex<Arc<str>>,
    /// By the tool that fails.
    failing: Mutex<&'static str>,
    /// By the tool that does not answer.
    hanging: Mutex<&'static str>,
    reading: Mutex<&'static str>,
    asked: Mutex<Asked>,
    made: Mutex<Vec<MadeCall>>,
}

impl Shop {
    fn open() -> Arc<Self> {
        Arc::new(Self {
            policy: Policy::load(&PolicyConfig::default()).unwrap(),
            price: Mutex::new(3),
            version: Mutex::new("v1".into()),
            failing: Mutex::new(""),
            hanging: Mutex::new(""),
            reading: Mutex::new("get"),
            asked: Mutex::default(),
            made: Mutex::default(),
        })
    }

    fn approve(&self) {
        self.asked.lock().is_approved = true;
    }

    /// The effects that were made, with their arguments.
    fn effects(&self) -> Vec<(String, Value)> {
        let made = self.made.lock();
        made.iter().filter(|(tool, ..)| tool != "get").map(|(tool, with, _)| (tool.clone(), with.clone())).collect()
    }

    fn answer(&self, call: &CallContext, arguments: &Arguments) -> Result<Value, CallError> {
        if call.tool == PROGRAM_EFFECTS {
            return self.ask(call, Proposal::from_arguments(arguments.clone()).unwrap());
        }
        let made = (call.tool.clone(), Value::Object(arguments.clone()), call.resumption.shown_reasons.clone());
        self.made.lock().push(made);
        match &*call.tool {
            failing if failing == *self.failing.lock() => Err(CallError::new(ErrorCode::Denied, "closed")),
            "get" => Ok(json!(*self.price.lock())),
            _ => Ok(json!({"id": 7})),
        }
    }

    fn ask(&self, call: &CallContext, list: Proposal) -> Result<Value, CallError> {
        let mut asked = self.asked.lock();
        let approved = asked.left.as_ref().or(asked.list.as_ref()).filter(|_| asked.is_approved);
        if call.resumption.approval.is_some() && approved == Some(&list) {
            asked.is_approved = false;
            return Ok(json!({}));
        }
        *asked = Asked { list: Some(list), times: asked.times + 1, ..Asked::default() };
        Err(CallError::new(ErrorCode::ApprovalRequired, "ask").needing(approval()))
    }
}

impl ToolPipeline for Shop {
    fn call(self: Arc<Self>, call: CallContext, arguments: Arguments) -> BoxFuture<'static, Answered> {
        let outcome = self.answer(&call, &arguments);
        if call.tool == *self.hanging.lock() {
            return std::future::pending().boxed();
        }
        let mut reply = Reply::without_a_run(&call, CallError::new(ErrorCode::Internal, "no answer yet"));
        reply.outcome = outcome.map(|output| Answer { output, ..Answer::default() });
        std::future::ready(Answered { reply: Arc::new(reply), replayed: false }).boxed()
    }

    fn tools_for(&self, caller: &Arc<Caller>) -> CallerTools {
        self.policy.tools_for(&Arc::new(Snapshot::default()), caller)
    }

    fn price(&self, _: &CallContext) -> Decimal {
        Decimal::ZERO
    }

    fn check_access(&self, _: &str, _: &Arc<Caller>) -> Result<(), CallError> {
        Ok(())
    }

    fn may_repeat(&self, tool: &str, _: &Arc<Caller>) -> bool {
        tool == "get"
    }

    fn changes_nothing(&self, tool: &str, _: &Arc<Caller>) -> bool {
        tool == *self.reading.lock()
    }

    fn proposed(
        self: Arc<Self>,
        call: CallContext,
        arguments: Arguments,
    ) -> BoxFuture<'static, Result<ProposedEffect, CallError>> {
        let is_number = |value: &Value| value.is_number();
        let proposed = match call.tool == "pay" && !arguments.get("order").is_none_or(is_number) {
            true => Err(CallError::new(ErrorCode::InvalidArguments, "`order` is a number")),
            false => Ok(ProposedEffect {
                call: 0,
                sha256: hex::encode(json::digest(&arguments)),
                tool: call.tool,
                arguments,
                cost_usd: "0".into(),
                labels: Vec::new(),
                reasons: vec!["costly".into()],
                masks: Vec::new(),
                approvals_needed: 1,
                refers_to: Vec::new(),
                struck: false,
            }),
        };
        std::future::ready(proposed).boxed()
    }

    fn effects_of(
        self: Arc<Self>,
        _: Arc<str>,
        _: Arc<Caller>,
    ) -> BoxFuture<'static, Result<(Proposal, Option<Proposal>), CallError>> {
        let Asked { list, left, .. } = self.asked.lock().clone();
        // As an approval stores it.
        let stored = json::canonical(&list.unwrap().to_arguments().unwrap());
        std::future::ready(Ok((serde_json::from_slice(&stored).unwrap(), left))).boxed()
    }

    fn policy_version(&self) -> Arc<str> {
        Arc::clone(&self.version.lock())
    }

    fn journals(&self) -> Option<Arc<Journals>> {
        None
    }
}

/// Runs the program, from the beginning or from its journal: it reads a price, orders two things, and pays for the first one.
async fn run(shop: &Arc<Shop>, journals: &Arc<Journals>, begun: Option<&str>) -> Result<Outcome, CallError> {
    let outer = outer();
    let (journal, keys) = match begun {
        None => (journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap(), [1; 32]),
        Some(id) => (journals.resume(&outer, &Arguments::new(), id).await.unwrap().0, [1; 32]),
    };
    let pipeline = Arc::clone(shop) as Arc<dyn ToolPipeline>;
    let run = ProgramRun {
        journal: Some(journal),
        proposes: true,
        keys: RunKeys { base: keys, are_recorded: false },
        ..ProgramRun::without_journal(Some(pipeline), &outer)
    };
    let tools = ProgramTools::new(run, &outer, "program", 9, Deadline::after(Duration::from_secs(9))).unwrap();
    let price = asked_of(&tools, 0, "get", json!({"of": "tea"})).await;
    let first = asked_of(&tools, 1, "order", json!({"price": price})).await;
    let orders = [first, asked_of(&tools, 2, "order", json!({"weight": 1.0})).await];
    // As the interpreter makes it of the placeholder.
    let id = orders[0]["$effect"].as_str().unwrap().replace(":}}", ":/id}}");
    let paid = asked_of(&tools, 3, "pay", json!({"order": id, "note": format!("for {id}")})).await;
    let result = Some(json!([price, id, paid["$effect"], orders[1]["$effect"]]).to_string());
    let bytes = format!("ordered {id}\n").into_bytes();
    let stdout = Captured { total: bytes.len() as u64, bytes };
    tools.end(Ok(Outcome { result, stdout, ..Outcome::without_output(End::Exited { code: 0 }) })).await
}

async fn asked_of(tools: &ProgramTools<'_>, number: u32, tool: &str, arguments: Value) -> Value {
    let question = ToolQuestion::Call { ordinal: number, tool: tool.into(), arguments: arguments.to_string() };
    let reply = tools.answer(ToolRequest { number, question, read: ReadSoFar::default() }).await.unwrap();
    assert!(reply.is_ok, "{}", String::from_utf8_lossy(&reply.json));
    serde_json::from_slice(&reply.json).unwrap()
}

async fn journals() -> (tempfile::TempDir, Arc<Journals>) {
    let state = tempfile::tempdir().unwrap();
    let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
    (state, Arc::new(Journals::new(&config, test_store().await.program_runs())))
}

/// The run that waits for the approval of its effects.
async fn waiting(shop: &Arc<Shop>, journals: &Arc<Journals>, begun: Option<&str>) -> String {
    let error = run(shop, journals, begun).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ApprovalRequired, "{error}");
    error.run().unwrap().to_string()
}

#[tokio::test]
async fn one_approval_is_for_all_effects_and_each_is_made_once_with_the_values_of_those_before() {
    let (shop, (_state, journals)) = (Shop::open(), journals().await);
    let id = waiting(&shop, &journals, None).await;
    assert!(shop.effects().is_empty(), "none is made before");
    let list = shop.asked.lock().list.clone().unwrap();
    let of = |effect: &ProposedEffect| (effect.call, effect.tool.clone(), effect.refers_to.clone());
    let expected = [(2, "order".to_owned(), vec![]), (3, "order".to_owned(), vec![]), (4, "pay".to_owned(), vec![2])];
    assert_eq!(list.effects.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!((list.reads.len(), list.reads[0].call, list.program.len()), (1, 1, 64));
    assert_eq!(list.run, id, "another run of the program needs an approval of its own");
    shop.approve();
    let outcome = run(&shop, &journals, Some(&id)).await.unwrap();
    let order = |price: Value| ("order".to_owned(), price);
    let paid = ("pay".to_owned(), json!({"order": 7, "note": "for 7"}));
    assert_eq!(shop.effects(), [order(json!({"price": 3})), order(json!({"weight": 1})), paid]);
    let shown = shop.made.lock().last().unwrap().2.clone().unwrap();
    assert_eq!(*shown, ["costly".to_owned()], "the reasons that its approver saw");
    assert_eq!(outcome.result.as_deref(), Some(r#"[3,7,{"id":7},{"id":7}]"#));
    assert_eq!((outcome.stdout.bytes, outcome.stdout.total), (b"ordered 7\n".to_vec(), 10));
    assert_eq!(shop.asked.lock().times, 1);
    let gone = journals.resume(&outer(), &Arguments::new(), &id).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound, "it has ended");
}

#[tokio::test]
async fn a_read_or_policies_that_changed_since_ask_again_and_nothing_is_made() {
    let changes: [fn(&Shop); 2] = [|shop| *shop.price.lock() = 4, |shop| *shop.version.lock() = "v2".into()];
    for change in changes {
        let (shop, (_state, journals)) = (Shop::open(), journals().await);
        let id = waiting(&shop, &journals, None).await;
        shop.approve();
        change(&shop);
        assert_eq!(waiting(&shop, &journals, Some(&id)).await, id);
        assert_eq!((shop.effects(), shop.asked.lock().times), (Vec::new(), 2));
        // Who approves that has it made.
        shop.approve();
        run(&shop, &journals, Some(&id)).await.unwrap();
        assert_eq!(shop.effects().len(), 3);
    }
}

#[tokio::test]
async fn what_an_approver_strikes_out_is_not_made() {
    let (shop, (_state, journals)) = (Shop::open(), journals().await);
    let id = waiting(&shop, &journals, None).await;
    let left = shop.asked.lock().list.as_ref().unwrap().without(&[3]).unwrap();
    shop.asked.lock().left = Some(left);
    shop.approve();
    let outcome = run(&shop, &journals, Some(&id)).await.unwrap();
    let made: Vec<_> = shop.effects().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(made, ["order", "pay"]);
    assert_eq!(outcome.result.as_deref(), Some(r#"[3,7,{"id":7},null]"#));
}

#[tokio::test]
async fn an_effect_that_fails_ends_the_run_and_says_which_one_it_was() {
    let (shop, (_state, journals)) = (Shop::open(), journals().await);
    *shop.failing.lock() = "pay";
    let id = waiting(&shop, &journals, None).await;
    shop.approve();
    let error = run(&shop, &journals, Some(&id)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ToolError);
    let expected = "the run stopped at effect 3 of 3, its call 4, of pay: denied: closed. The 2 before it were made, and none after it";
    assert!(error.message().starts_with(expected), "{error}");
    let gone = journals.resume(&outer(), &Arguments::new(), &id).await.unwrap_err();
    assert_eq!((gone.code(), shop.effects().len()), (ErrorCode::NotFound, 3));
}

#[tokio::test]
async fn a_program_without_effects_or_that_fails_asks_nobody() {
    for end in [End::Exited { code: 0 }, End::Exited { code: 1 }] {
        let (shop, (_state, journals)) = (Shop::open(), journals().await);
        let outer = outer();
        let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
        let pipeline = Arc::clone(&shop) as Arc<dyn ToolPipeline>;
        let run = ProgramRun {
            journal: Some(journal),
            proposes: true,
            ..ProgramRun::without_journal(Some(pipeline), &outer)
        };
        let tools = ProgramTools::new(run, &outer, "program", 9, Deadline::after(Duration::from_secs(9))).unwrap();
        asked_of(&tools, 0, "get", json!({})).await;
        if end != (End::Exited { code: 0 }) {
            asked_of(&tools, 1, "pay", json!({})).await;
        }
        assert!(tools.end(Ok(Outcome::without_output(end))).await.is_ok());
        assert_eq!((shop.effects(), shop.asked.lock().times), (Vec::new(), 0));
    }
}

#[tokio::test]
async fn a_read_that_may_change_something_by_now_is_not_made_again() {
    let (shop, (_state, journals)) = (Shop::open(), journals().await);
    let id = waiting(&shop, &journals, None).await;
    shop.approve();
    *shop.reading.lock() = "";
    let error = run(&shop, &journals, Some(&id)).await.unwrap_err();
    assert_eq!((error.code(), shop.made.lock().len()), (ErrorCode::ReplayDiverged, 1), "{error}");
}

/// Who runs the program could leave while an effect is made, and then tell any value, or have it made twice.
#[tokio::test]
async fn what_somebody_says_about_an_effect_is_in_no_approved_list() {
    let first = json!({"price": 3});
    let pay = |id: u32| ("pay", json!({"order": id, "note": format!("for {id}")}), 0);
    let second = ("order", json!({"weight": 1}), 1);
    // With how many of the reasons that its approver was shown each effect is made.
    for (settlement, expected) in [
        (Settlement::Made(json!({"id": 9})), vec![second.clone(), pay(9)]),
        (Settlement::NotMade, vec![("order", first.clone(), 0), second, pay(7)]),
    ] {
        let (shop, (_state, journals)) = (Shop::open(), journals().await);
        let id = waiting(&shop, &journals, None).await;
        shop.approve();
        *shop.hanging.lock() = "order";
        let left = tokio::time::timeout(Duration::from_secs(1), run(&shop, &journals, Some(&id))).await;
        assert!(left.is_err() && shop.effects() == [("order".to_owned(), first.clone())]);
        *shop.hanging.lock() = "";
        until("the run has stopped", async || journals.unknown_calls(&outer(), &id).await.is_ok()).await;
        journals.settle(&outer(), &id, (Some(2), settlement)).await.unwrap();
        run(&shop, &journals, Some(&id)).await.unwrap();
        let made = shop.made.lock();
        let of = |(tool, with, shown): &(String, Value, Option<Arc<[String]>>)| {
            shown.as_ref().map(|shown| (tool.clone(), with.clone(), shown.len()))
        };
        let made: Vec<_> = made.iter().filter_map(of).skip(1).collect();
        let expected: Vec<_> = expected.into_iter().map(|(tool, with, shown)| (tool.to_owned(), with, shown)).collect();
        assert_eq!(made, expected);
    }
}
