//! The properties of one file that the checks need, from its syntax tree and its tokens.
//!
//! Uses regorus' `unstable` interfaces, because only they give the line of a rule.

use std::collections::BTreeMap;
use std::ops::Range;

use regorus::Engine;
use regorus::unstable::{Expr, Import, Rule, RuleHead, Token};

use super::PolicyError;
use crate::policy::reads::{self, Reads};

/// The properties of one file that the checks need.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: String,
    pub(super) package: Vec<String>,
    /// The line where the package is declared.
    pub(super) line: u32,
    pub(super) rules: Vec<RuleName>,
    /// The local name of each imported package, and the package.
    imports: BTreeMap<String, Vec<String>>,
    pub(super) tokens: Vec<Token>,
    pub(super) reads: Reads,
}

#[derive(Debug)]
pub(super) struct RuleName {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) kind: Kind,
    /// Position in the file, in bytes.
    pub(super) extent: Range<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Written as `name[reason]` or `name contains reason`.
    Set,
    Function,
    Other,
}

/// `name(` somewhere in a file.
#[derive(Debug)]
pub(super) struct Call {
    /// Position in the file, in bytes.
    pub(super) at: u32,
    pub(super) line: u32,
    /// The name as written.
    pub(super) name: String,
    /// The path of the function, if the set defines it.
    pub(super) path: Vec<String>,
}

impl Module {
    pub(super) fn all_of(engine: &mut Engine) -> Result<Vec<Self>, PolicyError> {
        let packages = engine.get_policy_package_components().map_err(|error| PolicyError::from_regorus("", &error))?;
        let modules = engine.get_modules().iter().zip(packages);
        modules
            .map(|(module, package)| {
                let span = &module.package.span;
                let tokens = reads::tokens(&span.source)?;
                Ok(Self {
                    file: package.source_file,
                    package: package.components,
                    line: span.line,
                    rules: module.policy.iter().map(|rule| RuleName::of(rule)).collect(),
                    imports: module.imports.iter().filter_map(imported).collect(),
                    reads: Reads::of(&tokens),
                    tokens,
                })
            })
            .collect()
    }

    pub(super) fn is_policy(&self) -> bool {
        self.package == ["tools"]
    }

    /// Whether its rules are about approvers: they have an input of their own.
    pub(super) fn is_about_approvers(&self) -> bool {
        self.package == ["approvals"]
    }

    pub(super) fn error(&self, line: u32, message: impl Into<String>) -> PolicyError {
        PolicyError::new(&self.file, Some(line), message)
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = &RuleName> {
        self.rules.iter().filter(|rule| rule.kind == Kind::Function)
    }

    /// Whether the path names a function of this file.
    pub(super) fn has(&self, path: &[String]) -> bool {
        let name = path.strip_prefix(&self.package[..]).and_then(<[String]>::first);
        name.is_some_and(|name| self.functions().any(|function| function.name == *name))
    }

    pub(super) fn path_to(&self, name: &str) -> Vec<String> {
        self.package.iter().cloned().chain([name.to_owned()]).collect()
    }

    /// Whether a rule of this file may run the builtin of this name, including by `with`, which can replace a
    /// function by another.
    pub(super) fn may_call(&self, builtin: &str) -> bool {
        reads::has_word(&self.tokens, "with") || self.calls().any(|call| call.name == builtin)
    }

    /// Every call of a function in the file.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call> {
        // A function's head looks like a call of it.
        let is_head = |at: u32| self.functions().any(|function| function.extent.start == at);
        reads::calls(&self.tokens).filter(move |(token, _)| !is_head(token.1.start)).map(|(token, name)| {
            let path = match &name[..] {
                [root, path @ ..] if root == "data" => path.to_vec(),
                [alias, path @ ..] if self.imports.contains_key(alias) => [&self.imports[alias], path].concat(),
                own => [&self.package, own].concat(),
            };
            Call { at: token.1.start, line: token.1.line, name: name.join("."), path }
        })
    }
}

fn imported(import: &Import) -> Option<(String, Vec<String>)> {
    let path: Vec<_> = import.refr.span().text().strip_prefix("data.")?.split('.').map(str::to_owned).collect();
    let alias = import.r#as.as_ref().map(|alias| alias.text().to_owned()).or_else(|| path.last().cloned())?;
    Some((alias, path))
}

impl RuleName {
    fn of(rule: &Rule) -> Self {
        let (head, kind) = match rule {
            Rule::Spec { head: RuleHead::Set { refr, .. }, .. } if matches!(**refr, Expr::Var { .. }) => {
                (refr, Kind::Set)
            }
            Rule::Spec { head: RuleHead::Func { refr, .. }, .. } => (refr, Kind::Function),
            Rule::Spec { head: RuleHead::Set { refr, .. } | RuleHead::Compr { refr, .. }, .. }
            | Rule::Default { refr, .. } => (refr, Kind::Other),
        };
        let mut root = &**head;
        while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = root {
            root = refr;
        }
        let span = rule.span();
        Self { name: root.span().text().to_owned(), line: span.line, kind, extent: span.start..span.end }
    }
}
