use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::check::Findings;
use super::flow::FlowMode;

/// Longest wait for a decision about a call, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// The policies, and who may call dangerous tools.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// A folder of `.rego` files that replaces the whole default set, which has no rules of its own. A relative path is relative to
    /// the folder of this file.
    pub directory: Option<PathBuf>,
    /// A folder of policies that decides nothing: where its decision about a call differs, that is counted and logged.
    pub shadow: Option<PathBuf>,
    /// A caller with one of these roles may call tools that are `dangerous`; policies may restrict further. At least
    /// one.
    pub dangerous_roles: Vec<String>,
    /// An evaluation that takes more processor time, or ten times as much real time, denies the call, in milliseconds.
    pub timeout_ms: u64,
    /// A call with a destination or a secret that a stranger may have written: `off`, `observe` or `enforce`.
    pub flow: FlowMode,
    /// A service that is asked about each call that the policies do not deny.
    pub external: Option<ExternalPolicyConfig>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            directory: None,
            shadow: None,
            dangerous_roles: vec!["operator".to_owned()],
            timeout_ms: 50,
            flow: FlowMode::Off,
            external: None,
        }
    }
}

/// A policy service with the data API of Open Policy Agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalPolicyConfig {
    /// The address of the package's document, such as `http://127.0.0.1:8181/v1/data/tools`. It may be a private one.
    pub url: Url,
    /// Maximum wait for an answer, in milliseconds. Without an answer the call is denied.
    #[serde(default = "default_external_timeout_ms")]
    pub timeout_ms: u64,
    /// Whether it gets the arguments of calls, beside their SHA-256.
    #[serde(default)]
    pub send_arguments: bool,
    /// Whether it is asked about each answer too, which it gets, with `phase: answer`.
    #[serde(default)]
    pub send_answers: bool,
}

impl ExternalPolicyConfig {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    fn check(&self, findings: &mut Findings) {
        if !matches!(self.url.scheme(), "http" | "https") || self.url.host().is_none() {
            findings.add("policy.external.url", "is no web address", "write http://HOST:PORT/v1/data/PACKAGE");
        } else if !self.url.username().is_empty() || self.url.password().is_some() {
            findings.add("policy.external.url", "has a user name or password", "write the address without them");
        }
        check_timeout("policy.external.timeout_ms", self.timeout_ms, findings);
    }
}

/// Absolute, so that two processes that name the file by different paths have the same configuration.
fn beside(file: &Path, directory: &Path) -> PathBuf {
    let place = file.parent().unwrap_or(Path::new("")).join(directory);
    std::path::absolute(&place).unwrap_or(place)
}

fn default_external_timeout_ms() -> u64 {
    1_000
}

impl PolicyConfig {
    /// Has a relative folder be beside the configuration file: a start in another working directory has the same rules.
    pub(super) fn take_beside(&mut self, file: &Path) {
        for directory in [&mut self.directory, &mut self.shadow].into_iter().flatten() {
            *directory = beside(file, directory);
        }
    }

    /// Versions before read a relative folder in the working directory.
    pub(super) fn check_place(&self, file: &Path, findings: &mut Findings) {
        let Some(directory) = &self.directory else { return };
        let place = beside(file, directory);
        if !place.exists() && directory.is_dir() {
            findings.add(
                "policy.directory",
                format!("{} does not exist: a relative folder is beside the configuration file", place.display()),
                "move the one of the working directory there, which does not count, or write its whole path",
            );
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        if self.dangerous_roles.is_empty() {
            let advice = "set a role, or permit a single tool with `dangerous: false` in `tools.overrides`";
            findings.add("policy.dangerous_roles", "is empty, so that no caller could use a dangerous tool", advice);
        }
        findings.names("policy.dangerous_roles", &self.dangerous_roles);
        check_timeout("policy.timeout_ms", self.timeout_ms, findings);
        if let Some(external) = &self.external {
            external.check(findings);
        }
    }
}

fn check_timeout(setting: &str, timeout_ms: u64, findings: &mut Findings) {
    findings.above_zero(setting, timeout_ms);
    if timeout_ms > MAX_TIMEOUT_MS {
        findings.add(setting, "is longer than a minute", "set fewer milliseconds, or omit the setting");
    }
}
