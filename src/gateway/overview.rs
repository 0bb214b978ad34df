//! The state of the gateway and its problems, as far as a caller may see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::offer_problems::offer_problems;
use super::{Configuration, ConfigurationNotes, FiguresOf, History, Keys, Reach, Sources};
use sekisho_calls::pipeline::Pipeline;
use sekisho_core::caller::Caller;
use sekisho_core::error::CallError;
use sekisho_observe::metrics::DayBudget;
use sekisho_observe::readiness::Readiness;
use sekisho_sandbox::{Sandbox, SandboxLoad};
use sekisho_store::replica::Replica;
use sekisho_store::{CallSums, Figures, TimeRange};

/// Callers and tenants with gauges of their budget.
const MAX_BUDGET_GAUGES: usize = 200;

/// Maximum callers and tenants with a budget.
const MAX_BUDGETS: usize = 200;

/// The state of the gateway, and the figures of a time.
#[derive(Debug)]
pub struct Overview {
    pub figures: Figures,
    pub tools: BTreeMap<String, CallSums>,
    /// The budgets of today (UTC), the most money first.
    pub budgets: Vec<DayBudget>,
    /// Calls that run now, of all tenants.
    pub running: usize,
    pub sandbox: SandboxLoad,
    /// Component → reason.
    pub degraded: BTreeMap<String, String>,
    /// Setting → advice.
    pub notes: BTreeMap<String, String>,
}

/// The current state of the gateway, as far as a caller may see it.
#[derive(Debug)]
pub struct Status {
    pub(super) configuration: Arc<Configuration>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) configuration_notes: Arc<ConfigurationNotes>,
    pub(super) keys: Arc<Keys>,
    pub(super) history: Arc<History>,
    pub(super) sources: Arc<Sources>,
    /// If the gateway is one of several on a database.
    pub(super) replica: Option<Arc<Replica>>,
}

impl Status {
    /// The metrics in Prometheus's format, as they are now.
    pub fn metrics_text(&self) -> String {
        let metrics = &self.pipeline.settlement.metrics;
        self.pipeline.breakers.report();
        metrics.set_budgets(&self.pipeline.budget.of_today(MAX_BUDGET_GAUGES));
        metrics.set_degraded(self.degraded().keys().map(String::as_str));
        if let Some(replica) = &self.replica {
            metrics.set_replicas(&replica.states());
        }
        // Outside of a runtime there are none.
        if let Ok(runtime) = Handle::try_current() {
            metrics.set_runtime_tasks(runtime.metrics().num_alive_tasks());
        }
        metrics.render()
    }

    /// The degraded components, by name, and open circuit breakers. Callers of all tenants read this, so that it has no server or
    /// collection of a tenant; [`Sources`] has these for their administrators.
    pub fn degraded(&self) -> BTreeMap<String, String> {
        let mut degraded = self.readiness.degraded();
        degraded.retain(|component, _| !self.sources.is_of_tenant(component));
        for (source, problem) in offer_problems(&self.pipeline.registry.snapshot()) {
            let problems: &mut String = degraded.entry(source).or_default();
            if !problems.is_empty() {
                problems.push_str("; ");
            }
            problems.push_str(&problem);
        }
        let open = self.pipeline.breakers.open();
        // Reading the upstreams of all tools takes a while.
        let shared = if open.is_empty() { BTreeSet::new() } else { self.shared_upstreams() };
        degraded.extend(open.into_iter().filter(|upstream| shared.contains(&upstream.name)).map(|upstream| {
            let problem = match upstream.is_for_all {
                true => "it keeps failing and is not called for now",
                false => "it keeps failing for a tenant and is not called for it now",
            };
            (format!("circuit:{}", upstream.name), problem.to_owned())
        }));
        degraded
    }

    /// The upstreams of what all tenants share: a collection of a tenant may have a host that others do not know of.
    fn shared_upstreams(&self) -> BTreeSet<Arc<str>> {
        let snapshot = self.pipeline.registry.snapshot();
        let offered = snapshot.tools().iter().chain(snapshot.operations());
        let shared = offered.filter(|tool| tool.metadata.owner.is_shared());
        shared.filter_map(|tool| Some(tool.upstream()?.name)).collect()
    }

    /// Today's budgets of the tenants that the caller sees, the most money first.
    pub fn budgets(&self, caller: &Caller) -> Vec<DayBudget> {
        match self.configuration.reach(caller) {
            Reach::Own => Vec::new(),
            Reach::Tenant => self.pipeline.budget.of_today_in(Some(&caller.tenant), MAX_BUDGETS),
            Reach::AllTenants => self.pipeline.budget.of_today_in(None, MAX_BUDGETS),
        }
    }

    /// The overview for a caller: of the calls that the caller sees.
    /// Errors: the index cannot be read.
    pub async fn overview(&self, caller: &Caller, range: TimeRange) -> Result<Overview, CallError> {
        Ok(Overview {
            figures: self.history.figures(caller, &FiguresOf::All { tenant: None }, range).await?,
            tools: self.history.sums_of_tools(caller, range).await?,
            budgets: self.budgets(caller),
            running: self.pipeline.limits.in_flight(),
            sandbox: self.sandbox.load(),
            degraded: self.degraded(),
            notes: self.configuration_notes.of_settings(),
        })
    }
}
