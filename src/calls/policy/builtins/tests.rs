//! Each builtin is bounded, and the replaced ones still give the answers of regorus' own.

mod every_builtin;
mod outgrowing;

use serde_json::json;

use super::*;
use crate::policy::tests::{decide, policy};

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
