//! Loads and applies `tools.lock` while the service runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offer_problems::offer_problems;
use super::parts::component_error;
use super::{StartError, ToolOffer};
use sekisho_calls::registry::Snapshot;
use sekisho_calls::registry::lock::Lock;
use sekisho_calls::tool::Metadata;
use sekisho_config::Config;
use sekisho_core::administration::Ownership;
use sekisho_observe::metrics::Metrics;
use sekisho_observe::readiness::Readiness;

/// The name of the part in errors and readiness when the lock cannot be used.
const PART: &str = "tools.lock";

/// The name of the part in readiness while tools wait for approval.
const QUARANTINE: &str = "quarantine";

/// Maximum number of names in a log line or in readiness.
const MAX_NAMED: usize = 10;

/// Reads the lock of a configuration from its file; `None` when none is configured and the default does not exist.
/// Errors: the file cannot be used, or is configured but does not exist.
pub async fn read(config: &Config) -> Result<Option<Lock>, StartError> {
    let file = config.lock_file();
    let shown = file.display().to_string();
    let is_named = config.tools.lock.is_some();
    let lock = tokio::task::spawn_blocking(move || Lock::read(&file)).await.map_err(component_error(PART))?;
    match lock.map_err(|problem| component_error(PART)(format!("{shown}: {problem}")))? {
        None if is_named => {
            let advice = "create it with `sekisho lock`, or remove `tools.lock` from the configuration";
            Err(component_error(PART)(format!("{shown} does not exist; {advice}")))
        }
        lock => Ok(lock),
    }
}

impl ToolOffer {
    /// The lock to apply from now on. If the new one cannot be used, the active one stays. If there is no active one,
    /// all external tools are quarantined: a damaged lock is never treated as a missing one.
    pub(super) async fn next_lock(&self, config: &Config) -> Option<Arc<Lock>> {
        let before = self.lock.load_full();
        let problem = match (read(config).await, before.as_deref()) {
            (Ok(Some(lock)), before_it) => {
                self.readiness.restore(PART);
                return if before_it == Some(&lock) { before } else { Some(Arc::new(lock)) };
            }
            (Ok(None), None) => return None,
            (Ok(None), Some(_)) => {
                let file = config.lock_file();
                format!("{} was removed; its pins apply until the next start", file.display())
            }
            (Err(problem), _) => problem.problem,
        };
        self.readiness.degrade(PART, problem);
        before.or_else(|| Some(Arc::default()))
    }

    /// The names of a source's tools that wait for approval.
    pub fn quarantined_of(&self, source: &str) -> Vec<String> {
        let snapshot = self.pipeline.registry.snapshot();
        let held_back = snapshot.quarantined().filter(|tool| tool.metadata.source == source);
        held_back.map(|tool| tool.name().to_owned()).collect()
    }

    /// Whether the lock has a pin of the tool; `None` while no lock applies.
    pub fn is_pinned(&self, tool: &str) -> Option<bool> {
        self.lock.load().as_ref().map(|lock| lock.get(tool).is_some())
    }

    /// Replaces the snapshot, and reports its quarantined and flagged tools.
    pub(super) fn replace(&self, snapshot: Snapshot) {
        let before = self.pipeline.registry.snapshot();
        let words = self.mcp_servers.quarantined();
        report_quarantine(&before, &snapshot, &words, &self.readiness, &self.pipeline.settlement.metrics);
        let known = offer_problems(&before);
        for (source, problem) in offer_problems(&snapshot) {
            if known.get(&source) != Some(&problem) {
                tracing::warn!(source, problem, "a source has tools that cannot be used as it describes them");
            }
        }
        self.pipeline.registry.replace(snapshot);
        self.names_changed.notify_one();
        let snapshot = self.pipeline.registry.snapshot();
        self.pipeline.settlement.metrics.forget_tools(|name| snapshot.knows(name));
    }
}

/// `words` are the sources of MCP servers whose instructions and prompts are quarantined.
pub(super) fn report_quarantine(
    before: &Snapshot,
    now: &Snapshot,
    words: &[(String, Ownership)],
    readiness: &Readiness,
    metrics: &Metrics,
) {
    // Nor do callers read the names of tools whose source may be off for them.
    let is_for_all = |tool: &Metadata| tool.owner.is_shared() && tool.on_request.is_none();
    let tools = now.quarantined().map(|tool| (tool.name(), is_for_all(&tool.metadata)));
    let words = words.iter().map(|(source, owner)| (&**source, owner.is_shared()));
    let held_back: BTreeMap<_, _> = tools.chain(words).collect();
    let flagged = now.tools().iter().filter(|tool| !tool.flags.is_empty());
    metrics.tools_to_look_at(held_back.len(), flagged.clone().count());
    if held_back.is_empty() {
        readiness.restore(QUARANTINE);
    } else {
        // Callers of all tenants read this.
        let shared = held_back.iter().filter(|(_, for_all)| **for_all).map(|(name, _)| *name);
        let (waiting, names) = (held_back.len(), named(shared));
        let separator = if names.is_empty() { "" } else { ": " };
        readiness.degrade(QUARANTINE, format!("{waiting} wait for `sekisho lock approve`{separator}{names}"));
    }
    // One line per source: a server may change thousands of tools many times a minute.
    let mut newly: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for tool in flagged.filter(|tool| before.get(tool.name()).is_none_or(|known| known.flags != tool.flags)) {
        newly.entry(&tool.metadata.source).or_default().push(tool);
    }
    for (source, tools) in newly {
        let first = tools.iter().find_map(|tool| tool.flags.first());
        let (rule, path) = first.map(|flag| (&*flag.rule, &*flag.path)).unwrap_or_default();
        let count = tools.len();
        let tools = named(tools.iter().map(|tool| tool.name()));
        tracing::warn!(source, count, tools, rule, path, "tools have suspected prompt injections in their texts");
    }
}

/// Some names of many.
pub(super) fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.take(MAX_NAMED + 1).collect();
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(MAX_NAMED)].join(", "))
}
