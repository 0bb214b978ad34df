//! The messages that a run continues: the latest messages of a session, the summary of the earlier ones, and the beginning of its
//! requests.

use sqlx::AnyConnection;

use super::conversation_runs::message_log;
use super::text::storable;
use super::{AtStore, ConversationLogStore, MessageLog, StoreError};

/// The messages of a session up to one of them, in short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// Empty for a branch, which begins with all messages of the earlier session.
    pub text: String,
    /// The last message of the session itself that it stands for: the number of its run, and its position there. Before the first
    /// one for a session that begins with it.
    pub last: (i64, i64),
    /// The session that this one continues.
    pub hand_over: Option<HandOver>,
}

/// The link of a session to the one that it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The id of the earlier session, which stays as it is.
    pub earlier: String,
    /// The last messages of the earlier one, JSON: they come after the summary.
    pub kept: String,
}

/// The beginning of each request of an agent in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPrefix {
    /// The number of the run that began it.
    pub first_run: i64,
    /// JSON.
    pub prefix: String,
    /// The news of later runs in their order: the number of each run, and JSON.
    pub news: Vec<(i64, String)>,
}

/// Sessions of a conversation whose prefixes are kept, the latest ones: each has all tools. An older session that is continued begins
/// anew.
const MAX_SESSIONS: u32 = 16;

/// A message with its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMessage {
    /// The number of the run.
    pub run_number: i64,
    /// The agent of the run.
    pub agent: String,
    pub log: MessageLog,
}

/// The latest messages of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionMessages {
    /// In order.
    pub messages: Vec<SessionMessage>,
    /// How many others come before them.
    pub left_out: u64,
}

type SummaryRow = (String, i64, i64, Option<String>, Option<String>);

impl ConversationLogStore {
    /// The messages of a conversation's session after one of them, the latest as far as they have `max_characters`
    /// together, and at least the last one.
    pub async fn session_messages(
        &self,
        conversation: &str,
        session_id: &str,
        after: Option<(i64, i64)>,
        max_characters: u64,
    ) -> Result<SessionMessages, StoreError> {
        let (number, position) = after.unwrap_or((0, -1));
        // Sums and counts are over the messages from the last one to this one.
        let rows: Vec<(i64, String, String, i64, String, i64, i64)> = sqlx::query_as(
            "SELECT latest.number, latest.agent, m.run, m.position, m.message, m.incomplete, latest.total FROM (
                SELECT r.number, r.agent, m.run, m.position,
                    SUM(LENGTH(m.message)) OVER (ORDER BY r.number DESC, m.position DESC) AS characters,
                    ROW_NUMBER() OVER (ORDER BY r.number DESC, m.position DESC) AS place,
                    COUNT(*) OVER () AS total
                FROM message_logs m JOIN conversation_runs r ON r.id = m.run
                WHERE m.session_id = $2 AND r.conversation = $1 AND (r.number > $3 OR (r.number = $3 AND m.position > $4))
             ) latest JOIN message_logs m ON m.run = latest.run AND m.position = latest.position
             WHERE latest.characters <= $5 OR latest.place = 1 ORDER BY latest.number, m.position",
        )
        .bind(conversation)
        .bind(session_id)
        .bind(number)
        .bind(position)
        .bind(i64::try_from(max_characters).unwrap_or(i64::MAX))
        .fetch_all(&self.0.pool)
        .await
        .at(&self.0)?;
        let total = rows.first().map_or(0, |row| row.6);
        let left_out = u64::try_from(total).unwrap_or_default().saturating_sub(rows.len() as u64);
        let message = |(run_number, agent, run, position, message, incomplete, _)| SessionMessage {
            run_number,
            agent,
            log: message_log((run, position, message, incomplete)),
        };
        Ok(SessionMessages { messages: rows.into_iter().map(message).collect(), left_out })
    }

    /// Whether a conversation has messages of a session.
    pub async fn has_session(&self, conversation: &str, session_id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT m.position FROM message_logs m JOIN conversation_runs r ON r.id = m.run
             WHERE r.conversation = $1 AND m.session_id = $2 LIMIT 1";
        let found: Option<i64> =
            bound!(sqlx::query_scalar(sql), conversation, session_id).fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(found.is_some())
    }

    /// Whether a run has a message at a position.
    pub async fn has_message(&self, run: &str, position: i64) -> Result<bool, StoreError> {
        let found: Option<i64> =
            sqlx::query_scalar("SELECT position FROM message_logs WHERE run = $1 AND position = $2")
                .bind(run)
                .bind(position)
                .fetch_optional(&self.0.pool)
                .await
                .at(&self.0)?;
        Ok(found.is_some())
    }

    /// The summary of the older messages of a session.
    pub async fn session_summary(
        &self,
        conversation: &str,
        session_id: &str,
    ) -> Result<Option<SessionSummary>, StoreError> {
        let sql = "SELECT summary, last_number, last_position, earlier, kept FROM session_summaries
             WHERE conversation = $1 AND session_id = $2";
        let row: Option<SummaryRow> =
            bound!(sqlx::query_as(sql), conversation, session_id).fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(row.map(|(text, number, position, earlier, kept)| {
            let hand_over = earlier.zip(kept).map(|(earlier, kept)| HandOver { earlier, kept });
            SessionSummary { text, last: (number, position), hand_over }
        }))
    }

    /// Replaces the summary of the older messages of a session.
    /// Errors: [`StoreError`]; the earlier one stays then.
    pub async fn keep_session_summary(
        &self,
        conversation: &str,
        session_id: &str,
        summary: &SessionSummary,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO session_summaries (conversation, session_id, last_number, last_position, summary, earlier, kept)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (conversation, session_id) DO UPDATE SET
                last_number = excluded.last_number, last_position = excluded.last_position, summary = excluded.summary,
                earlier = excluded.earlier, kept = excluded.kept",
        )
        .bind(conversation)
        .bind(session_id)
        .bind(summary.last.0)
        .bind(summary.last.1)
        .bind(storable(&summary.text))
        .bind(summary.hand_over.as_ref().map(|hand_over| &hand_over.earlier))
        .bind(summary.hand_over.as_ref().map(|hand_over| &hand_over.kept))
        .execute(&self.0.pool)
        .await
        .map(drop)
        .at(&self.0)
    }

    /// The beginning of an agent's requests in a session; `None` before the first one.
    pub async fn session_prefix(
        &self,
        conversation: &str,
        session_id: &str,
        agent: &str,
    ) -> Result<Option<StoredPrefix>, StoreError> {
        let sql = "SELECT first_run, prefix, news FROM session_prefixes
             WHERE conversation = $1 AND session_id = $2 AND agent = $3";
        let row: Option<(i64, String, String)> = bound!(sqlx::query_as(sql), conversation, session_id, agent)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        let Some((first_run, prefix, news)) = row else { return Ok(None) };
        let damaged = |error: serde_json::Error| {
            self.0.damaged(format!("the news of a session of the conversation {conversation} are {error}"))
        };
        Ok(Some(StoredPrefix { first_run, prefix, news: serde_json::from_str(&news).map_err(damaged)? }))
    }

    /// Replaces the beginning of an agent's requests in a session. The prefixes of the conversation's oldest sessions are removed.
    /// Errors: [`StoreError`]; the earlier one stays then.
    pub async fn keep_session_prefix(
        &self,
        conversation: &str,
        session_id: &str,
        agent: &str,
        stored: &StoredPrefix,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO session_prefixes (conversation, session_id, agent, first_run, prefix, news)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (conversation, session_id, agent) DO UPDATE SET
                first_run = excluded.first_run, prefix = excluded.prefix, news = excluded.news",
        )
        .bind(conversation)
        .bind(session_id)
        .bind(agent)
        .bind(stored.first_run)
        .bind(&stored.prefix)
        .bind(news_text(&stored.news))
        .execute(&self.0.pool)
        .await
        .at(&self.0)?;
        // Ids of sessions are in the order in which these began.
        sqlx::query(
            "DELETE FROM session_prefixes WHERE conversation = $1 AND session_id <> $2 AND session_id NOT IN (
                SELECT session_id FROM session_prefixes WHERE conversation = $1
                GROUP BY session_id ORDER BY session_id DESC LIMIT $3)",
        )
        .bind(conversation)
        .bind(session_id)
        .bind(i64::from(MAX_SESSIONS))
        .execute(&self.0.pool)
        .await
        .map(drop)
        .at(&self.0)
    }
}

/// Copies the beginning of the session that a fork continues: its requests begin with the same bytes as in the original. It has
/// nothing of runs after `run`, the last one that is copied. The summary of a session's own messages is not copied, since it may be of
/// later ones than the fork has.
/// Errors: the database's, or news that are no JSON; then the transaction is to be rolled back.
pub(super) async fn copy_session(
    connection: &mut AnyConnection,
    (fork, session): (&str, &str),
    run: &str,
) -> sqlx::Result<()> {
    let sql =
        "INSERT INTO session_summaries (conversation, session_id, last_number, last_position, summary, earlier, kept)
         SELECT $1, session_id, last_number, last_position, summary, earlier, kept FROM session_summaries
         WHERE session_id = $2 AND earlier IS NOT NULL
            AND conversation = (SELECT conversation FROM conversation_runs WHERE id = $3)";
    bound!(sqlx::query(sql), fork, session, run).execute(&mut *connection).await?;
    let prefixes: Vec<(i64, String, i64, String, String)> = sqlx::query_as(
        "SELECT r.number, p.agent, p.first_run, p.prefix, p.news
         FROM session_prefixes p JOIN conversation_runs r ON r.conversation = p.conversation
         WHERE r.id = $1 AND p.session_id = $2 AND p.first_run <= r.number",
    )
    .bind(run)
    .bind(session)
    .fetch_all(&mut *connection)
    .await?;
    for (last_run, agent, first_run, prefix, news) in prefixes {
        let mut news: Vec<(i64, String)> =
            serde_json::from_str(&news).map_err(|error| sqlx::Error::Decode(error.into()))?;
        news.retain(|(run, _)| *run <= last_run);
        sqlx::query(
            "INSERT INTO session_prefixes (conversation, session_id, agent, first_run, prefix, news)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(fork)
        .bind(session)
        .bind(agent)
        .bind(first_run)
        .bind(prefix)
        .bind(news_text(&news))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Gives a branch a session of its own in place of the copied `earlier`: with its messages, and the summary that it begins with. The
/// beginning of its requests is not copied: it is another one.
pub(super) async fn continue_session(
    connection: &mut AnyConnection,
    (branch, session): (&str, &str),
    earlier: &str,
    run: &str,
) -> sqlx::Result<()> {
    for statement in [
        "UPDATE message_logs SET session_id = $1 WHERE session_id = $2
            AND run IN (SELECT id FROM conversation_runs WHERE conversation = $3)",
        "UPDATE conversation_runs SET session_id = $1 WHERE session_id = $2 AND conversation = $3",
    ] {
        sqlx::query(statement).bind(session).bind(earlier).bind(branch).execute(&mut *connection).await?;
    }
    let sql =
        "SELECT summary, kept FROM session_summaries WHERE session_id = $1 AND earlier IS NOT NULL AND kept IS NOT NULL
            AND conversation = (SELECT conversation FROM conversation_runs WHERE id = $2)";
    let begun: Option<(String, String)> =
        bound!(sqlx::query_as(sql), earlier, run).fetch_optional(&mut *connection).await?;
    let (summary, kept) = begun.unwrap_or_else(|| (String::new(), "[]".to_owned()));
    sqlx::query(
        "INSERT INTO session_summaries (conversation, session_id, last_number, last_position, summary, earlier, kept)
         VALUES ($1, $2, 0, -1, $3, $4, $5)",
    )
    .bind(branch)
    .bind(session)
    .bind(summary)
    .bind(earlier)
    .bind(kept)
    .execute(connection)
    .await
    .map(drop)
}

fn news_text(news: &[(i64, String)]) -> String {
    serde_json::json!(news).to_string()
}
