//! The rules of `limits.rules`: rates, and calls at once, of chosen calls, for each subject that a rule names. All
//! rules that match a call hold. When several have no call left, the refusal names the one with the longest wait: a
//! caller that waits so long is not refused by another rule.
//!
//! A call takes its slots in the order of the rules, before the slot of its tool, so that no two calls wait for each
//! other. A call made by a running tool never waits, and takes no slot of a rule that names no tools: its parent may
//! hold the last one.

mod admission;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::buckets::Buckets;
use super::rate::used_up;
use super::shared::SharedRates;
use super::{BucketLevel, BucketOwner};
use sekisho_config::{LimitRule, LimitsConfig, RuleSubject};
use sekisho_core::call::{CallContext, Caller, RateState};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::{Lease, NoLease, Share};

/// How long a call that finds no slot should wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The rules in force that limit rates or slots.
#[derive(Debug)]
pub(super) struct Rules {
    current: ArcSwap<RuleSet>,
}

#[derive(Debug, Default)]
struct RuleSet {
    rules: Vec<Arc<Rule>>,
    max_queued: usize,
}

#[derive(Debug)]
struct Rule {
    config: LimitRule,
    name: Arc<str>,
    /// The buckets of a single gateway; replicas count in [`SharedRates`].
    buckets: Option<Arc<Buckets>>,
    /// By subject; only of this process.
    #[expect(clippy::disallowed_types, reason = "slots that calls hold must be found; others go each minute")]
    slots: Arc<dashmap::DashMap<Arc<str>, Arc<Share>>>,
}

/// The rules that match a call, each with a subject for which it counts the call.
#[derive(Debug, Default)]
pub(super) struct RulesOfCall {
    matching: Vec<(Arc<Rule>, Arc<str>)>,
    max_queued: usize,
}

/// The rate of a rule, as it is after a call was taken.
#[derive(Debug, Clone)]
pub(super) struct RuleRate {
    pub(super) rule: Arc<str>,
    pub(super) state: RateState,
}

/// Calls at once of a subject of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSlots {
    pub rule: Arc<str>,
    pub subject: Arc<str>,
    pub running: u64,
}

impl Rules {
    pub(super) fn new(config: &LimitsConfig) -> Self {
        Self { current: ArcSwap::from_pointee(RuleSet::of(config, &RuleSet::default())) }
    }

    /// Calls counted so far stay counted, by the rule of the same name.
    pub(super) fn reconfigure(&self, config: &LimitsConfig) {
        self.current.store(Arc::new(RuleSet::of(config, &self.current.load())));
    }

    /// The rules that match a call.
    pub(super) fn of(&self, caller: &Caller, tool: &str) -> RulesOfCall {
        let set = self.current.load();
        if set.rules.is_empty() {
            return RulesOfCall::default();
        }
        let mut matching = Vec::new();
        for rule in &set.rules {
            let subjects = rule.config.subjects(caller, Some(tool)).into_iter();
            matching.extend(subjects.map(|subject| (Arc::clone(rule), subject)));
        }
        RulesOfCall { matching, max_queued: set.max_queued }
    }

    /// The buckets that are not full.
    pub(super) fn levels(&self, found: &mut Vec<BucketLevel>) {
        for rule in &self.current.load().rules {
            let of_rule = |(subject, state)| {
                let whose = BucketOwner::Rule { rule: Arc::clone(&rule.name), subject };
                BucketLevel { whose, state }
            };
            found.extend(rule.buckets.iter().flat_map(|buckets| buckets.levels()).map(of_rule));
        }
    }

    /// The subjects with running calls.
    pub(super) fn slots(&self) -> Vec<RuleSlots> {
        let mut found = Vec::new();
        for rule in &self.current.load().rules {
            found.extend(rule.slots.iter().filter(|entry| entry.value().used() > 0).map(|entry| RuleSlots {
                rule: Arc::clone(&rule.name),
                subject: Arc::clone(entry.key()),
                running: entry.value().used(),
            }));
        }
        found
    }

    pub(super) fn evict_idle(&self) {
        for rule in &self.current.load().rules {
            if let Some(buckets) = &rule.buckets {
                buckets.evict_idle();
            }
            rule.slots.retain(|_, slots| Arc::strong_count(slots) > 1 || slots.was_seen());
            rule.slots.shrink_to_fit();
        }
    }
}

impl RuleSet {
    fn of(config: &LimitsConfig, before: &Self) -> Self {
        let limiting = config.rules.iter().filter(|rule| rule.rate.is_some() || rule.max_concurrent.is_some());
        let rules = limiting.map(|rule| Arc::new(Rule::new(rule, before))).collect();
        Self { rules, max_queued: config.max_queued as usize }
    }
}

impl Rule {
    fn new(config: &LimitRule, before: &RuleSet) -> Self {
        let same = |known: &&Arc<Self>| known.config.name == config.name && known.config.per == config.per;
        let before = before.rules.iter().find(same);
        // The configuration refuses a rate of zero.
        let rate = config.rate.and_then(NonZeroU32::new);
        let known = before.and_then(|rule| rule.buckets.as_ref());
        let buckets = rate.map(|rate| match known {
            Some(known) if known.per_minute() == rate => Arc::clone(known),
            Some(known) => Arc::new(known.at_rate(rate)),
            None => Arc::new(Buckets::new(rate)),
        });
        let slots = before.map(|rule| Arc::clone(&rule.slots)).unwrap_or_default();
        Self { name: config.name.as_str().into(), config: config.clone(), buckets, slots }
    }

    fn owner(&self, subject: &Arc<str>) -> BucketOwner {
        BucketOwner::Rule { rule: Arc::clone(&self.name), subject: Arc::clone(subject) }
    }

    fn used_up(&self, per_minute: NonZeroU32, wait: Duration, state: RateState) -> CallError {
        let whose = format!("each {} by the rule {}", self.config.per.as_str(), self.name);
        used_up(per_minute, &whose, wait, self.config.per.counts()).with_rate(state).limited_by(&self.name)
    }

    fn slots_of(&self, subject: &Arc<str>, limit: u64) -> Arc<Share> {
        let known = self.slots.get(subject).map(|slots| Arc::clone(&slots));
        let slots = known
            .unwrap_or_else(|| Arc::clone(&self.slots.entry(Arc::clone(subject)).or_insert_with(|| Share::new(limit))));
        if slots.capacity() != limit {
            slots.resize(limit);
        }
        slots
    }

    fn no_slot(&self, limit: u64, reason: &str) -> CallError {
        let (per, name) = (self.config.per.as_str(), &self.name);
        let message =
            format!("the rule {name} lets {limit} calls of each {per} run at once, {reason}; call again in 1 s");
        CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER).limited_by(name)
    }
}

impl RulesOfCall {
    pub(super) fn is_empty(&self) -> bool {
        self.matching.is_empty()
    }

    /// The refusal, or the refusal of a rule with a longer wait.
    pub(super) fn name_longest(&self, refusal: CallError, shared: Option<&SharedRates>) -> CallError {
        match self.longest_wait(shared) {
            Some((wait, error)) if refusal.wait().is_some_and(|own| own < wait) => error,
            _ => refusal,
        }
    }

    /// Takes a call of every rate, or of none. Returns the rate with the fewest calls left, if there is any.
    /// Errors: `rate_limited`, by the rule with the longest wait.
    pub(super) fn take(&self) -> Result<Option<RuleRate>, CallError> {
        if let Some((_, error)) = self.longest_wait(None) {
            return Err(error);
        }
        let mut nearest_to_empty = None;
        for (at, (rule, subject, buckets)) in self.rates().enumerate() {
            // Another call may have been faster since.
            if let Err(wait) = buckets.take(subject) {
                self.rates().take(at).for_each(|(_, subject, buckets)| buckets.give_back(subject));
                return Err(rule.used_up(buckets.per_minute(), wait, buckets.state(subject)));
            }
            keep_nearest(&mut nearest_to_empty, rule, buckets.state(subject));
        }
        Ok(nearest_to_empty)
    }

    /// The same where replicas count rates together.
    /// Errors: as [`take`](Self::take).
    pub(super) async fn take_shared(
        &self,
        shared: &SharedRates,
        until: Instant,
    ) -> Result<Option<RuleRate>, CallError> {
        let (mut nearest_to_empty, mut taken) = (None, Vec::new());
        for (rule, subject, buckets) in self.rates() {
            let (owner, per_minute) = (rule.owner(subject), buckets.per_minute());
            match shared.take(&owner, per_minute, until).await {
                Ok(state) => {
                    keep_nearest(&mut nearest_to_empty, rule, state);
                    taken.push(owner);
                }
                Err((wait, state)) => {
                    taken.iter().for_each(|owner| shared.give_back(owner));
                    return Err(self.name_longest(rule.used_up(per_minute, wait, state), Some(shared)));
                }
            }
        }
        Ok(nearest_to_empty)
    }

    /// Takes a slot of each rule that limits calls at once, after waiting for it if necessary.
    /// Errors: `overloaded` when the queue is full, or no slot came free in time.
    pub(super) async fn enter(&self, call: &CallContext, deadline: Instant) -> Result<Vec<Lease>, CallError> {
        let (mut held, owner) = (Vec::new(), &call.caller.owner);
        for (rule, subject) in &self.matching {
            let Some(limit) = rule.config.max_concurrent.map(u64::from) else { continue };
            let slots = rule.slots_of(subject, limit);
            if call.nesting.depth > 0 {
                if rule.config.matching.tools.is_empty() && rule.config.per != RuleSubject::Tool {
                    continue;
                }
                let reason = "and a call made by a running tool does not wait for a slot";
                held.push(slots.try_acquire(owner, 1).ok_or_else(|| rule.no_slot(limit, reason))?);
                continue;
            }
            let slot = slots.acquire(owner, 1, self.max_queued, deadline).await;
            held.push(slot.map_err(|why| rule.no_slot(limit, reason_of(why)))?);
        }
        Ok(held)
    }

    /// The longest time until a rule has a call again, with its refusal; `None` if each has one.
    fn longest_wait(&self, shared: Option<&SharedRates>) -> Option<(Duration, CallError)> {
        let waits = self.rates().filter_map(|(rule, subject, buckets)| {
            let (wait, state) = match shared {
                Some(shared) => shared.refused_for(&rule.owner(subject))?,
                None => (buckets.wait(subject)?, buckets.state(subject)),
            };
            Some((wait, rule, buckets.per_minute(), state))
        });
        let (wait, rule, per_minute, state) = waits.max_by_key(|(wait, ..)| *wait)?;
        Some((wait, rule.used_up(per_minute, wait, state)))
    }

    fn rates(&self) -> impl Iterator<Item = (&Arc<Rule>, &Arc<str>, &Buckets)> {
        self.matching.iter().filter_map(|(rule, subject)| Some((rule, subject, rule.buckets.as_deref()?)))
    }
}

fn keep_nearest(nearest: &mut Option<RuleRate>, rule: &Rule, state: RateState) {
    if nearest.as_ref().is_none_or(|nearest| state.remaining < nearest.state.remaining) {
        *nearest = Some(RuleRate { rule: Arc::clone(&rule.name), state });
    }
}

fn reason_of(why: NoLease) -> &'static str {
    match why {
        // A call takes one slot, and there is at least one.
        NoLease::QueueFull | NoLease::TooLarge => "and the queue is full",
        NoLease::DeadlinePassed => "and none became free before this call's deadline; the tool has not run",
    }
}

#[cfg(test)]
mod tests;
