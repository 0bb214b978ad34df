//! Parses the text of an OpenAPI document, JSON or YAML, into one JSON value, within bounds.
//!
//! Both forms go through the same reader: mapping keys become strings (`200:` is `"200"`), YAML merges (`<<`) are
//! applied, and aliases may not expand beyond [`MAX_VALUES`] and [`MAX_TEXT_BYTES`]. Duplicate keys and values that are
//! nested too deep are [flaws](Flaw) of one part.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{self, DeserializeSeed};
use serde_json::Value;
use thiserror::Error;

use super::flaws::Flaw;
use sekisho_core::json::{Rules, ValueReader};

/// Most bytes of a document's text. The largest public documents have about 11 MB.
pub const MAX_DOCUMENT_BYTES: usize = 32 << 20;

/// Most values in a document, its aliases expanded.
const MAX_VALUES: usize = 4_000_000;

/// Most bytes of keys and strings in a document, its aliases expanded.
const MAX_TEXT_BYTES: usize = 2 * MAX_DOCUMENT_BYTES;

/// Most brackets open at once; brackets in strings, which need not be closed, count too.
const MAX_OPEN: usize = 10_000;

/// Deepest nesting that is read; both parsers refuse more than about 120 levels.
pub(super) const MAX_DEPTH: usize = 100;

/// Most flaws that are remembered.
const MAX_FLAWS: usize = 1_000;

/// Why a document cannot be used at all. An error in a part of it is a line of the report instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    #[error(
        "the document has more than {MAX_DOCUMENT_BYTES} bytes, the most that are read: split it, or cut out what is \
         not needed"
    )]
    TooLong,
    #[error("the document is not UTF-8 text; save it as UTF-8")]
    NotText,
    #[error("the document is neither valid JSON nor valid YAML: {0}")]
    Unreadable(String),
    #[error("the document is not an object with `openapi` or `swagger`; is it an OpenAPI document?")]
    NotOpenApi,
    #[error("version {0} is not supported; 2.0 (Swagger), 3.0, 3.1 and 3.2 are")]
    Version(String),
}

/// Which specification a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    Swagger2,
    V3_0,
    V3_1,
    V3_2,
}

/// Reads JSON or YAML without any flaw.
/// Errors: [`DocumentError`]: too long, not UTF-8, or a syntax error with its line.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, DocumentError> {
    let budget = Budget::default();
    let value = parse_within(bytes, &budget)?;
    match budget.take_flaws().first() {
        Some(Flaw { place, reason }) => Err(DocumentError::Unreadable(format!("{reason} at {place:?}"))),
        None => Ok(value),
    }
}

/// Reads one of several documents that share a budget, which then has the document's flaws.
/// Errors: as [`parse`].
pub(crate) fn parse_within(bytes: &[u8], budget: &Budget) -> Result<Value, DocumentError> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::TooLong);
    }
    let text = str::from_utf8(bytes).map_err(|_| DocumentError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_too_deep(text) {
        return Err(DocumentError::Unreadable(format!("it has more than {MAX_OPEN} nested brackets")));
    }
    // YAML's flow style may begin like JSON; the JSON parser's error is then the better explanation.
    if text.trim_start().starts_with(['{', '[']) {
        parse_json(text, budget).or_else(|error| {
            budget.take_flaws();
            parse_yaml(text, budget).map_err(|_| error)
        })
    } else {
        parse_yaml(text, budget)
    }
    .map_err(DocumentError::Unreadable)
}

/// Whether there are far more opening brackets than closing ones: at each, a YAML parser scans all open ones.
/// Both parsers refuse nesting deeper than about a hundred levels, but only after that scan.
fn is_too_deep(text: &str) -> bool {
    let mut open = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > MAX_OPEN {
            return true;
        }
    }
    false
}

/// The version a document declares; `3.1` may be written as a number.
/// Errors: [`DocumentError::NotOpenApi`], or [`DocumentError::Version`] with the declared version.
pub(crate) fn version(document: &Value) -> Result<Version, DocumentError> {
    let written = |key| match document.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let version = written("openapi").or_else(|| written("swagger")).ok_or(DocumentError::NotOpenApi)?;
    let mut parts = version.trim().split('.');
    match (parts.next(), parts.next()) {
        (Some("2"), Some("0") | None) => Ok(Version::Swagger2),
        (Some("3"), Some("0") | None) => Ok(Version::V3_0),
        (Some("3"), Some("1")) => Ok(Version::V3_1),
        (Some("3"), Some("2")) => Ok(Version::V3_2),
        _ => Err(DocumentError::Version(version.chars().take(40).collect())),
    }
}

fn parse_json(text: &str, budget: &Budget) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = ValueReader::new(budget).deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

fn parse_yaml(text: &str, budget: &Budget) -> Result<Value, String> {
    ValueReader::new(budget).deserialize(yaml_serde::Deserializer::from_str(text)).map_err(|error| error.to_string())
}

/// The remaining budget.
#[derive(Debug)]
pub(crate) struct Budget {
    values: Cell<usize>,
    text_bytes: Cell<usize>,
    flaws: RefCell<Vec<Flaw>>,
}

impl Budget {
    /// The flaws of the values read since they were last taken.
    pub(crate) fn take_flaws(&self) -> Vec<Flaw> {
        self.flaws.take()
    }

    fn add_flaw(&self, place: String, reason: String) {
        let mut flaws = self.flaws.borrow_mut();
        if flaws.len() < MAX_FLAWS {
            flaws.push(Flaw { place, reason });
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { values: Cell::new(MAX_VALUES), text_bytes: Cell::new(MAX_TEXT_BYTES), flaws: RefCell::default() }
    }
}

impl Rules for &Budget {
    const IS_YAML: bool = true;

    fn spend<E: de::Error>(self, text_bytes: usize) -> Result<(), E> {
        let values = self.values.get().checked_sub(1);
        let text_bytes = self.text_bytes.get().checked_sub(text_bytes);
        let (Some(values), Some(text_bytes)) = (values, text_bytes) else {
            return Err(E::custom("it is too large with its aliases expanded; repeat less, or use $ref"));
        };
        self.values.set(values);
        self.text_bytes.set(text_bytes);
        Ok(())
    }

    fn duplicate<E: de::Error>(self, key: &str, object: &dyn fmt::Display) -> Result<(), E> {
        let place = format!("{object}/{}", key.replace('~', "~0").replace('/', "~1"));
        let key: String = key.chars().take(100).collect();
        self.add_flaw(place, format!("duplicate key {key:?}"));
        Ok(())
    }

    fn skips(self, depth: usize, place: &dyn fmt::Display) -> bool {
        let skips = depth >= MAX_DEPTH;
        if skips {
            self.add_flaw(place.to_string(), format!("a value nested more than {MAX_DEPTH} levels deep"));
        }
        skips
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_read_alike() {
        let expected =
            json!({"openapi": "3.1.0", "paths": {"/a": {"get": {"responses": {"200": {"x": [1, null, true]}}}}}});
        let yaml = "openapi: 3.1.0\npaths: {/a: {get: {responses: {200: {x: [1, ~, true]}}}}}\n";
        assert_eq!(parse(yaml.as_bytes()), Ok(expected.clone()));
        assert_eq!(parse(format!("\u{feff}{expected}").as_bytes()), Ok(expected));
        assert_eq!(parse(b"{a: 1, b: !Tag c}"), Ok(json!({"a": 1, "b": "c"})));
    }

    /// OpenAI's and Cohere's documents have such bounds.
    #[test]
    fn an_integer_beyond_64_bits_is_a_number_in_both_forms() {
        for text in ["18446744073709552000", "-9223372036854776000", "9223372036854776000"] {
            let (yaml, json) = (format!("maximum: {text}\n"), format!("{{\"maximum\": {text}}}"));
            assert_eq!(parse(yaml.as_bytes()), parse(json.as_bytes()), "{text}");
            assert!(parse(yaml.as_bytes()).unwrap()["maximum"].is_number(), "{text}");
        }
    }

    #[test]
    fn a_merge_key_adds_members_without_overriding() {
        let yaml = b"base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n";
        assert_eq!(parse(yaml).unwrap()["more"], json!({"b": 3, "a": 1}));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        let deep_json = "[".repeat(10_000) + &"]".repeat(10_000);
        let mut bomb = String::from("x0: &x0 {p: q}\n");
        for level in 1..12 {
            let alias = format!("*x{},", level - 1).repeat(10);
            bomb.push_str(&format!("x{level}: &x{level} [{alias}]\n"));
        }
        for (text, expected) in [
            ("{\"a\": 1, \"a\": 2}", "duplicate key"),
            ("a: 1\na: 2", "duplicate key"),
            ("{\"a\": ", "EOF"),
            (deep_json.as_str(), "nested more than 100 levels"),
            (bomb.as_str(), "limit"),
        ] {
            let Err(DocumentError::Unreadable(reason)) = parse(text.as_bytes()) else { panic!("read: {text:.40}") };
            assert!(reason.contains(expected), "{reason}");
        }
        assert_eq!(parse(&[b'{', 0xff]), Err(DocumentError::NotText));
        let long = vec![b' '; 60_000_000];
        assert_eq!(parse(&long), Err(DocumentError::TooLong));
    }

    #[test]
    fn a_flaw_is_one_of_its_place_in_both_forms() {
        let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
        for text in [
            format!("{{\"a\": 1, \"b/c\": {{\"d\": 1, \"d\": 2}}, \"e\": {deep}}}"),
            format!("a: 1\nb/c:\n  d: 1\n  d: 2\ne: {deep}\n"),
        ] {
            let budget = Budget::default();
            let value = parse_within(text.as_bytes(), &budget).unwrap();
            assert_eq!((&value["a"], &value["b/c"]["d"]), (&json!(1), &json!(2)), "the last counts");
            let flaws = budget.take_flaws();
            assert_eq!(flaws[0], Flaw { place: "/b~1c/d".into(), reason: "duplicate key \"d\"".into() });
            assert!(flaws.len() == 2 && flaws[1].place.starts_with("/e/0/0"), "{flaws:?}");
        }
    }

    /// A large anchor that is repeated less often than the parser's own limit still costs its size each time.
    #[test]
    fn aliases_of_something_large_are_refused_by_what_they_write_out_to() {
        let yaml = format!("x: &x {}\ny: [{}]", "a".repeat(1 << 20), "*x,".repeat(80));
        let Err(DocumentError::Unreadable(reason)) = parse(yaml.as_bytes()) else { panic!("it was read") };
        assert!(reason.contains("its aliases expanded"), "{reason}");
    }

    #[test]
    fn the_version_is_read_from_text_and_numbers() {
        for (document, expected) in [
            (json!({"swagger": "2.0"}), Ok(Version::Swagger2)),
            (json!({"swagger": 2.0}), Ok(Version::Swagger2)),
            (json!({"openapi": "3.0.3"}), Ok(Version::V3_0)),
            (json!({"openapi": 3.1}), Ok(Version::V3_1)),
            (json!({"openapi": "3.2.0"}), Ok(Version::V3_2)),
            (json!({"openapi": "4.0.0"}), Err(DocumentError::Version("4.0.0".into()))),
            (json!({"swagger": "1.2"}), Err(DocumentError::Version("1.2".into()))),
            (json!({"paths": {}}), Err(DocumentError::NotOpenApi)),
            (json!([]), Err(DocumentError::NotOpenApi)),
        ] {
            assert_eq!(version(&document), expected, "{document}");
        }
    }
}
