//! Calls in sessions, one after the other by one caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sekisho::{Arguments, CallContext, Caller, Gateway, Via};
use serde_json::Value;

use super::{Line, TOOL, caller};

/// A caller has one fewer in memory (`sandbox.sessions.max_per_caller`): of these, called in turn, each has been stored
/// when its next call comes.
const SESSIONS: usize = 11;

/// What a session holds.
pub(super) const TABLE: &str =
    "import pandas as pd\ndf = pd.DataFrame({'n': range(10_000), 's': [str(n) for n in range(10_000)]})";

/// A caller that no other line has.
const CALLER: usize = 100;

/// # Errors
/// A call has an unexpected result.
pub(super) async fn measure(gateway: &Arc<Gateway>, length: Duration) -> Result<Vec<Line>, String> {
    let caller = caller(CALLER);
    let names: Vec<_> = (0..SESSIONS).map(|number| format!("s{number}")).collect();
    for name in &names {
        turn(gateway, &caller, program(name, TABLE)).await?;
    }
    let resumed: Vec<_> = names.iter().map(|name| program(name, "len(df)")).collect();
    let resumed = turns(gateway, &caller, length, &resumed).await?;

    turn(gateway, &caller, program("plain", "x = 1")).await?;
    let plain = turns(gateway, &caller, length, &[program("plain", "x")]).await?;

    let mut begin = program("checkpoints", TABLE);
    begin.insert("checkpoint".to_owned(), "every_call".into());
    turn(gateway, &caller, begin).await?;
    let checkpoints = turns(gateway, &caller, length, &[program("checkpoints", "len(df)")]).await?;

    let line = |what: &str, times, goal| Line::new(what.to_owned(), 1, times, goal);
    Ok(vec![
        line("a turn of a session", plain, Some("p50 ≤ 0.5 ms")),
        // What it takes more than a turn is what storing a session takes.
        line("a turn with a checkpoint (10 000 rows)", checkpoints, Some("p50 ≤ 30 ms")),
        line("one session stored, one resumed (10 000 rows)", resumed, Some("p50 ≤ 60 ms")),
    ])
}

/// Runs the programs in turn; how long each run took.
async fn turns(
    gateway: &Gateway,
    caller: &Arc<Caller>,
    length: Duration,
    programs: &[Arguments],
) -> Result<Vec<Duration>, String> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    for program in programs.iter().cycle().take_while(|_| begun.elapsed() < length) {
        times.push(turn(gateway, caller, program.clone()).await?);
    }
    Ok(times)
}

async fn turn(gateway: &Gateway, caller: &Arc<Caller>, program: Arguments) -> Result<Duration, String> {
    let context = CallContext::new(TOOL, Arc::clone(caller), Via::Rest);
    let reply = gateway.pipeline.call(context, program).await.reply;
    match &reply.outcome {
        Ok(_) => Ok(reply.duration),
        Err(error) => Err(format!("a call in a session failed: {error}")),
    }
}

pub(super) fn program(session: &str, code: &str) -> Arguments {
    let arguments = [("code", code), ("session", session)];
    arguments.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}
