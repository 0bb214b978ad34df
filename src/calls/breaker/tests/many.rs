//! Several breakers: which state is separate, and which breakers are kept.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_upstreams_failures_block_no_other() {
    let breakers = breakers(|_| {});
    opened(&breakers);
    call(&breakers, &upstream("mcp:other"), Ok(())).unwrap();
}

fn chosen_by(caller: &str, name: &str) -> Upstream {
    let owner = sekisho_core::call::Caller::new(caller, "acme", Vec::new()).owner;
    Upstream { chosen_by: Some(owner), ..upstream(name) }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_a_caller_chooses_is_guarded_for_that_caller_alone() {
    let breakers = breakers(|_| {});
    let chosen = chosen_by("ann", &host().name);
    fail(&breakers, &chosen, 5);
    assert_eq!(breakers.state(&chosen, ACME), BreakerState::Open);
    assert_eq!(call(&breakers, &chosen, Ok(())), Err(ErrorCode::CircuitOpen));
    call(&breakers, &host(), Ok(())).unwrap();
    call(&breakers, &chosen_by("bob", &host().name), Ok(())).unwrap();
    // Many of them take nothing from the upstreams of the configuration, nor from another caller.
    for at in 0..2 * MAX_CHOSEN {
        fail(&breakers, &chosen_by("eve", &format!("http://{at}")), 5);
    }
    assert_eq!(breakers.chosen.len(), 2 + MAX_CHOSEN_OF_A_CALLER);
    assert_eq!(breakers.state(&chosen, ACME), BreakerState::Open);
    let exposition = breakers.metrics.render();
    assert!(exposition.contains(&*host().name) && !exposition.contains("http://1"), "{exposition}");
    advance(RECOVERY).await;
    call(&breakers, &chosen, Ok(())).unwrap();
    advance(IDLE_AFTER).await;
    breakers.evict_idle();
    assert!(breakers.chosen.is_empty());
}

#[test]
fn a_new_address_of_a_caller_waits_for_no_breaker_of_the_configuration() {
    let breakers = Arc::new(breakers(|_| {}));
    let (sender, admitted) = std::sync::mpsc::channel();
    let calls = breakers.upstreams.read();
    let choosing = Arc::clone(&breakers);
    std::thread::spawn(move || _ = sender.send(choosing.admit(Some(chosen_by("eve", "http://new")), ACME).is_ok()));
    assert_eq!(admitted.recv_timeout(slack(Duration::from_secs(10))), Ok(true), "a call reads the breakers meanwhile");
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn a_new_breaker_replaces_the_one_idle_longest() {
    let breakers = breakers(|_| {});
    let (old, used) = (upstream("http://0"), breakers.admit(Some(upstream("http://1")), ACME).unwrap());
    for at in 0..MAX_LIVE {
        call(&breakers, &upstream(&format!("http://{at}")), Ok(())).unwrap();
        advance(Duration::from_millis(1)).await;
    }
    for added in ["http://a", "http://b"] {
        fail(&breakers, &upstream(added), 5);
        assert_eq!(breakers.state(&upstream(added), ACME), BreakerState::Open);
        assert_eq!(breakers.upstreams.read().len(), MAX_LIVE);
    }
    let gone = |upstream: &Upstream| !breakers.upstreams.read().contains(upstream);
    assert!(gone(&old) && gone(&upstream("http://2")));
    assert!(!gone(used.upstream().unwrap()), "a call is under way");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_maximum_new_upstreams_share_one_breaker_until_one_can_be_replaced() {
    let breakers = breakers(|_| {});
    for at in 0..MAX_LIVE {
        fail(&breakers, &upstream(&format!("http://{at}")), 5);
    }
    fail(&breakers, &upstream("http://a"), 5);
    assert_eq!(breakers.upstreams.read().len(), MAX_LIVE);
    assert_eq!(call(&breakers, &upstream("http://b"), Ok(())), Err(ErrorCode::CircuitOpen));
    assert_eq!(call(&breakers, &upstream("http://0"), Ok(())), Err(ErrorCode::CircuitOpen));
    advance(RECOVERY).await;
    call(&breakers, &upstream("http://b"), Ok(())).unwrap();
    assert_eq!(breakers.state(&upstream("http://b"), ACME), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn idle_breakers_are_removed_and_those_in_use_or_open_are_not() {
    let breakers = breakers(|config| config.recovery_seconds = 10_000);
    let used = breakers.admit(Some(upstream("mcp:used")), ACME).unwrap();
    call(&breakers, &upstream("mcp:idle"), Ok(())).unwrap();
    opened(&breakers);
    advance(IDLE_AFTER / 2).await;
    call(&breakers, &upstream("mcp:recent"), Ok(())).unwrap();
    advance(IDLE_AFTER / 2).await;
    breakers.evict_idle();
    let is_left = |name| breakers.upstreams.read().contains(&upstream(name));
    let left = ["mcp:idle", "mcp:recent", "mcp:used", &host().name].map(is_left);
    assert_eq!(left, [false, true, true, true]);
    drop(used);
    advance(Duration::from_secs(10_000)).await;
    breakers.evict_idle();
    assert_eq!(breakers.upstreams.read().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_with_its_own_rules_uses_them() {
    let breakers = breakers(|_| {});
    let (own, other) = (upstream("mcp:own"), upstream("mcp:other"));
    let strict = || BreakerConfig { consecutive_failures: 2, recovery_seconds: 7, ..BreakerConfig::default() };
    breakers.reconfigure(BreakerRules::new(&BreakerConfig::default(), [(own.clone(), strict())]));
    for upstream in [&own, &other] {
        fail(&breakers, upstream, 2);
    }
    assert_eq!((breakers.state(&own, ACME), breakers.state(&other, ACME)), (BreakerState::Open, BreakerState::Closed));
    advance(Duration::from_secs(7)).await;
    call(&breakers, &own, Ok(())).unwrap();
    // Without its own rules, the rules of all apply again.
    breakers.reconfigure(BreakerRules::new(&BreakerConfig::default(), []));
    fail(&breakers, &own, 4);
    assert_eq!(breakers.state(&own, ACME), BreakerState::Closed);
    fail(&breakers, &own, 1);
    assert_eq!(breakers.state(&own, ACME), BreakerState::Open);
}
