use serde_json::Value;

use super::*;
use crate::builtin::tests::run_within;
use sekisho_calls::results::{LargeResult, ToolAccess};
use sekisho_config::{Config, Secret, SecretsConfig};
use sekisho_core::call::{CallContext, CallOrigin, Caller, Deadline, ResultHandles, Via};
use sekisho_observe::metrics::Metrics;
use sekisho_store::test_support::test_store;

/// Everybody may use the tool.
#[derive(Debug)]
struct OnlyReadResult;

impl ToolAccess for OnlyReadResult {
    fn may_use(&self, _caller: &Arc<Caller>, tool: &str) -> bool {
        tool == "read_result"
    }
}

/// The tool, and the results that it reads.
struct Reading {
    results: Arc<Results>,
    tool: ToolDefinition,
}

impl Reading {
    async fn new() -> Self {
        let key = Some(Secret::new("1f".repeat(32)));
        let config = Config { secrets: SecretsConfig { key, ..SecretsConfig::default() }, ..Config::default() };
        let results = Results::new(&config, test_store().await, Arc::new(Metrics::new("test").unwrap()));
        results.set_access(OnlyReadResult);
        let results = Arc::new(results);
        Self { tool: definition(&results), results }
    }

    async fn keep(&self, output: &Value) -> String {
        let large = LargeResult::new(output, "");
        assert!(self.results.keep(&call(), &large, true, Deadline::after(Duration::from_secs(60))).await);
        large.handle
    }

    /// A page with these arguments beside the handle.
    async fn page(&self, handle: &str, arguments: Value) -> Result<Value, CallError> {
        let mut arguments = arguments;
        arguments["handle"] = handle.into();
        run_within(&self.tool, &call(), arguments).await.map(|output| output.value)
    }
}

/// A call of a model that reads 2 000 bytes at once.
fn call() -> CallContext {
    let handles = Some(ResultHandles { max_inline_bytes: 2_000, session: Some("s".into()) });
    CallContext {
        origin: CallOrigin { handles, ..CallOrigin::default() },
        ..CallContext::new("read_result", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Agent)
    }
}

fn rows() -> Value {
    let rows: Vec<_> = (0..500).map(|id| json!({"id": id, "name": format!("row {id}")})).collect();
    json!({"total": 500, "rows": rows})
}

#[tokio::test]
async fn json_is_read_by_a_query_and_in_pages() {
    let reading = Reading::new().await;
    let handle = reading.keep(&rows()).await;
    let page = reading.page(&handle, json!({"query": "rows[?id > `497`].name"})).await.unwrap();
    let shown = json!({"content_type": "application/json", "items": ["row 498", "row 499"], "total": 2});
    assert_eq!(page, shown);
    let one = reading.page(&handle, json!({"query": "rows[7]"})).await.unwrap();
    assert_eq!(one, json!({"content_type": "application/json", "value": {"id": 7, "name": "row 7"}}));
    let page = reading.page(&handle, json!({"query": "rows", "offset": 490, "limit": 3})).await.unwrap();
    assert_eq!((page["items"][0]["id"].as_u64(), page["next_offset"].as_u64()), (Some(490), Some(493)));
    let found = reading.page(&handle, json!({"query": "rows", "grep": "row 49[89]"})).await.unwrap();
    assert_eq!((found["total"].as_u64(), found["items"][1]["id"].as_u64()), (Some(2), Some(499)));
}

#[tokio::test]
async fn the_digits_of_large_integers_in_a_text_that_is_json_are_kept() {
    let reading = Reading::new().await;
    let handle = reading.keep(&json!(r#"{"id": 12345678901234567890123, "n": 1}"#)).await;
    let page = reading.page(&handle, json!({"query": "id"})).await.unwrap();
    assert_eq!(page["text"], "12345678901234567890123\n");
    let whole = reading.page(&handle, json!({})).await.unwrap();
    assert_eq!(whole["value"], json!({"id": "12345678901234567890123", "n": 1}));
}

#[tokio::test]
async fn each_page_fits_and_all_of_them_are_the_whole() {
    let reading = Reading::new().await;
    let handle = reading.keep(&rows()).await;
    let (mut read, mut offset) = (Vec::new(), 0);
    loop {
        let page = reading.page(&handle, json!({"query": "rows", "offset": offset})).await.unwrap();
        assert!(page.to_string().len() <= 2_000, "{page}");
        read.extend(page["items"].as_array().unwrap().clone());
        match page["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(Value::from(read), rows()["rows"]);
}

#[tokio::test]
async fn what_is_too_large_for_a_page_is_previewed() {
    let reading = Reading::new().await;
    let handle = reading.keep(&rows()).await;
    let members = reading.page(&handle, json!({})).await.unwrap();
    assert_eq!(members["items"][0], json!({"key": "total", "value": 500}));
    let rows = &members["items"][1];
    assert_eq!(rows["preview"]["shape"], "{key: string, value: [500 × {id: number, name: string}]}");
    assert!(members.to_string().len() <= 2_000);
}

#[tokio::test]
async fn a_text_is_read_by_lines_and_searched() {
    let reading = Reading::new().await;
    let text: String = (1..=300).map(|line| format!("line {line}\n")).collect();
    let handle = reading.keep(&json!(text)).await;
    let page = reading.page(&handle, json!({"offset": 298})).await.unwrap();
    assert_eq!(page, json!({"content_type": "text/plain", "text": "line 299\nline 300\n", "total": 300}));
    let page = reading.page(&handle, json!({"limit": 2})).await.unwrap();
    assert_eq!((page["text"].as_str(), page["next_offset"].as_u64()), (Some("line 1\nline 2\n"), Some(2)));
    let found = reading.page(&handle, json!({"grep": "9$", "offset": 29})).await.unwrap();
    assert_eq!((found["text"].as_str(), found["total"].as_u64()), (Some("299: line 299\n"), Some(30)));
    let minified = reading.keep(&json!("x".repeat(2_500))).await;
    let page = reading.page(&minified, json!({"offset": 2})).await.unwrap();
    assert_eq!((page["text"].as_str().unwrap().len(), page["total"].as_u64()), (501, Some(3)), "a long line in pieces");
}

#[tokio::test]
async fn a_program_gets_all_of_a_result_at_once_and_nobody_else_does() {
    let reading = Reading::new().await;
    let text = format!("{}\r\n\nend", "x".repeat(300_000));
    let program = CallContext { via: Via::Sandbox, ..call() };
    for (output, name) in [(rows(), "value"), (rows()["rows"].clone(), "value"), (json!(text), "text")] {
        let whole = json!({"handle": reading.keep(&output).await, "whole": true, "limit": 1});
        let read = run_within(&reading.tool, &program, whole.clone()).await.unwrap().value;
        assert_eq!(read[name], output);
        let error = run_within(&reading.tool, &call(), whole.clone()).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArguments);
        let caller = Arc::new(Caller::new("bob", "acme", Vec::new()));
        let other = CallContext { via: Via::Sandbox, caller, ..call() };
        let error = run_within(&reading.tool, &other, whole).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnknownResult);
    }
}

#[tokio::test]
async fn what_cannot_be_read_says_why() {
    let reading = Reading::new().await;
    let (json, text) = (reading.keep(&rows()).await, reading.keep(&json!("plain")).await);
    for (handle, arguments, code, expected) in [
        (&*text, json!({"query": "a"}), ErrorCode::ToolError, "use `grep`"),
        (&*json, json!({"query": "rows["}), ErrorCode::ToolError, "the query fails at character"),
        (&*json, json!({"grep": "("}), ErrorCode::InvalidArguments, "no regular expression"),
        ("0123456789abcdef0123456789abcdef", json!({}), ErrorCode::UnknownResult, "call the tool again"),
    ] {
        let error = reading.page(handle, arguments).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    let bob = CallContext { caller: Arc::new(Caller::new("bob", "acme", Vec::new())), ..call() };
    let error = run_within(&reading.tool, &bob, json!({"handle": &*json})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownResult);
    let elsewhere = CallContext { origin: CallOrigin::default(), ..call() };
    let error = run_within(&reading.tool, &elsewhere, json!({"handle": &*json})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnknownResult, "of another session");
}
