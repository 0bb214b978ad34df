//! The checks before the rules: a tool's settings apply with every policy set.

use std::collections::BTreeMap;

use super::*;
use sekisho_core::call::Arguments;
use sekisho_core::token_scopes::TokenScopes;

/// Policy sets that must not affect the checks of `dangerous`, `requires_auth` and `roles`: none of them denies here.
const SETS: [&str; 4] = [
    "deny[\"no\"] { false }",
    "deny[\"never for these arguments\"] { input.arguments.n == 1 }",
    "deny[\"another tool\"] { input.tool == \"web_fetch\"; not has_role(input.user, \"researcher\") }",
    "deny[\"no\"] { false }\nallow { true }\nrequire_approval[\"no\"] { false }",
];

/// The code of a refusal, and the failed checks.
type Refusal = Option<(ErrorCode, &'static [&'static str])>;

fn by(caller: Caller) -> CallContext {
    CallContext::new("any", Arc::new(caller), Via::Rest)
}

fn caller(roles: &[&str]) -> Caller {
    Caller::new("alice", "acme", roles.iter().map(ToString::to_string).collect())
}

/// The result of a call: nothing, or its code and the checks that refused it.
fn outcome(policy: &Policy, call: &CallContext, tool: &Tool) -> Option<(ErrorCode, Vec<String>)> {
    let valid = tool.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(call, tool, valid).err()?;
    assert_eq!(error.policy_version(), Some(&policy.version()));
    Some((error.code(), error.details().iter().map(|detail| detail.rule.clone()).collect()))
}

#[test]
fn the_checks_apply_with_every_policy_set() {
    let dangerous = || Metadata { name: "t".into(), dangerous: true, ..Metadata::default() };
    let signed_in = || Metadata { name: "t".into(), requires_auth: true, ..Metadata::default() };
    let roles = || Metadata { name: "t".into(), roles: vec!["ops".into(), "dev".into()], ..Metadata::default() };
    let all = || Metadata { requires_auth: true, roles: vec!["admin".into()], ..dangerous() };
    let (denied, unauthenticated) = (ErrorCode::Denied, ErrorCode::Unauthenticated);
    let cases: Vec<(Metadata, Caller, Refusal)> = vec![
        (dangerous(), Caller::anonymous(), Some((denied, &["dangerous"]))),
        (dangerous(), caller(&["admin", "Operator", "operator "]), Some((denied, &["dangerous"]))),
        (dangerous(), caller(&["operator"]), None),
        (Metadata { dangerous: false, ..dangerous() }, Caller::anonymous(), None),
        (signed_in(), Caller::anonymous(), Some((unauthenticated, &["requires_auth"]))),
        (signed_in(), Caller::new("anonymous", "public", Vec::new()), None),
        (roles(), Caller::anonymous(), Some((denied, &["roles"]))),
        (roles(), caller(&["Dev"]), Some((denied, &["roles"]))),
        (roles(), caller(&["x", "dev"]), None),
        (all(), Caller::anonymous(), Some((denied, &["roles", "requires_auth", "dangerous"]))),
        (
            Metadata { roles: Vec::new(), ..all() },
            Caller::anonymous(),
            Some((unauthenticated, &["requires_auth", "dangerous"])),
        ),
        (all(), caller(&["admin"]), Some((denied, &["dangerous"]))),
        (all(), caller(&["operator"]), Some((denied, &["roles"]))),
        (all(), caller(&["operator", "admin"]), None),
    ];
    for set in SETS {
        let policy = policy(set);
        for (metadata, caller, expected) in &cases {
            let tool = tool(metadata.clone());
            // The second time from the cache, if the decision is cached.
            for _ in 0..2 {
                let outcome = outcome(&policy, &by(caller.clone()), &tool);
                let outcome = outcome.as_ref().map(|(code, rules)| (*code, rules.iter().map(String::as_str).collect()));
                let expected = expected.map(|(code, rules)| (code, rules.to_vec()));
                assert_eq!(outcome, expected, "{set}\n{metadata:?}\n{caller:?}");
            }
        }
    }
}

#[test]
fn a_tool_that_needs_scopes_says_which_to_ask_for_if_they_are_all_that_is_missing() {
    let patterns = |tools: &[&str]| tools.iter().map(ToString::to_string).collect::<Vec<_>>();
    let needed = BTreeMap::from([
        ("base".to_owned(), patterns(&["*"])),
        ("read".to_owned(), patterns(&["other"])),
        ("write".to_owned(), patterns(&["t"])),
    ]);
    let scopes = |held: &[&str]| TokenScopes::new(&needed, held);
    let plain = || Metadata { name: "t".into(), ..Metadata::default() };
    let dangerous = || Metadata { dangerous: true, ..plain() };
    let (denied, unauthenticated) = (ErrorCode::Denied, ErrorCode::Unauthenticated);
    let cases: Vec<(Metadata, Caller, Refusal, &[&str])> = vec![
        (plain(), caller(&[]).with_scopes(scopes(&["base", "write"])), None, &[]),
        (plain(), caller(&[]).with_scopes(scopes(&["base"])), Some((denied, &["scopes"])), &["base", "write"]),
        (plain(), caller(&[]).with_scopes(scopes(&["read"])), Some((denied, &["scopes"])), &["read", "base", "write"]),
        (dangerous(), caller(&[]).with_scopes(scopes(&["base"])), Some((denied, &["dangerous", "scopes"])), &[]),
        (dangerous(), caller(&[]).with_scopes(scopes(&["base", "write"])), Some((denied, &["dangerous"])), &[]),
        (plain(), Caller::anonymous().with_scopes(scopes(&[])), Some((unauthenticated, &["requires_auth"])), &[]),
        (plain(), caller(&[]), None, &[]),
    ];
    let policy = policy("deny[\"no\"] { false }");
    for (metadata, caller, expected, asked) in cases {
        let (call, tool) = (by(caller), tool(metadata));
        let found = outcome(&policy, &call, &tool);
        let found = found.as_ref().map(|(code, rules)| (*code, rules.iter().map(String::as_str).collect()));
        assert_eq!(found, expected.map(|(code, rules)| (code, rules.to_vec())), "{:?}", call.caller.scopes);
        let error = policy.authorize(&call, &tool, tool.input.validate(Arguments::new()).unwrap()).err();
        assert_eq!(error.map(|error| error.scopes().to_vec()).unwrap_or_default(), asked, "{:?}", call.caller.scopes);
    }
}

#[test]
fn no_rule_is_evaluated_for_a_call_that_a_check_refuses() {
    let policy = policy("deny[\"no\"] { to_number(input.tool) > 1 }");
    let dangerous = tool(Metadata { name: "t".into(), dangerous: true, ..Metadata::default() });
    let valid = dangerous.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(&by(caller(&[])), &dangerous, valid).unwrap_err();
    assert_eq!((error.message(), error.cause()), ("t is dangerous: the caller needs the role operator", None));
    assert_eq!(policy.current.load().cache.len(), 0);
}

#[test]
fn the_roles_for_dangerous_tools_are_configured_and_reloaded_with_the_set() {
    let roles = |names: &[&str]| PolicyConfig {
        dangerous_roles: names.iter().map(ToString::to_string).collect(),
        ..PolicyConfig::default()
    };
    let policy = Policy::load(&roles(&["sre", "root"])).unwrap();
    let dangerous = tool(Metadata { name: "t".into(), dangerous: true, ..Metadata::default() });
    let may = |policy: &Policy, role: &str| outcome(policy, &by(caller(&[role])), &dangerous).is_none();
    assert!(may(&policy, "sre") && may(&policy, "root") && !may(&policy, "operator"));
    let valid = dangerous.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(&by(caller(&[])), &dangerous, valid).unwrap_err();
    assert_eq!(error.message(), "t is dangerous: the caller needs one of the roles sre, root");

    policy.reload(&roles(&["root"])).unwrap();
    assert!(may(&policy, "root") && !may(&policy, "sre"), "a decision outlived the set it was made by");
    // The configuration refuses an empty list. If one is given here, it permits nothing.
    policy.reload(&roles(&[])).unwrap();
    assert!(!may(&policy, "root") && !may(&policy, ""));
}

#[test]
fn cases_include_the_checks_of_tools() {
    let rules = "package tools\ndeny[msg] { input.tool == \"file_write\"; not is_admin(input.user); msg := \"file_writeには管理者ロールが必要です\" }\n";
    let cases = r#"
- {name: the rule and the check, input: {tool: file_write, user: {roles: [operator]}}, expect: {deny: file_writeには管理者ロールが必要です}}
- {name: every reason, input: {tool: file_write, user: {roles: [operator]}}, expect: {deny: [file_write needs one of these roles: admin, file_writeには管理者ロールが必要です]}}
- {name: another's dangerous tool, input: {tool: deploy, metadata: {dangerous: true}}, expect: {deny: "deploy is dangerous: the caller needs the role operator"}}
- {name: not any more, input: {tool: file_write, metadata: {dangerous: false}, user: {roles: [admin]}}, expect: allow}
- {name: both roles, input: {tool: file_write, user: {roles: [operator, admin]}}, expect: allow}
- {name: one role, input: {tool: file_write, user: {roles: [admin]}}, expect: allow}
- {name: no flag, input: {metadata: {dangerous: maybe}}, expect: allow}
"#
    .replace("deny: [file_write needs one of these roles: admin,", "deny: [\"file_write needs one of these roles: admin\",");
    let files = folder(&[("tools.rego", rules), ("cases/all.yaml", &cases)]);
    let results = cases::run(&config_of(&files), &snapshot(vec![file_write()])).unwrap();
    let problems: Vec<_> = results.iter().map(|result| (&*result.name, result.problem.as_deref())).collect();
    assert_eq!(
        problems,
        [
            ("the rule and the check", None),
            ("every reason", None),
            ("another's dangerous tool", None),
            ("not any more", None),
            ("both roles", None),
            ("one role", Some("denied: file_write is dangerous: the caller needs the role operator")),
            ("no flag", Some("`dangerous` must be true or false")),
        ]
    );
}
