//! One caller's small runs beside callers whose programs copy memory in bulk, with instructions that no time slice of the
//! interpreter interrupts: only the kernel divides the core between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::Gateway;
use tokio::task::JoinSet;

use super::programs::Program;
use super::{Line, caller, run};

const NEIGHBOURS: usize = 4;

/// Until each neighbour has had a run that held its worker's thread: the next ones have a lower priority.
const SETTLING: Duration = Duration::from_secs(4);

const COPIES: Program = Program::bulk_copies();

/// Runs a sum for `length`, one after the other.
///
/// # Errors
/// A run has an unexpected result.
pub(super) async fn measure(gateway: &Arc<Gateway>, length: Duration) -> Result<Line, String> {
    let begun = Instant::now();
    let mut neighbours = JoinSet::new();
    for number in 1..=NEIGHBOURS {
        let gateway = Arc::clone(gateway);
        neighbours.spawn(async move {
            let caller = caller(number);
            while begun.elapsed() < SETTLING + length {
                COPIES.check(&run(&gateway, &COPIES, &caller).await.outcome)?;
            }
            Ok::<_, String>(())
        });
    }
    let (sum, one) = (Program::sum(), caller(0));
    let mut times = Vec::new();
    while begun.elapsed() < SETTLING + length {
        let reply = run(gateway, &sum, &one).await;
        sum.check(&reply.outcome)?;
        if begun.elapsed() > SETTLING {
            times.push(reply.duration);
        }
    }
    while let Some(ended) = neighbours.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(Line::new(sum.name.to_owned(), 1, times, Some("p95 ≤ 50 ms")))
}
