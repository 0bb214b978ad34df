//! The requirements of a policy set beyond valid Rego.

use std::collections::BTreeSet;

use regorus::Engine;
use regorus::languages::rego::compiler::Compiler;
use regorus::unstable::BUILTINS;

use super::files::shipped_library;
use super::module::{Call, Kind, Module, RuleName};
use super::{PolicyError, depth};
use crate::policy::approvers;
use crate::policy::input;
use crate::policy::reads::{self, Reference};
use crate::policy::set::{APPROVER_DENY, DENY, MASK, REQUIRE_APPROVAL};

/// All errors of a parsed set.
pub(super) fn errors(set_name: &str, modules: &[Module]) -> Vec<PolicyError> {
    let mut errors = missing_deny(set_name, modules);
    errors.extend(rules_for_approvers(modules));
    errors.extend(odd_sets(modules));
    errors.extend(redefined_helpers(modules));
    errors.extend(unreachable_files(modules));
    errors.extend(dangling_references(modules));
    errors.extend(unknown_functions(modules));
    errors.extend(depth::recursive_functions(modules));
    errors.sort();
    errors
}

/// The rules that are evaluated.
const EVALUATED: [&str; 4] = [DENY, REQUIRE_APPROVAL, MASK, APPROVER_DENY];

/// Whether the set has this rule.
pub(super) fn has_rule(modules: &[Module], path: &str) -> bool {
    modules.iter().any(|module| module.rules.iter().any(|rule| path_of(module, rule) == path))
}

/// Whether the rule is evaluated directly. Evaluated rules use the others.
pub(super) fn decides(module: &Module, rule: &RuleName) -> bool {
    EVALUATED.contains(&&*path_of(module, rule))
}

fn path_of(module: &Module, rule: &RuleName) -> String {
    format!("data.{}.{}", module.package.join("."), rule.name)
}

/// Prepares the set for evaluation, and finds variables without a value.
///
/// The second pass uses regorus' other compiler and discards its program. That compiler refuses a few things that the
/// interpreter supports, so only errors of both compilers count.
pub(super) fn compile(engine: &mut Engine, set_name: &str, modules: &[Module]) -> Result<(), PolicyError> {
    let entry_points: Vec<_> = EVALUATED.into_iter().filter(|path| has_rule(modules, path)).collect();
    let compiled =
        engine.compile_with_entrypoint(&DENY.into()).map_err(|error| PolicyError::from_regorus(set_name, &error))?;
    match Compiler::compile_from_policy(&compiled, &entry_points) {
        Err(error) if error.to_string().contains("Undefined variable") => {
            Err(PolicyError::from_regorus(set_name, &error))
        }
        _ => Ok(()),
    }
}

fn policy_rules(modules: &[Module]) -> impl Iterator<Item = (&Module, &RuleName)> {
    modules
        .iter()
        .filter(|module| module.is_policy())
        .flat_map(|module| module.rules.iter().map(move |rule| (module, rule)))
}

fn missing_deny(set_name: &str, modules: &[Module]) -> Vec<PolicyError> {
    if policy_rules(modules).any(|(_, rule)| rule.name == "deny") {
        return Vec::new();
    }
    let message = "no file has a rule `deny[msg]` in `package tools`, so the set would allow everything";
    vec![PolicyError::new(set_name, None, message)]
}

/// Rules that are evaluated and are not a set.
fn odd_sets(modules: &[Module]) -> Vec<PolicyError> {
    let rules = modules.iter().flat_map(|module| module.rules.iter().map(move |rule| (module, rule)));
    rules
        .filter(|(module, rule)| decides(module, rule) && rule.kind != Kind::Set)
        .map(|(module, rule)| {
            let name = &rule.name;
            let message = match path_of(module, rule) == MASK {
                true => "`mask` must be a set of paths: write `mask[path] { … }`".to_owned(),
                false => format!("`{name}` must be a set of reasons: write `{name}[msg] {{ … }}`"),
            };
            module.error(rule.line, message)
        })
        .collect()
}

/// A `package approvals` that would never be evaluated, and uses of it elsewhere: its rules have another input.
fn rules_for_approvers(modules: &[Module]) -> Vec<PolicyError> {
    let (about, others): (Vec<_>, Vec<_>) = modules.iter().partition(|module| module.is_about_approvers());
    let mut errors = Vec::new();
    if let Some(module) = about.first()
        && !has_rule(modules, APPROVER_DENY)
    {
        errors.push(module.error(module.line, "`package approvals` has no rule `deny[msg]`, so it would never deny"));
    }
    for module in others.into_iter().filter(|_| !about.is_empty()) {
        let uses = reads::references(&module.tokens, "data").into_iter();
        let uses = uses.filter(|reference| reference.path.first().is_none_or(|package| package == "approvals"));
        let message = "`data.approvals` is about approvers, with an input of its own; move what both use elsewhere";
        errors.extend(uses.map(|reference| module.error(reference.line, message)));
    }
    errors
}

/// Functions that the built-in library defines too: Rego would combine both definitions.
fn redefined_helpers(modules: &[Module]) -> Vec<PolicyError> {
    let library = shipped_library();
    let shipped: BTreeSet<_> =
        policy_rules(modules).filter(|(module, _)| module.file == library).map(|(_, rule)| &rule.name).collect();
    policy_rules(modules)
        .filter(|(module, rule)| module.file != library && shipped.contains(&rule.name))
        .map(|(module, rule)| {
            let name = &rule.name;
            module.error(
                rule.line,
                format!("the built-in lib.rego defines `{name}` too; move this definition into your own lib.rego"),
            )
        })
        .collect()
}

/// Files whose package is neither `tools` nor `approvals` nor used, directly or indirectly, by a file of these.
fn unreachable_files(modules: &[Module]) -> Vec<PolicyError> {
    let mut reached: Vec<bool> =
        modules.iter().map(|module| module.is_policy() || module.is_about_approvers()).collect();
    loop {
        let next: Vec<bool> = modules
            .iter()
            .zip(&reached)
            .map(|(module, already)| *already || is_named(module, modules, &reached))
            .collect();
        if next == reached {
            break;
        }
        reached = next;
    }
    let lost = modules.iter().zip(reached).filter(|(_, reached)| !reached);
    lost.map(|(module, _)| {
        let package = module.package.join(".");
        let message = format!(
            "nothing imports `package {package}`, so its rules would never be evaluated; policies are in `package tools`"
        );
        module.error(module.line, message)
    })
    .collect()
}

fn is_named(module: &Module, modules: &[Module], reached: &[bool]) -> bool {
    modules
        .iter()
        .zip(reached)
        .filter(|(_, reached)| **reached)
        .flat_map(|(by, _)| reads::references(&by.tokens, "data"))
        .any(|reference| meets(&reference.path, &module.package))
}

/// References to data or input that does not exist: they are undefined, and an undefined condition denies nothing.
fn dangling_references(modules: &[Module]) -> Vec<PolicyError> {
    let mut errors = Vec::new();
    for module in modules {
        for Reference { path, line } in reads::references(&module.tokens, "data") {
            if !names_data(&path, modules) {
                errors.push(module.error(line, format!("there is no `data.{}` in this set", path.join("."))));
            }
        }
        for Reference { path, line } in reads::references(&module.tokens, "input") {
            let fields = if module.is_about_approvers() { &approvers::FIELDS[..] } else { &input::FIELDS };
            if let Some(unknown) = input::unknown_field(fields, &path) {
                errors.push(module.error(line, format!("the policy input has no field `{unknown}`")));
            }
        }
    }
    errors
}

fn names_data(path: &[String], modules: &[Module]) -> bool {
    modules.iter().any(|module| {
        meets(path, &module.package)
            && path.get(module.package.len()).is_none_or(|name| module.rules.iter().any(|rule| rule.name == *name))
    })
}

/// Calls of unknown functions. The interpreter of regorus reports them only when the rule is evaluated. (Its other
/// compiler reports them at load, but stops at the first construct that it cannot compile.)
fn unknown_functions(modules: &[Module]) -> Vec<PolicyError> {
    let is_known = |call: &Call| {
        call.name == "print"
            || BUILTINS.contains_key(&*call.name)
            || modules.iter().any(|module| module.has(&call.path))
    };
    let mut errors = Vec::new();
    for module in modules {
        for call in module.calls().filter(|call| !is_known(call)) {
            errors.push(module.error(call.line, format!("there is no function `{}`", call.name)));
        }
    }
    errors
}

/// Whether one path is a prefix of the other.
fn meets(one: &[String], other: &[String]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}
