//! Schemas in the form that model APIs and their clients accept, whatever their source wrote. One tool with a schema that
//! OpenAI, Anthropic, Gemini or VS Code refuses costs a client all tools of its request.
//!
//! [`lower`] rewrites keywords and keeps the values that a schema allows. [`without_union`] is for readers: arguments are still
//! validated against the union.

mod merged;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

pub(super) use self::merged::without_union;
use super::bounds::subschemas_mut;

/// The dialect of every schema without `$schema`.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Rewrites what models and clients refuse; whether there was something.
pub(super) fn lower(document: &mut Value) -> bool {
    let mut lowering = Lowering::default();
    lowering.visit(document);
    if lowering.left_dialect
        && let Value::Object(root) = document
        && root.get("$schema").is_some_and(|dialect| dialect != DIALECT)
    {
        root.shift_remove("$schema");
    }
    lowering.changed
}

#[derive(Default)]
struct Lowering {
    changed: bool,
    /// Whether keywords of an older dialect were replaced by newer ones.
    left_dialect: bool,
}

impl Lowering {
    fn visit(&mut self, schema: &mut Value) {
        let Value::Object(members) = schema else { return };
        self.bound(members, "minimum", "exclusiveMinimum");
        self.bound(members, "maximum", "exclusiveMaximum");
        self.tuple(members);
        self.items(members);
        self.values(members);
        subschemas_mut(members, &mut |schema| self.visit(schema));
    }

    /// Until draft 4, and in OpenAPI 3.0, an exclusive bound is a flag beside the bound.
    fn bound(&mut self, members: &mut Map<String, Value>, bound: &str, exclusive: &str) {
        let Some(Value::Bool(is_exclusive)) = members.get(exclusive) else { return };
        match members.get(bound).filter(|_| *is_exclusive).cloned() {
            Some(limit) => {
                members.shift_remove(bound);
                members.insert(exclusive.to_owned(), limit);
            }
            None => _ = members.shift_remove(exclusive),
        }
        (self.changed, self.left_dialect) = (true, true);
    }

    /// Until draft 2019-09 the schemas of the first items are a list in `items`.
    fn tuple(&mut self, members: &mut Map<String, Value>) {
        if !members.get("items").is_some_and(Value::is_array) {
            return;
        }
        let first = members.shift_remove("items").filter(|first| *first != json!([]));
        if let (Some(first), None) = (first, members.get("prefixItems")) {
            members.insert("prefixItems".to_owned(), first);
        }
        if let Some(further) = members.shift_remove("additionalItems") {
            members.insert("items".to_owned(), further);
        }
        (self.changed, self.left_dialect) = (true, true);
    }

    /// OpenAI and VS Code refuse a list without a schema of its items. Beside `unevaluatedItems` it would change the values.
    fn items(&mut self, members: &mut Map<String, Value>) {
        let is_list = match members.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
            Some(kind) => kind == "array",
            None => false,
        };
        if is_list && !members.contains_key("items") && !members.contains_key("unevaluatedItems") {
            members.insert("items".to_owned(), json!({}));
            self.changed = true;
        }
    }

    /// A value that is listed twice.
    fn values(&mut self, members: &mut Map<String, Value>) {
        let Some(Value::Array(values)) = members.get_mut("enum") else { return };
        let (before, mut seen) = (values.len(), HashSet::new());
        values.retain(|value| seen.insert(value.clone()));
        self.changed |= values.len() < before;
    }
}
