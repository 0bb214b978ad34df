//! The logs of conversations: read over several runs, removed when they are old or their conversation is, and copied for a
//! fork.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::conversation_journal::{EXECUTION, ExecutionRow, execution_of};
use super::conversation_runs::message_log;
use super::sessions::{continue_session, copy_session};
use super::work::CONVERSATION;
use super::{
    AtStore, Conversation, ConversationStore, MessageLog, ModelUsageRow, Store, StoreError, ToolExecution, retried,
};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::record::RunUsage;

/// Conversations that are looked up by one statement.
const MAX_IDS: usize = 500;

/// Which rows of a log: the rows of a caller, from the oldest on.
#[derive(Debug, Clone)]
pub struct LogFilter<'a> {
    pub caller_key: &'a str,
    pub conversation: Option<&'a str>,
    /// Run and position of the last row of the page before.
    pub after: Option<(&'a str, i64)>,
    pub max: u32,
}

/// A row of one of the logs.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRow<T> {
    pub conversation: String,
    pub run: String,
    pub position: i64,
    /// When the run began.
    pub begun: DatabaseTime,
    pub row: T,
}

/// A row, with the model of its run's agent: the first one that it used; empty if it used none.
#[derive(Debug, Clone, PartialEq)]
pub struct WithModel<T> {
    pub provider: String,
    pub model: String,
    pub row: T,
}

/// A run to copy for a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedRun {
    pub id: String,
    /// The id of the copy.
    pub new_id: String,
    /// Position of its last message that is copied.
    pub up_to: i64,
}

/// The tables with rows of runs.
const TABLES: [&str; 4] = ["message_logs", "turn_journal", "tool_execution_logs", "usage_logs"];

/// The tables with rows of sessions.
const SESSION_TABLES: [&str; 2] = ["session_summaries", "session_prefixes"];

type UsageRow = (String, String, i64, i64, String, String, String, i64, i64, i64, i64, i64, i64, String, i64);

/// The columns of [`WithModel`].
const MODEL: &str = "COALESCE((SELECT u.provider FROM usage_logs u WHERE u.run = r.id AND u.agent = r.agent
             ORDER BY u.position LIMIT 1), ''),
             COALESCE((SELECT u.model FROM usage_logs u WHERE u.run = r.id AND u.agent = r.agent
             ORDER BY u.position LIMIT 1), '')";

/// The logs of conversations, and the session that a run continues. It reads `message_logs`, `usage_logs` and
/// `tool_execution_logs`, removes old rows of these and of `turn_journal`, and reads and writes `session_summaries` and
/// `session_prefixes`.
#[derive(Debug, Clone)]
pub struct ConversationLogStore(pub(super) Store);

impl ConversationLogStore {
    /// The usage of the models of runs.
    pub async fn usage(&self, filter: &LogFilter<'_>) -> Result<Vec<LogRow<ModelUsageRow>>, StoreError> {
        let columns = "t.agent, t.provider, t.model, t.turns, t.tool_calls, t.prompt_tokens, t.completion_tokens, t.cached_tokens,
             t.cache_write_tokens, t.cost_usd, t.duration_ms";
        let rows: Vec<UsageRow> = self.log("usage_logs", columns, filter).await?;
        rows.into_iter().map(|row| self.usage_row(row)).collect()
    }

    /// The messages of runs.
    pub async fn messages(&self, filter: &LogFilter<'_>) -> Result<Vec<LogRow<WithModel<MessageLog>>>, StoreError> {
        type Row = (String, String, i64, i64, String, i64, String, String);
        let columns = format!("t.message, t.incomplete, {MODEL}");
        let rows: Vec<Row> = self.log("message_logs", &columns, filter).await?;
        let row = |(conversation, run, position, begun, message, incomplete, provider, model): Row| {
            let begun = self.0.moment(begun)?;
            let row = message_log((run.clone(), position, message, incomplete));
            let row = WithModel { provider, model, row };
            Ok(LogRow { conversation, run, position, begun, row })
        };
        rows.into_iter().map(row).collect()
    }

    /// The tool calls of runs.
    pub async fn tool_executions(
        &self,
        filter: &LogFilter<'_>,
    ) -> Result<Vec<LogRow<WithModel<ToolExecution>>>, StoreError> {
        type Row = (
            String,
            String,
            i64,
            i64,
            String,
            i64,
            String,
            String,
            Option<String>,
            Option<String>,
            Option<i64>,
            i64,
            Option<i64>,
            String,
            String,
        );
        debug_assert!(EXECUTION.starts_with("tool_use_id, position, turn"), "the order of `ExecutionRow`");
        let columns = format!(
            "t.tool_use_id, t.turn, t.tool_name, t.tool_input, t.output, t.images, t.is_error, t.begun, t.ended, {MODEL}"
        );
        let rows: Vec<Row> = self.log("tool_execution_logs", &columns, filter).await?;
        let row = |row: Row| {
            let (
                conversation,
                run,
                position,
                of_run,
                id,
                turn,
                name,
                input,
                output,
                images,
                is_error,
                begun,
                ended,
                provider,
                model,
            ) = row;
            let row: ExecutionRow = (id, position, turn, name, input, output, images, is_error, begun, ended);
            let row = WithModel { provider, model, row: execution_of(&self.0, row)? };
            Ok(LogRow { conversation, run, position, begun: self.0.moment(of_run)?, row })
        };
        rows.into_iter().map(row).collect()
    }

    async fn log<T>(&self, table: &str, columns: &str, filter: &LogFilter<'_>) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::any::AnyRow> + Send + Unpin,
    {
        let sql = format!(
            "SELECT r.conversation, t.run, t.position, r.begun, {columns} FROM {table} t
             JOIN conversation_runs r ON r.id = t.run JOIN conversations c ON c.id = r.conversation
             WHERE c.caller_key = $1 AND ($2 = '' OR c.id = $2) AND (t.run > $3 OR (t.run = $3 AND t.position > $4))
             ORDER BY t.run, t.position LIMIT $5"
        );
        let (run, position) = filter.after.unwrap_or(("", -1));
        sqlx::query_as(AssertSqlSafe(sql))
            .bind(filter.caller_key)
            .bind(filter.conversation.unwrap_or_default())
            .bind(run)
            .bind(position)
            .bind(i64::from(filter.max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// The messages of a run, in order.
    pub async fn messages_of_run(&self, run: &str) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar("SELECT message FROM message_logs WHERE run = $1 ORDER BY position").bind(run);
        found.fetch_all(&self.0.pool).await.at(&self.0)
    }

    /// The usage of a run, by model.
    pub async fn usage_of_run(&self, run: &str) -> Result<Vec<ModelUsageRow>, StoreError> {
        let mut connection = self.0.pool.acquire().await.at(&self.0)?;
        self.usage_rows_within(&mut connection, run).await
    }

    /// As [`usage_of_run`](Self::usage_of_run), within a transaction.
    pub(super) async fn usage_rows_within(
        &self,
        connection: &mut AnyConnection,
        run: &str,
    ) -> Result<Vec<ModelUsageRow>, StoreError> {
        let rows: Vec<UsageRow> = sqlx::query_as(
            "SELECT '', run, position, CAST(0 AS BIGINT), agent, provider, model, turns, tool_calls, prompt_tokens, completion_tokens, cached_tokens,
             cache_write_tokens, cost_usd, duration_ms FROM usage_logs WHERE run = $1 ORDER BY position",
        )
        .bind(run)
        .fetch_all(connection)
        .await
        .at(&self.0)?;
        rows.into_iter().map(|row| Ok(self.usage_row(row)?.row)).collect()
    }

    /// Removes the rows of conversations that did not change since that moment. The conversations and runs stay.
    pub async fn forget_before(&self, moment: DatabaseTime) -> Result<(), StoreError> {
        for table in TABLES {
            let sql = format!(
                "DELETE FROM {table} WHERE run IN (SELECT r.id FROM conversation_runs r JOIN conversations c
                 ON c.id = r.conversation WHERE c.changed < $1 AND {})",
                CONVERSATION.is_free(self.0.engine, "c")
            );
            let removed = sqlx::query(AssertSqlSafe(sql)).bind(moment.as_microsecond()).execute(&self.0.pool).await;
            removed.at(&self.0)?;
        }
        for table in SESSION_TABLES {
            let sql = format!(
                "DELETE FROM {table} WHERE conversation IN (SELECT id FROM conversations WHERE changed < $1 AND {})",
                CONVERSATION.is_free(self.0.engine, "conversations")
            );
            sqlx::query(AssertSqlSafe(sql)).bind(moment.as_microsecond()).execute(&self.0.pool).await.at(&self.0)?;
        }
        Ok(())
    }

    fn usage_row(&self, row: UsageRow) -> Result<LogRow<ModelUsageRow>, StoreError> {
        let (
            conversation,
            run,
            position,
            begun,
            agent,
            provider,
            model,
            turns,
            tool_calls,
            prompt,
            completion,
            cached,
            written,
            cost_usd,
            ms,
        ) = row;
        let count =
            |count: i64| u64::try_from(count).map_err(|_| self.0.damaged(format!("a count of a run is {count}")));
        let small =
            |count: i64| u32::try_from(count).map_err(|_| self.0.damaged(format!("a count of a run is {count}")));
        let used = RunUsage {
            turns: small(turns)?,
            tool_calls: small(tool_calls)?,
            prompt_tokens: count(prompt)?,
            completion_tokens: count(completion)?,
            cached_tokens: count(cached)?,
            cache_write_tokens: count(written)?,
            cost_usd: cost_usd.parse().map_err(|_| self.0.damaged(format!("a cost is {cost_usd:?}")))?,
            duration_ms: count(ms)?,
        };
        let begun = self.0.moment(begun)?;
        Ok(LogRow { conversation, run, position, begun, row: ModelUsageRow { agent, provider, model, used } })
    }
}

impl ConversationStore {
    /// The key of the caller and the id of each conversation with a workspace that was changed since a moment.
    pub async fn with_workspaces(&self, since: DatabaseTime) -> Result<Vec<(String, String)>, StoreError> {
        sqlx::query_as("SELECT caller_key, id FROM conversations WHERE workspace = 1 AND changed >= $1")
            .bind(since.as_microsecond())
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// As [`with_workspaces`](Self::with_workspaces), only of conversations with these ids; some of them may be listed
    /// twice.
    pub async fn with_workspaces_among(
        &self,
        ids: &[&str],
        since: DatabaseTime,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut found = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let places: Vec<_> = (2..MAX_IDS + 2).map(|number| format!("${number}")).collect();
            let sql = format!(
                "SELECT caller_key, id FROM conversations WHERE workspace = 1 AND changed >= $1 AND id IN ({})",
                places.join(", ")
            );
            // Filled up with the last one, so that the statement has one text.
            let filled = (0..MAX_IDS).filter_map(|number| ids.get(number).or_else(|| ids.last()));
            let query = sqlx::query_as(AssertSqlSafe(sql)).bind(since.as_microsecond());
            let query = filled.fold(query, |query, id| query.bind(*id));
            let rows: Vec<(String, String)> = query.fetch_all(&self.0.pool).await.at(&self.0)?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// Removes a conversation with its runs and all that they stored, unless a run is on. False when one is, or there is no
    /// such conversation.
    /// Errors: [`StoreError`]; nothing is removed then.
    pub async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        retried(|| self.try_delete(id)).await
    }

    async fn try_delete(&self, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.0.begin().await?;
        let is_free = CONVERSATION.is_free(self.0.engine, "conversations");
        let removed = sqlx::query(AssertSqlSafe(format!("DELETE FROM conversations WHERE id = $1 AND {is_free}")));
        let removed = removed.bind(id).execute(&mut *transaction).await.at(&self.0)?;
        if removed.rows_affected() == 0 {
            transaction.rollback().await.at(&self.0)?;
            return Ok(false);
        }
        self.0.work().remove_within(&mut transaction, CONVERSATION, id).await?;
        let of_runs = TABLES.map(|table| {
            format!("DELETE FROM {table} WHERE run IN (SELECT id FROM conversation_runs WHERE conversation = $1)")
        });
        let others = SESSION_TABLES.into_iter().chain(["conversation_runs"]);
        let others = others.map(|table| format!("DELETE FROM {table} WHERE conversation = $1"));
        for statement in of_runs.into_iter().chain(others) {
            sqlx::query(AssertSqlSafe(statement)).bind(id).execute(&mut *transaction).await.at(&self.0)?;
        }
        transaction.commit().await.at(&self.0)?;
        Ok(true)
    }

    /// Adds a conversation with copies of these runs and their messages, unless its caller has `max` of them: false
    /// then. The usage of the runs stays with the original.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn fork(&self, fork: &Conversation, runs: &[CopiedRun], max: u32) -> Result<bool, StoreError> {
        retried(|| self.try_fork(fork, runs, None, max)).await
    }

    /// As [`fork`](Self::fork), with a session of its own that continues `earlier`, the one of the last run.
    /// Errors: [`StoreError`]; nothing is stored then.
    pub async fn branch(
        &self,
        branch: &Conversation,
        runs: &[CopiedRun],
        earlier: &str,
        max: u32,
    ) -> Result<bool, StoreError> {
        retried(|| self.try_fork(branch, runs, Some(earlier), max)).await
    }

    async fn try_fork(
        &self,
        fork: &Conversation,
        runs: &[CopiedRun],
        earlier: Option<&str>,
        max: u32,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.0.begin().await?;
        if !super::conversations::insert(&mut transaction, fork, max).await.at(&self.0)? {
            transaction.rollback().await.at(&self.0)?;
            return Ok(false);
        }
        for run in runs {
            copy_run(&mut transaction, &fork.id, run).await.at(&self.0)?;
        }
        if let (Some(session), Some(run)) = (&fork.session_id, runs.last()) {
            let of_fork = (&*fork.id, &**session);
            let copied = match earlier {
                None => copy_session(&mut transaction, of_fork, &run.id).await,
                Some(earlier) => continue_session(&mut transaction, of_fork, earlier, &run.id).await,
            };
            copied.at(&self.0)?;
        }
        transaction.commit().await.at(&self.0)?;
        Ok(true)
    }
}

async fn copy_run(connection: &mut AnyConnection, conversation: &str, run: &CopiedRun) -> sqlx::Result<()> {
    let sql = "INSERT INTO conversation_runs (id, conversation, number, session_id, agent, claimed_executor, user_input, status,
            error_code, error, begun, ended)
         SELECT $2, $3, number, session_id, agent, claimed_executor, user_input, status, error_code, error, begun, ended
         FROM conversation_runs WHERE id = $1";
    bound!(sqlx::query(sql), &run.id, &run.new_id, conversation).execute(&mut *connection).await?;
    sqlx::query(
        "INSERT INTO message_logs (run, position, session_id, message, incomplete)
         SELECT $2, position, session_id, message, incomplete FROM message_logs WHERE run = $1 AND position <= $3",
    )
    .bind(&run.id)
    .bind(&run.new_id)
    .bind(run.up_to)
    .execute(&mut *connection)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests;
