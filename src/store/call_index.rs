//! The index of calls and events: entries are added in batches, found by their fields, and removed when they are old or
//! take too much space. What calls came to is added up beside them. The audit trail is the proof: the index is rebuilt from it.

mod chunks;
mod conditions;
mod contents;
mod events;
mod failures;
mod figures;
mod query;
mod retention;
mod series;
mod sums;
#[cfg(test)]
mod tests;
mod times;

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use jiff::Timestamp;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use self::chunks::OpenChunk;
pub use self::conditions::{CallCursor, CallOrder, IndexFilter};
pub use self::contents::NewCallContent;
pub use self::events::EventFilter;
pub use self::failures::{CountedUse, FailureGroup, Failures, FailuresBy};
pub use self::figures::{Figures, ToolUse, UseCursor};
pub use self::query::{Facet, FoundCalls, IndexedCall};
use self::series::WaitingSums;
pub use self::series::{Series, Subject, TimeRange, use_of};
pub use self::sums::CallSums;
pub use self::times::Times;
use super::rule_usage::units_of;
use super::text::storable;
use super::{Engine, Store, StoreError, StoreLocation, parameters_of_rows, sqlite, stays_prepared};
use sekisho_core::call::Stage;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::CallSummary;

/// Rows of a statement; one with all of them stays prepared.
const ROWS: usize = 64;

/// Rows of a transaction.
const ROWS_OF_TRANSACTION: usize = 512;

const COLUMNS: &str = "time, call_id, tenant, owner, caller, key_id, tool, server, via, dry_run, status, code, stage, upstream, \
                       http_status, session, agent_call, parent, request_id, duration, cost, calls, message, words, record, run, program, approval";

/// Calls and events: the tables `indexed_calls` and `indexed_events`.
#[derive(Debug, Clone)]
pub struct CallIndexStore(Store);

/// A call for the index.
#[derive(Debug)]
pub struct NewIndexedCall {
    pub call: Arc<CallSummary>,
    /// Calls that were refused alike and are one entry.
    pub calls: u64,
    /// Why it failed, sealed.
    pub words: Option<String>,
}

/// What one writer keeps from batch to batch: the chunk to which it adds calls, and sums that it has not written.
#[derive(Debug, Default)]
pub struct IndexWriter {
    chunk: OpenChunk,
    sums: WaitingSums,
    /// Sums have the calls until this moment (microseconds since 1970): they left the index.
    removed: i64,
}

impl CallIndexStore {
    /// Opens the index of a store: in a file of its own beside a SQLite file, so that neither waits for the other's
    /// writes; otherwise in the same database.
    /// Errors: [`StoreError`], naming the place.
    pub async fn open(location: &StoreLocation, store: &Store) -> Result<Self, StoreError> {
        let StoreLocation::File(path) = location else { return Ok(Self(store.clone())) };
        let path = path.with_extension("calls.db");
        sqlite::make_private_file(&path).map_err(|source| StoreError::NotPrivate { path: path.clone(), source })?;
        let place = path.display().to_string();
        Ok(Self(Store::migrated(Engine::Sqlite, &place, sqlite::connect_to_index(&path).await).await?))
    }

    /// Disconnects.
    pub async fn close(&self) {
        self.0.close().await;
    }

    /// Adds calls, each once. Their sums wait for [`write_sums`](Self::write_sums), unless they are many.
    /// Errors: [`StoreError`]. Of several hundred, some may have been added.
    pub async fn add_calls(&self, writer: &mut IndexWriter, calls: &[NewIndexedCall]) -> Result<(), StoreError> {
        for calls in calls.chunks(ROWS_OF_TRANSACTION) {
            if writer.chunk.is_full() {
                writer.chunk = OpenChunk::default();
            }
            calls.iter().for_each(|call| writer.chunk.add(call));
            let added = match self.add_transaction(&writer.chunk, calls, ROWS).await? {
                Some(added) => added,
                // Statements of one row say which calls were there.
                None => self.add_transaction(&writer.chunk, calls, 1).await?.unwrap_or_default(),
            };
            let removed = writer.removed;
            added.into_iter().filter(|new| micros_of(new.call.time) > removed).for_each(|new| writer.sums.add(new));
            if writer.sums.are_many() {
                let written = self.write_sums(writer).await;
                writer.sums.clear();
                written?;
            }
        }
        Ok(())
    }

    /// Adds so many calls with each statement, and returns the ones that were not there before; adds nothing and returns nothing
    /// where statements of several calls do not say which these are.
    async fn add_transaction<'a>(
        &self,
        chunk: &OpenChunk,
        calls: &'a [NewIndexedCall],
        at_once: usize,
    ) -> Result<Option<Vec<&'a NewIndexedCall>>, StoreError> {
        let failed = |error| self.0.failed(error);
        let mut added = Vec::with_capacity(calls.len());
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        chunk.write(self, &mut transaction).await?;
        for rows in calls.chunks(at_once) {
            let new = self.add_rows(&mut transaction, rows).await?;
            if new == rows.len() as u64 {
                added.extend(rows);
            } else if new > 0 {
                transaction.rollback().await.map_err(failed)?;
                return Ok(None);
            }
        }
        transaction.commit().await.map_err(failed)?;
        Ok(Some(added))
    }

    /// Returns the number of calls that were not there before.
    async fn add_rows(&self, connection: &mut AnyConnection, rows: &[NewIndexedCall]) -> Result<u64, StoreError> {
        static FULL: LazyLock<Arc<str>> = LazyLock::new(|| insertion(Engine::PostgreSql, ROWS).into());
        let sql = match (self.0.engine, rows.len()) {
            (Engine::PostgreSql, ROWS) => Arc::clone(&FULL),
            (engine, count) => insertion(engine, count).into(),
        };
        let mut statement =
            sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(rows.len()) || rows.len() == ROWS);
        for row in rows {
            statement = bound(statement, row);
        }
        let added = statement.execute(connection).await.map_err(|error| self.0.failed(error))?;
        Ok(added.rows_affected())
    }
}

fn insertion(engine: Engine, rows: usize) -> String {
    let columns = COLUMNS.split(',').count();
    let rows = match engine {
        // Without names: SQLite looks for a name among all of the statement, which took 30 µs a call.
        Engine::Sqlite => vec![format!("({})", vec!["?"; columns].join(", ")); rows].join(", "),
        Engine::PostgreSql => parameters_of_rows(rows, "", columns),
    };
    format!("INSERT INTO indexed_calls ({COLUMNS}) VALUES {rows} ON CONFLICT (time, call_id) DO NOTHING")
}

type Statement = Query<'static, Any, AnyArguments>;

/// In the order of [`COLUMNS`].
fn bound(statement: Statement, row: &NewIndexedCall) -> Statement {
    let NewIndexedCall { call, calls, words } = row;
    let parent = call.parent.map(|parent| parent.to_string());
    let upstream = call.breaker.as_ref().map(|(upstream, _)| &**upstream);
    statement
        .bind(micros_of(call.time))
        .bind(call.id.to_string())
        .bind(storable(&call.tenant))
        .bind(storable(&call.owner.caller))
        .bind(storable(&call.caller))
        .bind(call.key.as_deref().map(storable))
        .bind(storable(&call.tool))
        .bind(server_of(&call.tool).map(storable))
        .bind(call.via.as_str())
        .bind(i64::from(call.dry_run))
        .bind(call.status.as_str())
        .bind(call.code.map(ErrorCode::as_str))
        .bind(call.stage.map(Stage::as_str))
        .bind(upstream.map(storable))
        .bind(call.http_status.map(i64::from))
        .bind(call.session.as_deref().map(storable))
        .bind(call.agent_call.as_deref().map(storable))
        .bind(parent)
        .bind(Some(&*call.request_id).filter(|id| !id.is_empty()).map(storable))
        .bind(duration_of(call))
        .bind(units_of(call.cost_usd))
        .bind(i64::try_from(*calls).unwrap_or(i64::MAX))
        .bind(call.reason.as_deref().map(storable))
        .bind(words.as_deref())
        .bind(serde_json::to_string(&**call).unwrap_or_default())
        .bind(call.run.as_deref().map(storable))
        .bind(call.program.as_deref().map(storable))
        .bind(call.approval.as_deref().map(storable))
}

/// The part of a tool's name that names its server or collection.
fn server_of(tool: &str) -> Option<&str> {
    tool.split_once("__").map(|(server, _)| server)
}

fn micros_of(time: SystemTime) -> i64 {
    Timestamp::try_from(time).map_or(0, Timestamp::as_microsecond)
}

fn duration_of(call: &CallSummary) -> i64 {
    i64::try_from(call.duration.as_micros()).unwrap_or(i64::MAX)
}
