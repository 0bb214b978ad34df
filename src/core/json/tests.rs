use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::arbitrary::any_json;
use super::*;
use crate::call::Arguments;
use crate::checkout::checkout;

/// Cases of the JSONTestSuite (Nicolas Seriot, MIT): `y_` must be read, `n_` refused, `i_` survived.
fn suite(kind: &str) -> Vec<(String, Vec<u8>)> {
    let cases: Vec<_> = fs::read_dir(checkout().join("tests/fixtures/json"))
        .unwrap()
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .filter(|(name, _)| name.starts_with(kind))
        .collect();
    assert!(cases.len() > 30, "only {} cases of {kind}", cases.len());
    cases
}

#[test]
fn what_must_be_read_is_read_as_serde_json_reads_it() {
    for (name, text) in suite("y_") {
        match parse(&text) {
            Ok(value) => assert_eq!(value, serde_json::from_slice::<Value>(&text).unwrap(), "{name}"),
            Err(refused) => assert!(name.contains("duplicated_key"), "{name}: {refused}"),
        }
    }
}

#[test]
fn what_must_be_refused_is_refused() {
    for (name, text) in suite("n_") {
        assert!(parse(&text).is_err(), "{name}");
    }
}

#[test]
fn what_may_be_read_is_read_alike_or_refused() {
    for (name, text) in suite("i_") {
        if let Ok(value) = parse(&text) {
            assert_eq!(value, serde_json::from_slice::<Value>(&text).unwrap(), "{name}");
        }
    }
}

#[test]
fn refusals_report_the_error_and_its_position() {
    let cases: [(&[u8], &str); 10] = [
        (b"{\"a\":1,\n\"a\":2}", r#"duplicate key "a"; use each key once (line 2, column 3)"#),
        (
            br#"{"b":[0,{"x/y":{"k":1,"k":1}}]}"#,
            r#"duplicate key "k" in "/b/1/x~1y"; use each key once (line 1, column 25)"#,
        ),
        (br#"{"\u0061":1,"a":2}"#, r#"duplicate key "a"; use each key once (line 1, column 15)"#),
        (b"[1] 2", "trailing characters (line 1, column 5)"),
        (b"", "EOF while parsing a value (line 1, column 0)"),
        (b"[1e400]", "number out of range (line 1, column 6)"),
        (b"\"\xff\"", "invalid unicode code point (line 1, column 2)"),
        (br#""\ud800""#, "unexpected end of hex escape (line 1, column 8)"),
        (b"[NaN]", "expected value (line 1, column 2)"),
        (
            br#"{" at line 9 column 9":1," at line 9 column 9":1}"#,
            r#"duplicate key " at line 9 column 9"; use each key once (line 1, column 46)"#,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn nesting_is_read_to_the_bound_and_no_deeper() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    let refused = parse(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
    assert_eq!(refused.message, "nested more than 127 levels deep; send it flatter");
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    assert!(parse("[{\"\":".repeat(50_000).as_bytes()).is_err());
}

/// With its `raw_value` feature, `serde_json` reads this key of a `Value` as "more JSON inside".
#[test]
fn no_key_is_magic() {
    let text = br#"{"a":{"$serde_json::private::RawValue":"{\"a\":1,\"a\":2}"}}"#;
    assert!(parse(text).unwrap_err().message.contains("reserved"));
}

#[test]
fn a_body_of_a_known_type_is_read_as_strictly() {
    #[derive(Debug, serde::Deserialize)]
    struct Body {
        arguments: Value,
    }
    let body: Body = parse_as(br#"{"arguments":{"z":1,"a":[1.5]}}"#).unwrap();
    assert_eq!(body.arguments, json!({"z": 1, "a": [1.5]}));
    for text in [r#"{"arguments":{"a":1,"a":2}}"#, r#"{"arguments":{},"arguments":{}}"#, r#"{"arguments":{}}x"#] {
        assert!(parse_as::<Body>(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn values_are_counted_before_any_is_built() {
    let cases = [("0", 1), ("[]", 1), ("[0,[],{}]", 4), (r#"{"a":1,"b":[null,"x"]}"#, 5), (r#""a,b[c""#, 1)];
    for (text, values) in cases {
        assert_eq!(CheckedJson::new(text.as_bytes(), values).unwrap().counts.values, values, "{text}");
        let refused = CheckedJson::new(text.as_bytes(), values - 1).unwrap_err();
        assert_eq!(refused.kind, InvalidJsonKind::TooManyValues, "{text}");
    }
    let zeros = format!("[{}0]", "0,".repeat(MAX_VALUES));
    assert_eq!(parse(zeros.as_bytes()).unwrap_err().kind, InvalidJsonKind::TooManyValues);
}

#[test]
fn a_duplicate_among_many_keys_is_found() {
    let members = |last: &str| {
        let keys: Vec<_> = (0..100).map(|n| format!("\"k{n}\":0")).chain([format!("{last}:1")]).collect();
        format!("{{{}}}", keys.join(","))
    };
    assert!(parse(members("\"k100\"").as_bytes()).is_ok());
    for twice in ["\"k3\"", "\"k\\u0033\"", "\"k77\"", "\"k\\u00377\""] {
        assert!(parse(members(twice).as_bytes()).unwrap_err().message.starts_with("duplicate key"), "{twice}");
    }
}

fn digest_of(value: Value) -> [u8; 32] {
    match value {
        Value::Object(members) => digest(&members),
        other => digest(&Arguments::from_iter([("value".to_owned(), other)])),
    }
}

/// SHA-256 over the text that RFC 8785 gives for its own example (§3.2.4).
#[test]
fn the_digest_is_that_of_the_rfc_8785_form() {
    let example = parse(
        br#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
            "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
    )
    .unwrap();
    let canonical = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    use sha2::{Digest, Sha256};
    assert_eq!(digest_of(example), <[u8; 32]>::from(Sha256::digest(canonical)));
}

/// The order of UTF-16 code units (RFC 8785 §3.2.3): in UTF-8 the last two would change places.
#[test]
fn keys_are_in_the_order_of_utf_16() {
    use sha2::{Digest, Sha256};
    let canonical = "{\"\\r\":1,\"1\":2,\"é\":3,\"€\":4,\"😀\":5,\"\u{fb33}\":6}";
    let keys = json!({"\u{fb33}": 6, "😀": 5, "€": 4, "é": 3, "1": 2, "\r": 1});
    assert_eq!(digest_of(keys), <[u8; 32]>::from(Sha256::digest(canonical)));
}

#[test]
fn equal_values_share_a_digest_and_different_ones_do_not() {
    assert_eq!(digest_of(json!({"n": 1.0})), digest_of(json!({"n": 1})));
    assert_eq!(digest_of(json!({"n": -0.0})), digest_of(json!({"n": 0})));
    let different = [
        json!({"n": 9_007_199_254_740_993_u64}),
        json!({"n": 9_007_199_254_740_992_u64}),
        json!({"n": "1"}),
        json!({"n": 1}),
        json!({"n": [1]}),
        json!({"n": null}),
        json!({}),
    ];
    for (position, one) in different.iter().enumerate() {
        for other in &different[..position] {
            assert_ne!(digest_of(one.clone()), digest_of(other.clone()), "{one} {other}");
        }
    }
}

fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect())
        }
        Value::Array(items) => items.iter().map(reversed).collect(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_as_serde_json_reads_them_or_refused(bytes: Vec<u8>) {
        if let Ok(value) = parse(&bytes) {
            prop_assert_eq!(value, serde_json::from_slice::<Value>(&bytes).unwrap());
        }
    }

    #[test]
    fn what_is_written_is_read_back(value in any_json()) {
        prop_assert_eq!(parse(value.to_string().as_bytes()).unwrap(), serde_json::from_str::<Value>(&value.to_string()).unwrap());
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_keys(value in any_json()) {
        prop_assert_eq!(digest_of(reversed(&value)), digest_of(value));
    }

    #[test]
    fn the_digest_agrees_with_another_canonicalizer(members in prop::collection::btree_map(".{0,6}", any_json(), 0..5)) {
        use sha2::{Digest, Sha256};
        let members: Arguments = members.into_iter().collect();
        let text = serde_json_canonicalizer::to_vec(&members).unwrap();
        prop_assert_eq!(digest(&members), <[u8; 32]>::from(Sha256::digest(text)));
    }
}

#[test]
fn a_footprint_counts_what_memory_holds_not_what_the_text_would() {
    let node = size_of::<Value>();
    assert_eq!(footprint(&json!([1, 2, 3])), 4 * node);
    assert_eq!(footprint(&json!("x".repeat(1_000))), node + 1_000);
    assert_eq!(footprint(&json!({"key": null})), 2 * node + size_of::<String>() + 3);
}
