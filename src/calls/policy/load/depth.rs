//! Limits on constructs that would exhaust the stack or take too long in regorus: its parser backtracks at
//! every level of nested brackets, it walks long chains of operators recursively, and it lets a function
//! call itself until the process crashes. OPA refuses recursion, too.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::Token;

use super::super::names::is_text;
use super::PolicyError;
use super::module::Module;

/// Maximum depth of nested brackets of any kind. Each level of `{` doubles or triples the time to parse.
const DEEPEST: usize = 12;

/// Maximum operators in one expression without parentheses.
const MAX_OPERATORS: usize = 64;

const OPERATORS: [&str; 14] = ["+", "-", "*", "/", "%", "|", "&", "==", "!=", "<", "<=", ">", ">=", "in"];

/// The line of the first expression that is nested too deeply, and advice.
pub(super) fn too_deep(tokens: &[Token]) -> Option<(u32, String)> {
    let mut operators = vec![0];
    let mut line_of_operand = 0;
    for token in tokens {
        let (text, line) = (if is_text(token) { "" } else { token.1.text() }, token.1.line);
        match text {
            "(" | "[" | "{" => operators.push(0),
            ")" | "]" | "}" if operators.len() > 1 => drop(operators.pop()),
            _ => {}
        }
        if operators.len() > DEEPEST + 1 {
            return Some((line, format!("brackets are nested deeper than {DEEPEST} levels; name the inner parts")));
        }
        let count = operators.last_mut()?;
        if OPERATORS.contains(&text) {
            *count += 1;
            // The next token belongs to the same expression, on any line.
            line_of_operand = u32::MAX;
        } else {
            let next_statement = line > line_of_operand;
            if next_statement || [";", ",", ":=", "=", ":"].contains(&text) {
                *count = 0;
            }
            line_of_operand = line;
        }
        if *count > MAX_OPERATORS {
            return Some((line, format!("an expression has more than {MAX_OPERATORS} operators; name its parts")));
        }
    }
    None
}

/// Functions that call themselves, directly or through others. (Recursive rules fail when they are
/// evaluated, and then deny.)
pub(super) fn recursive_functions(modules: &[Module]) -> Vec<PolicyError> {
    let mut calls = BTreeMap::<Vec<String>, BTreeSet<Vec<String>>>::new();
    for module in modules {
        for function in module.functions() {
            let within = module.calls().filter(|call| function.extent.contains(&call.at)).map(|call| call.path);
            calls.entry(module.path_to(&function.name)).or_default().extend(within);
        }
    }
    let mut errors = Vec::new();
    for module in modules {
        for function in module.functions() {
            let path = module.path_to(&function.name);
            if reaches(&calls, &path, &path) {
                let message = format!("the function `{}` calls itself; Rego has no recursion", function.name);
                errors.push(module.error(function.line, message));
            }
        }
    }
    errors
}

fn reaches(calls: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>, from: &[String], to: &[String]) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&[String]> = vec![from];
    while let Some(path) = open.pop() {
        for called in calls.get(path).into_iter().flatten() {
            if called == to {
                return true;
            }
            if seen.insert(called) {
                open.push(called);
            }
        }
    }
    false
}
