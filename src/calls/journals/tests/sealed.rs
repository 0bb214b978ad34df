//! A journal opens only as it was written, and only for its owner.

use super::*;
use sekisho_core::error::ErrorCode;

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

/// A sealed part opens only as it was written.
#[tokio::test]
async fn hostile_bytes_as_sealed_parts_of_a_journal() {
    let fixture = Fixture::new().await;
    let owner = Owner::of(&call());
    let sealed = fixture.journals.sealed(&owner, "run", 3, &Part { start: None, entries: Vec::new() }).unwrap();
    sekisho_core::fuzz::feed(&[sealed.as_bytes()], |bytes| {
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
