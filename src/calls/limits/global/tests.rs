//! Replicas on one store.

use super::*;
use sekisho_core::slack::slack;
use sekisho_store::test_support::test_store;
use sekisho_store::{ReplicaIdentity, Store};

/// A replica that exchanges with the store until it is stopped.
struct Running {
    permits: Arc<GlobalPermits>,
    shutdown: CancellationToken,
    exchanging: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn on(store: &Store, id: &'static str) -> Self {
        let identity = ReplicaIdentity {
            id,
            host: "host",
            version: "1",
            configuration: "c",
            policies: "p",
            address: None,
            degraded: "[]",
        };
        store.replicas().beat(identity, LOST_AFTER).await.unwrap();
        let (permits, shutdown) = (Arc::new(GlobalPermits::new(store.permits())), CancellationToken::new());
        let exchanging = tokio::spawn({
            let (permits, shutdown) = (Arc::clone(&permits), shutdown.clone());
            async move { permits.run(id, shutdown).await }
        });
        Self { permits, shutdown, exchanging }
    }

    async fn take(&self, limit: u32) -> Result<GlobalPermit, NoPermit> {
        self.permits.take("slow", limit, Some(soon())).await
    }

    async fn try_take(&self, limit: u32) -> Result<GlobalPermit, NoPermit> {
        self.permits.take("slow", limit, None).await
    }
}

fn soon() -> Instant {
    Instant::now() + slack(Duration::from_secs(10))
}

#[tokio::test]
async fn two_replicas_never_have_more_slots_than_there_are() {
    let store = test_store().await;
    let (one, other) = (Running::on(&store, "one").await, Running::on(&store, "other").await);
    let (held, most) = (Mutex::new(0), Mutex::new(0));
    let call = async |replica: &Running| {
        let _permit = replica.take(3).await.unwrap();
        {
            let mut held = held.lock();
            *held += 1;
            let mut most = most.lock();
            *most = (*most).max(*held);
        }
        tokio::task::yield_now().await;
        *held.lock() -= 1;
    };
    let calls = (0..40).map(|n| call(if n % 2 == 0 { &one } else { &other }));
    futures_util::future::join_all(calls).await;
    assert!((1..=3).contains(&*most.lock()), "{most:?}");
}

#[tokio::test]
async fn a_call_waits_until_another_replica_gives_a_slot_back() {
    let store = test_store().await;
    let (one, other) = (Running::on(&store, "one").await, Running::on(&store, "other").await);
    let held = one.take(1).await.unwrap();
    assert_eq!(other.try_take(1).await.unwrap_err(), NoPermit::NoneFree);
    let now = Instant::now();
    assert_eq!(other.permits.take("slow", 1, Some(now)).await.unwrap_err(), NoPermit::DeadlinePassed);
    let waiting = other.take(1);
    let (taken, ()) = tokio::join!(waiting, async { drop(held) });
    drop(taken.unwrap());
    drop(one.take(1).await.unwrap());
}

#[tokio::test]
async fn without_the_store_no_call_has_a_slot() {
    let store = test_store().await;
    let replica = Running::on(&store, "one").await;
    store.close().await;
    assert_eq!(replica.take(5).await.unwrap_err(), NoPermit::Away);
    assert_eq!(replica.try_take(5).await.unwrap_err(), NoPermit::Away);
}

#[tokio::test]
async fn a_slot_whose_answer_was_lost_is_given_back() {
    let store = test_store().await;
    let replica = Running::on(&store, "one").await;
    let held = replica.take(2).await.unwrap();
    let asked = AskedPermits { tool: "slow", limit: 2, wanted: 1, replica: "one", holder: "nobody" };
    assert_eq!(store.permits().take(asked, LOST_AFTER).await.unwrap().len(), 1);
    store.permits().set_taken_long_ago().await;
    replica.permits.reconcile("one").await;
    let again = replica.take(2).await.unwrap();
    assert_ne!(held.stored.slot, again.stored.slot, "what a call has is kept");
}

#[tokio::test]
async fn a_replica_that_stops_gives_its_slots_back() {
    let store = test_store().await;
    let replica = Running::on(&store, "one").await;
    let held = replica.take(1).await.unwrap();
    drop(held);
    replica.shutdown.cancel();
    replica.exchanging.await.unwrap();
    assert!(store.permits().of_replica("one", Duration::ZERO).await.unwrap().is_empty());
}
