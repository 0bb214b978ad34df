//! Sessions that have read text of strangers, each by a digest: at another replica, and after a restart, it is known that they have,
//! though not what. All moments go by the clock that the processes of the store share.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::{MAX_ROWS, Store, StoreError, retried, stays_prepared};

/// Maximum sessions of a caller; the sweep removes those that end first.
pub const MAX_SESSIONS_OF_CALLER: i64 = 10_000;

/// The session of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlowSession {
    pub caller_key: String,
    pub digest: String,
}

/// Sessions that have read text of strangers: the table `flow_sessions`.
#[derive(Debug, Clone)]
pub struct FlowSessionStore(pub(super) Store);

impl FlowSessionStore {
    /// Marks sessions, each at most once, or lets their marks last longer.
    ///
    /// # Errors
    /// [`StoreError`]. Of several hundred, some may have been marked.
    pub async fn mark(&self, sessions: &[FlowSession], lifetime: Duration) -> Result<(), StoreError> {
        for sessions in sessions.chunks(MAX_ROWS) {
            retried(|| self.try_mark(sessions, lifetime)).await?;
        }
        Ok(())
    }

    async fn try_mark(&self, sessions: &[FlowSession], lifetime: Duration) -> Result<(), StoreError> {
        let (now, lifetime) = (self.0.engine.now_expression(), micros(lifetime));
        let row = |row: usize| format!("(${}, ${}, {now} + {lifetime})", row * 2 + 1, row * 2 + 2);
        let rows = (0..sessions.len()).map(row).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "INSERT INTO flow_sessions (caller_key, digest, expires) VALUES {rows}
             ON CONFLICT (caller_key, digest) DO UPDATE SET expires = excluded.expires"
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(sessions.len()));
        for FlowSession { caller_key, digest } in sessions {
            statement = statement.bind(caller_key).bind(digest);
        }
        statement.execute(&self.0.pool).await.map(drop).map_err(|error| self.0.failed(error))
    }

    /// # Errors
    /// [`StoreError`].
    pub async fn is_marked(&self, session: &FlowSession) -> Result<bool, StoreError> {
        let sql = format!(
            "SELECT digest FROM flow_sessions WHERE caller_key = $1 AND digest = $2 AND expires > {}",
            self.0.engine.now_expression()
        );
        let found: Option<(String,)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(&session.caller_key)
            .bind(&session.digest)
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(found.is_some())
    }

    /// Removes marks that are over, and those above the maximum of a caller.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_to(MAX_SESSIONS_OF_CALLER).await
    }

    async fn sweep_to(&self, max_of_caller: i64) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let sql = format!("DELETE FROM flow_sessions WHERE expires <= {}", self.0.engine.now_expression());
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.map_err(failed)?;
        let over = "SELECT caller_key FROM flow_sessions GROUP BY caller_key HAVING COUNT(*) > $1";
        let over: Vec<String> =
            sqlx::query_scalar(over).bind(max_of_caller).fetch_all(&self.0.pool).await.map_err(failed)?;
        for caller_key in over {
            let first = "DELETE FROM flow_sessions WHERE caller_key = $1 AND expires <= (
                SELECT expires FROM flow_sessions WHERE caller_key = $1 ORDER BY expires DESC LIMIT 1 OFFSET $2)";
            let removed = sqlx::query(first).bind(caller_key).bind(max_of_caller).execute(&self.0.pool).await;
            removed.map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    const DAY: Duration = Duration::from_secs(86_400);

    fn session(caller_key: &str, digest: &str) -> FlowSession {
        FlowSession { caller_key: caller_key.to_owned(), digest: digest.to_owned() }
    }

    #[tokio::test]
    async fn a_session_is_marked_for_its_caller_until_that_is_over() {
        let store = test_store().await;
        let sessions = store.flow_sessions();
        sessions.mark(&[session("ann", "a"), session("ann", "b")], DAY).await.unwrap();
        sessions.mark(&[session("ann", "a")], DAY).await.unwrap();
        sessions.mark(&[session("ann", "over")], Duration::ZERO).await.unwrap();
        for (caller_key, digest, expected) in
            [("ann", "a", true), ("ann", "b", true), ("ann", "c", false), ("ann", "over", false), ("bob", "a", false)]
        {
            assert_eq!(
                sessions.is_marked(&session(caller_key, digest)).await.unwrap(),
                expected,
                "{caller_key} {digest}"
            );
        }
    }

    #[tokio::test]
    async fn marks_above_the_maximum_of_a_caller_are_removed() {
        let store = test_store().await;
        let sessions = store.flow_sessions();
        for (digest, days) in [("a", 1), ("b", 3), ("c", 2)] {
            sessions.mark(&[session("ann", digest)], DAY * days).await.unwrap();
        }
        sessions.mark(&[session("bob", "d")], DAY).await.unwrap();
        sessions.sweep_to(2).await.unwrap();
        for (caller_key, digest, expected) in
            [("ann", "a", false), ("ann", "b", true), ("ann", "c", true), ("bob", "d", true)]
        {
            assert_eq!(
                sessions.is_marked(&session(caller_key, digest)).await.unwrap(),
                expected,
                "{caller_key} {digest}"
            );
        }
    }
}
