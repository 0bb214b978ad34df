//! May this caller run this tool with these arguments? Rego policies decide, and they fail closed:
//! a rule that errs, takes too long or answers with something odd denies.
//!
//! Policies stand in `package tools`: `deny[msg]` is the set of reasons against the call,
//! `require_approval[msg]` the reasons to ask a human first. What they see is the contract in
//! [`input`]. The tool's own `roles` are checked here, not in Rego, since they are configuration.

mod cache;
pub mod cases;
mod input;
mod load;
mod reads;
mod set;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub use self::load::PolicyFault;

use self::cache::Known;
use self::set::{PolicySet, Verdict};
use crate::call::{Arguments, CallContext, Caller};
use crate::config::PolicyConfig;
use crate::error::{CallError, Detail, ErrorCode};
use crate::registry::{Tool, ValidArguments};

/// The policy set in force, swapped whole on reload.
#[derive(Debug)]
pub struct Policy {
    current: ArcSwap<PolicySet>,
}

/// Proof that a policy set let the call through; holds the arguments until the tool opens it.
#[derive(Debug)]
pub struct Permit {
    arguments: ValidArguments,
    version: Arc<str>,
    cached: bool,
}

impl Permit {
    pub(crate) fn arguments(&self) -> &Arguments {
        self.arguments.as_map()
    }

    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// The decision came from the cache.
    pub fn cached(&self) -> bool {
        self.cached
    }
}

/// What the policies say about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Nothing speaks against the call, and nobody need be asked.
    pub allowed: bool,
    /// Why not: the policies' reasons in alphabetical order, then the tool's own.
    pub denials: Vec<String>,
    /// Why a human must agree first.
    pub approvals: Vec<String>,
    /// Hash of the policy set that decided.
    pub version: Arc<str>,
    pub cached: bool,
    /// Why the policies could not decide, which denies. For operators, not for the caller.
    pub failure: Option<String>,
}

/// What a caller is told when the policies could not decide.
const UNDECIDED: &str = "the policies could not decide about this call, so it is refused; the operators' log says why";

impl Policy {
    /// Compiles the policies of `config.directory`, or the default set.
    ///
    /// # Errors
    /// Everything found that makes the set broken, each with file and line.
    pub fn load(config: &PolicyConfig) -> Result<Self, Vec<PolicyFault>> {
        Ok(Self { current: ArcSwap::from_pointee(load_set(config)?) })
    }

    /// Loads anew and swaps.
    ///
    /// # Errors
    /// As [`Policy::load`]; the set in force stays.
    pub fn reload(&self, config: &PolicyConfig) -> Result<(), Vec<PolicyFault>> {
        self.current.store(Arc::new(load_set(config)?));
        Ok(())
    }

    /// Hash of the set in force (hex, the first 16 digits of its SHA-256).
    pub fn version(&self) -> Arc<str> {
        self.current.load().version.clone()
    }

    /// Lets the call through or says why not.
    ///
    /// # Errors
    /// `denied` with each reason, `approval_required` with each reason.
    pub fn authorize(&self, call: &CallContext, tool: &Tool, arguments: ValidArguments) -> Result<Permit, CallError> {
        let decision = self.decide(call, tool, arguments.as_map());
        if decision.allowed {
            Ok(Permit { arguments, version: decision.version, cached: decision.cached })
        } else {
            Err(refusal(decision))
        }
    }

    /// What the policies say, without acting on it: `authorize` asks this, and so does explain.
    pub fn decide(&self, call: &CallContext, tool: &Tool, arguments: &Arguments) -> Decision {
        let set = self.current.load();
        let known = set.cache.known(tool, &call.caller);
        if let Some(verdict) = known.verdict.get() {
            return Decision::new(verdict.clone(), &set.version, true);
        }
        match evaluate(&set, &known, call, arguments) {
            Ok(mut verdict) => {
                verdict.denials.extend(missing_role(tool, &call.caller));
                if set.reads.only_tool_and_user() {
                    // Whoever was first has decided the same.
                    let _ = known.verdict.set(verdict.clone());
                }
                Decision::new(verdict, &set.version, false)
            }
            Err(failure) => Decision::failed(failure, &set.version),
        }
    }
}

impl Decision {
    fn new(verdict: Verdict, version: &Arc<str>, cached: bool) -> Self {
        let Verdict { denials, approvals } = verdict;
        let allowed = denials.is_empty() && approvals.is_empty();
        Self { allowed, denials, approvals, version: version.clone(), cached, failure: None }
    }

    fn failed(failure: String, version: &Arc<str>) -> Self {
        let verdict = Verdict { denials: vec![UNDECIDED.to_owned()], approvals: Vec::new() };
        Self { failure: Some(failure), ..Self::new(verdict, version, false) }
    }
}

fn load_set(config: &PolicyConfig) -> Result<PolicySet, Vec<PolicyFault>> {
    load::load(config.directory.as_deref(), Duration::from_millis(config.timeout_ms))
}

fn evaluate(set: &PolicySet, known: &Known, call: &CallContext, arguments: &Arguments) -> Result<Verdict, String> {
    set.evaluate(input::complete(&known.subject, call, arguments, set.reads)?)
}

fn missing_role(tool: &Tool, caller: &Caller) -> Option<String> {
    let roles = &tool.metadata.roles;
    let held = roles.is_empty() || roles.iter().any(|role| caller.has_role(role));
    (!held).then(|| format!("{} needs one of these roles: {}", tool.name(), roles.join(", ")))
}

fn refusal(decision: Decision) -> CallError {
    let (code, rule, reasons) = if decision.denials.is_empty() {
        (ErrorCode::ApprovalRequired, "require_approval", decision.approvals)
    } else {
        (ErrorCode::Denied, "deny", decision.denials)
    };
    let message = reasons.join("; ");
    let details =
        reasons.into_iter().map(|reason| Detail { path: "policy".into(), rule: rule.into(), message: reason });
    let error = CallError::new(code, message).with_details(details.collect()).decided_by(decision.version);
    match decision.failure {
        Some(failure) => error.caused_by(failure),
        None => error,
    }
}
