//! Whether a changed policy set has fewer rules. The content of rules is not compared: nobody knows whether another
//! text denies less.

use std::collections::BTreeMap;

use super::PolicyRule;

/// A kind of rules of which there are fewer than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FewerRules {
    /// `deny`, `require_approval` or `mask`, or `approvals.deny`.
    pub name: String,
    pub before: usize,
    pub after: usize,
}

/// Counted in all files: a rule may move from one to another.
pub(super) fn fewer(before: &[PolicyRule], after: &[PolicyRule]) -> Vec<FewerRules> {
    let (before, after) = (counted(before), counted(after));
    let fewer = before.into_iter().filter_map(|(name, before)| {
        let after = after.get(name).copied().unwrap_or_default();
        (after < before).then(|| FewerRules { name: name.to_owned(), before, after })
    });
    fewer.collect()
}

fn counted(rules: &[PolicyRule]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for rule in rules {
        *counts.entry(&*rule.name).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &str)]) -> Vec<PolicyRule> {
        let rule = |(name, file): &(&str, &str)| PolicyRule { name: (*name).into(), file: (*file).into(), line: 1 };
        rules.iter().map(rule).collect()
    }

    #[test]
    fn kinds_of_rules_with_fewer_than_before_are_named() {
        let before = rules(&[("deny", "a"), ("deny", "b"), ("mask", "a")]);
        let one = |name: &str, before, after| FewerRules { name: name.to_owned(), before, after };
        for (after, expected) in [
            (before.clone(), vec![]),
            (rules(&[("deny", "c"), ("deny", "c"), ("mask", "c"), ("require_approval", "c")]), vec![]),
            (rules(&[("deny", "a"), ("mask", "a")]), vec![one("deny", 2, 1)]),
            (rules(&[("deny", "a"), ("deny", "b"), ("require_approval", "a")]), vec![one("mask", 1, 0)]),
            (rules(&[]), vec![one("deny", 2, 0), one("mask", 1, 0)]),
        ] {
            assert_eq!(fewer(&before, &after), expected, "{after:?}");
        }
        assert!(fewer(&[], &before).is_empty());
    }
}
