//! Nothing grows: the real program is driven with calls of every sort in two equal halves, and holds no more after the
//! second one than after the first, of memory, descriptors, threads, tasks, processes and rows. Minutes long, so run by
//! `scripts/soak`.
//!
//! The table of sorts is in [`sorts`]; what is measured, and when, in [`figures`]; what may stay in the store in
//! [`rows`].

mod calls;
mod client;
mod driver;
mod figures;
mod gateway;
mod mcp;
mod people;
mod programs;
mod rows;
mod samples;
mod sorts;
mod streams;
mod tally;
mod upstream;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::driver::drive;
use self::figures::Figures;
use self::gateway::SoakGateway;
use self::sorts::ROUND;
use self::tally::Tally;

/// Calls of both halves together, unless `SOAK_CALLS` has another number.
const CALLS: usize = 200_000;

/// Rounds before the first half: whatever is made once is made then.
const WARM_UP_ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long; run by scripts/soak"]
async fn memory_and_handles_return_to_where_they_were() {
    let rounds = rounds_of_a_half();
    let gateway = SoakGateway::start().await;
    gateway.prepare().await;
    let (before, tally) = (gateway.samples().await, Arc::new(Mutex::new(Tally::default())));
    let [warm_up, halves @ ..] =
        [("warm-up", WARM_UP_ROUNDS.min(rounds)), ("first half", rounds), ("second half", rounds)];
    timed(warm_up.0, drive(&gateway, warm_up.1, &tally)).await;
    figures::idle(&gateway).await;
    report(&Figures::now(&gateway).await.line(warm_up.0));
    let mut held = Vec::new();
    for (name, rounds) in halves {
        timed(name, drive(&gateway, rounds, &tally)).await;
        figures::idle(&gateway).await;
        let last = driver::store_last_result(&gateway).await;
        tally.lock().settled(last);
        timed("what expires is removed", figures::expired(&gateway)).await;
        let now = figures::settled(&gateway, held.first()).await;
        report(&now.line(name));
        held.push(now);
    }
    let after = gateway.samples().await;
    let tally = tally.lock();
    report(&tally.table());
    let [first, second] = held.as_slice() else { panic!("two halves") };
    let surprises = [
        tally.surprises(),
        tally.differences(&before, &after),
        second.excess(first),
        rows::excess(first, second, rounds),
    ];
    let surprises = surprises.concat();
    assert!(surprises.is_empty(), "\n{}", surprises.join("\n"));
}

/// As many rounds as half of the calls need.
fn rounds_of_a_half() -> usize {
    let calls = std::env::var("SOAK_CALLS").ok().map_or(CALLS, |calls| calls.parse().expect("SOAK_CALLS is a number"));
    (calls / 2).div_ceil(ROUND).max(1)
}

async fn timed(what: &str, work: impl Future<Output = ()>) {
    let begun = Instant::now();
    work.await;
    report(&format!("{what}: {} s", begun.elapsed().as_secs()));
}

#[expect(clippy::print_stdout, reason = "it is what scripts/soak shows")]
fn report(text: &str) {
    println!("{text}");
}
