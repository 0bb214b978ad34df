//! Authorizes a caller to run a tool with given arguments. Rego policies decide, and they fail closed: a rule that
//! fails, takes too long or returns an unexpected value denies the call.
//!
//! Policies are in `package tools`: `deny[msg]` is the set of reasons against the call, `require_approval[msg]` the set
//! of reasons why a human must approve it, `mask[path]` the parts of its arguments that an approver does not see. Their
//! input is specified in [`input`]. In `package approvals`, `deny[msg]` is the set of reasons against an approver
//! ([`approvers`]). A tool's own `roles`, `requires_auth` and `dangerous` are checked first, in [`checks`]; rules
//! cannot disable these checks. [`access`] decides for listings, without a call. A service may add reasons
//! ([`external`]).

mod access;
mod approvers;
mod builtins;
mod cache;
pub mod cases;
mod checks;
mod external;
mod fewer;
mod flow;
mod input;
mod load;
mod names;
mod needs_approval;
mod reads;
mod reasons;
pub mod replay;
mod set;
mod shadow;
#[cfg(test)]
mod tests;
mod time_limit;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use regorus::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;

pub use self::access::{Access, CallerTools};
pub use self::approvers::ApproverInput;
pub use self::fewer::FewerRules;
pub use self::load::PolicyError;
pub use self::names::{KnownNames, unknown_names};
pub use self::needs_approval::{Authorized, NeedsApproval};
pub use self::set::PolicyRule;

use self::access::Listings;
use self::cache::Known;
use self::checks::Checks;
use self::external::ExternalPolicy;
use self::reads::Reads;
use self::set::{PolicySet, Verdict};
use self::shadow::Shadow;
use crate::approval::Grant;
use crate::registry::Snapshot;
use crate::tool::{Tool, ValidArguments};
use crate::used_tools::UsedTools;
use sekisho_config::PolicyConfig;
use sekisho_core::call::{Arguments, CallContext, Caller};
use sekisho_core::error::{CallError, Detail, ErrorCode};

/// The active policy set, replaced as a whole on reload.
#[derive(Debug)]
pub struct Policy {
    current: ArcSwap<PolicySet>,
    /// Decides nothing.
    shadow: Shadow,
    external: ExternalPolicy,
    listings: Listings,
    changes: watch::Sender<()>,
}

/// A set that is not active yet, and the one beside it that decides nothing.
#[derive(Debug)]
pub struct LoadedPolicies(PolicySet, Option<PolicySet>);

/// Proof that the checks and a policy set permit the call; holds its arguments until the tool is executed.
#[derive(Debug)]
pub struct Permit {
    arguments: ValidArguments,
    version: Arc<str>,
    cached: bool,
    /// The grant of a call that a person approved.
    grant: Option<Grant>,
}

impl Permit {
    /// The arguments in their sent form.
    pub(crate) fn sent_arguments(&self) -> &Arguments {
        self.arguments.sent()
    }

    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// Whether the decision came from the cache.
    pub fn cached(&self) -> bool {
        self.cached
    }

    /// The approval that lets the call pass, if it needs one.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }
}

/// The decision of the policies about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether there are no reasons to deny the call or to require approval.
    pub allowed: bool,
    /// Reasons to deny the call, in alphabetical order.
    pub denials: Vec<String>,
    /// Reasons why a human must approve the call.
    pub approvals: Vec<String>,
    /// Hash of the policy set that decided.
    pub version: Arc<str>,
    pub cached: bool,
    /// Why the evaluation failed, which denies the call. For operators, not for the caller.
    pub failure: Option<String>,
}

/// The active policy set.
#[derive(Debug, Clone)]
pub struct PolicySummary {
    /// Its hash.
    pub version: Arc<str>,
    pub rules: Vec<PolicyRule>,
    pub dangerous_roles: Vec<String>,
}

/// The reason that a caller gets when the evaluation failed.
const UNDECIDED: &str = "the policies could not be evaluated for this call, so it is refused; the reason is in the log";

impl Policy {
    /// Compiles the policies of `config.directory`, or the default set.
    /// Errors: all errors of the set, each with file and line.
    pub fn load(config: &PolicyConfig) -> Result<Self, Vec<PolicyError>> {
        let LoadedPolicies(set, shadow) = Self::read(config)?;
        let (current, shadow) = (ArcSwap::from_pointee(set), Shadow::new(shadow));
        let external = ExternalPolicy::new(config.external.as_ref());
        Ok(Self { current, shadow, external, listings: Listings::default(), changes: watch::Sender::new(()) })
    }

    /// Loads the policies again and replaces the active set.
    /// Errors: as [`Policy::load`]; the active set does not change.
    pub fn reload(&self, config: &PolicyConfig) -> Result<(), Vec<PolicyError>> {
        self.replace(Self::read(config)?, config);
        Ok(())
    }

    /// Loads the policies, and leaves the active set in force.
    /// Errors: as [`Policy::load`].
    pub fn read(config: &PolicyConfig) -> Result<LoadedPolicies, Vec<PolicyError>> {
        Ok(LoadedPolicies(load_set(config)?, shadow::load(config)?))
    }

    /// The kinds of rules of which a loaded set has fewer than the active one.
    pub fn fewer_rules(&self, loaded: &LoadedPolicies) -> Vec<FewerRules> {
        fewer::fewer(&self.current.load().rules, &loaded.0.rules)
    }

    /// Replaces the active set by one that was loaded with the same configuration.
    pub fn replace(&self, LoadedPolicies(set, shadow): LoadedPolicies, config: &PolicyConfig) {
        self.current.store(Arc::new(set));
        self.shadow.replace(shadow);
        self.external.reconfigure(config.external.as_ref());
        self.changes.send_replace(());
    }

    /// A receiver that is notified when the set is replaced.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Hash of the active set (hex, the first 16 digits of its SHA-256).
    pub fn version(&self) -> Arc<str> {
        self.current.load().version.clone()
    }

    /// The version of the active set, its rules, and the roles that may call dangerous tools.
    pub fn summary(&self) -> PolicySummary {
        let set = self.current.load();
        PolicySummary {
            version: Arc::clone(&set.version),
            rules: set.rules.clone(),
            dangerous_roles: set.checks.dangerous_roles.clone(),
        }
    }

    /// Permits or refuses the call, or says why a person must approve it.
    /// Errors: `unauthenticated` or `denied` from the checks, `denied` from the rules, with all reasons.
    pub fn authorize(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
    ) -> Result<Authorized, CallError> {
        let set = self.current.load();
        pass_checks(&set, tool, &call.caller)?;
        let decision = decide(&set, call, tool, &arguments).with_flow(tool.name(), &arguments);
        self.shadow.compare(&decision, call, tool, &arguments);
        if decision.allowed && !tool.metadata.may_ask_itself() {
            let Decision { version, cached, .. } = decision;
            return Ok(Authorized::Permitted(Permit { arguments, version, cached, grant: None }));
        }
        if decision.denials.is_empty() {
            return Ok(Authorized::NeedsApproval(NeedsApproval::new(&set, call, tool, arguments, decision)?));
        }
        let rules = set.rules_of(&decision.reasons());
        Err(denied(decision).of_rules(rules))
    }

    /// The rules that ask for an approval, as far as they are known; none once other policies are in force.
    pub fn rules_that_asked(&self, needs: &NeedsApproval) -> Vec<String> {
        let set = self.current.load();
        match set.version == *needs.version() {
            true => set.rules_of(&needs.reasons().collect::<Vec<_>>()),
            false => Vec::new(),
        }
    }

    /// JSON Pointers into the arguments of a call: the parts that an approver does not see.
    /// Errors: `denied`: they cannot be evaluated.
    pub fn masks(&self, call: &CallContext, tool: &Tool, arguments: &ValidArguments) -> Result<Vec<String>, CallError> {
        let set = self.current.load();
        evaluate_masks(&set, call, tool, arguments).map_err(|failure| denied(Decision::failed(failure, &set.version)))
    }

    /// Refuses a caller who may make no call of the tool, as far as that is known without a call: by the checks, and by
    /// rules that read no more than tool and user.
    /// Errors: `unauthenticated` or `denied`, as [`authorize`](Self::authorize) refuses each call.
    pub fn check_access(&self, tool: &Tool, caller: &Arc<Caller>) -> Result<(), CallError> {
        let set = self.current.load();
        pass_checks(&set, tool, caller)?;
        match decide_all(&set, &set.cache.known(tool, caller), tool) {
            Some(decision) if !decision.denials.is_empty() => Err(denied(decision)),
            _ => Ok(()),
        }
    }

    /// Whether a rule or the external policy may require approval.
    pub fn asks_approval(&self) -> bool {
        self.current.load().asks_approval || self.asks_external()
    }

    /// Whether a rule or the external policy reads where the arguments of a call come from.
    pub fn reads_flow(&self) -> bool {
        self.current.load().reads.flow || self.shadow.reads_flow() || self.asks_external()
    }

    /// The decision of only the rules, without the checks before them.
    pub fn decide(&self, call: &CallContext, tool: &Tool, arguments: &ValidArguments) -> Decision {
        decide(&self.current.load(), call, tool, arguments)
    }

    /// All that rules may read about a call, as JSON; `None` where it has none.
    pub fn recorded_input(&self, call: &CallContext, tool: &Tool, arguments: &ValidArguments) -> Option<Box<RawValue>> {
        let known = self.current.load().cache.known(tool, &call.caller);
        let input = input_of(&known, call, tool, arguments, Reads::ALL).ok()?;
        to_raw_value(&input).ok()
    }

    /// The tools of a snapshot, with the caller's access to each.
    pub fn tools_for(&self, snapshot: &Arc<Snapshot>, caller: &Arc<Caller>) -> CallerTools {
        self.listings.tools_for(self.current.load_full(), snapshot, caller)
    }

    /// What callers searched for and then called, by which [`CallerTools::search`] ranks.
    pub fn used_tools(&self) -> &UsedTools {
        &self.listings.used
    }
}

fn pass_checks(set: &PolicySet, tool: &Tool, caller: &Caller) -> Result<(), CallError> {
    set.checks.pass(&tool.metadata, caller).map_err(|error| error.decided_by(Arc::clone(&set.version)))
}

fn decide(set: &PolicySet, call: &CallContext, tool: &Tool, arguments: &ValidArguments) -> Decision {
    let known = set.cache.known(tool, &call.caller);
    decide_all(set, &known, tool).unwrap_or_else(|| {
        let input = input_of(&known, call, tool, arguments, set.reads);
        match input.and_then(|input| set.evaluate(&input)) {
            Ok(verdict) => Decision::new(verdict, &set.version, false),
            Err(failure) => Decision::failed(failure, &set.version),
        }
    })
}

/// The input about one call, limited to the fields that the rules read.
/// Errors: arguments that are nested too deeply.
fn input_of(
    known: &Known,
    call: &CallContext,
    tool: &Tool,
    arguments: &ValidArguments,
    reads: Reads,
) -> Result<Value, String> {
    let mut input = input::complete(&known.subject, call, arguments.as_map(), reads)?;
    if reads.flow {
        flow::add_to(&mut input, arguments.judgement().map(|judged| &**judged))?;
    }
    if reads.sent {
        input::add_sent(&mut input, &tool.sent_call(call, arguments.sent()))?;
    }
    Ok(input)
}

/// The decision about every call of the tool by the caller; `None` if some rule reads a field that differs between
/// calls.
fn decide_all(set: &PolicySet, known: &Known, tool: &Tool) -> Option<Decision> {
    if let Some(verdict) = known.verdict.get() {
        return Some(Decision::new(verdict.clone(), &set.version, true));
    }
    set.reads.same_for_all_calls_of(tool.metadata.kind).then(|| match set.evaluate(&known.subject) {
        Ok(verdict) => {
            // A concurrent call may have set it first, with the same decision.
            let _ = known.verdict.set(verdict.clone());
            Decision::new(verdict, &set.version, false)
        }
        Err(failure) => Decision::failed(failure, &set.version),
    })
}

impl Decision {
    fn new(verdict: Verdict, version: &Arc<str>, cached: bool) -> Self {
        let Verdict { denials, approvals } = verdict;
        let allowed = denials.is_empty() && approvals.is_empty();
        Self { allowed, denials, approvals, version: version.clone(), cached, failure: None }
    }

    /// The refusal, or the request for approval.
    pub fn reasons(&self) -> Vec<&str> {
        self.denials.iter().chain(&self.approvals).map(String::as_str).collect()
    }

    fn failed(failure: String, version: &Arc<str>) -> Self {
        let verdict = Verdict { denials: vec![UNDECIDED.to_owned()], approvals: Vec::new() };
        Self { failure: Some(failure), ..Self::new(verdict, version, false) }
    }
}

fn load_set(config: &PolicyConfig) -> Result<PolicySet, Vec<PolicyError>> {
    let checks = Checks { dangerous_roles: config.dangerous_roles.clone() };
    load::load(config.directory.as_deref(), Duration::from_millis(config.timeout_ms), checks)
}

/// The paths of the arguments that an approver does not see.
fn evaluate_masks(
    set: &PolicySet,
    call: &CallContext,
    tool: &Tool,
    arguments: &ValidArguments,
) -> Result<Vec<String>, String> {
    if !set.masks {
        return Ok(Vec::new());
    }
    let known = set.cache.known(tool, &call.caller);
    set.masked_paths(&input_of(&known, call, tool, arguments, set.reads)?)
}

fn denied(decision: Decision) -> CallError {
    let error = refusal(ErrorCode::Denied, "deny", decision.denials).decided_by(decision.version);
    match decision.failure {
        Some(failure) => error.caused_by(failure),
        None => error,
    }
}

fn refusal(code: ErrorCode, rule: &str, reasons: Vec<String>) -> CallError {
    let message = reasons.join("; ");
    let details = reasons.into_iter().map(|message| Detail { path: "policy".into(), rule: rule.into(), message });
    CallError::new(code, message).with_details(details.collect())
}
