//! Metrics in the Prometheus text format, under `sekisho` and under a namespace of the operator's choice (default `shannon`).
//!
//! All families are in [`families`], each with its help as doc comment, and all are exported from the start. Labels
//! are bounded: offered tools, existing breakers, so many agents, models and tenants, fixed lists of values; a tool name that is not offered counts as
//! `unknown`.

mod agents;
mod approvals;
mod exposition;
mod families;
mod flow;
mod large_results;
mod models;
mod sandbox;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::LabelPair;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use thiserror::Error;

use self::agents::AgentLabels;
use self::families::Families;
use self::flow::mode_of;
use self::models::ModelLabels;
use self::tool::CountedTools;
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::Stage;
use sekisho_core::error::ErrorCode;
use sekisho_core::guard_finding::GuardFinding;
use sekisho_core::record::CallSummary;
use sekisho_core::transform_finding::TransformFinding;

pub use self::approvals::ApprovalEvent;
pub use self::flow::FlowEvent;
pub use self::large_results::LargeResultOutcome;
pub use self::sandbox::{RunEnd, SandboxMetrics};
pub use self::tool::ToolMetrics;

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    namespace: String,
    registry: Registry,
    families: Arc<Families>,
    counted_tools: Arc<CountedTools>,
    agents: AgentLabels,
    models: ModelLabels,
    /// The counters for calls of unknown tools.
    unknown: ToolMetrics,
    /// Looked up once, since every call is counted.
    stages: [prometheus::Histogram; Stage::ALL.len()],
    allowed: IntCounter,
}

/// The gauge and counter of one breaker.
#[derive(Debug, Clone)]
pub struct BreakerMetrics {
    state: IntGauge,
    failures: IntCounter,
}

/// The money and tokens of one caller's or tenant's day.
#[derive(Debug, Clone, PartialEq)]
pub struct DayBudget {
    pub tenant: String,
    /// `None` for the tenant's own.
    pub caller: Option<String>,
    pub spent: Decimal,
    pub held: Decimal,
    pub limit: Option<Decimal>,
    /// Spent and held.
    pub tokens: u64,
    pub token_limit: Option<u64>,
}

/// A replica as it said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    pub id: String,
    pub host: String,
    pub is_live: bool,
    /// The names of the parts that do not work there.
    pub degraded: Vec<String>,
}

/// Something in flight, such as a call, counted in a gauge until dropped.
#[derive(Debug)]
#[must_use]
pub struct InFlight(IntGauge);

/// Why there can be no metrics under a namespace.
#[derive(Debug, Error)]
#[error(
    "metrics_namespace: {namespace:?} cannot start the name of a metric ({problem}); \
     use letters, digits and underscores, a letter first"
)]
pub struct MetricsError {
    namespace: String,
    problem: prometheus::Error,
}

/// The label `tool_name` for calls of unknown tools.
const UNKNOWN: &str = "unknown";

impl Metrics {
    /// Errors: `namespace` cannot start a metric's name.
    pub fn new(namespace: &str) -> Result<Self, MetricsError> {
        Self::register(namespace).map_err(|problem| MetricsError { namespace: namespace.to_owned(), problem })
    }

    /// The metrics of a registered tool; the same ones when it is registered again.
    pub fn for_tool(&self, name: &str) -> Arc<ToolMetrics> {
        Arc::new(ToolMetrics::new(&self.families, &self.counted_tools, name))
    }

    /// Removes the metrics of tools that were called and are not offered any more. If a call of such a tool ends later, they are
    /// there until this is called again.
    pub fn forget_tools(&self, is_offered: impl Fn(&str) -> bool) {
        for name in self.counted_tools.take_if(|name| name != UNKNOWN && !is_offered(name)) {
            tool::forget(&self.families, &name);
        }
    }

    /// Removes the metrics of rules of `tools.transform` that are not configured any more: part and name. If a call that such a rule
    /// changes ends later, they are there until this is called again.
    pub fn forget_transform_rules(&self, is_configured: impl Fn(&str, &str) -> bool) {
        let findings = &self.families.transform_findings;
        remove_counters(findings, ["part", "rule"], |[part, rule]| !is_configured(part, rule));
    }

    /// The metrics of the sandbox; the same ones each time.
    pub fn for_sandbox(&self) -> SandboxMetrics {
        SandboxMetrics::new(&self.families)
    }

    /// The metrics of the breaker of an upstream, until it is forgotten.
    pub fn for_breaker(&self, base_url: &str) -> BreakerMetrics {
        BreakerMetrics {
            state: self.families.breaker_state.with_label_values(&[base_url]),
            failures: self.families.breaker_failures.with_label_values(&[base_url]),
        }
    }

    pub fn forget_breaker(&self, base_url: &str) {
        // Fails only for a breaker that has no metrics.
        let _ = self.families.breaker_state.remove_label_values(&[base_url]);
        let _ = self.families.breaker_failures.remove_label_values(&[base_url]);
    }

    /// An MCP server was connected, or its connection was lost or could not be made.
    pub fn mcp_server(&self, name: &str, connected: bool) {
        self.families.mcp_server_up.with_label_values(&[name]).set(connected.into());
        let event = if connected { "made" } else { "lost" };
        self.families.mcp_connections.with_label_values(&[name, event]).inc();
    }

    /// A program of an MCP server connected to a host, or may not. The caller bounds the hosts.
    pub fn mcp_program_connection(&self, server: &str, host: &str, is_allowed: bool) {
        let outcome = if is_allowed { "allowed" } else { "refused" };
        self.families.mcp_program_connections.with_label_values(&[server, host, outcome]).inc();
    }

    pub fn forget_mcp_server(&self, name: &str) {
        // Fails only for a server that has no metrics.
        let _ = self.families.mcp_server_up.remove_label_values(&[name]);
        for event in ["made", "lost"] {
            let _ = self.families.mcp_connections.remove_label_values(&[name, event]);
        }
        self.forget_program_connections(name);
    }

    fn forget_program_connections(&self, name: &str) {
        let connections = &self.families.mcp_program_connections;
        remove_counters(connections, ["server", "host", "outcome"], |[server, ..]| server == name);
    }

    /// The number of tools that need an operator's attention.
    pub fn tools_to_look_at(&self, quarantined: usize, flagged: usize) {
        self.families.tools_quarantined.set(i64::try_from(quarantined).unwrap_or(i64::MAX));
        self.families.tools_flagged.set(i64::try_from(flagged).unwrap_or(i64::MAX));
    }

    pub fn enter(&self) -> InFlight {
        InFlight::new(&self.families.calls_in_flight)
    }

    /// Counts one ended call; `tool` is `None` where the name named no tool. `transforms`: what rules of `tools.transform` changed.
    pub fn record(&self, tool: Option<&ToolMetrics>, call: &CallSummary, transforms: &[TransformFinding]) {
        for (stage, took) in &call.stages {
            self.stages[*stage as usize].observe(took.as_secs_f64());
        }
        if call.stages.iter().any(|(stage, _)| *stage == Stage::Policy) {
            self.count_decision(call);
        }
        if let Some(code) = call.code
            && call.stage == Some(Stage::Budget)
        {
            self.families.budget_refusals.with_label_values(&[code.as_str()]).inc();
        }
        if !call.dry_run {
            self.count_transforms(transforms);
        }
        tool.unwrap_or(&self.unknown).record(call);
    }

    pub fn configuration_reloaded(&self, accepted: bool) {
        self.families.configuration_reloads.with_label_values(&[reload_result(accepted)]).inc();
        self.families.configuration_last_reload_successful.set(accepted.into());
    }

    pub fn policy_reloaded(&self, accepted: bool) {
        self.families.policy_reloads.with_label_values(&[reload_result(accepted)]).inc();
        self.families.policy_last_reload_successful.set(accepted.into());
    }

    /// The policies beside the active ones decided otherwise.
    pub fn policy_shadow_differs(&self, decision: &str, shadow: &str) {
        self.families.policy_shadow_differences.with_label_values(&[decision, shadow]).inc();
    }

    /// A request without valid credentials was refused.
    pub fn unauthenticated(&self) {
        self.families.unauthenticated.inc();
    }

    /// Replaces the gauges of today's budgets.
    pub fn set_budgets(&self, budgets: &[DayBudget]) {
        let gauge = &self.families.budget_cost;
        gauge.reset();
        for DayBudget { tenant, caller, spent, held, limit, .. } in budgets {
            let amounts = [("spent", Some(*spent)), ("held", Some(*held)), ("limit", *limit)];
            for (amount, value) in amounts.into_iter().filter_map(|(amount, value)| Some((amount, value?))) {
                let caller = caller.as_deref().unwrap_or_default();
                gauge.with_label_values(&[tenant, caller, amount]).set(value.to_f64().unwrap_or_default());
            }
        }
    }

    /// Sets the gauges of all replicas, as they said last.
    pub fn set_replicas(&self, replicas: &[ReplicaState]) {
        let Families { replica_live, replica_degraded, .. } = &*self.families;
        replica_live.reset();
        replica_degraded.reset();
        for ReplicaState { id, host, is_live, degraded } in replicas {
            replica_live.with_label_values(&[id, host]).set((*is_live).into());
            for kind in ["circuit", "mcp", "openapi", "other"] {
                let count = degraded.iter().filter(|name| kind_of(name) == kind).count();
                replica_degraded.with_label_values(&[id, kind]).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    /// Replaces the gauges of the components that do not work. `components`: their names in readiness.
    pub fn set_degraded<'a>(&self, components: impl Iterator<Item = &'a str>) {
        let mut counts = BTreeMap::<_, i64>::new();
        for component in components {
            // Names of servers and documents are no labels of it: these may be added at any time.
            let kind = component.split_once(':').map_or(component, |(kind, _)| kind);
            *counts.entry(kind).or_default() += 1;
        }
        let gauge = &self.families.component_degraded;
        gauge.reset();
        for (kind, count) in counts {
            gauge.with_label_values(&[kind]).set(count);
        }
    }

    /// A stored reply was returned instead of running the call again.
    pub fn idempotent_replay(&self) {
        self.families.idempotent_replays.inc();
    }

    /// Says from which commit and for which target the program was built, which the libraries do not know.
    pub fn describe_build(&self, commit: &str, date: &str, target: &str) {
        self.families.build_info.reset();
        set_build(&self.families, commit, date, target);
    }

    /// Closed segments of the audit trail that are not in object storage yet.
    pub fn set_segments_waiting(&self, segments: usize) {
        self.families.audit_segments_waiting.set(i64::try_from(segments).unwrap_or(i64::MAX));
    }

    /// Tasks of the asynchronous runtime that have not ended.
    pub fn set_runtime_tasks(&self, tasks: usize) {
        self.families.runtime_tasks.set(i64::try_from(tasks).unwrap_or(i64::MAX));
    }

    fn register(namespace: &str) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let families = Arc::new(Families::register(namespace, &registry)?);
        let counted_tools = Arc::default();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        set_build(&families, "", "", "");
        families.configuration_last_reload_successful.set(1);
        families.policy_last_reload_successful.set(1);
        for decision in [DENY, REQUIRE_APPROVAL] {
            families.policy_decisions.with_label_values(&[decision]);
        }
        for code in [ErrorCode::BudgetExceeded, ErrorCode::TokenLimitExceeded] {
            families.budget_refusals.with_label_values(&[code.as_str()]);
        }
        for event in ApprovalEvent::ALL.iter().copied() {
            families.approvals.with_label_values(&[event.as_str()]);
        }
        for mode in [true, false].map(mode_of) {
            for event in FlowEvent::ALL.iter().copied() {
                families.flow_calls.with_label_values(&[mode, event.as_str()]);
            }
        }
        for outcome in LargeResultOutcome::ALL.iter().copied() {
            families.large_results.with_label_values(&[outcome.as_str()]);
        }
        for result in [true, false].map(reload_result) {
            families.configuration_reloads.with_label_values(&[result]);
            families.policy_reloads.with_label_values(&[result]);
        }
        Ok(Self {
            unknown: ToolMetrics::new(&families, &counted_tools, UNKNOWN),
            counted_tools,
            agents: AgentLabels::default(),
            models: ModelLabels::default(),
            stages: std::array::from_fn(|at| families.stage_duration.with_label_values(&[Stage::ALL[at].as_str()])),
            allowed: families.policy_decisions.with_label_values(&[ALLOW]),
            namespace: namespace.to_owned(),
            registry,
            families,
        })
    }

    fn count_transforms(&self, findings: &[TransformFinding]) {
        for TransformFinding { part, rule, count, .. } in findings {
            let counter = self.families.transform_findings.with_label_values(&[part.as_str(), &**rule]);
            counter.inc_by(*count as u64);
        }
    }

    /// Counts what rules of `tools.guards` found.
    pub fn count_guards(&self, findings: &[GuardFinding]) {
        for GuardFinding { direction, rule, action, .. } in findings {
            self.families.guard_findings.with_label_values(&[*direction, &**rule, action.as_str()]).inc();
        }
    }

    fn count_decision(&self, call: &CallSummary) {
        if call.stage == Some(Stage::Policy) {
            let needs_approval = call.code == Some(ErrorCode::ApprovalRequired);
            let decision = if needs_approval { REQUIRE_APPROVAL } else { DENY };
            self.families.policy_decisions.with_label_values(&[decision]).inc();
        } else {
            self.allowed.inc();
        }
    }
}

/// Removes the counters of a family whose labels with these names are gone.
fn remove_counters<const N: usize>(counters: &IntCounterVec, names: [&str; N], is_gone: impl Fn([&str; N]) -> bool) {
    for family in counters.collect() {
        for metric in family.get_metric() {
            let labels = metric.get_label();
            let value = |name: &str| labels.iter().find(|label| label.name() == name).map_or("", LabelPair::value);
            let values = names.map(value);
            if is_gone(values) {
                // Fails only if it was removed meanwhile.
                let _ = counters.remove_label_values(&values);
            }
        }
    }
}

impl BreakerMetrics {
    pub fn set_state(&self, state: BreakerState) {
        self.state.set(match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
    }

    pub fn failed(&self) {
        self.failures.inc();
    }
}

impl InFlight {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn set_build(families: &Families, commit: &str, date: &str, target: &str) {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    families.build_info.with_label_values(&[version, os, arch, commit, date, target]).set(1);
}

/// The kind of a part that does not work, by its name in readiness.
fn kind_of(component: &str) -> &str {
    match component.split_once(':') {
        Some((kind @ ("circuit" | "mcp" | "openapi"), _)) => kind,
        _ => "other",
    }
}

const ALLOW: &str = "allow";
const DENY: &str = "deny";
const REQUIRE_APPROVAL: &str = "require_approval";

fn reload_result(accepted: bool) -> &'static str {
    if accepted { "accepted" } else { "rejected" }
}

#[cfg(test)]
mod tests;
