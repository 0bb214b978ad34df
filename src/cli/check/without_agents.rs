//! In a program without agents: their settings have no effect, and their files are not read.

use std::collections::BTreeSet;

use super::{Finding, warning};
use sekisho_config::AgentConfig;

pub(super) fn unused_settings(config: &AgentConfig) -> Vec<Finding> {
    let note = "this program was built without the feature `agent`: these settings have no effect";
    let is_set = *config != AgentConfig::default();
    is_set.then(|| warning(("agent".to_owned(), note.to_owned()))).into_iter().collect()
}

pub(super) fn check_files(_config: &AgentConfig) -> Option<Finding> {
    None
}

pub(super) fn skills(_config: &AgentConfig) -> Option<BTreeSet<String>> {
    None
}
