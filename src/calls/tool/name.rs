//! Tool names: the form that model APIs accept, and stable names for the tools of servers and documents.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Maximum length that model APIs accept, in characters.
const LONGEST: usize = 64;
/// Separates the name of a server or collection from the tool's own name.
const SEPARATOR: &str = "__";
/// `_` and eight hex digits.
const SUFFIX: usize = 9;

/// Why a text is not a valid tool name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidToolName(pub String);

/// A name that matches `^[A-Za-z0-9_-]{1,64}$`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(String);

impl ToolName {
    /// Errors: [`InvalidToolName`], which describes the problem.
    pub fn parse(name: &str) -> Result<Self, InvalidToolName> {
        let problem = match name.chars().find(|character| !is_allowed(*character)) {
            Some(character) => format!("a tool name may contain only A–Z, a–z, 0–9, _ and -, not {character:?}"),
            None if name.is_empty() => "a tool name must not be empty".to_owned(),
            None if name.len() > LONGEST => {
                format!("a tool name may have at most {LONGEST} characters, this one has {}", name.len())
            }
            None => return Ok(Self(name.to_owned())),
        };
        Err(InvalidToolName(problem))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// `prefix__name`: the name of a tool that comes from a server or document called `prefix`.
///
/// Depends only on the two names, so it does not change when another server is added. Characters outside
/// the alphabet become `_`. If that, the maximum length of 64, or a `__` in the prefix could give two
/// tools the same name, the name ends in `_` and eight hex digits of the SHA-256 of the original names.
pub fn qualified_name(prefix: &str, name: &str) -> ToolName {
    let original = format!("{prefix}{SEPARATOR}{name}");
    let mut qualified: String =
        original.chars().map(|character| if is_allowed(character) { character } else { '_' }).collect();
    // The first `__` ends the prefix, unless the prefix has one itself.
    let is_ambiguous = prefix.contains(SEPARATOR) || prefix.ends_with('_');
    if is_ambiguous || qualified != original || qualified.len() > LONGEST {
        qualified.truncate(LONGEST - SUFFIX);
        let digest = Sha256::new().chain_update(prefix).chain_update([0x1f]).chain_update(name).finalize();
        qualified.push('_');
        qualified.push_str(&hex::encode(&digest[..4]));
    }
    ToolName(qualified)
}

/// The beginning of each [`qualified_name`] with this prefix.
pub fn qualified_prefix(prefix: &str) -> String {
    let allowed = prefix.chars().map(|character| if is_allowed(character) { character } else { '_' });
    allowed.chain(SEPARATOR.chars()).collect()
}

/// A name of at most `max` characters for the tool of this name: the name itself, or its beginning and eight hex digits of its
/// SHA-256.
pub fn shortened_name(name: &str, max: usize) -> Cow<'_, str> {
    if name.len() <= max {
        return Cow::Borrowed(name);
    }
    let beginning = &name[..name.floor_char_boundary(max.saturating_sub(SUFFIX))];
    Cow::Owned(format!("{beginning}_{}", hex::encode(&Sha256::digest(name)[..4])))
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_what_model_apis_accept() {
        for name in ["a", "web_search", "GitHub__get-issue", &"x".repeat(64)] {
            assert_eq!(ToolName::parse(name).unwrap().as_str(), name);
        }
        let cases = [
            ("", "must not be empty"),
            (&"x".repeat(65), "at most 64 characters, this one has 65"),
            ("a b", "not ' '"),
            ("naïve", "not 'ï'"),
            ("a\n", r"not '\n'"),
            ("../etc", "not '.'"),
        ];
        for (name, expected) in cases {
            let InvalidToolName(problem) = ToolName::parse(name).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn qualified_names_stay_readable() {
        let cases = [
            (("github", "get_issue"), "github__get_issue"),
            (("github", "get/issue"), "github__get_issue_727b84cf"),
            (("a", "b__c"), "a__b__c"),
            (("a__b", "c"), "a__b__c_5b409dbb"),
            (("検索", "find"), "____find_a1aef4da"),
        ];
        for ((prefix, name), expected) in cases {
            assert_eq!(qualified_name(prefix, name).as_str(), expected);
            assert!(expected.starts_with(&qualified_prefix(prefix)), "{expected}");
        }
        let long = qualified_name("github", &"x".repeat(100));
        assert_eq!(long.as_str().len(), 64);
        assert_ne!(long, qualified_name("github", &"x".repeat(101)));
    }

    #[test]
    fn a_shortened_name_is_stable_and_fits() {
        assert_eq!(shortened_name("github__get_issue", 17), "github__get_issue");
        let short = shortened_name("github__get_issue", 16);
        assert_eq!(short, "github__c33f9ab8");
        assert_ne!(short, shortened_name("github__get_issues", 16));
        assert_eq!(shortened_name(&"x".repeat(64), 50).len(), 50);
    }

    proptest! {
        #[test]
        fn a_qualified_name_is_always_a_name(prefix in ".{0,40}", name in ".{0,90}") {
            let qualified = qualified_name(&prefix, &name);
            prop_assert_eq!(&qualified, &qualified_name(&prefix, &name));
            prop_assert!(ToolName::parse(qualified.as_str()).is_ok());
        }

        #[test]
        fn different_tools_have_different_names(pairs in prop::collection::hash_set(("[ab_./]{0,4}", "[ab_./]{0,4}"), 2..60)) {
            let mut seen = HashMap::new();
            for (prefix, name) in pairs {
                let qualified = qualified_name(&prefix, &name);
                if let Some(other) = seen.insert(qualified.clone(), (prefix.clone(), name.clone())) {
                    prop_assert!(false, "{:?} and {:?} are both {}", other, (prefix, name), qualified.as_str());
                }
            }
        }
    }
}
