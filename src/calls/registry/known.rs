//! The state before a snapshot is built: the snapshot before, and values of arguments that other tools have.

use std::borrow::Cow;

use serde_json::Value;

use super::Snapshot;
use super::lock::injection_findings;
use crate::guards::texts_of_value;
use crate::tool::{EnumeratedValues, Metadata};
use sekisho_core::guard_finding::{GuardAction, GuardFinding};

impl Snapshot {
    /// Why values from outside may not be in the schema of a tool, which models read: an instruction or a finding in one of
    /// them, or in all after one another, as in a description of the tool.
    pub fn problem_of_values(&self, tool: &Metadata, values: &[Value]) -> Option<String> {
        let mut texts: Vec<_> = values.iter().flat_map(texts_of_value).collect();
        texts.push(Cow::Owned(texts.join(" ")));
        let scanned = Value::from(texts.iter().map(|text| &**text).collect::<Vec<_>>());
        if let Some(flag) = injection_findings("values", &scanned).first() {
            return Some(format!("they are not for a model: {}", flag.message));
        }
        let findings = self.guards.of_description(&tool.name, &tool.source, &texts);
        let GuardFinding { rule, found, .. } =
            findings.into_iter().find(|finding| finding.action == GuardAction::Block)?;
        Some(format!("the rule `{rule}` of tools.guards found {found} in them"))
    }
}

/// The state before a snapshot is built.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub before: &'a Snapshot,
    /// The values of arguments that were read from other tools.
    pub values: &'a EnumeratedValues,
}

impl<'a> From<&'a Snapshot> for Known<'a> {
    fn from(before: &'a Snapshot) -> Self {
        static NONE: EnumeratedValues = EnumeratedValues::new();
        Self { before, values: &NONE }
    }
}
