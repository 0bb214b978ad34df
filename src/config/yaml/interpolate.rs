//! `${NAME}` and `${NAME:-default}` in the strings of the configuration file.
//!
//! Replaced after parsing, so that a variable's value is never parsed as YAML.

use super::document::{Content, Document, Node, Position};
use super::error::ConfigError;
use crate::config::environment::Environment;

/// Replaces every `${…}` in the document; `$${` is a literal `${`. A value that cannot be replaced is marked invalid
/// and reported.
pub(crate) fn interpolate(document: &mut Document, environment: &Environment) -> Vec<ConfigError> {
    let mut broken = Vec::new();
    walk(&mut document.root, environment, &mut broken);
    broken
        .into_iter()
        .map(|(position, problem)| document.error(position, false, problem.message).advise(problem.advice))
        .collect()
}

/// Replaces the variables in a string of another program's file. `${env:NAME}` is `${NAME}` there too.
///
/// # Errors
/// The variable that is not set, or the invalid name.
pub(crate) fn expand_text(text: &str, environment: &Environment) -> Result<String, String> {
    let expanded = expand(&text.replace("${env:", "${"), environment);
    expanded.map(|(text, _)| text).map_err(|problem| problem.message)
}

struct Problem {
    message: String,
    advice: String,
}

fn walk(node: &mut Node, environment: &Environment, broken: &mut Vec<(Position, Problem)>) {
    match &mut node.content {
        Content::List(items) => items.iter_mut().for_each(|item| walk(item, environment, broken)),
        Content::Mapping(entries) => entries.iter_mut().for_each(|(_, value)| walk(value, environment, broken)),
        Content::Text { value, .. } if value.contains("${") => {
            node.content = match expand(value, environment) {
                Ok((value, interpolated)) => Content::Text { value, interpolated },
                Err(problem) => {
                    broken.push((node.position, problem));
                    Content::InvalidValue
                }
            };
        }
        _ => {}
    }
}

/// The text with its variables replaced, and whether there were any.
fn expand(text: &str, environment: &Environment) -> Result<(String, bool), Problem> {
    let mut expanded = String::with_capacity(text.len());
    let mut interpolated = false;
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let end = after.find('}').ok_or_else(|| Problem {
            message: "`${` without its `}`".into(),
            advice: "close it, or write `$${` for a literal `${`".into(),
        })?;
        expanded.push_str(before);
        expanded.push_str(look_up(&after[..end], environment)?);
        interpolated = true;
        rest = &after[end + 1..];
    }
    expanded.push_str(rest);
    Ok((expanded, interpolated))
}

fn look_up<'a>(reference: &'a str, environment: &'a Environment) -> Result<&'a str, Problem> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if !is_name {
        return Err(Problem {
            message: "the text in `${…}` is not the name of a variable".into(),
            advice: "write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`".into(),
        });
    }
    environment.get(name).or(default).ok_or_else(|| Problem {
        message: format!("the environment variable {name} is not set"),
        advice: format!("set it, also in a `.env` file beside this one, or add a default: `${{{name}:-default}}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<(String, bool), String> {
        let environment = Environment::from_iter([("NAME", "value"), ("EMPTY", ""), ("NESTED", "${NAME}")]);
        expand(text, &environment).map_err(|problem| problem.message)
    }

    #[test]
    fn variables_and_defaults_are_replaced() {
        for (text, expected) in [
            ("${NAME}", "value"),
            ("a ${NAME} b ${NAME}", "a value b value"),
            ("${UNSET:-spare}", "spare"),
            ("${NAME:-spare}", "value"),
            ("${EMPTY:-spare}", "spare"),
            ("${UNSET:-}", ""),
            // A value is never expanded again.
            ("${NESTED}", "${NAME}"),
        ] {
            assert_eq!(expanded(text), Ok((expected.into(), true)), "{text}");
        }
    }

    #[test]
    fn two_dollars_escape_one() {
        assert_eq!(expanded("$${NAME} costs $5"), Ok(("${NAME} costs $5".into(), false)));
        assert_eq!(expanded("$${NAME} is ${NAME}"), Ok(("${NAME} is value".into(), true)));
    }

    #[test]
    fn an_unset_or_malformed_variable_is_refused() {
        for text in ["${UNSET}", "${EMPTY}", "${NAME", "${}", "${1A}", "${a b}", "${:-x}"] {
            assert!(expanded(text).is_err(), "{text}");
        }
    }
}
