//! Values that the description of a parameter lists, and that its schema does not declare.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::rules::RULES;

const VALUE: &str = r"[\w-]+(?:\.[\w-]+)*";
const SEPARATOR: &str = r"\s*(?:,\s*or\s|,\s*and\s|,|\||/|\s(?:or|and)\s)\s*";

/// Keywords of a schema that limit a text.
const LIMITING: [&str; 9] = ["enum", "const", "pattern", "format", "anyOf", "oneOf", "allOf", "$ref", "not"];

/// Characters before a listing in which a word says that its values are examples.
const EXAMPLE_DISTANCE: usize = 30;

#[expect(clippy::expect_used, reason = "the patterns are part of the program, and a test compiles them")]
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let several = |value: &str| format!("{value}(?:{SEPARATOR}{value})+");
    let values = several(&format!("[\"'`]?{VALUE}[\"'`]?"));
    let quoted = several(&format!("[\"'`]{VALUE}[\"'`]"));
    let patterns = RULES.enumerations.iter().map(|text| text.replace("VALUES", &values).replace("QUOTED", &quoted));
    patterns.map(|pattern| Regex::new(&pattern).expect("a test compiles the patterns")).collect()
});

#[expect(clippy::expect_used, reason = "the pattern is part of the program, and a test compiles it")]
static BETWEEN_VALUES: LazyLock<Regex> = LazyLock::new(|| Regex::new(SEPARATOR).expect("a test compiles the pattern"));

/// The values of a parameter; empty where it is no text, or where the schema limits it.
pub(super) fn undeclared(schema: &Value) -> Vec<String> {
    let texts = schema.get("items").unwrap_or(schema);
    let is_limited = LIMITING.iter().any(|keyword| texts.get(keyword).is_some());
    if is_limited || texts.get("type").and_then(Value::as_str) != Some("string") {
        return Vec::new();
    }
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    PATTERNS.iter().find_map(|pattern| listed(pattern, description)).unwrap_or_default()
}

/// The first values that are not examples.
fn listed(pattern: &Regex, description: &str) -> Option<Vec<String>> {
    pattern.captures_iter(description).find_map(|found| {
        let values = found.name("values")?;
        let before = &description[..values.start()];
        let near = before.char_indices().rev().nth(EXAMPLE_DISTANCE).map_or(before, |(at, _)| &before[at..]);
        let near = near.to_lowercase();
        if RULES.examples.iter().any(|word| near.contains(word.as_str())) {
            return None;
        }
        let parts = BETWEEN_VALUES.split(values.as_str());
        let mut values: Vec<String> = parts.map(|part| part.trim_matches(['"', '\'', '`']).to_owned()).collect();
        values.sort();
        values.dedup();
        (2..=RULES.max_values).contains(&values.len()).then_some(values)
    })
}
