//! Runs of agents that go on without a client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Findings;

/// Who goes on with a run of a stored conversation whose process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recover {
    /// The next request of its client.
    #[default]
    Client,
    /// Any process of the gateway, as soon as its lock is free. A process must have `secrets.key`, or a store of its own.
    Auto,
}

/// Runs that go on without a client: of `POST /api/runs`, of `POST /v1/responses` with `background`, and with `recover: auto` those
/// whose process ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundConfig {
    /// Of one tenant at once.
    pub max_running_per_tenant: u32,
    /// Of one tenant that wait for their turn or for a person; a further one is refused.
    pub max_waiting_per_tenant: u32,
}

impl Default for BackgroundConfig {
    fn default() -> Self {
        Self { max_running_per_tenant: 8, max_waiting_per_tenant: 200 }
    }
}

impl BackgroundConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("agent.background.max_running_per_tenant", self.max_running_per_tenant);
        findings.above_zero("agent.background.max_waiting_per_tenant", self.max_waiting_per_tenant);
    }
}
