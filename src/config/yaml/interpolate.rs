//! `${NAME}`, `${NAME:-default}` and references to files and programs (`reference`) in the strings of the configuration
//! file.
//!
//! Replaced after parsing, so that a variable's value is never parsed as YAML.

use super::document::{Content, Document, Node, Position};
use super::error::ConfigError;
use super::reference::{References, is_reference, resolve, unclosed};
use crate::environment::Environment;

/// Replaces every `${…}` in the document; `$${` is a literal `${`. A value that cannot be replaced is marked invalid
/// and reported. In a text that is not the operator's file, names of set variables, of files and of programs stay as
/// they are written, and nothing is read.
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
/// Errors: the variable that is not set, or the invalid name.
pub(crate) fn expand_text(text: &str, environment: &Environment) -> Result<String, String> {
    let mut expansion = Expansion { environment, references: Policy::Refuse };
    let expanded = expansion.expand(text);
    expanded.map(|(text, _)| text).map_err(|problem| problem.message)
}

/// The origin of a text's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Only text of the file.
    Written,
    /// Values are in the place of variables and references.
    Replaced,
    /// It names values that are not read.
    Unread,
}

pub(super) struct Problem {
    pub(super) message: String,
    pub(super) advice: String,
}

/// The treatment of references to files and programs, and of variables that are set.
enum Policy {
    /// They are replaced, and the references collected.
    Resolve(References),
    /// They stay as they are.
    Keep,
    /// Variables are replaced, and there are no references.
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
                Ok((value, Origin::Unread)) => Content::Unread(value),
                Ok((value, origin)) => Content::Text { value, interpolated: origin == Origin::Replaced },
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
    /// The text with its variables and references replaced, and its origin then.
    fn expand(&mut self, text: &str) -> Result<(String, Origin), Problem> {
        let mut expanded = String::with_capacity(text.len());
        let (mut is_replaced, mut is_unread) = (false, false);
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
                    is_replaced = true;
                }
                Policy::Keep if is_reference(after) => {
                    expanded.push_str("${");
                    rest = after;
                    is_unread = true;
                }
                policy => {
                    let (reference, left) = after.split_once('}').ok_or_else(unclosed)?;
                    match look_up(reference, self.environment)? {
                        Variable::Set(_) if matches!(policy, Policy::Keep) => {
                            expanded.push_str(&rest[start..rest.len() - left.len()]);
                            is_unread = true;
                        }
                        Variable::Set(value) | Variable::Default(value) => {
                            expanded.push_str(value);
                            is_replaced = true;
                        }
                    }
                    rest = left;
                }
            }
        }
        expanded.push_str(rest);
        let origin = match (is_unread, is_replaced) {
            (true, _) => Origin::Unread,
            (false, true) => Origin::Replaced,
            (false, false) => Origin::Written,
        };
        Ok((expanded, origin))
    }
}

/// The value of a variable.
enum Variable<'a> {
    Set(&'a str),
    /// It is not set, and the text has another value in its place.
    Default(&'a str),
}

/// `reference`: `NAME` or `NAME:-default`, also after `env:`.
fn look_up<'a>(reference: &'a str, environment: &'a Environment) -> Result<Variable<'a>, Problem> {
    let reference = reference.strip_prefix("env:").unwrap_or(reference);
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
    let found = environment.get(name).map(Variable::Set).or(default.map(Variable::Default));
    found.ok_or_else(|| Problem {
        message: format!("the environment variable {name} is not set"),
        advice: format!("set it, also in a `.env` file beside this one, or add a default: `${{{name}:-default}}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded_by(references: Policy, text: &str) -> Result<(String, Origin), String> {
        let environment = Environment::from_iter([("NAME", "value"), ("EMPTY", ""), ("NESTED", "${NAME}")]);
        let mut expansion = Expansion { environment: &environment, references };
        expansion.expand(text).map_err(|problem| problem.message)
    }

    fn expanded(text: &str) -> Result<(String, Origin), String> {
        expanded_by(Policy::Resolve(References::default()), text)
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
            assert_eq!(expanded(text), Ok((expected.into(), Origin::Replaced)), "{text}");
        }
    }

    #[test]
    fn two_dollars_escape_one() {
        assert_eq!(expanded("$${NAME} costs $5"), Ok(("${NAME} costs $5".into(), Origin::Written)));
        assert_eq!(expanded("$${NAME} is ${NAME}"), Ok(("${NAME} is value".into(), Origin::Replaced)));
    }

    #[test]
    fn an_unset_or_malformed_variable_is_refused() {
        for text in ["${UNSET}", "${EMPTY}", "${NAME", "${}", "${1A}", "${a b}", "${:-x}"] {
            assert!(expanded(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_from_elsewhere_reads_no_variable_no_file_and_no_program() {
        let kept = |text: &str| expanded_by(Policy::Keep, text);
        for text in ["${file:/etc/passwd}", "${exec: [\"/bin/echo\", \"x\"]}"] {
            assert_eq!(kept(text), Ok((text.to_owned(), Origin::Unread)), "{text}");
            assert!(expand_text(text, &Environment::default()).is_err(), "{text}");
        }
        for text in ["${NAME}", "${env:NAME}", "Bearer ${NAME:-spare}", "${NAME}${file:/etc/passwd}"] {
            assert_eq!(kept(text), Ok((text.to_owned(), Origin::Unread)), "{text}");
        }
        assert_eq!(kept("${UNSET:-spare}"), Ok(("spare".to_owned(), Origin::Replaced)));
        assert_eq!(kept("${NAME} and ${UNSET:-spare}"), Ok(("${NAME} and spare".to_owned(), Origin::Unread)));
        assert_eq!(kept("$${NAME}"), Ok(("${NAME}".to_owned(), Origin::Written)));
        assert!(kept("${UNSET}").is_err(), "a check says which are not set");
    }
}
