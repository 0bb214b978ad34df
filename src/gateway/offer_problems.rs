//! Which tools, prompts and resources of a source exist but are not offered, and whose outputs are not checked: for
//! `/readyz` and the log.

use std::collections::BTreeMap;

use sekisho_calls::registry::Snapshot;
use sekisho_calls::tool::OfferKind;

/// The reported lists of a source.
const LISTS: [&str; 3] =
    ["tools that are not offered", "prompts and resources that are not offered", "tools whose outputs are not checked"];

/// Maximum number of tools named with their reasons.
const MAX_NAMED: usize = 3;

/// The problems of each source that is there for all, by its name: callers of all tenants read them.
pub(super) fn offer_problems(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut problems: BTreeMap<&str, [Vec<(String, &str)>; 3]> = BTreeMap::new();
    let missing = snapshot.unavailable().iter().filter(|missing| missing.owner.is_shared());
    for missing in missing.filter(|missing| missing.is_described_outside() && missing.on_request.is_none()) {
        let list = usize::from(missing.kind != OfferKind::Tool);
        problems.entry(&missing.source).or_default()[list].push((missing.described(), &missing.reason));
    }
    let tools = snapshot.tools().iter().filter(|tool| tool.metadata.owner.is_shared());
    for tool in tools.filter(|tool| tool.metadata.on_request.is_none()) {
        if let Some(problem) = &tool.output_problem {
            problems.entry(&tool.metadata.source).or_default()[2].push((tool.name().to_owned(), problem));
        }
    }
    let described = problems.into_iter().map(|(source, lists)| {
        let lists = LISTS.into_iter().zip(&lists).filter_map(|(what, list)| described(what, list));
        (source.to_owned(), lists.collect::<Vec<_>>().join("; "))
    });
    described.collect()
}

fn described(what: &str, tools: &[(String, &str)]) -> Option<String> {
    let named = tools.iter().take(MAX_NAMED).map(|(tool, reason)| format!("{tool} ({reason})"));
    let more = tools.len().checked_sub(MAX_NAMED + 1).map(|more| format!("and {} more", more + 1));
    let named = named.chain(more).collect::<Vec<_>>().join(", ");
    (!tools.is_empty()).then(|| format!("{what}: {named}"))
}
