//! Images of sessions: each is an object that the row of its session names. All images of a tenant are bounded
//! together.

use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{ENDED_TTL, InterpreterSessionFence, SessionImage, signed, unsigned};
use crate::replicas::micros;
use crate::{AtStore, InterpreterSessionStore, StoreError, retried};
use sekisho_outbound::blobs::BlobKey;

/// An image to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewSessionImage<'a> {
    pub image: &'a SessionImage,
    pub every_call: bool,
    pub calls: u64,
    /// Whether the process has the session no more.
    pub releases: bool,
}

impl InterpreterSessionStore {
    /// Removes the image, which is of an earlier state: the session goes on. False when another process has it.
    /// Errors: [`StoreError`]; it may still have the image.
    pub async fn forget_image(&self, session: InterpreterSessionFence<'_>) -> Result<bool, StoreError> {
        let sql = "UPDATE interpreter_sessions SET profile = NULL, interpreter = NULL, snapshot = NULL, rights = NULL,
                       programs = NULL, object = NULL, object_sha256 = NULL, object_bytes = NULL
                   WHERE caller_key = $1 AND name = $2 AND fence = $3";
        let query = sqlx::query(sql).bind(session.key.caller_key).bind(session.key.name).bind(session.fence);
        let forgotten = query.execute(&self.0.pool).await.at(&self.0)?;
        Ok(forgotten.rows_affected() > 0)
    }

    /// Stores the image of a session, in place of an earlier one. While the tenant's images have more than `max_bytes`
    /// together, sessions end: sessions that no process has, of the caller with the most bytes, the least recently used
    /// first. Their objects are returned. `None` when the session has ended, or another process has it.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn keep_image(
        &self,
        session: InterpreterSessionFence<'_>,
        new: NewSessionImage<'_>,
        max_bytes: u64,
    ) -> Result<Option<Vec<BlobKey>>, StoreError> {
        retried(|| self.try_keep_image(session, new, max_bytes)).await
    }

    async fn try_keep_image(
        &self,
        session: InterpreterSessionFence<'_>,
        new: NewSessionImage<'_>,
        max_bytes: u64,
    ) -> Result<Option<Vec<BlobKey>>, StoreError> {
        let mut transaction = self.0.begin().await?;
        if !self.update_image(&mut transaction, session, new).await.at(&self.0)? {
            return Ok(None);
        }
        let sum = "SELECT CAST(SUM(object_bytes) AS BIGINT) FROM interpreter_sessions
                   WHERE tenant = $1 AND ended IS NULL AND object IS NOT NULL";
        let sum = sqlx::query_scalar(sum).bind(session.key.tenant).fetch_one(&mut *transaction).await;
        let sum: Option<i64> = sum.at(&self.0)?;
        let mut excess = sum.unwrap_or_default().saturating_sub(i64::try_from(max_bytes).unwrap_or(i64::MAX));
        let mut objects = Vec::new();
        while excess > 0 {
            let ended = self.end_oldest_of_largest(&mut transaction, session, excess).await.at(&self.0)?;
            if ended.is_empty() {
                break;
            }
            for (bytes, object) in ended {
                excess -= bytes;
                objects.extend(BlobKey::parse(&object));
            }
        }
        transaction.commit().await.at(&self.0)?;
        Ok(Some(objects))
    }

    async fn update_image(
        &self,
        connection: &mut AnyConnection,
        session: InterpreterSessionFence<'_>,
        new: NewSessionImage<'_>,
    ) -> sqlx::Result<bool> {
        let release = if new.releases { ", runner = NULL, asked = NULL" } else { "" };
        let sql = format!(
            "UPDATE interpreter_sessions SET profile = $4, interpreter = $5, snapshot = $6, object = $7,
                 object_sha256 = $8, object_bytes = $9, every_call = $10, calls = $11, rights = $12, programs = $13,
                 used = {}{release}
             WHERE caller_key = $1 AND name = $2 AND fence = $3 AND ended IS NULL",
            self.0.engine.now_expression()
        );
        let SessionImage { profile, interpreter, snapshot, rights, programs, object } = new.image;
        let updated = sqlx::query(AssertSqlSafe(sql))
            .bind(session.key.caller_key)
            .bind(session.key.name)
            .bind(session.fence)
            .bind(profile.as_str())
            .bind(interpreter.as_str())
            .bind(snapshot.as_str())
            .bind(object.key.to_string())
            .bind(object.sha256.as_str())
            .bind(signed(object.bytes))
            .bind(i64::from(new.every_call))
            .bind(signed(new.calls))
            .bind(rights.as_str())
            .bind(programs.as_str())
            .execute(connection)
            .await?;
        Ok(updated.rows_affected() > 0)
    }

    /// Ends as many sessions as make up the excess, if that caller has them. Never ends the new one.
    async fn end_oldest_of_largest(
        &self,
        connection: &mut AnyConnection,
        new: InterpreterSessionFence<'_>,
        excess: i64,
    ) -> sqlx::Result<Vec<(i64, String)>> {
        const OTHERS: &str = "tenant = $1 AND ended IS NULL AND object IS NOT NULL AND runner IS NULL
                              AND NOT (caller_key = $2 AND name = $3)";
        let sql = format!(
            "UPDATE interpreter_sessions SET ended = 'evicted', expires = {} + $5
             WHERE tenant = $1 AND object IN (
                 SELECT object FROM (
                     SELECT object,
                         CAST(SUM(object_bytes) OVER (ORDER BY used, name) AS BIGINT) - object_bytes AS bytes_before
                     FROM interpreter_sessions WHERE {OTHERS} AND caller_key = (
                         SELECT caller_key FROM interpreter_sessions WHERE {OTHERS}
                         GROUP BY caller_key ORDER BY SUM(object_bytes) DESC, caller_key LIMIT 1)
                 ) AS of_largest WHERE bytes_before < $4)
             RETURNING object_bytes, object",
            self.0.engine.now_expression()
        );
        sqlx::query_as(AssertSqlSafe(sql))
            .bind(new.key.tenant)
            .bind(new.key.caller_key)
            .bind(new.key.name)
            .bind(excess)
            .bind(micros(ENDED_TTL))
            .fetch_all(connection)
            .await
    }

    /// Whether a session has its image in this object.
    pub async fn has_image_in(&self, object: &BlobKey) -> Result<bool, StoreError> {
        let sql = "SELECT COUNT(*) FROM interpreter_sessions WHERE object = $1 AND ended IS NULL";
        let rows: i64 = sqlx::query_scalar(sql).bind(object.to_string()).fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok(rows > 0)
    }

    /// Ends the sessions that are as old as they may be, unless this process or one that is not lost has them, and removes
    /// expired ones; returns the objects that no session has any more.
    pub async fn forget_expired(&self, runner: &str, lost_after: Duration) -> Result<Vec<BlobKey>, StoreError> {
        let now = self.0.engine.now_expression();
        let lost = self.0.engine.is_lost("interpreter_sessions.runner", ("$1", "$2"));
        let ended = format!(
            "UPDATE interpreter_sessions SET ended = 'lifetime', runner = NULL, asked = NULL
             WHERE ends <= {now} AND ended IS NULL AND (runner IS NULL OR (runner <> $1 AND {lost}))
             RETURNING object"
        );
        let ended = sqlx::query_scalar(AssertSqlSafe(ended)).bind(runner).bind(micros(lost_after));
        let ended: Vec<Option<String>> = ended.fetch_all(&self.0.pool).await.at(&self.0)?;
        let removed = format!("DELETE FROM interpreter_sessions WHERE expires <= {now} RETURNING object");
        let removed = sqlx::query_scalar(AssertSqlSafe(removed));
        let removed: Vec<Option<String>> = removed.fetch_all(&self.0.pool).await.at(&self.0)?;
        Ok(ended.into_iter().chain(removed).filter_map(|object| BlobKey::parse(&object?)).collect())
    }

    /// The number of images, and their bytes.
    pub async fn count_images(&self) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT COUNT(*), CAST(COALESCE(SUM(object_bytes), 0) AS BIGINT) FROM interpreter_sessions
                   WHERE ended IS NULL AND object IS NOT NULL";
        let (images, bytes): (i64, i64) = sqlx::query_as(sql).fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok((unsigned(images), unsigned(bytes)))
    }
}
