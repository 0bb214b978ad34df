//! Which tools a program finds.

use super::*;

#[test]
fn tools_are_described_as_far_as_the_caller_may_use_them() {
    let (pipeline, mut outer) = (Refusing::new(), outer());
    outer.nesting.scope = outer.nesting.scope.narrowed(&[], ["add".to_owned()]);
    let tools = tools(&pipeline, &outer, 9);
    let (is_ok, described) = ask(&tools, ToolQuestion::DescribeIdentifier("c_d".into())).unwrap();
    assert!(is_ok && described["name"] == "c-d" && described["inputSchema"]["type"] == "object", "{described}");
    for name in ["secret", "add", "nope", "c_d"] {
        let (is_ok, error) = ask(&tools, ToolQuestion::Describe(name.into())).unwrap();
        assert!(!is_ok && error["kind"] == "unknown_tool", "{name}: {error}");
    }
    let (is_ok, error) = ask(&tools, ToolQuestion::DescribeIdentifier("a_b".into())).unwrap();
    assert!(!is_ok && error["message"].as_str().unwrap().contains(r#"tools[\"a-b\"]"#), "{error}");
    for (question, meant) in [
        (ToolQuestion::Describe("hung".into()), "did you mean tools.hang? tools.search("),
        (ToolQuestion::DescribeIdentifier("c".into()), r#"did you mean tools[\"c-d\"]?"#),
        (ToolQuestion::Describe("secrets".into()), "for this program; tools.search("),
    ] {
        let (_, error) = ask(&tools, question.clone()).unwrap();
        assert!(error["message"].as_str().unwrap().contains(meant), "{question:?}: {error}");
    }
    let (_, found) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: u32::MAX }).unwrap();
    let mut found: Vec<_> =
        found.as_array().unwrap().iter().map(|hit| (hit["name"].as_str(), &hit["ambiguous"])).collect();
    found.sort_by_key(|(name, _)| *name);
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(found, [(Some("a-b"), &yes), (Some("a_b"), &yes), (Some("c-d"), &no), (Some("hang"), &no)]);
    let (_, one) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: 1 }).unwrap();
    assert!(one.as_array().unwrap().len() == 1 && one[0]["description"].as_str().unwrap().ends_with('.'), "{one}");
}

#[test]
fn a_function_has_the_tools_that_it_needs_and_no_others() {
    let (pipeline, outer) = (Refusing::new(), outer());
    let run = ProgramRun::without_journal(Some(Arc::clone(&pipeline) as Arc<dyn ToolPipeline>), &outer);
    let run = ProgramRun { scope: outer.nesting.scope.needing(&["add".to_owned()]), ..run };
    let tools = ProgramTools::new(run, &outer, "code", 9, Deadline::after(Duration::from_secs(9))).unwrap();
    for (name, is_needed) in [("add", true), ("c-d", false), ("hang", false)] {
        let (is_ok, described) = ask(&tools, ToolQuestion::Describe(name.into())).unwrap();
        assert_eq!(is_ok, is_needed, "{name}: {described}");
    }
    let (_, found) = ask(&tools, ToolQuestion::Search { query: "adds".into(), limit: 9 }).unwrap();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["name"]), (1, &json!("add")));
    call(&tools, 0, "add", "{}");
    let made = pipeline.made.lock();
    // The pipeline finds no other tool for the call, nor for the calls of the code that it runs.
    assert!(made[0].0.nesting.scope.admits("add") && !made[0].0.nesting.scope.admits("c-d"));
}
