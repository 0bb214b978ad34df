use super::*;

fn tokens(tokens: u64) -> Amount {
    Amount { cost_usd: Decimal::ZERO, tokens }
}

fn cents(cents: i64) -> Amount {
    Amount { cost_usd: Decimal::new(cents, 2), tokens: 0 }
}

const TOKENS: AccountLimit = AccountLimit { cost_usd: None, tokens: Some(1_000) };
const START: Duration = Duration::from_secs(100);

fn asked(sequence: i64, kept: Amount, wanted: Amount, needed: Amount) -> LeaseRequest {
    LeaseRequest { sequence, releases: 0, kept, wanted, needed }
}

fn granted(granted: Amount, left: Amount) -> LeaseAnswer {
    LeaseAnswer { granted, left, releases: 0 }
}

#[test]
fn a_slice_is_a_twentieth_of_what_is_left_or_what_a_call_needs() {
    let used = (tokens(200), tokens(100));
    let granted = |wanted, needed| {
        let request = asked(1, tokens(100), tokens(wanted), tokens(needed));
        decide(TOKENS, used, StoredLease::default(), &request).unwrap().1
    };
    assert_eq!(granted(500, 0), LeaseAnswer { granted: tokens(30), left: tokens(600), releases: 0 });
    assert_eq!(granted(10, 0).granted, tokens(10));
    assert_eq!(granted(10, 400).granted, tokens(400));
    assert_eq!(granted(10, 700).granted, tokens(600), "a call can use a part");
}

#[test]
fn what_is_not_limited_is_not_leased() {
    let amount = Amount { cost_usd: Decimal::ONE, tokens: 8 };
    assert_eq!(TOKENS.limited(amount), tokens(8));
    let request = asked(1, tokens(0), amount, amount);
    assert_eq!(decide(TOKENS, (amount, amount), StoredLease::default(), &request).unwrap().1.granted, tokens(8));
}

#[test]
fn more_than_was_leased_counts_as_leased_once_it_is_in_use() {
    let mut lease = BudgetLease::default();
    assert_eq!(lease.request(START, tokens(30)).unwrap().kept, tokens(30));
}

#[test]
fn a_part_of_a_price_is_not_leased() {
    let limit = AccountLimit { cost_usd: Some(Decimal::ONE), tokens: None };
    let granted = |needed| {
        let request = asked(1, cents(10), cents(50), cents(needed));
        decide(limit, (cents(40), cents(20)), StoredLease::default(), &request).unwrap().1.granted
    };
    let slice = Amount { cost_usd: Decimal::new(15, 3), tokens: 0 };
    assert_eq!([granted(0), granted(30), granted(31)], [slice, cents(30), cents(0)]);
}

#[test]
fn an_older_request_changes_nothing() {
    let own = StoredLease { sequence: 5, releases: 0, amount: tokens(10) };
    assert_eq!(decide(TOKENS, (tokens(0), tokens(0)), own, &asked(5, tokens(0), tokens(9), tokens(9))), None);
    let (stored, _) = decide(TOKENS, (tokens(0), tokens(0)), own, &asked(6, tokens(4), tokens(9), tokens(9))).unwrap();
    assert_eq!(stored, StoredLease { sequence: 6, releases: 0, amount: tokens(13) });
}

#[test]
fn a_call_that_waits_is_asked_for_once_and_runs_within_the_answer() {
    let mut lease = BudgetLease::default();
    assert!(lease.free(tokens(0)).is_zero());
    assert!(lease.await_more(START, tokens(0), tokens(8)));
    let request = lease.request(START, tokens(0)).unwrap();
    assert_eq!((request.kept, request.needed), (tokens(0), tokens(8)));
    assert_eq!(lease.request(START, tokens(0)), None, "one request at a time");
    lease.answered(START, &request, granted(tokens(50), tokens(1_000)));
    assert_eq!((lease.free(tokens(0)), lease.free(tokens(45))), (tokens(50), tokens(5)));
    lease.settle(tokens(48));
    assert_eq!(lease.free(tokens(0)), tokens(2), "what was settled is no longer leased");
}

#[test]
fn without_an_answer_nothing_is_granted_and_the_next_request_gives_it_back() {
    let mut lease = BudgetLease::default();
    lease.await_more(START, tokens(0), tokens(8));
    let lost = lease.request(START, tokens(0)).unwrap();
    lease.unanswered(START);
    assert!(lease.free(tokens(0)).is_zero());
    let next = lease.request(START + MAX_UNSYNCED, tokens(0)).unwrap();
    assert_eq!((next.kept, next.sequence), (tokens(0), lost.sequence + 1));
}

#[test]
fn a_lease_that_nobody_uses_is_given_back() {
    let mut lease = BudgetLease::default();
    lease.await_more(START, tokens(0), tokens(8));
    let request = lease.request(START, tokens(0)).unwrap();
    lease.answered(START, &request, granted(tokens(50), tokens(1_000)));
    lease.use_up(START, tokens(8));
    assert_eq!(lease.request(START + Duration::from_millis(100), tokens(8)), None);
    let back = lease.request(START + IDLE, tokens(8)).unwrap();
    assert_eq!((back.kept, back.wanted), (tokens(8), tokens(0)));
    assert!(lease.free(tokens(8)).is_zero(), "at once, and not only when it is answered");
    lease.answered(START + IDLE, &back, LeaseAnswer::default());
    assert_eq!(lease.request(START + IDLE * 2, tokens(8)), None, "nothing is left to give back");
}

#[test]
fn after_two_answers_that_are_too_small_calls_are_refused_without_asking() {
    let mut lease = BudgetLease::default();
    let ask = |lease: &mut BudgetLease, now| {
        assert!(lease.await_more(now, cents(0), cents(10)));
        let request = lease.request(now, cents(0))?;
        lease.answered(now, &request, granted(cents(0), cents(4)));
        Some(request.needed)
    };
    assert_eq!(ask(&mut lease, START), Some(cents(10)));
    assert_eq!(ask(&mut lease, START), None, "others may not have settled");
    let again = START + CONFIRMATION;
    assert_eq!(ask(&mut lease, again), Some(cents(10)));
    assert!(!lease.await_more(again, cents(0), cents(10)));
    assert!(lease.await_more(again, cents(0), cents(4)), "a cheaper call may fit");
    assert_eq!(ask(&mut lease, again + REFUSAL_TTL), Some(cents(10)), "others may have given something back");
    assert!(!lease.await_more(again + REFUSAL_TTL, cents(0), cents(10)));
}

#[test]
fn what_a_replica_kept_of_a_released_lease_is_not_its_own() {
    let own = StoredLease { sequence: 5, releases: 2, amount: tokens(0) };
    let request = |releases| LeaseRequest { releases, ..asked(6, tokens(40), tokens(9), tokens(9)) };
    let (stored, answer) = decide(TOKENS, (tokens(0), tokens(0)), own, &request(1)).unwrap();
    assert_eq!(stored, StoredLease { sequence: 6, ..own });
    assert_eq!((answer.granted, answer.releases), (tokens(0), 2));
    let (stored, answer) = decide(TOKENS, (tokens(0), tokens(0)), own, &request(2)).unwrap();
    assert_eq!((stored.amount, answer.granted), (tokens(49), tokens(9)));
}

#[test]
fn of_a_released_lease_nothing_is_free_and_what_is_in_use_is_asked_for_anew() {
    let mut lease = BudgetLease::default();
    lease.await_more(START, tokens(0), tokens(8));
    let request = lease.request(START, tokens(0)).unwrap();
    lease.answered(START, &request, granted(tokens(50), tokens(1_000)));
    lease.use_up(START, tokens(8));
    lease.await_more(START, tokens(8), tokens(90));
    let late = lease.request(START, tokens(8)).unwrap();
    lease.release(1);
    assert!(lease.free(tokens(8)).is_zero());
    lease.answered(START, &late, granted(tokens(90), tokens(900)));
    assert!(lease.free(tokens(8)).is_zero(), "it was granted to the released lease");
    let anew = lease.request(START + MAX_UNSYNCED, tokens(8)).unwrap();
    assert_eq!((anew.releases, anew.kept), (1, tokens(8)));
}

#[test]
fn a_replica_learns_from_an_answer_that_its_lease_was_released() {
    let mut lease = BudgetLease::default();
    lease.await_more(START, tokens(0), tokens(8));
    let request = lease.request(START, tokens(0)).unwrap();
    lease.answered(START, &request, LeaseAnswer { releases: 3, ..LeaseAnswer::default() });
    assert!(lease.await_more(START, tokens(0), tokens(8)), "nothing was refused");
    assert_eq!(lease.request(START, tokens(0)).unwrap().releases, 3);
}

#[test]
fn what_is_leased_is_spent_for_less_than_the_time_after_which_it_is_released() {
    assert!(may_spend(START + Duration::from_secs(53), START));
    assert!(!may_spend(START + RELEASED_AFTER.mul_f64(0.9), START));
}
