//! The settings of agents, and their files.

use std::collections::BTreeSet;

use super::{Finding, finding, warning};
use sekisho_agent::catalog::read_folders;
use sekisho_agent::models::sampling;
use sekisho_config::AgentConfig;

/// Settings that the models of their profiles do not take, and models of which nothing is known.
pub(super) fn unused_settings(config: &AgentConfig) -> Vec<Finding> {
    let unused = sampling::unused_settings(config).into_iter().chain(sampling::unknown_models(config));
    unused.map(warning).collect()
}

/// The skills and types of sub-agents, where there are any.
pub(super) fn check_files(config: &AgentConfig) -> Option<Finding> {
    let names = |kind: &str, names: Vec<&str>| (!names.is_empty()).then(|| format!("{kind} {}", names.join(", ")));
    let outcome = match read_folders(config) {
        Err(problem) => Err(problem.to_string()),
        Ok((skills, subagents)) => {
            let types = subagents.keys().chain(config.subagents.types.keys());
            let skills = names("skills", skills.keys().map(String::as_str).collect());
            let found = [skills, names("sub-agents", types.map(String::as_str).collect())];
            Ok(found.into_iter().flatten().collect::<Vec<_>>().join("; "))
        }
    };
    (outcome != Ok(String::new())).then(|| finding("agents", outcome))
}

/// The names of the skills in their folder; `None` if it cannot be read.
pub(super) fn skills(config: &AgentConfig) -> Option<BTreeSet<String>> {
    read_folders(config).ok().map(|(skills, _)| skills.into_keys().collect())
}
