//! Tenants that share an upstream: whose failures close it to whom.

use super::*;
use crate::breaker::tenants::MAX_TENANTS;

fn fail_for(tenant: &str, breakers: &Breakers) {
    for _ in 0..5 {
        let _ = call_of(tenant, breakers, &host(), Err(failure()));
    }
}

fn states(breakers: &Breakers, tenants: [&str; 3]) -> [BreakerState; 3] {
    tenants.map(|tenant| breakers.state(&host(), tenant))
}

#[tokio::test(start_paused = true)]
async fn a_tenants_failures_close_the_upstream_to_it_alone_and_those_of_two_to_all() {
    use BreakerState::{Closed, HalfOpen, Open};
    let (breakers, tenants) = (breakers(|_| {}), ["one", "two", "three"]);
    fail_for("one", &breakers);
    assert_eq!(states(&breakers, tenants), [Open, Closed, Closed]);
    assert_eq!(call_of("one", &breakers, &host(), Ok(())), Err(ErrorCode::CircuitOpen));
    call_of("two", &breakers, &host(), Ok(())).unwrap();
    assert_eq!(breakers.open(), [OpenUpstream { name: host().name, is_for_all: false }]);

    advance(Duration::from_secs(20)).await;
    let early = breakers.admit(Some(host()), "three").unwrap();
    fail_for("two", &breakers);
    assert_eq!(states(&breakers, tenants), [Open, Open, Open], "two agree");
    assert_eq!(breakers.open(), [OpenUpstream { name: host().name, is_for_all: true }]);
    let refusal = breakers.admit(Some(host()), "three").unwrap_err();
    let until_one_may_probe = RECOVERY - Duration::from_secs(20);
    assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::CircuitOpen, Some(until_one_may_probe)));
    assert!(early.still_permitted().is_err(), "no retry is sent either");

    advance(until_one_may_probe).await;
    assert_eq!(states(&breakers, tenants), [HalfOpen, Open, Closed]);
    early.still_permitted().unwrap();
    fail_for("one", &breakers);
    assert_eq!(states(&breakers, tenants), [Open, Open, Open], "its probe failed");
    advance(RECOVERY).await;
    call_of("one", &breakers, &host(), Ok(())).unwrap();
    call_of("two", &breakers, &host(), Ok(())).unwrap();
    assert_eq!(states(&breakers, tenants), [Closed, Closed, Closed]);
    assert!(breakers.open().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_gauge_shows_what_is_worst_and_forgets_no_tenant() {
    let breakers = breakers(|_| {});
    let gauge = || {
        let text = breakers.metrics.render();
        let line = text.lines().find(|line| line.starts_with("test_circuit_breaker_state{")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<u8>().unwrap()
    };
    fail_for("one", &breakers);
    call_of("two", &breakers, &host(), Ok(())).unwrap();
    assert_eq!(gauge(), 2, "another tenant's calls do not hide it");
    advance(RECOVERY).await;
    breakers.report();
    assert_eq!(gauge(), 1);
    fail_for("two", &breakers);
    call_of("one", &breakers, &host(), Ok(())).unwrap();
    assert_eq!(gauge(), 2);
    advance(RECOVERY).await;
    call_of("two", &breakers, &host(), Ok(())).unwrap();
    assert_eq!(gauge(), 0);
}

#[tokio::test(start_paused = true)]
async fn tenants_beyond_the_maximum_share_a_circuit_until_one_is_idle() {
    let breakers = breakers(|_| {});
    let running: Vec<_> =
        (0..MAX_TENANTS).map(|tenant| breakers.admit(Some(host()), &tenant.to_string()).unwrap()).collect();
    fail_for("beyond", &breakers);
    assert_eq!(call_of("also beyond", &breakers, &host(), Ok(())), Err(ErrorCode::CircuitOpen));
    call_of("0", &breakers, &host(), Ok(())).unwrap();
    drop(running);
    call_of("also beyond", &breakers, &host(), Ok(())).unwrap();
    let tenants = || breakers.upstreams.read().get(&host()).map(|circuits| circuits.tenants());
    assert_eq!(tenants(), Some(MAX_TENANTS));
    advance(IDLE_AFTER).await;
    call_of("0", &breakers, &host(), Ok(())).unwrap();
    breakers.evict_idle();
    assert_eq!(tenants(), Some(1));
}
