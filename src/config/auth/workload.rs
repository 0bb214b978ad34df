use schemars::JsonSchema;
use serde::Deserialize;

use crate::TlsConfig;
use crate::check::Findings;
use sekisho_core::caller::DEFAULT_TENANT;
use sekisho_core::spiffe_id::SpiffeId;

/// Workloads that are known by their certificate (X.509-SVID of SPIFFE), and need no key or token. The first entry that fits counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadConfig {
    /// The URI in the certificate, `spiffe://TRUST-DOMAIN/PATH`; a final `/*` matches any rest of the path. All entries have one trust domain,
    /// whose authorities `server.tls.client_ca` names.
    pub id: String,
    #[serde(default = "default_tenant")]
    pub tenant: String,
    #[serde(default)]
    pub roles: Vec<String>,
}

impl WorkloadConfig {
    /// Whether this entry is for a workload.
    pub fn fits(&self, workload: &SpiffeId) -> bool {
        match self.id.strip_suffix('*') {
            Some(beginning) => workload.as_str().starts_with(beginning),
            None => workload.as_str() == self.id,
        }
    }

    /// A name that it fits. `None`: the entry is none of a workload.
    fn example(&self) -> Option<SpiffeId> {
        match self.id.strip_suffix("/*") {
            Some(beginning) => SpiffeId::parse(&format!("{beginning}/x")),
            None => SpiffeId::parse(&self.id),
        }
    }

    /// `tls`: of the listener.
    pub(crate) fn check(workloads: &[Self], tls: Option<&TlsConfig>, findings: &mut Findings) {
        if !workloads.is_empty() && tls.is_none_or(|tls| tls.client_ca.is_none()) {
            let advice = "set `server.tls.client_ca` to the bundle of the trust domain";
            findings.add("auth.workloads", "needs the authorities of the certificates", advice);
        }
        let mut first: Option<SpiffeId> = None;
        for (index, workload) in workloads.iter().enumerate() {
            let setting = format!("auth.workloads[{index}]");
            findings.name(&format!("{setting}.tenant"), &workload.tenant);
            findings.names(&format!("{setting}.roles"), &workload.roles);
            match workload.example() {
                None => findings.add(
                    format!("{setting}.id"),
                    "is no name of a workload",
                    "write it like spiffe://example.org/agents/one, or spiffe://example.org/agents/*",
                ),
                // An authority of one domain could sign for the other.
                Some(id) if first.as_ref().is_some_and(|first| first.trust_domain() != id.trust_domain()) => findings
                    .add(
                        format!("{setting}.id"),
                        "is of another trust domain than the first entry",
                        "have a gateway for each: `server.tls.client_ca` has the authorities of one",
                    ),
                Some(id) => first = first.or(Some(id)),
            }
        }
    }
}

fn default_tenant() -> String {
    DEFAULT_TENANT.into()
}
