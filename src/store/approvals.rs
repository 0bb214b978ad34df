//! Approvals: calls that wait for a person, the decisions, and the calls that were made by them. All moments go by the
//! clock that the processes of the store share.

mod states;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::replicas::micros;
use super::{AtStore, MAX_ROWS, Store, StoreError, retried, stays_prepared};
use sekisho_core::approval::{ApprovalScope, ApprovalState};

pub use self::states::DecidedApproval;

/// How long a request waits for a decision.
const PENDING_TTL: Duration = Duration::from_secs(3_600);

/// Requests of one caller that wait at once.
pub const PENDING_OF_CALLER: i64 = 100;

/// Requests of all callers that wait at once.
const PENDING_OF_ALL: i64 = 10_000;

/// Requests of one group within this time are told of once: calls of one turn come at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A call that needs approval.
#[derive(Debug, Clone, Copy)]
pub struct NewApproval<'a> {
    pub id: &'a str,
    pub tenant: &'a str,
    pub caller_key: &'a str,
    pub caller_id: &'a str,
    pub tool: &'a str,
    pub pending_digest: &'a str,
    pub call_digest: &'a str,
    pub tool_digest: &'a str,
    pub session_digest: Option<&'a str>,
    /// Of the caller, and the run, conversation or session of the call.
    pub group_digest: Option<&'a str>,
    /// JSON.
    pub details: &'a str,
    /// Sealed.
    pub arguments: &'a str,
}

/// The result of a request for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It waits now.
    New(StoredApproval),
    /// The same, with others of its group that were asked for within the last seconds.
    Further(StoredApproval),
    /// An equal request waits already.
    Known(StoredApproval),
    /// The caller has [`PENDING_OF_CALLER`] requests.
    TooManyOfCaller,
    TooMany,
}

/// An approval as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApproval {
    pub id: String,
    pub tenant: String,
    pub caller_key: String,
    pub caller_id: String,
    pub tool: String,
    /// `expired` also if nobody has written that yet.
    pub state: ApprovalState,
    pub call_digest: String,
    pub session_digest: Option<String>,
    pub group_digest: Option<String>,
    pub details: String,
    /// Sealed; empty where it was not read by its id.
    pub arguments: String,
    pub decisions: String,
    pub scope: Option<ApprovalScope>,
    pub uses: i64,
    pub fence: i64,
    pub runner: Option<String>,
    pub revision: i64,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub changed: Timestamp,
}

/// Which approvals are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalFilter<'a> {
    pub tenant: Option<&'a str>,
    pub caller_key: Option<&'a str>,
    pub state: Option<ApprovalState>,
    pub tool: Option<&'a str>,
    /// The id of a caller.
    pub caller: Option<&'a str>,
    /// Only approvals created before this moment.
    pub before: Option<Timestamp>,
    pub max: u32,
}

/// Without the arguments, which may be long.
const COLUMNS: &str = "id, tenant, caller_key, caller_id, tool, state, call_digest, session_digest, group_digest, details, \
                       '' AS arguments, decisions, scope, uses, fence, runner, revision, created, expires, changed";

/// All of them.
const ALL_COLUMNS: &str = "id, tenant, caller_key, caller_id, tool, state, call_digest, session_digest, group_digest, details, \
                           arguments, decisions, scope, uses, fence, runner, revision, created, expires, changed";

/// Approvals of calls and their decisions: the table `approvals`. It reads `replicas` to find lost calls.
#[derive(Debug, Clone)]
pub struct ApprovalStore(pub(super) Store);

impl ApprovalStore {
    /// Adds a request for approval, unless an equal one waits.
    /// Errors: [`StoreError`]; nothing is added then.
    pub async fn ask(&self, new: NewApproval<'_>) -> Result<Asked, StoreError> {
        retried(|| self.try_ask(new)).await
    }

    async fn try_ask(&self, new: NewApproval<'_>) -> Result<Asked, StoreError> {
        let now = self.0.engine.now_expression();
        let mut transaction = self.0.begin().await?;
        // Requests are added one after the other, so that the maxima hold.
        sqlx::query(
            "INSERT INTO shared_versions (subject, version) VALUES ('approvals', 1)
             ON CONFLICT (subject) DO UPDATE SET version = shared_versions.version + 1",
        )
        .execute(&mut *transaction)
        .await
        .at(&self.0)?;
        let expire = format!(
            "UPDATE approvals SET state = 'expired', pending_digest = NULL, revision = revision + 1, changed = {now}
             WHERE pending_digest = $1 AND expires <= {now}"
        );
        sqlx::query(AssertSqlSafe(expire)).bind(new.pending_digest).execute(&mut *transaction).await.at(&self.0)?;
        let equal = format!("SELECT {COLUMNS} FROM approvals WHERE pending_digest = $1");
        let equal = sqlx::query(AssertSqlSafe(equal)).bind(new.pending_digest);
        if let Some(row) = equal.fetch_optional(&mut *transaction).await.at(&self.0)? {
            transaction.commit().await.at(&self.0)?;
            return Ok(Asked::Known(self.approval_of(&row, None)?));
        }
        let waiting = format!(
            "SELECT COUNT(*), SUM(CASE WHEN caller_key = $1 THEN 1 ELSE 0 END) FROM approvals
             WHERE state = 'pending' AND expires > {now}"
        );
        let waiting = sqlx::query_as(AssertSqlSafe(waiting)).bind(new.caller_key);
        let (all, of_caller): (i64, Option<i64>) = waiting.fetch_one(&mut *transaction).await.at(&self.0)?;
        if of_caller.unwrap_or_default() >= PENDING_OF_CALLER || all >= PENDING_OF_ALL {
            transaction.rollback().await.at(&self.0)?;
            return Ok(if all >= PENDING_OF_ALL { Asked::TooMany } else { Asked::TooManyOfCaller });
        }
        let is_further = self.is_further(&mut transaction, new.group_digest).await.at(&self.0)?;
        let row = self.insert(&mut transaction, new).await.at(&self.0)?;
        transaction.commit().await.at(&self.0)?;
        let stored = self.approval_of(&row, None)?;
        Ok(if is_further { Asked::Further(stored) } else { Asked::New(stored) })
    }

    /// Whether others of the group wait that were asked for just now.
    async fn is_further(&self, connection: &mut sqlx::AnyConnection, group: Option<&str>) -> sqlx::Result<bool> {
        let Some(group) = group else { return Ok(false) };
        let sql = format!(
            "SELECT COUNT(*) FROM approvals WHERE group_digest = $1 AND state = 'pending' AND created > {} - $2",
            self.0.engine.now_expression()
        );
        let waiting = sqlx::query_scalar(AssertSqlSafe(sql)).bind(group).bind(micros(AT_ONCE));
        let waiting: i64 = waiting.fetch_one(connection).await?;
        Ok(waiting > 0)
    }

    async fn insert(&self, connection: &mut sqlx::AnyConnection, new: NewApproval<'_>) -> sqlx::Result<AnyRow> {
        let now = self.0.engine.now_expression();
        let insert = format!(
            "INSERT INTO approvals (id, tenant, caller_key, caller_id, tool, state, pending_digest, call_digest, tool_digest,
                 session_digest, group_digest, details, arguments, decisions, uses, fence, revision, created, expires, changed)
             VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11, $12, '[]', 0, 0, 0, {now}, {now} + $13, {now})
             RETURNING {COLUMNS}"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(new.id)
            .bind(new.tenant)
            .bind(new.caller_key)
            .bind(new.caller_id)
            .bind(new.tool)
            .bind(new.pending_digest)
            .bind(new.call_digest)
            .bind(new.tool_digest)
            .bind(new.session_digest)
            .bind(new.group_digest)
            .bind(new.details)
            .bind(new.arguments)
            .bind(micros(PENDING_TTL))
            .fetch_one(connection)
            .await
    }

    pub async fn get(&self, id: &str) -> Result<Option<StoredApproval>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT {ALL_COLUMNS}, {now} AS moment FROM approvals WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await.at(&self.0)?;
        row.map(|row| self.approval_of(&row, Some("moment"))).transpose()
    }

    /// The approvals that wait or may be used, for this call or this tool in this session.
    pub async fn list_open(
        &self,
        call_digest: &str,
        session_digest: Option<&str>,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM approvals
             WHERE state IN ('pending', 'approved') AND expires > {}
               AND ((scope = 'session' AND session_digest = $2)
                    OR (COALESCE(scope, '') <> 'session' AND call_digest = $1))
             ORDER BY created",
            self.0.engine.now_expression()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(call_digest).bind(session_digest.unwrap_or_default());
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.approval_of(row, None)).collect()
    }

    /// The latest first. Of calls of one group that wait there is only the first one, at its place.
    pub async fn list(&self, filter: ApprovalFilter<'_>) -> Result<Vec<StoredApproval>, StoreError> {
        let now = self.0.engine.now_expression();
        let shown =
            format!("CASE WHEN state IN ('pending', 'approved') AND expires <= {now} THEN 'expired' ELSE state END");
        let sql = format!(
            "SELECT {COLUMNS}, {now} AS moment FROM approvals
             WHERE ($1 = '' OR tenant = $1) AND ($2 = '' OR caller_key = $2) AND ($3 = '' OR {shown} = $3)
               AND ($4 = '' OR tool = $4) AND ($5 = '' OR caller_id = $5) AND created < $6
               AND NOT ({shown} = 'pending' AND EXISTS (
                   SELECT 1 FROM approvals AS earlier
                   WHERE earlier.group_digest = approvals.group_digest AND earlier.state = 'pending'
                     AND earlier.expires > {now} AND ($4 = '' OR earlier.tool = $4)
                     AND (earlier.created < approvals.created
                          OR (earlier.created = approvals.created AND earlier.id < approvals.id))))
             ORDER BY created DESC, id DESC LIMIT $7"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(filter.tenant.unwrap_or_default())
            .bind(filter.caller_key.unwrap_or_default())
            .bind(filter.state.map_or("", ApprovalState::as_str))
            .bind(filter.tool.unwrap_or_default())
            .bind(filter.caller.unwrap_or_default())
            .bind(filter.before.map_or(i64::MAX, Timestamp::as_microsecond))
            .bind(i64::from(filter.max))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.approval_of(row, Some("moment"))).collect()
    }

    /// The calls of a group that wait, the oldest first, at most `max`.
    pub async fn list_waiting(&self, group_digest: &str, max: u32) -> Result<Vec<StoredApproval>, StoreError> {
        let sql = format!(
            "SELECT {ALL_COLUMNS} FROM approvals WHERE group_digest = $1 AND state = 'pending' AND expires > {}
             ORDER BY created, id LIMIT $2",
            self.0.engine.now_expression()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(group_digest).bind(i64::from(max));
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.approval_of(row, None)).collect()
    }

    /// The number of calls that wait, by group.
    pub async fn count_waiting(&self, group_digests: &[&str]) -> Result<HashMap<String, i64>, StoreError> {
        let now = self.0.engine.now_expression();
        let mut counts = HashMap::new();
        for digests in group_digests.chunks(MAX_ROWS) {
            let parameters: Vec<_> = (1..=digests.len()).map(|number| format!("${number}")).collect();
            let sql = format!(
                "SELECT group_digest, COUNT(*) FROM approvals
                 WHERE state = 'pending' AND expires > {now} AND group_digest IN ({}) GROUP BY group_digest",
                parameters.join(", ")
            );
            let query = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(digests.len()));
            let query = digests.iter().fold(query, |query, digest| query.bind(*digest));
            for row in query.fetch_all(&self.0.pool).await.at(&self.0)? {
                let digest = row.try_get(0).at(&self.0)?;
                counts.insert(digest, row.try_get(1).at(&self.0)?);
            }
        }
        Ok(counts)
    }

    /// Whether a call of this tool by its caller was approved and made before.
    pub async fn was_approved_before(&self, tool_digest: &str) -> Result<bool, StoreError> {
        let used = sqlx::query_scalar("SELECT COUNT(*) FROM approvals WHERE tool_digest = $1 AND uses > 0");
        let used: i64 = used.bind(tool_digest).fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok(used > 0)
    }

    /// The number of approvals that wait for a decision.
    pub async fn count_pending(&self) -> Result<i64, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT COUNT(*) FROM approvals WHERE state = 'pending' AND expires > {now}");
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.0.pool).await.at(&self.0)
    }

    /// Of those, the ones whose sealed arguments begin with neither of two texts, which have no `%` and no `_`.
    pub async fn count_pending_unlike(&self, one: &str, other: &str) -> Result<i64, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "SELECT COUNT(*) FROM approvals
             WHERE state = 'pending' AND expires > {now} AND arguments NOT LIKE $1 AND arguments NOT LIKE $2"
        );
        let count = sqlx::query_scalar(AssertSqlSafe(sql)).bind(format!("{one}%")).bind(format!("{other}%"));
        count.fetch_one(&self.0.pool).await.at(&self.0)
    }

    /// `moment`: the column with the time, if the row may have expired.
    fn approval_of(&self, row: &AnyRow, moment: Option<&str>) -> Result<StoredApproval, StoreError> {
        let read = read_row(row, moment).at(&self.0)?;
        read.map_err(|problem| self.0.damaged(problem))
    }
}

fn read_row(row: &AnyRow, moment: Option<&str>) -> sqlx::Result<Result<StoredApproval, String>> {
    let (state, scope): (String, Option<String>) = (row.try_get("state")?, row.try_get("scope")?);
    let (created, expires): (i64, i64) = (row.try_get("created")?, row.try_get("expires")?);
    let changed: i64 = row.try_get("changed")?;
    let now: i64 = moment.map(|column| row.try_get(column)).transpose()?.unwrap_or(i64::MIN);
    let (Some(mut read_state), Ok(created), Ok(expires_at), Ok(changed)) = (
        ApprovalState::parse(&state),
        Timestamp::from_microsecond(created),
        Timestamp::from_microsecond(expires),
        Timestamp::from_microsecond(changed),
    ) else {
        return Ok(Err(format!("an approval has the state {state}, or a moment out of range")));
    };
    if matches!(read_state, ApprovalState::Pending | ApprovalState::Approved) && expires <= now {
        read_state = ApprovalState::Expired;
    }
    Ok(Ok(StoredApproval {
        id: row.try_get("id")?,
        tenant: row.try_get("tenant")?,
        caller_key: row.try_get("caller_key")?,
        caller_id: row.try_get("caller_id")?,
        tool: row.try_get("tool")?,
        state: read_state,
        call_digest: row.try_get("call_digest")?,
        session_digest: row.try_get("session_digest")?,
        group_digest: row.try_get("group_digest")?,
        details: row.try_get("details")?,
        arguments: row.try_get("arguments")?,
        decisions: row.try_get("decisions")?,
        scope: scope.as_deref().and_then(ApprovalScope::parse),
        uses: row.try_get("uses")?,
        fence: row.try_get("fence")?,
        runner: row.try_get("runner")?,
        revision: row.try_get("revision")?,
        created,
        expires: expires_at,
        changed,
    }))
}

#[cfg(test)]
mod tests;
