use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use sekisho_core::tool_scope::matches;

/// Runs that are recorded, so that they can be exported and played again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecordingConfig {
    /// Whether runs of agents and of programs are recorded.
    pub runs: bool,
    /// Whether the audit line of each call has what policies read about it, up to 16 KiB: arguments and secrets too.
    pub decisions: bool,
    /// How long a run is kept.
    pub retention_days: u64,
    /// A run that is larger is not kept.
    pub max_run_bytes: usize,
    /// Of more, the oldest of the caller go.
    pub max_runs_per_caller: u32,
    pub content: ContentConfig,
}

/// Calls whose arguments and results are kept, for the administrators of their tenants. None without names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContentConfig {
    /// Tools by the names that callers use, `*` at the end for any rest. Empty: all, if `tenants` has names.
    pub tools: Vec<String>,
    /// Empty: all, if `tools` has names.
    pub tenants: Vec<String>,
    pub retention_days: u64,
    /// Arguments that are larger are not kept, and neither is a result.
    pub max_bytes: usize,
    /// Of all calls together. The oldest go.
    pub max_megabytes: u32,
}

impl Default for ContentConfig {
    fn default() -> Self {
        Self { tools: Vec::new(), tenants: Vec::new(), retention_days: 7, max_bytes: 64 << 10, max_megabytes: 1_024 }
    }
}

impl ContentConfig {
    /// Whether any call's content is kept.
    pub fn is_on(&self) -> bool {
        !self.tools.is_empty() || !self.tenants.is_empty()
    }

    /// Whether the content of a tenant's calls of a tool is kept.
    pub fn keeps(&self, tool: &str, tenant: &str) -> bool {
        self.is_on()
            && (self.tools.is_empty() || self.tools.iter().any(|pattern| matches(pattern, tool)))
            && (self.tenants.is_empty() || self.tenants.iter().any(|name| name == tenant))
    }

    fn check(&self, findings: &mut Findings) {
        findings.names("recording.content.tools", &self.tools);
        findings.names("recording.content.tenants", &self.tenants);
        if self.tools.iter().any(|pattern| pattern.strip_suffix('*').unwrap_or(pattern).contains('*')) {
            findings.add("recording.content.tools", "has a `*` that is not at the end", "write `crm__*`");
        }
        findings.seconds("recording.content.retention_days", self.retention_days.saturating_mul(SECONDS_OF_A_DAY));
        findings.above_zero("recording.content.max_bytes", self.max_bytes);
        if self.max_bytes > MAX_CONTENT_BYTES {
            let problem = format!("is above {MAX_CONTENT_BYTES}");
            findings.add("recording.content.max_bytes", problem, "set a number of bytes, such as 65536");
        }
        findings.above_zero("recording.content.max_megabytes", self.max_megabytes);
    }
}

/// Maximum of `content.max_bytes`: a call is kept in one row.
const MAX_CONTENT_BYTES: usize = 4 << 20;

/// Maximum of `max_run_bytes`: a run is kept in one row.
const MAX_RUN_BYTES: usize = 64 << 20;

const SECONDS_OF_A_DAY: u64 = 86_400;

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
            runs: false,
            decisions: false,
            retention_days: 7,
            max_run_bytes: 4 << 20,
            max_runs_per_caller: 100,
            content: ContentConfig::default(),
        }
    }
}

impl RecordingConfig {
    /// How long a run is kept.
    pub fn retention(&self) -> Duration {
        Duration::from_secs(self.retention_days.saturating_mul(SECONDS_OF_A_DAY))
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        findings.seconds("recording.retention_days", self.retention_days.saturating_mul(SECONDS_OF_A_DAY));
        findings.above_zero("recording.max_run_bytes", self.max_run_bytes);
        if self.max_run_bytes > MAX_RUN_BYTES {
            let problem = format!("is above {MAX_RUN_BYTES}");
            findings.add("recording.max_run_bytes", problem, "set a number of bytes, such as 4194304");
        }
        findings.above_zero("recording.max_runs_per_caller", self.max_runs_per_caller);
        self.content.check(findings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_kept_of_the_named_tools_and_tenants_alone() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (tools, tenants, expected) in [
            (&[][..], &[][..], [false, false, false]),
            (&["crm__*"], &[], [true, true, false]),
            (&[], &["acme"], [true, false, true]),
            (&["crm__*"], &["acme"], [true, false, false]),
            (&["echo"], &["globex"], [false, false, false]),
        ] {
            let content = ContentConfig { tools: named(tools), tenants: named(tenants), ..ContentConfig::default() };
            let calls = [("crm__list", "acme"), ("crm__list", "globex"), ("echo", "acme")];
            assert_eq!(calls.map(|(tool, tenant)| content.keeps(tool, tenant)), expected, "{content:?}");
        }
    }
}
