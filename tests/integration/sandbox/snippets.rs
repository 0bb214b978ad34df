//! Short programs of analysts and single expressions, as data, with the results that a desktop's Python gives
//! (`tests/sandbox/snippets/expect.py`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::PythonApp;

const SNIPPETS: &str = include_str!("../../sandbox/snippets/snippets.txt");
const EXPECTED: &str = include_str!("../../sandbox/snippets/expected.json");

const PREAMBLE: &str = include_str!("../../sandbox/snippets/preamble.py");
const ONE_LINERS: &str = include_str!("../../sandbox/snippets/one_liners.txt");
const ONE_LINERS_EXPECTED: &str = include_str!("../../sandbox/snippets/one_liners.json");
/// By expression, what it gives here, and why it is not what a desktop gives.
const DIFFERENCES: &str = include_str!("../../sandbox/snippets/differences.json");
/// So many expressions are one program.
const TOGETHER: usize = 50;

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

/// The same in a program, in a file that it imports, and in a text that it executes.
#[tokio::test]
async fn one_liners_give_what_a_desktop_gives_in_all_code_of_a_run() {
    let desktop: BTreeMap<String, Value> = serde_json::from_str(ONE_LINERS_EXPECTED).unwrap();
    let differences: BTreeMap<String, (String, Value)> = serde_json::from_str(DIFFERENCES).unwrap();
    let stale = differences.iter().filter(|(line, (_, here))| desktop.get(*line).is_none_or(|it| is_same(it, here)));
    assert_eq!(stale.count(), 0, "each difference is one of an expression that is there");
    let lines: Vec<_> = ONE_LINERS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() >= 600 && lines.len() == desktop.len());
    let app = PythonApp::start().await;
    let mut wrong = Vec::new();
    for (part, lines) in lines.chunks(TOGETHER).enumerate() {
        let outcomes: Vec<_> = lines.iter().map(|line| format!("outcome(lambda: {line})")).collect();
        let code = format!("{PREAMBLE}\nvalues = [\n{}\n]\n", outcomes.join(",\n"));
        let text = Value::from(code.as_str());
        for program in [
            format!("{code}values"),
            format!("open('part_{part}.py', 'w').write({text})\nimport part_{part}\npart_{part}.values"),
            format!("exec({text})\nvalues"),
        ] {
            let values = app.run(&program).await["result"].take();
            for (line, here) in lines.iter().zip(values.as_array().unwrap()) {
                let wanted = differences.get(*line).map_or(&desktop[*line], |(_, here)| here);
                if !is_same(here, wanted) {
                    wrong.push(format!("{line}: {here} where {wanted} is expected"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
