//! Files of tools as they are written for other frameworks: they are read, executed, and their functions called.

use super::*;

/// The results of the tasks of a case, in the same interpreter.
fn results(case: &Value, shared: &str, calls: &[(String, Value, bool)]) -> Vec<Value> {
    let (file, settings) = (FILE.to_owned(), r#"{"x": "y"}"#.to_owned());
    let functions = calls.iter().map(|(function, ..)| function.clone()).collect();
    let shared = shared.to_owned();
    let mut tasks =
        vec![ModuleTask::Try { file: file.clone(), functions, settings: settings.clone(), shared: shared.clone() }];
    tasks.extend(calls.iter().map(|(function, arguments, converts)| {
        ModuleTask::Call(FunctionCall {
            file: file.clone(),
            function: function.clone(),
            arguments: arguments.to_string(),
            settings: settings.clone(),
            shared: shared.clone(),
            needs: Vec::new(),
            converts: *converts,
        })
    }));
    let tasks = serde_json::to_string(&tasks).unwrap();
    let ran = run_all(&prelude(), case["source"].as_str().unwrap(), 256 << 10, &[], Some(&tasks));
    let ends = ran.frames.iter().filter(|frame| frame["op"] == "done");
    let of = |frame: &Value| match frame["result"].as_str() {
        Some(result) => serde_json::from_str(result).unwrap(),
        None => frame["end"].clone(),
    };
    let ends: Vec<_> = ends.map(of).collect();
    assert_eq!(ends.len(), calls.len() + 1, "{}: {}", case["name"], ran.stderr());
    ends
}

#[test]
fn files_of_the_field_are_tools() {
    let mut cases: Vec<Value> =
        serde_saphyr::from_str(include_str!("../../../../../tests/python_tools/field.yaml")).unwrap();
    cases.extend(
        serde_saphyr::from_str::<Vec<Value>>(include_str!("../../../../../tests/python_tools/libraries.yaml")).unwrap(),
    );
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in &cases {
        let source = case["source"].as_str().unwrap();
        let all = if case["shared"].is_null() { "{}".to_owned() } else { case["shared"].to_string() };
        let found = read_with(source, &all);
        assert_eq!(found["problems"], json!([]), "{}", case["name"]);
        let tools = found["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(json!(names), case["tools"], "{}", case["name"]);
        let dangerous = tools.iter().filter(|tool| tool["dangerous"] == true).map(|tool| &tool["name"]);
        let expected = if case["dangerous"].is_null() { json!([]) } else { case["dangerous"].clone() };
        assert_eq!(json!(dangerous.collect::<Vec<_>>()), expected, "{}", case["name"]);
        if !case["parameters"].is_null() {
            assert_eq!(tools[0]["parameters"], case["parameters"], "{}", case["name"]);
        }
        let used = found["shared"].as_array().unwrap();
        let used: serde_json::Map<_, _> = used
            .iter()
            .map(|path| (path.as_str().unwrap().to_owned(), case["shared"][path.as_str().unwrap()].clone()))
            .collect();
        let expected = case["calls"].as_array().unwrap();
        let calls: Vec<_> = expected.iter().map(|call| call_in(tools, call)).collect();
        let results = results(case, &Value::from(used).to_string(), &calls);
        assert_eq!(results[0]["missing"], json!([]), "{}: {}", case["name"], results[0]);
        for (call, result) in expected.iter().zip(&results[1..]) {
            let (key, found) = match () {
                () if !call["invalid"].is_null() => ("invalid", &result["invalid"]["path"]),
                () if !call["raises"].is_null() => ("raises", &result["type"]),
                () => ("value", &result["value"]),
            };
            assert_eq!(found, &call[key], "{}: {call}\n{result}", case["name"]);
        }
    }
}

/// The function of a call, its arguments, and whether they are converted.
fn call_in(tools: &[Value], call: &Value) -> (String, Value, bool) {
    let function = call["function"].as_str().unwrap();
    let tool = tools.iter().find(|tool| tool["function"] == function).unwrap();
    (function.to_owned(), call["arguments"].clone(), tool["converts"].as_bool().unwrap())
}
