//! Sessions that are resumed from what is stored, and copies of sessions, over HTTP: how long that takes, and what it
//! leaves in the storage and in memory.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::http::Served;
use super::sessions::TABLE;
use super::{Line, Size, memory};

/// Twice what a caller may have (`sandbox.sessions.max_per_caller`): the first ones are stored.
const SESSIONS: usize = 20;
const ROUNDS: usize = 3;

/// What a session has changed of its memory, in MiB, with a goal of 3 ms, and 2 ms for each.
const CHANGED: [(usize, &str); 3] = [(2, "p50 ≤ 7 ms"), (20, "p50 ≤ 43 ms"), (200, "p50 ≤ 403 ms")];
/// Copies of one, one after the other.
const COPIES: usize = 10;

/// Sessions that the gateway has stored, before and while its memory is measured. The first ones also fill the database's cache.
const FIRST: usize = 2_000;
const STORED: usize = 5_000;

const KIB: f64 = 1_024.0;

/// # Errors
/// A request has an unexpected result.
pub(super) async fn measure(served: &Served) -> Result<(Vec<Line>, Vec<Size>), String> {
    let (resumed, size) = resumed(served).await?;
    let (mut lines, mut sizes) = (vec![resumed], vec![size]);
    for (changed, goal) in CHANGED {
        let (line, size) = copied(served, changed, goal).await?;
        lines.push(line);
        sizes.push(size);
    }
    sizes.push(many(served).await?);
    Ok((lines, sizes))
}

/// Calls that go on with a session where nothing else must leave the memory, and the largest image.
async fn resumed(served: &Served) -> Result<(Line, Size), String> {
    let (mut times, mut largest) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        for number in 0..SESSIONS {
            turn(served, &format!("table-{number}"), TABLE).await?;
        }
        let sessions = listed(served).await?;
        let (stored, in_memory): (Vec<_>, Vec<_>) = sessions.iter().partition(|session| session["place"] == "stored");
        for session in in_memory {
            end(served, name_of(session)?).await?;
        }
        for session in stored {
            largest = largest.max(session["stored_bytes"].as_u64().ok_or("it has no size")?);
            let (took, reply) = turn(served, name_of(session)?, "len(df)").await?;
            if reply["output"]["session"]["is_resumed"] != true {
                return Err(format!("a session was not resumed: {reply}"));
            }
            times.push(took);
            end(served, name_of(session)?).await?;
        }
    }
    let line = Line::new("one session resumed (10 000 rows), over HTTP".to_owned(), 1, times, Some("p50 ≤ 30 ms"));
    let what = "stored of a session with 10 000 rows".to_owned();
    Ok((line, Size { what, amount: largest as f64 / 1e6, unit: "MB", goal: "at most 2" }))
}

/// Copies a session, and measures the private memory of its first copy: the memory of later ones is that of copies that
/// have ended.
async fn copied(served: &Served, changed: usize, goal: &'static str) -> Result<(Line, Size), String> {
    turn(served, "copied", &format!("block = bytearray(b'x' * (1 << 20)) * {changed}")).await?;
    let (mut times, mut private) = (Vec::new(), None);
    for _ in 0..COPIES {
        let before = memory::private_of_children()?;
        let (took, answer) = served.ask(Method::POST, "/sessions/copied/fork", Some(&json!({"count": 1}))).await?;
        let after = memory::private_of_children()?;
        times.push(took);
        private = private.or(Some(after.saturating_sub(before)));
        end(served, name_of(&answer["sessions"][0])?).await?;
    }
    end(served, "copied").await?;
    let line = Line::new(format!("a copy of a session, {changed} MiB changed"), 1, times, Some(goal));
    let what = format!("private memory of a copy, {changed} MiB changed");
    Ok((line, Size { what, amount: private.unwrap_or_default() as f64 / KIB, unit: "MiB", goal: "" }))
}

/// What the gateway's own process keeps of each session that is stored. The last calls, which it keeps for the console,
/// are as many before as after.
async fn many(served: &Served) -> Result<Size, String> {
    let mut names = (0..FIRST + STORED).map(|number| format!("stored-{number}"));
    for name in names.by_ref().take(FIRST) {
        turn(served, &name, "x = 1").await?;
    }
    let before = memory::private_of_this_process()?;
    for name in names {
        turn(served, &name, "x = 1").await?;
    }
    let more = memory::private_of_this_process()?.saturating_sub(before);
    let what = format!("the gateway's memory of one of {STORED} sessions that are stored");
    Ok(Size { what, amount: more as f64 / STORED as f64, unit: "KiB", goal: "at most 1" })
}

async fn turn(served: &Served, session: &str, code: &str) -> Result<(Duration, Value), String> {
    served.run(&json!({"session": session, "code": code})).await
}

async fn listed(served: &Served) -> Result<Vec<Value>, String> {
    let (_, answer) = served.ask(Method::GET, "/sessions", None).await?;
    answer["sessions"].as_array().cloned().ok_or_else(|| format!("it lists no sessions: {answer}"))
}

fn name_of(session: &Value) -> Result<&str, String> {
    session["session"].as_str().ok_or_else(|| format!("a session without a name: {session}"))
}

async fn end(served: &Served, session: &str) -> Result<(), String> {
    served.ask(Method::DELETE, &format!("/sessions/{session}"), None).await.map(|_| ())
}
