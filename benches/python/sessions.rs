//! Calls in sessions, one after the other by one caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join;
use sekisho::{Arguments, CallContext, Caller, Gateway, Via};
use serde_json::Value;

use super::programs::Program;
use super::{Line, TOOL, caller, run};

/// A caller has one fewer in memory (`sandbox.sessions.max_per_caller`): of these, called in turn, each has been stored
/// when its next call comes.
const SESSIONS: usize = 11;

/// What a session holds.
pub(super) const TABLE: &str =
    "import pandas as pd\ndf = pd.DataFrame({'n': range(10_000), 's': [str(n) for n in range(10_000)]})";

/// Megabytes that sessions have changed which are copied.
const CHANGED: [u64; 3] = [2, 20, 200];

/// Callers that no other line has.
const CALLER: usize = 100;
const WITH_LARGE_SESSION: usize = 101;

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
    let mut lines = vec![
        line("a turn of a session", plain, Some("p50 ≤ 0.5 ms")),
        // What it takes more than a turn is what storing a session takes.
        line("a turn with a checkpoint (10 000 rows)", checkpoints, Some("p50 ≤ 30 ms")),
        line("one session stored, one resumed (10 000 rows)", resumed, Some("p50 ≤ 60 ms")),
        line("a sum beside checkpoints of 60 MB", sums_beside_checkpoints(gateway, length).await?, None),
    ];
    for megabytes in CHANGED {
        lines.push(copies(gateway, &caller, length, megabytes).await?);
    }
    Ok(lines)
}

/// How long a copy of a session takes, each of which is removed again.
async fn copies(gateway: &Gateway, caller: &Arc<Caller>, length: Duration, megabytes: u64) -> Result<Line, String> {
    let (sandbox, owner, name) = (gateway.sandbox(), &caller.owner, format!("changed-{megabytes}"));
    turn(gateway, caller, program(&name, &format!("x = bytearray(b'x') * ({megabytes} << 20)"))).await?;
    let (begun, mut times, mut private) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < length {
        let copying = Instant::now();
        let copies = sandbox.fork_session(owner, &name, 1).await.map_err(|error| error.to_string())?;
        times.push(copying.elapsed());
        for copy in copies {
            let copy = serde_json::to_value(copy).map_err(|error| error.to_string())?;
            private = copy["memory_bytes"].as_u64().unwrap_or_default() >> 20;
            let copy = copy["session"].as_str().unwrap_or_default();
            sandbox.delete_session(owner, copy).await.map_err(|error| error.to_string())?;
        }
    }
    sandbox.delete_session(owner, &name).await.map_err(|error| error.to_string())?;
    let what = format!("a copy with {megabytes} MB changed ({private} MiB of its own)");
    Ok(Line::new(what, 1, times, Some("p50 ≤ 3 ms + 2 ms a MB")))
}

/// Small runs of one caller while a session of another is stored again and again.
async fn sums_beside_checkpoints(gateway: &Arc<Gateway>, length: Duration) -> Result<Vec<Duration>, String> {
    let (sum, one, other) = (Program::sum(), caller(0), caller(WITH_LARGE_SESSION));
    let mut begin = program("large", "x = bytearray(b'x') * (60 << 20)");
    begin.insert("checkpoint".to_owned(), "every_call".into());
    turn(gateway, &other, begin).await?;
    let begun = Instant::now();
    let storing = async {
        while begun.elapsed() < length {
            turn(gateway, &other, program("large", "len(x)")).await?;
        }
        Ok::<_, String>(())
    };
    let adding = async {
        let mut times = Vec::new();
        while begun.elapsed() < length {
            let reply = run(gateway, &sum, &one).await;
            sum.check(&reply.outcome)?;
            times.push(reply.duration);
        }
        Ok(times)
    };
    Ok(try_join(storing, adding).await?.1)
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
