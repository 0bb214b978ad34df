//! The fidelity report: the result for each operation of a document.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use utoipa::ToSchema;

/// Maximum operations that a message names; the report has all.
const MAX_NAMED: usize = 5;

/// What works, what was approximated, what needs credentials and what was lost, operation by operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Operations in the document.
    pub operations: usize,
    /// Tools generated from them.
    pub tools: usize,
    /// Tools that match the document exactly, and have the credentials that they need.
    pub works: Vec<Works>,
    /// Operations that are not offered.
    pub lost: Vec<Note>,
    /// Operations that work, but differ from the document.
    pub approximated: Vec<Note>,
    /// Operations that are offered, and require credentials that are not configured.
    pub needs_credentials: Vec<Note>,
    /// Operations that refer to a part of the document that is not there, and are offered without it.
    #[serde(skip)]
    pub broken_references: Vec<Note>,
    /// Operations that require a role only because of their method.
    pub dangerous: Vec<Works>,
    /// Operations that delete by their name, and require no role.
    pub open_deletes: Vec<Works>,
    /// Definitions that differ from the document's schemas, with the reason: operations that use one are approximated.
    #[serde(skip)]
    pub approximated_definitions: BTreeMap<String, String>,
}

/// An operation and its tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Works {
    pub operation: String,
    pub tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = FidelityNote)]
pub struct Note {
    /// The operationId, or `METHOD /path`, or a place in the document outside of operations.
    pub operation: String,
    pub reason: String,
}

impl Report {
    /// The operations that are dangerous because of their method, and those that delete by their name and are not dangerous, each with
    /// the setting that changes it; `None` where there are none. `opened` are tools that the configuration marks as harmless.
    pub fn dangers(&self, opened: impl Fn(&str) -> bool) -> Option<String> {
        let notes: Vec<_> =
            [self.dangerous_by_method(&opened), self.deletes_by_name(&opened)].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn deletes_by_name(&self, opened: impl Fn(&str) -> bool) -> Option<String> {
        let names: Vec<_> =
            self.open_deletes.iter().map(|works| works.tool.as_str()).filter(|tool| !opened(tool)).collect();
        let (first, further) = names.split_at(names.len().min(MAX_NAMED));
        let subject = match names.len() {
            0 => return None,
            1 => "1 operation deletes",
            count => &format!("{count} operations delete"),
        };
        let more = if further.is_empty() { String::new() } else { format!(" and {} more", further.len()) };
        Some(format!(
            "{subject} by name with another method, and callers need no role ({}{more}); `dangerous: {{words: true}}` at the \
             collection requires one",
            first.join(", ")
        ))
    }

    fn dangerous_by_method(&self, opened: impl Fn(&str) -> bool) -> Option<String> {
        let count = self.dangerous.iter().filter(|works| !opened(&works.tool)).count();
        let subject = match count {
            0 => return None,
            1 => "1 operation is",
            _ => &format!("{count} operations are"),
        };
        Some(format!(
            "{subject} dangerous for the method, so callers need a role; `dangerous: {{methods: []}}` at the collection \
             opens that"
        ))
    }

    pub fn lost(&mut self, operation: &str, reason: impl Into<String>) {
        self.lost.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }

    pub fn needs_credentials(&mut self, operation: &str, reason: impl Into<String>) {
        self.needs_credentials.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }

    /// How many operations each of the four lists has, as a sentence.
    pub fn summary(&self) -> String {
        let Self { operations, tools, works, lost, approximated, needs_credentials, .. } = self;
        let distinct = |notes: &[Note]| notes.iter().map(|note| &note.operation).collect::<BTreeSet<_>>().len();
        let plural = |number: &usize| if *number == 1 { "" } else { "s" };
        format!(
            "{operations} operation{}, {tools} tool{}, {} work as described, {} approximated, {} without credentials, {} lost",
            plural(operations),
            plural(tools),
            works.len(),
            distinct(approximated),
            distinct(needs_credentials),
            lost.len()
        )
    }

    /// A reference that leads nowhere: the operation is offered without its target.
    pub fn broken_reference(&mut self, operation: &str, broken: &impl ToString) {
        let reason = format!("{}: the operation is offered without it", broken.to_string());
        self.broken_references.push(Note { operation: operation.to_owned(), reason: reason.clone() });
        self.approximated(operation, reason);
    }

    pub fn approximated(&mut self, operation: &str, reason: impl Into<String>) {
        self.approximated.push(Note { operation: operation.to_owned(), reason: reason.into() });
    }
}
