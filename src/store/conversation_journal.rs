//! The work of a conversation's run, written while it goes on: turns with tool calls, each call before it is sent, and
//! its answer.

use sqlx::AssertSqlSafe;

use super::conversation_runs::{RUN, add_usage};
use super::text::storable;
use super::work::CONVERSATION;
use super::{
    AtStore, ConversationLock, ConversationRun, ConversationRunStore, DailyUsage, ModelUsageRow, Store, StoreError,
    StoredCharge, retried,
};
use sekisho_core::database_clock::DatabaseTime;

/// A tool call of a run. Without `output` no answer is known: it was about to be sent, and may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExecution {
    pub tool_use_id: String,
    pub position: i64,
    pub turn: i64,
    pub tool_name: String,
    /// JSON.
    pub tool_input: String,
    pub output: Option<ToolOutcome>,
    pub begun: DatabaseTime,
    /// `None` with an output: it was refused, since a person must approve it, and is to be made later.
    pub ended: Option<DatabaseTime>,
}

/// The answer of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub text: String,
    /// JSON.
    pub images: Option<String>,
    pub is_error: bool,
}

/// A turn whose calls were begun, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnMessage {
    pub turn: i64,
    /// JSON.
    pub message: String,
}

/// The usage of a run so far, and the charges for it that are not stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used<'a> {
    pub rows: &'a [ModelUsageRow],
    pub charges: &'a [StoredCharge],
}

pub(super) const EXECUTION: &str =
    "tool_use_id, position, turn, tool_name, tool_input, output, images, is_error, begun, ended";

/// In the order of the columns.
pub(super) type ExecutionRow =
    (String, i64, i64, String, String, Option<String>, Option<String>, Option<i64>, i64, Option<i64>);

impl ConversationRunStore {
    /// Records a turn before its calls are sent. False, and nothing is recorded, when another holder has the
    /// conversation's lock: its calls must not be sent.
    /// Errors: [`StoreError`]; its calls must not be sent then.
    pub async fn add_turn(&self, lock: &ConversationLock, run: &str, turn: &TurnMessage) -> Result<bool, StoreError> {
        let sql = format!(
            "INSERT INTO turn_journal (run, turn, message) SELECT $1, $2, $3 {} {}",
            CONVERSATION.held(["$4", "$5", "$6"]),
            self.0.engine.share_lock()
        );
        let (conversation, holder, fence) = lock.lease.terms();
        bound!(sqlx::query(AssertSqlSafe(sql)), run, turn.turn, &turn.message, conversation, holder, fence)
            .execute(&self.0.pool)
            .await
            .map(|added| added.rows_affected() > 0)
            .at(&self.0)
    }

    /// Records a tool call before it is sent, with the usage of the run so far and the charges for it, whose new totals
    /// are returned. A call that is sent again has no answer again. `None`, and nothing is recorded, when another
    /// holder has the conversation's lock: the call must not be sent.
    /// Errors: [`StoreError`]; the call must not be sent then.
    pub async fn begin_tool_execution(
        &self,
        lock: &ConversationLock,
        run: &str,
        execution: &ToolExecution,
        used: Used<'_>,
    ) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        retried(|| self.try_begin_tool_execution(lock, run, execution, used)).await
    }

    async fn try_begin_tool_execution(
        &self,
        lock: &ConversationLock,
        run: &str,
        execution: &ToolExecution,
        used: Used<'_>,
    ) -> Result<Option<Vec<DailyUsage>>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let sql = format!(
            "INSERT INTO tool_execution_logs (run, tool_use_id, position, turn, tool_name, tool_input, begun)
             SELECT $1, $2, $3, $4, $5, $6, $7 {} {}
             ON CONFLICT (run, tool_use_id) DO UPDATE SET output = NULL, images = NULL, is_error = NULL, ended = NULL",
            CONVERSATION.held(["$8", "$9", "$10"]),
            self.0.engine.share_lock()
        );
        let (conversation, holder, fence) = lock.lease.terms();
        let begun = sqlx::query(AssertSqlSafe(sql))
            .bind(run)
            .bind(&execution.tool_use_id)
            .bind(execution.position)
            .bind(execution.turn)
            .bind(storable(&execution.tool_name))
            .bind(&execution.tool_input)
            .bind(execution.begun.as_microsecond())
            .bind(conversation)
            .bind(holder)
            .bind(fence)
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        if begun.rows_affected() == 0 {
            transaction.rollback().await.at(&self.0)?;
            return Ok(None);
        }
        add_usage(&mut transaction, run, used.rows).await.at(&self.0)?;
        let totals = self.0.charges().add_within(&mut transaction, used.charges).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(Some(totals))
    }

    /// Records the usage of a running run so far, and the charges for it, whose new totals are returned.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn keep_usage(&self, run: &str, used: Used<'_>) -> Result<Vec<DailyUsage>, StoreError> {
        retried(|| self.try_keep_usage(run, used)).await
    }

    async fn try_keep_usage(&self, run: &str, used: Used<'_>) -> Result<Vec<DailyUsage>, StoreError> {
        let mut transaction = self.0.begin().await?;
        add_usage(&mut transaction, run, used.rows).await.at(&self.0)?;
        let totals = self.0.charges().add_within(&mut transaction, used.charges).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(totals)
    }

    /// Records the answer of a tool call, and the charges for it, whose new totals are returned. Without `ended` the call is to be
    /// made later.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn end_tool_execution(
        &self,
        (run, tool_use_id): (&str, &str),
        outcome: &ToolOutcome,
        charges: &[StoredCharge],
        ended: Option<DatabaseTime>,
    ) -> Result<Vec<DailyUsage>, StoreError> {
        retried(|| self.try_end_tool_execution((run, tool_use_id), outcome, charges, ended)).await
    }

    async fn try_end_tool_execution(
        &self,
        (run, tool_use_id): (&str, &str),
        outcome: &ToolOutcome,
        charges: &[StoredCharge],
        ended: Option<DatabaseTime>,
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let mut transaction = self.0.begin().await?;
        sqlx::query(
            "UPDATE tool_execution_logs SET output = $3, images = $4, is_error = $5, ended = $6
             WHERE run = $1 AND tool_use_id = $2",
        )
        .bind(run)
        .bind(tool_use_id)
        .bind(storable(&outcome.text))
        .bind(&outcome.images)
        .bind(i64::from(outcome.is_error))
        .bind(ended.map(|moment| moment.as_microsecond()))
        .execute(&mut *transaction)
        .await
        .at(&self.0)?;
        let totals = self.0.charges().add_within(&mut transaction, charges).await?;
        transaction.commit().await.at(&self.0)?;
        Ok(totals)
    }

    /// The runs whose process ended: they are running, and nobody holds the lock of their conversation.
    pub async fn interrupted(&self) -> Result<Vec<ConversationRun>, StoreError> {
        let sql = format!(
            "SELECT {RUN} FROM conversation_runs WHERE status = 'running' AND conversation IN
             (SELECT id FROM conversations WHERE {})",
            CONVERSATION.is_free(self.0.engine, "conversations")
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.run_of(row)).collect()
    }

    /// The runs of a locked conversation that seem to run: their processes ended, since its lock is here. None when it was lost.
    pub async fn interrupted_in(&self, lock: &ConversationLock) -> Result<Vec<ConversationRun>, StoreError> {
        let sql = format!(
            "SELECT {RUN} FROM conversation_runs WHERE status = 'running' AND conversation IN (SELECT thing.id {})",
            CONVERSATION.held(["$1", "$2", "$3"])
        );
        let (conversation, holder, fence) = lock.lease.terms();
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(conversation).bind(holder).bind(fence);
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.run_of(row)).collect()
    }

    /// The tool calls of a run, in order.
    pub async fn tool_executions(&self, run: &str) -> Result<Vec<ToolExecution>, StoreError> {
        let sql = format!("SELECT {EXECUTION} FROM tool_execution_logs WHERE run = $1 ORDER BY position");
        let rows = sqlx::query_as(AssertSqlSafe(sql)).bind(run).fetch_all(&self.0.pool).await;
        rows.at(&self.0)?.into_iter().map(|row| execution_of(&self.0, row)).collect()
    }

    /// The turns of a run whose calls were begun, in order.
    pub async fn turns_of(&self, run: &str) -> Result<Vec<TurnMessage>, StoreError> {
        let rows: Vec<(i64, String)> =
            sqlx::query_as("SELECT turn, message FROM turn_journal WHERE run = $1 ORDER BY turn")
                .bind(run)
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        Ok(rows.into_iter().map(|(turn, message)| TurnMessage { turn, message }).collect())
    }
}

pub(super) fn execution_of(store: &Store, row: ExecutionRow) -> Result<ToolExecution, StoreError> {
    let (tool_use_id, position, turn, tool_name, tool_input, output, images, is_error, begun, ended) = row;
    Ok(ToolExecution {
        tool_use_id,
        position,
        turn,
        tool_name,
        tool_input,
        output: output.map(|text| ToolOutcome { text, images, is_error: is_error.unwrap_or_default() != 0 }),
        begun: store.moment(begun)?,
        ended: ended.map(|ended| store.moment(ended)).transpose()?,
    })
}
