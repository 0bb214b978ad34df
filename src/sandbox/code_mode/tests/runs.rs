//! Runs with a journal: they end where an approval is needed, and are resumed.

use super::*;
use sekisho_calls::journals::{Reading, RunEnd, Settlement};
use sekisho_config::Config;
use sekisho_core::until::until;
use sekisho_guest_protocol::{End, ReadStanding};
use sekisho_store::test_support::test_store;

/// The journals of a gateway, and a run that the caller begins in them.
async fn journals() -> (tempfile::TempDir, Arc<Journals>) {
    let state = tempfile::tempdir().unwrap();
    let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
    (state, Arc::new(Journals::new(&config, test_store().await.program_runs())))
}

/// The reply to a call, as the JSON of its error; none when the run is to end.
async fn call_in_run(tools: &ProgramTools<'_>, number: u32, tool: &str, readings: Vec<Reading>) -> Option<Value> {
    let question = ToolQuestion::Call { ordinal: number, tool: tool.into(), arguments: r#"{"x": 1}"#.into() };
    let read = ReadSoFar { readings, standing: ReadStanding::Recorded };
    let reply = tools.answer(ToolRequest { number, question, read }).await?;
    assert_eq!((reply.number, reply.is_ok), (number, false));
    Some(serde_json::from_slice(&reply.json).unwrap())
}

fn ended(end: End) -> Result<Outcome, CallError> {
    Ok(Outcome::without_output(end))
}

#[tokio::test]
async fn a_run_that_needs_an_approval_ends_and_is_resumed_without_calling_anything_twice() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let first = call_in_run(&tools, 0, "a-b", vec![Reading::Real(7)]).await.unwrap();
    tools.journal.as_ref().unwrap().charge(Decimal::new(5, 2));
    let second = call_in_run(&tools, 1, "add", Vec::new()).await.unwrap();
    assert_eq!(call_in_run(&tools, 2, "c-d", Vec::new()).await, None);
    assert!(tools.is_to_end());
    let error = tools.end(ended(End::Cancelled)).await.unwrap_err();
    let id = outer.id.to_string();
    assert_eq!((error.code(), error.run().map(|run| &**run)), (ErrorCode::ApprovalRequired, Some(&*id)));
    assert_eq!(error.approval(), Some(&approval()));

    let again = self::outer();
    let (journal, past) = journals.resume(&again, &Arguments::new(), &id).await.unwrap();
    assert_eq!(past.readings, [Reading::Real(7)]);
    let tools = tools_of(&pipeline, &again, 9, Some(journal));
    assert_eq!(tools.scopes.request, Some(format!("call:{id}")), "it is one request");
    assert_eq!(tools.scopes.spent_before, Decimal::new(8, 2), "also where nobody knows of it any more");
    assert_eq!(call_in_run(&tools, 0, "a-b", Vec::new()).await.unwrap(), first);
    assert_eq!(call_in_run(&tools, 1, "add", Vec::new()).await.unwrap(), second);
    assert_eq!(call_in_run(&tools, 2, "c-d", Vec::new()).await.unwrap()["kind"], "denied");
    assert!(tools.end(ended(End::Exited { code: 0 })).await.is_ok());
    let of_call = |(call, _): &(CallContext, Arguments)| {
        (call.tool.clone(), call.resumption.approval.as_deref().map(str::to_owned))
    };
    let made: Vec<_> = pipeline.made.lock().iter().map(of_call).collect();
    let approved = ("c-d".to_owned(), Some("a-1".to_owned()));
    let [first, second, third] = ["a-b", "add", "c-d"].map(|tool| (tool.to_owned(), None));
    assert_eq!(made, [first, second, third, approved]);
    let list = serde_json::to_value(again.progress.nested.take()).unwrap();
    assert_eq!((&list["count"], &list["replayed"]), (&json!(1), &json!(2)));
    let gone = journals.resume(&again, &Arguments::new(), &id).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound, "it has ended");
}

#[tokio::test]
async fn a_replay_that_differs_ends_the_run_and_leaves_it_as_it_was() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    for number in 0..2 {
        call_in_run(&tools, number, "a-b", Vec::new()).await.unwrap();
    }
    let failed = tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    assert!(failed.code() == ErrorCode::SandboxTrap && failed.run().is_some() && failed.message().contains("/resume"));
    let id = outer.id.to_string();
    let resumed = async || {
        let journal = journals.resume(&outer, &Arguments::new(), &id).await.unwrap().0;
        tools_of(&pipeline, &outer, 9, Some(journal))
    };
    let tools = resumed().await;
    assert_eq!(call_in_run(&tools, 0, "add", Vec::new()).await, None, "another tool");
    let diverged = tools.end(ended(End::Cancelled)).await.unwrap_err();
    assert_eq!(diverged.code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let question = ToolQuestion::Call { ordinal: 0, tool: "a-b".into(), arguments: r#"{"x": 2}"#.into() };
    assert!(tools.answer(ToolRequest { number: 0, question, read: ReadSoFar::default() }).await.is_none());
    assert_eq!(tools.end(ended(End::Cancelled)).await.unwrap_err().code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let question = ToolQuestion::Call { ordinal: 0, tool: "a-b".into(), arguments: r#"{ "x" : 1.0 }"#.into() };
    let read = ReadSoFar { standing: ReadStanding::Diverged, ..ReadSoFar::default() };
    assert!(tools.answer(ToolRequest { number: 0, question: question.clone(), read }).await.is_none());
    assert_eq!(tools.end(ended(End::Cancelled)).await.unwrap_err().code(), ErrorCode::ReplayDiverged);

    let tools = resumed().await;
    let read = ReadSoFar::default();
    assert!(tools.answer(ToolRequest { number: 0, question, read }).await.is_some(), "written in another way");
    let early = tools.end(ended(End::Exited { code: 0 })).await.unwrap_err();
    assert_eq!(early.code(), ErrorCode::ReplayDiverged, "it has left a call out");
    assert_eq!(pipeline.made.lock().len(), 2, "nothing was called again");
}

#[tokio::test]
async fn a_run_without_a_whole_journal_says_that_it_cannot_be_resumed() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let question = ToolQuestion::Call { ordinal: 0, tool: "add".into(), arguments: "{}".into() };
    let read = ReadSoFar { standing: ReadStanding::TooManyReadings, ..ReadSoFar::default() };
    assert!(tools.answer(ToolRequest { number: 0, question, read }).await.is_some(), "the program goes on");
    assert_eq!(call_in_run(&tools, 1, "c-d", Vec::new()).await, None);
    let error = tools.end(ended(End::Cancelled)).await.unwrap_err();
    assert_eq!((error.code(), error.run(), error.approval()), (ErrorCode::ApprovalRequired, None, None));
    assert!(error.message().contains("10000 times") && error.message().contains("X-Approval-Id: a-1"), "{error}");
    let without = self::tools(&pipeline, &outer, 9);
    let refused = call_in_run(&without, 0, "c-d", Vec::new()).await.unwrap();
    assert!(refused["message"].as_str().unwrap().contains("approval_required"), "as in a session: {refused}");
}

/// Calls that are under way end, and their answers are in the journal.
#[tokio::test]
async fn calls_beside_one_that_needs_an_approval_end_first() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    let (ask, asked) = mpsc::channel(9);
    for (number, tool) in (0..).zip(["a-b", "c-d", "a-b"]) {
        let question = ToolQuestion::Call { ordinal: number, tool: tool.into(), arguments: "{}".into() };
        ask.send(ToolRequest { number, question, read: ReadSoFar::default() }).await.unwrap();
    }
    assert!(answer_all(asked, &tools, |_| {}).await.is_err());
    assert!(tools.end(ended(End::Cancelled)).await.is_err());
    let (_, past) = journals.resume(&outer, &Arguments::new(), &outer.id.to_string()).await.unwrap();
    for (number, request) in &past.requests {
        assert_eq!((request.answer.is_some(), request.approval.is_some()), (*number != 1, *number == 1));
    }
}

/// As after `kill -9` while it runs: nobody is asked for a call that its approval allows.
#[tokio::test]
async fn an_approved_call_that_was_sent_is_not_sent_again() {
    let (pipeline, outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    let request = || {
        let question = ToolQuestion::Call { ordinal: 0, tool: "c-d".into(), arguments: r#"{"hang": 1}"#.into() };
        ToolRequest { number: 0, question, read: ReadSoFar::default() }
    };
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    assert!(tools.answer(request()).await.is_none());
    tools.end(ended(End::Cancelled)).await.unwrap_err();
    let id = outer.id.to_string();
    let resumed = async || {
        let journal = journals.resume(&outer, &Arguments::new(), &id).await.unwrap().0;
        tools_of(&pipeline, &outer, 9, Some(journal))
    };
    let tools = resumed().await;
    tokio::select! {
        answered = tools.answer(request()) => panic!("it has no answer: {answered:?}"),
        () = until("the call is made again", async || pipeline.made.lock().len() == 2) => {}
    }
    tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    let tools = resumed().await;
    assert!(tools.answer(request()).await.is_none());
    let stopped = tools.end(ended(End::Cancelled)).await.unwrap_err();
    assert_eq!((stopped.code(), stopped.run().map(|run| &**run)), (ErrorCode::UnknownOutcome, Some(&*id)));
    assert!(stopped.message().contains("/settle") && !stopped.message().contains("hang"), "{stopped}");
    assert!(stopped.details()[0].message.contains(r#"c-d: {"hang":1}"#));
    assert_eq!(pipeline.made.lock().len(), 2);

    journals.settle(&outer, &id, (Some(1), Settlement::Unknown)).await.unwrap();
    let tools = resumed().await;
    let reply = tools.answer(request()).await.unwrap();
    assert!(!reply.is_ok && String::from_utf8(reply.json).unwrap().contains("unknown_outcome"));
    assert!(tools.end(ended(End::Exited { code: 0 })).await.is_ok());
    assert_eq!(pipeline.made.lock().len(), 2);
}

/// Whoever settles it has seen that nothing was sent.
#[tokio::test]
async fn a_call_that_was_not_made_is_made_when_its_run_is_resumed() {
    let (pipeline, mut outer, (_state, journals)) = (Refusing::new(), outer(), journals().await);
    outer.resumption.idempotency_key = Some("one".into());
    let request = || {
        let question = ToolQuestion::Call { ordinal: 0, tool: "hang".into(), arguments: "{}".into() };
        ToolRequest { number: 0, question, read: ReadSoFar::default() }
    };
    let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
    let tools = tools_of(&pipeline, &outer, 9, Some(journal));
    tokio::select! {
        answered = tools.answer(request()) => panic!("it has no answer: {answered:?}"),
        () = until("the call is made", async || pipeline.made.lock().len() == 1) => {}
    }
    tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    let id = outer.id.to_string();
    journals.settle(&outer, &id, (None, Settlement::NotMade)).await.unwrap();
    let resumed = async || {
        let journal = journals.resume(&outer, &Arguments::new(), &id).await.unwrap().0;
        tools_of(&pipeline, &outer, 9, Some(journal))
    };
    let tools = resumed().await;
    tokio::select! {
        answered = tools.answer(request()) => panic!("it has no answer: {answered:?}"),
        () = until("the call is made again", async || pipeline.made.lock().len() == 2) => {}
    }
    tools.end(Err(CallError::new(ErrorCode::SandboxTrap, "the worker exited"))).await.unwrap_err();
    journals.settle(&outer, &id, (None, Settlement::Made(json!("paid")))).await.unwrap();
    let reply = resumed().await.answer(request()).await.unwrap();
    assert_eq!((reply.is_ok, reply.json), (true, br#""paid""#.to_vec()));
    let made = pipeline.made.lock();
    let [first, second] = [&made[0].0.resumption, &made[1].0.resumption];
    assert!(made.len() == 2 && first.idempotency_key.is_some() && second.idempotency_key.is_none());
    assert_eq!(first.upstream_key, second.upstream_key, "the API may know better");
}

/// As if the caller had had the role of `secret` before.
#[tokio::test]
async fn answers_of_tools_that_the_caller_may_not_use_any_more_are_not_given_again() {
    let (pipeline, (_state, journals)) = (Refusing::new(), journals().await);
    for (tool, is_ok, json, is_given) in [
        ("secret", true, "1", false),
        ("secret", false, r#"{"kind":"tool_error","message":"{}"}"#, false),
        ("secret", false, r#"{"kind":"unknown_tool","message":"{}"}"#, true),
        ("gone", true, "1", false),
        ("add", true, "1", true),
    ] {
        let outer = outer();
        let question = ToolQuestion::Call { ordinal: 0, tool: tool.into(), arguments: "{}".into() };
        let journal = journals.begin(&outer, &Arguments::new(), Some(Vec::new())).unwrap();
        journal.find(0, &Wanted::of(question.clone()).question(), false, (Vec::new(), false));
        journal.answer(0, is_ok, json);
        assert!(journal.end(RunEnd::Stopped { approval: None }).await);
        let (journal, _) = journals.resume(&outer, &Arguments::new(), &outer.id.to_string()).await.unwrap();
        let tools = tools_of(&pipeline, &outer, 9, Some(journal));
        let reply = tools.answer(ToolRequest { number: 0, question, read: ReadSoFar::default() }).await;
        let given = reply.map(|reply| (reply.is_ok, reply.json));
        assert_eq!(given, is_given.then(|| (is_ok, json.into())), "{tool}: {json}");
        if !is_given {
            let refused = tools.end(ended(End::Cancelled)).await.unwrap_err();
            assert!(refused.code() == ErrorCode::UnknownTool && refused.message().contains(tool), "{refused}");
        }
    }
    assert!(pipeline.made.lock().is_empty());
}
