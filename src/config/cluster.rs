use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::{BlobsConfig, Secret, StoreConfig};

/// Shorter ones can be guessed.
const MIN_SECRET_CHARACTERS: usize = 32;

/// Whether this gateway is one of several replicas on one PostgreSQL database.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Rates and the budgets of a day are counted over all replicas. Requires `store.url`, the same at each.
    pub enabled: bool,
    /// Where this replica takes requests that others forward to it, of the sessions and tasks of MCP clients that it
    /// has: an address and port of this machine, which the other replicas reach over a private network. Without it a
    /// session is at one replica only. Requires `secret`.
    pub address: Option<SocketAddr>,
    /// The same at all replicas, of at least 32 random characters. With it they sign the ids of sessions and tasks, and
    /// the requests that they forward.
    pub secret: Option<Secret>,
    /// While the secret is changed, the other one of the two: the next one at first, the one before at last. What it has
    /// signed counts too, and it signs nothing.
    pub accepted_secret: Option<Secret>,
    /// Object storage that all replicas have, for large replies, files of sessions and closed segments of the audit trail.
    pub blobs: Option<BlobsConfig>,
}

impl ClusterConfig {
    /// Where requests of other replicas are taken, and the secret that signs them, if that is configured.
    pub fn forwarding(&self) -> Option<(SocketAddr, &Secret)> {
        self.address.zip(self.secret.as_ref()).filter(|_| self.enabled)
    }

    /// The settings that apply only at a start.
    pub fn without_secrets(&self) -> Self {
        Self { secret: None, accepted_secret: None, ..self.clone() }
    }

    pub(super) fn check(&self, store: &StoreConfig, findings: &mut Findings) {
        if self.enabled && store.url.is_none() {
            findings.add(
                "cluster.enabled",
                "replicas share a PostgreSQL database, and none is configured",
                "set `store.url` to postgres://USER:PASSWORD@HOST:PORT/DATABASE, or leave `cluster` out",
            );
        }
        self.check_address(findings);
        self.check_secrets(findings);
        self.check_blobs(findings);
    }

    fn check_blobs(&self, findings: &mut Findings) {
        let Some(blobs) = &self.blobs else { return };
        if self.enabled {
            blobs.check(findings);
        } else {
            findings.add(
                "cluster.blobs",
                "is for replicas, and this gateway is none",
                "set `cluster.enabled: true`, or leave `cluster.blobs` out",
            );
        }
    }

    fn check_address(&self, findings: &mut Findings) {
        let Some(address) = self.address else { return };
        if self.secret.is_none() {
            let advice = "set `cluster.secret` to 32 random characters or more, the same at all replicas";
            findings.add("cluster.address", "requires `cluster.secret`", advice);
        }
        if address.port() == 0 {
            let advice = "set a port, such as 8790";
            findings.add("cluster.address", "has no port: other replicas connect to this very address", advice);
        }
        if address.ip().to_canonical().is_unspecified() {
            let problem = format!("{} is no address that other replicas can connect to", address.ip());
            findings.add("cluster.address", problem, "set the address of this machine in the private network");
        }
    }

    fn check_secrets(&self, findings: &mut Findings) {
        if self.secret.is_some() && self.address.is_none() {
            let advice = "set `cluster.address` to the address of this machine in the private network, and a port";
            findings.add_secret("cluster.secret", "requires `cluster.address`", advice);
        }
        if self.accepted_secret.is_some() && self.secret.is_none() {
            let advice = "set `cluster.secret` to the secret that signs";
            findings.add_secret("cluster.accepted_secret", "requires `cluster.secret`", advice);
        }
        for (setting, secret) in [("cluster.secret", &self.secret), ("cluster.accepted_secret", &self.accepted_secret)]
        {
            if secret.as_ref().is_some_and(|secret| secret.expose().chars().count() < MIN_SECRET_CHARACTERS) {
                let advice =
                    "set 32 random characters or more, as from `openssl rand -hex 32`, the same at all replicas";
                findings.add_secret(setting, "has fewer than 32 characters", advice);
            }
        }
    }
}
