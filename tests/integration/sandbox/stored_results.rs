//! Programs open stored results: those that their callers may read, and no others.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::PythonApp;
use crate::app::{answer, code};
use crate::audit_events::lines;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};

const IMPORT: &str = "from host import tools, ToolError\n";

const YAML: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada}
    - {id: eve, key: key-of-eve}
mcp:
  endpoints:
    coded: {code_mode: true, tools: [json_query, python_executor], results: handles}
tools: {overrides: {python_executor: {rate_limit: 1000000}}}
";

async fn app(more: &str) -> PythonApp {
    PythonApp::in_directory(TempDir::new().unwrap(), &[YAML, more].concat()).await
}

/// Makes a call of Ada whose result is stored, and gives its handle.
async fn store(app: &PythonApp, session: Option<&str>, arguments: Value) -> String {
    let body = json!({"arguments": arguments, "session_id": session});
    let request = app.app.post("/tools/json_query/execute").bearer_auth("key-of-ada").header("prefer", "handle");
    let (_, reply) = answer(request.json(&body)).await;
    reply["output"]["result_handle"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn rows() -> Value {
    json!({"query": "[].{id: @, name: 'a row of many'}", "data": (0..3_000).collect::<Vec<_>>()})
}

/// The value of a program that must go well, and the receipt of its call.
async fn run(app: &PythonApp, key: &str, session: Option<&str>, program: &str) -> (Value, Value) {
    let code = [IMPORT, program].concat();
    let body = json!({"arguments": {"code": code}, "session_id": session});
    let request = app.app.post("/tools/python_executor/execute").bearer_auth(key).json(&body);
    let (status, mut reply) = answer(request).await;
    assert!(status == StatusCode::OK && reply["success"] == true, "{program}\n{status}: {reply}");
    (reply["output"]["result"].take(), reply["receipt"].take())
}

#[tokio::test]
async fn a_program_opens_a_result_as_values_and_with_pandas_as_a_table() {
    let app = app("").await;
    let handle = store(&app, None, rows()).await;
    let plain = format!("rows = tools.result('{handle}')\n[type(rows).__name__, len(rows), rows[2999]]");
    let (result, receipt) = run(&app, "key-of-ada", None, &plain).await;
    assert_eq!(result, json!(["list", 3_000, {"id": 2_999, "name": "a row of many"}]));
    let nested = &receipt["nested"]["calls"];
    assert_eq!((nested.as_array().unwrap().len(), &nested[0]["tool"]), (1, &json!("read_result")), "{receipt}");
    let table = format!(
        "import pandas\nrows = tools.result('{handle}')\n[type(rows).__name__, list(rows.shape), int(rows['id'].sum())]"
    );
    let expected = json!(["DataFrame", [3_000, 2], 4_498_500]);
    assert_eq!(run(&app, "key-of-ada", None, &table).await.0, expected);
    let awaited = format!("import pandas\nframe = await tools.result('{handle}')\nlen(frame)");
    assert_eq!(run(&app, "key-of-ada", None, &awaited).await.0, 3_000);

    let lines_of_csv: String = (0..5_000).map(|n| format!("city {n},{n}\n")).collect();
    let csv = store(&app, None, json!({"query": "@", "data": format!("city,amount\n{lines_of_csv}")})).await;
    let opened =
        format!("import pandas\nsales = tools.result('{csv}')\n[list(sales.columns), int(sales.amount.max())]");
    assert_eq!(run(&app, "key-of-ada", None, &opened).await.0, json!([["city", "amount"], 4_999]));
    let (text, _) = run(&app, "key-of-ada", None, &format!("tools.result('{csv}').count('\\n')")).await;
    assert_eq!(text, 5_001, "without pandas it is a text");

    let codes = format!("zip,country,iban\n00001,NA,12345678901234567\n{}", "10115,,98765432109876543\n".repeat(5_000));
    let csv = store(&app, None, json!({"query": "@", "data": codes})).await;
    let opened = format!("import pandas\ntools.result('{csv}').head(2).values.tolist()");
    let expected = json!([["00001", "NA", "12345678901234567"], ["10115", "", "98765432109876543"]]);
    assert_eq!(run(&app, "key-of-ada", None, &opened).await.0, expected);
    let mut ids = vec![json!({"id": 9_007_199_254_740_995_i64, "v": 1})];
    ids.extend((0..5_000).map(|n| json!({"v": n})));
    let rows = store(&app, None, json!({"query": "@", "data": ids})).await;
    let opened = format!("import pandas\nrows = tools.result('{rows}')\n[str(rows.id.dtype), str(rows.id[0])]");
    assert_eq!(run(&app, "key-of-ada", None, &opened).await.0, json!(["Int64", "9007199254740995"]));

    // Each is a call, with its line.
    let directory = app.app.stop().await;
    let lines = lines(directory.path());
    let reads = lines.iter().filter(|line| line["tool"] == "read_result" && line["depth"] == 1);
    assert_eq!(reads.clone().count(), 7);
    assert!(reads.clone().all(|line| line["caller"] == "ada" && line["via"] == "sandbox"), "{lines:#?}");
}

#[tokio::test]
async fn a_program_opens_what_its_caller_may_read_in_its_session_and_nothing_else() {
    let deny = "package tools\ndeny[msg] { input.tool == \"read_result\"; input.arguments.handle == \"closed\"\n\
                msg := \"this one is closed\" }\n";
    let policies = TempDir::new().unwrap();
    std::fs::write(policies.path().join("rules.rego"), deny).unwrap();
    let app = app(&format!("policy: {{directory: '{}'}}\n", policies.path().display())).await;
    let (alone, monday) = (store(&app, None, rows()).await, store(&app, Some("monday"), rows()).await);
    let (alone, monday) = (alone.as_str(), monday.as_str());
    for (key, session, handle, expected) in [
        ("key-of-ada", Some("monday"), monday, "3000"),
        ("key-of-ada", None, monday, "unknown_result"),
        ("key-of-ada", Some("tuesday"), monday, "unknown_result"),
        ("key-of-eve", Some("monday"), monday, "unknown_result"),
        ("key-of-eve", None, alone, "unknown_result"),
        ("key-of-ada", None, "closed", "denied"),
        ("key-of-ada", None, "../../etc/passwd", "unknown_result"),
    ] {
        let program = format!(
            "try:\n  kept = str(len(tools.result('{handle}')))\nexcept ToolError as error:\n  kept = error.code\nkept"
        );
        assert_eq!(run(&app, key, session, &program).await.0, expected, "{key} {session:?} {handle}");
    }
    let whole = json!({"arguments": {"handle": alone, "whole": true}});
    let request = app.app.post("/tools/read_result/execute").bearer_auth("key-of-ada").json(&whole);
    let (status, refused) = answer(request).await;
    assert_eq!((status, code(&refused)), (StatusCode::BAD_REQUEST, "invalid_arguments"), "{refused}");
}

/// What a model was shown as a preview, its next program opens. The model gets no row of it.
#[tokio::test]
async fn a_model_passes_a_result_to_its_next_program_by_the_handle() {
    let app = app("").await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::new(&app.app, revision, Some("key-of-ada")).at_endpoint("coded");
        let client = if revision == OLDER { client.introduced().await } else { client };
        let run = async |program: &str| {
            let code = [IMPORT, program].concat();
            let call = json!({"name": "run_python", "arguments": {"code": code}});
            client.result("tools/call", call, "CallToolResult").await["structuredContent"].clone()
        };
        let preview = run("[{'id': n, 'name': 'a row of many'} for n in range(3000)]").await;
        let handle = preview["result_handle"].as_str().unwrap_or_else(|| panic!("{revision}: {preview}"));
        let opened = run(&format!("sum(row['id'] for row in tools.result('{handle}')['result'])")).await;
        assert_eq!(opened["result"], 4_498_500, "{revision}: {opened}");
    }
}
