//! Short programs of analysts, as data, with the results that a desktop's Python gives
//! (`tests/sandbox/snippets/expect.py`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::PythonApp;

const SNIPPETS: &str = include_str!("../../sandbox/snippets/snippets.txt");
const EXPECTED: &str = include_str!("../../sandbox/snippets/expected.json");

/// The relative difference that two implementations of the same floating-point function may have.
const TOLERANCE: f64 = 1e-9;

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|it| is_same(value, it)))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(1.0)
        }
        _ => one == other,
    }
}

#[tokio::test]
async fn snippets_give_what_a_desktop_gives() {
    let expected: BTreeMap<&str, Value> = serde_json::from_str(EXPECTED).unwrap();
    let app = PythonApp::start().await;
    let mut wrong = Vec::new();
    let snippets: Vec<_> = SNIPPETS.split("#: ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    assert!(snippets.len() >= 200 && snippets.len() == expected.len());
    for (name, code) in snippets {
        let (_, reply) = app.call(serde_json::json!({"code": code})).await;
        let (result, wanted) = (&reply["output"]["result"], &expected[name]);
        if reply["success"] != true || !is_same(result, wanted) {
            let given = if reply["success"] == true { result } else { &reply["error"] };
            wrong.push(format!("{name}: {given} where {wanted} is expected"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
