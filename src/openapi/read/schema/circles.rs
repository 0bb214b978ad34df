//! Definitions that refer to themselves without descending into the value (`A: allOf: [A]`): no value can be
//! checked against them, so the reference that closes the cycle is removed.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::read::report::Note;

const REFERENCE_PREFIX: &str = "#/$defs/";
const IN_PLACE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Breaks every cycle at the reference that closes it, and reports it.
pub(super) fn open(definitions: &mut Map<String, Value>, notes: &mut Vec<Note>) {
    let closing = closing_references(definitions);
    for (name, targets) in closing {
        let reason = "the schema refers to itself; the reference that closes the cycle was removed";
        notes.push(Note { operation: format!("#/$defs/{name}"), reason: reason.into() });
        if let Some(schema) = definitions.get_mut(&name) {
            take_out(schema, &targets);
        }
    }
}

/// Depth first over the references in place, with an explicit stack: a chain may be as long as the document.
fn closing_references(definitions: &Map<String, Value>) -> Vec<(String, HashSet<String>)> {
    let edges: HashMap<&str, Vec<&str>> =
        definitions.iter().map(|(name, schema)| (name.as_str(), in_place_references(schema))).collect();
    let mut closing: Vec<(String, HashSet<String>)> = Vec::new();
    let mut seen = HashSet::new();
    for root in definitions.keys().map(String::as_str) {
        if !seen.insert(root) {
            continue;
        }
        let mut path = HashSet::from([root]);
        let mut stack = vec![(root, edges.get(root).into_iter().flatten())];
        while let Some((name, targets)) = stack.last_mut() {
            let name = *name;
            match targets.next().copied() {
                None => {
                    path.remove(name);
                    stack.pop();
                }
                Some(target) if path.contains(target) => record_cycle(&mut closing, name, target),
                Some(target) => {
                    if seen.insert(target) {
                        path.insert(target);
                        stack.push((target, edges.get(target).into_iter().flatten()));
                    }
                }
            }
        }
    }
    closing
}

fn record_cycle(closing: &mut Vec<(String, HashSet<String>)>, name: &str, target: &str) {
    match closing.iter_mut().find(|(known, _)| known == name) {
        Some((_, targets)) => {
            targets.insert(target.to_owned());
        }
        None => closing.push((name.to_owned(), HashSet::from([target.to_owned()]))),
    }
}

fn in_place_references(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut pending = vec![schema];
    while let Some(schema) = pending.pop() {
        found.extend(schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REFERENCE_PREFIX)));
        for keyword in IN_PLACE {
            match schema.get(keyword) {
                Some(Value::Array(listed)) => pending.extend(listed),
                Some(Value::Object(named)) if keyword == "dependentSchemas" => pending.extend(named.values()),
                Some(other) => pending.push(other),
                None => {}
            }
        }
    }
    found
}

fn take_out(schema: &mut Value, targets: &HashSet<String>) {
    let Value::Object(members) = schema else { return };
    let closes = |reference: &str| reference.strip_prefix(REFERENCE_PREFIX).is_some_and(|name| targets.contains(name));
    if members.get("$ref").and_then(Value::as_str).is_some_and(closes) {
        members.shift_remove("$ref");
    }
    for keyword in IN_PLACE {
        match members.get_mut(keyword) {
            Some(Value::Array(listed)) => listed.iter_mut().for_each(|schema| take_out(schema, targets)),
            Some(Value::Object(named)) if keyword == "dependentSchemas" => {
                named.values_mut().for_each(|schema| take_out(schema, targets));
            }
            Some(other) => take_out(other, targets),
            None => {}
        }
    }
}
