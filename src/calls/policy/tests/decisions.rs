//! Decisions, their reasons, and caching.

use std::thread;

use proptest::prelude::*;
use rust_decimal::Decimal;

use super::*;
use crate::policy::reads::Reads;
use crate::tool::{Destination, SentCall};
use sekisho_core::call::{CallNesting, ParentCall};
use sekisho_core::error::Detail;

#[test]
fn the_policy_input_is_a_contract() {
    let metadata = Metadata {
        name: "file_write".into(),
        category: "files".into(),
        dangerous: true,
        cost_per_use: Decimal::new(1, 3),
        labels: vec!["workspace".into()],
        ..Metadata::default()
    };
    let caller = Arc::new(Caller::new("alice", "acme", vec!["operator".into()]));
    let mut call = CallContext {
        dry_run: true,
        nesting: CallNesting { depth: 1, ..CallNesting::default() },
        ..CallContext::new("file_write", caller.clone(), Via::Sandbox)
    };
    let calls_left = Arc::default();
    call.nesting.parent = Some(Arc::new(ParentCall { id: call.id, program: [0xab; 32], calls_left }));
    let given = arguments(json!({"path": "a.txt", "lines": [1, -2.5, true, null]}));
    let flag = |path: &str| Detail { path: path.into(), rule: "instructions".into(), message: "m".into() };
    let flags = [flag("description"), flag("parameters")];
    let mut input = input::complete(&input::subject(&metadata, &flags, &caller), &call, &given, Reads::ALL).unwrap();
    let (sent, meta) = (arguments(json!({"file": "a.txt"})), arguments(json!({"example.com/tenant": "t"})));
    let destination = Destination {
        method: "PUT".into(),
        address: "https://files.example:443/{file}".into(),
        coding: Some("application/json".into()),
        meta: Some(&meta),
        as_task: false,
    };
    input::add_sent(&mut input, &SentCall { destination, arguments: &sent }).unwrap();
    flow::add_to(&mut input, None).unwrap();
    let input: Json = serde_json::from_str(&input.to_json_str().unwrap()).unwrap();
    insta::assert_json_snapshot!(input, {".call.id" => "[id]", ".call.parent" => "[id]"}, @r#"
    {
      "argument_labels": {},
      "arguments": {
        "lines": [
          1,
          -2.5,
          true,
          null
        ],
        "path": "a.txt"
      },
      "call": {
        "depth": 1,
        "dry_run": true,
        "id": "[id]",
        "parent": "[id]",
        "program": "abababababababababababababababababababababababababababababababab",
        "via": "sandbox"
      },
      "flow": {
        "forbidden": [],
        "mode": "off",
        "questions": [],
        "sink": null,
        "untrusted": false
      },
      "kind": "tool",
      "metadata": {
        "category": "files",
        "cost_per_use": 0.001,
        "dangerous": true,
        "flags": [
          "instructions"
        ],
        "labels": [
          "workspace"
        ],
        "requires_auth": false,
        "sandboxed": false,
        "source": "builtin",
        "version": "1.0.0"
      },
      "sent": {
        "address": "https://files.example:443/{file}",
        "arguments": {
          "file": "a.txt"
        },
        "as_task": false,
        "coding": "application/json",
        "meta": {
          "example.com/tenant": "t"
        },
        "method": "PUT"
      },
      "session": null,
      "target": null,
      "tool": "file_write",
      "user": {
        "anonymous": false,
        "id": "alice",
        "roles": [
          "operator"
        ],
        "tenant": "acme"
      }
    }
    "#);
}

#[test]
fn an_operation_that_is_not_a_tool_has_its_kind_and_target_in_the_policy_input() {
    let caller = Arc::new(Caller::anonymous());
    for (kind, expected) in
        [(CallKind::Resource, "resource"), (CallKind::Prompt, "prompt"), (CallKind::Completion, "completion")]
    {
        let metadata = Metadata { kind, name: "m__any".into(), ..Metadata::default() };
        let subject = input::subject(&metadata, &[], &caller);
        let input = input::complete(&subject, &call_for(kind, "m+x://a"), &arguments(json!({})), Reads::ALL).unwrap();
        let input: Json = serde_json::from_str(&input.to_json_str().unwrap()).unwrap();
        assert_eq!(
            (&input["tool"], &input["kind"], &input["target"]),
            (&json!("m__any"), &json!(expected), &json!("m+x://a"))
        );
    }
}

fn call_for(kind: CallKind, name: &str) -> CallContext {
    let target = Target { kind, source: Some("mcp:m".into()), name: name.into() };
    CallContext { target: Some(target.into()), ..call_by(&[]) }
}

#[test]
fn a_decision_about_one_target_does_not_apply_to_another() {
    let policy = policy("deny[\"secret\"] { input.kind == \"resource\"; input.target == \"m+x://secret\" }");
    let reader = tool(Metadata { kind: CallKind::Resource, name: "m__resources_read".into(), ..Metadata::default() });
    for (uri, allowed) in [("m+x://a", true), ("m+x://secret", false), ("m+x://a", true), ("m+x://secret", false)] {
        let decision = policy.decide(&call_for(CallKind::Resource, uri), &reader, &valid(json!({})));
        assert_eq!((decision.allowed, decision.cached), (allowed, false), "{uri}");
    }
    let plain = plain_tool("calculator");
    for cached in [false, true] {
        let decision = policy.decide(&call_by(&[]), &plain, &valid(json!({})));
        assert_eq!((decision.allowed, decision.cached), (true, cached), "a tool has no target");
    }
}

#[test]
fn the_session_in_the_policy_input_is_a_contract() {
    let session = input::session("s-1", 3, Decimal::new(125, 2));
    let session: Json = serde_json::from_str(&session.to_json_str().unwrap()).unwrap();
    insta::assert_json_snapshot!(session, @r#"
    {
      "calls": 3,
      "cost_usd": 1.25,
      "id": "s-1"
    }
    "#);
}

#[test]
fn parts_that_no_rule_reads_are_left_out() {
    let caller = Arc::new(Caller::anonymous());
    let call = CallContext::new("any", caller.clone(), Via::Rest);
    let subject = input::subject(&Metadata::default(), &[], &caller);
    let input = input::complete(&subject, &call, &arguments(json!({"a": 1})), Reads::default()).unwrap();
    assert_eq!(input, subject);
}

#[test]
fn all_reasons_are_in_message_and_details() {
    let policy = policy("deny[\"first\"] { input.tool }\ndeny[\"second\"] { input.user }");
    let calculator = plain_tool("calculator");
    let valid = calculator.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(&call_by(&[]), &calculator, valid).unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::Denied, "first; second"));
    for reason in ["first", "second"] {
        assert!(error.details().iter().any(|detail| detail.message == reason && detail.rule == "deny"), "{error:?}");
    }
    assert_eq!(error.notes().unwrap().rules, ["deny tools.rego:2", "deny tools.rego:3"]);
}

#[test]
fn the_rule_that_denied_is_found_by_its_reason() {
    let rules = "deny[msg] { input.tool == \"a\"; msg := sprintf(\"%s is not for %s\", [input.tool, input.user.id]) }\n\
                 deny[msg] { input.tool == \"a\"; msg := concat(\" \", [\"made\", \"of parts\"]) }\n\
                 deny[\"another tool\"] { input.tool == \"b\" }";
    let (policy, tool) = (policy(rules), plain_tool("a"));
    let valid = tool.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(&call_by(&[]), &tool, valid).unwrap_err();
    assert_eq!(error.details().len(), 2, "{error}");
    let rules = &error.notes().unwrap().rules;
    assert_eq!(*rules, ["deny tools.rego:2"], "a reason that no text has says nothing of its rule");
}

#[test]
fn a_call_without_reasons_gets_a_permit_with_its_arguments() {
    let policy = shipped_policy();
    let calculator = plain_tool("calculator");
    for cached in [false, true] {
        let given = arguments(json!({"expression": "1+1"}));
        let valid = calculator.input.validate(given.clone()).unwrap();
        let authorized = policy.authorize(&call_by(&[]), &calculator, valid).unwrap();
        let permit = authorized.without_approval().unwrap();
        assert_eq!(permit.sent_arguments(), &given);
        assert_eq!(permit.version(), &policy.version());
        assert_eq!(permit.cached(), cached);
    }
}

#[test]
fn a_denial_takes_precedence_over_a_request_for_approval() {
    let policy = policy(
        "deny[\"no\"] { input.arguments.bad }\nrequire_approval[msg] { input.arguments.costly; msg := \"ask first\" }",
    );
    let calculator = plain_tool("calculator");
    for (given, code) in [
        (json!({"costly": true}), Some(ErrorCode::ApprovalRequired)),
        (json!({"costly": true, "bad": true}), Some(ErrorCode::Denied)),
        (json!({"costly": false}), None),
    ] {
        let valid = calculator.input.validate(arguments(given)).unwrap();
        let authorized = policy.authorize(&call_by(&[]), &calculator, valid);
        let result = authorized.and_then(Authorized::without_approval);
        assert_eq!(result.as_ref().err().map(CallError::code), code);
        if code == Some(ErrorCode::ApprovalRequired) {
            let error = result.unwrap_err();
            assert_eq!((error.message(), &*error.details()[0].rule), ("ask first", "require_approval"));
        }
    }
}

#[test]
fn a_cached_decision_is_never_shared_between_callers_or_tools() {
    let policy =
        policy("deny[\"operators only\"] { input.metadata.dangerous; not has_role(input.user, \"operator\") }");
    let deploy = tool(Metadata { name: "deploy".into(), dangerous: true, ..Metadata::default() });
    let also_deploy = tool(Metadata { name: "deploy".into(), dangerous: false, ..Metadata::default() });
    for round in 0..3 {
        for (roles, tool, allowed) in [
            (&["operator"][..], &deploy, true),
            (&[], &deploy, false),
            (&["operators"], &deploy, false),
            (&[], &also_deploy, true),
        ] {
            let decision = policy.decide(&call_by(roles), tool, &valid(json!({})));
            assert_eq!((decision.allowed, decision.cached), (allowed, round > 0), "{roles:?}");
        }
    }
}

#[test]
fn a_caller_without_credentials_never_gets_the_decision_of_a_namesake() {
    let policy = policy("deny[\"sign in\"] { input.user.anonymous }");
    let calculator = plain_tool("calculator");
    let namesake = Arc::new(Caller::new("anonymous", "public", Vec::new()));
    let signed_in = CallContext::new("calculator", namesake, Via::Rest);
    let anonymous = CallContext::new("calculator", Arc::new(Caller::anonymous()), Via::Rest);
    assert!(policy.decide(&signed_in, &calculator, &valid(json!({}))).allowed);
    assert!(!policy.decide(&anonymous, &calculator, &valid(json!({}))).allowed);
}

#[test]
fn policies_that_read_arguments_are_evaluated_every_time() {
    let policy = policy("deny[\"too much\"] { input.arguments.amount > 10 }");
    let calculator = plain_tool("calculator");
    for (amount, allowed) in [(1, true), (11, false), (2, true), (12, false)] {
        let decision = policy.decide(&call_by(&[]), &calculator, &valid(json!({"amount": amount})));
        assert_eq!((decision.allowed, decision.cached), (allowed, false));
    }
}

#[test]
fn a_policy_that_reads_what_is_sent_gets_it_every_time() {
    let policy = policy(
        "deny[\"twice\"] { input.sent.arguments.amount > 10 }\ndeny[\"moved\"] { input.sent.address != \"builtin\" }",
    );
    let calculator = plain_tool("calculator");
    for (amount, allowed) in [(1, true), (11, false), (2, true)] {
        let decision = policy.decide(&call_by(&[]), &calculator, &valid(json!({"amount": amount})));
        assert_eq!((decision.allowed, decision.cached), (allowed, false), "{decision:?}");
    }
    let elsewhere = tool(Metadata { name: "calculator".into(), source: "openapi:a".into(), ..Metadata::default() });
    assert_eq!(policy.decide(&call_by(&[]), &elsewhere, &valid(json!({}))).denials, ["moved"]);
}

#[test]
fn the_cache_is_bounded() {
    let policy = shipped_policy();
    let calculator = plain_tool("calculator");
    for index in 0..10_000 {
        let caller = Arc::new(Caller::new(&format!("caller-{index}"), "acme", Vec::new()));
        policy.decide(&CallContext::new("calculator", caller, Via::Rest), &calculator, &valid(json!({})));
    }
    assert!(policy.current.load().cache.len() <= 4_096);
}

#[test]
fn a_reload_changes_version_and_decisions_and_a_broken_one_changes_nothing() {
    let folder = folder(&[("tools.rego", "package tools\ndeny[\"first\"] { input.tool }")]);
    let policy = Policy::load(&config_of(&folder)).unwrap();
    let first = policy.version();
    assert_eq!(decide(&policy, json!({})).denials, ["first"]);

    fs::write(folder.path().join("tools.rego"), "package tools\ndeny[\"broken\"] {").unwrap();
    let errors = policy.reload(&config_of(&folder)).unwrap_err();
    assert!(errors[0].file.ends_with("tools.rego") && errors[0].line.is_some(), "{errors:?}");
    assert_eq!(policy.version(), first);
    assert_eq!(decide(&policy, json!({})).denials, ["first"]);

    fs::write(folder.path().join("tools.rego"), "package tools\ndeny[\"second\"] { input.tool }").unwrap();
    policy.reload(&config_of(&folder)).unwrap();
    assert_ne!(policy.version(), first);
    assert_eq!(decide(&policy, json!({})).denials, ["second"]);
}

#[test]
fn the_version_depends_on_the_content_not_the_path() {
    let files = [("tools.rego", "package tools\ndeny[\"no\"] { false }")];
    let versions: Vec<_> = (0..2).map(|_| Policy::load(&config_of(&folder(&files))).unwrap().version()).collect();
    assert_eq!(versions[0], versions[1]);
    assert_eq!(versions[0].len(), 16);
}

#[test]
fn old_and_new_syntax_load_side_by_side() {
    let folder = folder(&[
        ("old.rego", "package tools\nimport data.limits\ndeny[msg] { limits.over(input.arguments.n); msg := \"old\" }"),
        ("new.rego", "package tools\nimport rego.v1\ndeny contains \"new\" if input.arguments.n > 5"),
        ("deeper/limits.rego", "package limits\nimport rego.v1\nover(n) if n > 3"),
    ]);
    let policy = Policy::load(&config_of(&folder)).unwrap();
    for (n, denials) in [(1, &[][..]), (4, &["old"]), (6, &["new", "old"])] {
        assert_eq!(decide(&policy, json!({"n": n})).denials, denials);
    }
}

#[test]
fn the_helpers_are_added_unless_a_folder_has_its_own() {
    let rule = ("tools.rego", "package tools\ndeny[\"no\"] { not is_admin(input.user) }");
    let admin = call_by(&["admin"]);
    let calculator = plain_tool("calculator");
    let shipped = Policy::load(&config_of(&folder(&[rule]))).unwrap();
    assert!(shipped.decide(&admin, &calculator, &valid(json!({}))).allowed);
    let own = ("lib.rego", "package tools\nis_admin(user) { user.id == \"root\" }");
    let replaced = Policy::load(&config_of(&folder(&[rule, own]))).unwrap();
    assert!(!replaced.decide(&admin, &calculator, &valid(json!({}))).allowed);
}

#[test]
fn many_calls_decide_at_once_and_each_gets_its_own_answer() {
    let rule = "deny[msg] { input.arguments.n % 2 == 1; msg := sprintf(\"%d is odd\", [input.arguments.n]) }";
    let folder = folder(&[("tools.rego", &format!("package tools\n{rule}"))]);
    // Eight threads share the processors of the machine: an evaluation may not get one for some time.
    let config = PolicyConfig { timeout_ms: 60_000, ..config_of(&folder) };
    let policy = Policy::load(&config).unwrap();
    let calculator = plain_tool("calculator");
    thread::scope(|scope| {
        for thread in 0..8 {
            let (policy, calculator) = (&policy, &calculator);
            scope.spawn(move || {
                for n in (0..200).map(|index| thread * 200 + index) {
                    let decision = policy.decide(&call_by(&[]), calculator, &valid(json!({"n": n})));
                    let expected = if n % 2 == 1 { vec![format!("{n} is odd")] } else { Vec::new() };
                    assert_eq!(decision.denials, expected);
                }
            });
        }
        for _ in 0..20 {
            policy.reload(&config).unwrap();
        }
    });
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_filter("JSON has no such number", |number| number.is_finite()).prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Json::from),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_policy_sees_arguments_as_they_are(value in any_json()) {
        let converted = input::converted(&value, 1).unwrap();
        prop_assert_eq!(converted, regorus::Value::from(value));
    }
}
