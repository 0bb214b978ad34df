//! Tokens of callers for upstreams, sealed by the caller of these functions. All moments go by the clock that the
//! processes of the store share.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::replicas::micros;
use super::{AtStore, Store, StoreError};

/// The owner of a token, and the token's upstream.
#[derive(Debug, Clone, Copy)]
pub struct TokenOwner<'a> {
    pub tenant: &'a str,
    pub caller_key: &'a str,
    pub caller_id: &'a str,
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: &'a str,
}

/// The tokens of a sign-in, renewed ones, or a credential that its caller stores.
#[derive(Debug, Clone, Copy)]
pub struct NewUserToken<'a> {
    /// How a stored credential is sent; `None` for tokens of a sign-in.
    pub kind: Option<&'a str>,
    pub sealed: &'a str,
    /// With a space between them.
    pub scopes: &'a str,
    /// The lifetime of the access token, if it is known.
    pub lifetime: Option<Duration>,
}

/// A token as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUserToken {
    pub tenant: String,
    pub caller_key: String,
    pub caller_id: String,
    pub source: String,
    /// How a credential that the caller stored is sent; `None` for tokens of a sign-in.
    pub kind: Option<String>,
    pub sealed: String,
    pub scopes: String,
    pub expires: Option<Timestamp>,
    pub revision: i64,
    pub created: Timestamp,
    pub changed: Timestamp,
    /// When it was last recorded that the token was sent.
    pub used: Option<Timestamp>,
    /// When it was read.
    pub now: Timestamp,
}

/// The only right to renew a token. A caller that starts after its end has the right instead.
#[derive(Debug, Clone, Copy)]
pub struct RenewalLease<'a> {
    pub read: &'a StoredUserToken,
    /// Microseconds since 1970: no two leases of a token end at the same time.
    until: i64,
}

/// Which tokens are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserTokenFilter<'a> {
    pub tenant: Option<&'a str>,
    pub caller_key: Option<&'a str>,
    pub caller_id: Option<&'a str>,
    pub source: Option<&'a str>,
    pub max: u32,
}

const COLUMNS: &str =
    "tenant, caller_key, caller_id, source, kind, sealed, scopes, expires, revision, created, changed, used";

/// Tokens of callers for upstreams, and sign-ins that have begun: the tables `user_tokens` and `user_sign_ins`.
#[derive(Debug, Clone)]
pub struct UserTokenStore(pub(super) Store);

impl UserTokenStore {
    /// The token of a caller for a source.
    pub async fn get(&self, caller_key: &str, source: &str) -> Result<Option<StoredUserToken>, StoreError> {
        let found = self
            .list(UserTokenFilter {
                caller_key: Some(caller_key),
                source: Some(source),
                max: 1,
                ..UserTokenFilter::default()
            })
            .await?;
        Ok(found.into_iter().next())
    }

    /// The latest sign-in first.
    pub async fn list(&self, filter: UserTokenFilter<'_>) -> Result<Vec<StoredUserToken>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, {} AS moment FROM user_tokens
             WHERE ($1 = '' OR tenant = $1) AND ($2 = '' OR caller_key = $2) AND ($3 = '' OR caller_id = $3)
               AND ($4 = '' OR source = $4)
             ORDER BY created DESC, caller_key, source LIMIT $5",
            self.0.engine.now_expression()
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(filter.tenant.unwrap_or_default())
            .bind(filter.caller_key.unwrap_or_default())
            .bind(filter.caller_id.unwrap_or_default())
            .bind(filter.source.unwrap_or_default())
            .bind(i64::from(filter.max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.token_of(row)).collect()
    }

    /// The tokens that were neither changed nor sent for so long, at most so many.
    pub async fn unused(&self, age: Duration, max: u32) -> Result<Vec<StoredUserToken>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "SELECT {COLUMNS}, {now} AS moment FROM user_tokens
             WHERE changed <= {now} - $1 AND COALESCE(used, 0) <= {now} - $1
             ORDER BY changed LIMIT $2"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(micros(age)).bind(i64::from(max));
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.token_of(row)).collect()
    }

    /// Writes that a token is sent now.
    pub async fn record_use(&self, read: &StoredUserToken) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("UPDATE user_tokens SET used = {now} WHERE caller_key = $1 AND source = $2");
        let used = sqlx::query(AssertSqlSafe(sql)).bind(&read.caller_key).bind(&read.source);
        used.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Stores the tokens of a sign-in in place of earlier ones. Where there are none, the first revision is random: a
    /// process that has read the revoked tokens must not change these in their place.
    /// Errors: [`StoreError`]; they may have been stored.
    pub async fn keep(&self, owner: TokenOwner<'_>, new: NewUserToken<'_>) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO user_tokens (caller_key, source, tenant, caller_id, sealed, scopes, expires, revision,
                 renewing_until, created, changed, kind)
             VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 < 0 THEN NULL ELSE {now} + $7 END, $8, 0, {now}, {now}, $9)
             ON CONFLICT (caller_key, source) DO UPDATE SET caller_id = excluded.caller_id, sealed = excluded.sealed,
                 scopes = excluded.scopes, expires = excluded.expires, revision = user_tokens.revision + 1,
                 renewing_until = 0, created = excluded.created, changed = excluded.changed, used = NULL,
                 kind = excluded.kind"
        );
        let kept = sqlx::query(AssertSqlSafe(sql))
            .bind(owner.caller_key)
            .bind(owner.source)
            .bind(owner.tenant)
            .bind(owner.caller_id)
            .bind(new.sealed)
            .bind(new.scopes)
            .bind(new.lifetime.map_or(-1, micros))
            .bind(i64::from(rand::random::<u32>()))
            .bind(new.kind);
        kept.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// For so long from now on, only the caller of this function may renew the token. `None`: it has changed since it
    /// was read, or another caller renews it.
    pub async fn start_renewal<'a>(
        &self,
        read: &'a StoredUserToken,
        lease: Duration,
    ) -> Result<Option<RenewalLease<'a>>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE user_tokens SET renewing_until = {now} + $4
             WHERE caller_key = $1 AND source = $2 AND revision = $3 AND renewing_until <= {now}
             RETURNING renewing_until"
        );
        let started = sqlx::query_scalar(AssertSqlSafe(sql)).bind(&read.caller_key).bind(&read.source);
        let started = started.bind(read.revision).bind(micros(lease)).fetch_optional(&self.0.pool).await;
        let until: Option<i64> = started.at(&self.0)?;
        Ok(until.map(|until| RenewalLease { read, until }))
    }

    /// The token is not renewed now: another caller may try.
    /// Errors: [`StoreError`]; the lease ends by itself then.
    pub async fn give_up_renewal(&self, lease: RenewalLease<'_>) -> Result<(), StoreError> {
        let RenewalLease { read, until } = lease;
        let sql = "UPDATE user_tokens SET renewing_until = 0
                   WHERE caller_key = $1 AND source = $2 AND revision = $3 AND renewing_until = $4";
        let given_up = sqlx::query(sql).bind(&read.caller_key).bind(&read.source).bind(read.revision).bind(until);
        given_up.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Removes a token that the authorization server does not renew. False: it was replaced or revoked in between, or
    /// another caller renews it by now, whose request may be the reason for this refusal.
    pub async fn refuse_renewal(&self, lease: RenewalLease<'_>) -> Result<bool, StoreError> {
        let RenewalLease { read, until } = lease;
        let sql = format!(
            "DELETE FROM user_tokens WHERE caller_key = $1 AND source = $2 AND revision = $3
                 AND (renewing_until = $4 OR renewing_until <= {})",
            self.0.engine.now_expression()
        );
        let refused = sqlx::query(AssertSqlSafe(sql)).bind(&read.caller_key).bind(&read.source);
        let refused = refused.bind(read.revision).bind(until).execute(&self.0.pool).await;
        Ok(refused.at(&self.0)?.rows_affected() > 0)
    }

    /// Stores renewed tokens. False: the tokens were replaced or revoked in between, or another caller renews them by
    /// now.
    /// Errors: [`StoreError`]; they may have been stored.
    pub async fn end_renewal(&self, lease: RenewalLease<'_>, new: NewUserToken<'_>) -> Result<bool, StoreError> {
        let RenewalLease { read, until } = lease;
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE user_tokens SET sealed = $4, scopes = $5, expires = CASE WHEN $6 < 0 THEN NULL ELSE {now} + $6 END,
                 revision = revision + 1, renewing_until = 0, changed = {now}
             WHERE caller_key = $1 AND source = $2 AND revision = $3
               AND (renewing_until = $7 OR renewing_until <= {now})"
        );
        let ended = sqlx::query(AssertSqlSafe(sql))
            .bind(&read.caller_key)
            .bind(&read.source)
            .bind(read.revision)
            .bind(new.sealed)
            .bind(new.scopes)
            .bind(new.lifetime.map_or(-1, micros))
            .bind(until)
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(ended.rows_affected() > 0)
    }

    /// Removes a token as it was read. False: it was replaced or removed before.
    pub async fn forget(&self, read: &StoredUserToken) -> Result<bool, StoreError> {
        let sql = "DELETE FROM user_tokens WHERE caller_key = $1 AND source = $2 AND revision = $3";
        let forgotten = sqlx::query(sql).bind(&read.caller_key).bind(&read.source).bind(read.revision);
        let forgotten = forgotten.execute(&self.0.pool).await.at(&self.0)?;
        Ok(forgotten.rows_affected() > 0)
    }

    fn token_of(&self, row: &AnyRow) -> Result<StoredUserToken, StoreError> {
        let read = read_row(row).at(&self.0)?;
        read.map_err(|problem| self.0.damaged(problem))
    }
}

fn read_row(row: &AnyRow) -> sqlx::Result<Result<StoredUserToken, String>> {
    let (created, changed): (i64, i64) = (row.try_get("created")?, row.try_get("changed")?);
    let (expires, used): (Option<i64>, Option<i64>) = (row.try_get("expires")?, row.try_get("used")?);
    let now: i64 = row.try_get("moment")?;
    let (Ok(expires), Ok(used), Ok(created), Ok(changed), Ok(now)) = (
        expires.map(Timestamp::from_microsecond).transpose(),
        used.map(Timestamp::from_microsecond).transpose(),
        Timestamp::from_microsecond(created),
        Timestamp::from_microsecond(changed),
        Timestamp::from_microsecond(now),
    ) else {
        return Ok(Err("a token of a caller has a moment out of range".to_owned()));
    };
    Ok(Ok(StoredUserToken {
        tenant: row.try_get("tenant")?,
        caller_key: row.try_get("caller_key")?,
        caller_id: row.try_get("caller_id")?,
        source: row.try_get("source")?,
        kind: row.try_get("kind")?,
        sealed: row.try_get("sealed")?,
        scopes: row.try_get("scopes")?,
        expires,
        revision: row.try_get("revision")?,
        created,
        changed,
        used,
        now,
    }))
}

#[cfg(test)]
mod tests;
