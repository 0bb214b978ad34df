//! What a call of a program costs more than the tool itself. The three runs of which it is the difference alternate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::{Arguments, CallContext, Caller, Gateway, Via};

use super::programs::Program;
use super::{Line, caller, run};

/// Of [`Program::hundred_calls`].
const CALLS: u32 = 100;

const WITH_CALLS: Program = Program::hundred_calls();
const WITHOUT: Program = Program::no_calls();

/// # Errors
/// A run or a call has an unexpected result.
pub(super) async fn measure(gateway: &Arc<Gateway>, length: Duration) -> Result<Line, String> {
    let caller = caller(0);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < length {
        let with_calls = program(gateway, &WITH_CALLS, &caller).await?;
        let without = program(gateway, &WITHOUT, &caller).await?;
        let nested = with_calls.saturating_sub(without) / CALLS;
        times.push(nested.saturating_sub(calculator(gateway, &caller).await?));
    }
    Ok(Line::new("a nested call, over the tool itself".to_owned(), 1, times, Some("p50 ≤ 0.15 ms")))
}

async fn program(gateway: &Gateway, program: &Program, caller: &Arc<Caller>) -> Result<Duration, String> {
    let reply = run(gateway, program, caller).await;
    program.check(&reply.outcome)?;
    Ok(reply.duration)
}

/// Of as many calls, the time of one.
async fn calculator(gateway: &Gateway, caller: &Arc<Caller>) -> Result<Duration, String> {
    let arguments = Arguments::from_iter([("expression".to_owned(), "1".into())]);
    let mut took = Duration::ZERO;
    for _ in 0..CALLS {
        let context = CallContext::new("calculator", Arc::clone(caller), Via::Rest);
        let reply = gateway.pipeline.call(context, arguments.clone()).await.reply;
        reply.outcome.as_ref().map_err(ToString::to_string)?;
        took += reply.duration;
    }
    Ok(took / CALLS)
}
