//! `${NAME}`, `${NAME:-default}` and references to files and programs (`reference`) in the strings of the configuration
//! file.
//!
//! Replaced after parsing, so that a variable's value is never parsed as YAML.

use super::document::{Content, Document, Node, Position};
use super::error::ConfigError;
use super::reference::{References, is_reference, resolve};
use crate::config::environment::Environment;

/// Replaces every `${…}` in the document; `$${` is a literal `${`. A value that cannot be replaced is marked invalid
/// and reported. References to files and programs stay as they are in a text that is not the operator's file.
pub(crate) fn interpolate(document: &mut Document, environment: &Environment) -> (References, Vec<ConfigError>) {
    let mut broken = Vec::new();
    let references = if document.is_operators { Policy::Resolve(References::default()) } else { Policy::Keep };
    let mut expansion = Expansion { environment, references };
    walk(&mut document.root, &mut expansion, &mut broken);
    let references = match expansion.references {
        Policy::Resolve(found) => found,
        Policy::Keep | Policy::Refuse => References::default(),
    };
    let errors = broken
        .into_iter()
        .map(|(position, problem)| document.error(position, false, problem.message).advise(problem.advice))
        .collect();
    (references, errors)
}

/// Replaces the variables in a string of another program's file. `${env:NAME}` is `${NAME}` there too.
///
/// # Errors
/// The variable that is not set, or the invalid name.
pub(crate) fn expand_text(text: &str, environment: &Environment) -> Result<String, String> {
    let mut expansion = Expansion { environment, references: Policy::Refuse };
    let expanded = expansion.expand(text);
    expanded.map(|(text, _)| text).map_err(|problem| problem.message)
}

pub(super) struct Problem {
    pub(super) message: String,
    pub(super) advice: String,
}

/// What becomes of references to files and programs.
enum Policy {
    /// They are replaced, and collected.
    Resolve(References),
    /// They stay as they are.
    Keep,
    /// They are no variables.
    Refuse,
}

struct Expansion<'a> {
    environment: &'a Environment,
    references: Policy,
}

fn walk(node: &mut Node, expansion: &mut Expansion<'_>, broken: &mut Vec<(Position, Problem)>) {
    match &mut node.content {
        Content::List(items) => items.iter_mut().for_each(|item| walk(item, expansion, broken)),
        Content::Mapping(entries) => entries.iter_mut().for_each(|(_, value)| walk(value, expansion, broken)),
        Content::Text { value, .. } if value.contains("${") => {
            node.content = match expansion.expand(value) {
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

impl Expansion<'_> {
    /// The text with its variables and references replaced, and whether there were any.
    fn expand(&mut self, text: &str) -> Result<(String, bool), Problem> {
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
            expanded.push_str(before);
            match &mut self.references {
                Policy::Resolve(found) if is_reference(after) => {
                    let (value, left) = resolve(after, found)?;
                    expanded.push_str(&value);
                    rest = left;
                }
                Policy::Keep if is_reference(after) => {
                    expanded.push_str("${");
                    rest = after;
                    continue;
                }
                _ => {
                    let end = after.find('}').ok_or_else(|| Problem {
                        message: "`${` without its `}`".into(),
                        advice: "close it, or write `$${` for a literal `${`".into(),
                    })?;
                    let reference = &after[..end];
                    let reference = reference.strip_prefix("env:").unwrap_or(reference);
                    expanded.push_str(look_up(reference, self.environment)?);
                    rest = &after[end + 1..];
                }
            }
            interpolated = true;
        }
        expanded.push_str(rest);
        Ok((expanded, interpolated))
    }
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
            advice: "write `${NAME}`, `${NAME:-default}`, `${file:PATH}` or `${exec: [PROGRAM, …]}`; `$${` is a literal `${`"
                .into(),
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
        let mut expansion = Expansion { environment: &environment, references: Policy::Keep };
        expansion.expand(text).map_err(|problem| problem.message)
    }

    #[test]
    fn variables_and_defaults_are_replaced() {
        for (text, expected) in [
            ("${NAME}", "value"),
            ("a ${NAME} b ${NAME}", "a value b value"),
            ("${UNSET:-spare}", "spare"),
            ("${NAME:-spare}", "value"),
            ("${EMPTY:-spare}", "spare"),
            ("${env:NAME}", "value"),
            ("${env:UNSET:-spare}", "spare"),
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

    #[test]
    fn a_text_from_elsewhere_names_no_file_and_no_program() {
        for text in ["${file:/etc/passwd}", "${exec: [\"/bin/echo\", \"x\"]}"] {
            assert_eq!(expanded(text), Ok((text.to_owned(), false)), "{text}");
            assert!(expand_text(text, &Environment::default()).is_err(), "{text}");
        }
    }
}
