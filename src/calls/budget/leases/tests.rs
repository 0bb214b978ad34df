//! Replicas on one store.

use futures_util::future::join_all;
use rust_decimal::Decimal;

use super::*;
use crate::budget::WriteBehind;
use crate::budget::tests::{call, cents, max_usage};
use sekisho_config::BudgetConfig;
use sekisho_core::call::BudgetScopes;
use sekisho_core::slack::slack;
use sekisho_store::Release;
use sekisho_store::replica::Files;
use sekisho_store::test_support::test_store;

/// A replica that exchanges with the store until it is stopped or killed.
struct Running {
    replica: Arc<Replica>,
    budgets: Arc<Budgets>,
    leases: Arc<BudgetLeases>,
    writes: Arc<WriteBehind>,
    readiness: Arc<Readiness>,
    exchanging: tokio::task::JoinHandle<()>,
}

fn limited(cents_a_day: u64) -> BudgetConfig {
    BudgetConfig { max_cost_per_caller_per_day: Some(cents(cents_a_day)), ..BudgetConfig::default() }
}

impl Running {
    async fn on(store: &Store, config: &BudgetConfig) -> Self {
        let readiness = Arc::new(Readiness::default());
        let files = Files { configuration: "c".into(), policies: "p".into() };
        let replica = Replica::register(store.clone(), Arc::clone(&readiness), &files, None).await.unwrap();
        let budgets = Arc::new(Budgets::of_replica(config));
        budgets.confirm_leases(replica.confirmed());
        let writes = WriteBehind::start(Arc::clone(&budgets), store.clone(), Arc::clone(&readiness)).await.unwrap();
        let (writes, leases) = (Arc::new(writes), Arc::new(BudgetLeases::new(&budgets, store, &replica, &readiness)));
        let exchanging = tokio::spawn({
            let (writes, leases) = (Arc::clone(&writes), Arc::clone(&leases));
            async move {
                tokio::join!(writes.run(CancellationToken::new()), leases.run(CancellationToken::new()));
            }
        });
        Self { replica, budgets, leases, writes, readiness, exchanging }
    }

    async fn reserve(&self, cost_cents: u64, tokens: u64) -> Result<Hold, CallError> {
        self.budgets.reserve_in_scopes(&call(BudgetScopes::default()), &max_usage(cost_cents, tokens)).await
    }

    /// How many of so many calls of a price are paid for, one after the other.
    async fn spend(&self, calls: usize, cost_cents: u64) -> usize {
        let mut paid = 0;
        for _ in 0..calls {
            if let Ok(hold) = self.reserve(cost_cents, 0).await {
                hold.charge(0);
                paid += 1;
            }
        }
        paid
    }

    /// The same with a database that answers: where the machine is loaded its answer may come too late, and the call is made
    /// again.
    async fn spend_with_retries(&self, calls: usize, cost_cents: u64) -> usize {
        let (mut paid, until) = (0, Instant::now() + slack(Duration::from_secs(10)));
        for _ in 0..calls {
            let hold = loop {
                match self.reserve(cost_cents, 0).await {
                    Err(error) if error.code() == ErrorCode::Overloaded && Instant::now() < until => {}
                    other => break other,
                }
            };
            if let Ok(hold) = hold {
                hold.charge(0);
                paid += 1;
            }
        }
        paid
    }

    /// Makes the last answered heartbeat older by the duration.
    fn cut_off_for(&self, duration: Duration) {
        let confirmed = self.replica.confirmed();
        self.budgets.confirm_leases(Confirmed { sent: confirmed.sent.saturating_sub(duration), ..confirmed });
    }

    /// As by SIGKILL.
    fn kill(self) {
        self.exchanging.abort();
    }

    async fn stop(self) {
        self.exchanging.abort();
        self.writes.flush().await;
        self.leases.give_back().await;
    }
}

#[tokio::test]
async fn three_replicas_spend_what_there_is_and_no_more() {
    let store = test_store().await;
    let config = limited(200);
    let replicas = join_all((0..3).map(|_| Running::on(&store, &config))).await;
    let paid: Vec<_> = join_all(replicas.iter().map(|replica| replica.spend(200, 1))).await;
    let all = paid.iter().sum::<usize>();
    assert!((190..=200).contains(&all), "{paid:?}");
    let error = replicas[0].reserve(20, 0).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::BudgetExceeded);
    for replica in replicas {
        replica.stop().await;
    }
    let last = Running::on(&store, &config).await;
    let left = last.spend(20, 1).await;
    // The leases of an exchange that was ended midway may stay.
    assert!((198..=200).contains(&(all + left)), "{paid:?} and {left}: what was given back can be spent");
}

#[tokio::test]
async fn a_call_that_needs_more_than_a_slice_gets_it() {
    let store = test_store().await;
    let replica = Running::on(&store, &limited(100)).await;
    let holds = join_all((0..3).map(|_| replica.reserve(30, 0))).await;
    assert!(holds.iter().all(Result::is_ok), "{holds:?}");
    let error = replica.reserve(30, 0).await.unwrap_err();
    assert!(error.message().contains("10"), "{error}");
}

#[tokio::test]
async fn what_a_killed_replica_leased_stays_spent() {
    let store = test_store().await;
    let (one, other) = (Running::on(&store, &limited(100)).await, Running::on(&store, &limited(100)).await);
    let held = one.reserve(60, 0).await.unwrap_err();
    assert_eq!(held.code(), ErrorCode::BudgetExceeded, "a request has 50");
    let _held = one.reserve(40, 0).await.unwrap();
    one.kill();
    assert_eq!(other.spend_with_retries(10, 10).await, 6);
    let error = other.reserve(10, 0).await.unwrap_err();
    assert!(error.message().contains("leased by replicas") || error.message().contains("0 of 1.00"), "{error}");
}

/// The sum of a replica's leases, which are released.
async fn released(store: &Store, replica: &Running) -> Decimal {
    match store.budget_leases().release(replica.replica.id(), Duration::ZERO).await.unwrap() {
        Release::Done(leases) => leases.iter().map(|lease| lease.amount.cost_usd).sum(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_killed_replica_leased_can_be_spent_once_it_is_released() {
    let store = test_store().await;
    let (one, other) = (Running::on(&store, &limited(100)).await, Running::on(&store, &limited(100)).await);
    let _held = one.reserve(40, 0).await.unwrap();
    one.exchanging.abort();
    assert_eq!(other.spend_with_retries(10, 10).await, 6);
    assert!(released(&store, &one).await >= cents(40));
    assert!(released(&store, &one).await.is_zero(), "it was released before");
    // For a second it takes the last answer for the next one, too.
    let until = Instant::now() + slack(Duration::from_secs(10));
    let mut paid = 0;
    while paid < 4 && Instant::now() < until {
        paid += other.spend(1, 10).await;
    }
    assert_eq!((paid, other.spend(10, 10).await), (4, 0));
}

#[tokio::test]
async fn a_replica_that_is_cut_off_does_not_spend_what_it_leases() {
    let store = test_store().await;
    let replica = Running::on(&store, &limited(1_000)).await;
    assert_eq!(replica.spend(20, 1).await, 20);
    store.close().await;
    replica.cut_off_for(Duration::from_secs(54));
    let error = replica.reserve(1, 0).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "{error}");
    let unlimited = Running::on(&test_store().await, &BudgetConfig::default()).await;
    unlimited.cut_off_for(Duration::from_secs(54));
    assert_eq!(unlimited.spend(1, 1).await, 1, "nothing is leased of it");
}

#[tokio::test]
async fn a_replica_that_comes_back_does_not_spend_what_was_released() {
    let store = test_store().await;
    let (back, other) = (Running::on(&store, &limited(100)).await, Running::on(&store, &limited(100)).await);
    drop(back.reserve(40, 0).await.unwrap());
    back.cut_off_for(Duration::from_secs(54));
    assert!(released(&store, &back).await >= cents(40));
    let elsewhere = 10 * other.spend(20, 10).await;
    assert!(elsewhere > 60, "{elsewhere}: what was released can be spent elsewhere");
    let files = Files { configuration: "c".into(), policies: "p".into() };
    back.replica.beat(&files, &[]).await;
    back.budgets.confirm_leases(back.replica.confirmed());
    // It may have leased a little anew.
    let all = elsewhere + back.spend(50, 1).await;
    assert!(all <= 100, "{all}, {elsewhere} of it elsewhere");
}

#[tokio::test]
async fn tokens_are_leased_as_money_is() {
    let config = BudgetConfig { max_tokens_per_tenant_per_day: Some(10_000), ..BudgetConfig::default() };
    let store = test_store().await;
    let (one, other) = (Running::on(&store, &config).await, Running::on(&store, &config).await);
    let mut used = 0;
    for at in 0..20 {
        let replica = if at % 2 == 0 { &one } else { &other };
        let Ok(hold) = replica.reserve(0, 2_000).await else { continue };
        let tokens = hold.max_text_tokens();
        used += tokens;
        hold.charge(tokens);
    }
    assert!((9_000..=10_000).contains(&used), "{used}");
}

#[tokio::test]
async fn while_the_store_is_away_what_is_leased_is_used_up_and_then_refused_with_the_reason() {
    let store = test_store().await;
    let replica = Running::on(&store, &limited(1_000)).await;
    assert_eq!(replica.spend(20, 1).await, 20);
    store.close().await;
    let leased = replica.spend(100, 1).await;
    assert!(leased <= 50, "{leased}: 5 % of what was left, and not what was never leased");
    let error = replica.reserve(1, 0).await.unwrap_err();
    assert_eq!((error.code(), error.wait().is_some()), (ErrorCode::Overloaded, true));
    assert!(error.message().contains("database that all replicas share is away"), "{error}");
    assert!(replica.readiness.degraded()[COMPONENT].contains("cannot be leased"));
}

#[tokio::test]
async fn without_a_limit_nothing_is_leased() {
    let store = test_store().await;
    let replica = Running::on(&store, &BudgetConfig::default()).await;
    assert_eq!(replica.spend(5, 1).await, 5);
    replica.writes.flush().await;
    assert!(store.budget_leases().leased_on(replica.budgets.today()).await.unwrap().is_empty());
    let spent: Decimal = replica.budgets.of_today(10).iter().map(|day| day.spent).sum();
    assert_eq!(spent, cents(10), "of the caller and of the tenant");
}

#[tokio::test]
async fn the_day_begins_by_the_databases_clock() {
    let replica = Running::on(&test_store().await, &limited(100)).await;
    replica.budgets.set_database_time("2126-03-04T12:00:00Z".parse().unwrap());
    assert_eq!(replica.budgets.today(), jiff::civil::date(2126, 3, 4));
}
