//! Authorization codes: of each its digest, and its meaning, sealed. A row stays until no replay of the code can come any more. So does
//! the one of an identity assertion, which has no meaning to keep.

use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::BrokerStore;
use crate::replicas::micros;
use crate::{StoreError, retried};

/// How long a code may be exchanged. A client does that at once.
const CODE_TTL: Duration = Duration::from_secs(60);

/// How long a replay of it is recognised.
const REPLAY_TTL: Duration = Duration::from_secs(600);

/// Codes of ten minutes, and as many assertions, which leave the codes of sign-ins their room. Only users of the provider have one.
const MAX_CODES: i64 = 10_000;

/// A code that a client presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedCode {
    /// The session that begins with it.
    pub session: String,
    pub sealed: String,
    /// Whether it is presented in time, and for the first time.
    pub is_valid: bool,
    /// Whether it was presented before.
    pub is_replay: bool,
}

impl BrokerStore {
    /// Stores a code. False: there are too many, or it is stored already.
    pub async fn add_code(&self, digest: &str, session: &str, sealed: &str) -> Result<bool, StoreError> {
        retried(|| self.try_add_code(digest, session, sealed)).await
    }

    async fn try_add_code(&self, digest: &str, session: &str, sealed: &str) -> Result<bool, StoreError> {
        let failed = |error| self.0.failed(error);
        let now = self.0.engine.now_expression();
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let ended = format!("DELETE FROM broker_codes WHERE expires <= {now}");
        sqlx::query(AssertSqlSafe(ended)).execute(&mut *transaction).await.map_err(failed)?;
        let insert = format!(
            "INSERT INTO broker_codes (digest, session, sealed, valid_until, expires, presented)
             SELECT $1, $2, $3, {now} + $4, {now} + $5, 0
             WHERE (SELECT COUNT(*) FROM broker_codes WHERE (sealed = '') = ($3 = '')) < $6
             ON CONFLICT (digest) DO NOTHING"
        );
        let added = sqlx::query(AssertSqlSafe(insert))
            .bind(digest)
            .bind(session)
            .bind(sealed)
            .bind(micros(CODE_TTL))
            .bind(micros(REPLAY_TTL))
            .bind(MAX_CODES)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(added.rows_affected() > 0)
    }

    /// A client presents a code, which cannot be exchanged again.
    pub async fn present_code(&self, digest: &str) -> Result<Option<PresentedCode>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE broker_codes SET presented = presented + 1 WHERE digest = $1 AND expires > {now}
             RETURNING session, sealed, presented, valid_until - {now} AS time_left"
        );
        let row = sqlx::query(AssertSqlSafe(sql)).bind(digest).fetch_optional(&self.0.pool).await;
        let row = row.map_err(|error| self.0.failed(error))?;
        row.map(|row| read_row(&row).map_err(|error| self.0.failed(error))).transpose()
    }
}

fn read_row(row: &AnyRow) -> sqlx::Result<PresentedCode> {
    let (presented, time_left): (i64, i64) = (row.try_get("presented")?, row.try_get("time_left")?);
    Ok(PresentedCode {
        session: row.try_get("session")?,
        sealed: row.try_get("sealed")?,
        is_valid: presented == 1 && time_left > 0,
        is_replay: presented > 1,
    })
}
