//! Which operations are dangerous: by their method, by name or tag, or by an extension in the document or an overlay.

use http::Method;
use serde_json::Value;

use crate::read::operation::Operation;
use crate::read::report::Report;
use sekisho_calls::tool::Effects;
use sekisho_config::DangerousOperations;

/// Marks an operation as dangerous, or, in an overlay, as harmless.
const EXTENSION: &str = "x-dangerous";

/// Why an operation is dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Danger {
    /// Marked in the document or an overlay, or named in the settings.
    Named,
    /// Its method is one of `dangerous.methods`.
    Method,
    /// It deletes by its name, and the settings make such operations dangerous.
    Words,
}

/// Whether and why an operation is dangerous. Any value but `false` marks it as dangerous.
pub(super) fn danger_of(operation: &Operation, settings: &DangerousOperations) -> Option<Danger> {
    let DangerousOperations { methods, operations, tags, words } = settings;
    match operation.extensions.get(EXTENSION) {
        Some(Value::Bool(false)) => return None,
        Some(_) => return Some(Danger::Named),
        None => {}
    }
    let is_named = operations.iter().any(|key| is_key_of(key, operation));
    if is_named || operation.tags.iter().any(|tag| tags.contains(tag)) {
        return Some(Danger::Named);
    }
    let method = operation.method.as_str();
    let is_by_method = methods.iter().any(|dangerous| dangerous.eq_ignore_ascii_case(method));
    let by_words = || (*words && deletes_by_name(operation)).then_some(Danger::Words);
    is_by_method.then_some(Danger::Method).or_else(by_words)
}

/// Words of operations that delete.
const DELETING: [&str; 8] = ["delete", "destroy", "drop", "erase", "purge", "remove", "truncate", "wipe"];

/// Whether an operation that is no DELETE deletes, by the words of its id and of the end of its path, and is not marked as harmless.
/// One that only reads may be about deletions (`getDeleteRequests`), so of its words only the first and the last count.
pub(super) fn deletes_by_name(operation: &Operation) -> bool {
    if operation.method == Method::DELETE || operation.extensions.contains_key(EXTENSION) {
        return false;
    }
    let last = operation.path.split('/').rfind(|segment| !segment.is_empty() && !segment.contains('{'));
    let names = operation.id.as_deref().into_iter().chain(last);
    names.map(words_of).any(|words| match is_safe(operation) {
        false => words.iter().any(|word| is_deleting(word)),
        true => words.first().into_iter().chain(words.last()).any(|word| is_deleting(word)),
    })
}

fn is_deleting(word: &str) -> bool {
    DELETING.iter().any(|deleting| word.eq_ignore_ascii_case(deleting))
}

/// The words of `bulkDelete_users` or `chat.delete`.
fn words_of(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in name.split(|character: char| !character.is_alphanumeric()) {
        let mut start = 0;
        let pairs = part.char_indices().zip(part.char_indices().skip(1));
        for ((_, before), (at, character)) in pairs {
            if character.is_uppercase() && !before.is_uppercase() {
                words.push(&part[start..at]);
                start = at;
            }
        }
        words.push(&part[start..]);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether it only reads. OpenAPI 3.2's QUERY is a GET with a body.
fn is_safe(operation: &Operation) -> bool {
    operation.method.is_safe() || operation.method.as_str() == "QUERY"
}

/// The annotations for MCP clients that follow from the method (RFC 9110 §9.2). None follow from POST and PATCH.
pub(super) fn effects_of(operation: &Operation) -> Effects {
    let is_safe = is_safe(operation);
    let destructive = match operation.method.as_str() {
        "DELETE" => Some(true),
        _ if is_safe => Some(false),
        _ => None,
    };
    Effects { read_only: is_safe, destructive, open_world: true }
}

/// Whether settings name an operation by its id, or by its method and path.
pub(super) fn is_key_of(key: &str, operation: &Operation) -> bool {
    operation.id.as_deref() == Some(key) || format!("{} {}", operation.method, operation.path) == key
}

/// Removes values that would mark a document's operations as harmless: its author is not trusted. An overlay is the
/// operator's and is applied afterwards.
pub(in super::super) fn without_false_hints(document: &mut Value) {
    match document {
        Value::Object(members) => {
            if members.get(EXTENSION) == Some(&Value::Bool(false)) {
                members.shift_remove(EXTENSION);
            }
            members.values_mut().for_each(without_false_hints);
        }
        Value::Array(items) => items.iter_mut().for_each(without_false_hints),
        _ => {}
    }
}

/// Reports methods in the settings that no operation has, probably a typing error.
pub(super) fn report_unknown_methods(settings: &DangerousOperations, operations: &[Operation], report: &mut Report) {
    const KNOWN: [&str; 9] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];
    for method in &settings.methods {
        let is = |known: &str| known.eq_ignore_ascii_case(method);
        if !KNOWN.into_iter().any(is) && !operations.iter().any(|operation| is(operation.method.as_str())) {
            report.approximated(method, "`dangerous.methods` names this method, but no operation has it");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_false_is_removed() {
        let mut document = json!({
            "paths": {
                "/a": {"x-dangerous": false, "delete": {"x-dangerous": false, "x-other": false}},
                "/b": {"delete": {"x-dangerous": true}, "get": {"x-dangerous": "false"}},
            },
            "components": {"pathItems": {"c": [{"delete": {"x-dangerous": false}}]}},
        });
        without_false_hints(&mut document);
        let expected = json!({
            "paths": {
                "/a": {"delete": {"x-other": false}},
                "/b": {"delete": {"x-dangerous": true}, "get": {"x-dangerous": "false"}},
            },
            "components": {"pathItems": {"c": [{"delete": {}}]}},
        });
        assert_eq!(document, expected);
    }
}
