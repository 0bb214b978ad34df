//! What the gateway does and what is wrong with it, as far as a caller may see it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::{CallFilter, Gateway, Reach};
use sekisho_core::caller::Caller;
use sekisho_observe::figures::LastHour;
use sekisho_observe::metrics::DayBudget;
use sekisho_sandbox::SandboxLoad;

/// Maximum callers and tenants with a budget.
const MAX_BUDGETS: usize = 200;

/// The state of the gateway, and its last hour.
#[derive(Debug)]
pub struct Overview {
    pub hour: LastHour,
    /// Of today (UTC), those with the most money first.
    pub budgets: Vec<DayBudget>,
    /// Calls that run now, of all tenants.
    pub running: usize,
    pub sandbox: SandboxLoad,
    /// Component → reason.
    pub degraded: BTreeMap<String, String>,
    /// Setting → advice.
    pub notes: BTreeMap<String, String>,
}

impl Gateway {
    /// Today's budgets of the tenants that the caller sees, those with the most money first.
    pub fn budgets(&self, caller: &Caller) -> Vec<DayBudget> {
        match self.reach(caller) {
            Reach::Own => Vec::new(),
            Reach::Tenant => self.pipeline.budget.of_today_in(Some(&caller.tenant), MAX_BUDGETS),
            Reach::AllTenants => self.pipeline.budget.of_today_in(None, MAX_BUDGETS),
        }
    }

    /// The overview for a caller: of the calls that they see.
    pub fn overview(&self, caller: &Caller, now: SystemTime) -> Overview {
        let figures = &self.pipeline.settlement.figures;
        let of_recent_calls = || {
            let calls = self.recent_calls(caller, &CallFilter::default());
            LastHour::of_calls(calls.iter().map(|call| &**call), now)
        };
        let hour = match self.reach(caller) {
            Reach::Own => of_recent_calls(),
            Reach::Tenant => figures.of_tenant(&caller.tenant, now).unwrap_or_else(of_recent_calls),
            Reach::AllTenants => figures.of_all(now),
        };
        Overview {
            hour,
            budgets: self.budgets(caller),
            running: self.pipeline.limits.in_flight(),
            sandbox: self.sandbox.load(),
            degraded: self.degraded(),
            notes: self.setting_notes(),
        }
    }
}
