//! A union at the root of a schema, which model APIs refuse, as one object with the properties of all its parts.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::tool::schema::bounds::local;

/// Keywords that OpenAI refuses at the root; Anthropic refuses the first three.
const REFUSED: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

/// Maximum references and compositions followed for one schema.
const MAX_STEPS: usize = 16;

/// Maximum properties and required names of all parts together: many parts may refer to one large object.
const MAX_MEMBERS: usize = 10_000;

/// Maximum alternatives that the description lists.
const MAX_LISTED: usize = 12;

/// The schema with one object at its root; `None` if it has no such keyword there, or more members than [`MAX_MEMBERS`]. It allows all values that the schema allows.
pub(in super::super) fn without_union(document: &Value) -> Option<Value> {
    let root = document.as_object()?;
    if !REFUSED.iter().any(|keyword| root.contains_key(*keyword)) {
        return None;
    }
    let union = Union { root: document, members: Cell::new(0) };
    let mut whole = union.of(document, 0);
    if union.members.get() > MAX_MEMBERS {
        return None;
    }
    if root.get("additionalProperties") == Some(&Value::Bool(false)) {
        let own = root.get("properties");
        whole.properties.retain(|name, _| own.is_some_and(|own| own.get(name).is_some()));
    }
    let mut shown: Map<_, _> =
        root.iter().filter(|(keyword, _)| !REFUSED.contains(&keyword.as_str())).map(owned).collect();
    if let Some(described) = described(root, &whole) {
        shown.insert("description".to_owned(), described.into());
    }
    shown.insert("properties".to_owned(), whole.properties.into());
    match whole.required.is_empty() {
        true => _ = shown.shift_remove("required"),
        false => _ = shown.insert("required".to_owned(), whole.required.into()),
    }
    Some(shown.into())
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// The description, with the alternatives by the names that each requires.
fn described(root: &Map<String, Value>, whole: &Members) -> Option<String> {
    let sets = &whole.alternatives;
    if sets.len() < 2 || sets.len() > MAX_LISTED || sets.iter().any(Vec::is_empty) {
        return None;
    }
    let quoted = |names: &Vec<String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let listed = format!(
        "Give the arguments of one of these lines:\n{}",
        sets.iter().map(quoted).collect::<Vec<_>>().join("\n")
    );
    Some(match root.get("description").and_then(Value::as_str) {
        Some(own) => format!("{own}\n{listed}"),
        None => listed,
    })
}

/// The properties of an object, the required ones, and the required ones of each alternative.
#[derive(Default)]
struct Members {
    properties: Map<String, Value>,
    required: Vec<String>,
    alternatives: Vec<Vec<String>>,
}

impl Members {
    /// Both apply.
    fn and(&mut self, other: Self) {
        for (name, schema) in other.properties {
            match self.properties.get_mut(&name) {
                Some(known) if *known == schema || schema == json!({}) => {}
                Some(known) if *known == json!({}) => *known = schema,
                Some(known) => *known = all_of(known.take(), schema),
                None => _ = self.properties.insert(name, schema),
            }
        }
        for name in other.required {
            if !self.required.contains(&name) {
                self.required.push(name);
            }
        }
        if self.alternatives.is_empty() {
            self.alternatives = other.alternatives;
        }
    }

    /// One of them applies.
    fn either(parts: Vec<Self>) -> Self {
        let required = parts.first().map(|first| first.required.clone()).unwrap_or_default();
        let by_all = |name: &String| parts.iter().all(|part| part.required.contains(name));
        let required = required.into_iter().filter(by_all).collect();
        let alternatives = parts.iter().map(|part| part.required.clone()).collect();
        let (mut schemas, mut seen) = (Map::new(), HashSet::new());
        for (name, schema) in parts.into_iter().flat_map(|part| part.properties) {
            if seen.insert((name.clone(), schema.clone()))
                && let Value::Array(known) = schemas.entry(name).or_insert_with(|| json!([]))
            {
                known.push(schema);
            }
        }
        let one_of = |(name, schemas): (String, Value)| match schemas {
            Value::Array(mut schemas) if schemas.len() == 1 => (name, schemas.swap_remove(0)),
            schemas => (name, json!({"anyOf": schemas})),
        };
        Self { properties: schemas.into_iter().map(one_of).collect(), required, alternatives }
    }
}

/// Both apply. In one list: a chain would be nested as deep as there are parts, and whoever writes or drops it would run out of
/// stack.
fn all_of(known: Value, schema: Value) -> Value {
    match known {
        Value::Object(mut members) if members.len() == 1 && members.get("allOf").is_some_and(Value::is_array) => {
            if let Some(Value::Array(all)) = members.get_mut("allOf") {
                all.push(schema);
            }
            members.into()
        }
        known => json!({"allOf": [known, schema]}),
    }
}

/// Collects the members of a schema's parts.
struct Union<'s> {
    root: &'s Value,
    /// How many there are so far; beyond the maximum no more are collected.
    members: Cell<usize>,
}

impl Union<'_> {
    fn of(&self, schema: &Value, steps: usize) -> Members {
        let mut found = Members::default();
        let Some(keywords) = schema.as_object().filter(|_| steps < MAX_STEPS) else { return found };
        let own = keywords.get("properties").and_then(Value::as_object);
        let required = keywords.get("required").and_then(Value::as_array);
        let count = own.map_or(0, Map::len).saturating_add(required.map_or(0, Vec::len));
        self.members.set(self.members.get().saturating_add(count));
        if self.members.get() > MAX_MEMBERS {
            return found;
        }
        found.properties = own.cloned().unwrap_or_default();
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        found.required = required.map(str::to_owned).collect();
        let reference = keywords.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        if let Some(target) = reference.and_then(|fragment| local(self.root, fragment)).filter(|_| steps > 0) {
            found.and(self.of(target, steps + 1));
        }
        let parts = |keyword: &str| keywords.get(keyword).and_then(Value::as_array).into_iter().flatten();
        for part in parts("allOf") {
            found.and(self.of(part, steps + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives: Vec<_> = parts(keyword).map(|part| self.of(part, steps + 1)).collect();
            if !alternatives.is_empty() {
                found.and(Members::either(alternatives));
            }
        }
        found
    }
}
