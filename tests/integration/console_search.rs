//! The console's search, by which any id opens its page; lists that are sorted; forms that are sent twice.

use reqwest::StatusCode;
use reqwest::header::LOCATION;
use serde_json::json;

use crate::app::{TestApp, answer};
use crate::console::{Browser, KEYS, check_markup, markup};
use crate::console_agents::submit;

/// Where the search leads at once; `None` where it shows what it found.
async fn opened(browser: &Browser<'_>, query: &str) -> Option<String> {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("q", query).finish();
    let response = browser.get(&format!("/console/search?open=1&{query}")).send().await.unwrap();
    match response.status() {
        StatusCode::SEE_OTHER => Some(response.headers()[LOCATION].to_str().unwrap().to_owned()),
        status => {
            assert_eq!(status, StatusCode::OK, "{query}");
            check_markup(&response.text().await.unwrap());
            None
        }
    }
}

#[tokio::test]
async fn an_id_opens_its_page_to_those_who_may_see_it() {
    let app = TestApp::with(KEYS).await;
    let call = app.post("/tools/echo/execute").bearer_auth("key-of-ann").json(&json!({"arguments": {}}));
    let (_, reply) = answer(call).await;
    let call = reply["receipt"]["call_id"].as_str().unwrap().to_owned();
    let new = app.post("/api/conversations").bearer_auth("key-of-ann").json(&json!({}));
    let conversation = answer(new).await.1["id"].as_str().unwrap().to_owned();
    let (ann, eve) = (Browser::signed_in(&app, "key-of-ann").await, Browser::signed_in(&app, "key-of-eve").await);
    let root = Browser::signed_in(&app, "key-of-root").await;
    let key = answer(app.post("/admin/keys").bearer_auth("key-of-root").json(&json!({"person": "carol"}))).await.1;
    let key = key["key"]["id"].as_str().unwrap();

    let page_of_call = format!("/console/calls/{call}");
    let page_of_conversation = format!("/console/conversations/{conversation}");
    for (browser, query, page) in [
        (&ann, &*call, Some(&*page_of_call)),
        (&ann, &*call.to_uppercase(), Some(&*page_of_call)),
        (&ann, &*format!(" {call} "), Some(&*page_of_call)),
        (&root, &*call, Some(&*page_of_call)),
        (&eve, &*call, None),
        (&ann, &*conversation, Some(&*page_of_conversation)),
        (&eve, &*conversation, None),
        (&root, &*conversation, None),
        (&root, key, Some(&*format!("/console/keys/{key}"))),
        (&ann, key, None),
        (&ann, "calculator", Some("/console/tools/calculator")),
        (&ann, "alculato", Some("/console/tools/calculator")),
        (&ann, "Costs", Some("/console/costs")),
        // Several things, and nothing.
        (&ann, "c", None),
        (&ann, "", None),
        (&ann, "there is nothing of this name", None),
    ] {
        assert_eq!(opened(browser, query).await.as_deref(), page, "{query}");
    }
    // Without the button it only shows, as for the palette.
    let page = ann.page("/console/search?q=calculator").await;
    assert!(
        page.contains("href=\"/console/tools/calculator\"") && page.contains("/console/calls?q=calculator"),
        "{page}"
    );
    let all = ann.page("/console/search").await;
    assert!(all.contains("<code>g c</code>") && !all.contains("/console/keys"), "{all}");
    for text in markup() {
        assert_eq!(opened(&ann, &text).await, None, "{text}");
    }
}

#[tokio::test]
async fn a_list_is_sorted_by_the_title_of_a_column() {
    let place = tempfile::TempDir::new().unwrap();
    let document = json!({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://a.example"}],
        "paths": {"/a": {"get": {"operationId": "a", "responses": {"200": {"description": "ok"}}}}}});
    std::fs::write(place.path().join("a.json"), document.to_string()).unwrap();
    let file = place.path().join("a.json").display().to_string();
    let yaml = format!(
        "{KEYS}outbound: {{openapi_allowed_domains: [a.example]}}\nopenapi: {{collections: {{alpha: {{spec_file: '{file}'}}, beta: {{spec_file: '{file}'}}}}}}\n"
    );
    let app = TestApp::with(&yaml).await;
    let root = Browser::signed_in(&app, "key-of-root").await;
    for (sort, first, sorted, next) in [
        ("name", "alpha", "ascending", "-name"),
        ("-name", "beta", "descending", "name"),
        ("none", "alpha", "", "name"),
    ] {
        let page = root.page(&format!("/console/servers?sort={sort}")).await;
        check_markup(&page);
        let (_, rows) = page.split_once("<tbody>").unwrap();
        let place = |name: &str| rows.find(name).unwrap();
        assert_eq!(place("alpha") < place("beta"), first == "alpha", "{sort}: {page}");
        assert_eq!(page.contains(&format!("aria-sort=\"{sorted}\"")), !sorted.is_empty(), "{sort}: {page}");
        assert!(page.contains(&format!("href=\"/console/servers?sort={next}\"")), "{sort}: {page}");
    }
    for sort in ["", "duration", "cost"] {
        _ = app.post("/tools/echo/execute").bearer_auth("key-of-root").json(&json!({"arguments": {}})).send().await;
        let page = root.page(&format!("/console/calls?sort={sort}&tool=echo")).await;
        check_markup(&page);
        assert_eq!(page.matches("aria-sort=\"descending\"").count(), 1, "{sort}: {page}");
        assert!(page.contains("sort=cost") && page.contains("sort=duration"), "{sort}: {page}");
    }
}

#[tokio::test]
async fn a_form_that_is_sent_twice_makes_one_call() {
    let app = TestApp::with(KEYS).await;
    let ann = Browser::signed_in(&app, "key-of-ann").await;
    let once = || async {
        let page = ann.page("/console/tools/echo").await;
        let (_, rest) = page.split_once("name=\"once\" value=\"").unwrap_or_else(|| panic!("{page}"));
        rest.split('"').next().unwrap().to_owned()
    };
    let (first, second) = (once().await, once().await);
    assert_ne!(first, second);
    let form = |once: &str, json: &str| {
        [("mode", "run"), ("json", json), ("once", once)].map(|(name, text)| (name, text.to_owned()))
    };
    for (fields, runs) in [
        (form(&first, "{\"n\": 1}"), 1),
        (form(&first, "{\"n\": 1}"), 1),
        (form(&first, "{\"n\": 2}"), 2),
        (form(&second, "{\"n\": 1}"), 3),
    ] {
        let fields: Vec<_> = fields.iter().map(|(name, text)| (*name, &**text)).collect();
        let page = submit(&ann, "/console/tools/echo", &fields).await.text().await.unwrap();
        check_markup(&page);
        assert!(page.contains("&quot;n&quot;"), "{page}");
        let metric = "shannon_tool_executions_total{status=\"success\",tool_name=\"echo\"}";
        assert_eq!(app.metric(metric).await, f64::from(runs), "{fields:?}");
    }
}
