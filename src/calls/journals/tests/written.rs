//! The entries that are written, the time of writing, and runs that are too large.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use sekisho_core::error::ErrorCode;

#[tokio::test]
async fn nothing_is_written_after_a_write_that_was_cancelled() {
    let fixture = Fixture::new().await;
    let first = call();
    let journal = fixture.begin(&first);
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    let mut cancelled = 1;
    ask(&journal, cancelled, false);
    // A database can answer within the first poll.
    while journal.write().now_or_never().is_some() {
        cancelled += 1;
        ask(&journal, cancelled, false);
    }
    let after = cancelled + 1;
    ask(&journal, after, false);
    assert!(matches!(journal.write().await, Err(NotRecordedError::Failed(_))));
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    let (_journal, past) = fixture.journals.resume(&call(), &arguments(1), &first.id.to_string()).await.unwrap();
    assert!(past.requests.contains_key(&0) && !past.requests.contains_key(&after), "{past:?}");
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

    // The bytes that were written before a run was resumed count too.
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
    let parts = async || fixture.store.program_runs().parts(&id).await.unwrap().len();
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
