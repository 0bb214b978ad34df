//! One compiled policy set: immutable, evaluated by many calls concurrently.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use serde::Serialize;
use utoipa::ToSchema;

use super::cache::Cache;
use super::checks::Checks;
use super::reads::Reads;
use super::reasons::Reasons;
use super::time_limit::{MachineClocks, limited};
use sekisho_core::record::MAX_REASON;

/// Reasons of a decision whose rules are looked for: a rule may give one for each part of the arguments.
const MAX_REASONS: usize = 16;

pub(super) struct PolicySet {
    /// Prepared; cloned for each evaluation, which shares everything compiled.
    pub(super) engine: Engine,
    pub(super) version: Arc<str>,
    /// The rules that decide, in the order of their files.
    pub(super) rules: Vec<PolicyRule>,
    /// The reasons that these rules give, one by one.
    pub(super) reasons: Vec<Reasons>,
    /// The checks made before any rule is evaluated.
    pub(super) checks: Checks,
    pub(super) reads: Reads,
    /// The paths of its input that rules about calls read, as far as they are spelled out.
    pub(super) input_paths: BTreeSet<Vec<String>>,
    /// Whether any rule reads anything of its input.
    pub(super) reads_input: bool,
    /// Whether the set has a rule `require_approval`.
    pub(super) asks_approval: bool,
    /// Whether it has a rule `mask`.
    pub(super) masks: bool,
    /// Whether it has a rule `deny` in `package approvals`.
    pub(super) checks_approvers: bool,
    /// An evaluation that takes more processor time denies.
    pub(super) timeout: Duration,
    pub(super) cache: Cache,
}

/// A rule that decides about calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PolicyRule {
    /// `deny`, `require_approval` or `mask`, or `approvals.deny`.
    pub name: String,
    /// Its file within the set.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

/// The result of the rules: reasons to deny the call, and reasons to require approval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) denials: Vec<String>,
    pub(super) approvals: Vec<String>,
}

pub(super) const DENY: &str = "data.tools.deny";
pub(super) const REQUIRE_APPROVAL: &str = "data.tools.require_approval";
pub(super) const MASK: &str = "data.tools.mask";
pub(super) const APPROVER_DENY: &str = "data.approvals.deny";

/// Number of statements between two checks of the clock.
const STATEMENTS_PER_CLOCK_READ: NonZeroU32 = NonZeroU32::new(32).unwrap();

impl PolicySet {
    /// Evaluates both rule sets for `input`.
    ///
    /// Uses the interpreter, not regorus' virtual machine, which treats an error inside a rule's body as
    /// "the rule does not apply". For `deny` this would mean "allowed".
    /// Errors: a rule failed, took too long, or is not a set of strings.
    pub(super) fn evaluate(&self, input: &Value) -> Result<Verdict, String> {
        self.guarded(|real_time| self.ask_all(input.clone(), real_time))
    }

    /// The parts of the arguments that an approver does not see, as JSON Pointers.
    /// Errors: as [`evaluate`](Self::evaluate).
    pub(super) fn masked_paths(&self, input: &Value) -> Result<Vec<String>, String> {
        self.guarded(|real_time| self.ask_one(MASK, input.clone(), real_time))
    }

    /// The reasons against an approver.
    /// Errors: as [`evaluate`](Self::evaluate).
    pub(super) fn approver_denials(&self, input: &Value) -> Result<Vec<String>, String> {
        self.guarded(|real_time| self.ask_one(APPROVER_DENY, input.clone(), real_time))
    }

    /// Evaluates within the time limit. Some of regorus' builtins panic on arguments that a caller can choose. An evaluation shares
    /// no mutable state, so the panic can be caught.
    fn guarded<T>(&self, evaluation: impl Fn(Duration) -> Result<T, String>) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(|| limited(self.timeout, &MachineClocks::start(), evaluation)))
            .unwrap_or_else(|_| Err("a rule called a builtin that panicked on these arguments".to_owned()))
    }

    /// The rules that give these reasons, as far as their texts say so: each with its name, file and line.
    pub(super) fn rules_of(&self, reasons: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for reason in reasons.iter().filter(|reason| reason.len() <= MAX_REASON).take(MAX_REASONS) {
            let fits: Vec<_> = self.reasons.iter().map(|texts| texts.fit(reason)).collect();
            let best = fits.iter().copied().max().unwrap_or_default();
            let rules = self.rules.iter().zip(fits).filter(|(_, fit)| *fit > 0 && *fit == best);
            for (PolicyRule { name, file, line }, _) in rules {
                let rule = format!("{name} {file}:{line}");
                if !found.contains(&rule) {
                    found.push(rule);
                }
            }
        }
        found
    }

    fn ask_one(&self, rule: &str, input: Value, real_time: Duration) -> Result<Vec<String>, String> {
        let mut engine = self.engine.clone();
        engine.set_input(input);
        ask(&mut engine, rule, real_time)
    }

    fn ask_all(&self, input: Value, real_time: Duration) -> Result<Verdict, String> {
        let started = Instant::now();
        let mut engine = self.engine.clone();
        engine.set_input(input);
        let denials = ask(&mut engine, DENY, real_time)?;
        let left = real_time.saturating_sub(started.elapsed());
        let approvals = if self.asks_approval { ask(&mut engine, REQUIRE_APPROVAL, left)? } else { Vec::new() };
        Ok(Verdict { denials, approvals })
    }
}

sekisho_core::debug_fields!(PolicySet { version, reads });

/// Evaluates one rule, and stops after `limit` of real time.
fn ask(engine: &mut Engine, rule: &str, limit: Duration) -> Result<Vec<String>, String> {
    engine.set_execution_timer_config(ExecutionTimerConfig { limit, check_interval: STATEMENTS_PER_CLOCK_READ });
    let value = engine.eval_rule(rule.to_owned()).map_err(|error| format!("{rule}: {error}"))?;
    reasons(&value).ok_or_else(|| format!("{rule} is {}, not a set of strings", described(&value)))
}

/// The strings of a set, in order; `None` when it is anything else.
fn reasons(value: &Value) -> Option<Vec<String>> {
    let Value::Set(set) = value else { return None };
    set.iter_sorted()
        .map(|reason| match reason {
            Value::String(text) => Some(text.as_ref().to_owned()),
            _ => None,
        })
        .collect()
}

fn described(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Set(_) => "a set with other values than strings",
        Value::Object(_) => "an object",
        Value::Undefined => "undefined",
    }
}
