//! Limits checked before a schema is compiled, so that applying an untrusted schema stays cheap: its
//! size, patterns, references, and branching.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::InvalidSchema;
use super::violation::shorten;

const MAX_NODES: usize = 20_000;
const MAX_DEPTH: usize = 100;
const MAX_BYTES: usize = 1 << 20;
const MAX_PATTERNS: usize = 256;
/// Maximum schemas that apply to one value; nested references can multiply them exponentially.
const MAX_FAN_OUT: u64 = 10_000;
/// Maximum depth of nested references and combinators that apply to one value.
const MAX_STEPS_IN_PLACE: usize = 64;

/// Properties of a schema within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Maximum number of alternatives that apply to one value.
    pub(super) fan_out: u64,
    /// Whether `type: integer` occurs in the schema.
    pub(super) has_integers: bool,
}

/// Errors: [`InvalidSchema`], which names the exceeded limit.
pub(super) fn check(document: &Value) -> Result<Bounds, InvalidSchema> {
    let mut size = Size::default();
    size.add(document, 1)?;
    let mut scan = ReferenceScan::new(document);
    scan.visit_all()?;
    Ok(Bounds { fan_out: scan.widest, has_integers: size.has_integers })
}

fn refuse<T>(message: impl Into<String>) -> Result<T, InvalidSchema> {
    Err(InvalidSchema(message.into()))
}

/// The document as plain JSON.
#[derive(Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    patterns: usize,
    has_integers: bool,
}

impl Size {
    fn add(&mut self, value: &Value, depth: usize) -> Result<(), InvalidSchema> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return refuse(format!("its schema is nested more than {MAX_DEPTH} levels deep"));
        }
        match value {
            Value::String(text) => self.bytes += text.len(),
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, depth + 1))?,
            Value::Object(members) => {
                self.record(members);
                for (key, member) in members {
                    self.bytes += key.len();
                    self.add(member, depth + 1)?;
                }
            }
            _ => {}
        }
        if self.nodes > MAX_NODES || self.bytes > MAX_BYTES {
            return refuse(format!("its schema is too large: at most {MAX_NODES} values and {MAX_BYTES} bytes"));
        }
        if self.patterns > MAX_PATTERNS {
            return refuse(format!("its schema has more than {MAX_PATTERNS} patterns"));
        }
        Ok(())
    }

    fn record(&mut self, members: &Map<String, Value>) {
        self.has_integers |= match members.get("type") {
            Some(Value::String(name)) => name == "integer",
            Some(Value::Array(names)) => names.iter().any(|name| name == "integer"),
            _ => false,
        };
        self.patterns += usize::from(members.contains_key("pattern"));
        self.patterns += members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
    }
}

/// Keywords whose value is a schema, a list of schemas, or schemas by name, that apply to the same value...
const IN_PLACE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];
/// ... or that apply to a part of it, or only define schemas for references.
const INSIDE: [&str; 13] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
    "$defs",
    "definitions",
];
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Computes how many schemas of the document apply to one value at most.
struct ReferenceScan<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
    /// By the schema's address; `None` while it is being computed.
    known: HashMap<*const Value, Option<u64>>,
    widest: u64,
}

impl<'s> ReferenceScan<'s> {
    fn new(root: &'s Value) -> Self {
        let mut anchors = HashMap::new();
        collect_anchors(root, &mut anchors);
        Self { root, anchors, known: HashMap::new(), widest: 1 }
    }

    /// Every schema that can apply, including the targets of references.
    fn visit_all(&mut self) -> Result<(), InvalidSchema> {
        let mut seen = HashSet::new();
        let mut pending = vec![self.root];
        while let Some(schema) = pending.pop() {
            let Value::Object(keywords) = schema else { continue };
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            if keywords.contains_key("$id") && !std::ptr::eq(schema, self.root) {
                return refuse("its schema has an `$id` below its root; use `$defs` and `#/$defs/…`");
            }
            self.fan_out(schema, 0)?;
            pending.extend(IN_PLACE.iter().chain(&INSIDE).flat_map(|keyword| subschemas(keywords, keyword)));
            for reference in references(keywords) {
                pending.push(self.resolve(reference)?);
            }
        }
        Ok(())
    }

    fn fan_out(&mut self, schema: &'s Value, steps: usize) -> Result<u64, InvalidSchema> {
        let Value::Object(keywords) = schema else { return Ok(1) };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return refuse("its schema has a circular reference that applies to the same value"),
            None => {}
        }
        if steps > MAX_STEPS_IN_PLACE {
            return refuse(format!("its schema has more than {MAX_STEPS_IN_PLACE} references in a row"));
        }
        self.known.insert(std::ptr::from_ref(schema), None);
        let mut sum = 0_u64;
        for part in IN_PLACE.iter().flat_map(|keyword| subschemas(keywords, keyword)) {
            sum = sum.saturating_add(self.fan_out(part, steps + 1)?);
        }
        for reference in references(keywords) {
            let target = self.resolve(reference)?;
            sum = sum.saturating_add(self.fan_out(target, steps + 1)?);
        }
        let sum = sum.max(1);
        if sum > MAX_FAN_OUT {
            return refuse(format!("its schema applies more than {MAX_FAN_OUT} schemas to one value"));
        }
        self.known.insert(std::ptr::from_ref(schema), Some(sum));
        self.widest = self.widest.max(sum);
        Ok(sum)
    }

    fn resolve(&self, reference: &str) -> Result<&'s Value, InvalidSchema> {
        let base = self.root.get("$id").and_then(Value::as_str).unwrap_or_default();
        let relative = reference.strip_prefix(base.trim_end_matches('#')).unwrap_or(reference);
        let target = relative
            .strip_prefix('#')
            .and_then(|fragment| local(self.root, fragment).or_else(|| self.anchors.get(fragment).copied()));
        target.ok_or_else(|| {
            let reference = shorten(reference, 100);
            InvalidSchema(format!(
                "its schema has the reference {reference:?}; references must point into the schema itself, as `#/…`"
            ))
        })
    }
}

fn collect_anchors<'s>(value: &'s Value, anchors: &mut HashMap<&'s str, &'s Value>) {
    match value {
        Value::Object(members) => {
            for anchor in ["$anchor", "$dynamicAnchor"].iter().filter_map(|key| members.get(*key)?.as_str()) {
                anchors.insert(anchor, value);
            }
            members.values().for_each(|member| collect_anchors(member, anchors));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_anchors(item, anchors)),
        _ => {}
    }
}

fn references(keywords: &Map<String, Value>) -> impl Iterator<Item = &str> {
    REFERENCES.iter().filter_map(|keyword| keywords.get(*keyword)?.as_str())
}

/// The target of a reference's fragment (the part after `#`), unless it is an anchor.
pub(super) fn local<'s>(root: &'s Value, fragment: &str) -> Option<&'s Value> {
    if fragment.is_empty() || fragment.starts_with('/') { root.pointer(fragment) } else { None }
}

fn subschemas<'s>(keywords: &'s Map<String, Value>, keyword: &str) -> Vec<&'s Value> {
    match keywords.get(keyword) {
        Some(Value::Object(named)) if BY_NAME.contains(&keyword) => named.values().collect(),
        Some(Value::Array(listed)) => listed.iter().collect(),
        Some(schema @ Value::Object(_)) => vec![schema],
        _ => Vec::new(),
    }
}

/// The schemas directly below a schema.
pub(super) fn subschemas_mut(keywords: &mut Map<String, Value>, visit: &mut impl FnMut(&mut Value)) {
    for keyword in IN_PLACE.iter().chain(&INSIDE) {
        match keywords.get_mut(*keyword) {
            Some(Value::Object(named)) if BY_NAME.contains(keyword) => named.values_mut().for_each(&mut *visit),
            Some(Value::Array(listed)) => listed.iter_mut().for_each(&mut *visit),
            Some(schema @ Value::Object(_)) => visit(schema),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_schemas_keep_to_the_bounds() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}, "$id": {"type": "string"}}});
        assert_eq!(check(&schema), Ok(Bounds { fan_out: 1, has_integers: true }));
        let tree = json!({"$id": "https://x.example/tree#", "properties": {"left": {"$ref": "#"},
            "right": {"anyOf": [{"$ref": "https://x.example/tree#"}, {"type": "null"}]}, "leaf": {"$ref": "#leaf"}},
            "$defs": {"leaf": {"$anchor": "leaf", "type": "string"}}});
        assert_eq!(check(&tree), Ok(Bounds { fan_out: 2, has_integers: false }));
        assert_eq!(check(&json!(true)), Ok(Bounds { fan_out: 1, has_integers: false }));
    }

    #[test]
    fn a_schema_that_passes_a_bound_is_refused_with_the_bound() {
        let bomb: Map<_, _> = (0..12)
            .map(|level| {
                (format!("s{level}"), json!({"allOf": vec![json!({"$ref": format!("#/$defs/s{}", level + 1)}); 8]}))
            })
            .chain([("s12".to_owned(), json!({"type": "string"}))])
            .collect();
        let chain: Map<_, _> = (0..5_000)
            .map(|level| (format!("s{level}"), json!({"$ref": format!("#/$defs/s{}", level + 1)})))
            .chain([("s5000".to_owned(), json!({"type": "string"}))])
            .collect();
        let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
        let many: Map<_, _> = (0..300).map(|at| (format!("p{at}"), json!({"pattern": "a"}))).collect();
        let cases = [
            (json!({"$defs": bomb}), "more than 10000 schemas to one value"),
            (json!({"$ref": "#/$defs/s0", "$defs": chain}), "more than 64 references in a row"),
            (deep, "nested more than 100 levels"),
            (json!({"properties": many}), "more than 256 patterns"),
            (json!({"enum": vec![0; 30_000]}), "too large"),
            (json!({"description": "x".repeat(2 << 20)}), "too large"),
            (json!({"items": {"$ref": "https://x.example/y.json"}}), "must point into the schema itself"),
            (json!({"items": {"$ref": "file:///etc/passwd"}}), "must point into the schema itself"),
            (json!({"$ref": "#/$defs/missing"}), "must point into the schema itself"),
            (
                json!({"$ref": "#/components/a", "components": {"a": {"items": {"$ref": "file:///etc/passwd"}}}}),
                "must point into the schema itself",
            ),
            (json!({"$ref": "#"}), "a circular reference"),
            (json!({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {}]}}}), "a circular reference"),
            (json!({"items": {"$id": "inner"}}), "`$id` below its root"),
        ];
        for (schema, expected) in cases {
            let InvalidSchema(message) = check(&schema).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
