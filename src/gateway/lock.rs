//! `tools.lock` while the service runs, and what it is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::parts::component_error;
use super::{Gateway, StartError};
use crate::config::Config;
use crate::infra::metrics::Metrics;
use crate::infra::readiness::Readiness;
use crate::registry::Snapshot;
use crate::registry::lock::Lock;
use crate::registry::lock::Quarantined;

/// The part of the service that a lock which cannot be used is named as.
const PART: &str = "tools.lock";

/// What readiness names while tools wait for approval.
const QUARANTINE: &str = "quarantine";

/// Names that a log line or readiness shows.
const MAX_NAMED: usize = 10;

/// The lock of a configuration, as it stands in its file now; none where there is none.
///
/// # Errors
/// The file cannot be used, or is named and not there.
pub async fn read(config: &Config) -> Result<Option<Lock>, StartError> {
    let file = config.lock_file();
    let shown = file.display().to_string();
    let is_named = config.tools.lock.is_some();
    let lock = tokio::task::spawn_blocking(move || Lock::read(&file)).await.map_err(component_error(PART))?;
    match lock.map_err(|problem| component_error(PART)(format!("{shown}: {problem}")))? {
        None if is_named => {
            let advice = "make it with `sekisho lock`, or take `tools.lock` out of the configuration";
            Err(component_error(PART)(format!("{shown} is not there; {advice}")))
        }
        lock => Ok(lock),
    }
}

impl Gateway {
    /// The lock to go by from now on. One that cannot be used leaves the one before in force, and if there was
    /// none, everything from outside is quarantined: never is it as if there were no lock.
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
                format!("{} is gone; what it pinned holds until the next start", file.display())
            }
            (Err(problem), _) => problem.problem,
        };
        self.readiness.degrade(PART, problem);
        before.or_else(|| Some(Arc::default()))
    }

    /// Names of a source's tools that wait for approval.
    pub fn quarantined_of(&self, source: &str) -> Vec<String> {
        let snapshot = self.pipeline.registry.snapshot();
        let held_back = snapshot.quarantined().filter(|tool| tool.metadata.source == source);
        held_back.map(|tool| tool.name().to_owned()).collect()
    }

    /// Puts a snapshot in place of the one before, and says which of its tools somebody should look at.
    pub(super) fn offer_snapshot(&self, snapshot: Snapshot) {
        let before = self.pipeline.registry.snapshot();
        let words = self.mcp_servers.quarantined();
        report_quarantine(&before, &snapshot, &words, &self.readiness, &self.pipeline.settlement.metrics);
        self.pipeline.registry.replace(snapshot);
    }
}

/// `words` are the sources of MCP servers whose words, beside their tools, are held back.
pub(super) fn report_quarantine(
    before: &Snapshot,
    now: &Snapshot,
    words: &[String],
    readiness: &Readiness,
    metrics: &Metrics,
) {
    let held_back: BTreeSet<_> = now.quarantined().map(Quarantined::name).chain(words.iter().map(|w| &**w)).collect();
    let flagged = now.tools().iter().filter(|tool| !tool.flags.is_empty());
    metrics.tools_to_look_at(held_back.len(), flagged.clone().count());
    if held_back.is_empty() {
        readiness.restore(QUARANTINE);
    } else {
        let names = named(held_back.iter().copied());
        let waiting = held_back.len();
        readiness.degrade(QUARANTINE, format!("{waiting} wait for `sekisho lock approve`: {names}"));
    }
    // A line a source: a server may change thousands of tools many times a minute.
    let mut newly: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for tool in flagged.filter(|tool| before.get(tool.name()).is_none_or(|known| known.flags != tool.flags)) {
        newly.entry(&tool.metadata.source).or_default().push(tool);
    }
    for (source, tools) in newly {
        let first = tools.iter().find_map(|tool| tool.flags.first());
        let (rule, path) = first.map(|flag| (&*flag.rule, &*flag.path)).unwrap_or_default();
        let count = tools.len();
        let tools = named(tools.iter().map(|tool| tool.name()));
        tracing::warn!(
            source,
            count,
            tools,
            rule,
            path,
            "tools have what looks like hidden instructions in their words"
        );
    }
}

fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.take(MAX_NAMED + 1).collect();
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(MAX_NAMED)].join(", "))
}
