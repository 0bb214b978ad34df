use super::*;
use crate::budget::Budgets;
use crate::budget::tests::{MONDAY, TUESDAY, call, call_of, cents, charge_turn, left, max_usage};
use sekisho_config::{BudgetConfig, RuleSubject};
use sekisho_core::call::{BudgetScopes, CallContext};
use sekisho_store::test_support::test_store;

fn rule(name: &str, change: impl FnOnce(&mut LimitRule)) -> LimitRule {
    let mut rule = LimitRule {
        name: name.into(),
        matching: Default::default(),
        per: RuleSubject::Caller,
        rate: None,
        max_concurrent: None,
        cost_per_day: None,
        tokens_per_day: None,
    };
    change(&mut rule);
    rule
}

fn by_rules(rules: &[LimitRule]) -> Budgets {
    let budgets = Budgets::new(&BudgetConfig::default());
    budgets.limit_by_rules(rules);
    budgets
}

/// Reserves and spends.
async fn spend(budgets: &Budgets, call: &CallContext, cost_cents: u64, tokens: u64) -> Result<(), CallError> {
    let max_usage = max_usage(cost_cents, tokens);
    let hold = budgets.reserve_most(call, max_usage, Some("calculator")).await?;
    let tokens = hold.max_text_tokens();
    hold.charge(tokens);
    Ok(())
}

fn ann() -> CallContext {
    call(BudgetScopes::default())
}

#[tokio::test]
async fn a_day_has_a_limit_for_each_subject_of_a_rule() {
    let budgets = by_rules(&[rule("daily", |rule| rule.cost_per_day = Some(cents(25)))]);
    spend(&budgets, &ann(), 10, 0).await.unwrap();
    spend(&budgets, &ann(), 10, 0).await.unwrap();
    let refused = spend(&budgets, &ann(), 10, 0).await.unwrap_err();
    assert_eq!((refused.code(), refused.limit_rule()), (ErrorCode::BudgetExceeded, Some("daily")));
    assert!(refused.message().contains("0.05 of 0.25 USD left"), "{refused}");
    assert!(budgets.held().is_zero(), "what was reserved elsewhere is given back");
    spend(&budgets, &ann(), 5, 0).await.unwrap();
    spend(&budgets, &call_of("bob", "acme", BudgetScopes::default()), 25, 0).await.unwrap();
    let balances = budgets.rules_of_today();
    assert_eq!(balances.iter().map(|balance| balance.used.cost_usd).collect::<Vec<_>>(), [cents(25), cents(25)]);
}

#[tokio::test]
async fn calls_at_the_same_time_do_not_overspend_and_what_is_not_spent_is_free_again() {
    let budgets = by_rules(&[rule("daily", |rule| rule.cost_per_day = Some(cents(10)))]);
    let (one, other) = (ann(), ann());
    let first = budgets.reserve_most(&one, max_usage(10, 0), Some("calculator")).await.unwrap();
    let refused = budgets.reserve_most(&other, max_usage(1, 0), Some("calculator")).await.unwrap_err();
    assert_eq!(refused.limit_rule(), Some("daily"));
    drop(first);
    spend(&budgets, &other, 10, 0).await.unwrap();
}

#[tokio::test]
async fn a_turn_does_not_wait_for_money_that_a_rule_refuses() {
    let budgets = by_rules(&[rule("daily", |rule| rule.cost_per_day = Some(cents(10)))]);
    let refused = budgets.reserve_turn_or_wait(&ann(), "a model", left(20, 0)).await.unwrap_err();
    assert_eq!(refused.limit_rule(), Some("daily"));
}

#[tokio::test]
async fn an_answer_has_the_tokens_that_the_rules_leave() {
    let budgets = by_rules(&[
        rule("wide", |rule| rule.tokens_per_day = Some(5_000)),
        rule("narrow", |rule| rule.tokens_per_day = Some(1_000)),
    ]);
    let hold = budgets.reserve_most(&ann(), max_usage(0, 2_000), Some("calculator")).await.unwrap();
    assert_eq!(hold.max_text_tokens(), 1_000);
    hold.charge(900);
    let refused = budgets.reserve_most(&ann(), max_usage(0, 2_000), Some("calculator")).await.unwrap_err();
    assert_eq!((refused.code(), refused.limit_rule()), (ErrorCode::TokenLimitExceeded, Some("narrow")));
    assert_eq!(
        budgets.check_on(budgets.today(), &ann(), &max_usage(0, 2_000)).map(|left| left.tokens > 0).ok(),
        Some(true)
    );
}

#[tokio::test]
async fn turns_of_models_count_by_rules_that_name_no_tools() {
    let budgets = by_rules(&[
        rule("all", |rule| rule.cost_per_day = Some(cents(20))),
        rule("tools", |rule| {
            rule.matching.tools = vec!["*".into()];
            rule.cost_per_day = Some(cents(5));
        }),
    ]);
    let turn = budgets.reserve_turn(&ann(), "a turn", left(15, 0)).await.unwrap();
    charge_turn(&budgets, turn, left(15, 0));
    let refused = budgets.reserve_turn(&ann(), "a turn", left(15, 0)).await.unwrap_err();
    assert_eq!(refused.limit_rule(), Some("all"));
    spend(&budgets, &ann(), 5, 0).await.unwrap();
    // A turn that cost more than was expected is paid.
    let budgets = by_rules(&[rule("all", |rule| rule.cost_per_day = Some(cents(20)))]);
    let turn = budgets.reserve_turn(&ann(), "a turn", left(15, 0)).await.unwrap();
    charge_turn(&budgets, turn, left(30, 0));
    assert_eq!(budgets.rules_of_today()[0].used.cost_usd, cents(30));
}

#[tokio::test]
async fn tokens_of_models_count_by_rules_that_name_no_tools() {
    let budgets = by_rules(&[
        rule("all", |rule| rule.tokens_per_day = Some(1_000)),
        rule("tools", |rule| {
            rule.matching.tools = vec!["*".into()];
            rule.tokens_per_day = Some(1);
        }),
    ]);
    let turn = budgets.reserve_turn(&ann(), "a turn", left(0, 600)).await.unwrap();
    let refused = budgets.reserve_turn(&ann(), "a turn", left(0, 401)).await.unwrap_err();
    assert_eq!((refused.code(), refused.limit_rule()), (ErrorCode::TokenLimitExceeded, Some("all")));
    charge_turn(&budgets, turn, left(0, 500));
    assert_eq!(budgets.rules_of_today()[0].used.tokens, 500);
    assert!(budgets.reserve_turn(&ann(), "a turn", left(0, 500)).await.is_ok());
}

#[tokio::test]
async fn what_was_spent_survives_a_restart_and_reaches_other_processes() {
    let store = test_store().await.rule_usage();
    let rules = [rule("daily", |rule| rule.cost_per_day = Some(cents(25)))];
    let (one, other) = (by_rules(&rules), by_rules(&rules));
    spend(&one, &ann(), 10, 0).await.unwrap();
    let today = one.today();
    one.rules.save(&store, today, true).await.unwrap();
    one.rules.save(&store, today, true).await.unwrap();
    spend(&other, &ann(), 5, 0).await.unwrap();
    other.rules.save(&store, today, true).await.unwrap();
    one.rules.save(&store, today, true).await.unwrap();
    for budgets in [&one, &other] {
        assert_eq!(budgets.rules_of_today()[0].used.cost_usd, cents(15));
    }
    let restarted = by_rules(&rules);
    restarted.rules.save(&store, today, false).await.unwrap();
    assert_eq!(restarted.rules_of_today()[0].used.cost_usd, cents(15));
    assert_eq!(spend(&restarted, &ann(), 15, 0).await.unwrap_err().limit_rule(), Some("daily"));
    spend(&restarted, &ann(), 10, 0).await.unwrap();
}

#[test]
fn a_new_day_begins_with_nothing_spent_and_past_days_are_removed_once_saved() {
    let budgets = RuleBudgets::default();
    budgets.reconfigure(&[rule("daily", |rule| rule.cost_per_day = Some(cents(10)))]);
    let caller = &ann().caller;
    let max_usage = max_usage(10, 0);
    for day in [MONDAY, TUESDAY] {
        let mut hold = budgets.of(day, caller, Some("t")).unwrap().hold(&max_usage, max_usage.most).unwrap();
        hold.settle(max_usage.most);
        assert!(budgets.of(day, caller, Some("t")).unwrap().bounded(max_usage).is_err());
    }
    budgets.evict(TUESDAY);
    assert_eq!(budgets.accounts.len(), 2, "monday is not saved");
    for account in &budgets.accounts {
        account.lock().unsaved = Amount::ZERO;
    }
    budgets.evict(TUESDAY);
    assert_eq!(budgets.accounts.len(), 1);
    budgets.reconfigure(&[]);
    assert!(budgets.of(TUESDAY, caller, Some("t")).is_none());
}
