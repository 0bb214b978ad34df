//! Makes the calls: some at once, in an order in which the sorts alternate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use reqwest::redirect::Policy;

use super::calls;
use super::client::{Client, LANES};
use super::gateway::SoakGateway;
use super::sorts::{ROUND, SORTS, round};
use super::tally::Tally;

/// Makes so many rounds of calls, and takes in what they were answered. Its connections end with it.
pub(super) async fn drive(gateway: &Arc<SoakGateway>, rounds: usize, tally: &Arc<Mutex<Tally>>) {
    let (http, order, calls) = (http(), Arc::new(round()), rounds * ROUND);
    let (first, next) = (gateway.take_numbers(calls), Arc::new(AtomicUsize::new(0)));
    let lanes = (0..LANES).map(|lane| {
        let mut client = Client::new(gateway, &http, lane);
        let (order, next, tally) = (Arc::clone(&order), Arc::clone(&next), Arc::clone(tally));
        tokio::spawn(async move {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= calls {
                    return;
                }
                let sort = &SORTS[order[at % ROUND]];
                let played = client.play(sort, first + at).await;
                tally.lock().played(sort, played);
            }
        })
    });
    // All of them are begun before one is waited for.
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
}

/// Stores a large result: once its row is removed, all that is kept for a shorter time and was used before is too.
pub(super) async fn store_last_result(gateway: &Arc<SoakGateway>) -> Vec<String> {
    let mut client = Client::new(gateway, &http(), 0);
    calls::store_result(&mut client).await.unwrap();
    client.take_settled()
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(Policy::none()).pool_max_idle_per_host(LANES).build().unwrap()
}
