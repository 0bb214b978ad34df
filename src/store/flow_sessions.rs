//! The values of sessions, sealed, and which sessions have read text of strangers, each by a digest: another replica, and the gateway
//! after a restart, goes on with them. Of a session without values it is still known that it has read such text, though not what.
//! All moments go by the clock that the processes of the store share.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::{AtStore, MAX_ROWS, Store, StoreError, retried, stays_prepared};

/// Maximum sessions of a caller; the sweep removes those that end first.
pub const MAX_SESSIONS_OF_CALLER: i64 = 10_000;

/// Maximum sessions of a caller whose values are stored; the sweep removes those that end first.
pub const MAX_VALUES_OF_CALLER: i64 = 250;

/// A session in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredFlowSession {
    /// It has read text of strangers.
    pub is_marked: bool,
    /// Of its values; 0 where there are none.
    pub revision: i64,
    /// Its values, if their revision is another one than the known one.
    pub sealed: Option<String>,
}

/// The session of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlowSession {
    pub caller_key: String,
    pub digest: String,
}

/// Sessions that have read text of strangers: the table `flow_sessions`. The values of sessions: the table `flow_values`.
#[derive(Debug, Clone)]
pub struct FlowSessionStore(pub(super) Store);

impl FlowSessionStore {
    /// Marks sessions, each at most once, or lets their marks last longer.
    /// Errors: [`StoreError`]. Of several hundred, some may have been marked.
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
        statement.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Reads a session, with its values if their revision is another one than `known`.
    pub async fn read(&self, session: &FlowSession, known: i64) -> Result<StoredFlowSession, StoreError> {
        let now = self.0.engine.now_expression();
        let of_session = format!("caller_key = $1 AND digest = $2 AND expires > {now}");
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM flow_sessions WHERE {of_session}),
                 COALESCE((SELECT revision FROM flow_values WHERE {of_session}), 0),
                 COALESCE((SELECT sealed FROM flow_values WHERE {of_session} AND revision <> $3), '')"
        );
        let (marks, revision, sealed): (i64, i64, String) =
            bound!(sqlx::query_as(AssertSqlSafe(sql)), &session.caller_key, &session.digest, known)
                .fetch_one(&self.0.pool)
                .await
                .at(&self.0)?;
        Ok(StoredFlowSession { is_marked: marks > 0, revision, sealed: Some(sealed).filter(|text| !text.is_empty()) })
    }

    /// Stores the values of a session, which include the revision `known`, and returns their own revision. `None`: there is
    /// another revision, which is to be read first.
    /// Errors: [`StoreError`]; they may have been stored.
    pub async fn save(
        &self,
        session: &FlowSession,
        known: i64,
        sealed: &str,
        lifetime: Duration,
    ) -> Result<Option<i64>, StoreError> {
        retried(|| self.try_save(session, known, sealed, lifetime)).await
    }

    async fn try_save(
        &self,
        session: &FlowSession,
        known: i64,
        sealed: &str,
        lifetime: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let (now, lifetime) = (self.0.engine.now_expression(), micros(lifetime));
        // A random one: a number that counts on from 0 would come again after the row was removed, and a replica that knows the former
        // values by it would not read the new ones.
        let revision = rand::random_range(1..=i64::MAX);
        let sql = format!(
            "INSERT INTO flow_values (caller_key, digest, revision, sealed, expires)
             VALUES ($1, $2, $3, $4, {now} + {lifetime})
             ON CONFLICT (caller_key, digest)
             DO UPDATE SET revision = excluded.revision, sealed = excluded.sealed, expires = excluded.expires
             WHERE flow_values.revision = $5 OR flow_values.expires <= {now}"
        );
        let saved =
            bound!(sqlx::query(AssertSqlSafe(sql)), &session.caller_key, &session.digest, revision, sealed, known)
                .execute(&self.0.pool)
                .await
                .at(&self.0)?;
        Ok((saved.rows_affected() > 0).then_some(revision))
    }

    /// Removes marks and values that are over, and those above the maximum of a caller.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_to("flow_sessions", MAX_SESSIONS_OF_CALLER).await?;
        self.sweep_to("flow_values", MAX_VALUES_OF_CALLER).await
    }

    async fn sweep_to(&self, table: &'static str, max_of_caller: i64) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM {table} WHERE expires <= {}", self.0.engine.now_expression());
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.at(&self.0)?;
        let over = format!("SELECT caller_key FROM {table} GROUP BY caller_key HAVING COUNT(*) > $1");
        let over = sqlx::query_scalar(AssertSqlSafe(over)).bind(max_of_caller).fetch_all(&self.0.pool).await;
        let over: Vec<String> = over.at(&self.0)?;
        for caller_key in over {
            let first = format!(
                "DELETE FROM {table} WHERE caller_key = $1 AND expires <= (
                     SELECT expires FROM {table} WHERE caller_key = $1 ORDER BY expires DESC LIMIT 1 OFFSET $2)"
            );
            let removed = sqlx::query(AssertSqlSafe(first)).bind(caller_key).bind(max_of_caller);
            removed.execute(&self.0.pool).await.at(&self.0)?;
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
                sessions.read(&session(caller_key, digest), 0).await.unwrap().is_marked,
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
        sessions.sweep_to("flow_sessions", 2).await.unwrap();
        for (caller_key, digest, expected) in
            [("ann", "a", false), ("ann", "b", true), ("ann", "c", true), ("bob", "d", true)]
        {
            assert_eq!(
                sessions.read(&session(caller_key, digest), 0).await.unwrap().is_marked,
                expected,
                "{caller_key} {digest}"
            );
        }
    }

    #[tokio::test]
    async fn values_are_stored_by_one_who_knows_the_revision_before() {
        let store = test_store().await;
        let (sessions, of_ann) = (store.flow_sessions(), session("ann", "a"));
        assert_eq!(sessions.read(&of_ann, 0).await.unwrap(), StoredFlowSession::default());
        let first = sessions.save(&of_ann, 0, "one", DAY).await.unwrap().unwrap();
        assert_eq!(sessions.save(&of_ann, 0, "other", DAY).await.unwrap(), None, "another replica has stored some");
        let stored = |revision: i64, sealed: Option<&str>| StoredFlowSession {
            is_marked: false,
            revision,
            sealed: sealed.map(str::to_owned),
        };
        assert_eq!(sessions.read(&of_ann, 0).await.unwrap(), stored(first, Some("one")));
        assert_eq!(sessions.read(&of_ann, first).await.unwrap(), stored(first, None));
        let second = sessions.save(&of_ann, first, "two", DAY).await.unwrap().unwrap();
        assert_ne!(second, first);
        assert_eq!(sessions.read(&of_ann, first).await.unwrap(), stored(second, Some("two")));
        assert_eq!(sessions.read(&session("bob", "a"), 0).await.unwrap(), StoredFlowSession::default());
    }

    #[tokio::test]
    async fn a_revision_does_not_come_again_after_the_values_were_removed() {
        let store = test_store().await;
        let (sessions, of_ann) = (store.flow_sessions(), session("ann", "a"));
        let known = sessions.save(&of_ann, 0, "one", DAY).await.unwrap().unwrap();
        assert!(sessions.save(&session("ann", "b"), 0, "later", DAY * 2).await.unwrap().is_some());
        sessions.sweep_to("flow_values", 1).await.unwrap();
        assert_eq!(sessions.read(&of_ann, known).await.unwrap(), StoredFlowSession::default());
        // By a replica that has none of the values.
        assert!(sessions.save(&of_ann, 0, "new", DAY).await.unwrap().is_some());
        assert_eq!(sessions.read(&of_ann, known).await.unwrap().sealed.as_deref(), Some("new"));
    }

    #[tokio::test]
    async fn values_end_with_their_time_and_above_the_maximum_of_a_caller() {
        let store = test_store().await;
        let sessions = store.flow_sessions();
        assert!(sessions.save(&session("ann", "over"), 4, "old", Duration::ZERO).await.unwrap().is_some());
        assert_eq!(sessions.read(&session("ann", "over"), 0).await.unwrap(), StoredFlowSession::default());
        let replaced = sessions.save(&session("ann", "over"), 0, "new", DAY).await.unwrap();
        assert!(replaced.is_some(), "in place of those that are over");
        for (digest, days) in [("a", 2), ("b", 4), ("c", 3)] {
            assert!(sessions.save(&session("ann", digest), 0, "values", DAY * days).await.unwrap().is_some());
        }
        sessions.sweep_to("flow_values", 2).await.unwrap();
        for (digest, is_kept) in [("over", false), ("a", false), ("b", true), ("c", true)] {
            assert_eq!(sessions.read(&session("ann", digest), 0).await.unwrap().revision > 0, is_kept, "{digest}");
        }
    }
}
