//! One of several replicas resumes a run.

use super::*;
use sekisho_core::error::ErrorCode;

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
    // As if it could not renew its lease.
    end_leases(&fixture.store).await;
    let taken = fixture.store.program_runs().take(&id, Owner::of(&call()).of_store(), Some("other")).await;
    assert!(taken.unwrap().is_some());
    ask(&journal, 1, false);
    assert_eq!(journal.write().await, Err(NotRecordedError::Taken));
    assert!(matches!(journal.write().await, Err(NotRecordedError::Failed(_))), "nothing is written after a gap");
    journal.end(RunEnd::Ended).await;
    assert_eq!(fixture.store.program_runs().parts(&id).await.unwrap().len(), 1, "it is another's");
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
