//! Tries a changed configuration on calls of the index: which of them it would refuse, and which it would find. The index has neither the
//! roles of callers nor arguments, so that the effect of some settings is not known.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use sekisho_config::{Config, LimitsConfig, ToolOverride};
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};
use sekisho_store::IndexedCall;

/// The latest calls on which a change is tried.
pub(super) const TRIED_CALLS: usize = 2_000;

/// Maximum groups of calls that are named.
const MAX_GROUPS: usize = 50;

/// A change tried on the latest calls of the index.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChangeTrial {
    /// Calls on which it was tried.
    pub calls: u64,
    /// When the first of them ended; RFC 3339.
    pub since: Option<String>,
    /// Calls that were not refused, and would be. A rate is replayed from full buckets.
    pub refused_calls: u64,
    /// The largest groups of them.
    pub refused: Vec<TriedCalls>,
    /// Calls of a tool that was hidden, and would be found.
    pub found_calls: u64,
    /// The largest groups of them.
    pub found: Vec<TriedCalls>,
    /// Changed settings whose effect on calls the index does not tell.
    pub not_known: Vec<String>,
}

/// Calls of a caller with a tool that a setting decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TriedCalls {
    pub setting: String,
    pub tool: String,
    pub tenant: String,
    pub caller: String,
    pub calls: u64,
    /// The id of the first one.
    pub call_id: String,
}

/// A bucket of a rate.
#[derive(Debug)]
struct Bucket {
    calls: f64,
    at: SystemTime,
}

#[derive(Debug)]
struct Trial<'a> {
    before: &'a Config,
    after: &'a Config,
    /// By setting and whose calls it counts.
    buckets: BTreeMap<(String, String), Bucket>,
}

/// Tries the change from one configuration to another one.
pub(super) fn try_on(calls: &[IndexedCall], before: &Config, after: &Config) -> ChangeTrial {
    let mut trial = Trial { before, after, buckets: BTreeMap::new() };
    let mut arrived: Vec<_> = calls.iter().map(|found| (arrival(&found.call), found)).collect();
    arrived.sort_by_key(|(at, _)| *at);
    let (mut refused, mut found) = (BTreeMap::new(), BTreeMap::new());
    for (at, entry) in arrived {
        let is_unknown = entry.call.code == Some(ErrorCode::UnknownTool);
        let (groups, setting) = match is_unknown {
            true => (&mut found, trial.finds(&entry.call)),
            false => (&mut refused, trial.refuses(&entry.call, at)),
        };
        if let Some(setting) = setting {
            add(groups, setting, entry);
        }
    }
    let (refused_calls, refused) = largest(refused);
    let (found_calls, found) = largest(found);
    let first = calls.iter().map(|found| found.call.time).min();
    let since = first.and_then(|time| Timestamp::try_from(time).ok()).map(|time| time.to_string());
    let calls = calls.iter().map(|found| found.calls).sum();
    ChangeTrial { calls, since, refused_calls, refused, found_calls, found, not_known: not_known(before, after) }
}

fn arrival(call: &CallSummary) -> SystemTime {
    call.time.checked_sub(call.duration).unwrap_or(call.time)
}

/// By setting, tool and whose calls they are.
type Groups = BTreeMap<[String; 4], TriedCalls>;

fn add(groups: &mut Groups, setting: String, found: &IndexedCall) {
    let call = &found.call;
    let [tool, tenant, caller] = [&call.tool, &call.tenant, &call.caller].map(ToString::to_string);
    let key = [setting.clone(), tool.clone(), tenant.clone(), caller.clone()];
    let call_id = call.id.to_string();
    let group = groups.entry(key).or_insert(TriedCalls { setting, tool, tenant, caller, calls: 0, call_id });
    group.calls += found.calls;
}

fn largest(groups: Groups) -> (u64, Vec<TriedCalls>) {
    let mut groups: Vec<_> = groups.into_values().collect();
    let all = groups.iter().map(|group| group.calls).sum();
    groups.sort_by_key(|group| std::cmp::Reverse(group.calls));
    groups.truncate(MAX_GROUPS);
    (all, groups)
}

/// The name of a tool that callers see under this one, and its override.
fn override_of<'a>(config: &'a Config, offered: &'a str) -> (&'a str, Option<&'a ToolOverride>) {
    let renamed = config.tools.overrides.iter().find(|(_, changes)| changes.rename.as_deref() == Some(offered));
    match renamed {
        Some((name, changes)) => (name, Some(changes)),
        None => (offered, config.tools.overrides.get(offered)),
    }
}

fn is_hidden(changes: Option<&ToolOverride>) -> bool {
    changes.is_some_and(|changes| changes.hidden == Some(true))
}

/// Whether a limit is lower than before, or new.
fn is_lower(before: Option<u32>, after: Option<u32>) -> bool {
    after.is_some_and(|after| before.is_none_or(|before| after < before))
}

impl Trial<'_> {
    /// The setting by which a tool that was not found would be.
    fn finds(&self, call: &CallSummary) -> Option<String> {
        let (name, after) = override_of(self.after, &call.tool);
        let was_hidden = is_hidden(self.before.tools.overrides.get(name));
        (was_hidden && !is_hidden(after)).then(|| format!("tools.overrides.{name}.hidden"))
    }

    /// The setting by which a call that was not refused would be.
    fn refuses(&mut self, call: &CallSummary, at: SystemTime) -> Option<String> {
        if call.status == Status::Refused {
            return None;
        }
        let (name, before) = override_of(self.before, &call.tool);
        let (before, after) = (before.cloned().unwrap_or_default(), self.after.tools.overrides.get(name).cloned());
        let after = after.unwrap_or_default();
        let setting = |key: &str| Some(format!("tools.overrides.{name}.{key}"));
        if after.hidden == Some(true) {
            return setting("hidden");
        }
        if after.rename.as_deref().unwrap_or(name) != &*call.tool {
            return setting("rename");
        }
        if after.requires_auth == Some(true) && before.requires_auth != Some(true) && call.anonymous {
            return setting("requires_auth");
        }
        let is_late = |seconds: u32| call.duration > Duration::from_secs(seconds.into());
        if is_lower(before.timeout_seconds, after.timeout_seconds) && after.timeout_seconds.is_some_and(is_late) {
            return setting("timeout_seconds");
        }
        let (was, is, caller) = (&self.before.limits, &self.after.limits, call.owner.caller.to_string());
        let rates = [
            (
                "limits.tenant_rate_limit".to_owned(),
                was.tenant_rate_limit,
                is.tenant_rate_limit,
                call.tenant.to_string(),
            ),
            ("limits.caller_rate_limit".to_owned(), was.caller_rate_limit, is.caller_rate_limit, caller.clone()),
            (format!("tools.overrides.{name}.rate_limit"), before.rate_limit, after.rate_limit, caller),
        ];
        let lower = rates.into_iter().filter(|(_, before, after, _)| is_lower(*before, *after));
        let mut full = lower.filter(|(setting, _, rate, whose)| !self.take(setting, whose, rate.unwrap_or(0), at));
        full.next().map(|(setting, ..)| setting)
    }

    /// Takes a call from a bucket that holds a minute's calls, unless it is empty.
    fn take(&mut self, setting: &str, whose: &str, rate: u32, at: SystemTime) -> bool {
        let rate = f64::from(rate);
        let key = (setting.to_owned(), whose.to_owned());
        let bucket = self.buckets.entry(key).or_insert(Bucket { calls: rate, at });
        let passed = at.duration_since(bucket.at).unwrap_or_default().as_secs_f64();
        bucket.calls = (bucket.calls + passed * rate / 60.0).min(rate);
        bucket.at = at;
        let is_taken = bucket.calls >= 1.0;
        if is_taken {
            bucket.calls -= 1.0;
        }
        is_taken
    }
}

/// The changed settings that a trial leaves out.
fn not_known(before: &Config, after: &Config) -> Vec<String> {
    let (was, is) = (&before.limits, &after.limits);
    let (tenant_rate_limit, caller_rate_limit) = (was.tenant_rate_limit, was.caller_rate_limit);
    let limits = LimitsConfig { tenant_rate_limit, caller_rate_limit, ..is.clone() };
    let is_raised = |before: Option<u32>, after: Option<u32>| before != after && !is_lower(before, after);
    let topics = [
        ("breaker", before.breaker != after.breaker),
        ("budget", before.budget != after.budget),
        ("console.roles", before.console != after.console),
        ("execution", before.execution != after.execution),
        ("limits", limits != *was),
        ("limits.caller_rate_limit", is_raised(caller_rate_limit, is.caller_rate_limit)),
        ("limits.tenant_rate_limit", is_raised(tenant_rate_limit, is.tenant_rate_limit)),
        ("mcp.endpoints", before.mcp.endpoints != after.mcp.endpoints),
        ("tenants", before.tenants != after.tenants),
        ("tools.guards.rules", before.tools.guards.rules != after.tools.guards.rules),
        ("tools.transform", before.tools.transform != after.tools.transform),
    ];
    let topics = topics.into_iter().filter(|(_, is_changed)| *is_changed).map(|(topic, _)| topic.to_owned());
    let (was, is) = (&before.tools.overrides, &after.tools.overrides);
    let names: std::collections::BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let default = ToolOverride::default();
    let overrides = names.into_iter().filter(|name| {
        let (was, is) = (was.get(*name).unwrap_or(&default), is.get(*name).unwrap_or(&default));
        is_raised(was.rate_limit, is.rate_limit) || without_tried(is) != without_tried(was)
    });
    topics.chain(overrides.map(|name| format!("tools.overrides.{name}"))).collect()
}

/// An override without the settings that are tried, and without texts.
fn without_tried(changes: &ToolOverride) -> ToolOverride {
    ToolOverride {
        hidden: None,
        rename: None,
        description: None,
        rate_limit: None,
        requires_auth: None,
        timeout_seconds: None,
        ..changes.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sekisho_config::{ConfigPatch, Environment};
    use sekisho_core::call::{CallContext, Via};
    use sekisho_core::caller::Caller;
    use sekisho_core::error::CallError;
    use serde_json::{Value, json};

    /// A call that ended so many seconds after the first moment.
    fn ended(tool: &str, caller: &Arc<Caller>, second: u64, error: Option<&CallError>) -> IndexedCall {
        let context = CallContext::new(tool, Arc::clone(caller), Via::Rest);
        let call = CallSummary::new(&context, None, error, String::new());
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let call = CallSummary { time, tool: tool.into(), duration: Duration::from_millis(1), ..call };
        IndexedCall { call: Arc::new(call), calls: 1 }
    }

    fn trial(calls: &[IndexedCall], patch: Value) -> ChangeTrial {
        let before = Config::load(None, &Environment::default()).unwrap();
        let hidden = ConfigPatch::new(json!({"tools": {"overrides": {"web_fetch": {"hidden": true}}}})).unwrap();
        let after = before.with_changes(&[hidden.clone(), ConfigPatch::new(patch).unwrap()]).unwrap();
        try_on(calls, &before.with_changes(&[hidden]).unwrap(), &after)
    }

    #[test]
    fn a_change_is_tried_on_calls_as_far_as_the_index_tells() {
        let (ann, anybody) = (Arc::new(Caller::new("ann", "acme", Vec::new())), Arc::new(Caller::anonymous()));
        let unknown = CallError::new(ErrorCode::UnknownTool, "no such tool");
        let mut calls: Vec<_> = [0, 1, 2, 40].map(|second| ended("calculator", &ann, second, None)).into();
        calls.push(ended("calculator", &anybody, 3, None));
        calls.push(ended("web_fetch", &ann, 4, Some(&unknown)));
        let of = |patch| {
            let trial = trial(&calls, patch);
            let shown = |groups: Vec<TriedCalls>| {
                groups.into_iter().map(|group| format!("{} {} {}", group.setting, group.caller, group.calls)).collect()
            };
            let (refused, found): (Vec<String>, Vec<String>) = (shown(trial.refused), shown(trial.found));
            assert_eq!((trial.calls, trial.since.as_deref()), (6, Some("1970-01-01T00:00:00Z")));
            (refused, found, trial.not_known)
        };
        let calculator = |member: Value| json!({"tools": {"overrides": {"calculator": member}}});
        let none = Vec::<String>::new;
        for (patch, refused, not_known) in [
            (json!({"limits": {"caller_rate_limit": 2}}), vec!["limits.caller_rate_limit ann 1"], vec![]),
            (calculator(json!({"rate_limit": 1})), vec!["tools.overrides.calculator.rate_limit ann 3"], vec![]),
            (
                calculator(json!({"requires_auth": true})),
                vec!["tools.overrides.calculator.requires_auth anonymous 1"],
                vec![],
            ),
            (calculator(json!({"timeout_seconds": 1})), vec![], vec![]),
            (calculator(json!({"roles": ["a"]})), vec![], vec!["tools.overrides.calculator"]),
            (json!({"budget": {"max_tokens_per_request": 5000}}), vec![], vec!["budget"]),
        ] {
            let expected = refused.into_iter().map(str::to_owned).collect::<Vec<_>>();
            let not_known = not_known.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(of(patch.clone()), (expected, none(), not_known), "{patch}");
        }
        let hidden = of(calculator(json!({"hidden": true})));
        assert_eq!(
            hidden.0,
            ["tools.overrides.calculator.hidden ann 4", "tools.overrides.calculator.hidden anonymous 1"]
        );
        let shown = of(json!({"tools": {"overrides": {"web_fetch": null}}}));
        assert_eq!((shown.0, shown.1), (none(), vec!["tools.overrides.web_fetch.hidden ann 1".to_owned()]));
    }
}
