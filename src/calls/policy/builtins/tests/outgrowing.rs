//! Calls of builtins that would outgrow their arguments.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::policy::tests::{decide, try_policy};

/// A problem in the refusal of a builtin's arguments; none if it is correct.
fn oddity(expression: &str, arguments: &Json) -> Option<String> {
    let started = Instant::now();
    let policy = match try_policy(&format!("deny[\"evaluated\"] {{ x := {expression}; x == x }}")) {
        Ok(policy) => policy,
        Err(errors) => return Some(format!("does not load: {errors:?}")),
    };
    let decision = decide(&policy, arguments.clone());
    let took = started.elapsed();
    match decision.failure {
        // Far above its usual time, far below the time of regorus' own.
        Some(_) if took > Duration::from_secs(5) => Some(format!("took {took:?}")),
        Some(failure) if failure.contains("took longer") || failure.contains("time limit") => Some(failure),
        Some(_) => None,
        None => Some(format!("was answered: {:?}", decision.denials)),
    }
}

/// Calls whose result would be larger than the machine, or take longer than anybody waits, all from
/// arguments. With regorus' own builtins, this test ends by the process being killed.
#[test]
fn a_result_that_outgrows_its_arguments_is_an_error() {
    let long = "a".repeat(400_000);
    let spaced = "a ".repeat(100_000);
    let many: Vec<u64> = (0..100_000).collect();
    let complete: Json = (0..40)
        .map(|node| (node.to_string(), json!((0..40).map(|n| n.to_string()).collect::<Vec<_>>())))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let chain: Json = (0..50_000)
        .map(|node| (node.to_string(), json!([(node + 1).to_string()])))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let objects: Vec<Json> = (0..20_000).map(|n| json!({n.to_string(): n})).collect();
    let deep = (0..100).fold(json!((0..2_000).collect::<Vec<_>>()), |inner, _| json!([inner]));
    let nested = format!("{}a{}", "{".repeat(30_000), "}".repeat(30_000));
    let mut odd = Vec::new();
    let magic = r#"{"$serde_json::private::Number": "1e999999999"}"#;
    for (expression, arguments) in [
        ("numbers.range(1, input.arguments.n)", json!({"n": 1_000_000_000_000_u64})),
        ("numbers.range(1, input.arguments.n)", json!({"n": 1e12})),
        ("numbers.range(1, input.arguments.n)", json!({"n": 10_001})),
        ("numbers.range(input.arguments.n, 1)", json!({"n": 1_000_000_000_000_u64})),
        ("numbers.range(input.arguments.n, 1)", json!({"n": i64::MIN})),
        ("numbers.range(-1, input.arguments.n)", json!({"n": i64::MAX})),
        ("numbers.range(1, input.arguments.n)", json!({"n": u64::MAX})),
        ("numbers.range(1, input.arguments.n)", json!({"n": 1e300})),
        ("numbers[\"range\"](1, input.arguments.n)", json!({"n": 1_000_000_000_000_u64})),
        ("numbers.range_step(1, input.arguments.n, 3)", json!({"n": 1_000_000_000_000_u64})),
        ("numbers.range_step(1, input.arguments.n, input.arguments.n)", json!({"n": -1})),
        ("net.cidr_expand(input.arguments.net)", json!({"net": "10.0.0.0/8"})),
        ("net.cidr_expand(input.arguments.net)", json!({"net": "::/0"})),
        ("net.cidr_expand(input.arguments.net)", json!({"net": "fd00::/64"})),
        ("bits.lsh(1, input.arguments.n)", json!({"n": 1_000_000_000_000_u64})),
        ("bits.lsh(1, input.arguments.n)", json!({"n": 4_000_000_000_u64})),
        ("bits.lsh(1, input.arguments.n)", json!({"n": 1e12})),
        ("bits.lsh(bits.lsh(1, input.arguments.n), input.arguments.n)", json!({"n": 300_000})),
        ("graph.reachable_paths(input.arguments.graph, [\"0\"])", json!({"graph": complete})),
        ("graph.reachable_paths(input.arguments.graph, {\"0\"})", json!({"graph": chain})),
        ("sprintf(\"%1000000000d\", [1])", json!({})),
        ("sprintf(input.arguments.format, [1])", json!({"format": "%1000000000d"})),
        ("sprintf(input.arguments.format, [1])", json!({"format": "%01000000000d"})),
        ("sprintf(input.arguments.format, [1.5])", json!({"format": "%.1000000000f"})),
        ("sprintf(input.arguments.format, [1.5])", json!({"format": "%.70000f"})),
        ("sprintf(input.arguments.format, [\"x\"])", json!({"format": "%1000000000q"})),
        ("sprintf(input.arguments.format, [1, 1, 1])", json!({"format": "%30000d%30000d%30000d"})),
        ("sprintf(input.arguments.format, [\"x\", 1])", json!({"format": "%+%%1000000000d"})),
        ("sprintf(input.arguments.format, [1])", json!({"format": "%99999999999999999999d"})),
        ("sprintf(input.arguments.format, [1])", json!({"format": "%\u{b2}d"})),
        ("concat(input.arguments.text, numbers.range(1, 9))", json!({"text": ""})),
        ("concat(input.arguments.text, input.arguments.list)", json!({"text": long, "list": vec![""; 100_000]})),
        // One text, held a thousand times.
        (
            "concat(\"\", [input.arguments.text | input.arguments.list[_]])",
            json!({"text": long, "list": many[..1_000]}),
        ),
        (
            "sprintf(input.arguments.format, [input.arguments.text | input.arguments.list[_]])",
            json!({"text": long, "list": many[..1_000], "format": "%s".repeat(1_000)}),
        ),
        ("replace(input.arguments.text, \"a\", input.arguments.text)", json!({"text": long})),
        ("replace(input.arguments.text, \"\", input.arguments.text)", json!({"text": long})),
        ("strings.replace_n({\"a\": input.arguments.text, \"b\": \"c\"}, input.arguments.text)", json!({"text": long})),
        (
            "strings.replace_n(input.arguments.all, \"a\")",
            json!({"all": (0..30).map(|n| ((b'a' + n) as char, char::from(b'a' + n + 1).to_string().repeat(9))).map(|(from, to)| (from.to_string(), json!(to))).collect::<serde_json::Map<_, _>>()}),
        ),
        ("regex.replace(input.arguments.text, \"a\", input.arguments.text)", json!({"text": long})),
        (
            "regex.replace(input.arguments.text, \"(a+)\", input.arguments.by)",
            json!({"text": long, "by": "$1".repeat(10_000)}),
        ),
        ("regex.split(\"a\", input.arguments.text)", json!({"text": long})),
        ("regex.find_n(\"a\", input.arguments.text, -1)", json!({"text": long})),
        ("regex.find_n(\"\", input.arguments.text, 1000000000000)", json!({"text": long})),
        ("regex.find_all_string_submatch_n(\"a\", input.arguments.text, -1)", json!({"text": long})),
        (
            "regex.find_all_string_submatch_n(input.arguments.pattern, input.arguments.text, -1)",
            json!({"text": long, "pattern": format!("{}a*{}", "(".repeat(200), ")".repeat(200))}),
        ),
        // Each of 400 000 searches reads to the end.
        ("regex.replace(input.arguments.text, \".*[^a]|a\", \"\")", json!({"text": long})),
        ("regex.split(\".*[^a]|a{50}\", input.arguments.text)", json!({"text": long})),
        ("regex.find_n(\".*[^a]|a{50}\", input.arguments.text, -1)", json!({"text": long})),
        ("regex.find_all_string_submatch_n(\".*[^a]|a{50}\", input.arguments.text, -1)", json!({"text": long})),
        ("regex.match(input.arguments.text, \"x\")", json!({"text": long})),
        ("regex.is_valid(input.arguments.text)", json!({"text": "(?i)\\pL".repeat(1_000)})),
        ("split(input.arguments.text, \" \")", json!({"text": spaced})),
        ("split(input.arguments.text, \"\")", json!({"text": long})),
        ("indexof_n(input.arguments.text, \"a\")", json!({"text": long})),
        ("indexof_n(input.arguments.text, input.arguments.part)", json!({"text": long, "part": "a".repeat(100_000)})),
        (
            "strings.count(input.arguments.text, input.arguments.part)",
            json!({"text": long, "part": "a".repeat(100_000)}),
        ),
        ("strings.count(input.arguments.text, \"\")", json!({"text": long})),
        (
            "trim(input.arguments.text, input.arguments.part)",
            json!({"text": long, "part": format!("{}a", "b".repeat(100_000))}),
        ),
        (
            "strings.any_prefix_match(input.arguments.list, input.arguments.list)",
            json!({"list": many.iter().map(u64::to_string).collect::<Vec<_>>()}),
        ),
        ("object.subset(input.arguments.list, array.slice(input.arguments.list, 1, 50000))", json!({"list": many})),
        (
            "object.subset(input.arguments, {\"list\": array.slice(input.arguments.list, 1, 50000)})",
            json!({"list": many}),
        ),
        ("object.union_n(input.arguments.list)", json!({"list": objects})),
        ("union({one | n := input.arguments.list[_]; one := {n}})", json!({"list": many[..3_000]})),
        ("product(input.arguments.list)", json!({"list": many.iter().map(|n| n + (1 << 52)).collect::<Vec<_>>()})),
        ("to_number(input.arguments.text)", json!({"text": magic})),
        ("json.unmarshal(input.arguments.text)", json!({"text": "1e999999999"})),
        ("units.parse(input.arguments.text)", json!({"text": "1e999999999"})),
        ("units.parse(input.arguments.text)", json!({"text": "1E999999999Ki"})),
        ("units.parse_bytes(input.arguments.text)", json!({"text": "1e+999999999KB"})),
        ("units.parse(input.arguments.text)", json!({"text": "9".repeat(400_000)})),
        ("walk(input.arguments.list)", json!({"list": many})),
        (
            "[path | walk(input.arguments.deep, [path, _])]",
            json!({"deep": (0..100).fold(json!(many[..50_000]), |inner, _| json!([inner]))}),
        ),
        (
            "json.marshal_with_options(input.arguments.deep, {\"indent\": input.arguments.text, \"prefix\": \"\"})",
            json!({"deep": deep, "text": long[..500]}),
        ),
        (
            "json.marshal_with_options(input.arguments.deep, {\"prefix\": input.arguments.text})",
            json!({"deep": deep, "text": long}),
        ),
        (
            "glob.match(\"a\", input.arguments.list, input.arguments.text)",
            json!({"text": ".".repeat(1_000), "list": vec!["."; 1_000]}),
        ),
        ("glob.match(input.arguments.text, [], \"a\")", json!({"text": long})),
        ("glob.quote_meta(input.arguments.text)", json!({"text": long})),
        ("glob.match(input.arguments.text, [], \"a\")", json!({"text": nested})),
        ("glob.match(input.arguments.text, null, \"a\")", json!({"text": nested})),
        ("glob.quote_meta(input.arguments.text)", json!({"text": nested})),
        ("json.filter(input.arguments, [input.arguments.path])", json!({"path": many})),
        ("json.remove(input.arguments, [input.arguments.path])", json!({"path": many})),
        ("json.remove(input.arguments, {input.arguments.path})", json!({"path": "a/".repeat(100_000)})),
        ("json.filter(input.arguments, [[\"list\", input.arguments.name]])", json!({"list": [1], "name": magic})),
        (
            "json.filter(input.arguments, [[\"list\", input.arguments.name]])",
            json!({"list": [1], "name": magic.replace('$', "\\u0024")}),
        ),
    ] {
        if let Some(oddity) = oddity(expression, &arguments) {
            odd.push(format!("{expression}: {oddity}"));
        }
    }
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn a_bounded_builtin_cannot_be_reached_by_another_name() {
    let large = json!({"n": 1_000_000_000_000_u64});
    for rules in [
        "deny[\"x\"] { count(f(1)) == 0 with data.tools.f as numbers.range }\nf(x) = [x] { true }",
        "deny[\"x\"] { own(input.arguments.n) }\nown(n) { count(numbers.range(1, n)) == 0 }",
        "deny[\"x\"] { numbers.range(1, input.arguments.n, all); count(all) == 0 }",
        "deny[\"x\"] { f(input.arguments.n) with f as union }\nf(x) { x > 0 }",
        "deny[\"x\"] { count(array.concat([1], input.arguments.n)) == 0 with array.concat as numbers.range }",
        "import future.keywords\ndeny[\"x\"] { every one in numbers.range(1, input.arguments.n) { one > 0 } }",
    ] {
        // Or the set does not load, since `with` names something that is no function of its own.
        let Ok(policy) = try_policy(rules) else { continue };
        let decision = decide(&policy, large.clone());
        assert!(!decision.allowed && decision.failure.is_some(), "{rules}: {decision:?}");
    }
}
