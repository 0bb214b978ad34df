//! Finds unknown tools, sources and roles in policies and their cases. They are probably typing errors, in rules that
//! never apply.

use std::collections::BTreeSet;

use regorus::Source;
use regorus::unstable::{Token, TokenKind};
use serde_json::Value as Json;

use super::cases;
use super::load::{self, PolicyError};
use super::reads;
use sekisho_config::PolicyConfig;

/// The names that policies may use.
#[derive(Debug, Default)]
pub struct KnownNames {
    /// `None`: any name is accepted, because some sources are not queried.
    pub tools: Option<BTreeSet<String>>,
    /// Prefixes of the names of further tools.
    pub tool_prefixes: BTreeSet<String>,
    pub sources: BTreeSet<String>,
    /// `None`: any role is accepted, because tokens may contain any.
    pub roles: Option<BTreeSet<String>>,
}

/// The field that a text is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tool,
    Source,
    Role,
}

/// All unknown names, with file and line. The default policies use no names of a configuration.
/// Errors: files that cannot be read.
pub fn unknown_names(config: &PolicyConfig, known: &KnownNames) -> Result<Vec<PolicyError>, Vec<PolicyError>> {
    let Some(directory) = &config.directory else { return Ok(Vec::new()) };
    let mut errors = Vec::new();
    for (file, text) in load::texts_of(directory)? {
        let source = Source::from_contents(file.clone(), text)
            .map_err(|error| vec![PolicyError::from_regorus(&file, &error)])?;
        let tokens = reads::tokens(&source).map_err(|error| vec![error])?;
        for (kind, name, line) in compared(&tokens) {
            errors.extend(known.problem(kind, &name).map(|problem| PolicyError::new(&file, Some(line), problem)));
        }
    }
    for (file, case, input) in cases::inputs(directory).map_err(|error| vec![error])? {
        for (kind, name) in given(&input) {
            let problem = known.problem(kind, name);
            errors.extend(problem.map(|problem| PolicyError::new(&file, None, format!("{case}: {problem}"))));
        }
    }
    errors.sort();
    errors.dedup();
    Ok(errors)
}

impl KnownNames {
    fn problem(&self, kind: Kind, name: &str) -> Option<String> {
        let (what, is_known) = match kind {
            Kind::Tool => ("tool", self.tools.as_ref().is_none_or(|tools| self.has_tool(tools, name))),
            Kind::Source => ("source", self.sources.contains(name)),
            Kind::Role => ("role", self.roles.as_ref().is_none_or(|roles| roles.contains(name))),
        };
        (!is_known).then(|| format!("there is no {what} {name:?}"))
    }

    fn has_tool(&self, tools: &BTreeSet<String>, name: &str) -> bool {
        tools.contains(name) || self.tool_prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// The strings of a file that are compared with a tool's name or source, or with a caller's roles: directly
/// (`input.tool == "x"`), as one of several (`input.tool in {"x", "y"}`), or with `has_role`.
fn compared(tokens: &[Token]) -> Vec<(Kind, String, u32)> {
    let mut found = Vec::new();
    for (at, path, after) in reads::places_of(tokens, "input") {
        let Some(kind) = kind_of(&path) else { continue };
        let before = tokens.get(..at).unwrap_or_default();
        let rest = match kind {
            // An element of them: `input.user.roles[_]`.
            Kind::Role => beyond_brackets(after),
            _ => after,
        };
        let texts = match (before, rest) {
            (_, [operator, text, ..]) if is_comparison(operator) && is_text(text) => vec![text],
            ([.., text, operator], _)
                if is_text(text) && (is_comparison(operator) || (kind == Kind::Role && is(operator, "in"))) =>
            {
                vec![text]
            }
            (_, [operator, open, list @ ..]) if is(operator, "in") && (is(open, "{") || is(open, "[")) => list
                .iter()
                .take_while(|token| is_text(token) || is(token, ","))
                .filter(|token| is_text(token))
                .collect(),
            _ => Vec::new(),
        };
        found.extend(texts.into_iter().map(|text| (kind, text.1.text().to_owned(), text.1.line)));
    }
    for window in tokens.windows(3) {
        if let [comma, role, close] = window
            && (is(comma, ",") && is_text(role) && is(close, ")"))
            && is_last_of_has_role(tokens, role)
        {
            found.push((Kind::Role, role.1.text().to_owned(), role.1.line));
        }
    }
    found
}

/// Whether a text is the last argument of `has_role(…, "x")`.
fn is_last_of_has_role(tokens: &[Token], role: &Token) -> bool {
    let before = tokens.iter().take_while(|token| token.1.start < role.1.start).collect::<Vec<_>>();
    let open = before.iter().rposition(|token| is(token, "("));
    open.and_then(|open| before.get(open.checked_sub(1)?)).is_some_and(|function| is(function, "has_role"))
}

fn kind_of(path: &[String]) -> Option<Kind> {
    match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tool"] => Some(Kind::Tool),
        ["metadata", "source"] => Some(Kind::Source),
        ["user", "roles"] => Some(Kind::Role),
        _ => None,
    }
}

fn beyond_brackets(tokens: &[Token]) -> &[Token] {
    match tokens {
        [open, _, close, after @ ..] if is(open, "[") && is(close, "]") => after,
        _ => tokens,
    }
}

fn is_comparison(token: &Token) -> bool {
    ["==", "!=", "="].iter().any(|operator| is(token, operator))
}

pub(super) fn is_text(token: &Token) -> bool {
    matches!(token.0, TokenKind::String | TokenKind::RawString)
}

fn is(token: &Token, text: &str) -> bool {
    !is_text(token) && token.1.text() == text
}

/// The names in the input of a case.
fn given(input: &Json) -> impl Iterator<Item = (Kind, &str)> {
    let text = |pointer: &str| input.pointer(pointer).and_then(Json::as_str);
    let roles = input.pointer("/user/roles").and_then(Json::as_array).into_iter().flatten();
    let roles = roles.filter_map(Json::as_str).map(|role| (Kind::Role, role));
    let tool = text("/tool").map(|tool| (Kind::Tool, tool));
    let source = text("/metadata/source").map(|source| (Kind::Source, source));
    tool.into_iter().chain(source).chain(roles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::folder;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn known() -> KnownNames {
        KnownNames {
            tools: Some(set(&["calculator"])),
            tool_prefixes: set(&["files__"]),
            sources: set(&["builtin", "mcp:files"]),
            roles: Some(set(&["admin"])),
        }
    }

    fn problems(rules: &str, cases: &str, known: &KnownNames) -> Vec<String> {
        let rules = format!("package tools\nimport rego.v1\n{rules}\n");
        let folder = folder(&[("tools.rego", &rules), ("cases/all.yaml", cases)]);
        let config = PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() };
        let place = format!("{}/", folder.path().display());
        let errors = unknown_names(&config, known).unwrap();
        errors.iter().map(|error| error.to_string().replace(&place, "")).collect()
    }

    #[test]
    fn unknown_names_are_reported_with_their_place() {
        for (rule, expected) in [
            ("input.tool == \"calculator\"", None),
            ("input.tool == \"files__read\"", None),
            ("input.tool == \"calculater\"", Some("tool \"calculater\"")),
            ("\"calculater\" == input.tool", Some("tool \"calculater\"")),
            ("input.tool != `calculater`", Some("tool \"calculater\"")),
            ("input[\"tool\"] == \"calculater\"", Some("tool \"calculater\"")),
            ("input.tool in {\"calculator\", \"calculater\"}", Some("tool \"calculater\"")),
            ("input.tool in [\"calculater\"]", Some("tool \"calculater\"")),
            ("input.metadata.source == \"builtin\"", None),
            ("input.metadata.source == \"mcp:files\"", None),
            ("input.metadata.source == \"files\"", Some("source \"files\"")),
            ("has_role(input.user, \"admin\")", None),
            ("has_role(input.user, \"admim\")", Some("role \"admim\"")),
            ("not has_role(input.user, \"admim\")", Some("role \"admim\"")),
            ("\"admim\" in input.user.roles", Some("role \"admim\"")),
            ("input.user.roles[_] == \"admim\"", Some("role \"admim\"")),
            ("some role in input.user.roles", None),
            ("input.arguments.tool == \"anything\"", None),
            ("f(input.tool, \"anything\")", None),
            ("x := {\"input.tool\": \"anything\"}", None),
        ] {
            let found = problems(&format!("deny contains \"no\" if {{ {rule} }}"), "[]", &known());
            let expected = expected.map(|what| format!("tools.rego:3: there is no {what}"));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{rule}");
        }
    }

    #[test]
    fn a_case_is_held_against_the_same_names() {
        let cases = "- {name: one, input: {tool: gone, metadata: {source: far}, user: {roles: [admin, boss]}}, expect: allow}\n\
                     - {name: other, input: {tool: calculator}, expect: allow}\n";
        let found = problems("deny contains \"no\" if false", cases, &known());
        let expected = ["role \"boss\"", "source \"far\"", "tool \"gone\""];
        assert_eq!(found, expected.map(|what| format!("cases/all.yaml: one: there is no {what}")));
    }

    #[test]
    fn unresolvable_names_are_not_reported() {
        let open = KnownNames { sources: set(&["builtin"]), ..KnownNames::default() };
        let rule = "deny contains \"no\" if { input.tool == \"any\"; has_role(input.user, \"any\") }";
        assert_eq!(problems(rule, "[]", &open), Vec::<String>::new());
    }
}
