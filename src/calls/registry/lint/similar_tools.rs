//! Tools that a model takes for each other.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::json;

use super::rules::{RULES, Rule};
use super::{Described, LintFinding};
use sekisho_tool_search::stems;

/// Tools that a finding names.
const MAX_NAMED: usize = 3;

/// The stems of verbs, with the stem that stands for all verbs of the same meaning.
static SAME_VERBS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut verbs = HashMap::new();
    for group in &RULES.same_verbs {
        let group = stems(&group.join(" "));
        let first = group.first().cloned().unwrap_or_default();
        verbs.extend(group.into_iter().map(|verb| (verb, first.clone())));
    }
    verbs
});

/// The findings about each tool, in the order of the tools.
pub(super) fn find(tools: &[Described<'_>]) -> Vec<Vec<LintFinding>> {
    let mut found: Vec<Vec<LintFinding>> = tools.iter().map(|_| Vec::new()).collect();
    for (tool, others) in with_equal_keys(tools, name_key) {
        let problem = format!("a model takes its name for that of {}", named(&others));
        found[tool].push(LintFinding::new(Rule::SimilarName, problem));
    }
    for (tool, others) in with_equal_keys(tools, description_key) {
        let problem = format!("its description is nearly the same as the one of {}", named(&others));
        let finding = LintFinding::new(Rule::SimilarDescription, problem);
        let Described { source, description, .. } = tools[tool];
        let is_elsewhere = others.iter().all(|other| other.source != source);
        // The names of two sources tell their tools apart.
        found[tool].push(match source.split_once(':').filter(|_| is_elsewhere) {
            Some((_, source)) => finding.fixed_by("description", json!(format!("{source}: {}", description.trim()))),
            None => finding,
        });
    }
    found
}

/// Each tool that has the key of others, with the first of these.
fn with_equal_keys<'t, 'a>(
    tools: &'t [Described<'a>],
    key: fn(&Described<'_>) -> Option<Vec<String>>,
) -> Vec<(usize, Vec<&'t Described<'a>>)> {
    let mut groups = HashMap::<Vec<String>, Vec<usize>>::new();
    for (at, tool) in tools.iter().enumerate() {
        if let Some(key) = key(tool) {
            groups.entry(key).or_default().push(at);
        }
    }
    let mut found = Vec::new();
    for group in groups.values().filter(|group| group.len() > 1) {
        for at in group {
            let others = group.iter().filter(|other| *other != at).take(MAX_NAMED).map(|other| &tools[*other]);
            found.push((*at, others.collect()));
        }
    }
    found
}

fn named(tools: &[&Described<'_>]) -> String {
    tools.iter().map(|tool| format!("`{}`", tool.name)).collect::<Vec<_>>().join(", ")
}

/// The name with one verb for all that mean the same, in stems. The prefix of a source tells its tools from others.
fn name_key(tool: &Described<'_>) -> Option<Vec<String>> {
    let (prefix, own) = tool.parts_of_name();
    Some([prefix.to_owned()].into_iter().chain(words(own)).collect())
}

/// The same of the description. A short one says too little to compare.
fn description_key(tool: &Described<'_>) -> Option<Vec<String>> {
    let words = words(tool.description);
    (words.len() >= RULES.min_description_words).then_some(words)
}

fn words(text: &str) -> Vec<String> {
    let mut words = stems(text);
    words.retain(|word| !RULES.articles.contains(word));
    if let Some(first) = words.first_mut()
        && let Some(verb) = SAME_VERBS.get(first.as_str())
    {
        verb.clone_into(first);
    }
    words
}
