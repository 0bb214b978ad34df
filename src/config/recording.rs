use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

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
}

/// Maximum of `max_run_bytes`: a run is kept in one row.
const MAX_RUN_BYTES: usize = 64 << 20;

const SECONDS_OF_A_DAY: u64 = 86_400;

impl Default for RecordingConfig {
    fn default() -> Self {
        Self { runs: false, decisions: false, retention_days: 7, max_run_bytes: 4 << 20, max_runs_per_caller: 100 }
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
    }
}
