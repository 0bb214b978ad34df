//! Workloads that are known by the certificate of their connection (X.509-SVID of SPIFFE): nobody else has its key.

use std::sync::Arc;

use super::{Authenticator, identity};
use sekisho_config::WorkloadConfig;
use sekisho_core::call::Caller;
use sekisho_core::spiffe_id::SpiffeId;

impl Authenticator {
    /// The caller that a workload is by the rules of the configuration: its trust domain is the issuer, its name the subject.
    pub fn workload(&self, workload: &SpiffeId) -> Option<Arc<Caller>> {
        let WorkloadConfig { tenant, roles, .. } = self.workloads.iter().find(|entry| entry.fits(workload))?;
        let caller = Caller::of_issuer(workload.trust_domain(), workload.as_str(), tenant, roles.clone());
        let caller = identity::checked(caller);
        caller.inspect_err(|problem| tracing::warn!(%workload, problem, "a workload cannot be a caller")).ok()
    }
}
