//! The rows of the store: none more after the second half than after the first one, except for what is a history.

use std::collections::BTreeMap;
use std::path::Path;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, AssertSqlSafe};

use super::client::{CALLERS, LANES};
use super::figures::Figures;
use super::sorts::share_of;

/// A table that grows by design.
struct History {
    table: &'static str,
    /// What of it stays, and for how long.
    why: &'static str,
    most: Most,
}

/// How many rows it may have.
enum Most {
    /// One more for each call of these sorts.
    OfCalls(&'static [&'static str]),
    /// In all.
    InAll(usize),
}

static HISTORIES: [History; 5] = [
    History {
        table: "approvals",
        why: "records of approvals are kept for 30 days",
        most: Most::OfCalls(&["approved", "denied", "approval left", "approval awaited"]),
    },
    History {
        table: "managed_keys",
        why: "keys that ended stay listed for 90 days",
        most: Most::OfCalls(&["managed key"]),
    },
    History {
        table: "daily_usage",
        why: "what each caller and tenant used on a day is kept; two days, since it may be midnight",
        most: Most::InAll(2 * (CALLERS + 2 * LANES + 16)),
    },
    History {
        table: "model_usage",
        why: "what two agents used for each caller on a day is kept; two days, since it may be midnight",
        most: Most::InAll(4 * (CALLERS + 2 * LANES + 16)),
    },
    History {
        table: "interpreter_sessions",
        why: "why a session has ended is known for a day, by its name; each lane has two",
        most: Most::InAll(2 * LANES),
    },
];

/// The rows of each table, which the process may be changing.
pub(super) async fn count(file: &Path) -> BTreeMap<String, i64> {
    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new().max_connections(1);
    let pool = pool.connect(&format!("sqlite://{}?mode=ro", file.display())).await.unwrap();
    let mut rows = BTreeMap::new();
    for table in tables(&pool).await {
        let statement = format!("SELECT COUNT(*) FROM {table}");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&pool).await.unwrap();
        rows.insert(table, count);
    }
    pool.close().await;
    rows
}

async fn tables(pool: &AnyPool) -> Vec<String> {
    let statement = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%sql%'";
    sqlx::query_scalar(statement).fetch_all(pool).await.unwrap()
}

/// The tables with more rows than they may have after a half of so many rounds.
pub(super) fn excess(before: &Figures, now: &Figures, rounds: usize) -> Vec<String> {
    let mut surprises = Vec::new();
    for (table, count) in &now.rows {
        let earlier = before.rows.get(table).copied().unwrap_or_default();
        let history = HISTORIES.iter().find(|history| history.table == table);
        let most = match history.map(|history| &history.most) {
            None => earlier,
            Some(Most::OfCalls(sorts)) => earlier + signed(rounds * share_of(sorts)),
            Some(Most::InAll(most)) => signed(*most),
        };
        if *count > most {
            let why = history.map_or_else(String::new, |history| format!(" ({})", history.why));
            surprises.push(format!("rows of {table}: {earlier} before and {count} after, at most {most}{why}"));
        }
    }
    surprises
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap()
}
