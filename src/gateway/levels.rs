//! The rest of the rate limits, as far as a caller may see it.

use super::{Reach, Status};
use sekisho_calls::limits::BucketOwner;
use sekisho_core::call::RateState;
use sekisho_core::caller::Caller;

/// Maximum rows: the buckets with the smallest part left.
const MAX_ROWS: usize = 500;

/// The wanted buckets: buckets that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct LevelFilter {
    pub tool: Option<String>,
    pub caller: Option<String>,
    pub tenant: Option<String>,
}

/// The rest of one bucket that is not full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub tenant: String,
    /// `None`: all calls of the tenant.
    pub caller: Option<String>,
    /// `None`: calls of all tools.
    pub tool: Option<String>,
    pub state: RateState,
}

impl Status {
    /// The wanted buckets that are not full, of the tenants that the caller sees; buckets with the smallest part left
    /// come first.
    pub fn levels(&self, caller: &Caller, filter: &LevelFilter) -> Vec<Level> {
        let reach = self.configuration.reach(caller);
        let is_seen = |tenant: &str, key: Option<&str>| match reach {
            Reach::AllTenants => true,
            Reach::Tenant => *caller.tenant == *tenant,
            Reach::Own => key == Some(&*caller.key),
        };
        let levels = self.pipeline.limits.levels().into_iter().filter_map(|level| {
            let (key, tool) = match &level.whose {
                BucketOwner::Rule { .. } => return None,
                BucketOwner::Tenant(_) => (None, None),
                BucketOwner::Caller(key) => (Some(&**key), None),
                BucketOwner::Tool { tool, caller } => (Some(&**caller), Some(tool.clone())),
            };
            let (tenant, caller) = match (&level.whose, key) {
                (BucketOwner::Tenant(tenant), _) => (&**tenant, None),
                (_, key) => {
                    let (tenant, caller) = Caller::parts_of_key(key.unwrap_or_default());
                    (tenant, Some(caller.to_owned()))
                }
            };
            let found = Level { tenant: tenant.to_owned(), caller, tool, state: level.state };
            (is_seen(tenant, key) && filter.admits(&found)).then_some(found)
        });
        let mut levels: Vec<_> = levels.collect();
        levels.sort_by_cached_key(|level| {
            let share = u64::from(level.state.remaining) * 1_000_000 / u64::from(level.state.limit.max(1));
            (share, level.tool.clone(), level.tenant.clone(), level.caller.clone())
        });
        levels.truncate(MAX_ROWS);
        levels
    }
}

impl LevelFilter {
    fn admits(&self, level: &Level) -> bool {
        let fits = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == value)
        };
        fits(&self.tool, level.tool.as_deref())
            && fits(&self.caller, level.caller.as_deref())
            && fits(&self.tenant, Some(&level.tenant))
    }
}
