use super::*;
use crate::test_support::{end_leases, test_store};

fn moment(second: i64) -> DatabaseTime {
    Timestamp::from_second(1_800_000_000 + second).unwrap().into()
}

fn plan(id: &str, caller_key: &str, created: i64) -> StoredPlan {
    StoredPlan {
        id: id.into(),
        caller_key: caller_key.into(),
        agent: "a".into(),
        session: None,
        status: RUNNING.into(),
        is_interrupted: false,
        created: moment(created),
        changed: moment(created),
        state: "{}".into(),
    }
}

async fn found(store: &Store) -> StoredPlan {
    store.plans().get("ann", "1").await.unwrap().unwrap()
}

#[tokio::test]
async fn only_the_run_that_has_a_plan_saves_it_and_learns_what_its_caller_wants() {
    let store = test_store().await;
    let plans = store.plans();
    let first = plans.add(&plan("1", "ann", 0), None).await.unwrap();
    let saved = plans.save(&first, (RUNNING, "{\"a\":1}"), &[], moment(1)).await.unwrap();
    assert_eq!(saved, Some((PlanWish::GoOn, Vec::new())));
    assert!(plans.set_wish("1", PlanWish::Pause).await.unwrap());
    assert_eq!(store.work().renew(&first.lease).await.unwrap(), LockState::Held, "it stops after its node");
    let saved = plans.save(&first, ("paused", "{\"a\":2}"), &[], moment(3)).await.unwrap();
    assert_eq!(saved, Some((PlanWish::Pause, Vec::new())));
    assert!(!plans.set_wish("1", PlanWish::Cancel).await.unwrap(), "it does not run");
    assert_eq!(plans.save(&first, (RUNNING, "{}"), &[], moment(4)).await.unwrap(), None);

    let paused = found(&store).await;
    assert_eq!((paused.status.as_str(), paused.state.as_str()), ("paused", "{\"a\":2}"));
    let second = plans.resume(&paused, "{}", None, moment(5)).await.unwrap().unwrap();
    assert_eq!(plans.resume(&paused, "{}", None, moment(5)).await.unwrap(), None, "it was taken");
    assert!(!plans.replace(&paused, ("cancelled", "{}"), moment(5)).await.unwrap(), "it runs");
    assert_eq!(plans.save(&first, (RUNNING, "{}"), &[], moment(6)).await.unwrap(), None, "an earlier run");
    assert_eq!(plans.save(&second, (RUNNING, "{}"), &[], moment(6)).await.unwrap(), Some((PlanWish::GoOn, vec![])));
    assert!(plans.set_wish("1", PlanWish::Cancel).await.unwrap());
    assert_eq!(store.work().renew(&second.lease).await.unwrap(), LockState::AskedToStop);
    plans.end(&first, "finished", moment(7)).await.unwrap();
    assert_eq!(found(&store).await.status, RUNNING);
    plans.end(&second, "cancelled", moment(7)).await.unwrap();
    assert_eq!(found(&store).await.status, "cancelled");
}

/// Two runs of one process, of which the earlier one wakes late.
#[tokio::test]
async fn a_plan_whose_run_is_gone_is_interrupted_and_goes_on_or_ends_without_it() {
    let store = test_store().await;
    let plans = store.plans();
    let lost = plans.add(&plan("1", "ann", 0), None).await.unwrap();
    let running = found(&store).await;
    assert!(!running.is_interrupted);
    assert!(!plans.replace(&running, ("cancelled", "{}"), moment(1)).await.unwrap(), "its run is on");
    assert_eq!(plans.resume(&running, "{}", None, moment(1)).await.unwrap(), None, "its run is on");
    end_leases(&store).await;
    let interrupted = found(&store).await;
    assert!(interrupted.is_interrupted);
    let next = plans.resume(&interrupted, "{\"b\":1}", None, moment(2)).await.unwrap().unwrap();
    assert!(!found(&store).await.is_interrupted);
    assert_eq!(plans.save(&lost, (RUNNING, "{}"), &[], moment(3)).await.unwrap(), None);
    plans.end(&lost, "finished", moment(3)).await.unwrap();
    plans.give_up(&lost).await.unwrap();
    let kept = found(&store).await;
    assert_eq!((kept.status.as_str(), kept.state.as_str(), kept.is_interrupted), (RUNNING, "{\"b\":1}", false));
    plans.give_up(&next).await.unwrap();
    let given_up = found(&store).await;
    assert!(given_up.is_interrupted);
    assert!(plans.replace(&given_up, ("cancelled", "{}"), moment(4)).await.unwrap());
    assert_eq!(plans.save(&next, (RUNNING, "{}"), &[], moment(5)).await.unwrap(), None);
}

#[tokio::test]
async fn plans_are_listed_for_their_caller_until_they_are_old() {
    let store = test_store().await;
    for plan in [plan("1", "ann", 0), plan("2", "ann", 1), plan("3", "bob", 2)] {
        store.plans().add(&plan, None).await.unwrap();
    }
    let ids = async |caller: &str, before| {
        let plans = store.plans().of_caller(caller, *moment(before), 10).await.unwrap();
        plans.iter().map(|plan| plan.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids("ann", 9).await, ["2", "1"]);
    assert_eq!(ids("ann", 1).await, ["1"]);
    assert!(store.plans().get("bob", "1").await.unwrap().is_none());
    store.plans().forget_surplus("ann", 1).await.unwrap();
    assert_eq!(ids("ann", 9).await, ["2", "1"], "both run");
    store.plans().forget_before(moment(1)).await.unwrap();
    assert_eq!(ids("ann", 9).await, ["2"]);
}
