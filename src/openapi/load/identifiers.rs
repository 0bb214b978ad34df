//! Schemas with an `$id` (JSON Schema 2020-12 §8.2.1): references within them are relative to it. They become
//! fragments of the document, so that all that follows knows only those.

use std::collections::HashMap;

use serde_json::Value;
use url::Url;

use super::bundle::{DATA, NAMED};

/// The base of identifiers in a document, whatever its own address: they are compared with each other only.
const DOCUMENT: &str = "https://document.invalid/";

/// Rewrites the references to and within schemas that have identifiers; others stay.
pub(crate) fn resolve_identifiers(document: &mut Value) {
    let Ok(base) = Url::parse(DOCUMENT) else { return };
    let mut known = HashMap::new();
    collect(document, &base, false, "", &mut known);
    if known.is_empty() {
        return;
    }
    let original = document.clone();
    Resolving { known: &known, original: &original }.visit(document, &base, None, false, "");
}

/// The identifier of a schema, absolute. `named`: the object's members are names, and not keywords.
fn identifier(value: &Value, base: &Url, named: bool) -> Option<Url> {
    let written = value.get("$id").and_then(Value::as_str).filter(|_| !named)?;
    let mut url = base.join(written).ok()?;
    url.set_fragment(None);
    Some(url)
}

/// The pointers to schemas with identifiers, by these.
fn collect(value: &Value, base: &Url, named: bool, pointer: &str, known: &mut HashMap<Url, String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                collect(item, base, false, &format!("{pointer}/{at}"), known);
            }
        }
        Value::Object(members) => {
            let own = identifier(value, base, named);
            if let Some(own) = &own {
                known.entry(own.clone()).or_insert_with(|| pointer.to_owned());
            }
            let base = own.as_ref().unwrap_or(base);
            for (key, member) in members.iter().filter(|(key, _)| named || !DATA.contains(&key.as_str())) {
                collect(member, base, is_named(key, named), &step(pointer, key), known);
            }
        }
        _ => {}
    }
}

fn is_named(key: &str, named: bool) -> bool {
    !named && NAMED.contains(&key)
}

fn step(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

struct Resolving<'r> {
    known: &'r HashMap<Url, String>,
    original: &'r Value,
}

impl Resolving<'_> {
    /// `home`: the pointer to the innermost schema with an identifier.
    fn visit(&self, value: &mut Value, base: &Url, home: Option<&str>, named: bool, pointer: &str) {
        let own = identifier(value, base, named);
        let base = own.as_ref().unwrap_or(base);
        let home = if own.is_some() { Some(pointer) } else { home };
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.visit(item, base, home, false, &format!("{pointer}/{at}"));
                }
            }
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get_mut("$ref")
                    && let Some(resolved) = self.resolved(reference, base, home)
                {
                    *reference = resolved;
                }
                for (key, member) in members.iter_mut().filter(|(key, _)| named || !DATA.contains(&key.as_str())) {
                    self.visit(member, base, home, is_named(key, named), &step(pointer, key));
                }
            }
            _ => {}
        }
    }

    fn resolved(&self, reference: &str, base: &Url, home: Option<&str>) -> Option<String> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_pointer = fragment.is_empty() || fragment.starts_with('/');
        if address.is_empty() {
            let within = format!("{}{fragment}", home?);
            // Many documents have identifiers and mean the document all the same.
            return (is_pointer && self.original.pointer(&within).is_some()).then(|| format!("#{within}"));
        }
        let mut target = base.join(address).ok()?;
        target.set_fragment(None);
        let pointer = self.known.get(&target)?;
        // An anchor is found anywhere in the document.
        Some(if is_pointer { format!("#{pointer}{fragment}") } else { format!("#{fragment}") })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_relative_to_the_identifier_around_them() {
        let mut document = json!({
            "paths": {"/a": {"get": {"x": {"$ref": "https://x.example/schemas/item"}, "y": {"$ref": "other.yaml#/a"}}}},
            "components": {"schemas": {
                "List": {
                    "$id": "https://x.example/schemas/list", "type": "array",
                    "items": {"$ref": "item"}, "contains": {"$ref": "#/$defs/Own"}, "not": {"$ref": "#/components/schemas/Item"},
                    "$defs": {"Own": {"$anchor": "own"}}, "if": {"$ref": "#"}, "then": {"$ref": "list#own"},
                },
                "Item": {"$id": "https://x.example/schemas/item", "properties": {"$id": {"type": "string"}, "$ref": {}}},
            }},
        });
        resolve_identifiers(&mut document);
        let list = &document["components"]["schemas"]["List"];
        for (found, expected) in [
            (&document["paths"]["/a"]["get"]["x"], "#/components/schemas/Item"),
            (&document["paths"]["/a"]["get"]["y"], "other.yaml#/a"),
            (&list["items"], "#/components/schemas/Item"),
            (&list["contains"], "#/components/schemas/List/$defs/Own"),
            (&list["not"], "#/components/schemas/Item"),
            (&list["if"], "#/components/schemas/List"),
            (&list["then"], "#own"),
        ] {
            assert_eq!(found["$ref"], expected);
        }
    }
}
