//! Which operations are dangerous: by their method, by name or tag, or by an extension in the document or an overlay.

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
}

/// Whether and why an operation is dangerous. Any value but `false` marks it as dangerous.
pub(super) fn danger_of(operation: &Operation, settings: &DangerousOperations) -> Option<Danger> {
    let DangerousOperations { methods, operations, tags } = settings;
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
    methods.iter().any(|dangerous| dangerous.eq_ignore_ascii_case(method)).then_some(Danger::Method)
}

/// The annotations for MCP clients that follow from the method (RFC 9110 §9.2). None follow from POST and PATCH.
pub(super) fn effects_of(operation: &Operation) -> Effects {
    let method = &operation.method;
    // OpenAPI 3.2's QUERY is a GET with a body.
    let is_safe = method.is_safe() || method.as_str() == "QUERY";
    let destructive = match method.as_str() {
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
