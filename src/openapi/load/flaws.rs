//! Flaws of one part of a document: the operation that has one is lost, and no other.

use serde_json::Value;

use crate::read::report::Note;

/// Where a document could be read in several ways, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// JSON Pointer (RFC 6901).
    pub(crate) place: String,
    pub(crate) reason: String,
}

/// The cost of a document's flaws.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    pub(crate) lost: Vec<Note>,
    pub(crate) approximated: Vec<Note>,
}

impl Cost {
    /// Removes the operations and paths that have flaws. For a flaw elsewhere the last value counts, or none.
    pub(crate) fn of(flaws: Vec<Flaw>, document: &mut Value) -> Self {
        let mut cost = Self::default();
        for Flaw { place, reason } in flaws {
            let steps: Vec<String> =
                place.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
            match steps.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["paths", path] => {
                    if remove(document, &["paths", path]).is_some() {
                        cost.lost.push(Note { operation: (*path).to_owned(), reason });
                    }
                }
                ["paths", path, method, ..] if !is_shared(method) => {
                    // One operation may have several flaws.
                    if let Some(operation) = remove(document, &["paths", path, method]) {
                        let id = operation.get("operationId").and_then(Value::as_str);
                        let label = id.map_or_else(|| format!("{} {path}", method.to_ascii_uppercase()), str::to_owned);
                        cost.lost.push(Note { operation: label, reason: format!("{reason} at {place:?}") });
                    }
                }
                _ => {
                    let reason = format!("{reason}: the last value counts, and what is nested deeper is left out");
                    cost.approximated.push(Note { operation: place, reason });
                }
            }
        }
        cost
    }
}

/// Whether all operations of a path have the member in common.
fn is_shared(member: &str) -> bool {
    matches!(member, "parameters" | "servers" | "summary" | "description" | "$ref") || member.starts_with("x-")
}

fn remove(document: &mut Value, steps: &[&str]) -> Option<Value> {
    let (last, above) = steps.split_last()?;
    let holder = above.iter().try_fold(document, |value, step| value.get_mut(*step))?;
    holder.as_object_mut()?.shift_remove(*last)
}
