//! Replicas on one store.

use futures_util::future::join_all;

use super::*;
use sekisho_core::slack::slack;
use sekisho_store::test_support::test_store;

fn owner() -> BucketOwner {
    BucketOwner::Caller("acme\u{1f}ann".into())
}

/// A replica that exchanges with the store until it is dropped.
struct Running {
    rates: Arc<SharedRates>,
    shutdown: CancellationToken,
    exchanging: tokio::task::JoinHandle<()>,
}

impl Running {
    fn on(store: &Store) -> Self {
        let (rates, shutdown) = (Arc::new(SharedRates::new(store.clone())), CancellationToken::new());
        let exchanging = tokio::spawn({
            let (rates, shutdown) = (Arc::clone(&rates), shutdown.clone());
            async move { rates.run(shutdown).await }
        });
        Self { rates, shutdown, exchanging }
    }

    /// How many of so many calls are admitted.
    async fn admitted(&self, per_minute: u32, calls: usize) -> usize {
        let per_minute = NonZeroU32::new(per_minute).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let owner = owner();
        let taken = join_all((0..calls).map(|_| self.rates.take(&owner, per_minute, until))).await;
        taken.iter().filter(|taken| taken.is_ok()).count()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.exchanging.await.unwrap();
    }
}

#[tokio::test]
async fn three_replicas_admit_no_more_than_one_would() {
    for per_minute in [60, 3_000] {
        let store = test_store().await;
        let replicas = [(); 3].map(|()| Running::on(&store));
        let began = Instant::now();
        let calls = usize::try_from(per_minute).unwrap();
        let admitted = join_all(replicas.iter().map(|replica| replica.admitted(per_minute, calls))).await;
        let refilled = began.elapsed().as_secs_f64() * f64::from(per_minute) / 60.0 + 1.0;
        let all = admitted.iter().sum::<usize>() as f64;
        assert!(all >= f64::from(per_minute) && all <= f64::from(per_minute) + refilled, "{admitted:?}");
        for replica in replicas {
            replica.stop().await;
        }
    }
}

#[tokio::test]
async fn a_refused_call_says_when_there_may_be_one_and_asks_nothing_until_then() {
    let store = test_store().await;
    let replica = Running::on(&store);
    assert_eq!(replica.admitted(6, 10).await, 6);
    let until = Instant::now() + Duration::from_secs(5);
    let rounds = *replica.rates.rounds.borrow();
    let (wait, state) = replica.rates.take(&owner(), NonZeroU32::new(6).unwrap(), until).await.unwrap_err();
    assert!(wait > Duration::from_secs(8) && wait <= Duration::from_secs(10), "{wait:?}");
    assert_eq!((state.limit, state.remaining), (6, 0));
    assert_eq!(replica.rates.refused_for(&owner()).map(|(_, state)| state.remaining), Some(0));
    assert_eq!(*replica.rates.rounds.borrow(), rounds);
    assert_eq!(replica.rates.levels().len(), 1);
}

#[tokio::test]
async fn what_is_not_used_is_given_back_at_the_end() {
    let store = test_store().await;
    let (one, other) = (Running::on(&store), Running::on(&store));
    assert_eq!(one.admitted(6_000, 50).await, 50, "it takes more than it uses");
    one.rates.give_back(&owner());
    one.stop().await;
    let left = other.admitted(6_000, 6_100).await;
    assert!(left >= 5_951, "{left}");
}

#[tokio::test]
async fn while_the_store_is_away_each_replica_admits_its_part() {
    let store = test_store().await;
    let replica = Running::on(&store);
    replica.rates.set_replicas(3);
    assert_eq!(replica.admitted(60, 10).await, 10);
    store.close().await;
    let begun = now();
    let at_once = u32::try_from(replica.admitted(60, 100).await).unwrap();
    assert!(replica.rates.is_away.load(Ordering::Relaxed));
    // Twenty a minute are this replica's part, evenly: none is saved up for a burst.
    let expected = (now() - begun).as_secs_f64() / 3.0;
    assert!(f64::from(at_once) <= expected + 1.0, "{at_once} of {expected}");
    for bucket in &replica.rates.buckets {
        // As half a minute later.
        let mut bucket = bucket.lock();
        bucket.answered = bucket.answered.map(|answered| answered - Duration::from_secs(30));
        bucket.part_full_at -= 30_000_000_000;
    }
    let later = at_once + u32::try_from(replica.admitted(60, 100).await).unwrap();
    let expected = 30.0 / 3.0 + (now() - begun).as_secs_f64() / 3.0;
    assert!((expected - 1.0..=expected + 1.0).contains(&f64::from(later)), "{later} of {expected}");
}

#[tokio::test]
async fn while_the_store_is_away_a_new_bucket_has_one_call() {
    let store = test_store().await;
    let replica = Running::on(&store);
    replica.rates.set_replicas(3);
    store.close().await;
    assert_eq!(replica.admitted(60, 10).await, 1);
}

#[tokio::test]
async fn what_was_admitted_while_the_store_was_away_leaves_the_bucket_once_it_is_back() {
    let store = test_store().await;
    let (replica, other) = (Running::on(&store), Running::on(&store));
    let mut rounds = replica.rates.rounds.subscribe();
    replica.rates.is_away.store(true, Ordering::Relaxed);
    assert_eq!(replica.admitted(6, 1).await, 1);
    timeout(slack(Duration::from_secs(20)), rounds.changed()).await.expect("an exchange ends").unwrap();
    assert_eq!(other.admitted(6, 10).await, 5);
}

#[tokio::test]
async fn idle_buckets_are_forgotten() {
    let store = test_store().await;
    let replica = Running::on(&store);
    assert_eq!(replica.admitted(1_000_000, 1).await, 1);
    replica.rates.evict_idle();
    assert_eq!(replica.rates.buckets.len(), 1, "it has calls");
    let late = now() + Duration::from_secs(60);
    for bucket in &replica.rates.buckets {
        bucket.lock().lease.available(late);
        let request = bucket.lock().lease.request(late);
        assert!(request.is_some_and(|request| request.wanted < 0), "{request:?}");
        bucket.lock().lease.unanswered();
        assert!(bucket.lock().is_idle(late));
    }
}

#[tokio::test]
async fn a_bucket_is_due_once_however_many_calls_ask() {
    let rates = SharedRates::new(test_store().await);
    (0..1_000).for_each(|_| rates.ask(&owner()));
    assert_eq!(rates.due.lock().len(), 1);
}
