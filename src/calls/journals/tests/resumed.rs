//! Which runs are resumed, by whom, and with which state.

use futures_util::FutureExt;

use super::*;
use sekisho_core::error::ErrorCode;
use sekisho_core::until::until;

#[tokio::test]
async fn a_run_that_was_killed_is_resumed_with_what_was_written() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    assert_eq!(journal.find(0, &question(0), false, (vec![Reading::Real(5)], false)), NEW);
    journal.answer(0, true, "1");
    journal.write().await.unwrap();
    assert_eq!([ask(&journal, 1, true), ask(&journal, 2, false)], [NEW, NEW]);
    journal.write().await.unwrap();
    assert_eq!(ask(&journal, 3, false), NEW);
    fixture.kill(journal).await;

    let after = fixture.restarted();
    let (journal, past) = after.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    assert_eq!((past.readings, past.start.input), (vec![Reading::Real(5)].into(), vec![7]));
    assert_eq!(ask(&journal, 0, false), answered("1"));
    assert!(!journal.is_caught_up());
    assert_eq!(ask(&journal, 1, true), NEW, "it may be made again");
    assert_eq!(ask(&journal, 2, false), Found::OutcomeUnknown);
    assert!(journal.is_caught_up());
    assert_eq!(ask(&journal, 3, false), NEW, "it was not sent");
    journal.answer(2, false, "{}");
    journal.write().await.unwrap();
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);

    let (journal, _) = after.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    ask(&journal, 0, false);
    ask(&journal, 1, true);
    let unknown = Found::Answered(JournalAnswer { is_ok: false, json: "{}".to_owned() });
    assert_eq!(ask(&journal, 2, false), unknown, "the same as before");
    assert!(!journal.end(RunEnd::Ended).await);
    let gone = after.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn a_program_that_does_something_else_diverges() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    for number in 0..3 {
        ask(&journal, number, true);
        journal.answer(number, true, "1");
    }
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let id = first.id.to_string();
    let resume = async || fixture.journals.resume(&call(), &arguments(1), &id).await.unwrap().0;
    let journal = resume().await;
    assert_eq!(journal.find(0, &question(9), true, (Vec::new(), false)), Found::Diverged, "another call");
    journal.end(RunEnd::Stopped { approval: None }).await;
    let journal = resume().await;
    assert_eq!(journal.find(0, &question(0), true, (vec![Reading::Real(1)], false)), Found::Diverged, "it read more");
    journal.end(RunEnd::Stopped { approval: None }).await;
    let journal = resume().await;
    for number in 0..3 {
        assert_eq!(ask(&journal, number, true), answered("1"));
    }
    assert_eq!(journal.find(3, &question(3), true, (Vec::new(), true)), Found::Diverged, "it read less");
    journal.end(RunEnd::Stopped { approval: None }).await;
    let journal = resume().await;
    assert_eq!(ask(&journal, 3, true), Found::Diverged, "it left calls out");
}

#[tokio::test]
async fn a_run_waits_for_an_approval_and_only_its_caller_resumes_it() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    journal.pause(0, "a-1");
    assert!(journal.end(RunEnd::Stopped { approval: Some("a-1") }).await);
    let (journals, id) = (&fixture.journals, first.id.to_string());
    let awaiting = async |call: &CallContext, n, approval| {
        journals.awaiting(call, &arguments(n), approval).await.unwrap().map(|run| run.to_string())
    };
    assert_eq!(awaiting(&call(), 1, "a-1").await, Some(id.clone()));
    assert_eq!((awaiting(&call(), 2, "a-1").await, awaiting(&call(), 1, "a-2").await), (None, None));
    let of = |caller| CallContext::new("python_executor", Arc::new(caller), Via::Rest);
    let mut narrowed = Caller::new("ann", "acme", Vec::new());
    narrowed.tools = narrowed.tools.narrowed(vec!["python_executor".to_owned()]);
    let mut in_profile = call();
    in_profile.nesting.scope = in_profile.nesting.scope.narrowed(&[], ["pay".to_owned()]);
    let others = [
        of(Caller::new("bob", "acme", Vec::new())),
        of(Caller::new("ann", "other", Vec::new())),
        of(narrowed),
        in_profile,
    ];
    for other in &others {
        assert_eq!(awaiting(other, 1, "a-1").await, None);
        assert_eq!(journals.list(other).await.unwrap(), []);
        let refused = journals.resume(other, &arguments(1), &id).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::NotFound);
        assert_eq!(journals.recorded_call(other, &id).await.unwrap_err().code(), ErrorCode::NotFound);
    }
    assert_eq!(journals.recorded_call(&call(), &id).await.unwrap().arguments, arguments(1));
    let refused = journals.resume(&call(), &arguments(2), &id).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ReplayDiverged, "other arguments");
    let of_another = CallContext { tool: "weather__now".to_owned(), ..call() };
    let refused = journals.resume(&of_another, &arguments(1), &id).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ReplayDiverged, "another tool");
    let (journal, _) = journals.resume(&call(), &arguments(1), &id).await.unwrap();
    let refused = journals.resume(&call(), &arguments(1), &id).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ConversationLocked, "it runs");
    let refused = journals.resume(&others[0], &arguments(1), &id).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::NotFound, "nobody else hears of it");
    assert_eq!(ask(&journal, 0, false), Found::New { approval: Some("a-1".into()) });
}

/// An approval may cover several calls, so that only the journal says that this one was made.
#[tokio::test]
async fn a_call_that_was_made_by_its_approval_is_not_made_again() {
    let fixture = Fixture::new().await;
    let first = call();
    let (journal, id) = (fixture.begin(&first), first.id.to_string());
    ask(&journal, 0, false);
    journal.pause(0, "a-1");
    assert!(journal.end(RunEnd::Stopped { approval: Some("a-1") }).await);
    let journals = fixture.restarted();
    let (journal, _) = journals.resume(&call(), &arguments(1), &id).await.unwrap();
    assert_eq!(ask(&journal, 0, false), Found::New { approval: Some("a-1".into()) });
    journal.make(0);
    journal.pause(0, "a-2");
    assert!(journal.end(RunEnd::Stopped { approval: Some("a-2") }).await);
    let (journal, _) = journals.resume(&call(), &arguments(1), &id).await.unwrap();
    assert_eq!(ask(&journal, 0, false), Found::New { approval: Some("a-2".into()) }, "it was refused again");
    journal.make(0);
    journal.write().await.unwrap();
    fixture.kill(journal).await;
    let (journal, _) = fixture.restarted().resume(&call(), &arguments(1), &id).await.unwrap();
    assert_eq!(ask(&journal, 0, false), Found::OutcomeUnknown);
}

#[tokio::test]
async fn a_call_is_made_again_only_if_its_tool_may_still_be_called_twice() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, true);
    ask(&journal, 1, false);
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let (journal, _) = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    assert_eq!(ask(&journal, 0, false), Found::LeftUnknown);
    assert_eq!(ask(&journal, 1, true), Found::OutcomeUnknown, "it could not when it was made");
}

#[tokio::test]
async fn a_run_whose_caller_has_left_is_stopped() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    drop(journal);
    let stopped = async || {
        let runs = fixture.journals.list(&call()).await.unwrap();
        runs[0].state == ProgramRunState::Stopped && fixture.journals.running.lock().is_empty()
    };
    until("the run is stopped", &stopped).await;
    // Also one that leaves while the run is taken for it, by which its journal has one more part.
    let (id, arguments) = (first.id.to_string(), arguments(1));
    assert!(fixture.journals.resume(&call(), &arguments, &id).now_or_never().is_none());
    let parts = async || fixture.store.program_runs().parts(&id).await.unwrap().len();
    until("the run is taken", async || parts().await == 2).await;
    until("the run is stopped again", &stopped).await;
    let taken = fixture.store.program_runs().take(&id, Owner::of(&call()).of_store(), Some("other")).await;
    assert!(taken.unwrap().is_some(), "nobody has it");
}
