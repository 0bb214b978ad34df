//! The rules of the budget, and calls in parallel. Any order of calls against a model: `model.rs`.

mod model;

use futures_util::FutureExt;
use jiff::civil::date;
use parking_lot::{Mutex, RwLock};

use super::*;
use sekisho_core::call::{BudgetScopes, CallCharging, Caller, ModelTurns, UsedModel, Via};
use sekisho_core::error::ErrorCode;

pub(super) const MONDAY: Date = date(2126, 3, 4);
pub(super) const TUESDAY: Date = date(2126, 3, 5);

pub(super) fn cents(cents: u64) -> Decimal {
    Decimal::new(i64::try_from(cents).unwrap(), 2)
}

pub(super) fn max_usage(cost_cents: u64, tokens: u64) -> MaxUsage<'static> {
    MaxUsage { tool: "calculator", most: Amount { cost_usd: cents(cost_cents), tokens }, day_tokens: 0 }
}

pub(super) fn call_of(caller: &str, tenant: &str, scopes: BudgetScopes) -> CallContext {
    let caller = Arc::new(Caller::new(caller, tenant, Vec::new()));
    CallContext {
        charging: CallCharging { scopes, ..CallCharging::default() },
        ..CallContext::new("calculator", caller, Via::Rest)
    }
}

pub(super) fn call(scopes: BudgetScopes) -> CallContext {
    call_of("ann", "acme", scopes)
}

fn request(id: &str) -> BudgetScopes {
    BudgetScopes { request: Some(id.into()), ..BudgetScopes::default() }
}

fn agent(id: &str) -> BudgetScopes {
    BudgetScopes { agent: Some(id.into()), ..BudgetScopes::default() }
}

fn task(id: &str) -> BudgetScopes {
    BudgetScopes { task: Some(id.into()), ..BudgetScopes::default() }
}

pub(super) fn left(cost_cents: u64, tokens: u64) -> Left {
    Left { cost_usd: cents(cost_cents), tokens }
}

/// Charges a turn of a model.
pub(super) fn charge_turn(budgets: &Budgets, turn: Hold, Amount { cost_usd, tokens }: Left) {
    let model = UsedModel { agent: "main".into(), provider: "openai".into(), model: "m".into() };
    let used = ModelTurns { turns: 1, prompt_tokens: tokens, cost_usd, ..ModelTurns::default() };
    turn.charge_turn(budgets, &call(BudgetScopes::default()).caller, &model, used);
}

/// Eight sub-agents at once hold more than they spend.
#[tokio::test]
async fn a_turn_waits_for_money_that_others_of_its_request_hold() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let call = call(request("r"));
    let first = budgets.reserve_turn(&call, "m", left(40, 0)).await.unwrap();
    let mut second = std::pin::pin!(budgets.reserve_turn_or_wait(&call, "m", left(40, 0)));
    assert!(second.as_mut().now_or_never().is_none());
    charge_turn(&budgets, first, left(5, 0));
    let second = second.await.unwrap();
    let more = budgets.reserve_turn_or_wait(&call, "m", left(46, 0)).await.unwrap_err();
    assert_eq!(more.code(), ErrorCode::BudgetExceeded, "it never fits");
    drop(second);
    assert!(budgets.reserve_turn_or_wait(&call, "m", left(45, 0)).await.is_ok());
}

#[tokio::test]
async fn the_tokens_of_a_turn_count_in_the_days_alone() {
    let budgets = Budgets::new(&BudgetConfig {
        max_tokens_per_request: 100,
        max_tokens_per_caller_per_day: Some(10_000),
        ..BudgetConfig::default()
    });
    let call = call(request("r"));
    let turn = budgets.reserve_turn(&call, "m", left(1, 6_000)).await.unwrap();
    let refused = budgets.reserve_turn(&call, "m", left(1, 4_001)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TokenLimitExceeded);
    let what = "this caller's day has 4000 of 10000 tokens left (0 spent, 6000 held by calls still running), and m needs \
                4001 for its request and its answer";
    assert!(refused.message().contains(what), "{refused}");
    // An answer that has more tokens than were held is counted.
    charge_turn(&budgets, turn, left(1, 9_950));
    assert!(budgets.held().is_zero());
    let days: Vec<_> = budgets.of_today(9).iter().map(|day| day.tokens).collect();
    assert_eq!(days, [9_950, 9_950]);
    let of_tool = budgets.check_on(budgets.today(), &call, &max_usage(0, 1)).unwrap();
    assert_eq!(of_tool.tokens, 50, "the request has 100 left, the day 50");
    assert!(budgets.reserve_turn(&call, "m", left(1, 51)).await.is_err());
    assert!(budgets.reserve_turn(&call, "m", left(1, 50)).await.is_ok());
}

#[test]
fn a_reservation_is_charged_or_refunded() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let call = call(request("r"));
    let hold = budgets.reserve_on(MONDAY, &call, &max_usage(10, 2_000)).unwrap();
    assert_eq!((hold.before(), hold.max_text_tokens()), (left(50, 5_000), 2_000));
    // The request, the caller's day and the tenant's.
    assert_eq!(budgets.held(), left(30, 6_000));
    let charge = hold.charge(300);
    assert_eq!((charge.cost_usd, charge.tokens), (cents(10), 300));
    assert_eq!((charge.before, charge.after), (left(50, 5_000), left(40, 4_700)));
    drop(budgets.reserve_on(MONDAY, &call, &max_usage(40, 2_000)).unwrap());
    assert_eq!(budgets.held(), Left::default());
    assert_eq!(budgets.check_on(MONDAY, &call, &max_usage(40, 2_000)).unwrap(), left(40, 5_000));
}

#[test]
fn a_large_reservation_leaves_half_of_a_shared_scope_to_other_calls() {
    let config =
        BudgetConfig { token_budget_per_agent: 10_000, max_tokens_per_request: 20_000, ..BudgetConfig::default() };
    let budgets = Budgets::new(&config);
    let reserved =
        |scopes: BudgetScopes, tokens| budgets.reserve_on(MONDAY, &call(scopes), &max_usage(0, tokens)).unwrap();
    let first = reserved(agent("a"), 8_000);
    let second = reserved(agent("a"), 8_000);
    let third = reserved(agent("a"), 8_000);
    let held = [&first, &second, &third].map(Hold::max_text_tokens);
    assert_eq!(held, [5_000, 2_500, 2_000], "at least as much as most tools need");
    assert_eq!(reserved(agent("b"), 2_000).max_text_tokens(), 2_000);
    assert_eq!(reserved(BudgetScopes::default(), 20_000).max_text_tokens(), 10_000, "nothing is shared");
}

#[test]
fn a_run_of_an_agent_has_a_token_limit_of_its_own() {
    let run = || call(BudgetScopes { is_run: true, ..request("r") });
    for (max_tokens_per_request, max_tokens_per_run, expected) in [
        (10_000, None, 250_000),
        (2_000, None, 2_000),
        (60_000, None, 60_000),
        (2_000, Some(40_000), 40_000),
        (10_000, Some(1_000), 1_000),
    ] {
        let budgets = Budgets::new(&BudgetConfig {
            max_tokens_per_request,
            max_tokens_per_run,
            token_budget_per_agent: u64::MAX,
            token_budget_per_task: u64::MAX,
            ..BudgetConfig::default()
        });
        let left = budgets.check_on(MONDAY, &run(), &max_usage(0, 1)).unwrap();
        assert_eq!(left.tokens, expected, "{max_tokens_per_request} {max_tokens_per_run:?}");
        let left = budgets.check_on(MONDAY, &call(request("r")), &max_usage(0, 1)).unwrap();
        assert_eq!(left.tokens, max_tokens_per_request, "other calls keep theirs");
    }
    let budgets = Budgets::new(&BudgetConfig { max_tokens_per_run: Some(2_500), ..BudgetConfig::default() });
    for _ in 0..2 {
        budgets.reserve_on(MONDAY, &run(), &max_usage(0, 2_000)).unwrap().charge(1_250);
    }
    let error = budgets.reserve_on(MONDAY, &run(), &max_usage(0, 2_000)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLimitExceeded);
    assert!(error.message().contains("0 of 2500 tokens") && error.message().contains("`budget.max_tokens_per_run`"));
}

#[test]
fn without_an_id_a_scope_is_this_call_alone() {
    let budgets = Budgets::new(&BudgetConfig::default());
    for _ in 0..100 {
        let hold = budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(50, 9_999)).unwrap();
        assert_eq!(hold.before(), left(50, 5_000));
        assert_eq!(hold.charge(5_000).after, left(0, 0));
    }
}

#[test]
fn the_defaults_are_those_of_the_specification() {
    // E60–E63: the rest of each scope by itself, the others being wide open.
    let wide = BudgetConfig {
        max_tokens_per_request: u64::MAX,
        token_budget_per_agent: u64::MAX,
        token_budget_per_task: u64::MAX,
        ..BudgetConfig::default()
    };
    let default = BudgetConfig::default();
    let cases = [
        (BudgetConfig { max_tokens_per_request: default.max_tokens_per_request, ..wide.clone() }, 10_000),
        (BudgetConfig { token_budget_per_agent: default.token_budget_per_agent, ..wide.clone() }, 5_000),
        (BudgetConfig { token_budget_per_task: default.token_budget_per_task, ..wide }, 20_000),
    ];
    for (config, tokens) in cases {
        let found = Budgets::new(&config).check_on(MONDAY, &call(BudgetScopes::default()), &max_usage(0, 1)).unwrap();
        assert_eq!(found, left(50, tokens));
    }
}

#[test]
fn scopes_add_up_by_id_under_their_caller() {
    let budgets = Budgets::new(&BudgetConfig::default());
    for scopes in [request("x"), agent("x"), task("x")] {
        budgets.reserve_on(MONDAY, &call(scopes), &max_usage(1, 1_000)).unwrap().charge(1_000);
    }
    let left_to = |call: CallContext| budgets.check_on(MONDAY, &call, &max_usage(0, 1)).unwrap();
    assert_eq!(left_to(call(request("x"))), left(49, 5_000));
    assert_eq!(left_to(call(agent("x"))), left(50, 4_000));
    assert_eq!(left_to(call(agent("y"))), left(50, 5_000));
    assert_eq!(left_to(call_of("bob", "acme", agent("x"))), left(50, 5_000));
    assert_eq!(left_to(call_of("ann", "rival", agent("x"))), left(50, 5_000));
}

#[test]
fn a_refusal_names_the_scope_and_the_amounts_left_and_requested() {
    let config = BudgetConfig { max_cost_per_tenant_per_day: Some(cents(60)), ..BudgetConfig::default() };
    let budgets = Budgets::new(&config);
    let refusal = |call: CallContext, max_usage: MaxUsage<'_>| {
        let error = budgets.reserve_on(MONDAY, &call, &max_usage).unwrap_err();
        assert_eq!(error.message().split(';').next(), Some(error.details()[0].message.as_str()));
        format!("{error} [{} {}]", error.details()[0].path, error.details()[0].rule)
    };
    insta::assert_snapshot!(refusal(call(request("r")), max_usage(51, 1)), @"budget_exceeded: this request has 0.50 of 0.50 USD left, and calculator costs 0.51; an operator may raise `budget.max_cost_per_request` [budget.request max_cost_per_request]");
    let _running = budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(20, 2_000)).unwrap();
    let _also_running = budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap();
    budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap().charge(1_000);
    insta::assert_snapshot!(refusal(call(agent("a")), max_usage(0, 2_000)), @"token_limit_exceeded: this agent has 0 of 5000 tokens left (1000 spent, 4000 held by calls still running), and calculator needs 256 for its answer; it begins anew after 3600 s without a call, or an operator raises `budget.token_budget_per_agent` [budget.agent token_budget_per_agent]");
    insta::assert_snapshot!(refusal(call(agent("b")), max_usage(41, 1)), @"budget_exceeded: this tenant's day has 0.40 of 0.60 USD left (0.20 held by calls still running), and calculator costs 0.41; a new day begins at 00:00 UTC, or an operator raises `budget.max_cost_per_tenant_per_day` [budget.tenant max_cost_per_tenant_per_day]");
    assert_eq!(budgets.held(), Left { cost_usd: cents(60), tokens: 12_000 }, "a refusal holds nothing");
}

#[test]
fn a_free_call_passes_an_empty_budget() {
    let (max_cost_per_request, token_budget_per_agent) = (Decimal::ZERO, 2_000);
    let config = BudgetConfig { max_cost_per_request, token_budget_per_agent, ..BudgetConfig::default() };
    let budgets = Budgets::new(&config);
    assert!(budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(0, 1)).is_ok());
    let error = budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(1, 1)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BudgetExceeded);
    budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap().charge(2_000);
    assert!(budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 0)).is_ok());
}

#[test]
fn a_check_opens_no_account_and_ids_have_a_maximum_length() {
    let budgets = Budgets::new(&BudgetConfig::default());
    budgets.check_on(MONDAY, &call(task("t")), &max_usage(0, 1)).unwrap();
    assert_eq!(budgets.accounts.count(), 0);
    for id in [String::new(), "x".repeat(129)] {
        for scopes in [request(&id), agent(&id), task(&id)] {
            let error = budgets.reserve_on(MONDAY, &call(scopes.clone()), &max_usage(0, 1)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
            assert!(budgets.check_on(MONDAY, &call(scopes), &max_usage(0, 1)).is_err());
        }
    }
    assert_eq!(budgets.accounts.count(), 0);
}

#[test]
fn new_limits_count_what_was_spent_under_the_old() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let running = budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap();
    budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap().charge(2_000);
    budgets.reconfigure(&BudgetConfig { token_budget_per_agent: 3_000, ..BudgetConfig::default() });
    let error = budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 1)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLimitExceeded);
    drop(running);
    assert_eq!(budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(0, 2_000)).unwrap().max_text_tokens(), 1_000);
}

#[test]
fn a_day_begins_with_its_whole_budget() {
    let config = BudgetConfig { max_tokens_per_caller_per_day: Some(100), ..BudgetConfig::default() };
    let budgets = Budgets::new(&config);
    let over_midnight = budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(0, 100)).unwrap();
    assert!(budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(0, 1)).is_err());
    assert_eq!(over_midnight.charge(60).after.tokens, 40);
    let next_day = budgets.check_on(TUESDAY, &call(BudgetScopes::default()), &max_usage(0, 1)).unwrap();
    assert_eq!(next_day.tokens, 100);
}

#[test]
fn a_price_of_too_many_decimals_is_rounded_up() {
    let price = Decimal::from_str_exact("0.0000000000000000000001").unwrap();
    let metadata = Metadata { cost_per_use: price, ..Default::default() };
    assert_eq!(price_of(&metadata), Decimal::new(1, 12));
    let metadata = Metadata { cost_per_use: Decimal::NEGATIVE_ONE, ..Default::default() };
    assert_eq!(price_of(&metadata), Decimal::ZERO);
}

#[tokio::test(start_paused = true)]
async fn idle_scopes_are_removed_but_never_while_an_amount_is_held() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let held = budgets.reserve_on(MONDAY, &call(agent("held")), &max_usage(0, 1)).unwrap();
    budgets.reserve_on(MONDAY, &call(agent("idle")), &max_usage(0, 500)).unwrap().charge(500);
    let idle_for = |seconds| tokio::time::advance(Duration::from_secs(seconds));
    let named = || budgets.accounts.count() - 2; // beside the two days
    idle_for(3_599).await;
    budgets.accounts.evict(MONDAY, Duration::from_secs(3_600));
    assert_eq!(named(), 2);
    idle_for(1).await;
    budgets.accounts.evict(MONDAY, Duration::from_secs(3_600));
    assert_eq!(named(), 1);
    assert_eq!(budgets.check_on(MONDAY, &call(agent("idle")), &max_usage(0, 1)).unwrap().tokens, 5_000);
    held.charge(1);
    assert_eq!(budgets.check_on(MONDAY, &call(agent("held")), &max_usage(0, 1)).unwrap().tokens, 4_999);
    idle_for(3_600).await;
    budgets.accounts.evict(MONDAY, Duration::from_secs(3_600));
    assert_eq!(named(), 0);
}

#[tokio::test(start_paused = true)]
async fn scopes_that_are_removed_give_their_memory_back() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let held = budgets.reserve_on(MONDAY, &call(agent("held")), &max_usage(0, 1)).unwrap();
    for number in 0..5_000 {
        budgets.reserve_on(MONDAY, &call(agent(&number.to_string())), &max_usage(0, 1)).unwrap().charge(1);
    }
    tokio::time::advance(Duration::from_secs(3_600)).await;
    budgets.accounts.evict(MONDAY, Duration::from_secs(3_600));
    assert!(budgets.accounts.capacity() < 100, "{}", budgets.accounts.capacity());
    held.charge(1);
    assert_eq!(budgets.check_on(MONDAY, &call(agent("held")), &max_usage(0, 1)).unwrap().tokens, 4_999);
}

#[test]
fn a_day_that_is_over_stays_until_it_is_saved_or_given_up() {
    let budgets = Budgets::new(&BudgetConfig::default());
    drop(budgets.reserve_on(MONDAY, &call_of("idle", "idle", BudgetScopes::default()), &max_usage(1, 1)).unwrap());
    budgets.reserve_on(MONDAY, &call(BudgetScopes::default()), &max_usage(1, 1)).unwrap().charge(1);
    budgets.accounts.evict(TUESDAY, Duration::ZERO);
    assert_eq!(budgets.accounts.defer_unsaved().len(), 2);
    assert_eq!(budgets.accounts.count(), 2);
    budgets.accounts.evict(date(2126, 3, 12), Duration::ZERO);
    assert_eq!(budgets.accounts.count(), 0);
}

#[test]
fn a_caller_with_many_new_ids_fills_no_memory_and_affects_no_other_scope() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let spend = |scopes| budgets.reserve_on(MONDAY, &call(scopes), &max_usage(0, 1_000)).unwrap();
    spend(agent("steady")).charge(1_000);
    let held = spend(request("held"));
    for n in 0..50_000 {
        spend(request(&n.to_string())).charge(1);
    }
    assert!(budgets.accounts.count() < 20_010, "{}", budgets.accounts.count());
    assert_eq!(budgets.check_on(MONDAY, &call(agent("steady")), &max_usage(0, 1)).unwrap().tokens, 4_000);
    held.charge(1_000);
    assert_eq!(budgets.held(), Left::default());
}

/// The results of threads that take one input each and begin together. Where one cannot be started, or panics, none
/// waits for it.
fn at_once<I: Send, T: Send>(inputs: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let gate = RwLock::new(());
    let (gate, work) = (&gate, &work);
    std::thread::scope(|threads| {
        let closed = gate.write();
        let begin = |input| {
            threads.spawn(move || {
                drop(gate.read());
                work(input)
            })
        };
        let started: Vec<_> = inputs.into_iter().map(begin).collect();
        drop(closed);
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Fault 5.
#[test]
fn a_hundred_parallel_calls_never_overspend() {
    for round in 0..20 {
        let config = BudgetConfig {
            max_cost_per_request: cents(100),
            max_tokens_per_request: 1_000_000,
            token_budget_per_task: 7_300,
            token_budget_per_agent: 1_000_000,
            max_cost_per_tenant_per_day: Some(cents(500)),
            ..BudgetConfig::default()
        };
        let budgets = Budgets::new(&config);
        let holds = at_once(vec![(); 100], |()| {
            let scopes = BudgetScopes { task: Some("t".into()), ..request("r") };
            budgets.reserve_on(MONDAY, &call(scopes), &max_usage(5, 500))
        });
        let charges = at_once(holds.into_iter().flatten().collect(), |hold: Hold| {
            let most = hold.max_text_tokens();
            hold.charge(most)
        });
        // 7 300 tokens are 14 whole reservations and one of 300: as much as fits, and no more.
        let tokens: u64 = charges.iter().map(|charge| charge.tokens).sum();
        assert_eq!((charges.len() * 5, tokens), (75, 7_300), "round {round}");
        assert_eq!(budgets.held(), Left::default());
    }
}

#[test]
fn calls_of_crossing_scopes_never_wait_for_each_other() {
    let budgets = Budgets::new(&BudgetConfig { token_budget_per_agent: 5_000_000, ..BudgetConfig::default() });
    std::thread::scope(|threads| {
        for thread in 0..8_u64 {
            let budgets = &budgets;
            threads.spawn(move || {
                for n in 0..500_u64 {
                    let id = |step: u64| Some(((n * step + thread) % 2).to_string());
                    let scopes = BudgetScopes { agent: id(1), task: id(3), ..BudgetScopes::default() };
                    let call = call_of(if n % 3 == 0 { "ann" } else { "bob" }, "acme", scopes);
                    drop(budgets.reserve_on(MONDAY, &call, &max_usage(0, 2)).unwrap());
                    if n % 50 == 0 {
                        budgets.accounts.evict(MONDAY, Duration::ZERO);
                    }
                }
            });
        }
    });
    assert_eq!(budgets.held(), Left::default());
}

#[test]
fn no_account_stays_locked_or_held_by_a_call_that_panics() {
    let budgets = Budgets::new(&BudgetConfig::default());
    let calls = Mutex::new(0);
    let fell = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _hold = budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(1, 100)).unwrap();
        *calls.lock() += 1;
        panic!("the tool panicked");
    }));
    assert!(fell.is_err());
    assert_eq!(budgets.held(), Left::default());
    assert!(budgets.reserve_on(MONDAY, &call(agent("a")), &max_usage(1, 5_000)).is_ok());
}

#[test]
fn a_tenants_own_limits_take_the_place_of_the_general_ones() {
    let general = Some(cents(100));
    let budgets = Budgets::new(&BudgetConfig { max_cost_per_tenant_per_day: general, ..BudgetConfig::default() });
    let own = TenantLimits { cost_usd: Some(cents(10)), tokens: None };
    budgets.limit_tenants([("acme".into(), own)]);
    let reserve = |tenant: &str| {
        let call = call_of("ann", tenant, BudgetScopes::default());
        budgets.reserve_turn(&call, "a model", left(20, 0)).now_or_never().unwrap().map(drop)
    };
    let refused = reserve("acme").unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BudgetExceeded);
    assert!(refused.message().contains("raises `max_cost_per_day` of the tenant"), "{refused}");
    reserve("other").unwrap();
    budgets.limit_tenant("acme", TenantLimits { cost_usd: Some(cents(30)), tokens: None });
    reserve("acme").unwrap();
    budgets.limit_tenants([]);
    reserve("acme").unwrap();
    assert!(budgets.held().cost_usd.is_zero());
}
