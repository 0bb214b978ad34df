use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::core::call::{Caller, Via};
use crate::core::error::ErrorCode;
use crate::core::until::until;
use crate::infra::store::ReplicaIdentity;
use crate::infra::store::test_support::test_store;

struct Fixture {
    store: Store,
    journals: Arc<Journals>,
    config: Config,
    _state: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let state = TempDir::new().unwrap();
        let config = Config { state_directory: Some(state.path().to_owned()), ..Config::default() };
        let store = test_store().await;
        let journals = Arc::new(Journals::new(&config, store.clone()));
        Self { store, journals, config, _state: state }
    }

    /// Another process on the same store.
    fn restarted(&self) -> Arc<Journals> {
        Arc::new(Journals::new(&self.config, self.store.clone()))
    }

    /// A replica that lives.
    async fn replica(&self, id: &str) -> Arc<Journals> {
        let journals = self.restarted();
        journals.set_replica(&id.into());
        let (host, version, configuration, policies, degraded) = ("h", "1", "c", "p", "[]");
        let replica = ReplicaIdentity { id, host, version, configuration, policies, address: None, degraded };
        self.store.beat(replica, LOST_AFTER).await.unwrap();
        journals
    }

    fn begin(&self, call: &CallContext) -> RunJournal {
        self.journals.begin(call, &arguments(1), Some(vec![7])).unwrap()
    }
}

fn call() -> CallContext {
    CallContext::new("python_executor", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest)
}

fn arguments(n: u64) -> Arguments {
    json!({"code": "x", "n": n}).as_object().unwrap().clone()
}

fn question(ordinal: u32) -> JournalQuestion {
    JournalQuestion::Call { ordinal, tool: "pay".to_owned(), arguments: [ordinal.to_be_bytes()[3]; 32] }
}

fn ask(journal: &RunJournal, number: u32, may_repeat: bool) -> Found {
    journal.find(number, &question(number), may_repeat, (Vec::new(), false))
}

const NEW: Found = Found::New { approval: None };

fn answered(json: &str) -> Found {
    Found::Answered(JournalAnswer { is_ok: true, json: json.to_owned() })
}

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
    // As a kill leaves it: what was not written is lost.
    std::mem::forget(journal);

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
    in_profile.nested_scope = in_profile.nested_scope.narrowed(&[], ["pay".to_owned()]);
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

/// An approval may cover several calls, so that the journal alone says that this one was made.
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
    std::mem::forget(journal);
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
    assert_eq!(ask(&journal, 0, false), Found::OutcomeUnknown);
    assert_eq!(ask(&journal, 1, true), Found::OutcomeUnknown, "it could not when it was made");
}

#[tokio::test]
async fn nothing_is_written_after_a_write_that_was_cancelled() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    ask(&journal, 1, false);
    assert_eq!(journal.write().now_or_never(), None);
    ask(&journal, 2, false);
    assert!(matches!(journal.write().await, Err(NotRecordedError::Failed(_))));
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let (_journal, past) = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    assert!(past.requests.contains_key(&0) && !past.requests.contains_key(&2), "{past:?}");
}

#[tokio::test]
async fn of_several_replicas_one_resumes_a_run_and_the_former_one_writes_no_more() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.replica("one").await, fixture.replica("other").await);
    let first = call();
    let journal = one.begin(&first, &arguments(1), Some(Vec::new())).unwrap();
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    let id = first.id.to_string();
    let refused = other.resume(&call(), &arguments(1), &id).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ConversationLocked, "its replica lives");
    // As if its heartbeats did not arrive.
    let taken = fixture.store.take_program_run(&id, Owner::of(&call()).of_store(), "one", Duration::ZERO).await;
    assert_eq!(taken.unwrap(), Some(2));
    ask(&journal, 1, false);
    assert_eq!(journal.write().await, Err(NotRecordedError::Taken));
    assert!(matches!(journal.write().await, Err(NotRecordedError::Failed(_))), "nothing is written after a gap");
    journal.end(RunEnd::Ended).await;
    assert_eq!(fixture.store.program_run_parts(&id).await.unwrap().len(), 1, "it is another's");
}

#[tokio::test]
async fn of_several_resumes_at_once_one_goes_on() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let (one, other) = (fixture.replica("one").await, fixture.replica("other").await);
    let (caller, arguments, id) = (call(), arguments(1), first.id.to_string());
    let resume = |journals| Journals::resume(journals, &caller, &arguments, &id);
    let (a, b, c) = tokio::join!(resume(&one), resume(&other), resume(&one));
    let refused: Vec<_> = [a, b, c].into_iter().filter_map(Result::err).map(|error| error.code()).collect();
    assert_eq!(refused, [ErrorCode::ConversationLocked; 2]);
}

#[tokio::test]
async fn a_journal_that_was_changed_does_not_open() {
    for change in [
        "UPDATE program_run_parts SET sealed = 'x' || sealed WHERE number = 1",
        "UPDATE program_run_parts SET number = number + 10",
        "DELETE FROM program_run_parts WHERE number = 1",
        "UPDATE program_run_parts SET sealed = (SELECT sealed FROM program_run_parts WHERE number = 0) WHERE number = 1",
        "DELETE FROM program_run_parts",
    ] {
        let fixture = Fixture::new().await;
        let first = call();
        let journal = fixture.begin(&first);
        for number in 0..3 {
            ask(&journal, number, false);
            journal.write().await.unwrap();
        }
        assert!(journal.end(RunEnd::Stopped { approval: None }).await);
        fixture.store.change_rows(change).await;
        let refused = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ReplayDiverged, "{change}");
    }
}

/// What a part is sealed as opens only as it was written.
#[tokio::test]
async fn hostile_bytes_as_sealed_parts_of_a_journal() {
    let fixture = Fixture::new().await;
    let owner = Owner::of(&call());
    let sealed = fixture.journals.sealed(&owner, "run", 3, &Part { start: None, entries: Vec::new() }).unwrap();
    crate::core::fuzz::feed(&[sealed.as_bytes()], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let opened = fixture.journals.opened(&owner, "run", 3, &text);
        assert!(opened.is_err() || *text == *sealed, "{opened:?}");
    });
    assert!(fixture.journals.opened(&owner, "run", 3, &sealed).is_ok());
}

#[tokio::test]
async fn a_journal_that_was_given_to_another_does_not_open() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let of = |caller| CallContext::new("python_executor", Arc::new(caller), Via::Rest);
    let mut narrowed = Caller::new("ann", "acme", Vec::new());
    narrowed.tools = narrowed.tools.narrowed(vec!["python_executor".to_owned()]);
    let others =
        [of(Caller::new("bob", "acme", Vec::new())), of(Caller::new("ann", "other", Vec::new())), of(narrowed)];
    for other in others {
        let Owner { tenant, caller_key, endpoint } = Owner::of(&other);
        let change = format!(
            "UPDATE program_runs SET tenant = '{tenant}', caller_key = '{caller_key}', endpoint = '{endpoint}'"
        );
        fixture.store.change_rows(&change).await;
        let refused = fixture.journals.resume(&other, &arguments(1), &first.id.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ReplayDiverged, "{change}");
    }
}

#[tokio::test]
async fn a_run_that_is_too_large_goes_on_and_says_that_it_cannot_be_resumed() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    journal.answer(0, true, &"x".repeat(MAX_JOURNAL_BYTES));
    assert_eq!(journal.lost(), Some(TOO_LARGE));
    journal.write().await.unwrap();
    ask(&journal, 1, false);
    journal.write().await.unwrap();
    assert!(!journal.end(RunEnd::Stopped { approval: Some("a") }).await);
    let refused = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap_err();
    assert!(refused.code() == ErrorCode::TooLarge && refused.message().contains("4 MiB"), "{refused}");

    let journal = fixture.begin(&call());
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    journal.lose(TOO_MANY_READINGS);
    journal.write().await.unwrap();
    assert_eq!(fixture.journals.list(&call()).await.unwrap().len(), 2);
    assert!(!journal.end(RunEnd::Ended).await);
    assert_eq!(fixture.journals.list(&call()).await.unwrap().len(), 1, "one that has ended is not listed");

    // What was written before a run was resumed counts too.
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    let random = vec![Reading::Random(vec![7; MAX_JOURNAL_BYTES / 2])];
    assert_eq!(journal.find(1, &question(1), false, (random, false)), NEW);
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let (journal, _) = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    journal.answer(0, true, &"x".repeat(MAX_JOURNAL_BYTES / 2));
    assert_eq!(journal.lost(), Some(TOO_LARGE));
    assert!(!journal.end(RunEnd::Stopped { approval: None }).await);

    let journal = fixture.begin(&call());
    journal.lose(TOO_MANY_READINGS);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    assert!(!journal.end(RunEnd::Ended).await);
    let large = fixture.journals.begin(&call(), &arguments(1), None).unwrap();
    assert!(large.lost().is_some());
}

#[tokio::test]
async fn answers_that_may_be_lost_are_written_with_the_next_and_after_a_while() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    let id = first.id.to_string();
    let parts = async || fixture.store.program_run_parts(&id).await.unwrap().len();
    ask(&journal, 0, true);
    journal.answer(0, true, "1");
    journal.write_if_due().await.unwrap();
    assert_eq!(parts().await, 0);
    // Paused for a moment: the store needs the time that passes.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(200)).await;
    tokio::time::resume();
    ask(&journal, 1, true);
    journal.answer(1, true, "1");
    journal.write_if_due().await.unwrap();
    assert_eq!(parts().await, 1, "both at once");
    ask(&journal, 2, true);
    journal.answer(2, true, "1");
    ask(&journal, 3, false);
    journal.write().await.unwrap();
    assert_eq!(parts().await, 2);
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
    let parts = async || fixture.store.program_run_parts(&id).await.unwrap().len();
    until("the run is taken", async || parts().await == 2).await;
    until("the run is stopped again", &stopped).await;
    let fence = fixture.store.take_program_run(&id, Owner::of(&call()).of_store(), "other", LOST_AFTER).await;
    assert_eq!(fence.unwrap(), Some(3), "it was taken");
}
