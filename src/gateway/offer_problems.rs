//! Which tools of a source exist but are not offered, or whose outputs are not checked: for `/readyz` and the log.

use std::collections::BTreeMap;

use crate::registry::Snapshot;

/// Maximum number of tools named with their reasons.
const MAX_NAMED: usize = 3;

/// The problems of each source, by its name.
pub(super) fn offer_problems(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut problems: BTreeMap<&str, [Vec<(&str, &str)>; 2]> = BTreeMap::new();
    let missing = snapshot.unavailable().iter();
    for tool in missing.filter(|tool| tool.is_described_outside()) {
        problems.entry(&tool.source).or_default()[0].push((&tool.tool, &tool.reason));
    }
    for tool in snapshot.tools() {
        if let Some(problem) = &tool.output_problem {
            problems.entry(&tool.metadata.source).or_default()[1].push((tool.name(), problem));
        }
    }
    let described = problems.into_iter().map(|(source, [not_offered, not_checked])| {
        let not_offered = described("tools that are not offered", &not_offered);
        let not_checked = described("tools whose outputs are not checked", &not_checked);
        (source.to_owned(), [not_offered, not_checked].into_iter().flatten().collect::<Vec<_>>().join("; "))
    });
    described.collect()
}

fn described(what: &str, tools: &[(&str, &str)]) -> Option<String> {
    let named = tools.iter().take(MAX_NAMED).map(|(tool, reason)| format!("{tool} ({reason})"));
    let more = tools.len().checked_sub(MAX_NAMED + 1).map(|more| format!("and {} more", more + 1));
    let named = named.chain(more).collect::<Vec<_>>().join(", ");
    (!tools.is_empty()).then(|| format!("{what}: {named}"))
}
