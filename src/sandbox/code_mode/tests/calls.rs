//! Calls of programs: their owners, their keys, and calls that do not reach the pipeline.

use super::*;
use sekisho_core::call::{CallNesting, CallResumption};

#[test]
fn a_call_of_a_program_is_its_callers_with_nothing_more() {
    let (pipeline, mut outer) = (Refusing::new(), outer());
    outer.charging.scopes.agent = Some("agent".into());
    outer.nesting.scope = outer.nesting.scope.narrowed(&[], ["secret".to_owned()]);
    let tools = tools(&pipeline, &outer, 9);
    assert_eq!(call(&tools, 0, "add", r#"{"x": 1}"#)["code"], "denied");
    let made = pipeline.made.lock();
    let (inner, arguments) = &made[0];
    assert_eq!(
        (inner.tool.as_str(), inner.via, inner.nesting.depth, arguments["x"].as_u64()),
        ("add", Via::Sandbox, 1, Some(1))
    );
    assert!(Arc::ptr_eq(&inner.caller, &outer.caller) && inner.must_end_by == Some(tools.deadline.0));
    assert_eq!(inner.nesting.scope, outer.nesting.scope);
    let parent = inner.nesting.parent.as_ref().unwrap();
    let program: [u8; 32] = Sha256::digest("program").into();
    assert_eq!((parent.id, parent.program), (outer.id, program));
    let scopes = &inner.charging.scopes;
    assert_eq!((scopes.agent.as_deref(), scopes.request.clone()), (Some("agent"), Some(format!("call:{}", outer.id))));
    assert_eq!((scopes.spent_before, inner.resumption.idempotency_key.as_ref()), (Decimal::new(3, 2), None));
    drop(made);
    let list = serde_json::to_value(outer.progress.nested.take()).unwrap();
    assert_eq!((&list["count"], &list["calls"][0]["code"]), (&json!(1), &json!("denied")));
    assert_eq!(list["calls"][0]["tool"], "add");
}

#[test]
fn a_call_that_is_sent_again_with_its_key_makes_calls_with_the_same_keys() {
    let pipeline = Refusing::new();
    for key in [Some("one"), Some("one"), Some("other"), None] {
        let mut outer = outer();
        outer.resumption.idempotency_key = key.map(str::to_owned);
        let tools = tools(&pipeline, &outer, 9);
        call(&tools, 0, "add", r#"{"x": 1, "y": 2}"#);
        call(&tools, 1, "add", r#"{"y": 2, "x": 1}"#);
        call(&tools, 0, "add", r#"{"y": 2, "x": 1.0}"#);
    }
    let made = pipeline.made.lock();
    let keys: Vec<_> = made.iter().map(|(call, _)| call.resumption.upstream_key.as_deref().unwrap()).collect();
    assert_eq!(keys[0..3], keys[3..6]);
    assert!(keys[0] == keys[2] && keys[0] != keys[1], "by position and arguments, however they are written");
    assert!(keys[6] != keys[0] && keys[9] != keys[0]);
    for (call, _) in made.iter() {
        let own = call.resumption.idempotency_key.as_deref();
        assert!(own.is_none() || own == call.resumption.upstream_key.as_deref());
    }
    assert_eq!(made.iter().filter(|(call, _)| call.resumption.idempotency_key.is_none()).count(), 3);
}

/// Also when the call that resumes the run has no key: the first one may be sent again with its key.
#[test]
fn calls_of_a_resumed_run_have_the_keys_of_the_call_that_began_it() {
    let pipeline = Refusing::new();
    let began = CallContext {
        resumption: CallResumption { idempotency_key: Some("one".into()), ..CallResumption::default() },
        ..outer()
    };
    call(&tools(&pipeline, &began, 9), 0, "add", "{}");
    let resumes = outer();
    let shared = Arc::clone(&pipeline) as Arc<dyn ToolPipeline>;
    let run = ProgramRun { keys: keys_of(&began), ..ProgramRun::without_journal(Some(shared), &resumes) };
    let resumed = ProgramTools::new(run, &resumes, "program", 9, Deadline::after(Duration::from_secs(9))).unwrap();
    call(&resumed, 0, "add", "{}");
    let made = pipeline.made.lock();
    assert!(
        made[0].0.resumption.idempotency_key.is_some()
            && made[0].0.resumption.idempotency_key == made[1].0.resumption.idempotency_key
    );
}

#[test]
fn wrong_arguments_and_too_many_calls_do_not_reach_the_pipeline() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let one = tools(&pipeline, &outer, 2);
    for wrong in ["[]", "7", r#"{"a": 1, "a": 2}"#, "{\"a\": \"\\ud800\"}", r#"{"a": 18446744073709551616}"#] {
        assert_eq!(call(&one, 0, "add", wrong)["code"], "invalid_arguments", "{wrong}");
    }
    call(&one, 0, "add", "{}");
    // A program that it runs has no calls of its own.
    let inner = CallContext {
        nesting: CallNesting { depth: 1, parent: Some(Arc::clone(&one.parent)), ..CallNesting::default() },
        ..self::outer()
    };
    let other = tools(&pipeline, &inner, 2);
    call(&other, 0, "add", "{}");
    for tools in [&one, &other] {
        let refused = call(tools, 1, "add", "{}");
        assert_eq!(refused["code"], "budget_exceeded");
        assert!(
            refused["message"].as_str().unwrap().contains("2 calls, as many as it may (`sandbox.code_mode.max_calls`)")
        );
    }
    assert_eq!(pipeline.made.lock().len(), 2);
}

#[test]
fn a_call_that_the_program_does_not_wait_for_is_listed_as_cancelled() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let tools = tools(&pipeline, &outer, 9);
    let question = ToolQuestion::Call { ordinal: 0, tool: "hang".into(), arguments: "{}".into() };
    assert!(ask(&tools, question).is_none());
    let list = serde_json::to_value(outer.progress.nested.take()).unwrap();
    assert_eq!((&list["calls"][0]["tool"], &list["calls"][0]["code"]), (&json!("hang"), &json!("cancelled")));
}
