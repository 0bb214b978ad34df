//! The rest of the rules of `limits.rules`, as far as a caller may see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Reach, Status};
use sekisho_calls::limits::{BucketLevel, BucketOwner};
use sekisho_config::{LimitRule, RuleSubject};
use sekisho_core::amount::Amount;
use sekisho_core::call::RateState;
use sekisho_core::caller::Caller;

/// Maximum rows.
const MAX_ROWS: usize = 500;

/// The rest of a rule for one of its subjects.
#[derive(Debug, Clone)]
pub struct RuleLevel {
    pub rule: LimitRule,
    /// A key, caller, tenant, tool or role, as the rule says.
    pub subject: String,
    /// The tenant of a key or caller.
    pub tenant: Option<String>,
    /// Where the rule limits a rate.
    pub rate: Option<RateState>,
    /// Calls that run now in this process, where the rule limits them.
    pub running: u64,
    /// Spent and held today, where the rule limits that.
    pub used: Amount,
}

#[derive(Debug, Default)]
struct Used {
    rate: Option<RateState>,
    running: u64,
    amount: Amount,
}

type UsedBy = BTreeMap<Arc<str>, Used>;

impl Status {
    /// The rules that count for this caller, and the subjects with some usage that the caller may see: with a role of
    /// the console the subjects of the tenant, for administrators of the tenant `default` all.
    pub fn rule_levels(&self, caller: &Caller) -> Vec<RuleLevel> {
        let (config, reach) = (self.configuration.current(), self.configuration.reach(caller));
        let mut used = self.used_by_rules();
        let mut levels = Vec::new();
        for rule in &config.limits.rules {
            let mut subjects = used.remove(rule.name.as_str()).unwrap_or_default();
            let own = if rule.is_for(caller) { rule.subjects_of(caller, None) } else { Vec::new() };
            for subject in &own {
                subjects.entry(Arc::clone(subject)).or_default();
            }
            let seen = subjects
                .into_iter()
                .filter(|(subject, _)| own.contains(subject) || self.is_subject_seen(caller, reach, rule, subject));
            levels.extend(seen.map(|(subject, used)| self.level_of(rule, &subject, &used)));
        }
        levels.truncate(MAX_ROWS);
        levels
    }

    /// By the name of the rule.
    fn used_by_rules(&self) -> BTreeMap<Arc<str>, UsedBy> {
        let mut used = BTreeMap::<Arc<str>, UsedBy>::new();
        let limits = &self.pipeline.limits;
        for BucketLevel { whose, state } in limits.levels() {
            if let BucketOwner::Rule { rule, subject } = whose {
                used.entry(rule).or_default().entry(subject).or_default().rate = Some(state);
            }
        }
        for slots in limits.slots_of_rules() {
            used.entry(slots.rule).or_default().entry(slots.subject).or_default().running = slots.running;
        }
        for balance in self.pipeline.budget.rules_of_today() {
            used.entry(balance.rule).or_default().entry(balance.subject).or_default().amount = balance.used;
        }
        used
    }

    fn is_subject_seen(&self, caller: &Caller, reach: Reach, rule: &LimitRule, subject: &str) -> bool {
        match (reach, rule.per) {
            (Reach::AllTenants, _) => true,
            // The tools that a caller may see, all of whose calls count.
            (_, RuleSubject::Tool) => rule.is_for(caller) && self.pipeline.registry.find(subject, caller).is_ok(),
            (Reach::Tenant, _) => self.tenant_of_subject(rule, subject).as_deref() == Some(&caller.tenant),
            (Reach::Own, _) => false,
        }
    }

    fn tenant_of_subject(&self, rule: &LimitRule, subject: &str) -> Option<Arc<str>> {
        match rule.per {
            RuleSubject::Key => {
                let of_managed = self.keys.tenant_of_key(subject);
                Some(of_managed.unwrap_or_else(|| Caller::parts_of_key(subject).0.into()))
            }
            RuleSubject::Caller => Some(Caller::parts_of_key(subject).0.into()),
            RuleSubject::Tenant => Some(subject.into()),
            RuleSubject::Tool | RuleSubject::Role => None,
        }
    }

    fn level_of(&self, rule: &LimitRule, subject: &str, used: &Used) -> RuleLevel {
        let of_caller = matches!(rule.per, RuleSubject::Key | RuleSubject::Caller);
        let tenant = self.tenant_of_subject(rule, subject).filter(|_| of_caller).map(|tenant| tenant.to_string());
        let shown = match rule.per {
            RuleSubject::Key if self.keys.tenant_of_key(subject).is_some() => subject,
            RuleSubject::Key | RuleSubject::Caller => Caller::parts_of_key(subject).1,
            RuleSubject::Tenant | RuleSubject::Tool | RuleSubject::Role => subject,
        };
        let full = |limit| RateState { limit, remaining: limit, reset_seconds: 0 };
        RuleLevel {
            rate: rule.rate.map(|rate| used.rate.unwrap_or_else(|| full(rate))),
            subject: shown.to_owned(),
            tenant,
            running: used.running,
            used: used.amount,
            rule: rule.clone(),
        }
    }
}
