//! Rules that conflict or fail must never result in "allowed".

use std::time::{Duration, Instant};

use super::*;
use sekisho_core::slack::slack;

fn is_undecided(decision: &Decision) -> bool {
    !decision.allowed && decision.denials == [UNDECIDED] && decision.failure.is_some() && !decision.cached
}

#[test]
fn a_rule_that_fails_denies() {
    for rules in [
        // Errors inside a rule's body: "the rule does not apply" would mean "allowed".
        "deny[\"no\"] { to_number(\"x\") > 1 }",
        "deny[\"no\"] { to_number(input.arguments.text) > 1 }",
        "deny[\"no\"] { 1 / input.arguments.zero == 1 }",
        "deny[\"no\"] { 1 % input.arguments.zero == 1 }",
        "deny[\"no\"] { not to_number(\"x\") }",
        "deny[\"no\"] { count(input.arguments.one) > 1 }",
        "deny[\"no\"] { regex.match(\"(\", input.arguments.text) }",
        "deny[\"no\"] { input.arguments.one + input.arguments.text == 2 }",
        "deny[\"no\"] { x := [y | y := to_number(\"x\")]; count(x) > 0 }",
        // The same in a called function.
        "deny[\"no\"] { helper }\nhelper { to_number(\"x\") > 1 }",
        "deny[\"no\"] { bad(\"x\") }\nbad(x) { to_number(x) > 1 }",
        "deny[\"no\"] { not good }\ngood { to_number(\"x\") > 1 }",
        // Conflicting definitions.
        "deny[\"no\"] { limit > 3 }\nlimit = 1 { input.tool }\nlimit = 2 { input.user }",
        "deny[\"no\"] { f(1) > 3 }\nf(x) = 1 { x > 0 }\nf(x) = 2 { x < 9 }",
        // A reason that is not a string.
        "deny[msg] { msg := 5 }",
        "deny[msg] { msg := [\"no\"] }",
        "deny[{\"reason\": \"no\"}] { input.tool }",
        // The same in `require_approval`.
        "deny[\"no\"] { false }\nrequire_approval[\"ask\"] { to_number(\"x\") > 1 }",
        "deny[\"no\"] { false }\nrequire_approval[msg] { msg := 5 }",
    ] {
        let policy = policy(rules);
        for _ in 0..2 {
            let decision = decide(&policy, json!({"text": "x", "zero": 0, "one": 1}));
            assert!(is_undecided(&decision), "{rules}\n→ {decision:?}");
        }
    }
}

/// Builtins of regorus that panic on arguments of a caller: a slice beyond the text, an empty window, a slice inside a
/// character.
#[test]
fn a_builtin_that_panics_denies() {
    for (rules, arguments) in [
        (
            "deny[\"no\"] { not regex.template_match(\"urn:{.*}\", input.arguments.text, \"{\", \"}\") }",
            json!({"text": "x"}),
        ),
        ("deny[\"no\"] { object.subset(input.arguments, {\"list\": []}) }", json!({"list": [1]})),
        ("deny[\"no\"] { time.parse_duration_ns(input.arguments.text) > 1 }", json!({"text": "1é"})),
    ] {
        let policy = policy(rules);
        for _ in 0..2 {
            let decision = decide(&policy, arguments.clone());
            assert!(is_undecided(&decision), "{rules}\n→ {decision:?}");
        }
        assert!(
            decide(&policy, json!({"text": "urn:1s", "list": {}})).failure.is_none_or(|why| !why.contains("panicked"))
        );
    }
}

#[test]
fn a_failing_rule_denies_even_if_another_rule_does_not_apply() {
    let policy = policy("deny[\"a\"] { false }\ndeny[\"b\"] { to_number(\"x\") == 1 }\ndeny[\"c\"] { false }");
    assert!(is_undecided(&decide(&policy, json!({}))));
}

#[test]
fn the_reason_of_a_failed_evaluation_is_logged_but_not_sent_to_the_caller() {
    let policy = policy("deny[\"no\"] { to_number(\"secret-threshold\") > 1 }");
    let calculator = plain_tool("calculator");
    let valid = calculator.input.validate(Arguments::new()).unwrap();
    let error = policy.authorize(&call_by(&[]), &calculator, valid).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied);
    assert!(!format!("{error} {:?}", error.details()).contains("secret-threshold"));
    assert!(error.cause().unwrap().contains("tools.rego:2"), "{error:?}");
}

#[test]
fn rules_that_disagree_only_add_reasons() {
    let policy = policy("deny[\"a\"] { input.tool }\ndeny[\"b\"] { input.user }\ndeny[\"a\"] { true }");
    assert_eq!(decide(&policy, json!({})).denials, ["a", "b"]);
}

#[test]
fn an_endless_evaluation_denies_at_its_timeout() {
    let rules =
        "big := numbers.range(1, 3000)\ndeny[\"no\"] { a := big[_]; b := big[_]; c := big[_]; a * b * c == -1 }";
    let policy = policy(rules);
    let started = Instant::now();
    let decision = decide(&policy, json!({}));
    let took = started.elapsed();
    assert!(is_undecided(&decision), "{decision:?}");
    assert!(decision.failure.unwrap().contains("time"), "the log says that it was time");
    assert!(took >= Duration::from_millis(45) && took < slack(Duration::from_secs(1)), "{took:?}");
}

#[test]
fn a_builtin_that_would_take_long_denies_at_once() {
    let policy = policy("deny[\"no\"] { x := numbers.range(1, input.arguments.n); count(x) == 1 }");
    let decision = decide(&policy, json!({"n": 1_000_000_000_000_u64}));
    assert!(is_undecided(&decision), "{decision:?}");
    assert!(decision.failure.unwrap().contains("more than 10000 elements"));
    assert_eq!(decide(&policy, json!({"n": 1})).denials, ["no"]);
}

#[test]
fn unusual_arguments_reach_the_rules_unchanged() {
    let policy = policy(
        "deny[\"found\"] { input.arguments.needle == \"rm\" }\ndeny[\"nul\"] { contains(input.arguments.text, \"\\u0000\") }\n\
         deny[\"large\"] { input.arguments.n > 1000 }",
    );
    for (given, denials) in [
        (json!({"needle": "rm"}), &["found"][..]),
        (json!({"needle": "r\u{200d}m"}), &[]),
        (json!({"needle": "ｒｍ"}), &[]),
        (json!({"needle": "rm\u{0}"}), &[]),
        (json!({"text": "a\u{0}b"}), &["nul"]),
        (json!({"text": "\u{202e}\u{10ffff}\u{feff}"}), &[]),
        (json!({"n": u64::MAX}), &["large"]),
        (json!({"n": i64::MIN}), &[]),
        (json!({"n": 1e308}), &["large"]),
        (json!({"n": -1e308}), &[]),
        (json!({"n": 5e-324}), &[]),
        (json!({"": {"": [[], {}]}, "data": {"tools": {"deny": []}}, "input": null}), &[]),
    ] {
        let decision = decide(&policy, given.clone());
        assert_eq!(
            (decision.denials, decision.failure),
            (denials.iter().map(ToString::to_string).collect(), None),
            "{given}"
        );
    }
}

#[test]
fn arguments_nested_too_deeply_are_denied() {
    let policy = policy("deny[\"no\"] { contains(json.marshal(input.arguments), \"needle\") }");
    let nested = |levels: usize| (0..levels).fold(json!("needle"), |inner, _| Json::Array(vec![inner]));
    let decision = decide(&policy, json!({"x": nested(100)}));
    assert_eq!(decision.denials, ["no"], "{decision:?}");
    assert!(is_undecided(&decide(&policy, json!({"x": nested(128)}))));
    assert!(is_undecided(&decide(&policy, json!({"x": nested(1_000)}))));
}
