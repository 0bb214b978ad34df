//! The messages for type errors, for operators who do not read Rust. Never the value itself.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::document::{Content, Node};
use sekisho_core::nearest_name::nearest_name;

/// A type error, as reported by serde's visitors and ours.
#[derive(Debug)]
pub(crate) struct ConfigTypeError<'a> {
    pub node: Option<&'a Node>,
    message: String,
    pub advice: Option<String>,
    pub(crate) missing_field: bool,
    /// The message comes from a type's own parser, and may quote the value.
    foreign: bool,
    /// The value must not be shown.
    pub hidden: bool,
}

impl<'a> ConfigTypeError<'a> {
    /// The innermost node is kept.
    pub fn at(mut self, node: &'a Node, hidden: bool) -> Self {
        if self.node.is_none() {
            self.node = Some(node);
            self.hidden = hidden;
        }
        self
    }

    pub fn saying(message: String) -> Self {
        Self { node: None, message, advice: None, missing_field: false, foreign: false, hidden: false }
    }

    /// The message of a type's own parser is withheld where the value must not be shown.
    pub(crate) fn message_for(&self, node: &Node) -> &str {
        let hidden = self.hidden || matches!(node.content, Content::Text { interpolated: true, .. });
        if self.foreign && hidden { "the value does not fit here (it is not shown)" } else { &self.message }
    }
}

impl fmt::Display for ConfigTypeError<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ConfigTypeError<'_> {}

impl de::Error for ConfigTypeError<'_> {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        match message.as_str() {
            "invalid socket address syntax" => {
                Self::saying("expected an address and a port, such as 127.0.0.1:8080".into())
            }
            // The message of `url` for a string without a scheme.
            text if text.contains("URL") => {
                Self::saying("expected an absolute URL, such as https://example.com".into())
            }
            _ => Self { foreign: true, ..Self::saying(message) },
        }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::saying(format!("expected {}, not {}", in_words(&expected.to_string()), kind(&unexpected)))
    }

    /// Without the value: it may be a secret, and the excerpt shows it where it is none.
    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::saying(format!("expected {}", in_words(&expected.to_string())))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let mut type_error = Self::saying(format!("expected one of {}", expected.join(", ")));
        type_error.advice = suggestion(variant, expected);
        type_error
    }

    fn missing_field(field: &'static str) -> Self {
        let mut type_error = Self::saying(format!("`{field}` is missing"));
        type_error.advice = Some(format!("add `{field}:` here"));
        type_error.missing_field = true;
        type_error
    }
}

/// Descriptions of types, for operators who do not read Rust.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number, zero or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "path string" => "a string".into(),
        "a sequence" => "a list".into(),
        "a map" => "keys with values".into(),
        "a Decimal type representing a fixed-point number" => "an amount, such as 0.50".into(),
        _ if expected.starts_with("struct ") => "keys with values".into(),
        _ => expected.to_owned(),
    }
}

fn kind(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
        Unexpected::Float(_) => "a number with a fraction",
        Unexpected::Seq => "a list",
        Unexpected::Map => "keys with values",
        Unexpected::Unit | Unexpected::Option => "nothing",
        _ => "a string",
    }
}

/// The error for a key, and its remedy.
pub(crate) fn unknown_key(name: &str, known: &[&str]) -> (String, String) {
    // `key:hunter2` is one word in YAML: the part after the colon was meant as a value.
    if let Some((name, _)) = name.split_once(':') {
        return (format!("unknown key `{name}:…`"), format!("write `{name}: value`, with a space after the colon"));
    }
    let advice = suggestion(name, known).unwrap_or_else(|| format!("valid keys: {}", known.join(", ")));
    (format!("unknown key `{name}`"), advice)
}

fn suggestion(wrong: &str, valid: &[&str]) -> Option<String> {
    nearest_name(wrong, valid.iter().copied()).map(|meant| format!("did you mean `{meant}`?"))
}
