//! Requests of callers for sources of the catalogue: the table `source_requests`. A change of those that are approved is counted in
//! `shared_versions`, by which replicas learn of it.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{Store, StoreError};
use sekisho_core::source_access::Beneficiary;

/// Maximum requests of a tenant: one is a caller with a key, and a source.
pub const MAX_REQUESTS_OF_TENANT: i64 = 10_000;

/// How long a request that was refused or withdrawn is kept, in microseconds: 90 days.
const KEPT: i64 = 90 * 86_400 * 1_000_000;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum RequestState {
    Asked,
    /// The source is switched on.
    Approved,
    Refused,
    /// The source was switched on, and is off again.
    Withdrawn,
}

/// For whom a source is switched on by an approved request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Audience {
    /// The caller who asked, with all of its keys.
    User,
    /// The managed key by which it was asked.
    Key,
    /// All callers of the tenant.
    Tenant,
}

/// A request that is about to be stored.
#[derive(Debug, Clone)]
pub struct NewSourceRequest {
    pub id: String,
    pub source: String,
    pub tenant: String,
    pub caller_key: String,
    pub caller_id: String,
    pub key_id: Option<String>,
    pub reason: String,
}

/// A request as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSourceRequest {
    pub id: String,
    pub source: String,
    pub tenant: String,
    pub caller_key: String,
    pub caller_id: String,
    pub key_id: Option<String>,
    pub reason: String,
    pub state: RequestState,
    pub audience: Option<Audience>,
    pub decided_by: Option<String>,
    pub asked: Timestamp,
    pub changed: Timestamp,
}

/// The requests of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceRequestFilter<'a> {
    pub tenant: Option<&'a str>,
    pub caller_key: Option<&'a str>,
    pub state: Option<RequestState>,
    /// When the last one of the page before was asked, and its id.
    pub after: Option<(Timestamp, &'a str)>,
}

/// In the order of [`COLUMNS`].
type Row = (String, String, String, String, String, String, String, String, String, String, i64, i64);

const COLUMNS: &str =
    "id, source, tenant, caller_key, caller_id, key_id, reason, state, audience, decided_by, asked, changed";

#[derive(Debug, Clone)]
pub struct SourceRequestStore(pub(super) Store);

impl SourceRequestStore {
    /// Keeps a request. One of the same caller for the same source that was refused or withdrawn becomes a new one; one that waits, or is
    /// approved for the caller or this key, stays as it is, and nothing is written. `None`: the tenant has [`MAX_REQUESTS_OF_TENANT`].
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn ask(&self, new: &NewSourceRequest) -> Result<Option<StoredSourceRequest>, StoreError> {
        self.ask_within(new, MAX_REQUESTS_OF_TENANT).await
    }

    async fn ask_within(&self, new: &NewSourceRequest, max: i64) -> Result<Option<StoredSourceRequest>, StoreError> {
        let own_states = "(state = 'asked' OR (state = 'approved' AND (audience <> 'key' OR key_id = $4)))";
        if let Some(known) = self.of_caller(new, own_states).await? {
            return Ok(Some(known));
        }
        let (now, failed) = (self.0.engine.now_expression(), |error| self.0.failed(error));
        let over = format!(
            "DELETE FROM source_requests
             WHERE tenant = $1 AND state IN ('refused', 'withdrawn') AND changed < {now} - {KEPT}"
        );
        sqlx::query(AssertSqlSafe(over)).bind(&new.tenant).execute(&self.0.durable).await.map_err(failed)?;
        let sql = format!(
            "INSERT INTO source_requests ({COLUMNS})
             SELECT $1, $2, $3, $4, $5, $6, $7, 'asked', '', '', {now}, {now}
             WHERE (SELECT COUNT(*) FROM source_requests WHERE tenant = $3) < $8
                OR EXISTS (SELECT 1 FROM source_requests
                           WHERE tenant = $3 AND source = $2 AND caller_key = $4 AND key_id = $6)
             ON CONFLICT (tenant, source, caller_key, key_id) DO UPDATE SET
                id = excluded.id, caller_id = excluded.caller_id, reason = excluded.reason, state = 'asked', audience = '',
                decided_by = '', asked = excluded.asked, changed = excluded.changed
             WHERE source_requests.state IN ('refused', 'withdrawn')"
        );
        // A transaction that counts as a change waits for others, so that the bound of a tenant holds.
        let statement = sqlx::query(AssertSqlSafe(sql))
            .bind(&new.id)
            .bind(&new.source)
            .bind(&new.tenant)
            .bind(&new.caller_key)
            .bind(&new.caller_id)
            .bind(new.key_id.as_deref().unwrap_or_default())
            .bind(&new.reason)
            .bind(max);
        self.0.change_shared(statement).await?;
        self.of_caller(new, "key_id = $4").await
    }

    /// The request of this caller for this source that `holds`, where `$4` is the key.
    async fn of_caller(&self, new: &NewSourceRequest, holds: &str) -> Result<Option<StoredSourceRequest>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM source_requests WHERE tenant = $1 AND source = $2 AND caller_key = $3 AND {holds}
             ORDER BY asked DESC, id LIMIT 1"
        );
        let row = sqlx::query_as(AssertSqlSafe(sql))
            .bind(&new.tenant)
            .bind(&new.source)
            .bind(&new.caller_key)
            .bind(new.key_id.as_deref().unwrap_or_default())
            .fetch_optional(&self.0.durable)
            .await;
        let row: Option<Row> = row.map_err(|error| self.0.failed(error))?;
        row.map(|row| self.stored(row)).transpose()
    }

    /// Gives a request that has one of the states `from` another one; whether it had.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn decide(
        &self,
        id: &str,
        from: RequestState,
        (to, audience): (RequestState, Option<Audience>),
        decided_by: &str,
    ) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE source_requests SET state = $1, audience = $2, decided_by = $3, changed = {}
             WHERE id = $4 AND state = $5",
            self.0.engine.now_expression()
        );
        let statement = sqlx::query(AssertSqlSafe(sql))
            .bind(<&str>::from(to))
            .bind(audience.map(<&str>::from).unwrap_or_default())
            .bind(decided_by)
            .bind(id)
            .bind(<&str>::from(from));
        self.0.change_shared(statement).await.map(|rows| rows > 0)
    }

    /// Withdraws all approved requests that switch a source on for the same beneficiary as this one; how many.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn withdraw(&self, of: &StoredSourceRequest, decided_by: &str) -> Result<u64, StoreError> {
        let audience = of.audience.map(<&str>::from).unwrap_or_default();
        let sql = format!(
            "UPDATE source_requests SET state = 'withdrawn', decided_by = $1, changed = {}
             WHERE tenant = $2 AND source = $3 AND state = 'approved' AND audience = $4
             AND ($4 = 'tenant' OR ($4 = 'user' AND caller_key = $5) OR ($4 = 'key' AND key_id = $6))",
            self.0.engine.now_expression()
        );
        let statement = sqlx::query(AssertSqlSafe(sql))
            .bind(decided_by)
            .bind(&of.tenant)
            .bind(&of.source)
            .bind(audience)
            .bind(&of.caller_key)
            .bind(of.key_id.as_deref().unwrap_or_default());
        self.0.change_shared(statement).await
    }

    /// The request with this id.
    pub async fn get(&self, id: &str) -> Result<Option<StoredSourceRequest>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM source_requests WHERE id = $1");
        let row = sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await;
        let row: Option<Row> = row.map_err(|error| self.0.failed(error))?;
        row.map(|row| self.stored(row)).transpose()
    }

    /// At most `max` requests, the latest first.
    pub async fn list(
        &self,
        filter: SourceRequestFilter<'_>,
        max: usize,
    ) -> Result<Vec<StoredSourceRequest>, StoreError> {
        let SourceRequestFilter { tenant, caller_key, state, after } = filter;
        let (asked, id) = after.map_or((i64::MAX, ""), |(moment, id)| (moment.as_microsecond(), id));
        let sql = format!(
            "SELECT {COLUMNS} FROM source_requests
             WHERE ($1 = '' OR tenant = $1) AND ($2 = '' OR caller_key = $2) AND ($3 = '' OR state = $3)
             AND (asked < $4 OR (asked = $4 AND id > $5))
             ORDER BY asked DESC, id LIMIT $6"
        );
        let rows = sqlx::query_as(AssertSqlSafe(sql))
            .bind(tenant.unwrap_or_default())
            .bind(caller_key.unwrap_or_default())
            .bind(state.map(<&str>::from).unwrap_or_default())
            .bind(asked)
            .bind(id)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.0.pool)
            .await;
        let rows: Vec<Row> = rows.map_err(|error| self.0.failed(error))?;
        rows.into_iter().map(|row| self.stored(row)).collect()
    }

    /// For whom each source is switched on.
    pub async fn switched(&self) -> Result<HashMap<String, HashSet<Beneficiary>>, StoreError> {
        let sql = "SELECT source, tenant, caller_key, key_id, audience FROM source_requests WHERE state = 'approved'";
        let rows = sqlx::query_as(sql).fetch_all(&self.0.durable).await;
        let rows: Vec<(String, String, String, String, String)> = rows.map_err(|error| self.0.failed(error))?;
        let mut switched = HashMap::<String, HashSet<Beneficiary>>::new();
        for (source, tenant, caller_key, key_id, audience) in rows {
            let beneficiary = match audience.parse() {
                Ok(Audience::User) => Beneficiary::User(caller_key.into()),
                Ok(Audience::Key) if !key_id.is_empty() => Beneficiary::Key(key_id.into()),
                Ok(Audience::Tenant) => Beneficiary::Tenant(tenant.into()),
                // Of a later version: it is off here.
                _ => continue,
            };
            switched.entry(source).or_default().insert(beneficiary);
        }
        Ok(switched)
    }

    fn stored(&self, row: Row) -> Result<StoredSourceRequest, StoreError> {
        let (id, source, tenant, caller_key, caller_id, key_id, reason, state, audience, decided_by, asked, changed) =
            row;
        let some = |text: String| (!text.is_empty()).then_some(text);
        Ok(StoredSourceRequest {
            id,
            source,
            tenant,
            caller_key,
            caller_id,
            key_id: some(key_id),
            reason,
            state: state.parse().unwrap_or(RequestState::Withdrawn),
            audience: audience.parse().ok(),
            decided_by: some(decided_by),
            asked: *self.0.moment(asked)?,
            changed: *self.0.moment(changed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    fn request(id: &str, tenant: &str, caller: &str) -> NewSourceRequest {
        NewSourceRequest {
            id: id.to_owned(),
            source: "mcp:git".to_owned(),
            tenant: tenant.to_owned(),
            caller_key: format!("{tenant} {caller}"),
            caller_id: caller.to_owned(),
            key_id: Some(format!("key-of-{caller}")),
            reason: "for reviews".to_owned(),
        }
    }

    async fn approve(requests: &SourceRequestStore, id: &str, audience: Audience) -> bool {
        let to = (RequestState::Approved, Some(audience));
        requests.decide(id, RequestState::Asked, to, "ada").await.unwrap()
    }

    #[tokio::test]
    async fn a_request_is_decided_once_and_withdrawn_for_all_who_have_the_source_by_the_same_right() {
        let store = test_store().await;
        let requests = store.source_requests();
        for (id, caller, audience, expected) in [
            ("1", "ann", Audience::User, Beneficiary::User("acme ann".into())),
            ("2", "bob", Audience::Key, Beneficiary::Key("key-of-bob".into())),
            ("3", "cleo", Audience::Tenant, Beneficiary::Tenant("acme".into())),
        ] {
            let asked = requests.ask(&request(id, "acme", caller)).await.unwrap().unwrap();
            assert_eq!((&*asked.id, asked.state, asked.audience), (id, RequestState::Asked, None));
            assert_eq!(requests.switched().await.unwrap(), HashMap::new(), "nothing is on before");
            let version = store.registrations().version().await.unwrap();
            assert!(approve(&requests, id, audience).await && !approve(&requests, id, audience).await, "once");
            assert!(store.registrations().version().await.unwrap() > version, "replicas learn of it");
            let on = HashMap::from([("mcp:git".to_owned(), HashSet::from([expected]))]);
            assert_eq!(requests.switched().await.unwrap(), on);
            let again = requests.ask(&request("9", "acme", caller)).await.unwrap().unwrap();
            assert_eq!((&*again.id, again.state), (id, RequestState::Approved), "it stays as it is");
            assert_eq!(requests.withdraw(&again, "ada").await.unwrap(), 1);
            assert_eq!(requests.switched().await.unwrap(), HashMap::new());
        }
        for (id, caller) in [("4", "dan"), ("5", "eve")] {
            requests.ask(&request(id, "acme", caller)).await.unwrap();
            assert!(approve(&requests, id, Audience::Tenant).await);
        }
        let one = requests.get("4").await.unwrap().unwrap();
        assert_eq!(requests.withdraw(&one, "ada").await.unwrap(), 2, "the other would leave it on");
        let anew = requests.ask(&request("6", "acme", "dan")).await.unwrap().unwrap();
        assert_eq!((&*anew.id, anew.state, anew.decided_by), ("6", RequestState::Asked, None));
    }

    #[tokio::test]
    async fn a_caller_asks_again_with_another_key_only_where_its_source_is_on_for_one_key() {
        let store = test_store().await;
        let requests = store.source_requests();
        let with_key =
            |id: &str, key: &str| NewSourceRequest { key_id: Some(key.to_owned()), ..request(id, "acme", "ann") };
        let asked = async |id: &str, key: &str| requests.ask(&with_key(id, key)).await.unwrap().unwrap().id;
        assert_eq!((asked("1", "k1").await, asked("2", "k2").await), ("1".to_owned(), "1".to_owned()), "one waits");
        assert!(approve(&requests, "1", Audience::Key).await);
        let version = store.registrations().version().await.unwrap();
        assert_eq!(asked("3", "k1").await, "1");
        assert_eq!(store.registrations().version().await.unwrap(), version, "replicas have nothing to read");
        assert_eq!(asked("4", "k2").await, "4");
        assert!(approve(&requests, "4", Audience::User).await);
        assert_eq!(asked("5", "k3").await, "4");
        let both = HashSet::from([Beneficiary::Key("k1".into()), Beneficiary::User("acme ann".into())]);
        assert_eq!(requests.switched().await.unwrap()["mcp:git"], both);
    }

    #[tokio::test]
    async fn a_tenant_has_so_many_requests_and_lists_are_of_a_tenant_a_caller_and_a_state() {
        let store = test_store().await;
        let requests = store.source_requests();
        for (id, tenant, caller) in [("1", "acme", "ann"), ("2", "acme", "bob"), ("3", "globex", "ann")] {
            assert!(requests.ask_within(&request(id, tenant, caller), 2).await.unwrap().is_some());
        }
        assert_eq!(requests.ask_within(&request("4", "acme", "cleo"), 2).await.unwrap(), None);
        assert!(requests.decide("1", RequestState::Asked, (RequestState::Refused, None), "ada").await.unwrap());
        assert!(requests.ask_within(&request("5", "acme", "ann"), 2).await.unwrap().is_some(), "it needs no room");
        store.change_rows("UPDATE source_requests SET asked = CASE id WHEN '2' THEN 9 ELSE 5 END").await;
        assert!(approve(&requests, "3", Audience::User).await);
        let of = |tenant, caller_key, state| SourceRequestFilter { tenant, caller_key, state, after: None };
        for (filter, expected) in [
            (of(None, None, None), vec!["2", "3", "5"]),
            (of(Some("acme"), None, None), vec!["2", "5"]),
            (of(Some("acme"), Some("acme bob"), None), vec!["2"]),
            (of(None, None, Some(RequestState::Approved)), vec!["3"]),
            (
                SourceRequestFilter {
                    after: Some((Timestamp::from_microsecond(5).unwrap(), "3")),
                    ..of(None, None, None)
                },
                vec!["5"],
            ),
        ] {
            let found = requests.list(filter, 10).await.unwrap();
            assert_eq!(found.iter().map(|request| &*request.id).collect::<Vec<_>>(), expected, "{filter:?}");
        }
        store.change_rows("UPDATE source_requests SET state = 'refused', changed = 1 WHERE id = '2'").await;
        assert!(requests.ask_within(&request("6", "acme", "dora"), 2).await.unwrap().is_some(), "an old one has gone");
    }
}
