//! What calls came to: how they ended, where and why they were refused, their cost, and how long they took.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::times::Times;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};

/// Calls by a name. Of a newer program it may be one that this one does not know.
type Counts = BTreeMap<Cow<'static, str>, u64>;

/// The sums of some calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallSums {
    #[serde(skip_serializing_if = "Counts::is_empty")]
    statuses: Counts,
    #[serde(skip_serializing_if = "Counts::is_empty")]
    codes: Counts,
    /// Of refused calls.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    stages: Counts,
    /// Calls that failed by the fault of the upstream.
    #[serde(skip_serializing_if = "is_zero")]
    upstream_failures: u64,
    /// USD, exact.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub cost_usd: Decimal,
    pub tokens: u64,
    /// Of calls that were executed.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub times: Times,
}

impl CallSums {
    /// Adds a call, which so many others are alike.
    pub fn add(&mut self, call: &CallSummary, calls: u64) {
        count(&mut self.statuses, Cow::Borrowed(call.status.as_str()), calls);
        if let Some(code) = call.code {
            count(&mut self.codes, Cow::Borrowed(code.as_str()), calls);
        }
        if let Some(stage) = call.stage.filter(|_| call.status == Status::Refused) {
            count(&mut self.stages, Cow::Borrowed(stage.as_str()), calls);
        }
        if call.blames_upstream() {
            self.upstream_failures = self.upstream_failures.saturating_add(calls);
        }
        self.cost_usd = self.cost_usd.saturating_add(call.cost_usd);
        self.tokens = self.tokens.saturating_add(call.tokens);
        self.times.add_executed(call, calls);
    }

    pub fn add_all(&mut self, other: &Self) {
        for (counts, more) in
            [(&mut self.statuses, &other.statuses), (&mut self.codes, &other.codes), (&mut self.stages, &other.stages)]
        {
            more.iter().for_each(|(name, calls)| count(counts, name.clone(), *calls));
        }
        self.upstream_failures = self.upstream_failures.saturating_add(other.upstream_failures);
        self.cost_usd = self.cost_usd.saturating_add(other.cost_usd);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.times.add_all(&other.times);
    }

    /// All calls.
    pub fn calls(&self) -> u64 {
        self.statuses.values().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// The calls that ended so.
    pub fn of(&self, status: Status) -> u64 {
        self.statuses.get(status.as_str()).copied().unwrap_or_default()
    }

    /// Whether the upstream fails at least as often as a call succeeds; `None` where neither was.
    pub(super) fn upstream_fails(&self) -> Option<bool> {
        let (failures, successes) = (self.upstream_failures, self.of(Status::Success));
        (failures > 0 || successes > 0).then_some(failures >= successes)
    }

    /// The calls that a stage refused.
    pub fn refused_at(&self, stage: &str) -> u64 {
        self.stages.get(stage).copied().unwrap_or_default()
    }

    /// The error codes that occurred, the most frequent first.
    pub fn codes(&self) -> Vec<(ErrorCode, u64)> {
        let known = ErrorCode::ALL.iter().filter_map(|code| Some((*code, *self.codes.get(code.as_str())?)));
        let mut counted: Vec<_> = known.collect();
        counted.sort_by_key(|(_, calls)| Reverse(*calls));
        counted
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(calls: &u64) -> bool {
    *calls == 0
}

fn count(counts: &mut Counts, name: Cow<'static, str>, calls: u64) {
    let count = counts.entry(name).or_default();
    *count = count.saturating_add(calls);
}
