//! The rules of `limits.rules`.

use super::*;
use crate::limits::tests::{call_by, limits, nested, rated};
use sekisho_config::RuleSubject;
use sekisho_core::call::Via;
use sekisho_core::tool_scope::ToolScope;

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

fn by_rules(rules: &[LimitRule]) -> crate::limits::Limits {
    limits(|config| config.rules = rules.to_vec())
}

#[tokio::test(start_paused = true)]
async fn all_matching_rules_hold_and_the_one_with_the_longest_wait_is_named() {
    let limits = by_rules(&[
        rule("calm", |rule| rule.rate = Some(2)),
        rule("crm", |rule| {
            rule.matching.tools = vec!["crm__*".into()];
            rule.rate = Some(1);
        }),
        rule("others", |rule| {
            rule.matching.callers = vec!["bob".into()];
            rule.rate = Some(1);
        }),
    ]);
    let (call, crm, other) = (call_by("ann", "acme"), rated("crm__find", 1_000), rated("echo", 1_000));
    let admitted = limits.admit(&call, &crm).await.unwrap();
    assert_eq!(admitted.rule.as_deref(), Some("crm"), "it has the fewest calls left");
    assert_eq!(admitted.rate.map(|rate| (rate.limit, rate.remaining)), Some((1, 0)));
    let refused = limits.admit(&call, &crm).await.unwrap_err();
    assert_eq!((refused.code(), refused.limit_rule()), (ErrorCode::RateLimited, Some("crm")));
    assert!(refused.message().contains("each caller by the rule crm"), "{refused}");
    assert_eq!(refused.wait(), Some(Duration::from_secs(60)));
    // The refused call was taken of no rule.
    assert_eq!(limits.admit(&call, &other).await.unwrap().rule.as_deref(), Some("calm"));
    let refused = limits.admit(&call, &other).await.unwrap_err();
    assert_eq!((refused.limit_rule(), refused.wait()), (Some("calm"), Some(Duration::from_secs(30))));
    // Both are empty: a minute for the one, half a minute for the other.
    assert_eq!(limits.admit(&call, &crm).await.unwrap_err().limit_rule(), Some("crm"));
    assert!(limits.admit(&call_by("bob", "acme"), &other).await.is_ok(), "another caller has a rate of its own");
    assert_eq!(limits.admit(&call_by("bob", "acme"), &other).await.unwrap_err().limit_rule(), Some("others"));
}

#[tokio::test(start_paused = true)]
async fn a_rule_raises_no_other_limit_and_its_refusals_cost_them_nothing() {
    let limits = by_rules(&[rule("slow", |rule| rule.rate = Some(1))]);
    let (call, tool) = (call_by("ann", "acme"), rated("t", 2));
    assert!(limits.admit(&call, &tool).await.is_ok());
    for _ in 0..5 {
        assert_eq!(limits.admit(&call, &tool).await.unwrap_err().limit_rule(), Some("slow"));
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    // The tool's own two are full again, of which the rule lets one through.
    let call = call_by("ann", "acme");
    assert!(limits.admit(&call, &tool).await.is_ok());
    let generous = by_rules(&[rule("much", |rule| rule.rate = Some(1_000))]);
    for _ in 0..2 {
        assert!(generous.admit(&call, &tool).await.is_ok());
    }
    assert_eq!(generous.admit(&call, &tool).await.unwrap_err().limit_rule(), None, "the tool's own limit");
}

#[tokio::test(start_paused = true)]
async fn the_tools_own_refusal_names_a_rule_that_takes_longer() {
    let limits = by_rules(&[rule("slow", |rule| rule.rate = Some(1))]);
    let (call, tool) = (call_by("ann", "acme"), rated("t", 2));
    assert!(limits.admit(&call, &tool).await.is_ok());
    // Its other call is used elsewhere.
    let _ = limits.take_of_each(&call.caller, &tool).unwrap();
    let refused = limits.admit(&call, &tool).await.unwrap_err();
    assert_eq!((refused.limit_rule(), refused.wait()), (Some("slow"), Some(Duration::from_secs(60))));
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_person_are_counted_apart_or_together() {
    let with_key = |id: &str| {
        let caller = Caller::new("ann", "acme", Vec::new()).with_managed_key(id.into(), ToolScope::default());
        CallContext::new("any", Arc::new(caller), Via::Rest)
    };
    let tool = rated("t", 1_000);
    for (per, second) in [(RuleSubject::Key, true), (RuleSubject::Caller, false), (RuleSubject::Tool, false)] {
        let limits = by_rules(&[rule("r", |rule| (rule.per, rule.rate) = (per, Some(1)))]);
        assert!(limits.admit(&with_key("one"), &tool).await.is_ok());
        assert_eq!(limits.admit(&with_key("two"), &tool).await.is_ok(), second, "{per:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_wait_for_each_other_and_give_their_slots_back() {
    let limits = by_rules(&[rule("narrow", |rule| rule.max_concurrent = Some(1))]);
    let (call, tool) = (call_by("ann", "acme"), rated("t", 1_000));
    let first = limits.admit(&call, &tool).await.unwrap();
    assert_eq!(limits.slots_of_rules().iter().map(|slots| slots.running).collect::<Vec<_>>(), [1]);
    assert!(limits.admit(&call_by("bob", "acme"), &tool).await.is_ok());
    let refused = limits.admit(&call, &tool).await.unwrap_err();
    assert_eq!((refused.code(), refused.limit_rule()), (ErrorCode::Overloaded, Some("narrow")));
    // A call of the running tool needs no slot of a rule that names no tools.
    let own = CallContext { caller: Arc::clone(&call.caller), ..nested() };
    assert!(limits.admit(&own, &tool).await.is_ok());
    drop(first);
    let again = call_by("ann", "acme");
    assert!(limits.admit(&again, &tool).await.is_ok());
    tokio::time::advance(Duration::from_secs(60)).await;
    limits.evict_idle();
    assert!(limits.slots_of_rules().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_was_used_by_the_rule_of_the_same_name() {
    let limits = by_rules(&[rule("r", |rule| rule.rate = Some(2)), rule("gone", |rule| rule.rate = Some(1))]);
    let (call, tool) = (call_by("ann", "acme"), rated("t", 1_000));
    assert!(limits.admit(&call, &tool).await.is_ok());
    assert_eq!(limits.admit(&call, &tool).await.unwrap_err().limit_rule(), Some("gone"));
    let config = LimitsConfig { rules: vec![rule("r", |rule| rule.rate = Some(3))], ..LimitsConfig::default() };
    limits.reconfigure(&config).unwrap();
    for _ in 0..2 {
        assert!(limits.admit(&call, &tool).await.is_ok());
    }
    assert_eq!(limits.admit(&call, &tool).await.unwrap_err().limit_rule(), Some("r"));
    let levels = limits.levels();
    let of_rule = levels.iter().find(|level| matches!(&level.whose, BucketOwner::Rule { rule, .. } if **rule == *"r"));
    assert_eq!(of_rule.map(|level| level.state.remaining), Some(0), "{levels:?}");
    let none = LimitsConfig::default();
    limits.reconfigure(&none).unwrap();
    assert!(limits.admit(&call, &tool).await.unwrap().rule.is_none());
}
