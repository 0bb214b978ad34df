//! Each builtin is bounded, and those that are replaced still answer what regorus' own answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::*;
use crate::policy::tests::{decide, policy, try_policy};

/// Why no result of a builtin can be much larger than its arguments, and no work either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A boolean, a number of the size of its argument, or a name: of constant size.
    OneSize,
    /// Some or all of what it was given, in time in proportion to that.
    Part,
    /// A text in another notation, by a factor of 6 at most.
    Notation,
    /// All that it was given, put together.
    Sum,
    /// Replaced by one of [`BOUNDED`].
    Bounded,
}

use Why::{Bounded, Notation, OneSize, Part, Sum};

const BUILTIN_BOUNDS: [(&str, Why); 105] = [
    ("__builtin_sets.intersection", Part),
    ("__builtin_sets.union", Sum),
    ("abs", OneSize),
    ("array.concat", Sum),
    ("array.reverse", Part),
    ("array.slice", Part),
    ("base64.decode", Notation),
    ("base64.encode", Notation),
    ("base64.is_valid", OneSize),
    ("bits.and", OneSize),
    ("bits.lsh", Bounded),
    ("bits.negate", OneSize),
    ("bits.or", OneSize),
    ("bits.rsh", OneSize),
    ("bits.xor", OneSize),
    ("ceil", OneSize),
    ("concat", Bounded),
    ("contains", OneSize),
    ("count", OneSize),
    ("endswith", OneSize),
    ("floor", OneSize),
    // Binary digits of an integer, at most eight times its bytes; a float has 1 024.
    ("format_int", Notation),
    ("glob.match", Bounded),
    ("glob.quote_meta", Bounded),
    ("graph.reachable", Part),
    ("graph.reachable_paths", Bounded),
    ("indexof", Bounded),
    ("indexof_n", Bounded),
    ("intersection", Part),
    ("is_array", OneSize),
    ("is_boolean", OneSize),
    ("is_null", OneSize),
    ("is_number", OneSize),
    ("is_object", OneSize),
    ("is_set", OneSize),
    ("is_string", OneSize),
    ("json.filter", Bounded),
    ("json.is_valid", Bounded),
    ("json.marshal", Notation),
    ("json.marshal_with_options", Bounded),
    ("json.remove", Bounded),
    ("json.unmarshal", Bounded),
    ("lower", Notation),
    ("max", Part),
    ("min", Part),
    ("net.cidr_contains", OneSize),
    ("net.cidr_expand", Bounded),
    ("net.cidr_is_valid", OneSize),
    ("numbers.range", Bounded),
    ("numbers.range_step", Bounded),
    ("object.filter", Part),
    ("object.get", Part),
    ("object.keys", Part),
    ("object.remove", Part),
    ("object.subset", Bounded),
    ("object.union", Sum),
    ("object.union_n", Bounded),
    ("product", Bounded),
    ("rand.intn", OneSize),
    ("regex.find_all_string_submatch_n", Bounded),
    ("regex.find_n", Bounded),
    ("regex.is_valid", Bounded),
    ("regex.match", Bounded),
    ("regex.replace", Bounded),
    ("regex.split", Bounded),
    ("regex.template_match", Bounded),
    ("replace", Bounded),
    ("round", OneSize),
    ("semver.compare", OneSize),
    ("semver.is_valid", OneSize),
    ("sort", Part),
    ("split", Bounded),
    ("sprintf", Bounded),
    ("startswith", OneSize),
    ("strings.any_prefix_match", Bounded),
    ("strings.any_suffix_match", Bounded),
    ("strings.count", Bounded),
    ("strings.replace_n", Bounded),
    ("strings.reverse", Part),
    ("substring", Part),
    // Of integers, so it grows by a bit each time it doubles.
    ("sum", OneSize),
    ("time.add_date", OneSize),
    ("time.clock", OneSize),
    ("time.date", OneSize),
    ("time.diff", OneSize),
    ("time.format", Notation),
    ("time.now_ns", OneSize),
    ("time.parse_duration_ns", OneSize),
    ("time.parse_ns", OneSize),
    ("time.parse_rfc3339_ns", OneSize),
    ("time.weekday", OneSize),
    ("to_number", Bounded),
    ("trace", Part),
    ("trim", Bounded),
    ("trim_left", Bounded),
    ("trim_prefix", Part),
    ("trim_right", Bounded),
    ("trim_space", Part),
    ("trim_suffix", Part),
    ("type_name", OneSize),
    ("union", Bounded),
    ("units.parse", Bounded),
    ("units.parse_bytes", Bounded),
    ("upper", Notation),
    ("walk", Bounded),
];

#[test]
fn every_builtin_is_known_and_bounded() {
    let known: BTreeMap<_, _> = BUILTIN_BOUNDS.into_iter().collect();
    let there: Vec<_> = BUILTINS.keys().copied().collect();
    let overlooked: Vec<_> = there.iter().filter(|name| !known.contains_key(*name)).collect();
    assert!(overlooked.is_empty(), "can these outgrow what they are given? {overlooked:?}");
    assert_eq!(known.len(), there.len(), "some of the table no longer exist: {there:?}");
    let replaced: BTreeMap<_, _> = BOUNDED.into_iter().map(|(name, arguments, _)| (name, arguments)).collect();
    for (name, why) in known {
        let own = BUILTINS.get(name).map(|(_, arguments)| *arguments);
        assert_eq!(replaced.get(name).copied(), own.filter(|_| why == Bounded), "{name}");
    }
}

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
        // Far above what it takes, far below what regorus' own would.
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
        // Or the set does not load, since `with` names what is no function of its own.
        let Ok(policy) = try_policy(rules) else { continue };
        let decision = decide(&policy, large.clone());
        assert!(!decision.allowed && decision.failure.is_some(), "{rules}: {decision:?}");
    }
}

/// Each replaced builtin, over arguments within its bound, against regorus' own.
#[test]
fn within_the_bounds_nothing_changes() {
    for (name, arguments) in [
        ("bits.lsh", json!([[1, 0], [3, 70], [-5, 2], [0, 9]])),
        ("concat", json!([[", ", ["a", "b"]], ["", []], ["x", ["a"]]])),
        ("glob.match", json!([["a*c", [], "abc"], ["a.*", ["."], "a.b.c"], ["*:x", null, "a:x"]])),
        ("glob.quote_meta", json!([["*.x"]])),
        ("graph.reachable_paths", json!([[{"a": ["b", "c"], "b": ["a"], "c": []}, ["a"]], [{"a": null}, ["a", "x"]]])),
        ("indexof", json!([["abc", "c"], ["äbc", "c"], ["abc", "x"], ["", ""], ["a", ""], ["", "a"]])),
        ("indexof_n", json!([["aaaa", "aa"], ["äbäb", "b"], ["abc", ""], ["", ""]])),
        (
            "json.filter",
            json!([
                [{"a": {"b": 1, "{id}": 2}, "c": [5, 6]}, ["a/b", "c/1"]],
                [{"a": {"b": 1, "{id}": 2}, "c": [5, 6]}, [["a", "{id}"], ["c", "0"]]],
            ]),
        ),
        ("json.is_valid", json!([["{}"], ["[1,"], ["1 2"]])),
        ("json.marshal_with_options", json!([[{"a": [1, {"b": 2}]}, {"indent": "  ", "prefix": "> "}], [[1], {}]])),
        (
            "json.remove",
            json!([[{"a": {"b": 1, "{id}": 2}, "c": [5, 6]}, ["a/b", "c/1", ["a", "{id}"]]], [{"a": 1}, []]]),
        ),
        ("json.unmarshal", json!([["{\"a\": [1, 2.5, \"x\", null]}"], ["18446744073709551615"], ["1e3"]])),
        ("net.cidr_expand", json!([["10.0.0.0/29"], ["10.0.0.1/32"], ["fd00::/126"]])),
        ("numbers.range", json!([[1, 5], [5, 1], [0, 0], [-3, 3], [1.0, 3.0], [1, 10000]])),
        ("numbers.range_step", json!([[1, 9, 3], [9, 1, 4], [0, 0, 7], [1, 10, 100]])),
        ("object.subset", json!([[{"a": [1, 2, 3]}, {"a": [2, 3]}], [[1, 2, 3], [3, 2]], [{"a": 1}, {"b": 1}]])),
        ("object.union_n", json!([[[{"a": 1}, {"a": {"b": 2}}, {"a": {"c": 3}}]], [[]]])),
        ("product", json!([[[1, 2, 3]], [[]], [[0.5, 4]]])),
        ("regex.find_all_string_submatch_n", json!([["(a)(b?)", "abab a", -1], ["a", "aaa", 2], ["x", "a", 5]])),
        ("regex.find_n", json!([["a.", "abacad", -1], ["a", "aaa", 2], ["a", "aaa", 0], ["", "ab", -1]])),
        ("regex.is_valid", json!([["("], ["a+"]])),
        ("regex.match", json!([["^a+$", "aaa"], ["b", "aaa"]])),
        (
            "regex.replace",
            json!([
                ["a-b", "(a)-(b)", "$2-$1"],
                ["aaa", "a", ""],
                ["x", "y", "z"],
                ["äbä", "", "-"],
                ["ab", "(?P<n>.)", "${n}${n}"],
                ["", "^", "$0x$$"]
            ]),
        ),
        ("regex.split", json!([[",", "a,b,c"], [",", ""], ["", "äb"]])),
        ("regex.template_match", json!([["urn:{[a-z]+}:x", "urn:abc:x", "{", "}"]])),
        ("replace", json!([["aXbX", "X", "yy"], ["ab", "", "-"], ["", "a", "b"]])),
        ("split", json!([["a,b", ","], ["ab", ""], ["", ","]])),
        ("sprintf", json!([["%5d|%05d|%.2f|%s|%%|%v", [1, 2, 1.234, "x", [1]]], ["100%%5", []]])),
        ("strings.any_prefix_match", json!([[["abc"], ["ab", "x"]], ["abc", "b"]])),
        ("strings.any_suffix_match", json!([[["abc"], ["bc", "x"]], ["abc", "b"]])),
        ("strings.count", json!([["aaaa", "aa"], ["ab", "c"]])),
        ("strings.replace_n", json!([[{"a": "b", "b": "cc"}, "aab"], [{}, "x"]])),
        ("to_number", json!([["12"], ["1.5"], ["-3e2"], [" 7 "], [true], [false], [null], [4]])),
        ("trim", json!([["..a..", "."]])),
        ("trim_left", json!([["..a..", "."]])),
        ("trim_right", json!([["..a..", "."]])),
        ("units.parse", json!([["10Ki"], ["1.5G"], ["1e3"], ["100m"]])),
        ("units.parse_bytes", json!([["10KiB"], ["1.5GB"], ["7"]])),
        ("walk", json!([[{"a": [1, {"b": 2}]}], [5]])),
    ] {
        let (_, _, bound) = BOUNDED.into_iter().find(|(bounded, ..)| *bounded == name).unwrap();
        for given in arguments.as_array().unwrap() {
            let given: Vec<_> = given.as_array().unwrap().iter().cloned().map(Value::from).collect();
            let ours = extension::<io::Error>(name, bound)(given.clone()).map_err(|error| error.to_string());
            assert_eq!(ours, original(name, &given), "{name} {given:?}");
        }
    }
    let sets = Value::from_json_str("[]").unwrap();
    assert!(extension::<io::Error>("union", Check(checks::union_of_all))(vec![sets]).is_err(), "an array is no set");
}

#[test]
fn a_set_that_calls_none_of_them_carries_none() {
    let decision = decide(&policy("deny[\"no\"] { startswith(input.tool, \"calc\") }"), json!({}));
    assert_eq!(decision.denials, ["no"]);
    let mut engine = Engine::new();
    bound(&mut engine, |name| name == "walk").unwrap();
    let taken = |engine: &mut Engine, name: &str| {
        engine.add_extension(name.to_owned(), 1, Box::new(|_: Vec<Value>| Ok(Value::Null))).is_err()
    };
    assert!(taken(&mut engine, "walk"));
    assert!(!taken(&mut engine, "union"));
}
