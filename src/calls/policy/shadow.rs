//! A set beside the active one (`policy.shadow`): where its decision about a call differs, that is counted and logged. It decides
//! nothing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::load::{self, PolicyError};
use super::set::PolicySet;
use super::{Checks, Decision, Policy, decide};
use crate::tool::{Tool, ValidArguments};
use sekisho_config::PolicyConfig;
use sekisho_core::call::CallContext;
use sekisho_observe::metrics::Metrics;

#[derive(Debug)]
pub(super) struct Shadow {
    set: ArcSwapOption<PolicySet>,
    metrics: OnceLock<Arc<Metrics>>,
}

/// The decision of a set about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DecisionKind {
    Allow,
    RequireApproval,
    Deny,
}

sekisho_core::as_str!(DecisionKind);

impl DecisionKind {
    pub(super) fn of(denials: &[String], approvals: &[String]) -> Self {
        match (denials, approvals) {
            ([], []) => Self::Allow,
            ([], _) => Self::RequireApproval,
            _ => Self::Deny,
        }
    }
}

/// Errors: all errors of the set.
pub(super) fn load(config: &PolicyConfig) -> Result<Option<PolicySet>, Vec<PolicyError>> {
    let Some(directory) = &config.shadow else { return Ok(None) };
    let checks = Checks { dangerous_roles: config.dangerous_roles.clone() };
    load::load(Some(directory), Duration::from_millis(config.timeout_ms), checks).map(Some)
}

impl Policy {
    /// Sets where differences of the set in `policy.shadow` are counted.
    pub fn set_metrics(&self, metrics: &Arc<Metrics>) {
        self.shadow.metrics.get_or_init(|| Arc::clone(metrics));
    }
}

impl Shadow {
    pub(super) fn new(set: Option<PolicySet>) -> Self {
        Self { set: ArcSwapOption::new(set.map(Arc::new)), metrics: OnceLock::new() }
    }

    pub(super) fn replace(&self, set: Option<PolicySet>) {
        self.set.store(set.map(Arc::new));
    }

    pub(super) fn reads_flow(&self) -> bool {
        self.set.load().as_ref().is_some_and(|set| set.reads.flow)
    }

    /// `decision`: of the active set.
    pub(super) fn compare(&self, decision: &Decision, call: &CallContext, tool: &Tool, arguments: &ValidArguments) {
        let Some(set) = self.set.load_full() else { return };
        let other = decide(&set, call, tool, arguments).with_flow(tool.name(), arguments);
        let kind_of = |decision: &Decision| DecisionKind::of(&decision.denials, &decision.approvals);
        let (active, shadow) = (kind_of(decision).as_str(), kind_of(&other).as_str());
        if active == shadow {
            return;
        }
        if let Some(metrics) = self.metrics.get() {
            metrics.policy_shadow_differs(active, shadow);
        }
        let (reasons, of_active) = (other.reasons().join("; "), decision.reasons().join("; "));
        tracing::info!(
            call_id = %call.id,
            tool_name = tool.name(),
            caller = &*call.caller.id,
            tenant = &*call.caller.tenant,
            active,
            shadow,
            reasons,
            of_active,
            failure = other.failure.as_deref(),
            "the policies of `policy.shadow` decide otherwise about a call"
        );
    }
}
