//! Schemas that share their definitions: each is put together with those it reaches, within bounds, when it is asked for.
//!
//! A schema that points into a document's definitions may reach all of them: every object of Stripe's leads to
//! every other. What does not fit loses detail step by step ([`DETAILS`]): first words, then what is far away, which
//! becomes a schema that allows anything. So there is always a schema, never one that refuses what the document allows.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// A schema, and the definitions it points into as `#/$defs/NAME`.
#[derive(Debug, Clone)]
pub struct SharedSchema {
    pub schema: Value,
    /// Those of a whole document; usually most of them are not reached.
    pub definitions: Arc<Map<String, Value>>,
}

impl SharedSchema {
    /// A schema that stands alone, of about `max_bytes` at most as JSON.
    pub fn alone(&self, max_bytes: usize) -> (Value, Fit) {
        let mut schema = self.schema.clone();
        let fit = attach(&mut schema, &self.definitions, max_bytes);
        (schema, fit)
    }
}

/// How much of a schema came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    Whole,
    /// Without examples and with shorter descriptions; it allows exactly the same.
    Shortened,
    /// Parts of it allow anything.
    Opened,
}

/// Most values in one schema; less than the registry takes, as arguments of other places come beside it.
const MAX_NODES: usize = 15_000;

/// Most patterns; the registry takes 256.
const MAX_PATTERNS: usize = 200;

/// Deepest nesting of values that are no schemas, such as defaults.
const MAX_VALUE_DEPTH: usize = 8;

const PREFIX: &str = "#/$defs/";

/// How much is told of a schema, and how far it goes.
#[derive(Debug, Clone, Copy)]
struct Detail {
    fit: Fit,
    /// Longest description below the schema's own properties, in characters.
    description: usize,
    examples: bool,
    /// References followed one after another.
    reach: usize,
    /// Schemas inside one another, in each definition anew.
    depth: usize,
}

/// Tried in this order. The registry takes 100 levels of JSON, and a schema inside another costs two.
const DETAILS: [Detail; 7] = [
    Detail { fit: Fit::Whole, description: usize::MAX, examples: true, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Shortened, description: 160, examples: false, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Shortened, description: 0, examples: false, reach: usize::MAX, depth: 40 },
    Detail { fit: Fit::Opened, description: 60, examples: false, reach: 2, depth: 6 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 2, depth: 6 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 1, depth: 4 },
    Detail { fit: Fit::Opened, description: 0, examples: false, reach: 0, depth: 2 },
];

/// Puts into `schema` the `$defs` that it reaches, and no others, so that it has about `max_bytes` at most as JSON.
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

/// One attempt; `None` from any step means that it does not fit.
struct Fitting<'d> {
    detail: Detail,
    definitions: &'d Map<String, Value>,
    bytes: usize,
    nodes: usize,
    patterns: usize,
    opened: bool,
    /// Where something is opened, what refuses because something fits has to go: `not`, `if`, "exactly one".
    loosened: bool,
    /// How many references away each definition is that was met.
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

    /// `distance`: references that led here; `depth`: schemas around this one since the last of them.
    fn schema(&mut self, schema: &Value, distance: usize, depth: usize) -> Option<Value> {
        let Value::Object(members) = schema else {
            self.spend(4)?;
            return Some(schema.clone());
        };
        self.spend(2)?;
        let mut kept = Map::new();
        for (keyword, value) in members {
            // Beyond the depth only the type is said.
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

    /// The keyword's value, or none if it is left out.
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

    /// A reference within reach; a definition that is met again keeps its first, shortest distance.
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

    /// Those of the schema itself and of its properties stay whole as long as it is whole.
    fn description(&self, text: &str, level: usize) -> Option<Value> {
        let most = match level {
            0 | 1 => self.detail.description.max(160),
            _ => self.detail.description,
        };
        match text.char_indices().nth(most) {
            _ if most == 0 => None,
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
