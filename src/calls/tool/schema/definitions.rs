//! Schemas with shared definitions. Each schema is assembled on request with the definitions it reaches, within limits.
//!
//! A schema that refers to a document's definitions may reach all of them: in Stripe's document every object leads to
//! every other. A schema that is too large loses detail step by step ([`DETAILS`]): first texts, then distant
//! definitions, which become schemas that allow anything. So a schema is always available, and it never refuses a value
//! that the document allows.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// A schema, and the definitions it refers to as `#/$defs/NAME`.
#[derive(Debug, Clone)]
pub struct SharedSchema {
    pub schema: Value,
    /// The definitions of a whole document; usually most of them are not reached.
    pub definitions: Arc<Map<String, Value>>,
}

impl SharedSchema {
    /// A self-contained schema of about `max_bytes` at most as JSON.
    pub fn alone(&self, max_bytes: usize) -> (Value, Fit) {
        let mut schema = self.schema.clone();
        let fit = attach(&mut schema, &self.definitions, max_bytes);
        (schema, fit)
    }
}

/// How much of a schema was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    Whole,
    /// Without examples and with shorter descriptions; it allows exactly the same values.
    Shortened,
    /// Parts of it allow anything.
    Opened,
}

/// Maximum number of values in one schema; less than the registry accepts, because other arguments are added to it.
const MAX_NODES: usize = 15_000;

/// Maximum number of patterns; the registry accepts 256.
const MAX_PATTERNS: usize = 200;

/// Maximum depth of values that are not schemas, such as defaults.
const MAX_VALUE_DEPTH: usize = 8;

const PREFIX: &str = "#/$defs/";

/// The level of detail of a schema.
#[derive(Debug, Clone, Copy)]
struct Detail {
    fit: Fit,
    /// Maximum length of a description below the schema's own properties, in characters.
    description: usize,
    examples: bool,
    /// Maximum number of references followed in a row.
    reach: usize,
    /// Maximum depth of nested schemas, counted from each definition.
    depth: usize,
}

/// Tried in this order. The registry accepts 100 levels of JSON, and a nested schema takes two.
const DETAILS: [Detail; 7] = [
    Detail { fit: Fit::Whole, description: usize::MAX, examples: true, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Shortened, description: 160, examples: false, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Shortened, description: 0, examples: false, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Opened, description: 60, examples: false, reach: 2, depth: 6 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 2, depth: 6 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 1, depth: 4 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 0, depth: 2 },
];

/// Adds to `schema` the `$defs` that it reaches, and no others, so that it has about `max_bytes` at most as JSON.
fn attach(schema: &mut Value, definitions: &Map<String, Value>, max_bytes: usize) -> Fit {
    for detail in DETAILS {
        let mut fitting = Fitting::new(detail, definitions, max_bytes);
        let mut fitted = fitting.whole(schema);
        if fitted.is_some() && fitting.opened {
            fitting = Fitting { loosened: true, ..Fitting::new(detail, definitions, max_bytes) };
            fitted = fitting.whole(schema);
        }
        if let Some(fitted) = fitted {
            *schema = fitted;
            return if fitting.loosened { Fit::Opened } else { detail.fit };
        }
    }
    *schema = schema.get("type").map_or(json!({}), |kind| json!({"type": kind}));
    Fit::Opened
}

/// One attempt at a level of detail; `None` from any step means that the schema is too large.
struct Fitting<'d> {
    detail: Detail,
    definitions: &'d Map<String, Value>,
    bytes: usize,
    nodes: usize,
    patterns: usize,
    opened: bool,
    /// Whether keywords that refuse a value because a subschema matches (`not`, `if`, "exactly one") are removed. They
    /// must be when a subschema was opened to allow anything.
    loosened: bool,
    /// The distance of each reached definition, in references.
    distance: HashMap<&'d str, usize>,
    pending: VecDeque<&'d str>,
}

impl<'d> Fitting<'d> {
    fn new(detail: Detail, definitions: &'d Map<String, Value>, max_bytes: usize) -> Self {
        Self {
            detail,
            definitions,
            bytes: max_bytes,
            nodes: MAX_NODES,
            patterns: MAX_PATTERNS,
            opened: false,
            loosened: false,
            distance: HashMap::new(),
            pending: VecDeque::new(),
        }
    }

    fn whole(&mut self, schema: &Value) -> Option<Value> {
        let mut whole = self.schema(schema, 0, 0)?;
        let mut reached = Map::new();
        while let Some(name) = self.pending.pop_front() {
            let distance = self.distance.get(name).copied().unwrap_or_default();
            self.spend(name.len())?;
            let definition = self.schema(self.definitions.get(name)?, distance, 0)?;
            reached.insert(name.to_owned(), definition);
        }
        if let (false, Value::Object(members)) = (reached.is_empty(), &mut whole) {
            members.insert("$defs".into(), Value::Object(reached));
        }
        Some(whole)
    }

    /// `distance`: references followed so far; `depth`: enclosing schemas since the last reference.
    fn schema(&mut self, schema: &Value, distance: usize, depth: usize) -> Option<Value> {
        let Value::Object(members) = schema else {
            self.spend(4)?;
            return Some(schema.clone());
        };
        self.spend(2)?;
        let mut kept = Map::new();
        for (keyword, value) in members {
            // Beyond the maximum depth, only `type` is kept.
            if depth > self.detail.depth && keyword != "type" {
                self.opened = true;
                continue;
            }
            if let Some(value) = self.keyword(keyword, value, distance, depth)? {
                self.spend(keyword.len() + 3)?;
                match keyword.as_str() {
                    "oneOf" if self.loosened && members.contains_key("anyOf") => {}
                    "oneOf" if self.loosened => {
                        kept.insert("anyOf".into(), value);
                    }
                    _ => {
                        kept.insert(keyword.clone(), value);
                    }
                }
            }
        }
        Some(Value::Object(kept))
    }

    /// The keyword's value, or none if it is removed.
    fn keyword(&mut self, keyword: &str, value: &Value, distance: usize, depth: usize) -> Option<Option<Value>> {
        let kept = match (keyword, value) {
            _ if self.loosened && refuses_what_fits(keyword) => None,
            ("$ref", Value::String(reference)) => self.reference(reference, distance),
            ("description", Value::String(text)) => self.description(text, distance + depth),
            ("title" | "examples", _) if !self.detail.examples => None,
            ("pattern" | "patternProperties", _) if self.patterns == 0 => {
                self.opened = true;
                None
            }
            ("$defs", _) => None,
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                if keyword == "patternProperties" {
                    self.patterns = self.patterns.saturating_sub(named.len());
                }
                let mut kept = Map::new();
                for (name, schema) in named {
                    self.spend(name.len() + 3)?;
                    kept.insert(name.clone(), self.schema(schema, distance, depth + 1)?);
                }
                return Some(Some(Value::Object(kept)));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(listed)) => {
                let kept: Option<Vec<_>> = listed.iter().map(|s| self.schema(s, distance, depth + 1)).collect();
                return Some(Some(Value::Array(kept?)));
            }
            (keyword, Value::Object(_)) if is_schema(keyword) => {
                return self.schema(value, distance, depth + 1).map(Some);
            }
            _ => {
                if keyword == "pattern" {
                    self.patterns = self.patterns.saturating_sub(1);
                }
                let kept = is_shallow(value, MAX_VALUE_DEPTH).then(|| value.clone());
                self.opened |= kept.is_none() && matches!(keyword, "enum" | "const");
                kept
            }
        };
        if let Some(kept) = &kept {
            self.spend_value(kept)?;
        }
        Some(kept)
    }

    /// A reference within the maximum distance. A definition that is reached again keeps its first, shortest distance.
    fn reference(&mut self, reference: &str, distance: usize) -> Option<Value> {
        let definitions: &'d Map<String, Value> = self.definitions;
        let Some((name, _)) = reference.strip_prefix(PREFIX).and_then(|name| definitions.get_key_value(name)) else {
            self.opened = true;
            return None;
        };
        if !self.distance.contains_key(name.as_str()) {
            if distance >= self.detail.reach {
                self.opened = true;
                return None;
            }
            self.distance.insert(name, distance + 1);
            self.pending.push_back(name);
        }
        Some(reference.into())
    }

    /// The truncated description. Descriptions of the schema itself and of its properties may always have 160
    /// characters.
    fn description(&self, text: &str, level: usize) -> Option<Value> {
        let max = match level {
            0 | 1 => self.detail.description.max(160),
            _ => self.detail.description,
        };
        match text.char_indices().nth(max) {
            _ if max == 0 => None,
            Some((end, _)) => Some(format!("{}…", text.get(..end)?.trim_end()).into()),
            None => Some(text.into()),
        }
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        self.nodes = self.nodes.checked_sub(1)?;
        Some(())
    }

    fn spend_value(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::String(text) => self.spend(text.len() + 3),
            Value::Array(items) => items.iter().try_for_each(|item| self.spend_value(item)),
            Value::Object(members) => members.iter().try_for_each(|(key, member)| {
                self.spend(key.len() + 3)?;
                self.spend_value(member)
            }),
            _ => self.spend(5),
        }
    }
}

fn is_schema(keyword: &str) -> bool {
    matches!(
        keyword,
        "items"
            | "additionalProperties"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "contains"
            | "contentSchema"
            | "not"
            | "if"
            | "then"
            | "else"
    )
}

fn refuses_what_fits(keyword: &str) -> bool {
    matches!(keyword, "not" | "if" | "then" | "else" | "unevaluatedProperties" | "unevaluatedItems" | "maxContains")
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_shallow(item, levels - 1)),
        Value::Object(members) => levels > 0 && members.values().all(|member| is_shallow(member, levels - 1)),
        _ => true,
    }
}
