//! One caller's small runs beside callers whose programs copy memory in bulk, with instructions that no time slice of the
//! interpreter interrupts: only the kernel divides the core between them. And beside a large session that is stored
//! after each call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::{CallContext, Caller, Gateway, Via};
use tokio::task::JoinSet;

use super::programs::Program;
use super::sessions::program;
use super::{Line, TOOL, caller, run};

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

/// A table of 60 MB, which changes a little in each call.
const LARGE: &str = "import numpy as np\ntable = np.arange(7_500_000)";
const CHANGE: &str = "table[0] += 1";

/// Runs a sum for `length`, once alone and once while a session of 60 MB is stored again and again.
///
/// # Errors
/// A run has an unexpected result, or the session is not stored.
pub(super) async fn beside_checkpoints(gateway: &Arc<Gateway>, length: Duration) -> Result<[Line; 2], String> {
    let (one, other) = (caller(0), caller(1));
    let alone = sums(gateway, &one, length).await?;
    checkpoint(gateway, &other, LARGE).await?;
    let begun = Instant::now();
    let storing = async {
        while begun.elapsed() < length {
            checkpoint(gateway, &other, CHANGE).await?;
        }
        Ok::<_, String>(())
    };
    let (beside, ()) = tokio::try_join!(sums(gateway, &one, length), storing)?;
    let line = |what: &str, times| Line::new(what.to_owned(), 1, times, None);
    Ok([line("a sum alone", alone), line("a sum beside checkpoints of 60 MB", beside)])
}

async fn sums(gateway: &Gateway, one: &Arc<Caller>, length: Duration) -> Result<Vec<Duration>, String> {
    let (sum, begun, mut times) = (Program::sum(), Instant::now(), Vec::new());
    while begun.elapsed() < length {
        let reply = run(gateway, &sum, one).await;
        sum.check(&reply.outcome)?;
        times.push(reply.duration);
    }
    Ok(times)
}

async fn checkpoint(gateway: &Gateway, caller: &Arc<Caller>, code: &str) -> Result<(), String> {
    let mut arguments = program("large", code);
    arguments.insert("checkpoint".to_owned(), "every_call".into());
    let context = CallContext::new(TOOL, Arc::clone(caller), Via::Rest);
    match &gateway.pipeline.call(context, arguments).await.reply.outcome {
        Ok(answer) if answer.output["session"]["is_checkpointed"] == true => Ok(()),
        Ok(answer) => Err(format!("a session was not stored: {}", answer.output["session"])),
        Err(error) => Err(format!("a call in a session failed: {error}")),
    }
}
