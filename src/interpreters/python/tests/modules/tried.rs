//! Modules that were executed once, whose functions are called several times in the same interpreter.

use super::*;

/// Tries a module, and then calls a function of it several times, as in an interpreter that goes on from its image.
fn tried_and_called(code: &str, calls: &[(&str, &[&str])]) -> Vec<Value> {
    let (file, settings) = (FILE.to_owned(), "{}".to_owned());
    let (functions, shared) = (Vec::new(), "{}".to_owned());
    let mut tasks = vec![ModuleTask::Try { file: file.clone(), functions, settings: settings.clone(), shared }];
    tasks.extend(calls.iter().map(|(function, needs)| {
        ModuleTask::Call(FunctionCall {
            file: file.clone(),
            function: (*function).to_owned(),
            arguments: "{}".to_owned(),
            settings: settings.clone(),
            shared: "{}".to_owned(),
            needs: needs.iter().map(|tool| (*tool).to_owned()).collect(),
            converts: false,
        })
    }));
    let ran = run_all(&prelude(), code, 256 << 10, &[], Some(&serde_json::to_string(&tasks).unwrap()));
    let ends = ran.frames.iter().filter(|frame| frame["op"] == "done");
    ends.map(|frame| match frame["result"].as_str() {
        Some(result) => serde_json::from_str(result).unwrap(),
        None => frame["end"].clone(),
    })
    .collect()
}

#[test]
fn a_module_that_was_tried_is_not_executed_again() {
    let code = "import atexit, random\nfrom host import tools\nCOUNT = [0]\nLEFT = []\n\
                atexit.register(LEFT.append, 1)\nCOUNT[0] += 1\n\
                def count() -> list:\n    return [COUNT[0], LEFT]\n\
                def draws() -> float:\n    return random.random()\n\
                def asks() -> dict:\n    return tools.add(a=1, b=2)\n";
    let ran =
        tried_and_called(code, &[("count", &[]), ("draws", &[]), ("draws", &[]), ("asks", &["add"]), ("asks", &[])]);
    assert_eq!(ran[0], json!({"missing": [], "is_repeatable": true}));
    assert_eq!(ran[1], json!({"value": [1, []]}), "its exit functions are those of the call");
    assert_ne!(ran[2], ran[3], "random numbers are seeded for each call");
    assert_eq!(ran[4], json!({"value": {"sum": 3}}), "each call has the tools that it needs");
    assert!(ran[5]["message"].as_str().unwrap().contains("does not say that it needs add"), "{ran:?}");
}

#[test]
fn a_module_that_seeds_or_uses_random_numbers_says_so() {
    for line in ["random.seed(7)", "TOKEN = random.random()"] {
        let ran = tried_and_called(&format!("import random\n{line}\n"), &[]);
        assert_eq!(ran[0]["is_repeatable"], false, "{line}");
    }
    let ran = tried_and_called("import random\nOWN = random.Random(7)\nOWN.random()\n", &[]);
    assert_eq!(ran[0]["is_repeatable"], true, "its own generator, which has a seed");
}
