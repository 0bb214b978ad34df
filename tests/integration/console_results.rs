//! The console's pages of stored results.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup, markup};

const PATH: &str = "/console/results";

/// Makes a call whose result is stored, and gives its handle.
async fn store(app: &TestApp, session: Option<&str>, arguments: Value) -> String {
    let body = json!({"arguments": arguments, "session_id": session});
    let request = app.post("/tools/json_query/execute").bearer_auth("key-of-ann").header("prefer", "handle");
    let (_, reply) = answer(request.json(&body)).await;
    reply["output"]["result_handle"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn rows() -> Value {
    json!({"query": "[].{id: @, text: 'a row of many'}", "data": (0..3_000).collect::<Vec<_>>()})
}

async fn shown(browser: &Browser<'_>, path: &str) -> (StatusCode, String) {
    let response = browser.get(path).send().await.unwrap();
    let status = response.status();
    let page = response.text().await.unwrap();
    check_markup(&page);
    (status, page)
}

#[tokio::test]
async fn a_caller_lists_and_pages_through_its_own_results_alone() {
    let app = TestApp::with(KEYS).await;
    let (ann, vic) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-vic").await);
    assert!(ann.page(PATH).await.contains("There is no stored result."));
    let handle = store(&app, None, rows()).await;
    let path = format!("{PATH}/{handle}");
    let (_, list) = shown(&ann, PATH).await;
    assert!(list.contains(&format!("href=\"{path}\"")) && list.contains("json_query"), "{list}");
    assert!(!list.contains("of a session") && !vic.page(PATH).await.contains(&handle), "{list}");
    let csv = ann.page(&format!("{PATH}?format=csv")).await;
    assert!(csv.contains(&format!("\r\n\"{handle}\",\"json_query\",\"application/json\",")), "{csv}");

    let (_, page) = shown(&ann, &path).await;
    assert!(page.contains("1–100 of 3\u{2009}000") && page.contains("&quot;id&quot;:99"), "{page}");
    let (_, rest) = page.split_once("rel=\"next\" href=\"").unwrap_or_else(|| panic!("{page}"));
    let (_, page) = shown(&ann, &rest.split('"').next().unwrap().replace("&amp;", "&")).await;
    assert!(page.contains("101–200 of 3\u{2009}000") && page.contains("From the start"), "{page}");
    assert!(page.contains("&quot;id&quot;:100") && !page.contains("&quot;id&quot;:99"), "{page}");
    for (query, status, says) in [
        ("?offset=2999", StatusCode::OK, "&quot;id&quot;:2999"),
        ("?query=length(%40)", StatusCode::OK, "3000"),
        ("?query=%5B0%5D.text", StatusCode::OK, "<code>a row of many"),
        ("?grep=%22id%22:29%5B0-9%5D%2C", StatusCode::OK, "1–10 of 10"),
        ("?grep=nothing-has-this", StatusCode::OK, "Nothing fits."),
        ("?grep=(", StatusCode::BAD_REQUEST, "no regular expression"),
        ("?query=%5B", StatusCode::OK, "value=\"[\""),
        ("?session_id=monday", StatusCode::NOT_FOUND, "there is no result with this handle"),
    ] {
        let (found, page) = shown(&ann, &format!("{path}{query}")).await;
        assert!(found == status && page.contains(says), "{query}: {found} {page}");
    }
    let (status, page) = shown(&vic, &path).await;
    assert!(status == StatusCode::NOT_FOUND && !page.contains("a row of many"), "{page}");
    let ja = ann.get(&format!("{PATH}?lang=ja")).send().await.unwrap().text().await.unwrap();
    assert!(ja.contains("<h1>結果</h1>"), "{ja}");
    // Each page is a call.
    let directory = app.stop().await;
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let reads = trail.lines().filter(|line| line.contains("\"read_result\"") && line.contains(&handle));
    assert!(reads.count() >= 10, "{trail}");
}

#[tokio::test]
async fn a_result_of_a_session_is_opened_with_its_id() {
    let app = TestApp::with(KEYS).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let path = format!("{PATH}/{}", store(&app, Some("monday"), rows()).await);
    assert!(ann.page(PATH).await.contains("of a session"));
    let (status, page) = shown(&ann, &path).await;
    assert!(status == StatusCode::NOT_FOUND && page.contains("name=\"session_id\""), "{page}");
    let (status, page) = shown(&ann, &format!("{path}?session_id=monday")).await;
    assert!(status == StatusCode::OK && page.contains("1–100 of 3\u{2009}000"), "{page}");
    assert!(page.contains("?session_id=monday&amp;offset=100"), "{page}");
}

#[tokio::test]
async fn no_text_of_a_result_or_an_address_becomes_markup() {
    let app = TestApp::with(KEYS).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let texts = markup();
    let hostile = json!({"query": "@", "data": vec![&texts; 4]});
    let path = format!("{PATH}/{}", store(&app, None, hostile).await);
    for query in ["", "?query=%5B0%5D%5B0%5D", "?query=%5B0%5D"] {
        assert_eq!(shown(&ann, &format!("{path}{query}")).await.0, StatusCode::OK, "{query}");
    }
    for text in texts.iter().map(String::as_str).filter(|text| !text.is_empty()).take(40) {
        let fields = ["session_id", "query", "grep", "after"].map(|name| (name, text));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let name = url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
        for address in [format!("{path}?{query}"), format!("{PATH}?{query}"), format!("{PATH}/{name}")] {
            shown(&ann, &address).await;
        }
    }
}
