//! Calls whose outcome is not known, and who settles them.

use super::*;
use sekisho_core::error::ErrorCode;

/// A run that was killed while its calls of these numbers were under way.
async fn killed(fixture: &Fixture, under_way: &[u32]) -> String {
    let first = call();
    let journal = fixture.begin(&first);
    for number in 0..=*under_way.last().unwrap() {
        ask(&journal, number, false);
        if !under_way.contains(&number) {
            journal.answer(number, true, "1");
        }
    }
    journal.write().await.unwrap();
    fixture.kill(journal).await;
    first.id.to_string()
}

/// The journal's answer to the last call when the run is resumed, which stops again there.
async fn resumed(journals: &Arc<Journals>, run: &str, calls: u32) -> Found {
    let (journal, _) = journals.resume(&call(), &arguments(1), run).await.unwrap();
    let found: Vec<_> = (0..calls).map(|number| ask(&journal, number, false)).collect();
    assert!(journal.end(RunEnd::Stopped { approval: None }).await);
    found.into_iter().next_back().unwrap()
}

#[tokio::test]
async fn a_call_of_unknown_outcome_is_settled_and_its_run_goes_on_with_that() {
    let fixture = Fixture::new().await;
    let run = killed(&fixture, &[1]).await;
    let after = fixture.restarted();
    let settle = async |settlement| after.settle(&call(), &run, (None, settlement)).await;
    assert_eq!(resumed(&after, &run, 2).await, Found::OutcomeUnknown);
    assert_eq!(resumed(&after, &run, 2).await, Found::OutcomeUnknown, "it stays stopped");
    let unknown = after.unknown_calls(&call(), &run).await.unwrap();
    assert_eq!(unknown, [UnknownCall { number: 2, tool: "pay".to_owned(), arguments_sha256: "01".repeat(32) }]);

    assert_eq!(settle(Settlement::NotMade).await.unwrap(), unknown[0]);
    assert_eq!(after.unknown_calls(&call(), &run).await.unwrap(), []);
    assert_eq!(settle(Settlement::NotMade).await.unwrap_err().code(), ErrorCode::InvalidRequest, "it is settled");
    assert_eq!(resumed(&after, &run, 2).await, Found::NotMade);
    assert_eq!(resumed(&after, &run, 2).await, Found::OutcomeUnknown, "it was started again, and has no answer");
    settle(Settlement::Unknown).await.unwrap();
    assert_eq!(resumed(&after, &run, 2).await, Found::LeftUnknown);

    let run = killed(&fixture, &[0]).await;
    let large = Settlement::Made("x".repeat(MAX_JOURNAL_BYTES).into());
    assert_eq!(after.settle(&call(), &run, (None, large)).await.unwrap_err().code(), ErrorCode::TooLarge);
    after.settle(&call(), &run, (Some(1), Settlement::Made(json!({"paid": 7})))).await.unwrap();
    assert_eq!(resumed(&after, &run, 1).await, answered(r#"{"paid":7}"#));
}

#[tokio::test]
async fn of_several_calls_one_is_named() {
    let fixture = Fixture::new().await;
    let run = killed(&fixture, &[0, 2]).await;
    let after = fixture.restarted();
    for number in [None, Some(2), Some(9)] {
        let refused = after.settle(&call(), &run, (number, Settlement::NotMade)).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidRequest, "{number:?}");
        assert!(refused.message().contains("1 (of pay), 3 (of pay)"), "{refused}");
    }
    assert_eq!(after.settle(&call(), &run, (Some(3), Settlement::NotMade)).await.unwrap().number, 3);
    assert_eq!(after.settle(&call(), &run, (None, Settlement::NotMade)).await.unwrap().number, 1);
}

#[tokio::test]
async fn a_run_is_settled_by_its_caller_and_by_administrators_of_its_tenant_while_it_does_not_run() {
    let fixture = Fixture::new().await;
    let run = killed(&fixture, &[0]).await;
    let after = fixture.restarted();
    let by = |tenant: &str, roles: &[&str]| {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        CallContext::new("python_executor", Arc::new(Caller::new("root", tenant, roles)), Via::Rest)
    };
    for (asking, refused) in [
        (by("acme", &[]), Some(ErrorCode::NotFound)),
        (by("acme", &["operator"]), Some(ErrorCode::NotFound)),
        (by("globex", &["admin"]), Some(ErrorCode::NotFound)),
        (by("acme", &["admin"]), None),
        (by("default", &["admin"]), None),
        (call(), None),
    ] {
        let seen = after.unknown_calls(&asking, &run).await.map(|calls| calls.len());
        assert_eq!(seen.as_ref().err().map(CallError::code), refused, "{asking:?}");
        let settled = after.settle(&asking, &run, (Some(9), Settlement::NotMade)).await.unwrap_err();
        assert_eq!(settled.code(), refused.unwrap_or(ErrorCode::InvalidRequest), "{asking:?}");
    }
    after.settle(&by("acme", &["admin"]), &run, (None, Settlement::NotMade)).await.unwrap();
    assert_eq!(resumed(&after, &run, 1).await, Found::NotMade);

    let run = killed(&fixture, &[0]).await;
    let (journal, _) = after.resume(&call(), &arguments(1), &run).await.unwrap();
    let refused = after.settle(&call(), &run, (None, Settlement::NotMade)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ConversationLocked);
    journal.end(RunEnd::Ended).await;
    let gone = after.settle(&call(), &run, (None, Settlement::NotMade)).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn the_calls_of_a_run_at_another_replica_are_under_way_until_it_is_lost() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.replica("one").await, fixture.replica("other").await);
    let first = call();
    let journal = one.begin(&first, &arguments(1), Some(vec![7])).unwrap();
    ask(&journal, 0, false);
    journal.write().await.unwrap();
    let id = first.id.to_string();
    assert_eq!(other.unknown_calls(&call(), &id).await.unwrap_err().code(), ErrorCode::ConversationLocked);
    let refused = other.settle(&call(), &id, (None, Settlement::NotMade)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ConversationLocked);
    fixture.store.replicas().remove("one").await.unwrap();
    assert_eq!(other.unknown_calls(&call(), &id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refused_settlement_adds_nothing_to_the_journal() {
    let fixture = Fixture::new().await;
    let run = killed(&fixture, &[0]).await;
    let after = fixture.restarted();
    let large = Settlement::Made("x".repeat(MAX_JOURNAL_BYTES).into());
    for (number, settlement) in [(Some(9), Settlement::NotMade), (None, large)] {
        assert!(after.settle(&call(), &run, (number, settlement)).await.is_err());
    }
    assert_eq!(fixture.store.program_runs().parts(&run).await.unwrap().len(), 1);
}
