//! The runs of conversations: begun, and ended in one transaction.

use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::conversation_lock::ConversationLock;
use super::text::storable;
use super::work::{CONVERSATION, LockState};
use super::{AtStore, DailyUsage, Engine, Store, StoreError, Used, retried};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::failpoint;
use sekisho_core::record::RunUsage;

/// A run of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationRun {
    /// In the order of their beginnings.
    pub id: String,
    pub conversation: String,
    /// The number of the run in its conversation, from 1.
    pub number: i64,
    pub session_id: String,
    pub agent: String,
    /// As the request says; not an identity.
    pub claimed_executor: Option<String>,
    pub user_input: Arc<str>,
    pub status: RunStatus,
    pub error: Option<StoredError>,
    pub begun: DatabaseTime,
    pub ended: Option<DatabaseTime>,
}

/// Why a run did not end with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredError {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    Running,
    /// It ended because a person must approve calls of it. The next run goes on with these.
    Paused,
    Succeeded,
    Failed,
    Cancelled,
    TimedOut,
    /// Its process ended before it did.
    Interrupted,
}

impl ConversationRun {
    /// The run ends `now`, and not before it began: another process may have been ahead in time.
    pub fn end_at(&mut self, now: DatabaseTime) {
        self.ended = Some(now.max(self.begun));
    }
}

sekisho_core::as_str!(RunStatus);

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLog {
    pub run: String,
    pub position: i64,
    /// JSON.
    pub message: String,
    /// Whether its run did not end with an answer.
    pub incomplete: bool,
}

/// The usage of one model of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelUsageRow {
    /// The run's agent, or the type of a sub-agent.
    pub agent: String,
    /// Empty: of an earlier version.
    pub provider: String,
    pub model: String,
    pub used: RunUsage,
}

/// The data that are stored when a run ends, all or nothing (C36).
#[derive(Debug, Clone)]
pub struct RunEnd<'a> {
    /// With its final status.
    pub run: &'a ConversationRun,
    /// The lock of the holder, who must still have it; `None` for a run whose process has ended.
    pub lock: Option<&'a ConversationLock>,
    /// Whether the holder goes on with another run; otherwise the lock is given back.
    pub keeps_lock: bool,
    /// JSON, in order.
    pub messages: &'a [String],
    /// For a conversation without one.
    pub title: Option<&'a str>,
    /// Replaces the usage that was stored with the run's calls; for a run whose process ended, that usage stays.
    pub used: Used<'a>,
}

pub(super) const RUN: &str = "id, conversation, number, session_id, agent, claimed_executor, user_input, status, error_code, error, begun, ended";

/// Runs of conversations and their journal: the tables `conversation_runs`, `message_logs`, `usage_logs`, `turn_journal` and
/// `tool_execution_logs`. The end of a run also updates its row of `conversations`, and makes its charges.
#[derive(Debug, Clone)]
pub struct ConversationRunStore(pub(super) Store);

impl ConversationRunStore {
    /// Adds a run that begins, and sets its number, the next one of its conversation, and its beginning: not before the end
    /// of an earlier run, whose process may have been ahead in time. False, and nothing is stored, when another holder has
    /// the conversation's lock.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn begin(&self, lock: &ConversationLock, run: &mut ConversationRun) -> Result<bool, StoreError> {
        let sql = format!(
            "INSERT INTO conversation_runs
                (id, conversation, number, session_id, agent, claimed_executor, user_input, status, begun)
             SELECT $1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM conversation_runs WHERE conversation = $2),
                $3, $4, $5, $6, $7,
                (SELECT CASE WHEN MAX(ended) > CAST($8 AS BIGINT) THEN MAX(ended) ELSE CAST($8 AS BIGINT) END
                 FROM conversation_runs WHERE conversation = $2)
             {} {} RETURNING number, begun",
            CONVERSATION.held(["$2", "$9", "$10"]),
            self.0.engine.share_lock()
        );
        let (conversation, holder, fence) = lock.lease.terms();
        let begun: Option<(i64, i64)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(&run.id)
            .bind(conversation)
            .bind(&run.session_id)
            .bind(&run.agent)
            .bind(run.claimed_executor.as_deref().map(storable))
            .bind(storable(&run.user_input))
            .bind(run.status.as_str())
            .bind(run.begun.as_microsecond())
            .bind(holder)
            .bind(fence)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        let Some((number, begun)) = begun else { return Ok(false) };
        (run.number, run.begun) = (number, self.0.moment(begun)?);
        Ok(true)
    }

    /// Stores the end of a run: its status, messages and usage, and the conversation's session and title. The charges
    /// are stored too, and their new totals returned; for an interrupted run, the charges are its reservations. It may
    /// be called again when it is not known whether it was stored. `None`, and nothing is stored, when another holder
    /// has the conversation's lock, or the run has ended otherwise.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn end(&self, end: &RunEnd<'_>) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        retried(|| self.try_end(end)).await
    }

    async fn try_end(&self, end: &RunEnd<'_>) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let is_ours = self.may_end(&mut transaction, end).await?
            && change_conversation(&mut transaction, end, self.0.engine).await.at(&self.0)?
            && end_run(&mut transaction, end.run).await.at(&self.0)?;
        if !is_ours && !is_stored(&mut transaction, end.run).await.at(&self.0)? {
            transaction.rollback().await.at(&self.0)?;
            return Ok(None);
        }
        if is_ours {
            add_messages(&mut transaction, end).await.at(&self.0)?;
            add_usage(&mut transaction, &end.run.id, end.used.rows).await.at(&self.0)?;
        }
        let totals = match end.run.status {
            RunStatus::Interrupted => self.0.charges().charge_reserved_within(&mut transaction, &end.run.id).await?,
            _ => self.0.charges().add_within(&mut transaction, end.used.charges).await?,
        };
        failpoint::reach("run.storing");
        transaction.commit().await.at(&self.0)?;
        Ok(Some(totals))
    }

    /// The first statements of the end: whether the holder still has the conversation's lock, which it keeps or gives back.
    async fn may_end(&self, connection: &mut AnyConnection, end: &RunEnd<'_>) -> Result<bool, StoreError> {
        let work = self.0.work();
        match end.lock {
            Some(lock) if end.keeps_lock => {
                work.renew_within(connection, &lock.lease).await.map(|state| state != LockState::Lost)
            }
            Some(lock) => work.release_within(connection, &lock.lease).await,
            None => Ok(true),
        }
    }

    /// All messages of a conversation from the `offset`th on, in order, at most `max`.
    pub async fn messages(&self, conversation: &str, offset: u32, max: u32) -> Result<Vec<MessageLog>, StoreError> {
        let rows: Vec<(String, i64, String, i64)> = sqlx::query_as(
            "SELECT m.run, m.position, m.message, m.incomplete FROM message_logs m JOIN conversation_runs r ON r.id = m.run
             WHERE r.conversation = $1 ORDER BY r.number, m.position LIMIT $2 OFFSET $3",
        )
        .bind(conversation)
        .bind(i64::from(max))
        .bind(i64::from(offset))
        .fetch_all(&self.0.pool)
        .await
        .at(&self.0)?;
        Ok(rows.into_iter().map(message_log).collect())
    }

    /// A conversation's runs, the last one first, at most `max` with a number below `before`.
    pub async fn of_conversation(
        &self,
        conversation: &str,
        before: Option<i64>,
        max: u32,
    ) -> Result<Vec<ConversationRun>, StoreError> {
        let sql = format!(
            "SELECT {RUN} FROM conversation_runs WHERE conversation = $1 AND number < $2 ORDER BY number DESC LIMIT $3"
        );
        let rows = bound!(sqlx::query(AssertSqlSafe(sql)), conversation, before.unwrap_or(i64::MAX), i64::from(max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.run_of(row)).collect()
    }

    /// Runs of a caller that wait for a person: the last ones of their conversations, the latest first.
    pub async fn paused(&self, caller_key: &str, max: u32) -> Result<Vec<ConversationRun>, StoreError> {
        let sql = format!(
            "SELECT {RUN} FROM conversation_runs WHERE status = $1 AND conversation IN
             (SELECT id FROM conversations WHERE caller_key = $2) AND number =
             (SELECT MAX(number) FROM conversation_runs o WHERE o.conversation = conversation_runs.conversation)
             ORDER BY begun DESC, id DESC LIMIT $3"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(RunStatus::Paused.as_str())
            .bind(caller_key)
            .bind(i64::from(max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.run_of(row)).collect()
    }

    /// A run of a caller's conversation.
    pub async fn get(&self, caller_key: &str, id: &str) -> Result<Option<ConversationRun>, StoreError> {
        let sql = format!(
            "SELECT {RUN} FROM conversation_runs WHERE id = $1 AND conversation IN
             (SELECT id FROM conversations WHERE caller_key = $2)"
        );
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(caller_key).fetch_optional(&self.0.pool).await;
        row.at(&self.0)?.map(|row| self.run_of(&row)).transpose()
    }

    /// A row with the columns [`RUN`].
    pub(super) fn run_of(&self, row: &AnyRow) -> Result<ConversationRun, StoreError> {
        let text = |column: &str| row.try_get::<String, _>(column).at(&self.0);
        let option = |column: &str| row.try_get::<Option<String>, _>(column).at(&self.0);
        let (status, message) = (text("status")?, option("error")?.unwrap_or_default());
        let ended: Option<i64> = row.try_get("ended").at(&self.0)?;
        Ok(ConversationRun {
            id: text("id")?,
            conversation: text("conversation")?,
            number: row.try_get("number").at(&self.0)?,
            session_id: text("session_id")?,
            agent: text("agent")?,
            claimed_executor: option("claimed_executor")?,
            user_input: text("user_input")?.into(),
            status: status.parse().map_err(|_| self.0.damaged(format!("the status of a run is {status:?}")))?,
            error: option("error_code")?.map(|code| StoredError { code, message }),
            begun: self.0.moment(row.try_get("begun").at(&self.0)?)?,
            ended: ended.map(|ended| self.0.moment(ended)).transpose()?,
        })
    }
}

/// False when another run has the lock of a conversation of which the caller has none.
async fn change_conversation(connection: &mut AnyConnection, end: &RunEnd<'_>, engine: Engine) -> sqlx::Result<bool> {
    let now = end.run.ended.unwrap_or(end.run.begun).as_microsecond();
    let is_free = match end.lock {
        Some(_) => String::new(),
        None => format!("AND {}", CONVERSATION.is_free(engine, "conversations")),
    };
    let sql = format!(
        "UPDATE conversations SET session_id = $2, title = COALESCE(title, $3), changed = $4 WHERE id = $1 {is_free}"
    );
    let changed = sqlx::query(AssertSqlSafe(sql))
        .bind(&end.run.conversation)
        .bind(&end.run.session_id)
        .bind(end.title.map(storable))
        .bind(now)
        .execute(connection)
        .await?;
    Ok(changed.rows_affected() > 0)
}

async fn end_run(connection: &mut AnyConnection, run: &ConversationRun) -> sqlx::Result<bool> {
    let ended = sqlx::query(
        "UPDATE conversation_runs SET status = $2, error_code = $3, error = $4, ended = $5
         WHERE id = $1 AND status = 'running'",
    )
    .bind(&run.id)
    .bind(run.status.as_str())
    .bind(run.error.as_ref().map(|error| &error.code))
    .bind(run.error.as_ref().map(|error| storable(&error.message)))
    .bind(run.ended.map(|moment| moment.as_microsecond()))
    .execute(connection)
    .await?;
    Ok(ended.rows_affected() > 0)
}

/// Whether this end of the run is stored: the answer to an earlier commit was lost.
async fn is_stored(connection: &mut AnyConnection, run: &ConversationRun) -> sqlx::Result<bool> {
    let found = sqlx::query("SELECT 1 FROM conversation_runs WHERE id = $1 AND status = $2 AND ended = $3")
        .bind(&run.id)
        .bind(run.status.as_str())
        .bind(run.ended.map(|moment| moment.as_microsecond()))
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

async fn add_messages(connection: &mut AnyConnection, end: &RunEnd<'_>) -> sqlx::Result<()> {
    let incomplete = end.run.status != RunStatus::Succeeded;
    for (position, message) in (0_i64..).zip(end.messages) {
        let sql =
            "INSERT INTO message_logs (run, position, session_id, message, incomplete) VALUES ($1, $2, $3, $4, $5)";
        bound!(sqlx::query(sql), &end.run.id, position, &end.run.session_id, message, i64::from(incomplete))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Each row replaces the row that was written while the run was on.
pub(super) async fn add_usage(connection: &mut AnyConnection, run: &str, usage: &[ModelUsageRow]) -> sqlx::Result<()> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    for (position, ModelUsageRow { agent, provider, model, used }) in (0_i64..).zip(usage) {
        sqlx::query(
            "INSERT INTO usage_logs
                (run, position, agent, model, turns, tool_calls, prompt_tokens, completion_tokens, cached_tokens,
                 cache_write_tokens, cost_usd, duration_ms, provider)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             ON CONFLICT (run, position) DO UPDATE SET
                agent = excluded.agent, model = excluded.model, turns = excluded.turns,
                tool_calls = excluded.tool_calls, prompt_tokens = excluded.prompt_tokens,
                completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
                cache_write_tokens = excluded.cache_write_tokens, cost_usd = excluded.cost_usd,
                duration_ms = excluded.duration_ms, provider = excluded.provider",
        )
        .bind(run)
        .bind(position)
        .bind(agent)
        .bind(model)
        .bind(i64::from(used.turns))
        .bind(i64::from(used.tool_calls))
        .bind(count(used.prompt_tokens))
        .bind(count(used.completion_tokens))
        .bind(count(used.cached_tokens))
        .bind(count(used.cache_write_tokens))
        .bind(used.cost_usd.to_string())
        .bind(count(used.duration_ms))
        .bind(provider)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) fn message_log((run, position, message, incomplete): (String, i64, String, i64)) -> MessageLog {
    MessageLog { run, position, message, incomplete: incomplete != 0 }
}
