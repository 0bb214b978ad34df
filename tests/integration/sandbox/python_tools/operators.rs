//! What operators see of files of functions: in the console, by commands, and of those that are broken.

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{OwnTools, TYPES, WEATHER};
use crate::app::{answer, code};
use crate::cli::{sekisho, text};
use crate::console::{Browser, KEYS, check_markup};

const BROKEN: &str = include_str!("../../../python_tools/broken.yaml");

#[tokio::test]
async fn operators_see_sources_cases_and_failures_and_nobody_else_does() {
    let keys = KEYS.replace("  anonymous: never\n", "");
    let cases = "- {name: by zero, tool: divide, arguments: {by: 0}, error: tool_error}\n";
    let bad = "# <script>alert(1)</script>\ndef now(city) -> str:\n    return city\n";
    let files = [("weather.py", TYPES), ("weather.cases.yaml", cases), ("bad.py", bad)];
    let own = OwnTools::start(&files, &keys).await;
    let app = &own.app.app;
    let call = app.post("/tools/weather__divide/execute").bearer_auth("key-of-root");
    let (_, reply) = answer(call.json(&json!({"arguments": {"by": 0}}))).await;
    assert_eq!(code(&reply), "tool_error", "{reply}");

    let get = async |path: &str, key: &str| answer(app.get(path).bearer_auth(key)).await;
    let (_, listed) = get("/admin/python-tools", "key-of-root").await;
    let names: Vec<_> = listed["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bad", "weather"]);
    assert!(listed["files"][0]["problems"][0].as_str().unwrap().contains("bad.py:2: `city` has no annotation"));
    assert!(listed["files"][1]["tools"].to_string().contains("weather__divide"), "{listed}");
    let (_, shown) = get("/admin/python-tools/weather", "key-of-root").await;
    assert_eq!((&shown["source"], &shown["cases"][0]["error"]), (&json!(TYPES), &json!("tool_error")), "{shown}");
    assert_eq!(
        (&shown["failures"][0]["tool"], shown["failures"].as_array().unwrap().len()),
        (&json!("weather__divide"), 1)
    );
    assert_eq!(get("/admin/python-tools/none", "key-of-root").await.0, StatusCode::NOT_FOUND);
    for key in ["key-of-ann", "key-of-vic", "key-of-nobody"] {
        for path in ["/admin/python-tools", "/admin/python-tools/weather"] {
            let (status, reply) = get(path, key).await;
            assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{key}: {reply}");
            assert!(!reply.to_string().contains("forecast"), "{reply}");
        }
    }

    let root = Browser::signed_in(app, "key-of-root").await;
    for (path, parts) in [
        ("/console/python-tools", &["weather.py", "weather__divide", "has no annotation"][..]),
        ("/console/python-tools/weather", &["def divide(by: int)", "by zero", "weather__divide"]),
        ("/console/python-tools/bad", &["&lt;script&gt;", "has no annotation"]),
        ("/console/tools/weather__divide", &["href=\"/console/python-tools/weather\""]),
    ] {
        let page = root.page(path).await;
        check_markup(&page);
        assert!(parts.iter().all(|part| page.contains(part)), "{path}: {page}");
    }
    // An operator of another tenant is led to no page that is refused.
    let ann = Browser::signed_in(app, "key-of-ann").await;
    for (browser, is_led) in [(&root, true), (&ann, false)] {
        assert_eq!(browser.page("/console").await.contains("href=\"/console/python-tools\""), is_led);
    }
}

/// Each broken file of the data in a folder, beside one that is fine.
#[tokio::test]
async fn broken_files_are_named_and_leave_the_others() {
    let cases: Vec<Value> = serde_saphyr::from_str(BROKEN).unwrap();
    let named: Vec<_> = (0..).map(|at| format!("broken{at}")).zip(&cases).collect();
    let files: Vec<_> = named.iter().map(|(name, case)| (format!("{name}.py"), source(case))).collect();
    let mut files: Vec<_> = files.iter().map(|(name, source)| (name.as_str(), source.as_str())).collect();
    let shared = cases.iter().filter_map(|case| case["shared"].as_object()).flatten();
    files.extend(shared.map(|(path, source)| (path.as_str(), source.as_str().unwrap())));
    files.push(("weather.py", WEATHER));
    files.push(("clash.py", "def one() -> int:\n    return 1\ndef two() -> int:\n    return 2\n"));
    let own = OwnTools::with(&files, "{}", "echo: {rename: clash__one}", "").await;
    let degraded = own.degraded().await;
    for (name, case) in &named {
        let reason = degraded[format!("python:{name}")].as_str().unwrap_or_else(|| panic!("{name} {case}: {degraded}"));
        let place = case["line"].as_u64().map_or_else(|| format!("{name}.py"), |line| format!("{name}.py:{line}: "));
        assert!(reason.contains(&place), "{case}\n{reason}");
        for says in case["says"].as_array().unwrap() {
            assert!(reason.contains(says.as_str().unwrap()), "{case}\n{reason}");
        }
    }
    assert_eq!(own.output("weather__now", json!({"city": "Bern"})).await["city"], "Bern");
    let clash = degraded["python:clash"].as_str().unwrap();
    assert!(clash.contains("clash__one (two tools have the name"), "{clash}");
    assert_eq!(own.output("clash__two", json!({})).await, 2);
}

fn source(case: &Value) -> String {
    let repeated = &case["repeat"];
    match repeated["times"].as_u64() {
        Some(times) => {
            let text = |name: &str| repeated[name].as_str().unwrap();
            text("before").to_owned() + &text("text").repeat(usize::try_from(times).unwrap())
        }
        None => case["source"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn the_check_and_the_list_name_what_is_broken() {
    let directory = TempDir::new().unwrap();
    let tools = directory.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("weather.py"), WEATHER).unwrap();
    fs::write(tools.join("bad.py"), "def now(city) -> str:\n    return city\ndef fine() -> int:\n    return 1\n")
        .unwrap();
    fs::write(tools.join("worse.py"), "def now() -> str\n").unwrap();
    let yaml = "python_tools: {directory: tools, settings: {wether: {}}}\n";
    fs::write(directory.path().join("sekisho.yaml"), yaml).unwrap();
    let run = |arguments: &[&str]| {
        let output = sekisho(&directory).args(["--config", "sekisho.yaml", "--json"]).args(arguments).output();
        output.unwrap()
    };
    let checked = run(&["check"]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let findings: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let of = |part: &str| {
        let found = findings.as_array().unwrap().iter().find(|finding| finding["part"] == part);
        found.unwrap_or_else(|| panic!("{part}: {findings}")).clone()
    };
    assert_eq!(of("python:weather"), json!({"part": "python:weather", "ok": true, "says": "weather__now"}));
    for (part, says) in
        [("python:bad", "bad.py:1: `city` has no annotation"), ("python:worse", "worse.py:1: expected ':'")]
    {
        let finding = of(part);
        assert!(finding["ok"] == false && finding["says"].as_str().unwrap().contains(says), "{finding}");
    }
    assert!(of("python_tools.settings.wether")["says"].as_str().unwrap().contains("did you mean `weather`?"));
    let listed = run(&["tools"]);
    let tools: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names: Vec<_> = tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(
        names.contains(&"weather__now") && names.contains(&"bad__fine") && !names.contains(&"bad__now"),
        "{names:?}"
    );
    assert!(text(&listed).contains("bad__now is not offered: bad.py:1"), "{}", text(&listed));
    let called = run(&["call", "weather__now", r#"{"city": "Bern"}"#]);
    assert_eq!(called.status.code(), Some(0), "{}", text(&called));
}

#[test]
fn an_example_is_written_and_its_cases_run() {
    let directory = TempDir::new().unwrap();
    let run = |arguments: &[&str]| sekisho(&directory).args(arguments).output().unwrap();
    let written = run(&["tools", "new", "weather"]);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written));
    assert!(text(&written).contains("tools/weather.py") && text(&written).contains("python_tools: {directory: tools}"));
    assert_eq!(run(&["tools", "new", "weather"]).status.code(), Some(1), "nothing is replaced");
    assert_eq!(run(&["tools", "new", "a-b"]).status.code(), Some(2));
    for command in ["test", "lock"] {
        assert_eq!(run(&["tools", command]).status.code(), Some(4), "no folder is configured");
    }

    fs::write(directory.path().join("sekisho.yaml"), "python_tools: {directory: tools}\n").unwrap();
    let test =
        |arguments: &[&str]| run(&[&["--config", "sekisho.yaml", "--json", "tools", "test"], arguments].concat());
    let tested = test(&["weather"]);
    assert_eq!(tested.status.code(), Some(0), "{}", text(&tested));
    let cases: Vec<Value> = serde_json::from_slice(&tested.stdout).unwrap();
    assert!(cases.len() == 4 && cases.iter().all(|case| case["ok"] == true), "{cases:?}");
    assert!(cases[0]["wall_ms"].as_f64().unwrap() > 0.0 && cases[0]["peak_memory_bytes"].as_u64().unwrap() > 0);

    let wrong = "- {name: wrong, tool: convert, arguments: {degrees: 32}, output: 1}\n\
                 - {name: slow, tool: convert, arguments: {degrees: 32}, max_seconds: 0.0000001}\n";
    fs::write(directory.path().join("tools/weather.cases.yaml"), wrong).unwrap();
    let tested = test(&[]);
    let cases: Vec<Value> = serde_json::from_slice(&tested.stdout).unwrap();
    assert_eq!((tested.status.code(), cases.len()), (Some(1), 2), "{cases:?}");
    assert!(cases[0]["problem"].as_str().unwrap().contains("and not 1"), "{cases:?}");
    assert!(cases[1]["problem"].as_str().unwrap().contains("should take"), "{cases:?}");
    assert_eq!(test(&["other"]).status.code(), Some(1), "no such file");
}
