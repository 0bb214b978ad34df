//! Which tools a key, and the endpoint of a request, leave to a caller.

use std::sync::Arc;

use serde::Serialize;

use super::call::READ_RESULT;

/// Whether a name fits a pattern, whose final `*` matches any rest.
pub fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

/// Whether a name fits a pattern in which each `*` stands for any text.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// The names that fit a pattern of every list; by default all names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ToolScope(Option<Arc<[Arc<[String]>]>>);

impl ToolScope {
    /// The same without the names that fit none of these patterns.
    #[must_use]
    pub fn narrowed(&self, patterns: impl Into<Arc<[String]>>) -> Self {
        let before = self.0.iter().flat_map(|lists| lists.iter().cloned());
        Self(Some(before.chain([patterns.into()]).collect()))
    }

    pub fn admits_all(&self) -> bool {
        self.0.is_none()
    }

    /// The lists of patterns, in the order of narrowing.
    pub fn lists(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().flat_map(|lists| lists.iter().map(|list| &**list))
    }

    /// Whether a tool is left. The tool that reads stored results always is: it reads only results of the caller's own
    /// calls.
    pub fn admits(&self, name: &str) -> bool {
        let Some(lists) = self.0.as_ref().filter(|_| name != READ_RESULT) else { return true };
        lists.iter().all(|patterns| patterns.iter().any(|pattern| matches(pattern, name)))
    }

    /// Whether it admits every name that fits one of these patterns; `None` stands for all names.
    pub fn covers(&self, patterns: Option<&[String]>) -> bool {
        let Some(lists) = &self.0 else { return true };
        // No name has a `*`, so that only a pattern as wide or wider matches one that ends with it.
        let has = |list: &[String], wanted: &str| list.iter().any(|pattern| matches(pattern, wanted));
        patterns.is_some_and(|wanted| lists.iter().all(|list| wanted.iter().all(|wanted| has(list, wanted))))
    }
}

/// The tools that the calls of a tool may use. Of the tools of its caller: the tools that an agent's profile and
/// session leave, and of these the tools that the tool's own code says it needs. By default all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NestedScope {
    only: ToolScope,
    without: Vec<String>,
    needed: Option<Arc<[String]>>,
}

impl NestedScope {
    /// The same without the names that fit none of `include`, unless that is empty, or one of `exclude`.
    #[must_use]
    pub fn narrowed(mut self, include: &[String], exclude: impl IntoIterator<Item = String>) -> Self {
        if !include.is_empty() {
            self.only = self.only.narrowed(include);
        }
        self.without.extend(exclude);
        self
    }

    /// The same for code that needs only these tools. They replace the needs of the code that calls it.
    #[must_use]
    pub fn needing(&self, tools: &[String]) -> Self {
        Self { needed: Some(tools.into()), ..self.clone() }
    }

    /// The admitted tools, as lists of patterns: first the patterns that names must fit, and last those that they must
    /// not.
    pub fn lists(&self) -> impl Iterator<Item = &[String]> {
        self.only.lists().chain(self.needed.as_deref()).chain([&*self.without])
    }

    pub fn admits_all(&self) -> bool {
        self.only.admits_all() && self.without.is_empty() && self.needed.is_none()
    }

    pub fn admits(&self, name: &str) -> bool {
        let is_needed = self.needed.as_ref().is_none_or(|needed| needed.iter().any(|tool| tool == name));
        is_needed && self.only.admits(name) && !self.without.iter().any(|pattern| matches(pattern, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_tool_may_use_what_every_filter_leaves() {
        let all = NestedScope::default();
        assert!(all.admits("crm__find") && all.admits_all());
        assert!(!all.clone().narrowed(&[], patterns(&["echo"])).admits_all());
        let scope = all
            .narrowed(&patterns(&["crm__*", "echo"]), patterns(&["crm__delete*"]))
            .narrowed(&[], patterns(&["echo"]));
        for (name, admitted) in [("crm__find", true), ("crm__delete_all", false), ("echo", false), ("other", false)] {
            assert_eq!(scope.admits(name), admitted, "{name}");
        }
        assert!(!scope.admits_all());
    }

    #[test]
    fn code_that_needs_some_tools_may_use_those_of_them_that_are_left() {
        let left = NestedScope::default().narrowed(&[], patterns(&["crm__delete"]));
        let scope = left.needing(&patterns(&["crm__find", "crm__delete"]));
        for (name, admitted) in [("crm__find", true), ("crm__delete", false), ("crm__find_all", false), ("echo", false)]
        {
            assert_eq!(scope.admits(name), admitted, "{name}");
        }
        let inner = scope.needing(&patterns(&["echo", "crm__delete"]));
        for (name, admitted) in [("echo", true), ("crm__find", false), ("crm__delete", false)] {
            assert_eq!(inner.admits(name), admitted, "{name}");
        }
        assert!(!scope.needing(&[]).admits("crm__find") && !NestedScope::default().needing(&[]).admits_all());
    }

    fn patterns(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_scope_admits_what_fits_each_of_its_lists() {
        let all = ToolScope::default();
        assert!(all.admits("x") && all.covers(None));
        let scope = all.narrowed(patterns(&["crm__*", "calculator"]));
        for (name, admitted) in [("crm__find", true), ("calculator", true), ("calculators", false), ("crm", false)] {
            assert_eq!(scope.admits(name), admitted, "{name}");
        }
        let narrower = scope.narrowed(patterns(&["crm__find*", "echo"]));
        assert!(narrower.admits("crm__find") && !narrower.admits("calculator") && !narrower.admits("echo"));
        assert!(!scope.narrowed(Vec::new()).admits("calculator"));
        assert!(scope.narrowed(Vec::new()).admits(READ_RESULT));
    }

    #[test]
    fn a_scope_covers_only_what_is_as_narrow() {
        let scope = ToolScope::default().narrowed(patterns(&["crm__*", "calculator"]));
        for (wanted, covered) in [
            (&["crm__*"][..], true),
            (&["crm__find*", "crm__find"], true),
            (&["calculator"], true),
            (&["calculator*"], false),
            (&["crm*"], false),
            (&["*"], false),
            (&["calculator", "echo"], false),
            (&[], true),
        ] {
            assert_eq!(scope.covers(Some(&patterns(wanted))), covered, "{wanted:?}");
        }
        assert!(!scope.covers(None));
    }
}
