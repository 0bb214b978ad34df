//! Sessions of users with a client. A session has one refresh token in force, of two parts: the family's, which stays, and one that
//! changes with each refresh. Who presents the first with another second part has a token that was used before.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::BrokerStore;
use crate::replicas::micros;
use crate::{StoreError, retried};

/// Sessions of all users.
const MAX_SESSIONS: i64 = 100_000;

/// Sessions of a user. For a further one the next to expire ends: one of an assertion, before one that is refreshed.
const MAX_SESSIONS_OF_USER: i64 = 50;

/// A session that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewBrokerSession<'a> {
    pub id: &'a str,
    pub tenant: &'a str,
    pub subject: &'a str,
    pub login: &'a str,
    pub client: &'a str,
    pub client_name: &'a str,
    pub family: &'a str,
    pub token: &'a str,
    pub sealed: &'a str,
    pub lifetime: Duration,
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSession {
    pub id: String,
    pub tenant: String,
    pub subject: String,
    pub login: String,
    pub client: String,
    pub client_name: String,
    /// The digest of the changing part of its refresh token.
    pub token: String,
    pub sealed: String,
    pub created: Timestamp,
    pub changed: Timestamp,
    pub expires: Timestamp,
}

const COLUMNS: &str = "id, tenant, subject, login, client, client_name, token, sealed, created, changed, expires";

impl BrokerStore {
    /// Begins the session of a code that was presented once. False: it was presented again meanwhile, or there are too many sessions.
    pub async fn start_session(&self, new: NewBrokerSession<'_>) -> Result<bool, StoreError> {
        retried(|| self.try_start_session(new)).await
    }

    async fn try_start_session(&self, new: NewBrokerSession<'_>) -> Result<bool, StoreError> {
        let failed = |error| self.0.failed(error);
        let now = self.0.engine.now_expression();
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let ended = format!("DELETE FROM broker_sessions WHERE expires <= {now}");
        sqlx::query(AssertSqlSafe(ended)).execute(&mut *transaction).await.map_err(failed)?;
        let insert = format!(
            "INSERT INTO broker_sessions (id, tenant, subject, login, client, client_name, family, token, sealed, created,
                 changed, expires)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, {now}, {now}, {now} + $10
             FROM broker_codes
             WHERE session = $1 AND presented = 1 AND (SELECT COUNT(*) FROM broker_sessions) < $11 {}",
            self.0.engine.share_lock()
        );
        let started = sqlx::query(AssertSqlSafe(insert))
            .bind(new.id)
            .bind(new.tenant)
            .bind(new.subject)
            .bind(new.login)
            .bind(new.client)
            .bind(new.client_name)
            .bind(new.family)
            .bind(new.token)
            .bind(new.sealed)
            .bind(micros(new.lifetime))
            .bind(MAX_SESSIONS)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        let sql = "DELETE FROM broker_sessions WHERE subject = $1 AND id <> $2 AND id NOT IN
                   (SELECT id FROM broker_sessions WHERE subject = $1 AND id <> $2 ORDER BY expires DESC, id LIMIT $3)";
        let oldest = sqlx::query(sql).bind(new.subject).bind(new.id).bind(MAX_SESSIONS_OF_USER - 1);
        oldest.execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(started.rows_affected() > 0)
    }

    /// The session of this family of refresh tokens.
    pub async fn session_of_family(&self, family: &str) -> Result<Option<BrokerSession>, StoreError> {
        self.find("family", family).await
    }

    /// A session that goes on.
    pub async fn session(&self, id: &str) -> Result<Option<BrokerSession>, StoreError> {
        self.find("id", id).await
    }

    async fn find(&self, column: &str, value: &str) -> Result<Option<BrokerSession>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT {COLUMNS} FROM broker_sessions WHERE {column} = $1 AND expires > {now}");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(value).fetch_optional(&self.0.pool).await;
        row.map_err(|error| self.0.failed(error))?.map(|row| self.session_of(&row)).transpose()
    }

    /// Puts another token in the place of the one that was presented. False: that one is in force no longer.
    pub async fn replace_token(&self, id: &str, presented: &str, next: &str) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("UPDATE broker_sessions SET token = $3 WHERE id = $1 AND token = $2 AND expires > {now}");
        let replaced = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(presented).bind(next).execute(&self.0.pool).await;
        Ok(replaced.map_err(|error| self.0.failed(error))?.rows_affected() > 0)
    }

    /// A session that the provider has confirmed goes on with this token. False: it has ended.
    pub async fn renew_session(
        &self,
        id: &str,
        token: &str,
        (tenant, sealed): (&str, &str),
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE broker_sessions SET tenant = $3, sealed = $4, changed = {now}, expires = {now} + $5
             WHERE id = $1 AND token = $2"
        );
        let renewed = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(token).bind(tenant).bind(sealed);
        let renewed = renewed.bind(micros(lifetime)).execute(&self.0.pool).await;
        Ok(renewed.map_err(|error| self.0.failed(error))?.rows_affected() > 0)
    }

    /// Ends a session; with a tenant, one of it. `None`: there is no such session.
    pub async fn end_session(&self, id: &str, tenant: Option<&str>) -> Result<Option<BrokerSession>, StoreError> {
        let sql = format!("DELETE FROM broker_sessions WHERE id = $1 AND ($2 = '' OR tenant = $2) RETURNING {COLUMNS}");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(tenant.unwrap_or_default());
        let row = row.fetch_optional(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        row.map(|row| self.session_of(&row)).transpose()
    }

    /// The sessions of a tenant, or of all, after the one with this id, in the order of their ids.
    pub async fn sessions(
        &self,
        tenant: Option<&str>,
        after: &str,
        max: usize,
    ) -> Result<Vec<BrokerSession>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM broker_sessions WHERE ($1 = '' OR tenant = $1) AND id > $2 AND expires > {}
             ORDER BY id LIMIT $3",
            self.0.engine.now_expression()
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.unwrap_or_default())
            .bind(after)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        rows.iter().map(|row| self.session_of(row)).collect()
    }

    fn session_of(&self, row: &AnyRow) -> Result<BrokerSession, StoreError> {
        let read = read_row(row).map_err(|error| self.0.failed(error))?;
        read.map_err(|_| self.0.damaged("a session of the authorization server has a moment out of range"))
    }
}

fn read_row(row: &AnyRow) -> sqlx::Result<Result<BrokerSession, jiff::Error>> {
    let moments: [i64; 3] = [row.try_get("created")?, row.try_get("changed")?, row.try_get("expires")?];
    let [created, changed, expires] = moments.map(Timestamp::from_microsecond);
    let (id, tenant, subject) = (row.try_get("id")?, row.try_get("tenant")?, row.try_get("subject")?);
    let (login, client, client_name) = (row.try_get("login")?, row.try_get("client")?, row.try_get("client_name")?);
    let (token, sealed) = (row.try_get("token")?, row.try_get("sealed")?);
    let session = || {
        let (created, changed, expires) = (created?, changed?, expires?);
        Ok(BrokerSession { id, tenant, subject, login, client, client_name, token, sealed, created, changed, expires })
    };
    Ok(session())
}
