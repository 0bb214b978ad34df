//! What calls came to, as far as a caller may see them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{History, Reach};
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;
use sekisho_store::{
    CallSums, Figures, IndexFilter, Series, StoreError, Subject, TimeRange, ToolUse, UseCursor, use_of,
};

/// Seconds whose calls are counted one by one.
const SECONDS: i64 = 60;

/// Whose calls figures are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FiguresOf {
    /// Of a tenant, or of all that the caller sees.
    All {
        tenant: Option<String>,
    },
    Tool(String),
    Server(String),
    /// The id of a caller, of a tenant or of all.
    Caller {
        tenant: Option<String>,
        id: String,
    },
    /// The id of a managed key.
    Key(String),
}

impl FiguresOf {
    fn series(&self) -> Series {
        let (subject, tenant, value) = match self {
            Self::All { tenant } => (Subject::All, tenant.clone(), ""),
            Self::Tool(name) => (Subject::Tool, None, &**name),
            Self::Server(name) => (Subject::Server, None, &**name),
            Self::Caller { tenant, id } => (Subject::Caller, tenant.clone(), &**id),
            Self::Key(id) => (Subject::Key, None, &**id),
        };
        Series { subject, tenant, value: value.to_owned() }
    }

    /// The fields by which a list has these calls; an empty text stands for any.
    pub fn fields(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::All { tenant } => vec![("tenant", tenant.as_deref().unwrap_or_default())],
            Self::Tool(name) => vec![("tool", name.as_str())],
            Self::Server(name) => vec![("server", name.as_str())],
            Self::Caller { tenant, id } => {
                vec![("caller", id.as_str()), ("tenant", tenant.as_deref().unwrap_or_default())]
            }
            Self::Key(id) => vec![("key", id.as_str())],
        }
    }
}

impl History {
    /// What calls that the caller sees came to, in the parts of a time up to now.
    /// Errors: the database fails.
    pub async fn figures(&self, caller: &Caller, of: &FiguresOf, range: TimeRange) -> Result<Figures, CallError> {
        let now = Timestamp::now();
        let series = self.series_within_reach(caller, of);
        self.index.write_with_sums().await;
        Ok(self.index.store.figures(&series, range, now).await?)
    }

    /// The same, beside the sums of the day before where the range has them.
    /// Errors: as [`figures`](Self::figures).
    pub async fn figures_and_before(
        &self,
        caller: &Caller,
        of: &FiguresOf,
        range: TimeRange,
    ) -> Result<Figures, CallError> {
        let (now, mut figures) = (Timestamp::now(), self.figures(caller, of, range).await?);
        if range.has_day_before() {
            let then = now.checked_sub(SignedDuration::from_hours(24)).unwrap_or_default();
            let before = self.index.store.figures(&self.series_within_reach(caller, of), range, then).await?;
            figures.before = Some(before.parts.into_iter().map(|(_, sums)| sums).collect());
        }
        Ok(figures)
    }

    /// The series of the calls that the caller sees. It has no calls where these are none.
    fn series_within_reach(&self, caller: &Caller, of: &FiguresOf) -> Series {
        let mut series = of.series();
        let reach = self.configuration.reach(caller);
        if reach == Reach::AllTenants {
            return series;
        }
        let own_tenant = caller.tenant.to_string();
        if series.tenant.as_ref().is_some_and(|tenant| *tenant != own_tenant) {
            // No call has this value: all of them have an empty one.
            return Series { subject: Subject::All, tenant: Some(own_tenant), value: "none".to_owned() };
        }
        series.tenant = Some(own_tenant);
        if reach == Reach::Own {
            let owner = &*caller.owner.caller;
            (series.subject, series.value) = match of {
                FiguresOf::Tool(name) => (Subject::Use, use_of(owner, name)),
                FiguresOf::All { .. } => (Subject::Owner, owner.to_owned()),
                FiguresOf::Caller { id, .. } if **id == *caller.id => (Subject::Owner, owner.to_owned()),
                FiguresOf::Caller { .. } | FiguresOf::Server(_) | FiguresOf::Key(_) => {
                    (Subject::All, "none".to_owned())
                }
            };
        }
        series
    }

    /// What each tool came to in a time, of the calls that the caller sees.
    /// Errors: the database fails.
    pub async fn sums_of_tools(
        &self,
        caller: &Caller,
        range: TimeRange,
    ) -> Result<BTreeMap<String, CallSums>, CallError> {
        let (tenant, owner) = self.whose(caller);
        self.index.write_with_sums().await;
        Ok(self.index.store.sums_of_tools(tenant, owner, range, Timestamp::now()).await?)
    }

    /// What each client came to in a time, by tenant and id, of the calls that the caller sees.
    /// Errors: the database fails.
    pub async fn sums_of_clients(
        &self,
        caller: &Caller,
        range: TimeRange,
    ) -> Result<BTreeMap<(String, String), CallSums>, CallError> {
        let (tenant, owner) = self.whose(caller);
        if owner.is_some() {
            let of = FiguresOf::Caller { tenant: tenant.map(str::to_owned), id: caller.id.to_string() };
            let own = self.figures(caller, &of, range).await?.total();
            return Ok([((caller.tenant.to_string(), caller.id.to_string()), own)].into());
        }
        self.index.write_with_sums().await;
        Ok(self.index.store.sums_of_callers(tenant, range, Timestamp::now()).await?)
    }

    /// The tools whose upstream fails, in the calls of a tenant or of all.
    pub(super) async fn failing_tools(&self, tenant: Option<&str>) -> Result<BTreeSet<String>, StoreError> {
        self.index.write_with_sums().await;
        self.index.store.failing_tools(tenant, Timestamp::now()).await
    }

    /// At most `limit` uses of tools by callers since a day, after a place: of the calls that the caller sees.
    /// Errors: the database fails.
    pub async fn tool_uses(
        &self,
        caller: &Caller,
        since: Timestamp,
        after: Option<&UseCursor>,
        limit: usize,
    ) -> Result<Vec<ToolUse>, CallError> {
        self.index.write_with_sums().await;
        Ok(self.index.store.tool_uses(since, self.whose(caller), after, limit).await?)
    }

    /// The calls that the caller sees in each of the last 60 seconds that are over, the oldest first.
    /// Errors: the database fails.
    pub async fn calls_per_second(&self, caller: &Caller) -> Result<Vec<u64>, CallError> {
        let until = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let since = until.checked_sub(SignedDuration::from_secs(SECONDS)).unwrap_or(until);
        let (tenant, owner) = self.whose(caller);
        let (tenant, owner) = (tenant.map(str::to_owned), owner.map(str::to_owned));
        let filter = IndexFilter { tenant, owner, since: Some(since), until: Some(until), ..IndexFilter::default() };
        self.index.write().await;
        let by_second = self.index.store.calls_by_second(&filter).await?;
        let seconds = since.as_second()..until.as_second();
        Ok(seconds.map(|second| by_second.get(&second).copied().unwrap_or_default()).collect())
    }

    /// The tenant and the owner of the calls that the caller sees; `None`: any.
    fn whose<'a>(&self, caller: &'a Caller) -> (Option<&'a str>, Option<&'a str>) {
        match self.configuration.reach(caller) {
            Reach::AllTenants => (None, None),
            Reach::Tenant => (Some(&*caller.tenant), None),
            Reach::Own => (Some(&*caller.tenant), Some(&*caller.owner.caller)),
        }
    }
}
