//! Coerces arguments of the wrong JSON type.
//!
//! The complete list of changes: `"3"` → `3`, `"2.5"` → `2.5`, `"true"` → `true`, `3.0` → `3`, and
//! arguments nested under the tool's own name are unwrapped. Nothing is rounded, clamped or guessed,
//! and a valid value stays unchanged (to JSON Schema, `3.0` and `3` are the same).
//! The result may still be invalid: the caller validates it.

use jsonschema::{JsonType, JsonTypeSet};
use serde_json::{Map, Number, Value};

use super::bounds::local;
use sekisho_core::coercion::Coercion;

/// Maximum changes to one call's arguments; arguments that need more are refused.
const MAX_CHANGES: usize = 100;
/// Maximum schemas visited for one call.
const MAX_STEPS: usize = 20_000;
/// Maximum references and combinators followed for one value.
const MAX_STEPS_IN_PLACE: usize = 16;
/// Maximum characters of a number sent as a string; a longer one would lose digits.
const MAX_NUMBER: usize = 32;

/// Returns the coerced arguments and the changes, or `None` when there is nothing to change.
/// Valid arguments (`fit`) are never unwrapped.
pub(super) fn coerce(schema: &Value, tool: &str, arguments: &Value, fit: bool) -> Option<(Value, Vec<Coercion>)> {
    let mut coercer = Coercer { root: schema, path: String::new(), steps: 0, coercions: Vec::new() };
    let mut coerced = match nested_under(tool, schema, arguments) {
        Some(inner) if !fit => {
            let from = Value::String(format!("/{tool}"));
            coercer.coercions.push(Coercion { path: String::new(), rule: "unwrapped", from, to: "".into() });
            inner.clone()
        }
        _ => arguments.clone(),
    };
    coercer.visit(&[schema], &mut coerced);
    let within_bounds = coercer.steps <= MAX_STEPS && coercer.coercions.len() <= MAX_CHANGES;
    (within_bounds && !coercer.coercions.is_empty()).then_some((coerced, coercer.coercions))
}

/// Whether the value contains a number like `3.0`, which a tool should get as `3` where it requires an integer.
pub(super) fn holds_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => whole(number).is_some(),
        Value::Array(items) => items.iter().any(holds_whole_float),
        Value::Object(members) => members.values().any(holds_whole_float),
        _ => false,
    }
}

/// `{"calculator": {…}}` sent to `calculator`, when the schema has no such property.
fn nested_under<'v>(tool: &str, schema: &Value, arguments: &'v Value) -> Option<&'v Value> {
    let members = arguments.as_object()?;
    let inner = members.get(tool).filter(|inner| inner.is_object() && members.len() == 1)?;
    let declared = schema.get("properties").is_some_and(|properties| properties.get(tool).is_some());
    (!declared).then_some(inner)
}

struct Coercer<'s> {
    root: &'s Value,
    path: String,
    steps: usize,
    coercions: Vec<Coercion>,
}

impl<'s> Coercer<'s> {
    /// Coerces `value`, to which all of `schemas` apply.
    fn visit(&mut self, schemas: &[&'s Value], value: &mut Value) {
        if self.coercions.len() > MAX_CHANGES || self.steps > MAX_STEPS {
            return;
        }
        match value {
            Value::Array(items) => {
                let schemas = self.applying(schemas, JsonType::Array);
                for (index, item) in items.iter_mut().enumerate() {
                    let inner: Vec<_> = schemas.iter().filter_map(|schema| of_item(schema, index)).collect();
                    self.descend(&inner, &index.to_string(), item);
                }
            }
            Value::Object(members) => {
                let schemas = self.applying(schemas, JsonType::Object);
                for (key, member) in members {
                    let inner: Vec<_> = schemas.iter().filter_map(|schema| of_member(schema, key)).collect();
                    self.descend(&inner, key, member);
                }
            }
            scalar => {
                let admitted =
                    schemas.iter().fold(JsonTypeSet::all(), |set, schema| set.intersect(self.types(schema, 0)));
                if let Some((to, rule)) = converted(scalar, admitted) {
                    let from = std::mem::replace(scalar, to.clone());
                    self.coercions.push(Coercion { path: self.path.clone(), rule, from, to });
                }
            }
        }
    }

    fn descend(&mut self, schemas: &[&'s Value], step: &str, value: &mut Value) {
        if schemas.is_empty() {
            return;
        }
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        self.visit(schemas, value);
        self.path.truncate(length);
    }

    /// The schemas that apply to a value of this type: the given schemas, their references, and of alternatives the
    /// only one that allows the type. When several allow it, none is chosen.
    fn applying(&mut self, schemas: &[&'s Value], kind: JsonType) -> Vec<&'s Map<String, Value>> {
        let mut found = Vec::new();
        for schema in schemas {
            self.collect(schema, kind, 0, &mut found);
        }
        found
    }

    fn collect(&mut self, schema: &'s Value, kind: JsonType, steps: usize, found: &mut Vec<&'s Map<String, Value>>) {
        let Value::Object(keywords) = schema else { return };
        if !self.may_step(steps) {
            return;
        }
        found.push(keywords);
        if let Some(target) = self.referred(keywords) {
            self.collect(target, kind, steps + 1, found);
        }
        for part in listed(keywords, "allOf") {
            self.collect(part, kind, steps + 1, found);
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut admitting = Vec::new();
            for part in listed(keywords, keyword) {
                if self.types(part, steps + 1).contains(kind) {
                    admitting.push(part);
                }
            }
            if let [only] = admitting[..] {
                self.collect(only, kind, steps + 1, found);
            }
        }
    }

    /// The types that a schema's keywords allow.
    fn types(&mut self, schema: &'s Value, steps: usize) -> JsonTypeSet {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return JsonTypeSet::empty(),
            _ => return JsonTypeSet::all(),
        };
        if !self.may_step(steps) {
            return JsonTypeSet::all();
        }
        let mut set = stated(keywords);
        if let Some(target) = self.referred(keywords) {
            set = set.intersect(self.types(target, steps + 1));
        }
        for part in listed(keywords, "allOf") {
            set = set.intersect(self.types(part, steps + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            if keywords.contains_key(keyword) {
                let mut either = JsonTypeSet::empty();
                for part in listed(keywords, keyword) {
                    either = either.union(self.types(part, steps + 1));
                }
                set = set.intersect(either);
            }
        }
        set
    }

    fn referred(&self, keywords: &'s Map<String, Value>) -> Option<&'s Value> {
        local(self.root, keywords.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    fn may_step(&mut self, steps: usize) -> bool {
        self.steps += 1;
        self.steps <= MAX_STEPS && steps <= MAX_STEPS_IN_PLACE
    }
}

/// The types that `type`, `enum` and `const` allow. `number` allows integers too.
fn stated(keywords: &Map<String, Value>) -> JsonTypeSet {
    let named = |name: &Value| match name.as_str().map(str::parse) {
        Some(Ok(JsonType::Number)) => JsonType::Number | JsonType::Integer,
        Some(Ok(kind)) => kind.into(),
        _ => JsonTypeSet::empty(),
    };
    let union = |sets: &mut dyn Iterator<Item = JsonTypeSet>| sets.fold(JsonTypeSet::empty(), JsonTypeSet::union);
    let mut set = match keywords.get("type") {
        Some(Value::Array(names)) => union(&mut names.iter().map(named)),
        Some(name) => named(name),
        None => JsonTypeSet::all(),
    };
    if let Some(Value::Array(values)) = keywords.get("enum") {
        set = set.intersect(union(&mut values.iter().map(|value| kind_of(value).into())));
    }
    keywords.get("const").map_or(set, |value| set.intersect(kind_of(value).into()))
}

fn kind_of(value: &Value) -> JsonType {
    match value {
        Value::Number(number) if !number.is_f64() || whole(number).is_some() => JsonType::Integer,
        other => JsonType::from(other),
    }
}

fn listed<'s>(keywords: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    keywords.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn of_item<'s>(schema: &&'s Map<String, Value>, index: usize) -> Option<&'s Value> {
    match (listed(schema, "prefixItems").get(index), schema.get("items")) {
        (Some(positional), _) => Some(positional),
        // The array form of older dialects.
        (None, Some(Value::Array(positional))) => positional.get(index),
        (None, items) => items,
    }
}

fn of_member<'s>(schema: &&'s Map<String, Value>, key: &str) -> Option<&'s Value> {
    match schema.get("properties").and_then(|properties| properties.get(key)) {
        Some(declared) => Some(declared),
        // `patternProperties` is left to the validator.
        None if schema.contains_key("patternProperties") => None,
        None => schema.get("additionalProperties"),
    }
}

/// The value converted to an allowed type; `None` when its type is allowed or it cannot be converted.
fn converted(value: &Value, admitted: JsonTypeSet) -> Option<(Value, &'static str)> {
    match value {
        Value::String(text) if !admitted.contains(JsonType::String) => if admitted.contains(JsonType::Number) {
            number(text).map(|number| (number.into(), "string_to_number"))
        } else if admitted.contains(JsonType::Integer) {
            integer(text).map(|number| (number.into(), "string_to_integer"))
        } else {
            None
        }
        .or_else(|| {
            let truth = text.parse::<bool>().ok().filter(|_| admitted.contains(JsonType::Boolean))?;
            Some((truth.into(), "string_to_boolean"))
        }),
        Value::Number(number) if admitted.contains(JsonType::Integer) && !admitted.contains(JsonType::Number) => {
            whole(number).map(|integer| (integer.into(), "whole_number_to_integer"))
        }
        _ => None,
    }
}

/// The text as a JSON number, if the number has exactly the same digits.
fn number(text: &str) -> Option<Number> {
    let bounded = text.len() <= MAX_NUMBER && text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if !bounded || text.ends_with(char::is_whitespace) {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    let is_decimal = text.contains(['.', 'e', 'E']);
    let lost = match number.as_f64() {
        // An integer too large for 64 bits would be rounded, unless a double is written so; a tiny number would become zero.
        Some(value) if number.is_f64() => {
            (!is_decimal && value.to_string() != text)
                || (value == 0.0 && mantissa(text).contains(|digit: char| ('1'..='9').contains(&digit)))
        }
        _ => false,
    };
    (!lost).then_some(number)
}

fn mantissa(text: &str) -> &str {
    text.split(['e', 'E']).next().unwrap_or(text)
}

fn integer(text: &str) -> Option<Number> {
    number(text).filter(|number| !number.is_f64())
}

/// The integer that equals the float.
fn whole(number: &Number) -> Option<i64> {
    /// From 2^53 on, an `f64` may represent several integers.
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    let value = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < LIMIT)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let integer = value as i64;
    Some(integer)
}
