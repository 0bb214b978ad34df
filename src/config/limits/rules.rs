//! `limits.rules`: limits for chosen calls, counted for each key, caller, tenant, tool or role.

use std::collections::BTreeSet;
use std::sync::Arc;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::check::Findings;
use crate::schema::Money;
use sekisho_core::call::Caller;
use sekisho_core::record::CountedCalls;
use sekisho_core::tool_scope::matches;

/// Maximum rules: each is looked at by every call.
const MAX_RULES: usize = 100;

/// Limits for the calls that it matches. All rules that match a call hold, beside all other limits: a rule allows nothing that
/// another limit refuses.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRule {
    /// In refusals and receipts: letters, digits, `_` and `-`.
    pub name: String,
    /// The calls that it is for.
    #[serde(default, rename = "match")]
    pub matching: RuleMatch,
    /// For whom calls are counted together.
    pub per: RuleSubject,
    /// Calls a minute.
    #[serde(default)]
    pub rate: Option<u32>,
    /// Calls running at once; further ones wait, `limits.max_queued` at most.
    #[serde(default)]
    pub max_concurrent: Option<u32>,
    /// USD of a day (UTC). Models' turns of agents count too, where the rule names no tools.
    #[serde(default)]
    #[schemars(with = "Option<Money>")]
    pub cost_per_day: Option<Decimal>,
    /// Tokens of tools' answers on a day (UTC). Models' turns of agents count too, where the rule names no tools.
    #[serde(default)]
    pub tokens_per_day: Option<u64>,
}

/// Which calls a rule is for: those that fit each list that is not empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RuleMatch {
    /// Names of tools; a final `*` matches any rest.
    pub tools: Vec<String>,
    /// Ids of callers.
    pub callers: Vec<String>,
    pub tenants: Vec<String>,
    /// Of which the caller has one.
    pub roles: Vec<String>,
    /// Ids of managed keys.
    pub keys: Vec<String>,
}

/// For whom calls are counted together.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    ToSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RuleSubject {
    /// Each managed key; a caller without one counts as a key.
    Key,
    /// Each caller, with all their keys.
    Caller,
    Tenant,
    /// Each tool, for all callers together.
    Tool,
    /// Each role of the caller, of `match.roles` if that is set, for all who have it together.
    Role,
}

sekisho_core::as_str!(RuleSubject);

impl RuleSubject {
    /// The calls that a rule counts together.
    pub fn counts(self) -> CountedCalls {
        match self {
            Self::Key => CountedCalls::Key,
            Self::Caller => CountedCalls::Caller,
            Self::Tenant => CountedCalls::Tenant,
            Self::Tool => CountedCalls::Tool,
            Self::Role => CountedCalls::Role,
        }
    }
}

impl LimitRule {
    /// The subjects for whom a call is counted; empty if the rule is not for the call. `tool`: `None` for a model's
    /// turn.
    pub fn subjects(&self, caller: &Caller, tool: Option<&str>) -> Vec<Arc<str>> {
        match self.is_for(caller) && self.is_for_tool(tool) {
            true => self.subjects_of(caller, tool),
            false => Vec::new(),
        }
    }

    /// Whether it is for calls of this caller, of whatever tool.
    pub fn is_for(&self, caller: &Caller) -> bool {
        let RuleMatch { tools: _, callers, tenants, roles, keys } = &self.matching;
        let fits = |list: &[String], value: &str| list.is_empty() || list.iter().any(|entry| entry == value);
        fits(callers, &caller.id)
            && fits(tenants, &caller.tenant)
            && (roles.is_empty() || caller.has_one_of(roles))
            && fits(keys, caller.key_id.as_deref().unwrap_or_default())
    }

    /// Whether it is for calls of this tool; a rule that names tools is not for models.
    pub fn is_for_tool(&self, tool: Option<&str>) -> bool {
        let patterns = &self.matching.tools;
        patterns.is_empty() || tool.is_some_and(|tool| patterns.iter().any(|pattern| matches(pattern, tool)))
    }

    /// The subjects for whom calls of this caller are counted.
    pub fn subjects_of(&self, caller: &Caller, tool: Option<&str>) -> Vec<Arc<str>> {
        let roles = &self.matching.roles;
        match self.per {
            RuleSubject::Key => vec![Arc::clone(caller.key_id.as_ref().unwrap_or(&caller.key))],
            RuleSubject::Caller => vec![Arc::clone(&caller.key)],
            RuleSubject::Tenant => vec![Arc::clone(&caller.tenant)],
            RuleSubject::Tool => tool.map(Arc::from).into_iter().collect(),
            RuleSubject::Role => {
                let counted = caller.roles.iter().filter(|role| roles.is_empty() || roles.contains(role));
                counted.map(|role| Arc::from(role.as_str())).collect::<BTreeSet<_>>().into_iter().collect()
            }
        }
    }

    /// Whether it limits the use of a day.
    pub fn limits_days(&self) -> bool {
        self.cost_per_day.is_some() || self.tokens_per_day.is_some()
    }

    fn check(&self, setting: &str, findings: &mut Findings) {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if self.name.is_empty() || self.name.len() > 64 || !is_name(&self.name) {
            findings.add(format!("{setting}.name"), "is no name", "use up to 64 letters, digits, `_` and `-`");
        }
        if self.rate.is_none() && self.max_concurrent.is_none() && !self.limits_days() {
            let advice = "set `rate`, `max_concurrent`, `cost_per_day` or `tokens_per_day`";
            findings.add(setting, "limits nothing", advice);
        }
        findings.above_zero_or_none(&format!("{setting}.rate"), self.rate);
        findings.above_zero_or_none(&format!("{setting}.max_concurrent"), self.max_concurrent);
        findings.above_zero_or_none(&format!("{setting}.tokens_per_day"), self.tokens_per_day);
        if self.cost_per_day.is_some_and(|cost| cost <= Decimal::ZERO) {
            findings.add(format!("{setting}.cost_per_day"), "must be above zero", "for no limit, omit the setting");
        }
        let RuleMatch { tools, callers, tenants, roles, keys } = &self.matching;
        for (list, values) in
            [("tools", tools), ("callers", callers), ("tenants", tenants), ("roles", roles), ("keys", keys)]
        {
            findings.names(&format!("{setting}.match.{list}"), values);
        }
        let has_inner_star = |pattern: &String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        if tools.iter().any(has_inner_star) {
            findings.add(format!("{setting}.match.tools"), "has a `*` that is not at the end", "write `crm__*`");
        }
    }
}

pub(super) fn check(rules: &[LimitRule], findings: &mut Findings) {
    if rules.len() > MAX_RULES {
        findings.add("limits.rules", format!("has more than {MAX_RULES} rules"), "match several tools by one rule");
    }
    let mut names = BTreeSet::new();
    for (index, rule) in rules.iter().enumerate() {
        let setting = format!("limits.rules[{index}]");
        rule.check(&setting, findings);
        if !names.insert(&rule.name) {
            findings.add(format!("{setting}.name"), "is a duplicate", "give each rule its own name");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::tool_scope::ToolScope;

    fn rule(per: RuleSubject, matching: RuleMatch) -> LimitRule {
        let (name, rate) = ("r".to_owned(), Some(1));
        LimitRule { name, matching, per, rate, max_concurrent: None, cost_per_day: None, tokens_per_day: None }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn subjects(rule: &LimitRule, caller: &Caller, tool: Option<&str>) -> Vec<String> {
        rule.subjects(caller, tool).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rule_is_for_calls_that_fit_each_of_its_lists() {
        let ann = Caller::new("ann", "acme", texts(&["operator", "auditor"]));
        let with_key = ann.clone().with_managed_key("k1".into(), ToolScope::default());
        let all = RuleMatch::default();
        for (matching, caller, tool, fits) in [
            (all.clone(), &ann, Some("crm__find"), true),
            (all.clone(), &ann, None, true),
            (RuleMatch { tools: texts(&["crm__*"]), ..all.clone() }, &ann, Some("crm__find"), true),
            (RuleMatch { tools: texts(&["crm__*"]), ..all.clone() }, &ann, Some("crm"), false),
            (RuleMatch { tools: texts(&["crm__*"]), ..all.clone() }, &ann, None, false),
            (RuleMatch { callers: texts(&["bob", "ann"]), ..all.clone() }, &ann, None, true),
            (RuleMatch { callers: texts(&["bob"]), ..all.clone() }, &ann, None, false),
            (RuleMatch { tenants: texts(&["globex"]), ..all.clone() }, &ann, None, false),
            (RuleMatch { roles: texts(&["admin", "auditor"]), ..all.clone() }, &ann, None, true),
            (RuleMatch { roles: texts(&["admin"]), ..all.clone() }, &ann, None, false),
            (RuleMatch { keys: texts(&["k1"]), ..all.clone() }, &ann, None, false),
            (RuleMatch { keys: texts(&["k1"]), ..all }, &with_key, None, true),
        ] {
            let rule = rule(RuleSubject::Tenant, matching);
            assert_eq!(!rule.subjects(caller, tool).is_empty(), fits, "{rule:?} {tool:?}");
        }
    }

    #[test]
    fn calls_are_counted_for_whom_the_rule_says() {
        let ann = Caller::new("ann", "acme", texts(&["operator", "auditor", "operator"]));
        let with_key = ann.clone().with_managed_key("k1".into(), ToolScope::default());
        let per = |per| rule(per, RuleMatch::default());
        assert_eq!(subjects(&per(RuleSubject::Key), &with_key, Some("t")), ["k1"]);
        assert_eq!(subjects(&per(RuleSubject::Key), &ann, Some("t")), [&*ann.key]);
        assert_eq!(subjects(&per(RuleSubject::Caller), &with_key, Some("t")), [&*ann.key]);
        assert_eq!(subjects(&per(RuleSubject::Tenant), &ann, Some("t")), ["acme"]);
        assert_eq!(subjects(&per(RuleSubject::Tool), &ann, Some("t")), ["t"]);
        assert!(subjects(&per(RuleSubject::Tool), &ann, None).is_empty());
        assert_eq!(subjects(&per(RuleSubject::Role), &ann, Some("t")), ["auditor", "operator"]);
        let of_auditors = rule(RuleSubject::Role, RuleMatch { roles: texts(&["auditor"]), ..RuleMatch::default() });
        assert_eq!(subjects(&of_auditors, &ann, Some("t")), ["auditor"]);
    }
}
