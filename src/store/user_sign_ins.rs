//! Sign-ins of callers to upstreams that have begun and not ended. All moments go by the clock that the processes of
//! the store share.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::replicas::micros;
use super::{AtStore, StoreError, TokenOwner, UserTokenStore, retried};

/// How long a sign-in may take, from the refused call to the end.
pub const SIGN_IN_TTL: Duration = Duration::from_secs(600);

/// A caller gets the same sign-in again as long as so much of its time is left.
const MIN_TIME_LEFT: Duration = Duration::from_secs(300);

/// Codes that may be tried: there are some 2^34.
const MAX_TRIES: i64 = 5;

/// A sign-in as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSignIn {
    pub id: String,
    pub tenant: String,
    pub caller_key: String,
    pub caller_id: String,
    pub source: String,
    pub sealed: String,
    pub expires: Timestamp,
}

const COLUMNS: &str = "id, tenant, caller_key, caller_id, source, sealed, expires";

impl UserTokenStore {
    /// The sign-in of a caller to a source that nobody has begun and that still has time; otherwise this new one takes the
    /// place of any other.
    pub async fn offer_sign_in(
        &self,
        owner: TokenOwner<'_>,
        id: &str,
        sealed: &str,
        may_reuse: bool,
    ) -> Result<StoredSignIn, StoreError> {
        retried(|| self.try_offer_sign_in(owner, id, sealed, may_reuse)).await
    }

    async fn try_offer_sign_in(
        &self,
        owner: TokenOwner<'_>,
        id: &str,
        sealed: &str,
        may_reuse: bool,
    ) -> Result<StoredSignIn, StoreError> {
        let now = self.0.engine.now_expression();
        let mut transaction = self.0.begin().await?;
        let ended = format!("DELETE FROM user_sign_ins WHERE expires <= {now}");
        sqlx::query(AssertSqlSafe(ended)).execute(&mut *transaction).await.at(&self.0)?;
        let open = format!(
            "SELECT {COLUMNS} FROM user_sign_ins WHERE caller_key = $1 AND source = $2 AND state_digest IS NULL
               AND tries < $3 AND expires > {now} + $4"
        );
        let open = sqlx::query(AssertSqlSafe(open)).bind(owner.caller_key).bind(owner.source).bind(MAX_TRIES);
        let open = open.bind(micros(MIN_TIME_LEFT)).fetch_optional(&mut *transaction).await.at(&self.0)?;
        if let Some(row) = open.filter(|_| may_reuse) {
            transaction.commit().await.at(&self.0)?;
            return self.sign_in_of(&row);
        }
        let insert = format!(
            "INSERT INTO user_sign_ins (caller_key, source, tenant, caller_id, id, sealed, tries, expires)
             VALUES ($1, $2, $3, $4, $5, $6, 0, {now} + $7)
             ON CONFLICT (caller_key, source) DO UPDATE SET caller_id = excluded.caller_id, id = excluded.id,
                 sealed = excluded.sealed, tries = 0, browser = NULL, state_digest = NULL, expires = excluded.expires
             RETURNING {COLUMNS}"
        );
        let row = sqlx::query(AssertSqlSafe(insert))
            .bind(owner.caller_key)
            .bind(owner.source)
            .bind(owner.tenant)
            .bind(owner.caller_id)
            .bind(id)
            .bind(sealed)
            .bind(micros(SIGN_IN_TTL))
            .fetch_one(&mut *transaction)
            .await
            .at(&self.0)?;
        transaction.commit().await.at(&self.0)?;
        self.sign_in_of(&row)
    }

    /// A sign-in that has not ended.
    pub async fn sign_in(&self, id: &str) -> Result<Option<StoredSignIn>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT {COLUMNS} FROM user_sign_ins WHERE id = $1 AND expires > {now}");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await;
        row.at(&self.0)?.map(|row| self.sign_in_of(&row)).transpose()
    }

    /// Counts the try of a code. False: no further one may be tried.
    pub async fn try_code(&self, id: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE user_sign_ins SET tries = tries + 1 WHERE id = $1 AND tries < $2 AND expires > {}",
            self.0.engine.now_expression()
        );
        let tried = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(MAX_TRIES).execute(&self.0.pool).await;
        Ok(tried.at(&self.0)?.rows_affected() > 0)
    }

    /// A browser is sent to the authorization server, with a `state` of this digest. False: the sign-in has ended.
    pub async fn begin_sign_in(
        &self,
        id: &str,
        browser: &str,
        state_digest: &str,
        sealed: &str,
    ) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE user_sign_ins SET browser = $2, state_digest = $3, sealed = $4 WHERE id = $1 AND expires > {}",
            self.0.engine.now_expression()
        );
        let begun = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(browser).bind(state_digest).bind(sealed);
        Ok(begun.execute(&self.0.pool).await.at(&self.0)?.rows_affected() > 0)
    }

    /// Takes the sign-in with which a browser comes back: it can be used once. `None`: there is no such sign-in, or it began
    /// in another browser.
    pub async fn take_sign_in(&self, state_digest: &str, browser: &str) -> Result<Option<StoredSignIn>, StoreError> {
        let sql = format!(
            "DELETE FROM user_sign_ins WHERE state_digest = $1 AND browser = $2 AND expires > {} RETURNING {COLUMNS}",
            self.0.engine.now_expression()
        );
        let row = sqlx::query(AssertSqlSafe(sql)).bind(state_digest).bind(browser).fetch_optional(&self.0.pool).await;
        row.at(&self.0)?.map(|row| self.sign_in_of(&row)).transpose()
    }

    fn sign_in_of(&self, row: &AnyRow) -> Result<StoredSignIn, StoreError> {
        let read = read_row(row).at(&self.0)?;
        read.map_err(|problem| self.0.damaged(problem))
    }
}

fn read_row(row: &AnyRow) -> sqlx::Result<Result<StoredSignIn, String>> {
    let expires: i64 = row.try_get("expires")?;
    let Ok(expires) = Timestamp::from_microsecond(expires) else {
        return Ok(Err("a sign-in has a moment out of range".to_owned()));
    };
    Ok(Ok(StoredSignIn {
        id: row.try_get("id")?,
        tenant: row.try_get("tenant")?,
        caller_key: row.try_get("caller_key")?,
        caller_id: row.try_get("caller_id")?,
        source: row.try_get("source")?,
        sealed: row.try_get("sealed")?,
        expires,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{age_sign_in, test_store};

    const ANN: TokenOwner<'static> =
        TokenOwner { tenant: "acme", caller_key: "acme\u{1f}ann", caller_id: "ann", source: "mcp:crm" };

    #[tokio::test]
    async fn a_caller_gets_the_same_sign_in_until_it_has_begun_or_its_time_is_short() {
        let store = test_store().await;
        let id =
            async |id: &str, may_reuse| store.user_tokens().offer_sign_in(ANN, id, "s", may_reuse).await.unwrap().id;
        assert_eq!(id("first", true).await, "first");
        assert_eq!(id("second", true).await, "first");
        assert_eq!(id("other scopes", false).await, "other scopes");
        assert_eq!(store.user_tokens().sign_in("first").await.unwrap(), None, "another took its place");
        assert!(store.user_tokens().begin_sign_in("other scopes", "b", "state", "begun").await.unwrap());
        assert_eq!(id("third", true).await, "third");
        age_sign_in(&store, "third", Duration::from_secs(301)).await;
        assert_eq!(id("fourth", true).await, "fourth");
        let bob = TokenOwner { caller_key: "acme\u{1f}bob", caller_id: "bob", ..ANN };
        assert_eq!(store.user_tokens().offer_sign_in(bob, "of bob", "s", true).await.unwrap().caller_id, "bob");
        assert!(store.user_tokens().sign_in("fourth").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_sign_in_ends_once_in_the_browser_in_which_it_began_and_in_time() {
        let store = test_store().await;
        for (id, state) in [("one", "state of one"), ("two", "state of two")] {
            store.user_tokens().offer_sign_in(ANN, id, "s", false).await.unwrap();
            assert!(store.user_tokens().begin_sign_in(id, "browser", state, "begun").await.unwrap());
            assert_eq!(store.user_tokens().take_sign_in(state, "another").await.unwrap(), None);
            assert_eq!(store.user_tokens().take_sign_in("guessed", "browser").await.unwrap(), None);
            if id == "two" {
                age_sign_in(&store, id, SIGN_IN_TTL).await;
                assert_eq!(store.user_tokens().take_sign_in(state, "browser").await.unwrap(), None, "it is too late");
                assert!(!store.user_tokens().begin_sign_in(id, "browser", state, "begun").await.unwrap());
                continue;
            }
            assert_eq!(store.user_tokens().take_sign_in(state, "browser").await.unwrap().unwrap().sealed, "begun");
            assert_eq!(store.user_tokens().take_sign_in(state, "browser").await.unwrap(), None, "once");
        }
    }

    #[tokio::test]
    async fn few_codes_can_be_tried() {
        let store = test_store().await;
        store.user_tokens().offer_sign_in(ANN, "one", "s", true).await.unwrap();
        for _ in 0..MAX_TRIES {
            assert!(store.user_tokens().try_code("one").await.unwrap());
        }
        assert!(!store.user_tokens().try_code("one").await.unwrap());
        assert_eq!(
            store.user_tokens().offer_sign_in(ANN, "two", "s", true).await.unwrap().id,
            "two",
            "the caller gets another"
        );
        assert!(!store.user_tokens().try_code("unknown").await.unwrap());
    }
}
