//! The scopes of a caller's token (RFC 6749 §3.3), and the tools that need others.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::tool_scope::matches;

/// The scopes that a caller's token lacks. By default none: only tokens of issuers have scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct TokenScopes {
    /// The scopes of the token that some tool needs.
    held: Arc<[String]>,
    /// Each with the patterns of the tools that need it.
    lacking: Arc<[(String, Vec<String>)]>,
}

impl TokenScopes {
    /// `needed`: by scope, the patterns of the tools that need it. `held`: the scopes of the token.
    pub fn new(needed: &BTreeMap<String, Vec<String>>, held: &[&str]) -> Self {
        let (held, lacking): (Vec<_>, Vec<_>) = needed.iter().partition(|(scope, _)| held.contains(&scope.as_str()));
        Self {
            held: held.into_iter().map(|(scope, _)| scope.clone()).collect(),
            lacking: lacking.into_iter().map(|(scope, tools)| (scope.clone(), tools.clone())).collect(),
        }
    }

    /// The scopes that the tool needs and the token lacks.
    pub fn missing_for<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a str> {
        let needs = move |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        self.lacking.iter().filter(move |(_, patterns)| needs(patterns)).map(|(scope, _)| &**scope)
    }

    /// Whether no tool with a name that fits one of these patterns needs a scope that the token lacks; `None` stands for all
    /// names.
    pub fn covers(&self, patterns: Option<&[String]>) -> bool {
        let mut lacking = self.lacking.iter().flat_map(|(_, patterns)| patterns);
        // No name has a `*`: of two patterns that share a name, one matches the other.
        let share = |one: &str, other: &str| matches(one, other) || matches(other, one);
        match patterns {
            None => lacking.next().is_none(),
            Some(wanted) => lacking.all(|lacking| wanted.iter().all(|wanted| !share(lacking, wanted))),
        }
    }

    /// The scopes to ask for, so that the tool can be used too. Includes the scopes of the token, since a new token
    /// would lack them otherwise.
    pub fn to_ask_for(&self, tool: &str) -> Vec<String> {
        self.held.iter().cloned().chain(self.missing_for(tool).map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed() -> BTreeMap<String, Vec<String>> {
        let entry = |scope: &str, tools: &[&str]| {
            (scope.to_owned(), tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>())
        };
        BTreeMap::from([entry("base", &["*"]), entry("write", &["crm__update*", "erp__pay"])])
    }

    #[test]
    fn a_tool_needs_every_scope_whose_patterns_it_matches() {
        for (held, tool, missing, asked) in [
            (&["base"][..], "crm__find", &[][..], &["base"][..]),
            (&["base"], "crm__update_all", &["write"], &["base", "write"]),
            (&["write", "other"], "erp__pay", &["base"], &["write", "base"]),
            (&["base", "write"], "erp__pay", &[], &["base", "write"]),
            (&[], "erp__pay", &["base", "write"], &["base", "write"]),
            (&["Base"], "calculator", &["base"], &["base"]),
        ] {
            let scopes = TokenScopes::new(&needed(), held);
            assert_eq!(scopes.missing_for(tool).collect::<Vec<_>>(), missing, "{held:?} {tool}");
            assert_eq!(scopes.to_ask_for(tool), asked, "{held:?} {tool}");
        }
        assert_eq!(TokenScopes::default().missing_for("erp__pay").count(), 0, "a key has no scopes");
        assert_eq!(TokenScopes::new(&BTreeMap::new(), &[]), TokenScopes::default());
    }

    #[test]
    fn scopes_cover_patterns_of_which_no_name_needs_another() {
        let covers = |held: &[&str], wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|wanted| (*wanted).to_owned()).collect();
            TokenScopes::new(&needed(), held).covers(Some(&wanted))
        };
        for (wanted, covered) in [
            (&["crm__find"][..], true),
            (&["crm__find*", "erp__list"], true),
            (&["crm__update"], false),
            (&["crm__update_all*"], false),
            (&["crm__*"], false),
            (&["*"], false),
            (&["crm__find", "erp__pay"], false),
            (&[], true),
        ] {
            assert_eq!(covers(&["base"], wanted), covered, "{wanted:?}");
            assert!(covers(&["base", "write"], wanted), "{wanted:?}");
        }
        assert!(!covers(&["write"], &["crm__find"]), "all tools need the other");
        assert!(TokenScopes::default().covers(None) && !TokenScopes::new(&needed(), &["base"]).covers(None));
    }
}
