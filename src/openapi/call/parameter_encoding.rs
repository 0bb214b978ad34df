//! Values as text in paths, query strings, headers and cookies: `style` and `explode`
//! (<https://spec.openapis.org/oas/v3.1.1.html#style-values>), percent-encoded by RFC 3986.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::read::operation::Style;

/// RFC 3986 §2.3: characters that are never encoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// RFC 3986 §2.2 `reserved`, kept as written with `allowReserved`, but for `&`, `=`, `+`, `#`, `[` and `]`,
/// which would change where a value ends (OpenAPI 3.1.1, Appendix E).
const RESERVED_KEPT: &AsciiSet = &UNRESERVED
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';');

/// Deepest nesting of brackets; deeper values are sent as JSON.
const MAX_BRACKETS: usize = 16;

/// The characters of a value that are not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// All but unreserved ones are percent-encoded.
    Percent,
    /// `allowReserved`.
    Reserved,
    /// None: headers, and cookies of style `cookie`.
    Verbatim,
}

impl Escaping {
    fn write(self, text: &str) -> String {
        match self {
            Self::Percent => utf8_percent_encode(text, UNRESERVED).to_string(),
            Self::Reserved => utf8_percent_encode(text, RESERVED_KEPT).to_string(),
            Self::Verbatim => text.to_owned(),
        }
    }
}

/// A path parameter, in place of its `{template}`.
///
/// `simple`, `label` and `matrix`, and the separators of Swagger 2.0; any other style is written as `simple`.
pub(crate) fn path(name: &str, value: &Value, style: Style, explode: bool, escaping: Escaping) -> String {
    let key = utf8_percent_encode(name, UNRESERVED).to_string();
    match style {
        Style::Label => format!(".{}", simple(value, if explode { "." } else { "," }, explode, escaping)),
        Style::Matrix => matrix(&key, value, explode, escaping),
        _ => simple(value, separator(style), explode, escaping),
    }
}

/// A header's value: style `simple`, or with a separator of Swagger 2.0; no encoding.
pub(crate) fn header(value: &Value, style: Style, explode: bool) -> String {
    let separator = match style {
        Style::SpaceDelimited => " ",
        Style::PipeDelimited => "|",
        Style::TabDelimited => "\t",
        _ => ",",
    };
    simple(value, separator, explode, Escaping::Verbatim)
}

/// Between the items of a list in an address. Separators that an address cannot contain are themselves encoded.
fn separator(style: Style) -> &'static str {
    match style {
        Style::SpaceDelimited => "%20",
        Style::PipeDelimited => "%7C",
        Style::TabDelimited => "%09",
        _ => ",",
    }
}

/// The lists in a list as texts, their items joined by this separator.
pub(crate) fn with_joined_items(value: &Value, separator: char) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let joined = items.iter().map(|item| match item {
        Value::Array(inner) => {
            // Lists in it are separated alike: only two levels can be told apart.
            let inner = inner.iter().map(|item| plain(&with_joined_items(item, separator)));
            Value::String(inner.collect::<Vec<_>>().join(separator.encode_utf8(&mut [0; 4])))
        }
        other => other.clone(),
    });
    joined.collect()
}

/// The `name=value` pairs of a query parameter (or of one property of a form), encoded. Empty for an
/// empty array or object, which no style can write.
pub fn pairs(name: &str, value: &Value, style: Style, explode: bool, escaping: Escaping) -> Vec<(String, String)> {
    let key = || match escaping {
        Escaping::Verbatim => name.to_owned(),
        _ => utf8_percent_encode(name, UNRESERVED).to_string(),
    };
    let whole = |separator: &str| match is_empty(value) {
        true => Vec::new(),
        false => vec![(key(), simple(value, separator, false, escaping))],
    };
    match (style, value) {
        (Style::DeepObject, Value::Object(_) | Value::Array(_)) => {
            let mut found = Vec::new();
            brackets(&key(), value, escaping, MAX_BRACKETS, &mut found);
            found
        }
        (_, Value::Array(items)) if explode => items.iter().map(|item| (key(), scalar(item, escaping))).collect(),
        (_, Value::Object(members)) if explode => {
            members.iter().map(|(member, value)| (escaping.write(member), scalar(value, escaping))).collect()
        }
        _ => whole(separator(style)),
    }
}

/// A scalar as text; any other value, inside a style that cannot represent it, as JSON.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn scalar(value: &Value, escaping: Escaping) -> String {
    escaping.write(&plain(value))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn simple(value: &Value, separator: &str, explode: bool, escaping: Escaping) -> String {
    match value {
        Value::Array(items) => join(items.iter().map(|item| scalar(item, escaping)), separator),
        Value::Object(members) => {
            let between = if explode { "=" } else { separator };
            join(named(members, between, escaping), separator)
        }
        other => scalar(other, escaping),
    }
}

fn matrix(key: &str, value: &Value, explode: bool, escaping: Escaping) -> String {
    match value {
        Value::Array(items) if explode => {
            items.iter().map(|item| format!(";{key}={}", scalar(item, escaping))).collect()
        }
        Value::Object(members) if explode => named(members, "=", escaping).map(|pair| format!(";{pair}")).collect(),
        _ => match simple(value, ",", false, escaping) {
            text if text.is_empty() => format!(";{key}"),
            text => format!(";{key}={text}"),
        },
    }
}

/// `name[member][0]=value`, as the qs library and the servers that read it write nested values.
fn brackets(prefix: &str, value: &Value, escaping: Escaping, depth: usize, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) if depth > 0 => {
            for (member, inner) in members {
                brackets(&format!("{prefix}[{}]", escaping.write(member)), inner, escaping, depth - 1, found);
            }
        }
        Value::Array(items) if depth > 0 => {
            for (at, inner) in items.iter().enumerate() {
                brackets(&format!("{prefix}[{at}]"), inner, escaping, depth - 1, found);
            }
        }
        other => found.push((prefix.to_owned(), scalar(other, escaping))),
    }
}

fn named(members: &Map<String, Value>, between: &str, escaping: Escaping) -> impl Iterator<Item = String> {
    members.iter().map(move |(member, value)| format!("{}{between}{}", escaping.write(member), scalar(value, escaping)))
}

fn join(parts: impl Iterator<Item = String>, separator: &str) -> String {
    parts.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests;
