use proptest::prelude::*;
use serde_json::json;

use super::*;

/// None.
const BOUNDS: Bounds = Bounds { memory: usize::MAX, output: usize::MAX, depth: usize::MAX };

fn people() -> Value {
    json!({"people": [
        {"name": "Ada", "age": 36, "tags": ["maths", "poetry"]},
        {"name": "Grace", "age": 85, "tags": ["navy"]},
    ], "total": 9_007_199_254_740_993_i64})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_agrees_with_the_crate_where_the_crate_is_harmless(
        query in "(people|total|@)(\\[(\\*|0|-1|:1|\\]?)\\])?(\\.(name|age|tags|\\{a: name, b: age\\}|\\[name, age\\]))?( (\\|\\||&&|==) people)?"
    ) {
        let data = people();
        let Ok(theirs) = jmespath::compile(&query).and_then(|expression| expression.search(&data)) else {
            return Ok(());
        };
        let tree = parse(&query).unwrap();
        let data = Rcvar::new(Variable::from_serializable(&data).unwrap());
        let ours = Evaluation::new(&query, BOUNDS, &|| false).evaluate(&tree, &data).unwrap();
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn a_projection_selects_and_names_its_setting_when_it_cannot_be_used() {
    let projection = Projection::compile("find", "people[*].{who: name}").unwrap();
    let selected = projection.of(&people(), 1 << 20, 1 << 10).unwrap();
    assert_eq!(selected, json!([{"who": "Ada"}, {"who": "Grace"}]));
    assert_eq!(projection, Projection::compile("find", projection.expression()).unwrap());
    for (expression, problem) in [
        ("people[", "character 7"),
        ("[".repeat(65).as_str(), "deeper than 64"),
        ("a".repeat(MAX_QUERY_BYTES + 1).as_str(), "longer than 4096 bytes"),
    ] {
        let error = Projection::compile("find", expression).unwrap_err().to_string();
        assert!(error.starts_with("`find` (") && error.contains(problem), "{error}");
    }
}

#[test]
fn a_projection_stays_within_its_bounds() {
    let doubled = Projection::compile("find", &["[@,@]"; 40].join("|")).unwrap();
    let large = doubled.of(&json!("x"), 1 << 20, 1 << 10).unwrap_err();
    assert!(large.message().contains("1024 bytes"), "{}", large.message());
    let compared = Projection::compile("find", &format!("{} | @ == @", ["[@,@]"; 40].join("|"))).unwrap();
    assert!(compared.of(&json!("x"), 1 << 20, 1 << 10).unwrap_err().message().contains("memory limit"));
    let deep = Projection::compile("find", &["a"; 2_000].join(".")).unwrap();
    assert!(deep.of(&json!({}), 1 << 20, 1 << 10).unwrap_err().message().contains("more than 100 levels"));
}
