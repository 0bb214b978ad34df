//! Tests of the policy stage as a whole; single parts have their own tests.

mod broken;
mod checks;
mod decisions;
mod fail_closed;

use std::fs;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value as Json, json};
use tempfile::TempDir;

use super::*;
use crate::tool::Metadata;
use crate::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_config::ToolsConfig;
use sekisho_core::call::{CallKind, Target, Via};
use sekisho_core::checkout::checkout;
use sekisho_observe::metrics::Metrics;

/// A folder with these files.
pub(super) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn config_of(folder: &TempDir) -> PolicyConfig {
    PolicyConfig { directory: Some(folder.path().to_owned()), ..PolicyConfig::default() }
}

/// A policy of one file with this text after `package tools`.
pub(super) fn policy(rules: &str) -> Policy {
    try_policy(rules).unwrap()
}

pub(super) fn try_policy(rules: &str) -> Result<Policy, Vec<PolicyError>> {
    Policy::load(&config_of(&folder(&[("tools.rego", &format!("package tools\n{rules}\n"))])))
}

fn shipped_policy() -> Policy {
    Policy::load(&PolicyConfig::default()).unwrap()
}

fn tool(metadata: Metadata) -> Arc<Tool> {
    let (name, source, kind) = (metadata.name.clone(), metadata.source.clone(), metadata.kind);
    let snapshot = snapshot(vec![metadata]);
    snapshot.get(&name).or_else(|| snapshot.operation(&source, kind)).unwrap().clone()
}

/// A registry with these tools.
pub(super) fn snapshot(tools: Vec<Metadata>) -> Snapshot {
    struct Unused;
    impl Executor for Unused {
        fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
            unreachable!("a policy never runs a tool")
        }
    }
    let definition = |metadata| {
        let parameters = json!({"type": "object"}).into();
        ToolDefinition { metadata, parameters, output_schema: None, executor: Arc::new(Unused) }
    };
    let metrics = Metrics::new("test").unwrap();
    let definitions = tools.into_iter().map(definition).collect();
    Snapshot::build(definitions, Vec::new(), &ToolsConfig::default(), &metrics).unwrap()
}

/// The settings of the built-in tool.
fn file_write() -> Metadata {
    Metadata { name: "file_write".into(), dangerous: true, roles: vec!["admin".into()], ..Metadata::default() }
}

pub(super) fn plain_tool(name: &str) -> Arc<Tool> {
    tool(Metadata { name: name.into(), ..Metadata::default() })
}

pub(super) fn call_by(roles: &[&str]) -> CallContext {
    let roles = roles.iter().map(ToString::to_string).collect();
    CallContext::new("any", Arc::new(Caller::new("alice", "acme", roles)), Via::Rest)
}

fn arguments(value: Json) -> Arguments {
    let Json::Object(fields) = value else { panic!("arguments are an object, not {value}") };
    fields
}

/// The same, of a tool that takes any.
fn valid(value: Json) -> ValidArguments {
    static ANY: LazyLock<Arc<Tool>> = LazyLock::new(|| plain_tool("any"));
    ANY.valid_arguments(arguments(value), &Map::new()).unwrap()
}

/// The decision about an ordinary call with these arguments.
pub(super) fn decide(policy: &Policy, given: Json) -> Decision {
    policy.decide(&call_by(&[]), &plain_tool("calculator"), &valid(given))
}

#[test]
fn the_default_policies_pass_their_cases() {
    let config = PolicyConfig { directory: Some(checkout().join("policies")), ..PolicyConfig::default() };
    let results = cases::run(&config, &snapshot(vec![file_write()])).unwrap();
    assert!(results.len() >= 10, "{results:?}");
    let failed: Vec<_> = results.iter().filter(|result| result.problem.is_some()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_rules_about_the_origin_of_values_pass_their_cases() {
    let config = PolicyConfig { directory: Some(checkout().join("policies/flow")), ..PolicyConfig::default() };
    let results = cases::run(&config, &Snapshot::default()).unwrap();
    assert!(results.len() >= 7, "{results:?}");
    let failed: Vec<_> = results.iter().filter(|result| result.problem.is_some()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_failed_case_reports_the_actual_decision() {
    let rules =
        "package tools\ndeny[\"never\"] { input.tool == \"x\" }\nrequire_approval[\"ask\"] { input.tool == \"y\" }\n";
    let cases = r#"
- {name: holds, input: {tool: x}, expect: {deny: never}}
- {name: asks, input: {tool: y}, expect: {require_approval: ask}}
- {name: wrong decision, input: {tool: x}, expect: allow}
- {name: wrong reason, input: {tool: x}, expect: {deny: always}}
- {name: incomplete list, input: {tool: x}, expect: {deny: [never, always]}}
- {name: typing error, input: {user: {role: admin}}, expect: allow}
- {name: a resource, input: {tool: x, kind: resource, target: "m+x://a"}, expect: {deny: never}}
- {name: with a session, input: {session: {cost_usd: 3}, arguments: {any: [1]}}, expect: allow}
"#;
    let results =
        cases::run(&config_of(&folder(&[("tools.rego", rules), ("cases/all.yaml", cases)])), &Snapshot::default())
            .unwrap();
    let problems: Vec<_> = results.iter().map(|result| (&*result.name, result.problem.as_deref())).collect();
    assert_eq!(
        problems,
        [
            ("holds", None),
            ("asks", None),
            ("wrong decision", Some("denied: never")),
            ("wrong reason", Some("denied: never")),
            ("incomplete list", Some("denied: never")),
            ("typing error", Some("the policy input has no `input.user.role`")),
            ("a resource", None),
            ("with a session", None),
        ]
    );
}

#[test]
fn an_invalid_file_of_cases_is_reported() {
    let files =
        [("tools.rego", "package tools\ndeny[\"no\"] { false }"), ("cases/a.yaml", "- {name: x, expectation: allow}")];
    let errors = cases::run(&config_of(&folder(&files)), &Snapshot::default()).unwrap_err();
    assert!(errors[0].file.ends_with("cases/a.yaml"), "{errors:?}");
    assert_eq!(errors[0].line, Some(1));
}
