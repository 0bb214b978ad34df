//! Figures of the last hour, for the console: the number of calls, their ends, costs and durations, by tenant and by
//! tool. They are kept in memory of a bounded size.
//!
//! A call adds to counters under two locks, of its tenant and of its tool there, which are held briefly. Only the first
//! call of a tenant or tool takes memory.

mod periods;
mod times;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use rust_decimal::Decimal;

pub use self::times::Times;

use self::periods::Periods;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};

/// Maximum tenants with figures of their own; calls of further ones count for all tenants together.
const MAX_TENANTS: usize = 64;

/// Maximum tools with figures of their own; a tool counts once for each tenant. Calls of further tools count for their
/// tenant.
const MAX_TOOLS: usize = 2_048;

/// Seconds with figures of their own.
const SECONDS: usize = 60;

/// Minutes with figures of their own.
const MINUTES: usize = 60;

/// Parts of the hour with figures of each tool, and their length in seconds.
const PARTS: usize = 12;
const PART_SECONDS: u64 = 300;

/// The figures of all tenants.
#[derive(Debug)]
pub struct Figures {
    tenants: RwLock<BoundedMap<Arc<str>, TenantFigures>>,
    /// The figures of tenants beyond the maximum.
    others: TenantFigures,
    /// Tools that have figures, of all tenants.
    tools: AtomicUsize,
}

/// The outcomes of calls, in one minute or over some.
#[derive(Debug, Clone)]
pub struct Totals {
    pub outcomes: Outcomes,
    /// By the number of the error code.
    codes: [u32; ErrorCode::ALL.len()],
    pub cost_usd: Decimal,
    pub tokens: u64,
    /// The times of calls that were executed.
    pub times: Times,
}

/// The same for one tool.
#[derive(Debug, Clone, Default)]
pub struct ToolTotals {
    pub outcomes: Outcomes,
    /// Calls that failed by the fault of the upstream.
    pub upstream_failures: u32,
    pub times: Times,
}

/// How many calls ended in each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes([u32; Status::ALL.len()]);

/// The last hour.
#[derive(Debug, Default)]
pub struct LastHour {
    /// Calls in each of the last seconds, the oldest first.
    pub seconds: Vec<u64>,
    /// Each of the last minutes, the oldest first.
    pub minutes: Vec<Totals>,
    pub tools: BTreeMap<Box<str>, ToolTotals>,
}

#[derive(Debug)]
struct TenantFigures {
    totals: Mutex<TenantTotals>,
    tools: RwLock<HashMap<Box<str>, Mutex<Periods<ToolTotals>>>>,
}

#[derive(Debug)]
struct TenantTotals {
    seconds: Periods<u32>,
    minutes: Periods<Totals>,
}

impl Default for Figures {
    fn default() -> Self {
        let tenants = RwLock::new(BoundedMap::new(MAX_TENANTS));
        Self { tenants, others: TenantFigures::default(), tools: AtomicUsize::new(0) }
    }
}

impl Figures {
    /// Counts a call.
    pub fn record(&self, call: &CallSummary) {
        {
            let tenants = self.tenants.read();
            if let Some(figures) = tenants.get(&call.tenant) {
                return figures.add(call, &self.tools);
            }
            if tenants.len() >= MAX_TENANTS {
                return self.others.add(call, &self.tools);
            }
        }
        // Others may have come first, and filled it.
        match self.tenants.write().get_or_try_insert_with(Arc::clone(&call.tenant), TenantFigures::default) {
            Some(figures) => figures.add(call, &self.tools),
            None => self.others.add(call, &self.tools),
        }
    }

    /// The hour before this moment, of all tenants.
    pub fn of_all(&self, now: SystemTime) -> LastHour {
        let (mut hour, second) = (LastHour::empty(), unix_seconds(now));
        let tenants = self.tenants.read();
        let all = tenants.iter().map(|(_, figures)| figures).chain([&self.others]);
        all.for_each(|figures| hour.add(figures, second));
        hour
    }

    /// The same of one tenant; `None` for one without figures of its own.
    pub fn of_tenant(&self, tenant: &str, now: SystemTime) -> Option<LastHour> {
        let tenants = self.tenants.read();
        let mut hour = LastHour::empty();
        hour.add(tenants.get(tenant)?, unix_seconds(now));
        Some(hour)
    }

    /// The tools whose upstream fails: in the latest five minutes of the hour in which a call of one tenant, or of any, reached it, no
    /// more calls succeeded than failed by its fault.
    pub fn failing_tools(&self, tenant: Option<&str>, now: SystemTime) -> BTreeSet<Box<str>> {
        let (second, mut failing) = (unix_seconds(now), BTreeSet::new());
        let tenants = self.tenants.read();
        let wanted = tenants.iter().filter(|(name, _)| tenant.is_none_or(|wanted| ***name == *wanted));
        let others = tenant.is_none().then_some(&self.others);
        for figures in wanted.map(|(_, figures)| figures).chain(others) {
            for (name, parts) in figures.tools.read().iter() {
                let latest = parts.lock().until(second).flatten().filter_map(ToolTotals::fails).last();
                failing.extend(latest.unwrap_or_default().then(|| name.clone()));
            }
        }
        failing
    }

    /// Forgets tools and tenants without a call in the last hour.
    pub fn evict_idle(&self, now: SystemTime) {
        let second = unix_seconds(now);
        let mut tenants = self.tenants.write();
        let mut tools = self.others.evict_idle(second);
        tenants.retain(|_, figures| {
            let left = figures.evict_idle(second);
            tools += left;
            left > 0 || figures.totals.lock().minutes.until(second).flatten().next().is_some()
        });
        self.tools.store(tools, Ordering::Relaxed);
    }
}

impl LastHour {
    /// From calls in memory, for a caller who sees only some of a tenant's.
    pub fn of_calls<'a>(calls: impl Iterator<Item = &'a CallSummary>, now: SystemTime) -> Self {
        let (figures, tools) = (TenantFigures::default(), AtomicUsize::new(0));
        calls.for_each(|call| figures.add(call, &tools));
        let mut hour = Self::empty();
        hour.add(&figures, unix_seconds(now));
        hour
    }

    /// The whole hour.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.minutes.iter().for_each(|minute| totals.add(minute));
        totals
    }

    fn empty() -> Self {
        Self { seconds: vec![0; SECONDS], minutes: vec![Totals::default(); MINUTES], tools: BTreeMap::new() }
    }

    fn add(&mut self, figures: &TenantFigures, second: u64) {
        {
            let totals = figures.totals.lock();
            // The present second is not over.
            let seconds = totals.seconds.until(second.saturating_sub(1));
            for (sum, more) in self.seconds.iter_mut().zip(seconds) {
                *sum += u64::from(more.copied().unwrap_or_default());
            }
            for (sum, more) in self.minutes.iter_mut().zip(totals.minutes.until(second)) {
                more.into_iter().for_each(|more| sum.add(more));
            }
        }
        for (name, parts) in figures.tools.read().iter() {
            let parts = parts.lock();
            let mut used = parts.until(second).flatten().peekable();
            if used.peek().is_some() {
                let sum = self.tools.entry(name.clone()).or_default();
                used.for_each(|part| sum.add(part));
            }
        }
    }
}

impl Default for TenantFigures {
    fn default() -> Self {
        let totals = TenantTotals { seconds: Periods::new(SECONDS, 1), minutes: Periods::new(MINUTES, 60) };
        Self { totals: Mutex::new(totals), tools: RwLock::default() }
    }
}

impl TenantFigures {
    fn add(&self, call: &CallSummary, tools: &AtomicUsize) {
        let second = unix_seconds(call.time);
        self.totals.lock().count(call, second);
        let Some(name) = tool_of(call) else { return };
        if let Some(parts) = self.tools.read().get(name) {
            return parts.lock().at(second).count(call);
        }
        if tools.fetch_add(1, Ordering::Relaxed) >= MAX_TOOLS {
            tools.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut known = self.tools.write();
        let parts = known.entry(name.into()).or_insert_with(|| Mutex::new(Periods::new(PARTS, PART_SECONDS)));
        parts.get_mut().at(second).count(call);
    }

    /// Returns how many tools are left.
    fn evict_idle(&self, second: u64) -> usize {
        let mut tools = self.tools.write();
        tools.retain(|_, parts| parts.lock().until(second).flatten().next().is_some());
        tools.len()
    }
}

impl TenantTotals {
    fn count(&mut self, call: &CallSummary, second: u64) {
        let calls = self.seconds.at(second);
        *calls = calls.saturating_add(1);
        let minute = self.minutes.at(second);
        minute.outcomes.count(call.status);
        if let Some(code) = call.code {
            let count = &mut minute.codes[code as usize];
            *count = count.saturating_add(1);
        }
        if !call.cost_usd.is_zero() {
            minute.cost_usd = minute.cost_usd.saturating_add(call.cost_usd);
        }
        minute.tokens = minute.tokens.saturating_add(call.tokens);
        minute.times.add_executed(call);
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            outcomes: Outcomes::default(),
            codes: [0; ErrorCode::ALL.len()],
            cost_usd: Decimal::ZERO,
            tokens: 0,
            times: Times::default(),
        }
    }
}

impl Totals {
    /// The error codes that occurred, the most frequent first.
    pub fn codes(&self) -> Vec<(ErrorCode, u32)> {
        let counted = ErrorCode::ALL.iter().copied().zip(self.codes);
        let mut counted: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counted
    }

    fn add(&mut self, other: &Self) {
        self.outcomes.add(other.outcomes);
        for (count, more) in self.codes.iter_mut().zip(other.codes) {
            *count = count.saturating_add(more);
        }
        self.cost_usd = self.cost_usd.saturating_add(other.cost_usd);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.times.add_all(&other.times);
    }
}

impl ToolTotals {
    /// Whether its upstream fails at least as often as a call succeeds; `None` where neither was.
    fn fails(&self) -> Option<bool> {
        let (failures, successes) = (u64::from(self.upstream_failures), self.outcomes.of(Status::Success));
        (failures + successes > 0).then_some(failures >= successes)
    }

    fn count(&mut self, call: &CallSummary) {
        self.outcomes.count(call.status);
        if call.blames_upstream() {
            self.upstream_failures = self.upstream_failures.saturating_add(1);
        }
        self.times.add_executed(call);
    }

    fn add(&mut self, other: &Self) {
        self.outcomes.add(other.outcomes);
        self.upstream_failures = self.upstream_failures.saturating_add(other.upstream_failures);
        self.times.add_all(&other.times);
    }
}

impl Outcomes {
    /// All calls.
    pub fn calls(self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    pub fn of(self, status: Status) -> u64 {
        self.0[status as usize].into()
    }

    fn count(&mut self, status: Status) {
        let count = &mut self.0[status as usize];
        *count = count.saturating_add(1);
    }

    fn add(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }
}

/// The tool of a call, if its caller has it: any other name is a text of the caller, or one that it must not learn of.
fn tool_of(call: &CallSummary) -> Option<&str> {
    let has_passed_the_first_stage = call.stages.len() > 1;
    has_passed_the_first_stage.then_some(&*call.tool)
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
