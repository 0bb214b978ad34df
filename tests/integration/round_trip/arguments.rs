//! Arguments made up from a tool's own input schema: seeded, so that a failure comes again.

use std::collections::BTreeSet;

use jsonschema::Validator;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Number, Value, json};

/// How much of what may be left out is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fullness {
    /// Only what is required.
    Least,
    /// Every argument, and some of what lies in them.
    Most,
}

/// The characters of free texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    Plain,
    /// With what has to be escaped in addresses, forms and headers, inside the text.
    Awkward,
}

/// Tries until the whole fits its schema: alternatives are drawn without knowing which go together.
const TRIES: u64 = 60;

/// Below this depth only what is required is given.
const DEEPEST: usize = 4;

/// Below this one nothing is: the schema has no end.
const ENDLESS: usize = 24;

/// Arguments that fit the schema, or `None` when none are found.
pub(crate) fn arguments(schema: &Value, seed: u64, fullness: Fullness, texts: Texts) -> Option<Value> {
    let validator = jsonschema::options().should_validate_formats(false).build(schema).unwrap();
    let definitions = schema.get("$defs").and_then(Value::as_object);
    (0..TRIES).find_map(|turn| {
        let random = StdRng::seed_from_u64(seed.wrapping_mul(TRIES) + turn);
        let mut maker = Maker { random, definitions, fullness, texts };
        let made = maker.value(schema, 0)?;
        fits(&validator, &made).then_some(made)
    })
}

fn fits(validator: &Validator, value: &Value) -> bool {
    validator.is_valid(value)
}

struct Maker<'s> {
    random: StdRng,
    definitions: Option<&'s Map<String, Value>>,
    fullness: Fullness,
    texts: Texts,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        if depth > ENDLESS {
            return None;
        }
        let schema = self.flat(schema, depth)?;
        if let Some(constant) = schema.get("const") {
            return Some(constant.clone());
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            let reported: Vec<_> = values.iter().filter(|value| !value.is_null() && **value != "").collect();
            return if reported.is_empty() { values.first().cloned() } else { Some((*self.one_of(&reported)).clone()) };
        }
        Some(match self.kind(&schema) {
            "object" => return self.object(&schema, depth),
            "array" => return self.array(&schema, depth),
            "integer" => self.number(&schema, 1.0),
            "number" => self.number(&schema, 0.5),
            "boolean" => self.random.random::<bool>().into(),
            "null" => Value::Null,
            _ => self.text(&schema).into(),
        })
    }

    /// The schema with its references followed, its parts put together, and one of its alternatives chosen.
    fn flat(&mut self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let mut flat = match schema {
            Value::Object(keywords) => keywords.clone(),
            Value::Bool(false) => return None,
            _ => Map::new(),
        };
        for turn in 0.. {
            if turn > ENDLESS + depth {
                return None;
            }
            if let Some(Value::String(reference)) = flat.shift_remove("$ref") {
                let name = reference.strip_prefix("#/$defs/")?;
                let target = self.definitions?.get(name)?.clone();
                merge(&mut flat, &target);
            } else if let Some(Value::Array(parts)) = flat.shift_remove("allOf") {
                for part in &parts {
                    merge(&mut flat, part);
                }
            } else if let Some(Value::Array(alternatives)) =
                flat.shift_remove("oneOf").or_else(|| flat.shift_remove("anyOf"))
            {
                let reported: Vec<_> =
                    alternatives.iter().filter(|one| one.get("type") != Some(&json!("null"))).collect();
                let chosen = if reported.is_empty() { alternatives.first()? } else { self.one_of(&reported) };
                merge(&mut flat, chosen);
            } else {
                break;
            }
        }
        Some(flat)
    }

    fn kind<'k>(&mut self, schema: &'k Map<String, Value>) -> &'k str {
        match schema.get("type") {
            Some(Value::String(kind)) => kind,
            Some(Value::Array(kinds)) => {
                let reported: Vec<_> = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
                if reported.is_empty() { "null" } else { self.one_of::<&str>(&reported) }
            }
            _ if schema.contains_key("properties") || schema.contains_key("additionalProperties") => "object",
            _ if schema.contains_key("items") || schema.contains_key("prefixItems") => "array",
            _ if schema.contains_key("minimum") || schema.contains_key("maximum") => "integer",
            _ => "string",
        }
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        let mut made = Map::new();
        let required = names(schema.get("required"));
        let at_least = count(schema, "minProperties").unwrap_or(0);
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let needed = required.contains(name.as_str()) || made.len() < at_least;
            let wanted = needed || self.fullness == Fullness::Most && self.is_wanted(depth);
            match self.value(property, depth + 1).filter(|_| wanted) {
                Some(value) => _ = made.insert(name.clone(), value),
                None if needed => return None,
                None => {}
            }
        }
        let free = schema.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        for name in required.iter().filter(|name| schema.get("properties").is_none_or(|p| p.get(**name).is_none())) {
            made.insert((*name).to_owned(), self.value(&free, depth + 1)?);
        }
        let described = free.is_object() && self.fullness == Fullness::Most && depth < DEEPEST;
        let wanted = at_least.max(usize::from(described || (made.is_empty() && depth > 0)));
        let mut number = 0;
        while made.len() < wanted && free != Value::Bool(false) {
            number += 1;
            made.insert(format!("key{number}"), self.value(&free, depth + 1)?);
        }
        Some(made.into())
    }

    /// Every argument; further in about half of what may be left out.
    fn is_wanted(&mut self, depth: usize) -> bool {
        depth == 0 || (depth < DEEPEST && self.random.random::<bool>())
    }

    fn array(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        // No style has a form for an empty list.
        let least = count(schema, "minItems").unwrap_or(0).max(1);
        let most = count(schema, "maxItems").unwrap_or(usize::MAX).min(least + 2);
        let length = if most > least && depth < DEEPEST { self.random.random_range(least..=most) } else { least };
        let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let any = Value::Bool(true);
        let rest = schema.get("items").unwrap_or(&any);
        let mut made = Vec::new();
        for at in 0..length.min(most) {
            let item = self.value(first.get(at).unwrap_or(rest), depth + 1)?;
            let unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
            if !(unique && made.contains(&item)) {
                made.push(item);
            }
        }
        Some(made.into())
    }

    fn number(&mut self, schema: &Map<String, Value>, step: f64) -> Value {
        let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
        let step = bound("multipleOf").unwrap_or(step);
        let low = bound("minimum").or(bound("exclusiveMinimum").map(|bound| bound + step));
        let high = bound("maximum").or(bound("exclusiveMaximum").map(|bound| bound - step));
        let low = low.unwrap_or_else(|| high.map_or(1.0, |high| high.min(1.0)));
        let high = high.unwrap_or(low + 100.0).max(low);
        let steps = ((high - low) / step).clamp(0.0, 1_000.0).floor();
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 1000")]
        let steps = f64::from(self.random.random_range(0..=steps as i32));
        let number = (low / step).ceil().mul_add(step, steps * step);
        if number.fract() == 0.0 && number.abs() < 9e15 {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and within the integers")]
            return Value::from(number as i64);
        }
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }

    fn text(&mut self, schema: &Map<String, Value>) -> String {
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && let Some(text) = matching(pattern, self.random.random())
        {
            return text;
        }
        let word = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        if word("contentEncoding") == Some("base64") {
            return "aGVsbG8=".to_owned();
        }
        match word("format") {
            Some("date-time") => "2024-05-06T07:08:09Z".to_owned(),
            Some("date") => "2024-05-06".to_owned(),
            Some("time") => "07:08:09Z".to_owned(),
            Some("duration") => "P1D".to_owned(),
            Some("email") => "someone@example.com".to_owned(),
            Some("uri" | "url" | "uri-reference") => "https://example.com/a?b=c".to_owned(),
            Some("uuid") => "0189f7c2-3b3f-7c3e-8b8e-0c2f6a1d9f10".to_owned(),
            Some("hostname") => "example.com".to_owned(),
            Some("ipv4") => "192.0.2.7".to_owned(),
            Some("ipv6") => "2001:db8::7".to_owned(),
            Some("byte") => "aGVsbG8=".to_owned(),
            Some("decimal" | "int32" | "int64") => "7".to_owned(),
            _ => self.free_text(schema),
        }
    }

    /// It begins and ends with a letter: headers are trimmed, and a path's part is no `..`.
    fn free_text(&mut self, schema: &Map<String, Value>) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        const AWKWARD: [char; 16] = [' ', '&', '=', '+', '/', '%', '?', '#', '\'', '"', ':', ';', '[', ']', 'é', '漢'];
        let least = count(schema, "minLength").unwrap_or(0).max(1);
        let most = count(schema, "maxLength").unwrap_or(usize::MAX).min(least + 8).max(1);
        let length = self.random.random_range(least.min(most)..=most);
        (0..length)
            .map(|at| {
                let inside = at > 0 && at + 1 < length;
                match self.texts {
                    Texts::Awkward if inside && self.random.random_ratio(1, 3) => *self.one_of(&AWKWARD),
                    _ => char::from(*self.one_of(LETTERS)),
                }
            })
            .collect()
    }

    fn one_of<'o, T>(&mut self, all: &'o [T]) -> &'o T {
        &all[self.random.random_range(0..all.len())]
    }
}

/// A text that matches a regular expression, if the generator supports its syntax.
fn matching(pattern: &str, seed: u64) -> Option<String> {
    // Of alternatives that are anchored each the first.
    let open = pattern.split("|^").next().unwrap_or(pattern);
    let open = open.strip_prefix('^').unwrap_or(open);
    let open = open.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(open);
    let ascii = open.replace("\\d", "[0-9]").replace("\\w", "[A-Za-z0-9_]").replace("\\s", " ").replace("\\/", "/");
    let strategy = proptest::string::string_regex(&ascii).ok()?;
    let mut runner = TestRunner::new_with_rng(
        proptest::test_runner::Config::default(),
        proptest::test_runner::TestRng::from_seed(
            proptest::test_runner::RngAlgorithm::ChaCha,
            &std::array::from_fn::<u8, 32, _>(|at| seed.to_le_bytes()[at % 8]),
        ),
    );
    Some(strategy.new_tree(&mut runner).ok()?.current())
}

/// Adds a schema's demands to another's.
fn merge(into: &mut Map<String, Value>, other: &Value) {
    for (keyword, value) in other.as_object().into_iter().flatten() {
        match (keyword.as_str(), into.get_mut(keyword), value) {
            ("properties", Some(Value::Object(have)), Value::Object(more)) => {
                for (name, property) in more {
                    match have.get_mut(name) {
                        Some(both) => *both = json!({"allOf": [both.clone(), property]}),
                        None => _ = have.insert(name.clone(), property.clone()),
                    }
                }
            }
            ("required" | "allOf", Some(Value::Array(have)), Value::Array(more)) => {
                have.extend(more.iter().cloned());
            }
            ("oneOf" | "anyOf", Some(_), _) => {
                let parts = into.entry("allOf").or_insert_with(|| json!([]));
                if let Value::Array(parts) = parts {
                    parts.push(json!({keyword: value}));
                }
            }
            ("enum", Some(Value::Array(have)), Value::Array(more)) => have.retain(|value| more.contains(value)),
            (_, Some(_), _) if keyword != "$ref" => {}
            _ => _ = into.insert(keyword.clone(), value.clone()),
        }
    }
}

fn names(required: Option<&Value>) -> BTreeSet<&str> {
    required.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn count(schema: &Map<String, Value>, keyword: &str) -> Option<usize> {
    schema.get(keyword).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
}
