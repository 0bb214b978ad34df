use schemars::JsonSchema;
use serde::Deserialize;

use super::StoreConfig;
use super::check::Findings;

/// Whether this gateway is one of several replicas on one PostgreSQL database.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Rates and the budgets of a day are counted over all replicas. Requires `store.url`, the same at each.
    pub enabled: bool,
}

impl ClusterConfig {
    pub(super) fn check(&self, store: &StoreConfig, findings: &mut Findings) {
        if self.enabled && store.url.is_none() {
            findings.add(
                "cluster.enabled",
                "replicas share a PostgreSQL database, and none is configured",
                "set `store.url` to postgres://USER:PASSWORD@HOST:PORT/DATABASE, or leave `cluster` out",
            );
        }
    }
}
