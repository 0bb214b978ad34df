//! What a set must fulfil beyond being well-formed Rego.

use std::collections::BTreeSet;

use regorus::Engine;
use regorus::languages::rego::compiler::Compiler;
use regorus::unstable::BUILTINS;

use super::files::shipped_library;
use super::module::{Call, Kind, Module, RuleName};
use super::{PolicyError, depth};
use crate::policy::input;
use crate::policy::reads::{self, Reference};
use crate::policy::set::{DENY, REQUIRE_APPROVAL};

/// Everything wrong with a set that parsed.
pub(super) fn faults(set_name: &str, modules: &[Module]) -> Vec<PolicyError> {
    let mut faults = missing_deny(set_name, modules);
    faults.extend(odd_sets(modules));
    faults.extend(redefined_helpers(modules));
    faults.extend(unreachable_files(modules));
    faults.extend(dangling_references(modules));
    faults.extend(unknown_functions(modules));
    faults.extend(depth::recursive_functions(modules));
    faults.sort();
    faults
}

pub(super) fn has_approval_rule(modules: &[Module]) -> bool {
    policy_rules(modules).any(|(_, rule)| rule.name == "require_approval")
}

/// Prepares the set for evaluation, and finds variables that nothing gives a value.
///
/// The second pass is regorus' other compiler, whose program is thrown away. It stops at a few things
/// the interpreter can do, so only what is wrong for both counts.
pub(super) fn compile(engine: &mut Engine, set_name: &str, asks_approval: bool) -> Result<(), PolicyError> {
    let entry_points = if asks_approval { &[DENY, REQUIRE_APPROVAL][..] } else { &[DENY] };
    let compiled =
        engine.compile_with_entrypoint(&DENY.into()).map_err(|error| PolicyError::from_regorus(set_name, &error))?;
    match Compiler::compile_from_policy(&compiled, entry_points) {
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
    let message = "no file has a rule `deny[msg]` in `package tools`: such a set would allow everything";
    vec![PolicyError::new(set_name, None, message)]
}

/// `deny` and `require_approval` in any form but a set of reasons.
fn odd_sets(modules: &[Module]) -> Vec<PolicyError> {
    policy_rules(modules)
        .filter(|(_, rule)| ["deny", "require_approval"].contains(&&*rule.name) && rule.kind != Kind::Set)
        .map(|(module, rule)| {
            let name = &rule.name;
            module.fault(rule.line, format!("`{name}` must be a set of reasons: write `{name}[msg] {{ … }}`"))
        })
        .collect()
}

/// A function that the shipped library has too would hold where either holds.
fn redefined_helpers(modules: &[Module]) -> Vec<PolicyError> {
    let library = shipped_library();
    let shipped: BTreeSet<_> =
        policy_rules(modules).filter(|(module, _)| module.file == library).map(|(_, rule)| &rule.name).collect();
    policy_rules(modules)
        .filter(|(module, rule)| module.file != library && shipped.contains(&rule.name))
        .map(|(module, rule)| {
            let name = &rule.name;
            module.fault(rule.line, format!("the shipped lib.rego has a `{name}` too; move this one into a lib.rego"))
        })
        .collect()
}

/// Files whose package is neither `tools` nor named, directly or on the way, by a file of `tools`.
fn unreachable_files(modules: &[Module]) -> Vec<PolicyError> {
    let mut reached: Vec<bool> = modules.iter().map(Module::is_policy).collect();
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
            "nothing imports `package {package}`, so its rules would never be asked; policies are in `package tools`"
        );
        module.fault(module.line, message)
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

/// References to data or input that does not exist are undefined, and an undefined condition denies nothing.
fn dangling_references(modules: &[Module]) -> Vec<PolicyError> {
    let mut faults = Vec::new();
    for module in modules {
        for Reference { path, line } in reads::references(&module.tokens, "data") {
            if !names_data(&path, modules) {
                faults.push(module.fault(line, format!("there is no `data.{}` in this set", path.join("."))));
            }
        }
        for Reference { path, line } in reads::references(&module.tokens, "input") {
            if let Some(unknown) = input::unknown_field(&path) {
                faults.push(module.fault(line, format!("the policy input has no field `{unknown}`")));
            }
        }
    }
    faults
}

fn names_data(path: &[String], modules: &[Module]) -> bool {
    modules.iter().any(|module| {
        meets(path, &module.package)
            && path.get(module.package.len()).is_none_or(|name| module.rules.iter().any(|rule| rule.name == *name))
    })
}

/// Left to regorus they would show at the first call of the rule. (Its other compiler finds them at load,
/// but stops at the first thing that it cannot compile.)
fn unknown_functions(modules: &[Module]) -> Vec<PolicyError> {
    let is_known = |call: &Call| {
        call.name == "print"
            || BUILTINS.contains_key(&*call.name)
            || modules.iter().any(|module| module.has(&call.path))
    };
    let mut faults = Vec::new();
    for module in modules {
        for call in module.calls().filter(|call| !is_known(call)) {
            faults.push(module.fault(call.line, format!("there is no function `{}`", call.name)));
        }
    }
    faults
}

/// One path leads to or through the other.
fn meets(one: &[String], other: &[String]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}
